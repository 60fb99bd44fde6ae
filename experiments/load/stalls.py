"""Single changes of the index: the longest of them, and the memory of a box after many.

An index is packed. Then boxes are inserted one at a time, until it has a share more of them; then as many
changes are made as there are boxes, insertions, deletions and replacements in rotation; then most boxes are
deleted, and the rest is packed again. Each change is timed separately, in the thread's own time and by the
clock, and searches before and after are compared. Some answers are compared with brute force. What the
process holds includes what the experiment itself remembers, 20 to 40 bytes a box.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from time import perf_counter, thread_time
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from experiments.arguments import add_workloads, command, positive
from experiments.load.others import Others
from experiments.output import keep, outcome
from experiments.peers.cost import memory
from experiments.peers.scans import brute_force, require_equal
from experiments.timing import medians, one_core
from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.index.tree import RStarTree
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BOXES, Bounds, BoxWorkload

GROWN = 0.1
"""Share of boxes that are inserted before boxes are inserted, deleted and replaced in rotation."""
LOST = 0.9
"""Share of boxes that are deleted at the end."""
MOST_MS, MOST_BYTES = 5.0, 450.0
"""Targets: the thread's own time that one change may take, and the memory of a box after as many changes."""
EVENTS, CHECKED, REPEATS = 1000, 20, 5
"""Events of the batch that is searched, those compared with brute force, and how often it is timed."""
CHANGES = {
    "workload": "workload",
    "boxes": "boxes",
    "phase": "phase",
    "kind": "change",
    "count": "number",
    "mean_us": "own time, mean us",
    "p99_us": "p99",
    "p999_us": "p99.9",
    "max_ms": "max, ms",
    "late": "above 5 ms",
    "wall_p999_us": "clock, p99.9 us",
    "wall_max_ms": "max, ms",
    "verdict": "",
}
STATES = {
    "workload": "workload",
    "after": "after",
    "boxes": "boxes",
    "bytes": "arrays, bytes/box",
    "held": "process, bytes/box",
    "fill": "leaves, fill",
    "visits": "visits/event",
    "search_us": "search, us/event",
    "verdict": "",
}


class Changed(NamedTuple):
    """The times of changes, in seconds, float64 (n,) each."""

    own: FloatArray
    clock: FloatArray


def timed(changes: int, make: Callable[[int], object], bar: tqdm[None]) -> Changed:
    """Make and time changes 0 to `changes` - 1."""
    own, clock = np.empty(changes), np.empty(changes)
    gc.collect()
    gc.disable()
    try:
        for i in range(changes):
            begun, started = perf_counter(), thread_time()
            make(i)
            own[i], clock[i] = thread_time() - started, perf_counter() - begun
            if i % 4096 == 0:
                bar.update(min(4096, changes - i))
    finally:
        gc.enable()
    return Changed(own, clock)


def described(times: Changed) -> Row:
    """Return the figures of a row of `CHANGES`."""
    own, clock = times.own * 1e6, times.clock * 1e6
    p99, p999 = np.percentile(own, (99, 99.9))
    late = int((own > MOST_MS * 1e3).sum())
    return {
        "count": len(own),
        "mean_us": float(own.mean()),
        "p99_us": float(p99),
        "p999_us": float(p999),
        "max_ms": float(own.max()) / 1e3,
        "late": late,
        "wall_p999_us": float(np.percentile(clock, 99.9)),
        "wall_max_ms": float(clock.max()) / 1e3,
        "verdict": outcome(late == 0),
    }


