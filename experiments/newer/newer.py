"""REIN, TAMA, BE-Tree and HEM, beside counting and the R*-tree: what their papers claim of them.

All are compiled, and take turns on the same events, as a filter asks them: with the exact check of what they
find. Workloads are those of the contest. Units are constraints that are touched: marks of REIN, increments of
counting and of TAMA (with the boxes that it compares), nodes and boxes of the BE-Tree, bits and words of HEM.
A word is 64 marks at once, and a box of 12 attributes is compared as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.contest.cell import Known, ask_matcher, read_draft
from experiments.paper import verdicts
from experiments.paper.confidence import Interval, middle
from experiments.paper.runner import Experiment, Run, main, percent
from experiments.paper.settings import Setting
from experiments.paper.verdicts import Claim, Finding
from experiments.timing import WARM, rounds
from rtfilter.basics.text import plain
from rtfilter.matchers import make_matcher
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import WORKLOADS, workload

REIN, TAMA, BE, HEM, COUNTING, RTREE = "rein", "tama", "be-tree", "hem", "counting", "rtree"
NEWER = (REIN, TAMA, BE, HEM)
MATCHERS = (*NEWER, COUNTING, RTREE)
BATCHES = (1, 1000)
COUNTED = 100
"""Events whose operations are counted."""
CLAIMED = 0.868
"""The most of its rivals' time that HEM saves, by its paper."""
TENFOLD = 10.0
"""An order of magnitude."""
FOURFOLD = 4.0
"""The factor that counts partly as an order of magnitude."""

OTHER_UNITS = Finding("other units", verdicts.DOES_NOT_APPLY)
NOT_MEASURED = Finding("not measured", verdicts.DOES_NOT_APPLY)

_FEW = ("narrow", "dense", "equal", "flights")
SIZES: dict[str, dict[str, Any]] = {
    "ci": {"worlds": [[name, 1000] for name in _FEW], "singles": 50, "rounds": 3},
    "medium": {"worlds": [[name, 10_000] for name in WORKLOADS], "singles": 100, "rounds": 7},
    "full": {
        "worlds": [[name, count] for count in (10_000, 100_000) for name in WORKLOADS],
        "singles": 100,
        "rounds": 7,
    },
}
SETTINGS = {"own": Setting("own", "workloads of the contest")}


def measure(run: Run) -> None:
    """Ask all matchers in each world, by turns."""
    worlds = {f"{name}, {count}": (name, count) for name, count in run.sizes["worlds"]}
    for piece in run.pieces({name: float(count) for name, (_, count) in worlds.items()}):
        run.keep(piece, list(asked(*worlds[piece], run.sizes["singles"], run.sizes["rounds"], run.seed)))


def asked(name: str, count: int, singles: int, repeats: int, seed: int) -> Iterator[Row]:
    """Yield a row for each matcher: work, and microseconds per event in each round, by size of batches."""
    source = workload(name, seed)
    events = source.schema.read(source.events(0, BATCHES[-1])).searched
    alone = [events.rows(range(at, at + 1)) for at in range(singles)]
    made = {matcher: make_matcher(matcher, source.schema) for matcher in MATCHERS}
    draft = read_draft(source, RTREE, made[RTREE].takes, 0, count)  # all of them take boxes
    known = Known(draft, source.schema)
    for one in made.values():
        one.add(draft.filters)
    asks = {matcher: partial(ask_matcher, one, known) for matcher, one in made.items()}
    us: dict[str, dict[str, list[float]]] = {matcher: {} for matcher in MATCHERS}
    for batch, tables in zip(BATCHES, (alone, [events]), strict=True):
        taken = rounds({matcher: partial(ask, tables) for matcher, ask in asks.items()}, repeats, WARM)
        for matcher, times in taken.items():
            us[matcher][str(batch)] = [1e6 * time / sum(map(len, tables)) for time in times]
    for matcher in MATCHERS:
        hits = made[matcher].match(events.rows(range(COUNTED)))
        ((offsets, _),) = asks[matcher]([events])
        yield {
            "matcher": matcher, "workload": name, "subscriptions": count, "us": us[matcher],
            "work": float(hits.visits.mean()), "unit": made[matcher].stats()["unit"],
            "matches": float(np.mean(np.diff(offsets))),
        }  # fmt: skip


