"""Scale: two threads compared with one, and loading, memory, snapshots and searches of millions of boxes.

Threads share one filter by `ThreadPoolExecutor.map`, as in a user's program. Two processes, each on a core of
its own and with the same snapshot mapped, show what the machine itself allows. All take turns in rounds. A
round waits for a quiet moment, and the rounds in which other processes used the least CPU time count.

Each number of boxes is loaded, saved and mapped in new processes, so that its peak memory is its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple, TypeVar

import numpy as np
from tqdm import tqdm

from experiments.arguments import add_sizes, add_workloads, command, sized
from experiments.load.others import Others, wait_for_quiet
from experiments.output import keep, outcome
from experiments.peers.cost import peak_memory, seconds
from experiments.peers.scans import brute_force, require_equal
from experiments.timing import medians
from rtfilter import EventFilter
from rtfilter.basics.dtypes import FloatArray
from rtfilter.filter import inside
from rtfilter.index.tree import RStarTree
from rtfilter.matchers.rtree import tree_of
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BOXES, Bounds, BoxWorkload

Result = TypeVar("Result")

BATCH = 1000
"""Events of a batch."""
CHECKED = 20
"""Events whose answers are compared with brute force."""
BLOCK = 1 << 17
"""Number of boxes that are drawn at a time."""
TRIES = 6
"""Largest number of rounds for each round that counts."""
QUIET = 0.05
"""A round is quiet if other processes use at most this number of cores. Rounds end when enough are quiet."""
LAP = 0.3
"""Shortest time of a round on one core, in seconds."""
SPEED_UP, MOST_PEAK = 1.8, 16.0
"""Targets: smallest speed-up on two cores, and largest peak memory in GiB, the given arrays included."""
CEILING = "processes: the ceiling"
GIB = 2**30
PARTS = ("threads", "sizes")
THREADS = {
    "workload": "workload",
    "boxes": "boxes",
    "what": "",
    "one_us": "one: us/event",
    "two_us": "two",
    "speed_up": "speed-up",
    "work": "work on two / one",
    "others": "cores of others",
    "target": "target",
    "verdict": "",
}
SIZES = {
    "workload": "workload",
    "boxes": "boxes",
    "load_us": "load, us/box",
    "bytes": "bytes/box",
    "given_gib": "arrays given, GiB",
    "before_gib": "peak before",
    "peak_gib": "peak",
    "save_s": "save, s",
    "snapshot_gib": "snapshot, GiB",
    "map_s": "map, s",
    "mapped_gib": "peak",
    "first_us": "first batch, us/event",
    "batch_us": "batch",
    "mapped_us": "from snapshot",
    "verdict": "",
}


class Size(NamedTuple):
    """The size of a measurement."""

    boxes: int
    """Boxes of the index that threads share."""
    sizes: tuple[int, ...]
    """Numbers of boxes of the indexes that are loaded."""
    batches: int
    """Number of batches that are timed, of `BATCH` events each."""
    repeats: int
    patience: float
    """Most seconds that a measurement waits for other processes to be quiet."""


FULL = Size(boxes=1_000_000, sizes=(1_000_000, 10_000_000), batches=10, repeats=5, patience=5.0)
QUICK = Size(boxes=5000, sizes=(2000, 8000), batches=2, repeats=1, patience=0.0)


def drawn(workload: BoxWorkload, count: int) -> Bounds:
    """Return the first `count` subscriptions of a workload, drawn in blocks to save memory."""
    low, high = (np.empty((count, workload.dimensions)) for _ in range(2))
    for start in range(0, count, BLOCK):
        rows = slice(start, min(start + BLOCK, count))
        low[rows], high[rows] = workload.subscriptions(start, rows.stop - start)
    return Bounds(low, high)


def cut(points: FloatArray) -> list[FloatArray]:
    """Return the points in batches, float64 (BATCH, d) each."""
    return [points[start : start + BATCH] for start in range(0, len(points), BATCH)]


# -- threads ---------------------------------------------------------------------------------------------


class Worker:
    """A process that matches batches with a filter mapped from a snapshot, on a core of its own."""

    def __init__(self, path: Path, core: int, batches: Sequence[FloatArray]) -> None:
        given = (path, core, batches)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_open, initargs=given)

    def match(self, first: int, step: int) -> Future[float]:
        """Match batches `first`, `first + step`, ...; the CPU seconds that it takes."""
        return self._pool.submit(_match, first, step)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


_opened: list[tuple[EventFilter, Sequence[FloatArray]]] = []  # in a worker: its filter and its batches


def _open(path: Path, core: int, batches: Sequence[FloatArray]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    _opened.append((EventFilter.load(path), batches))


def _match(first: int, step: int) -> float:
    begun = process_time()
    target, batches = _opened[0]
    in_turn(target.match_batch, batches[first::step])
    return process_time() - begun


class Lap(NamedTuple):
    """A round of one way to match, on one core and on two."""

    one: float
    """Seconds on one core."""
    two: float
    """Seconds on two cores."""
    work: float
    """CPU seconds on two cores, divided by those on one: above 1 if cores compete for caches or memory."""
    others: float
    """Number of cores that other processes used in the meantime."""


def lap(one: Callable[[], float], two: Callable[[], float]) -> Lap:
    """Return time both calls. A call returns the CPU seconds that it used in other processes of ours."""
    others, taken, worked = Others(), [], []
    for call in (one, two):
        start, before = perf_counter(), process_time()
        elsewhere = call()
        worked.append(process_time() - before + elsewhere)
        taken.append(perf_counter() - start)
    return Lap(taken[0], taken[1], worked[1] / worked[0], others.cores(worked))


def quietest(laps: Sequence[Lap], count: int) -> list[Lap]:
    """Return the `count` laps in which other processes used the least CPU time."""
    return sorted(laps, key=lambda lap: lap.others)[:count]


def enough(laps: Sequence[Lap], count: int) -> bool:
    """Return whether `count` laps are quiet, or the most allowed laps have been tried."""
    return len(laps) >= TRIES * count or sum(lap.others <= QUIET for lap in laps) >= count


def in_turn(call: Callable[[FloatArray], object], batches: Sequence[FloatArray]) -> float:
    """Call for one batch after the other in this thread."""
    for batch in batches:
        call(batch)
    return 0.0


def on_pool(
    pool: ThreadPoolExecutor, call: Callable[[FloatArray], object], batches: list[FloatArray]
) -> float:
    """Call for all batches in the threads of a pool."""
    for _ in pool.map(call, batches):
        pass
    return 0.0


def on_workers(workers: Sequence[Worker]) -> float:
    """Match all batches in equal parts, one part per process; the CPU seconds that it takes."""
    running = [worker.match(i, len(workers)) for i, worker in enumerate(workers)]
    return sum(part.result() for part in running)


def measure_threads(workload: BoxWorkload, size: Size, folder: Path, bar: tqdm[None]) -> list[Row]:
    """Compare two threads with one: a row for the filter, one for the index alone, one for processes."""
    boxes = drawn(workload, size.boxes)
    target = EventFilter(workload.schema, matcher="rtree")
    bar.set_postfix_str(f"{workload.name}: loading")
    target.subscribe_boxes(*boxes)
    points = workload.events(0, size.batches * BATCH)
    expected = brute_force(boxes, points[:CHECKED])
    batches = cut(points)
    in_turn(target.match_batch, batches)  # fills caches
    batches *= ceil(LAP / seconds(partial(in_turn, target.match_batch, batches)))
    path = folder / f"{workload.name}-threads"
    target.save(path)
    free = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        workers = [Worker(path, core, batches) for core in (free[-1], free[0])]
        for worker in workers:
            stack.callback(worker.close)
        ways: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
            what: (partial(in_turn, call, batches), partial(on_pool, pool, call, batches))
            for what, call in (
                ("match_batch", target.match_batch),
                ("search", tree_of(inside(target).matcher).search),
            )
        }
        ways[CEILING] = partial(on_workers, workers[:1]), partial(on_workers, workers)
        for matches in pool.map(target.match_batch, [points[:CHECKED]] * 2):
            require_equal(f"{workload.name} on two threads", matches, expected)
        for way in ways.values():
            lap(*way)  # fills caches
        laps: dict[str, list[Lap]] = {what: [] for what in ways}
        while wanting := [what for what in ways if not enough(laps[what], size.repeats)]:
            for what in wanting:
                bar.set_postfix_str(f"{workload.name}: {what}")
                wait_for_quiet(QUIET, size.patience)
                laps[what].append(lap(*ways[what]))
                bar.update()
    events = len(batches) * BATCH
    return [
        compare(workload.name, size.boxes, events, what, quietest(found, size.repeats))
        for what, found in laps.items()
    ]


def compare(workload: str, boxes: int, events: int, what: str, laps: Sequence[Lap]) -> Row:
    """Return a row with medians of the laps, in us per event; the speed-up is the median of their ratios."""
    per_event = 1e6 / events
    ratios = [lap.one / lap.two for lap in laps]
    speed_up = median(ratios)
    row: Row = {
        "workload": workload,
        "boxes": boxes,
        "what": what,
        "one_us": median(lap.one for lap in laps) * per_event,
        "two_us": median(lap.two for lap in laps) * per_event,
        "speed_up": speed_up,
        "speed_ups": ratios,
        "work": median(lap.work for lap in laps),
        "others": median(lap.others for lap in laps),
    }
    if what == CEILING or boxes < FULL.boxes:
        return row
    return row | {"target": f">= {SPEED_UP:g}", "verdict": outcome(speed_up >= SPEED_UP)}


# -- sizes -----------------------------------------------------------------------------------------------


def apart(call: Callable[[], Result]) -> Result:
    """Return the result of a call in a new process, which ends after the call."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(call).result()


