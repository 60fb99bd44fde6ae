"""The thesis's benchmark "TwelveLongAttributesLessThan" (Novák 2013): its tables, figures and claims.

All thirteen methods run at all four sizes of the thesis; profiles have fewer events. Results and operations
are checked against what follows from the predicates, so that no number stands for a wrong answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from statistics import mean
from time import process_time
from timeit import timeit
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.paper.runner import Experiment, Run, main
from experiments.paper.settings import Setting
from experiments.thesis import printed, switches
from experiments.thesis.claims import claims
from experiments.thesis.contestants import AT_ONCE, COMPILED, FOUR, PYTHON, cost, made, repeated
from experiments.thesis.results import Cell, cells, of, ratios, wins
from experiments.thesis.workload import METHODS, SCHEMA, SIZES, Method, equalities, few_values, predicates
from experiments.timing import medians
from rtfilter.events.table import EventTable
from rtfilter.matchers.port import Matcher
from rtfilter.replay.output import Row, table

SETTINGS = {"less-than": Setting("less-than", "twelve long attributes, less than")}
PROFILE_SIZES: Mapping[str, Mapping[str, Any]] = {
    "ci": {"events": 0.01, "repeats": 3, "costs": (1000,), "equalities": 1000, "switches": 1000},
    "medium": {
        "events": 0.1,
        "repeats": 5,
        "costs": (1000, 2000, 4000),
        "equalities": 4000,
        "switches": 2000,
    },
    "full": {"events": 1, "repeats": 3, "costs": (1000, 2000, 4000), "equalities": 4000, "switches": 2000},
}
"""Part of the thesis's events, rounds of times, and numbers of predicates elsewhere, by profile.

