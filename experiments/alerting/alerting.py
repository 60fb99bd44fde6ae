"""Filter nodes compared with the tree of Gough and Smith and with other matchers (Bittner 2004).

The paper compares its prototype DAS with Elvin4 and with OpenORB, which cannot be had any more, by parameters
whose values it does not give. Here other methods take their places, and each parameter is varied alone.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from textwrap import fill
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from experiments.alerting.draws import OPERATORS, VALUES, Case
from experiments.paper import verdicts
from experiments.paper.runner import Experiment, Run, main
from experiments.paper.settings import PAPER_CAPACITY, Setting
from experiments.paper.verdicts import Claim, Finding, Three
from experiments.timing import rounds
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import plain
from rtfilter.matchers import Filters, make_matcher
from rtfilter.matchers.port import Matcher
from rtfilter.replay.output import Row, table

NODES, POINTERS, BITS, TREE = "filter nodes", "pointers alone", "bit lists alone", "Gough-Smith tree"
NAIVE, COUNTING, MATCHING, RTREE = "naive", "counting", "matching tree", "R*-tree"
SHORT: Final = {NODES: "nodes", POINTERS: "pointers", BITS: "bit lists", TREE: "tree", MATCHING: "matching"}
"""Short names for tables."""
METHODS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    NODES: ("filter-nodes", {}),
    POINTERS: ("filter-nodes", {"bit_lists": 1}),
    BITS: ("filter-nodes", {"bit_lists": 0}),
    TREE: ("gough-smith", {"beyond": "refuse"}),
    NAIVE: ("naive", {}),
    COUNTING: ("shared-counting", {}),
    MATCHING: ("matching-tree", {}),
    RTREE: ("rtree", {"capacity": PAPER_CAPACITY}),
}
"""Matchers and their options. All but the R*-tree, whose nodes are small here so that there are several, are
pure Python, so that their times can be compared."""
COMPILED: Final = (RTREE,)
POINTER, WORD = 8, 64
"""Bytes of a reference, and bits of eight bytes, in the memory that is counted."""
TURNS: Final = 5
"""Rounds of timing."""

SIZES: Final[Mapping[str, Mapping[str, Any]]] = {
    "ci": {
        "base": (60, 3, 0.3, 0.1, "mixed"), "events": 40, "most": 300_000,
        "profiles": (20, 40, 80), "attributes": (1, 2, 3), "careless": (0.0, 0.3, 0.6),
        "matches": (0.03, 0.1, 0.3),
    },
    "medium": {
        "base": (200, 3, 0.3, 0.1, "mixed"), "events": 200, "most": 2_000_000,
        "profiles": (50, 100, 200, 400, 800), "attributes": (1, 2, 3, 4),
        "careless": (0.0, 0.2, 0.4, 0.6, 0.8), "matches": (0.02, 0.05, 0.1, 0.2, 0.4),
    },
    "full": {
        "base": (500, 3, 0.3, 0.1, "mixed"), "events": 500, "most": 2_000_000,
        "profiles": (100, 200, 400, 800, 1600), "attributes": (1, 2, 3, 4),
        "careless": (0.0, 0.2, 0.4, 0.6, 0.8), "matches": (0.01, 0.02, 0.05, 0.1, 0.2, 0.4),
    },
}  # fmt: skip
"""By profile: the case around which one parameter at a time is varied, events, the most references of the
tree, and the values of each parameter. A full run takes less than ten minutes on one core."""
NUMERIC: Final = ("profiles", "attributes", "careless", "matches")
SETTINGS: Final = {"own": Setting("own", f"uniform, {VALUES} values of each attribute")}


def measure(run: Run) -> None:
    """Measure each method at each value of each parameter."""
    base = Case(*run.sizes["base"])
    values: dict[str, Any] = {name: run.sizes[name] for name in NUMERIC}
    values["operators"] = (*OPERATORS, "mixed")
    cases = {name: [_varied(base, name, value) for value in own] for name, own in values.items()}
    for name, options in METHODS.values():  # warms up imports and caches, which belong to no method
        few = base.predicates(np.random.default_rng(0))[:9]
        _built(name, base, options, Filters.of_predicates(base.schema, few))
    for piece in run.pieces({name: float(sum(case.profiles for case in own)) for name, own in cases.items()}):
        run.keep(piece, measured(piece, cases[piece], run.sizes["events"], run.sizes["most"], run.seed))


def _varied(base: Case, parameter: str, value: Any) -> Case:
    change: dict[str, Any] = {parameter: value}
    return base._replace(**change)


def measured(parameter: str, cases: Sequence[Case], count: int, most: int, seed: int) -> list[Row]:
    """Return a row of steps, time and memory for each method and case; a refused case has only the reason.

    In each round of timing, all values of the parameter have their turn, the values of a method together.
    """
    rows: dict[tuple[str, int], Row] = {}
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    for place, case in enumerate(cases):
        rng = np.random.default_rng(seed)
        filters = Filters.of_predicates(case.schema, case.predicates(rng))
        events = case.schema.read(case.events(count, rng))
        for method, (name, options) in METHODS.items():
            row: Row = {"parameter": parameter, "value": getattr(case, parameter), "method": method}
            rows[method, place] = row
            own = options | ({"most_references": most} if method == TREE else {})
            try:
                row["traced"], matcher = _traced(partial(_built, name, case, own, filters))
            except PredicateError as error:
                row["refused"] = str(error)
                continue
            hits = matcher.match(events)
            row |= {
                "unit": matcher.stats()["unit"],
                "steps": float(hits.visits.mean()),
                "matches": len(hits.ids) / count,
                "held": _held(matcher),
            }
            calls[method, place] = partial(matcher.match, events)
    in_turns = {key: calls[key] for method in METHODS for key in calls if key[0] == method}
    for key, times in rounds(in_turns, TURNS).items():
        rows[key]["us"] = [1e6 * time / count for time in times]
    return list(rows.values())


def _built(name: str, case: Case, options: dict[str, Any], filters: Filters) -> Matcher:
    matcher = make_matcher(name, case.schema, **options)
    matcher.add(filters)
    return matcher


def _traced(build: Callable[[], Matcher]) -> tuple[int, Matcher]:
    """Return the bytes of Python and NumPy that a matcher took, without predicates, and the matcher."""
    gc.collect()
    tracemalloc.start()
    try:
        matcher = build()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], matcher
    finally:
        tracemalloc.stop()


def _held(matcher: Matcher) -> float | None:
    """Return the bytes of references and bits in filter nodes or the tree, as they report them."""
    own = matcher.stats()
    if "pointers" in own:
        return float(POINTER * (own["sets"] + own["pointers"]) + own["bits"] / 8)
    return float(POINTER * own["references"]) if "references" in own else None


# -- what is read from the rows ------------------------------------------------------------------------------


class Pair(NamedTuple):
    """The rows of two methods at one value of a parameter."""

    parameter: str
    value: Any
    one: Row
    other: Row


def pairs(rows: Sequence[Row], one: str, other: str) -> list[Pair]:
    """Return the cases in which both methods accepted the profiles."""
    place = {(row["parameter"], row["value"], row["method"]): row for row in rows if "steps" in row}
    return [
        Pair(parameter, value, row, place[parameter, value, other])
        for (parameter, value, method), row in place.items()
        if method == one and (parameter, value, other) in place
    ]


def ratios(rows: Sequence[Row], one: str, other: str, cell: str) -> list[Three]:
    """Return the cost of one method as a multiple of another's, per case, with least and most."""
    found: list[Three] = []
    for pair in pairs(rows, one, other):
        mine, others = pair.one[cell], pair.other[cell]
        if cell == "us":
            middle = median(mine) / median(others)
            found.append((middle, min(mine) / max(others), max(mine) / min(others)))
        else:
            found.append((mine / others,) * 3)
    return found