def search_times(tree: RStarTree, points: FloatArray, size: Size) -> tuple[float, float]:
    """Return microseconds per event of the first batch, and of all batches afterwards (a median)."""
    batches = cut(points)
    wait_for_quiet(QUIET, size.patience)
    first = seconds(partial(tree.search, batches[0]))
    later = medians({"all": partial(in_turn, tree.search, batches)}, size.repeats)["all"]
    return first / BATCH * 1e6, later / len(points) * 1e6


def gib(count: int | None) -> float | None:
    """Return a number of bytes in GiB."""
    return None if count is None else count / GIB


def loaded(name: str, seed: int, boxes: int, size: Size, path: Path) -> Row:
    """Load boxes, search and save; the row has the peak memory of this process."""
    workload = BOXES[name](seed)
    compile_kernels(workload)
    points = workload.events(0, size.batches * BATCH)
    given = drawn(workload, boxes)
    before = peak_memory()
    begun, worked = perf_counter(), process_time()
    tree = RStarTree.bulk_load(*given)
    load, work = perf_counter() - begun, process_time() - worked
    peak = peak_memory()
    require_equal(f"{boxes} boxes", tree.search(points[:CHECKED]), brute_force(given, points[:CHECKED]))
    first, later = search_times(tree, points, size)
    save = seconds(partial(tree.save, path))
    return {
        "workload": name,
        "boxes": boxes,
        "load_us": load / boxes * 1e6,
        "load_cpu_us": work / boxes * 1e6,
        "bytes": tree.nbytes / boxes,
        "height": tree.height,
        "given_gib": gib(given.low.nbytes + given.high.nbytes),
        "before_gib": gib(before),
        "peak_gib": gib(peak),
        "save_s": save,
        "snapshot_gib": gib(sum(file.stat().st_size for file in path.iterdir())),
        "first_us": first,
        "batch_us": later,
        "matches": float(np.mean(tree.count(points))),
    }


