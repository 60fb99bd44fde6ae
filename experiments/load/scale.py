"""Scale: two threads beside one, and memory, loading, snapshots and time per event from millions of boxes.

Threads share one filter by `ThreadPoolExecutor.map`, as a user would. Two processes, pinned to a core each
and mapping the same snapshot, show what the machine itself allows. All take turns in rounds, which wait for a
quiet moment; those count in which other processes used the least of the machine.

Every number of boxes is loaded, saved and mapped again in processes of its own, so that peaks are its own.
"""

from __future__ import annotations

import argparse
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

from experiments.load.others import Others, wait_for_quiet
from experiments.output import keep, outcome, positive
from experiments.peers.cost import peak_memory, seconds
from experiments.peers.scans import brute_force, require_equal
from experiments.timing import medians
from rtfilter import EventFilter
from rtfilter.index.tree import RStarTree
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BOXES, Bounds, BoxWorkload
from rtfilter.replay.workloads.base import FloatArray

Result = TypeVar("Result")

BATCH = 1000
"""Events of a batch."""
CHECKED = 20
"""Events whose answers are compared with brute force."""
BLOCK = 1 << 17
"""Boxes drawn at a time."""
TRIES = 6
"""Rounds at most, for each that counts."""
QUIET = 0.05
"""Cores used by others up to which a round is quiet; as soon as there are enough of these, rounds end."""
LAP = 0.3
"""Seconds that a round takes on one core, at least."""
PATIENCE = 5.0
"""Seconds that a round waits for others to pause."""
SPEED_UP, MOST_PEAK = 1.8, 16.0
"""Targets: times as fast on two cores; GiB that loading may take at most, the caller's arrays included."""
CEILING = "processes: the ceiling"
GIB = 2**30
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
    """How much is measured."""

    boxes: int
    """In the index that threads share."""
    sizes: tuple[int, ...]
    """Boxes of the indexes that are loaded."""
    batches: int
    """Of `BATCH` events each, in a timing."""
    repeats: int


FULL = Size(boxes=1_000_000, sizes=(1_000_000, 10_000_000), batches=10, repeats=5)
QUICK = Size(boxes=5000, sizes=(2000, 8000), batches=2, repeats=1)


def drawn(workload: BoxWorkload, count: int) -> Bounds:
    """Subscriptions 0..count of a workload, drawn block by block: little more memory than the result."""
    low, high = (np.empty((count, workload.dimensions)) for _ in range(2))
    for start in range(0, count, BLOCK):
        rows = slice(start, min(start + BLOCK, count))
        low[rows], high[rows] = workload.subscriptions(start, rows.stop - start)
    return Bounds(low, high)


def cut(points: FloatArray) -> list[FloatArray]:
    """Batches of events, float64 (BATCH, d) each."""
    return [points[start : start + BATCH] for start in range(0, len(points), BATCH)]


# -- threads ---------------------------------------------------------------------------------------------


class Worker:
    """A process that matches batches with a filter mapped from a snapshot, on a core of its own."""

    def __init__(self, path: Path, core: int, batches: Sequence[FloatArray]) -> None:
        given = (path, core, batches)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_open, initargs=given)

    def match(self, first: int, step: int) -> Future[float]:
        """Match every so manyth batch from the first; CPU seconds."""
        return self._pool.submit(_match, first, step)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


_opened: list[tuple[EventFilter, Sequence[FloatArray]]] = []  # in a worker: what it was given


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
    """One round of one way to match, on one core and on two."""

    one: float
    """Seconds on one core."""
    two: float
    """On two."""
    work: float
    """CPU seconds on two, beside those on one: above 1 where they hinder each other, at caches or memory."""
    others: float
    """Cores that other processes used meanwhile."""


def lap(one: Callable[[], float], two: Callable[[], float]) -> Lap:
    """Time both calls, each of which returns the CPU seconds that it spent in other processes of ours."""
    others, taken, worked = Others(), [], []
    for call in (one, two):
        start, before = perf_counter(), process_time()
        elsewhere = call()
        worked.append(process_time() - before + elsewhere)
        taken.append(perf_counter() - start)
    return Lap(taken[0], taken[1], worked[1] / worked[0], others.cores(worked))


def quietest(laps: Sequence[Lap], count: int) -> list[Lap]:
    """So many of the laps, those in which others used the least."""
    return sorted(laps, key=lambda lap: lap.others)[:count]


