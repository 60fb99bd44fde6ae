"""Loading SQL rules: microseconds a rule, of a few templates and all different, and what they go to."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from experiments.arguments import command
from experiments.output import keep
from experiments.timing import one_core
from rtfilter import EventFilter, Schema
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.predicate import parse
from rtfilter.predicates.stored.predicate_store import kept
from rtfilter.predicates.templates.many import compile_many
from rtfilter.replay.machine import one_line
from rtfilter.replay.output import Row, table
from rtfilter.subscriptions.drafts import Draft

SCHEMA = Schema({"symbol": str, "venue": str, "price": float, "size": int, "change": float, "halted": bool})
TEMPLATES = [
    "price > {a}",
    "price BETWEEN {a} AND {b}",
    "price > {a} AND price < {b} AND size >= {n}",
    "symbol = '{s}'",
    "symbol = '{s}' AND price < {a}",
    "symbol = '{s}' AND price > {a} AND NOT halted",
    "symbol = '{s}' AND size BETWEEN {n} AND {m}",
    "symbol IN ('{s}', '{t}')",
    "symbol IN ('{s}', '{t}', '{u}') AND price < {a}",
    "symbol LIKE '{v}%'",
    "symbol LIKE '{v}%' AND change > {c}",
    "symbol = '{s}' AND venue = '{w}'",
    "symbol = '{s}' AND venue IN ('{w}', '{x}') AND size > {n}",
    "change < -{c} OR change > {c}",
    "symbol = '{s}' AND (change < -{c} OR change > {c})",
    "price < {a} OR size > {n} AND venue = '{w}'",
    "venue <> '{w}' AND price >= {a} AND price <= {b}",
    "halted = TRUE AND symbol = '{s}'",
    "size IN ({n}, {m}) AND price > {a}",
    "symbol = '{s}' AND price IS NOT NULL AND change BETWEEN -{c} AND {c}",
]
"""The templates of typical alerts; constants are drawn."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def constants(chance: random.Random) -> dict[str, Any]:
    """Return constants for any template."""
    symbols = ["".join(chance.choices(LETTERS, k=chance.randint(2, 5))) for _ in range(3)]
    venues = chance.sample(["XNYS", "XNAS", "XLON", "XETR", "XPAR", "XTKS"], 2)
    price, size = round(chance.uniform(1, 500), 2), chance.randrange(1, 10_000)
    return {
        **dict(zip("stu", symbols, strict=True)),
        **dict(zip("wx", venues, strict=True)),
        "v": symbols[0][:2],
        "a": price,
        "b": round(price * 1.1, 2),
        "n": size,
        "m": size + chance.randrange(1, 500),
        "c": round(chance.uniform(0.5, 20), 1),
    }


def of_templates(count: int, templates: int = len(TEMPLATES)) -> list[str]:
    """Return `count` rules of the first templates."""
    chance = random.Random(1)
    return [TEMPLATES[row % templates].format(**constants(chance)) for row in range(count)]


NUMBERS = [f"{name} {test}" for name in ("price", "size", "change") for test in ("< #", "> #", "= #", "<> #")]
NUMBERS += [f"{name} BETWEEN # AND #" for name in ("price", "size", "change")]
TEXTS = [f"{name} {test}" for name in ("symbol", "venue") for test in ("= $", "<> $", "LIKE $", "IN ($, $)")]
TESTS = [*NUMBERS, *TEXTS, "halted", "NOT halted", "size IS NOT NULL"]
"""Of which any two to four make a rule."""


def all_different(count: int) -> list[str]:
    """Return `count` rules, each of another template."""
    chance, found = random.Random(2), dict[tuple[str, ...], None]()
    while len(found) < count:
        found[tuple(chance.choices(TESTS, k=chance.randint(2, 4)))] = None
    made = []
    for tests in found:
        text = " AND ".join(tests).replace("#", "{}").replace("$", "'{}'")
        made.append(text.format(*(chance.randrange(1000) for _ in range(text.count("{")))))
    return made


def parts(rules: list[str]) -> dict[str, float]:
    """Return the seconds of a load: reading singly, reading together, the index, and the sum."""
    begun = perf_counter()
    if len(rules) <= 100_000:
        predicates = [parse(rule, SCHEMA) for rule in rules]
        read = perf_counter()
        boxes = [compile_predicate(predicate, SCHEMA) for predicate in predicates]
        for predicate in predicates:
            kept(predicate)
        alone = {"parse, one by one": read - begun, "boxes, one by one": perf_counter() - read}
        del predicates, boxes
    else:
        alone = {}
    gc.collect()
    begun = perf_counter()
    compiled = compile_many(rules, SCHEMA)
    read = perf_counter()
    target = EventFilter(SCHEMA, matcher="rtree")
    target._parts.updates.add(Draft(Filters.of_compiled(SCHEMA, compiled), compiled.kept))
    found = {**alone, "read and boxes": read - begun, "index": perf_counter() - read}
    del compiled, target
    gc.collect()
    begun = perf_counter()
    target = EventFilter(SCHEMA, matcher="rtree")
    target.subscribe_many(rules)
    found["subscribe_many"] = perf_counter() - begun
    assert len(target) == len(rules)
    return found


def main(arguments: list[str]) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("rules", __doc__, "out")
    parser.add_argument("--rules", type=int, default=50_000, help="rules of a load (50000)")
    parser.add_argument("--many", type=int, default=0, help="rules of a large load of 20 templates (0: none)")
    parser.add_argument("--repeats", type=int, default=3, help="number of rounds; their median counts (3)")
    given = parser.parse_args(arguments)
    print(one_line())
    EventFilter(SCHEMA, matcher="rtree").subscribe_many(of_templates(10_000))
    kinds: dict[str, Callable[[], list[str]]] = {
        f"{given.rules:,} of 1 template": lambda: of_templates(given.rules, 1),
        f"{given.rules:,} of 20 templates": lambda: of_templates(given.rules),
        f"{given.rules:,} all different": lambda: all_different(given.rules),
    }
    if given.many:
        kinds[f"{given.many:,} of 20 templates"] = lambda: of_templates(given.many)
    rows: list[Row] = []
    with one_core():
        for name, make in kinds.items():
            rules = make()
            runs = [parts(rules) for _ in range(given.repeats if len(rules) <= 100_000 else 1)]
            rows += [
                {
                    "rules": name,
                    "part": part,
                    "us a rule": median(run[part] for run in runs) / len(rules) * 1e6,
                }
                for part in runs[0]
            ]
    print(table(rows, {"rules": "rules", "part": "part", "us a rule": "us a rule"}))
    keep(given.out, "rules", {"rules": given.rules, "many": given.many, "repeats": given.repeats}, rows)
    return 0