def compared(rows: Sequence[Row], one: str, other: str, cell: str) -> Finding:
    """Return whether one method costs more than another, in all cases or in some."""
    found = ratios(rows, one, other, cell)
    if not found:
        return Finding("no case where both have it", verdicts.DOES_NOT_APPLY)
    least, most = min(each[0] for each in found), max(each[0] for each in found)
    more = sum(low > 1 for _, low, _ in found)
    span = f"{plain(least, 2, ',')} to {plain(most, 3, ',')} times as much"
    told = f"{span}, surely more in {more} of {len(found)} cases"
    return Finding(told, verdicts.above(found, 1))


def alike(rows: Sequence[Row], one: str, other: str, cell: str) -> Finding:
    """Return whether two methods react alike to each parameter, by the rank correlation of their curves.

    A curve that moves by a negligible share is flat. It is like another flat one alone.
    """
    ranks = {}
    for parameter in NUMERIC:
        own = [pair for pair in pairs(rows, one, other) if pair.parameter == parameter]
        if len(own) > 2:
            first, second = [pair.one for pair in own], [pair.other for pair in own]
            ranks[parameter] = _rank(_curve(first, cell), _curve(second, cell))
    told = ", ".join(f"{parameter} {rank:.2f}" for parameter, rank in ranks.items())
    return Finding(told or "no curves", verdicts.of_cases(map(verdicts.rising, ranks.values())))


def _curve(rows: Iterable[Row], cell: str) -> list[float]:
    return [median(row[cell]) if cell == "us" else row[cell] for row in rows]


