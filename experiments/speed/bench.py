"""Speed of `RStarTree` and all peers on one core: search, insertion, deletion, bulk loading.

Of `rtree`, the best of three indexes and of two ways to ask each counts. All answers are compared with brute
force before anything is timed. Times are medians without compilation. The calls of one workload take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments import peers
from experiments.arguments import add_sizes, add_workloads, command, sized
from experiments.output import keep, outcome
from experiments.peers.cost import affordable, too_much
from experiments.peers.scans import brute_force, require_equal
from experiments.peers.trees import Rtree
from experiments.timing import WARM, rounds, steps
from rtfilter.basics.dtypes import FloatArray
from rtfilter.basics.results import Matches
from rtfilter.basics.text import plain
from rtfilter.index.tree import RStarTree
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import BOXES, Bounds, BoxWorkload

BATCHES = (1000, 100, 1)
"""Numbers of events that are searched together."""
EVENT_SECONDS = 5.0
"""A peer that would take longer for one event is left out."""
ASK_SECONDS = 0.05
"""A slow peer is asked for as many events as it answers in this time."""
ALL_SECONDS = 0.6
"""A peer that answers all events in this time is asked for all. With many matches, memory costs the most."""
ALONE = ", one by one"
"""End of the name of a peer that is asked for one event per call."""
CHECKED = 50
"""Number of events for which the answers of a peer are compared with brute force."""
YARDSTICKS = ("NumPy", "rtree packed")
"""Peers whose speed does not change between versions of this library: `compare` divides times by theirs."""
STEPS = 4
"""Number of steps of `measure`."""
COLUMNS = {
    "workload": "workload",
    "measure": "measure",
    "unit": "",
    "ours": "ours",
    "rtree": "rtree",
    "best": "rtree's best",
    "ratio": "rtree / ours",
    "lead": "next / ours",
    "next": "next best of all",
    "target": "target",
    "verdict": "",
}


class Size(NamedTuple):
    """The size of a measurement."""

    boxes: int
    events: int
    sample: int
    """Number of these events that are asked for one at a time."""
    updates: int
    """Number of boxes that are inserted into the index and deleted again."""
    repeats: int
    build_seconds: float
    """Longest time that a peer may take to build; for an event it is `EVENT_SECONDS`."""


FULL = Size(boxes=100_000, events=1000, sample=200, updates=300, repeats=5, build_seconds=5.0)
QUICK = Size(boxes=3000, events=1000, sample=50, updates=100, repeats=1, build_seconds=5.0)


class Target(NamedTuple):
    """A bound that a measure must meet."""

    workload: str
    """Its name; empty for all workloads."""
    measure: str
    boxes: int
    """The target holds from this number of boxes on."""
    key: str
    """The compared value of a row: `ratio` and `lead` must be at least the bound, `ours` at most."""
    bound: float

    def __str__(self) -> str:
        heading = {"ratio": "rtree / ours", "lead": "next / ours", "ours": "ours"}[self.key]
        return f"{heading} {'<=' if self.key == 'ours' else '>='} {self.bound:g}"

    def met(self, row: Row) -> bool:
        """Return whether a row meets the target."""
        value: float = row[self.key]
        return value <= self.bound if self.key == "ours" else value >= self.bound


SEARCH = "search, batch of 1000"
# If several targets apply to a row, the last one counts.
TARGETS = (
    Target("wide", SEARCH, 100_000, "ratio", 100),
    Target("wide", SEARCH, 1_000_000, "ratio", 800),
    Target("narrow", SEARCH, 100_000, "ratio", 30),
    Target("narrow", SEARCH, 1_000_000, "ratio", 250),
    Target("dense", SEARCH, 1_000_000, "ratio", 200),
    Target("nested", SEARCH, 100_000, "lead", 1),
    Target("geo", SEARCH, 100_000, "lead", 1),
    Target("", "insertion, one call", 100_000, "ratio", 1),
    Target("", "insertion, one call", 1_000_000, "ratio", 3),
    Target("", "deletion, one call", 1_000_000, "ratio", 3),
    Target("", "bulk loading", 100_000, "ours", 5),
    Target("", "bulk loading", 1_000_000, "ours", 2),
    *(Target(name, "memory", 100_000, "ours", 450) for name in ("wide", "narrow", "dense")),  # 12 dimensions
)


class Contender(NamedTuple):
    """A way to ask a peer.

    `events` is the number of events that it is asked for together, `alone` that of events asked one per call.
    """

    name: str
    peer: peers.Peer
    ask: peers.Way
    events: int
    alone: int


def search(tree: RStarTree, points: FloatArray, batch: int) -> list[Matches]:
    """Search for all points in batches; the matches of each batch."""
    return [tree.search(points[start : start + batch]) for start in range(0, len(points), batch)]


def ask_each(ask: peers.Way, points: FloatArray) -> list[Any]:
    """Ask a peer for one point per call."""
    return [ask(points[start : start + 1]) for start in range(len(points))]


def insert_each(tree: RStarTree, ids: Sequence[int], boxes: Bounds) -> None:
    """Insert boxes, one per call."""
    for id, low, high in zip(ids, *boxes, strict=True):
        tree.insert(id, low, high)


def delete_each(tree: RStarTree, ids: Sequence[int]) -> None:
    """Delete boxes, one per call."""
    for id in ids:
        tree.delete(id)


def change_rtree(change: Callable[[int, list[float]], None], ids: Sequence[int], boxes: Any) -> None:
    """Insert boxes into an `rtree` index, or delete them, one per call."""
    for id, box in zip(ids, boxes, strict=True):
        change(id, box)


def contenders(
    boxes: Bounds, points: FloatArray, build_seconds: float, say: Callable[[str, str], None]
) -> Iterator[Contender]:
    """Build all peers that can handle these boxes in time, and compare their answers with brute force.

    `say` is called with the name of each other peer and the reason. This library is left to the caller.
    """
    expected = brute_force(boxes, points[:CHECKED])
    for name, kind in peers.PEERS.items():
        if name == peers.OURS:
            continue
        reason = peers.unable(kind, boxes) or too_much(kind, boxes, points, build_seconds, EVENT_SECONDS)
        if reason:
            say(name, reason)
            continue
        peer = kind(boxes)
        for way, ask in peer.ways.items():
            count = affordable(ask, points, ALL_SECONDS)
            if count < len(points):
                count = affordable(ask, points, ASK_SECONDS)
            checked = min(count, CHECKED)
            require_equal(f"{name} by {way}", ask(points[:checked]), expected[:checked])
            alone = affordable(partial(ask_each, ask), points, ASK_SECONDS)
            yield Contender(f"{name}, {way}", peer, ask, count, alone)


def measure(
    workload: BoxWorkload, size: Size, step: Callable[[str], None], say: Callable[[str, str], None]
) -> list[Row]:
    """Check the answers and take the times on one workload; one row per measure.

    `step` is called `STEPS` times, with what comes next. `say` is called with each peer left out, and why.
    """
    name, boxes, points = (
        workload.name,
        workload.subscriptions(0, size.boxes),
        workload.events(0, size.events),
    )
    fresh = workload.subscriptions(size.boxes, size.updates)
    ids = range(size.boxes, size.boxes + size.updates)
    few = points[: size.sample]

    step("building and comparing with brute force")
    tiny = RStarTree.bulk_load(*Bounds(boxes.low[:50], boxes.high[:50]))  # compiles
    insert_each(tiny, range(50, 60), Bounds(fresh.low[:10], fresh.high[:10]))
    delete_each(tiny, range(50, 60))
    tree = RStarTree.bulk_load(*boxes)
    expected = brute_force(boxes, few)
    for batch in BATCHES:
        answers = (found for matches in search(tree, few, batch) for found in matches)
        require_equal(f"RStarTree, batches of {batch}", answers, expected)
    others = list(contenders(boxes, points, size.build_seconds, say))
    rows: list[Row] = []

    step("timing searches")
    questions = {str(batch): few if batch == 1 else points for batch in BATCHES}
    calls: dict[str, Callable[[], object]] = {
        batch: partial(search, tree, asked, int(batch)) for batch, asked in questions.items()
    }
    counts = {batch: len(asked) for batch, asked in questions.items()}
    for other in others:
        calls[other.name] = partial(other.ask, points[: other.events])
        alone = few[: other.alone]
        calls[other.name + ALONE] = partial(ask_each, other.ask, alone)
        counts |= {other.name: other.events, other.name + ALONE: len(alone)}
    times = per(rounds(calls, size.repeats, WARM), counts)
    matches = float(np.mean(tree.count(few)))
    for what in questions:
        suffix = ALONE if what == "1" else ""
        theirs = {other.name: times[other.name + suffix] for other in others}
        rows.append(compare(name, f"search, batch of {what}", times[what], theirs) | {"matches": matches})

    step("timing insertion and deletion")
    # The boxes go into the index and out again, so that each round begins with the same index. Boxes of
    # `nested` repeat from `PREDICATES` on; a box that the index already has costs next to nothing.
    calls = {
        "insertion, one call": partial(tree.insert_many, np.array(ids), *fresh),
        "deletion, one call": partial(tree.delete_many, np.array(ids)),
        "insertion, a call each": partial(insert_each, tree, ids, fresh),
        "deletion, a call each": partial(delete_each, tree, ids),
    }
    for kind, peer in {other.name.partition(",")[0]: other.peer for other in others}.items():
        if isinstance(peer, Rtree):
            sides = np.hstack([peer.finite(side) for side in fresh]).tolist()
            calls[f"insertion: {kind}"] = partial(change_rtree, peer.index.insert, ids, sides)
            calls[f"deletion: {kind}"] = partial(change_rtree, peer.index.delete, ids, sides)
    times = per(rounds(calls, size.repeats), dict.fromkeys(calls, size.updates))
    for what in (
        "insertion, one call",
        "insertion, a call each",
        "deletion, one call",
        "deletion, a call each",
    ):
        prefix = f"{what.partition(',')[0]}: "
        rows.append(
            compare(
                name, what, times[what], {k.removeprefix(prefix): t for k, t in times.items() if prefix in k}
            )
        )

    step("timing bulk loading")
    packed = peers.PEERS["rtree packed 100/100"]
    calls = {"ours": partial(RStarTree.bulk_load, *boxes), "rtree packed 100/100": partial(packed, boxes)}
    times = per(rounds(calls, size.repeats), dict.fromkeys(calls, size.boxes))
    rows.append(compare(name, "bulk loading", times.pop("ours"), times))
    loaded = RStarTree.bulk_load(*boxes)
    rows.append({"workload": name, "measure": "memory", "unit": "B", "ours": loaded.nbytes / size.boxes})
    return rows


def per(times: Mapping[str, list[float]], counts: Mapping[str, int]) -> dict[str, list[float]]:
    """Return seconds of each round, divided by the count of its name, or by 1 without one."""
    return {what: [time / counts.get(what, 1) for time in taken] for what, taken in times.items()}


def compare(workload: str, measure: str, ours: Sequence[float], others: Mapping[str, Sequence[float]]) -> Row:
    """Make a row of results, in microseconds.

    Parameters
    ----------
    workload, measure : str
    ours : sequence of float
        Our seconds in each round.
    others : mapping
        The seconds of each peer in each round, by its name.

    Returns
    -------
    Row
        Medians, our ratio to the best `rtree` and to the fastest peer, and all rounds: ours, and those of the
        first of `YARDSTICKS` that took part.
    """
    middle = {variant: median(times) * 1e6 for variant, times in others.items()}
    row: Row = {
        "workload": workload,
        "measure": measure,
        "unit": "us",
        "ours": median(ours) * 1e6,
        "peers": middle,
        "rounds": [time * 1e6 for time in ours],
    }
    rtrees = {variant: time for variant, time in middle.items() if variant.startswith(peers.RTREES)}
    if rtrees:
        best = min(rtrees, key=lambda variant: rtrees[variant])
        row |= {
            "rtree": rtrees[best],
            "best": best.removeprefix("rtree "),
            "ratio": rtrees[best] / row["ours"],
        }
    if middle:
        nearest = min(middle, key=lambda variant: middle[variant])
        row |= {"next": nearest, "lead": middle[nearest] / row["ours"]}
    yardstick = next((variant for start in YARDSTICKS for variant in others if variant.startswith(start)), "")
    if yardstick:
        row |= {"yardstick": yardstick, "yardstick_rounds": [time * 1e6 for time in others[yardstick]]}
    return row


def judge(row: Row, boxes: int) -> Row:
    """Return the row with its target and verdict, if there is a target for this number of boxes."""
    applying = [
        target
        for target in TARGETS
        if target.workload in ("", row["workload"])
        and target.measure == row["measure"]
        and target.boxes <= boxes
        and target.key in row
    ]
    if not applying:
        return row
    target = applying[-1]
    met = target.met(row)
    return row | {"target": str(target), "met": met, "verdict": outcome(met)}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the time per event by batch size into a picture: ours, the best `rtree` and the best peer."""
    names = list(dict.fromkeys(row["workload"] for row in rows))
    figure = Figure(figsize=(13, 7), layout="constrained")
    grid = figure.subplots(-(-len(names) // 3), min(len(names), 3), sharey=True, squeeze=False)
    for axes, name in zip(grid.flat, names, strict=False):
        searches = [row for row in rows if row["workload"] == name and row["measure"].startswith("search")]
        places = np.arange(len(searches))
        for shift, label in ((-0.27, "rtree, its best"), (0, "next best of all"), (0.27, "rtfilter")):
            times = [_bar(row, label) for row in searches]
            bars = axes.bar(places + shift, times, 0.25, label=label)
            axes.bar_label(bars, fmt=lambda time: plain(time, 3, ","), fontsize=7)
        axes.set_xticks(places, [row["measure"].removeprefix("search, ") for row in searches])
        axes.set(title=f"{name} (next: {searches[0].get('next', '')})", yscale="log", ylabel="us per event")
        axes.title.set_fontsize(9)
        axes.margins(y=0.15)
    grid.flat[0].legend()
    save_picture(figure, path, dpi=150)


def _bar(row: Row, label: str) -> float:
    if label == "rtfilter":
        return float(row["ours"])
    return float(
        row.get("rtree", np.nan) if label.startswith("rtree") else row["ours"] * row.get("lead", np.nan)
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see ``--help``."""
    parser = command("bench", __doc__, "quick", "seed", "out", "figure")
    add_sizes(
        parser,
        FULL,
        boxes="number of boxes in the index",
        repeats="number of rounds; their median counts",
        build_seconds="leave out a peer that would take longer to build",
    )
    add_workloads(parser, list(BOXES))
    given = parser.parse_args(arguments)
    size = sized(given, QUICK, FULL)
    rows: list[Row] = []
    skipped: list[Row] = []
    for name, step in steps(given.workloads, STEPS):

        def say(peer: str, reason: str, name: str = name) -> None:
            skipped.append({"workload": name, "peer": peer, "skipped": reason})

        rows += measure(BOXES[name](given.seed), size, step, say)
    rows = [judge(row, size.boxes) for row in rows]
    print(machine.one_line())
    print(machine.peers_line())
    print(
        f"{size.boxes:,} boxes, one core, medians of {size.repeats}, all answers compared with brute force\n"
        "us per event of a search, per box of a change or bulk load; bytes per box\n"
    )
    print(table(rows, COLUMNS) + "\n")
    for row in skipped:
        print(f"{row['workload']}: skipped {row['peer']}: {row['skipped']}")
    settings = size._asdict() | {"workloads": given.workloads, "seed": given.seed}
    keep(given.out, "bench", settings, rows + skipped)
    if given.figure is not None:
        draw(rows, given.figure)
    return 0