World = tuple[str, int]


def by_world(rows: Sequence[Row]) -> dict[World, dict[str, Row]]:
    """Return the rows of each matcher, by workload and number of subscriptions."""
    found: dict[World, dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["workload"], row["subscriptions"]), {})[row["matcher"]] = row
    return found


def ratio(own: Row, other: Row, batch: int) -> Interval:
    """Return the second matcher's time as a multiple of the first's: a median of paired rounds."""
    pairs = zip(own["us"][str(batch)], other["us"][str(batch)], strict=True)
    return middle([b / a for a, b in pairs])


def work(own: Row, other: Row) -> Interval:
    """Return the second matcher's work as a multiple of the first's."""
    found = max(other["work"], 1.0) / max(own["work"], 1.0)
    return Interval(found, found, found)


def text(rows: Sequence[Row]) -> str:
    """Return work and microseconds per event, as tables."""
    tables = [_table(rows, "work", MATCHERS[:-1], _work)]  # the tree counts nodes, of many boxes each
    tables += [
        _table(rows, f"us, batches of {batch:,}", MATCHERS, partial(_us, batch=batch)) for batch in BATCHES
    ]
    return "\n\n".join(tables)


def _table(rows: Sequence[Row], title: str, matchers: Sequence[str], cell: Callable[[Row], float]) -> str:
    lines = [
        {"world": f"{name}, {count:,}"} | {matcher: plain(cell(own[matcher]), 3, ",") for matcher in matchers}
        for (name, count), own in by_world(rows).items()
    ]
    return table(lines, {"world": title} | {name: name for name in matchers})


def _work(row: Row) -> float:
    found: float = row["work"]
    return found


def _us(row: Row, batch: int) -> float:
    return middle(row["us"][str(batch)]).value


Worlds = Mapping[World, Mapping[str, Row]]


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims of the papers, and this project's claims about the R*-tree."""
    worlds = by_world(rows)
    most = max(count for _, count in worlds)
    dense = {world: own for world, own in worlds.items() if world == ("dense", most)}
    return [
        Claim(
            f"REIN is an order of magnitude faster than counting where {most:,} subscriptions are wide",
            "an order of magnitude",
            _tenfold([work(own[REIN], own[COUNTING]) for own in dense.values()]),
            _tenfold([ratio(own[REIN], own[COUNTING], 1000) for own in dense.values()]),
        ),
        _narrower(worlds, most),
        *(_up_to(worlds, other) for other in (REIN, TAMA)),
        _faster(worlds, "TAMA is substantially faster than counting", "substantially", TAMA, verdicts.MUCH),
        _faster(worlds, "the BE-Tree is faster than counting", "than other indexes", BE, 0.0),
        *(_tree(worlds, batch) for batch in reversed(BATCHES)),
    ]


def _tenfold(found: Sequence[Interval]) -> Finding:
    if not found:
        return NOT_MEASURED
    told = "; ".join(f"{plain(one.value, 2, ',')} times" for one in found)
    return Finding(told, verdicts.rather_above(found, FOURFOLD, TENFOLD))


def _narrower(worlds: Worlds, most: int) -> Claim:
    """Return the finding for boxes that differ only in their widths."""
    own = {name: worlds[name, most][REIN] for name in ("narrow", "dense") if (name, most) in worlds}
    claim, paper = "REIN takes less where subscriptions are wider", "the more match, the better"
    if len(own) < 2:
        return Claim(claim, paper, NOT_MEASURED, NOT_MEASURED)
    units, time = work(own["dense"], own["narrow"]), ratio(own["dense"], own["narrow"], 1000)
    return Claim(
        claim, paper,
        *(Finding(f"narrow ones take {_between(one)} times as much as wide ones",
                  verdicts.above([one], 1.0)) for one in (units, time)),
    )  # fmt: skip