def _rank(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the rank correlation of two curves, 1 if both are flat, 0 if one is."""
    flat = [max(curve) <= (1 + verdicts.NEGLIGIBLE) * min(curve) for curve in (one, other)]
    return float(all(flat)) if any(flat) else float(spearmanr(one, other).statistic)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the paper's claims, with what was found in steps and in time."""
    unobtainable = Finding("neither can be had; nothing is claimed", verdicts.DOES_NOT_APPLY)
    counted = Finding("memory has no time", verdicts.DOES_NOT_APPLY)
    made = [
        Claim(f"{NODES} and {other} react alike to parameters",
              "all three systems react alike", alike(rows, NODES, other, "steps"),
              Finding("compiled: not compared", verdicts.DOES_NOT_APPLY) if other in COMPILED
              else alike(rows, NODES, other, "us"))
        for other in (TREE, NAIVE, COUNTING, MATCHING, RTREE)
    ]  # fmt: skip
    for cell, what in (("held", "counted references and bits"), ("traced", "bytes of Python's memory")):
        made += [
            Claim(f"the {TREE} needs more memory than filter nodes with {POINTERS}, in {what}",
                  "filter nodes need less", compared(rows, TREE, POINTERS, cell), counted),
            Claim(f"{POINTERS} need more memory than {BITS}, in {what}", "bit lists need less",
                  compared(rows, POINTERS, BITS, cell), counted),
        ]  # fmt: skip
    made += [
        Claim(f"filter nodes with {POINTERS} take longer than the {TREE}", "they do",
              compared(rows, POINTERS, TREE, "steps"), compared(rows, POINTERS, TREE, "us")),
        Claim("Elvin4 is about 8 times as slow as DAS, OpenORB much slower still", "they are", unobtainable,
              unobtainable),
    ]  # fmt: skip
    for other in (NAIVE, COUNTING, MATCHING):
        units = Finding("other units", verdicts.DOES_NOT_APPLY)
        time = compared(rows, other, NODES, "us")._replace(verdict=verdicts.OBSERVED)
        made.append(Claim(f"time of {other} beside filter nodes", "", units, time))
    return made


def text(rows: Sequence[Row]) -> str:
    """Return steps, time and memory of each method at each value, as tables."""
    titles = {
        "steps": "steps an event", "us": "us an event", "held": "bytes, counted", "traced": "bytes, traced",
    }  # fmt: skip
    parts = []
    for cell, title in titles.items():
        shown = METHODS if cell != "held" else (NODES, POINTERS, BITS, TREE)
        columns = {"parameter": title, "value": "value"} | {name: SHORT.get(name, name) for name in shown}
        parts.append(table(list(_lines(rows, cell)), columns))
    units = {row["method"]: row["unit"] for row in rows if "unit" in row}
    notes = [
        "Steps are " + ", ".join(f"{unit} of {method}" for method, unit in units.items()) + ".",
        "The R*-tree is compiled, the others are Python.",
        *(f"{row['parameter']} {row['value']}: {row['refused']}" for row in rows if "refused" in row),
    ]
    return "\n\n".join([*parts, *(fill(note, 100) for note in notes)])


def _lines(rows: Sequence[Row], cell: str) -> Iterable[Row]:
    for parameter, value in dict.fromkeys((row["parameter"], row["value"]) for row in rows):
        own = [row for row in rows if (row["parameter"], row["value"]) == (parameter, value) and cell in row]
        cells = {row["method"]: median(row[cell]) if cell == "us" else row[cell] for row in own}
        yield {"parameter": parameter, "value": str(value), **cells}


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw steps, time and memory by each numeric parameter."""
    cells = {"steps": "steps an event", "us": "µs an event", "held": "bytes held", "traced": "bytes traced"}
    figure = Figure(figsize=(3.3 * len(NUMERIC), 2.6 * len(cells)), layout="constrained")
    figure.suptitle(title, fontsize=9)
    panels = figure.subplots(len(cells), len(NUMERIC), sharey="row", sharex="col", squeeze=False)
    for line, (cell, label) in zip(panels, cells.items(), strict=True):
        for axes, parameter in zip(line, NUMERIC, strict=True):
            for place, method in enumerate(METHODS):
                own = [row for row in rows if (row["parameter"], row["method"]) == (parameter, method)]
                own = [row for row in own if row.get(cell) is not None]
                heights = [median(row[cell]) if cell == "us" else row[cell] for row in own]
                axes.plot([row["value"] for row in own], heights, ".-", color=f"C{place}", label=method)
            axes.set(yscale="log", xscale="log" if parameter in ("profiles", "matches") else "linear")
        line[0].set_ylabel(label)
    for axes, parameter in zip(panels[-1], NUMERIC, strict=True):
        axes.set_xlabel(
            {"careless": "share of don't care", "matches": "share of matches"}.get(parameter, parameter)
        )
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


EXPERIMENT = Experiment(
    "alerting", "filter nodes beside other methods", measure, text, claims, draw, SETTINGS, SIZES
)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