The profile ``full`` matches as many events as the thesis, in about 20 minutes on one core.
"""
UNTIMED = "naive"
"""Counted but not timed by method: the thesis has no times of it, and it takes the longest."""
ASKED = 200
"""Events for predicates of equalities."""
EXACT = frozenset(("CAM", "CAS", "lean", "stamped", "counting"))
"""Contestants whose operations are the satisfied constraints."""
COUNTED = ("MT", "naive", "CAM", "R*-tree", "10 and 20")
EQUAL: Mapping[str, Any] = {
    "MT": "matching-tree",
    "equality tree": "matching-tree-equality",
    "hashes": "hashes",
    "CAM": "shared-counting",
    "naive": "naive",
    **COMPILED,
}
"""The contestants for predicates of equalities."""


class Bench(NamedTuple):
    """The matchers of some predicates in one order, and how often an event is matched."""

    predicates: int
    events: int
    """The number of events in the thesis."""
    times: int
    shuffled: bool
    matchers: Mapping[str, Matcher]


def measure(run: Run) -> None:
    """Time every method at every size, then what subscriptions cost, and what the thesis only discusses.

    In a round every method, size and contestant has its turn, so that other load slows all of them alike.
    """
    sizes = run.sizes
    rounds = [f"round {place + 1}" for place in range(sizes["repeats"])]
    weights = dict.fromkeys(rounds, sizes["events"] * sum(count * events for count, events in SIZES) / 1000)
    weights = {"counted": sum(count / 500 for count, _ in SIZES), **weights}
    for count in sizes["costs"]:
        weights[f"costs of {count}"] = count / 200
    weights["equalities"], weights["switches"] = 10, 10
    benches: list[Bench] = []
    for piece in run.pieces(weights):
        if piece == "equalities":
            rows = list(_equalities(sizes["equalities"], sizes["repeats"], run.seed))
        elif piece == "switches":
            times = max(round(100 * sizes["events"]), 2)
            rows = list(switches.measured(sizes["switches"], times, sizes["repeats"], run.seed))
        elif piece.startswith("costs of "):
            rows = list(_costs(int(piece.removeprefix("costs of ")), run.seed))
        else:
            benches = benches or list(_benches(run))
            rows = list(_counted(benches) if piece == "counted" else _timed(run, benches))
        run.keep(piece, rows)


def _benches(run: Run) -> Iterator[Bench]:
    """Yield what each size needs, in both orders of predicates."""
    for shuffled in (True, False):
        made_of: dict[int, dict[str, Matcher]] = {}
        for count, events in SIZES:
            if count not in made_of:
                chosen = predicates(count, run.seed if shuffled else None)
                made_of[count] = {
                    name: made(factory, chosen, name in AT_ONCE)
                    for name, factory in {**PYTHON, **COMPILED}.items()
                }
            times = max(round(events * run.sizes["events"]), 1)
            yield Bench(count, events, times, shuffled, made_of[count])


def _counted(benches: Sequence[Bench]) -> Iterator[Row]:
    """Yield matches and operations of an event, by method, size and contestant."""
    for method, bench in _cells(benches):
        count, event = bench.predicates, SCHEMA.read([method.event(bench.predicates)])
        for name, matcher in bench.matchers.items():
            operations = _checked(name, matcher, event, method.matched(count))
            if name in EXACT and operations != method.increments(count):
                raise AssertionError(f"{name}, {method.name}: {operations} increments of {count} predicates")
            yield {
                "kind": "match", "method": method.name, "predicates": count, "events": bench.events,
                "times": bench.times, "peer": name, "matched": method.matched(count),
                "operations": operations,
            }  # fmt: skip


def _timed(run: Run, benches: Sequence[Bench]) -> Iterator[Row]:
    """Yield CPU seconds by contestant, each method and size once; sizes of a contestant follow each other."""
    for method in METHODS:
        run.tell(method.name)
        own = [bench for _, bench in _cells(benches, method)]
        event_of = {bench.predicates: SCHEMA.read([method.event(bench.predicates)]) for bench in own}
        taken: list[dict[str, float]] = [{} for _ in own]
        for name in {**PYTHON, **COMPILED}:
            if name == UNTIMED:
                continue
            for bench, seconds in zip(own, taken, strict=True):
                event = event_of[bench.predicates]
                bench.matchers[name].match(event)  # caches are warm
                call = repeated(bench.matchers[name], event, bench.times)
                seconds[name] = timeit(call, timer=process_time, number=1)
        run.advance(1 / len(METHODS))
        for bench, seconds in zip(own, taken, strict=True):
            yield {
                "kind": "time", "method": method.name, "predicates": bench.predicates,
                "events": bench.events, "seconds": seconds,
            }  # fmt: skip


def _cells(benches: Sequence[Bench], *chosen: Method) -> Iterator[tuple[Method, Bench]]:
    """Yield the methods, or some of them, with the benches that have their order of predicates."""
    for method in chosen or METHODS:
        for bench in benches:
            if bench.shuffled == method.shuffled:
                yield method, bench


def _checked(name: str, matcher: Matcher, event: EventTable, expected: int) -> int:
    """Return the operations of a match, which also makes caches warm and compiles."""
    hits = matcher.match(event)
    if len(hits.ids) != expected:
        raise AssertionError(f"{name} finds {len(hits.ids)} subscriptions, not {expected}")
    return int(hits.visits[0])


def _costs(count: int, seed: int) -> Iterator[Row]:
    for order, chosen in (("random", predicates(count, seed)), ("sorted", predicates(count))):
        for name, factory in {**PYTHON, **COMPILED}.items():
            if order == "sorted" and name != "MT":  # the order is no matter to the others
                continue
            yield {"kind": "cost", "peer": name, "order": order, "predicates": count} | cost(
                name, factory, chosen, seed
            )


def _equalities(count: int, repeats: int, seed: int) -> Iterator[Row]:
    """Yield predicates on 3 of 12 attributes, for which the thesis expects hashing to beat R-trees."""
    chosen = equalities(count, seed)
    events = SCHEMA.read(few_values(ASKED, seed))
    matchers = {name: made(factory, chosen, name in COMPILED) for name, factory in EQUAL.items()}
    hits = {name: matcher.match(events) for name, matcher in matchers.items()}
    expected = len(hits["naive"].ids)
    taken = medians({name: partial(matcher.match, events) for name, matcher in matchers.items()}, repeats)
    for name, own in hits.items():
        if len(own.ids) != expected:
            raise AssertionError(f"{name} finds {len(own.ids)} matches, not {expected}")
        yield {
            "kind": "equality", "peer": name, "predicates": count, "us": 1e6 * taken[name] / ASKED,
            "operations": float(own.visits.mean()), "matched": expected / ASKED,
        }  # fmt: skip


# -- tables --------------------------------------------------------------------------------------------------


def text(rows: Sequence[Row]) -> str:
    """Return the tables of the thesis beside ours, then what it leaves out."""
    found = cells(rows)
    parts = [
        "Times of objects of Python, one core, as they were taken, for the events U of each label;\n"
        "printed times are of the thesis's events. Counts are the same in each run. A pair of >= and <=\n"
        "would be one increment, and two in the thesis; no predicate here has one.",
        _first(found), _second(found), _third(found), _counts(found), _compiled(found), _cost_table(rows),
        _equality_table(rows), table(of(rows, "switch"), switches.COLUMNS),
        table(of(rows, "threads"), {"who": "all cores, Counting", "per_second": "events per second"}),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _first(found: Sequence[Cell]) -> str:
    """Return table 5.1."""
    lines = []
    own = [cell for cell in found if cell.method.name == "Match_25_random"]
    for cell, (least, theirs) in zip(own, printed.FIRST, strict=True):
        line: Row = {
            "size": cell.label,
            "least": 1000 * cell.seconds[cell.fastest],
        }
        line |= _paired(ratios(cell), theirs)
        lines.append(line | {"printed": float(least)})
    columns = {"size": "Match_25_random", "least": "ms", **_COLUMNS, "printed": "printed ms"}
    return table(lines, _with_printed(columns))


_COLUMNS = {name: name for name in FOUR}


def _with_printed(columns: Mapping[str, str]) -> dict[str, str]:
    return {**columns, **{f"{name} printed": name for name in printed.COLUMNS}}


def _paired(ours: Mapping[str, float], theirs: Iterable[float]) -> Row:
    """Return ratios of ours, and those that are printed."""
    line: Row = {name: float(value) for name, value in ours.items()}
    return line | {f"{name} printed": value for name, value in zip(printed.COLUMNS, theirs, strict=True)}


def _second(found: Sequence[Cell]) -> str:
    """Return table 5.2."""
    lines, means = [], []
    for method in METHODS:
        own = [ratios(cell) for cell in found if cell.method is method]
        means.append({name: mean(one[name] for one in own) for name in FOUR})
        lines.append({"method": method.name} | _paired(means[-1], printed.RATIOS[method.name]))
    average = {name: mean(one[name] for one in means) for name in FOUR}
    lines.append({"method": "average"} | _paired(average, printed.AVERAGES))
    lines.append({"method": "wins"} | _paired(wins(found), printed.WINS))
    return table(lines, _with_printed({"method": "mean ratios; printed right", **_COLUMNS}))


def _third(found: Sequence[Cell]) -> str:
    """Return table 5.3: milliseconds of CAM for the matched events, and the printed ones."""
    lines, columns = [], {"method": "CAM, ms; printed right"}
    for method in METHODS:
        own = [cell for cell in found if cell.method is method]
        line: Row = {"method": method.name}
        for place, cell in enumerate(own):
            line[f"ours {place}"] = 1000 * cell.seconds["CAM"]
            line[f"printed {place}"] = printed.MILLISECONDS[method.name][place]
            columns[f"ours {place}"] = f"{cell.predicates // 1000}k {cell.times}U"
        lines.append(line)
    columns |= {f"printed {place}": f"{p // 1000}k {u}U" for place, (p, u) in enumerate(SIZES)}
    return table(lines, columns)


def _largest(found: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in found if (cell.predicates, cell.events) == SIZES[-1]]


def _counts(found: Sequence[Cell]) -> str:
    lines = [
        {"method": cell.method.name, "matched": cell.matched}
        | {name: cell.operations[name] for name in COUNTED}
        for cell in _largest(found)
    ]
    heads = ("MT nodes", "naive tests", "increments", "R*-tree nodes", "of 10 and 20")
    columns = dict(zip(COUNTED, heads, strict=True))
    return table(lines, {"method": f"{SIZES[-1][0]} predicates, counted", "matched": "matched"} | columns)


def _compiled(found: Sequence[Cell]) -> str:
    lines = [
        {"method": cell.method.name} | {name: 1e6 * cell.seconds[name] / cell.times for name in COMPILED}
        for cell in _largest(found)
    ]
    return table(
        lines, {"method": f"{SIZES[-1][0]} predicates, machine code, us"} | {name: name for name in COMPILED}
    )


def _cost_table(rows: Sequence[Row]) -> str:
    most = max(row["predicates"] for row in of(rows, "cost"))
    own = [
        row | {"who": f"{row['peer']}, {row['order']}"}
        for row in of(rows, "cost")
        if row["predicates"] == most
    ]
    columns = {
        "who": f"{most} predicates, each",
        "subscribe_us": "us to subscribe",
        "unsubscribe_us": "to unsubscribe",
        "bytes": "bytes",
        "height": "height",
        "nodes": "inner nodes",
    }
    return table(own, columns)


def _equality_table(rows: Sequence[Row]) -> str:
    own = of(rows, "equality")
    head = f"3 equalities of 12, {own[0]['predicates']} predicates"
    columns = {"peer": head, "us": "us per event", "operations": "operations", "matched": "matched"}
    return table(own, columns)


# -- figures -------------------------------------------------------------------------------------------------


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw time by number of predicates (Figure 5.3), and time and operations by share satisfied (5.4).

    The thesis draws the first for eight of its methods, without saying which; here all of them are drawn.
    """
    found = cells(rows)
    figure = Figure(figsize=(13, 8.6), layout="constrained")
    figure.suptitle(f"{title}; after the thesis's Figures 5.3 and 5.4", fontsize=9)
    halves: Any = figure.subfigures(2, 1)
    upper, lower = halves
    colors = colormaps["tab20"](np.arange(len(METHODS)))
    for axes, peer in zip(upper.subplots(1, len(FOUR)), FOUR, strict=True):
        for method, color in zip(METHODS, colors, strict=True):
            own = [cell for cell in found if cell.method is method and cell.events == SIZES[-1][1]]
            sizes, times = [cell.predicates for cell in own], [_ms(cell, peer) for cell in own]
            axes.plot(sizes, times, "o-", color=color, label=method.name)
        axes.set(xlabel="predicates", ylabel="ms per event", title=f"{peer}, by predicates", ylim=(0, None))
    upper.axes[0].legend(fontsize=5)
    middle, right = lower.subplots(1, 2)
    for place, peer in enumerate(FOUR):
        for kind, style in (("Match", "o-"), ("Match2", "s--")):
            _by_share(middle, found, kind, peer, f"C{place}{style}", lambda cell, peer: _ms(cell, peer))
            if peer in ("MT", "CAM"):
                _by_share(
                    right, found, kind, peer, f"C{place}{style}", lambda cell, peer: cell.operations[peer]
                )
    largest = f"{SIZES[-1][0]} predicates, random order"
    middle.set(xlabel="% satisfied", ylabel="ms per event", title=f"time, {largest}", ylim=(0, None))
    right.set(xlabel="% satisfied", ylabel="per event", title="nodes (MT), increments (CAM)", ylim=(0, None))
    for axes in (middle, right):
        axes.legend(fontsize=6)
    return figure


def _ms(cell: Cell, peer: str) -> float:
    return 1000 * cell.seconds[peer] / cell.times


def _by_share(axes: Axes, found: Sequence[Cell], kind: str, peer: str, style: str, height: Any) -> None:
    own = [
        cell for cell in _largest(found) if cell.method.name.startswith(f"{kind}_") and cell.method.shuffled
    ]
    axes.plot([cell.method.satisfied for cell in own], [height(cell, peer) for cell in own], style,
              label=f"{peer}, {kind}")  # fmt: skip


EXPERIMENT = Experiment(
    "thesis", "trees of tests and counting, the thesis's benchmark", measure, text, claims, draw, SETTINGS,
    PROFILE_SIZES,
)  # fmt: skip
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
