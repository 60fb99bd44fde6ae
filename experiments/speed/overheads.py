"""Costs other than matching: starting a process, metrics, and tracking what is entered and left."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from statistics import median
from time import perf_counter, process_time
from urllib.request import urlopen

import numpy as np

from experiments.arguments import command
from experiments.output import keep
from experiments.ports import free_port
from experiments.timing import one_core
from rtfilter import EventFilter, Schema, Tracker
from rtfilter.filter import inside
from rtfilter.replay.machine import one_line
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import workload
from rtfilter.watch.metrics import FOLD_AT, Metrics

IMPORT = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"
FIRST_MATCH = """
import time; t = time.perf_counter()
from rtfilter import EventFilter, Schema
f = EventFilter(Schema({"price": float, "symbol": str}))
f.subscribe("price > 10 AND symbol = 'A'")
assert f.match({"price": 11, "symbol": "A"}).tolist() == [0]
print(time.perf_counter() - t)
"""
EVENTS = 100
"""Events of a batch that is matched with and without metrics."""

SIZES, MATCHES, KEYS_AT_ONCE = (1, 64, 1000), 10, 1000
"""Of tracking: events of a batch, matches of an event, and keys that are first seen together."""


def started(code: str, repeats: int) -> float:
    """Run code that prints seconds in new processes; the median of these seconds."""
    command = [sys.executable, "-c", code]
    runs = [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(repeats)]
    return median(runs)


def startup(repeats: int) -> list[Row]:
    """Return times to import numba, to import rtfilter, and to the first match with cached kernels."""
    started(FIRST_MATCH, 1)
    numba, ours = (started(IMPORT.format(name), repeats) for name in ("numba", "rtfilter"))
    first = started(FIRST_MATCH, repeats)
    return [
        {"measure": "import numba", "value": numba, "unit": "s"},
        {"measure": "import rtfilter, beyond numba", "value": ours - numba, "unit": "s", "target": "< 0.3"},
        {"measure": "first match of a second process", "value": first, "unit": "s", "target": "< 2"},
    ]


def metrics(name: str, boxes: int, repeats: int) -> Row:
    """Return the share that metrics add to the time of a batch, including deferred work."""
    source, observer = workload(name), Metrics()
    target = EventFilter(source.schema, metrics=observer, matcher="rtree")
    source.subscribe(target, 0, boxes)
    batch = target.schema.read(source.events(0, EVENTS))
    road = inside(target).road
    times: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(10 * repeats):
        for on in (False, True) if turn % 2 else (True, False):
            road.metrics = road.reader.metrics = observer if on else None
            begun = perf_counter()
            for _ in range(20):
                target.match_batch(batch)
            times[on].append((perf_counter() - begun) / 20)
    without, with_them = median(times[False]), median(times[True])
    extra = median(b - a for a, b in zip(times[False], times[True], strict=True))
    extra += _folding(observer) / FOLD_AT  # medians do not show what happens once in many batches
    return {
        "measure": f"metrics, batch of {EVENTS}, {name}",
        "value": 100 * extra / without,
        "unit": "% of a batch",
        "target": "< 1",
        "without_us": 1e6 * without,
        "with_us": 1e6 * with_them,
    }


def _folding(observer: Metrics | None) -> float:
    """Return seconds to fold the largest number of records that may wait."""
    assert observer is not None
    observer.fold()
    for _ in range(FOLD_AT - 1):
        observer.record_whole(EVENTS, 1e-4, 0)
    begun = perf_counter()
    observer.fold()
    return perf_counter() - begun


def tracking(boxes: int, keys: int, repeats: int) -> list[Row]:
    """Return the time that tracking adds to batches of several sizes, and the memory of a key.

    Subscriptions are squares in the plane, of which an event matches `MATCHES`; all keys have been seen. With
    each event a key moves by a hundredth of a square, so that one event in four changes something.
    """
    rng, side = np.random.default_rng(0), (MATCHES / boxes) ** 0.5
    target = EventFilter(Schema({"x": float, "y": float}), matcher="rtree")
    low = rng.uniform(-side, 1, (boxes, 2))
    target.subscribe_boxes(low, low + side)
    tracker, places = Tracker(target), rng.uniform(0, 1, (keys, 2))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for start in range(0, keys, KEYS_AT_ONCE):
        own = range(start, min(start + KEYS_AT_ONCE, keys))
        tracker.match_batch(places[own.start : own.stop], list(own))
    memory = (tracemalloc.get_traced_memory()[0] - before) / keys
    tracemalloc.stop()
    rows: list[Row] = [{"measure": f"memory of a key, {MATCHES} matches", "value": memory, "unit": "bytes"}]
    for size in SIZES:
        alone, tracked = list[float](), list[float]()
        for turn in range(max(20, 4000 // size) * repeats // 15 + 1):
            some = rng.integers(0, keys, size)
            places[some] += rng.normal(0, side / 100, (size, 2))
            batch, own = places[some], some.tolist()
            for way in (0, 1) if turn % 2 else (1, 0):
                begun = perf_counter()
                if way:
                    tracker.match_batch(batch, own)
                else:
                    target.match_batch(batch)
                (tracked if way else alone).append(perf_counter() - begun)
        extra = median(b - a for a, b in zip(alone, tracked, strict=True))
        rows.append(
            {
                "measure": f"tracking, batch of {size}",
                "value": 1e6 * extra / size,
                "unit": "us an event",
                "without_us": 1e6 * median(alone) / size,
                "with_us": 1e6 * median(tracked) / size,
            }
        )
    return rows


def scraping(name: str, boxes: int, repeats: int) -> Row:
    """Return share of a core that one scrape per second takes over HTTP, with 12 classes of batch sizes."""
    source, observer = workload(name), Metrics()
    target = EventFilter(source.schema, metrics=observer, matcher="rtree")
    source.subscribe(target, 0, boxes)
    for size_class in range(12):
        list(target.stream(source.events(0, 1 << size_class)))
        target.match_batch(source.events(0, 1 << size_class))
    port = free_port()
    stop = observer.serve(port)
    try:
        spent = []
        for _ in range(repeats):
            begun = process_time()  # of the thread of the server, and of this one
            size = len(urlopen(f"http://127.0.0.1:{port}/metrics").read())
            spent.append(process_time() - begun)
    finally:
        stop()
    return {
        "measure": f"a scrape a second, {size:,} bytes",
        "value": 100 * median(spent),
        "unit": "% of a core",
        "target": "< 1",
    }


def main(arguments: list[str]) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("overheads", __doc__, "out")
    parser.add_argument("--boxes", type=int, default=100_000, help="number of boxes, and of keys (100000)")
    parser.add_argument("--repeats", type=int, default=15, help="number of rounds; their median counts (15)")
    given = parser.parse_args(arguments)
    print(one_line())
    with one_core():
        rows = startup(min(given.repeats, 5))
        rows += [metrics(name, given.boxes, given.repeats) for name in ("wide", "narrow")]
        rows.append(scraping("narrow", given.boxes, given.repeats))
        rows += tracking(given.boxes, given.boxes, given.repeats)
    print(table(rows, {"measure": "measure", "value": "value", "unit": "unit", "target": "target"}))
    keep(given.out, "overheads", {"boxes": given.boxes, "repeats": given.repeats}, rows)
    return 0