def enough(laps: Sequence[Lap], count: int) -> bool:
    """Whether so many laps are quiet, or all have been tried."""
    return len(laps) >= TRIES * count or sum(lap.others <= QUIET for lap in laps) >= count


def in_turn(call: Callable[[FloatArray], object], batches: Sequence[FloatArray]) -> float:
    """One thread."""
    for batch in batches:
        call(batch)
    return 0.0


def on_pool(
    pool: ThreadPoolExecutor, call: Callable[[FloatArray], object], batches: list[FloatArray]
) -> float:
    """As many threads as the pool has."""
    for _ in pool.map(call, batches):
        pass
    return 0.0


def on_workers(workers: Sequence[Worker]) -> float:
    """Equal parts, one for each process."""
    running = [worker.match(i, len(workers)) for i, worker in enumerate(workers)]
    return sum(part.result() for part in running)


def measure_threads(workload: BoxWorkload, size: Size, folder: Path, bar: tqdm[None]) -> list[Row]:
    """One against two threads and processes: a row for the filter, the index alone, and processes."""
    boxes = drawn(workload, size.boxes)
    target = EventFilter(workload.schema)
    bar.set_postfix_str(f"{workload.name}: loading")
    target.subscribe_many(*boxes)
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
            for what, call in (("match_batch", target.match_batch), ("search", target.tree.search))
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
                wait_for_quiet(QUIET, PATIENCE)
                laps[what].append(lap(*ways[what]))
                bar.update()
    events = len(batches) * BATCH
    return [
        compare(workload.name, size.boxes, events, what, quietest(found, size.repeats))
        for what, found in laps.items()
    ]


def compare(workload: str, boxes: int, events: int, what: str, laps: Sequence[Lap]) -> Row:
    """A row in us per event: medians of the laps; the speed-up is the median of their ratios."""
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
    """The result of a call in a new process, which ends with it."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(call).result()


def search_times(tree: RStarTree, points: FloatArray, size: Size) -> tuple[float, float]:
    """Microseconds per event of the first batch ever, and the median of all batches afterwards."""
    batches = cut(points)
    wait_for_quiet(QUIET, PATIENCE)
    first = seconds(partial(tree.search, batches[0]))
    later = medians({"all": partial(in_turn, tree.search, batches)}, size.repeats)["all"]
    return first / BATCH * 1e6, later / len(points) * 1e6


def gib(count: int | None) -> float | None:
    """Bytes in GiB."""
    return None if count is None else count / GIB


def loaded(name: str, seed: int, boxes: int, size: Size, path: Path) -> Row:
    """Load boxes, search and save; peaks are those of this process."""
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
    """Map what `loaded` saved, and search; the peak counts mapped pages."""
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
    """Have the kernels loaded before anything is timed."""
    RStarTree.bulk_load(*workload.subscriptions(0, 50)).search(workload.events(0, 10))


def judged(rows: Sequence[Row]) -> list[Row]:
    """Rows of one workload with verdicts: peak memory, and time per event beside the row before.

    The time may grow as the number of boxes does, not faster. Few boxes are not judged.
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
    """A row for each number of boxes."""
    rows = []
    for boxes in sorted(size.sizes):
        path = folder / f"{name}-{boxes}"
        bar.set_postfix_str(f"{name}: {boxes:,} boxes")
        row = apart(partial(loaded, name, seed, boxes, size, path))
        bar.set_postfix_str(f"{name}: {boxes:,} boxes from their snapshot")
        rows.append(row | apart(partial(mapped, name, seed, size, path)))
        for file in path.iterdir():  # room for the next
            file.unlink()
        bar.update()
    return judged(rows)


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments scale", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a trial with few boxes, no targets")
    parser.add_argument("--parts", nargs="+", choices=("threads", "sizes"), default=["threads", "sizes"])
    parser.add_argument("--boxes", type=positive, help=f"boxes that threads share ({FULL.boxes:,})")
    parser.add_argument("--sizes", type=positive, nargs="+", help="boxes that are loaded (1000000 10000000)")
    parser.add_argument("--repeats", type=positive, help=f"rounds whose median counts ({FULL.repeats})")
    parser.add_argument("--workloads", nargs="+", choices=BOXES, default=["wide", "narrow"])
    parser.add_argument("--seed", type=int, default=1, help="seed of the workloads (%(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL
    size = size._replace(
        boxes=given.boxes or size.boxes,
        sizes=tuple(given.sizes or size.sizes),
        repeats=given.repeats or size.repeats,
    )

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