def mapped(name: str, seed: int, size: Size, path: Path) -> Row:
    """Map the snapshot that `loaded` saved, and search; the peak memory includes mapped pages."""
    workload = BOXES[name](seed)
    compile_kernels(workload)
    points = workload.events(0, size.batches * BATCH)
    begun = perf_counter()
    tree = RStarTree.load(path)
    taken = perf_counter() - begun
    first, later = search_times(tree, points, size)
    return {
        "map_s": taken,
        "mapped_first_us": first,
        "mapped_us": later,
        "mapped_gib": gib(peak_memory()),
    }


def compile_kernels(workload: BoxWorkload) -> None:
    """Compile and load the kernels before anything is timed."""
    RStarTree.bulk_load(*workload.subscriptions(0, 50)).search(workload.events(0, 10))


def judged(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of one workload with verdicts on peak memory and on the time per event.

    Compared with the row before, the time may grow as much as the number of boxes, but not more. Rows with
    few boxes get no verdict.
    """
    found = []
    for i, row in enumerate(rows):
        misses = []
        if row["peak_gib"] is not None and row["peak_gib"] > MOST_PEAK:
            misses.append(f"peak above {MOST_PEAK:g} GiB")
        if i > 0:
            growth = row["batch_us"] / rows[i - 1]["batch_us"]
            boxes = row["boxes"] / rows[i - 1]["boxes"]
            if growth > boxes:
                misses.append(f"{growth:.1f} times the time for {boxes:.1f} times the boxes")
        met = {"verdict": "NOT MET: " + ", ".join(misses) if misses else "met"}
        found.append(row | met if row["boxes"] >= FULL.sizes[0] else row)
    return found


def measure_sizes(name: str, seed: int, size: Size, folder: Path, bar: tqdm[None]) -> list[Row]:
    """Measure each number of boxes; one row each."""
    rows = []
    for boxes in sorted(size.sizes):
        path = folder / f"{name}-{boxes}"
        bar.set_postfix_str(f"{name}: {boxes:,} boxes")
        row = apart(partial(loaded, name, seed, boxes, size, path))
        bar.set_postfix_str(f"{name}: {boxes:,} boxes from their snapshot")
        rows.append(row | apart(partial(mapped, name, seed, size, path)))
        for file in path.iterdir():  # to make room for the next
            file.unlink()
        bar.update()
    return judged(rows)


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("scale", __doc__, "quick", "seed", "out")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="measured (both)")
    add_sizes(
        parser,
        FULL,
        boxes="number of boxes that threads share",
        sizes="numbers of boxes that are loaded",
        repeats="number of rounds; their median counts",
    )
    add_workloads(parser, ["wide", "narrow"])
    given = parser.parse_args(arguments)
    size = sized(given, QUICK, FULL)
    threads: list[Row] = []
    sizes: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, tqdm(unit="step", leave=False) as bar:
        for name in given.workloads:
            if "threads" in given.parts:
                threads += measure_threads(BOXES[name](given.seed), size, Path(folder), bar)
            if "sizes" in given.parts:
                sizes += measure_sizes(name, given.seed, size, Path(folder), bar)
    print(machine.one_line())
    print(f"batches of {BATCH} events, medians of {size.repeats}, answers compared with brute force")
    if threads:
        print("\n" + table(threads, THREADS))
    if sizes:
        print("\n" + table(sizes, SIZES))
    settings = size._asdict() | {"workloads": given.workloads, "parts": given.parts, "seed": given.seed}
    keep(given.out, "scale", settings, threads + sizes)
    return 0