def _between(one: Interval) -> str:
    """Return a ratio and, where it has one, its interval."""
    value, low, high = (plain(end, 2, ",") for end in one)
    return value if low == high else f"{value} ({low} to {high})"


def _up_to(worlds: Worlds, other: str) -> Claim:
    """Return the most that HEM saves, and where it saves nothing."""
    saved = {
        world: 1 - 1 / ratio(own[HEM], own[other], 1000).value for world, own in worlds.items()
    }  # fmt: skip
    best = max(saved.values())
    near = 1 - best <= 2 * (1 - CLAIMED)  # the rest takes at most twice as long as claimed
    verdict = verdicts.HOLDS if best >= CLAIMED else verdicts.PARTLY if near else verdicts.FAILS
    lost = [f"{name} ({count:,})" for (name, count), share in saved.items() if share <= 0]
    nothing = f"; nothing on {', '.join(lost)}" if lost else ""
    return Claim(
        f"HEM takes up to {percent(CLAIMED, 1)} less time than {other.upper()}",
        f"up to {percent(CLAIMED, 1)}",
        OTHER_UNITS,
        Finding(f"up to {percent(best, 1)}, in the middle {percent(float(np.median(list(saved.values()))))}"
                f"{nothing}", verdict),
    )  # fmt: skip


def _faster(worlds: Worlds, claim: str, paper: str, matcher: str, gain: float) -> Claim:
    """Return the finding in comparison with counting, the older method."""
    limit = 1 / (1 - gain)
    units = [work(own[matcher], own[COUNTING]) for own in worlds.values()]
    times = [ratio(own[matcher], own[COUNTING], 1000) for own in worlds.values()]
    return Claim(claim, paper, *(_all_above(found, limit) for found in (units, times)))


def _all_above(found: Sequence[Interval], limit: float) -> Finding:
    values = [one.value for one in found]
    sure = sum(one.low > limit for one in found)
    told = f"{plain(min(values), 2, ',')} to {plain(max(values), 2, ',')} times"
    return Finding(f"{told}; surely in {sure} of {len(found)}", verdicts.above(found, limit))


def _tree(worlds: Worlds, batch: int) -> Claim:
    """Return the finding for the R*-tree beside the best of the four in each world."""
    best = {
        world: min((ratio(own[RTREE], own[name], batch) for name in NEWER), key=lambda one: one.value)
        for world, own in worlds.items()
    }
    behind = [f"{name} ({count:,})" for (name, count), one in best.items() if one.high < 1]
    found = _all_above(list(best.values()), 1.0)
    where = f"; behind on {', '.join(behind)}" if behind else ""
    claim = (
        f"the R*-tree is faster than all four, {'one event' if batch == 1 else f'{batch:,} events'} a call"
    )
    return Claim(claim, "", OTHER_UNITS, found._replace(ours=found.ours + where))


def draw(rows: Sequence[Row], title: str) -> Figure:
    """Draw the time of each matcher as a multiple of the R*-tree's, a panel for each size of batches."""
    worlds = by_world(rows)
    figure = Figure(figsize=(4.6 * len(BATCHES), 1.6 + 0.24 * len(worlds)), layout="constrained")
    figure.suptitle(title, fontsize=9)
    panels = figure.subplots(1, len(BATCHES), sharey=True, squeeze=False)[0]
    for axes, batch in zip(panels, BATCHES, strict=True):
        for matcher, marker in zip(MATCHERS, "os^Dx+", strict=True):
            times = [ratio(own[RTREE], own[matcher], batch).value for own in worlds.values()]
            axes.plot(times, range(len(worlds)), marker, label=matcher, markersize=5)
        axes.set(title=f"batches of {batch:,}", xlabel="time, R*-tree = 1", xscale="log")
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_yticks(range(len(worlds)), [f"{name}, {count:,}" for name, count in worlds])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(MATCHERS))
    return figure


EXPERIMENT = Experiment("newer", "REIN, TAMA, BE-Tree and HEM", measure, text, claims, draw, SETTINGS, SIZES)
SETTING_NAMES = tuple(SETTINGS)
main = partial(main, EXPERIMENT, SETTING_NAMES)