class Course:
    """An index of a workload's first boxes, and the changes made to it."""

    def __init__(self, workload: BoxWorkload, boxes: int) -> None:
        self._before = memory() or 0
        self.tree = RStarTree.bulk_load(*workload.subscriptions(0, boxes))
        self._rng = np.random.default_rng(workload.seed)
        self._workload, self._next = workload, boxes
        self._points = workload.events(0, EVENTS)
        self._live: IntArray = np.arange(boxes)
        self._row_of: IntArray = np.arange(boxes)  # the workload's row that is the box of each id

    def phases(self) -> Iterator[tuple[str, str, int, Callable[[int], object]]]:
        """Yield the phases: name, kinds of changes, number of changes, and a function to make each."""
        boxes = len(self._live)
        yield self._growing(max(int(boxes * GROWN), 1))
        yield self._turning_over(boxes // 3)
        yield self._emptying()

    def _growing(self, count: int) -> tuple[str, str, int, Callable[[int], object]]:
        first = len(self._row_of)
        low, high = self._fresh(count)
        self._live = np.concatenate([self._live, np.arange(first, first + count)])
        return "growing", "insert", count, lambda i: self.tree.insert(first + i, low[i], high[i])

    def _emptying(self) -> tuple[str, str, int, Callable[[int], object]]:
        gone = self._rng.permutation(self._live)[: int(len(self._live) * LOST)]
        self._live = np.setdiff1d(self._live, gone)
        return "emptying", "delete", len(gone), lambda i: self.tree.delete(gone.item(i))

    def _fresh(self, count: int) -> Bounds:
        """Return the next boxes of the workload, for the ids after the last."""
        rows = np.arange(self._next, self._next + count)
        self._row_of = np.concatenate([self._row_of, rows])
        self._next += count
        return self._workload.subscriptions(int(rows[0]), count)

    def _turning_over(self, count: int) -> tuple[str, str, int, Callable[[int], object]]:
        first = len(self._row_of)
        low, high = self._fresh(count)
        again = self._workload.subscriptions(self._next, count)
        order = self._rng.permutation(self._live)[: 2 * count]
        deleted, replaced = order[:count], order[count:]
        self._row_of[replaced] = np.arange(self._next, self._next + count)
        self._next += count
        self._live = np.concatenate([np.setdiff1d(self._live, deleted), np.arange(first, first + count)])
        tree = self.tree

        def make(change: int) -> None:
            i, kind = divmod(change, 3)
            if kind == 0:
                tree.insert(first + i, low[i], high[i])
            elif kind == 1:
                tree.delete(deleted.item(i))
            else:
                tree.replace(replaced.item(i), again.low[i : i + 1], again.high[i : i + 1])

        return "turning over", "insert delete replace", 3 * count, make

    def state(self, after: str) -> Row:
        """Return a row of `STATES`; compares some answers with brute force."""
        tree, points = self.tree, self._points
        rows = self._row_of[self._live]
        some = self._workload.subscriptions(0, self._next)
        boxes = Bounds(some.low[rows], some.high[rows])
        del some
        expected = [np.sort(self._live[found]) for found in brute_force(boxes, points[:CHECKED])]
        require_equal(after, [np.sort(ids) for ids in tree.search(points[:CHECKED])], expected)
        del boxes, rows
        held = memory()
        return {
            "after": after,
            "boxes": len(self._live),
            "bytes": tree.nbytes / len(self._live),
            "held": None if held is None else (held - self._before) / len(self._live),
            "fill": tree.stats()["mean_leaf_fill"],
            "visits": float(tree.hits(points).visits.mean()),
            "search_us": medians({"": lambda: tree.search(points)}, REPEATS)[""] / EVENTS * 1e6,
        }


def measure(workload: BoxWorkload, boxes: int, bar: tqdm[None]) -> tuple[list[Row], list[Row]]:
    """Return rows of `CHANGES` and rows of `STATES` of one workload."""
    name = {"workload": workload.name}
    bar.set_postfix_str(f"{workload.name}: loading")
    course = Course(workload, boxes)
    changes: list[Row] = []
    states: list[Row] = [name | course.state("packing")]
    for phase, kinds, count, make in course.phases():
        bar.set_postfix_str(f"{workload.name}: {phase}")
        bar.reset(count)
        times = timed(count, make, bar)
        each = kinds.split()
        for k, kind in enumerate(each):
            own = Changed(*(part[k :: len(each)] for part in times))
            changes.append(name | {"boxes": boxes, "phase": phase, "kind": kind} | described(own))
        del make, times
        states.append(name | course.state(phase))
    course.tree.repack()
    states.append(name | course.state("packing anew"))
    states[2]["verdict"] = outcome(states[2]["bytes"] <= MOST_BYTES)
    return changes, states


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("stalls", __doc__, "seed", "out")
    parser.add_argument("--boxes", type=positive, default=1_000_000, help="number of boxes (%(default)s)")
    add_workloads(parser, ["wide", "narrow"])
    given = parser.parse_args(arguments)
    changes: list[Row] = []
    states: list[Row] = []
    others = Others()
    with one_core(), tqdm(unit="change", leave=False) as bar:
        for name in given.workloads:
            measure(BOXES[name](given.seed), 2000, bar)  # compiles the kernels
            found = measure(BOXES[name](given.seed), given.boxes, bar)
            changes += found[0]
            states += found[1]
    print(machine.one_line())
    print(f"other processes took {others.cores():.2f} cores\n")
    print(table(changes, CHANGES) + "\n")
    print(table(states, STATES))
    settings = {"boxes": given.boxes, "workloads": given.workloads, "seed": given.seed}
    keep(given.out, "stalls", settings, changes + states)
    return 0
