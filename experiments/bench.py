"""Speed of `RStarTree` against `rtree`, in one run on one core: search, insertion, bulk loading.

`rtree` is given its best of three indexes and two ways of asking each. Before anything is timed, the answers
of both are compared with brute force. Times are medians without compilation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from tqdm import tqdm

from experiments import machine, peers
from experiments.output import Row, keep, medians, one_core, table
from experiments.workloads import BOXES, Bounds, FloatArray, IntArray
from rtfilter.matches import Matches
from rtfilter.tree import RStarTree

NAMES = ("wide", "narrow")
#: Boxes from which on the targets hold.
TARGET_BOXES = 100_000
#: Least speed-up per event in a batch of 1000, by workload.
SEARCH_TARGETS = {"wide": 100.0, "narrow": 30.0}
#: Bulk loading takes less than so many microseconds a box.
PACK_TARGET = 5.0
#: Events searched together. `rtree` shares nothing among them: its time per event is the same for all.
BATCHES = (1000, 100, 1)
STEPS = 4
"""Steps of `measure`."""
COLUMNS = {
    "workload": "workload",
    "measure": "measure",
    "ours": "ours, us",
    "rtree": "rtree, us",
    "best": "rtree's best",
    "ratio": "ratio",
    "target": "target",
    "verdict": "",
}


class Size(NamedTuple):
    """How much is measured."""

    boxes: int
    events: int
    sample: int
    """Of the events: those that are asked one at a time, and those that `rtree` is asked."""
    repeats: int


FULL = Size(boxes=TARGET_BOXES, events=1000, sample=200, repeats=5)
QUICK = Size(boxes=3000, events=1000, sample=50, repeats=1)


def brute_force(boxes: Bounds, points: FloatArray) -> list[IntArray]:
    """Rows of the closed boxes that contain each point, ascending."""
    answers = []
    for point in points:
        rows = np.arange(len(boxes.low))
        for low, high, x in zip(boxes.low.T, boxes.high.T, point, strict=True):
            rows = rows[(low[rows] <= x) & (x <= high[rows])]
        answers.append(rows)
    return answers


def require_equal(whose: str, answers: Iterable[ArrayLike], expected: Sequence[IntArray]) -> None:
    """Raise `AssertionError`, naming whose answers they are, unless they are the expected ids."""
    for event, (found, right) in enumerate(zip(answers, expected, strict=True)):
        if not np.array_equal(np.sort(np.asarray(found)), right):
            raise AssertionError(f"{whose}: event {event} matches {found}; brute force says {right}")


def inserted(boxes: Bounds) -> RStarTree:
    """A tree that the boxes were inserted into one by one, by a single call."""
    tree = RStarTree(boxes.low.shape[1])
    tree.insert_many(np.arange(len(boxes.low)), *boxes)
    return tree


def looped(boxes: Bounds) -> RStarTree:
    """A tree that the boxes were inserted into one by one, by a call each."""
    tree = RStarTree(boxes.low.shape[1])
    for id, (low, high) in enumerate(zip(*boxes, strict=True)):
        tree.insert(id, low, high)
    return tree


def search(tree: RStarTree, points: FloatArray, batch: int) -> list[Matches]:
    """Search for all points in batches."""
    return [tree.search(points[start : start + batch]) for start in range(0, len(points), batch)]


def measure(
    name: str, boxes: Bounds, points: FloatArray, size: Size, step: Callable[[str], None]
) -> list[Row]:
    """Compare and time one workload; `step` is told what comes next, `STEPS` times. One row a measure."""
    few = points[: size.sample]
    step("compiling")
    tiny = Bounds(boxes.low[:50], boxes.high[:50])
    for small in (RStarTree.bulk_load(*tiny), inserted(tiny)):
        search(small, few, 10)

    step("comparing with brute force")
    expected = brute_force(boxes, points)
    tree = RStarTree.bulk_load(*boxes)
    for whose, asked in (("packed", tree), ("inserted", inserted(boxes))):
        for batch in BATCHES:
            answers = (ids for matches in search(asked, points, batch) for ids in matches)
            require_equal(f"RStarTree {whose}, batches of {batch}", answers, expected)
    searches: dict[str, Callable[[], object]] = {}
    for variant, build in peers.BUILDERS.items():
        index = build(boxes)
        for way, ask in peers.WAYS.items():
            require_equal(f"rtree {variant} by {way}", ask(index, few), expected[: len(few)])
            searches[f"{variant}, {way}"] = partial(ask, index, few)

    step("timing searches")
    questions = {batch: few if batch == 1 else points for batch in BATCHES}
    ours = {str(batch): partial(search, tree, asked, batch) for batch, asked in questions.items()}
    times = medians(ours | searches, size.repeats)
    peer = {variant: times[variant] / len(few) for variant in searches}
    rows = [
        compare(name, f"search, batch of {batch}", times[str(batch)] / len(asked), peer)
        for batch, asked in questions.items()
    ]

    step("timing insertion and bulk loading")
    builds: dict[str, Callable[[], object]] = {
        "insertion, one call": partial(inserted, boxes),
        "insertion, a call each": partial(looped, boxes),
        "bulk loading": partial(RStarTree.bulk_load, *boxes),
    }
    theirs = {variant: partial(build, boxes) for variant, build in peers.BUILDERS.items()}
    times = {what: time / len(boxes.low) for what, time in medians(builds | theirs, size.repeats).items()}
    for what in builds:
        kind = "packed" if what == "bulk loading" else "inserted"
        peer = {variant: times[variant] for variant in theirs if variant.startswith(kind)}
        rows.append(compare(name, what, times[what], peer))
    return rows


def compare(workload: str, measure: str, ours: float, peer: dict[str, float]) -> Row:
    """A row of results, in microseconds, from our time and those of the variants of `rtree`, in seconds."""
    best = min(peer, key=lambda variant: peer[variant])
    return {
        "workload": workload,
        "measure": measure,
        "ours": ours * 1e6,
        "rtree": peer[best] * 1e6,
        "best": best,
        "ratio": peer[best] / ours,
        "rtree_variants": {variant: time * 1e6 for variant, time in peer.items()},
    }


def judge(row: Row) -> Row:
    """The row with its target, if there is one, and whether it is met."""
    if row["measure"] == "search, batch of 1000":
        least = SEARCH_TARGETS[row["workload"]]
        target, met = f"ratio >= {least:g}", row["ratio"] >= least
    elif row["measure"] == "insertion, one call":
        target, met = "ratio >= 1", row["ratio"] >= 1
    elif row["measure"] == "bulk loading":
        target, met = f"ours < {PACK_TARGET:g} us", row["ours"] < PACK_TARGET
    else:
        return row
    return row | {"target": target, "met": met, "verdict": "met" if met else "NOT MET"}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Plot the time per event by batch size, ours and the best of `rtree`, into a picture file."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    names = list(dict.fromkeys(row["workload"] for row in rows))
    for axes, name in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names, strict=True):
        searches = [row for row in rows if row["workload"] == name and row["measure"].startswith("search")]
        places = np.arange(len(searches))
        for shift, key in ((-0.2, "rtree"), (0.2, "ours")):
            label = "RStarTree" if key == "ours" else "rtree, its best"
            bars = axes.bar(places + shift, [row[key] for row in searches], 0.38, label=label)
            axes.bar_label(bars, fmt=lambda time: f"{time:,.0f}" if time >= 100 else f"{time:.3g}")
        axes.set_xticks(places, [row["measure"].removeprefix("search, ") for row in searches])
        axes.set(title=name, yscale="log", ylabel="us per event")
        axes.margins(y=0.15)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments bench", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help=f"a trial: {QUICK.boxes} boxes, no targets")
    parser.add_argument("--boxes", type=int, help=f"boxes in the index ({FULL.boxes})")
    parser.add_argument("--repeats", type=int, help=f"runs whose median counts ({FULL.repeats})")
    parser.add_argument("--dimensions", type=int, default=12, help="dimensions (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the workloads (%(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--figure", type=Path, help="picture file for the time per event")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL
    size = size._replace(boxes=given.boxes or size.boxes, repeats=given.repeats or size.repeats)

    rows: list[Row] = []
    with one_core(), tqdm(total=STEPS * len(NAMES), unit="step", leave=False) as bar:
        for name, make in ((name, BOXES[name]) for name in NAMES):

            def step(text: str, name: str = name) -> None:
                bar.set_postfix_str(f"{name}: {text}")
                bar.update()

            workload = make(given.seed, given.dimensions)
            rows += measure(
                name, workload.subscriptions(0, size.boxes), workload.events(0, size.events), size, step
            )
    if size.boxes >= TARGET_BOXES:
        rows = [judge(row) for row in rows]
    print(machine.one_line())
    print(
        f"{size.boxes:,} boxes, {given.dimensions} dimensions, one core, medians of {size.repeats}, "
        "all answers agree with brute force"
    )
    print("us per event of a search, per box of an insertion or bulk load\n")
    print(table(rows, COLUMNS))
    settings = size._asdict() | {"dimensions": given.dimensions, "seed": given.seed}
    keep(given.out, "bench", settings, rows)
    if given.figure is not None:
        draw(rows, given.figure)
    return 0
