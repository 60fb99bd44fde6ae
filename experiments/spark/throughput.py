"""Matching on Spark, compared with a range join of Spark and with one process without Spark.

All of them read the same events from Parquet. Each measurement has a process of its own. Its first run starts
the workers and maps the index, and does not count. The join is measured once, on a sample. The overhead is
the core time per event, compared with that of the process without Spark, which has one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from experiments.arguments import new_file, positive
from experiments.output import keep, outcome
from experiments.spark.cluster import Cluster, cluster
from experiments.spark.memory import Watch
from rtfilter import EventFilter
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import BOXES, workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMES, OVERHEAD, SKEW, PROCESS = 50.0, 0.3, 1.15, 4e9
"""Targets: smallest throughput as a multiple of the join's, largest overhead, largest work of a partition as
a multiple of the mean, and largest memory of a process in bytes."""
BLOCK = 1 << 17
"""Number of events that are drawn at a time."""
CLUSTER = "cluster of 2"
PARTS = (2, 8, 32)
"""Numbers of partitions; also those whose work is compared."""
GIB = 2**30
COLUMNS = {
    "way": "",
    "partitions": "partitions",
    "events": "events",
    "events_s": "events/s",
    "times": "times the join",
    "overhead": "overhead a core",
    "shuffled": "shuffled, B/event",
    "together": "memory, GiB",
    "largest": "largest process",
    "verdict": "",
}
SKEWS = {
    "events": "events",
    "partitions": "partitions",
    "in_turn": "equal counts",
    "slowest": "rtfilter",
    "verdict": "",
}


class Size(NamedTuple):
    """How much is measured."""

    boxes: int
    events: int
    sample: int
    """Events that the join gets."""
    partitions: tuple[int, ...]
    big: int
    """Events of the last run."""
    repeats: int


FULL = Size(200_000, 1_000_000, 2000, PARTS, 10_000_000, 3)
QUICK = Size(2000, 20_000, 500, (2,), 40_000, 1)


@dataclass(frozen=True)
class Data:
    """The files that jobs read, and the names of the attributes."""

    events: Path
    big: Path
    index: Path
    boxes: Path
    names: list[str]


def write_events(path: Path, draw: Callable[[int, int], Any], names: Sequence[str], count: int) -> None:
    """Write events with ids to a Parquet file.

    `draw(first, number)` returns events as integers in float64 (number, d). They are drawn in blocks.
    """
    kinds = [("id", pa.int64()), *((name, pa.int32()) for name in names)]
    with pq.ParquetWriter(path, pa.schema(kinds)) as file:
        for first in range(0, count, BLOCK):
            values = draw(first, min(BLOCK, count - first))
            ids = np.arange(first, first + len(values))
            columns = [pa.array(values[:, k].astype(np.int32)) for k in range(len(names))]
            file.write_table(pa.table([pa.array(ids), *columns], schema=pa.schema(kinds)))


def prepare(folder: Path, name: str, seed: int, size: Size) -> Data:
    """Write the events and boxes of a workload to files, and save its index."""
    made = BOXES[name](seed)
    names = list(made.schema.names)
    data = Data(folder / "events", folder / "big", folder / "index", folder / "boxes", names)
    write_events(data.events, made.events, names, size.events)
    write_events(data.big, made.events, names, size.big)
    low, high = made.subscriptions(0, size.boxes)
    index = EventFilter(made.schema)
    index.subscribe_many(low, high)
    index.save(data.index)
    sides = {
        f"{side}.{attribute}": values[:, k]
        for side, values in (("low", low), ("high", high))
        for k, attribute in enumerate(names)
    }
    pq.write_table(pa.table({"subscription": np.arange(len(low)), **sides}), data.boxes)
    return data


def run(job: Mapping[str, Any], place: Cluster | None = None) -> tuple[list[Row], Watch]:
    """Run a job; its rows, and the memory of its processes and of those of a cluster."""
    environment = {**os.environ, **(place.environment if place else {}), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "experiments.spark.job"]
    if job["way"] == "alone" and hasattr(os, "sched_setaffinity"):
        core = str(max(os.sched_getaffinity(0)))
        command = ["taskset", "-c", core, *command]
    with Watch() as watch:
        done = subprocess.run(
            command, input=json.dumps(job), env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{job['way']} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1]), watch


def measure(data: Data, size: Size, folder: Path, bar: tqdm[None]) -> list[Row]:
    """Measure all ways to match; one row each."""
    common = {"events": str(data.events), "index": str(data.index), "repeats": size.repeats}
    rows: list[Row] = []
    matches: set[int] = set()

    def add(way: str, cores: int, job: Mapping[str, Any], events: int, place: Cluster | None = None) -> None:
        bar.set_description(way)
        bar.update()
        found, watch = run(job, place)
        seconds = median(row["seconds"] for row in found)
        if events == size.events:
            matches.update(row["matches"] for row in found)
        rows.append(
            {
                "way": way,
                "cores": cores,
                "partitions": job.get("partitions"),
                "events": events,
                "events_s": events / seconds,
                "shuffled": found[0]["shuffled"] / events if "shuffled" in found[0] else None,
                "together": watch.use.together / GIB,
                "largest": watch.use.largest / GIB,
                "process": watch.use.name,
                "seconds": [row["seconds"] for row in found],
            }
        )

    add("one process, no Spark", 1, {**common, "way": "alone"}, size.events)
    join = {**common, "way": "join", "boxes": str(data.boxes), "names": data.names, "sample": size.sample}
    add("Spark's join, local[2]", 2, {**join, "master": "local[2]", "partitions": 2}, size.sample)
    match = {**common, "way": "match"}
    for master, cores in (("local[1]", 1), ("local[2]", 2), (CLUSTER, 2)):
        with cluster(folder / "cluster", memory="1g") if master == CLUSTER else nullcontext() as place:
            for parts in size.partitions:
                job = {**match, "master": place.url if place else master, "partitions": parts}
                add(f"match_frame, {master}", cores, job, size.events, place)
    for master, cores in (("local[1]", 1), ("local[2]", 2)):
        job = {**match, "master": master, "partitions": None, "balance": False}
        add(f"balance=False, {master}", cores, job, size.events)
    job = {**match, "master": "local[2]", "partitions": 8, "events": str(data.big), "repeats": 1}
    add("match_frame, local[2]", 2, job, size.big)
    if len(matches) != 1:
        raise RuntimeError(f"the ways disagree about the number of matches: {matches}")
    return rows


def judged(rows: list[Row]) -> list[Row]:
    """The rows with ratios to the join and to the process without Spark, and with verdicts."""
    alone, join = rows[0]["events_s"], rows[1]["events_s"]
    for row in rows[2:]:
        row["times"] = row["events_s"] / join
        row["overhead"] = row["cores"] * alone / row["events_s"] - 1
        met = row["times"] >= TIMES and row["overhead"] < OVERHEAD and row["largest"] * GIB < PROCESS
        row["verdict"] = outcome(met)
    return rows


# -- skew ------------------------------------------------------------------------------------------------


def hot_spots(seed: int, events: int, boxes: int) -> tuple[EventFilter, np.ndarray[Any, Any]]:
    """A filter and events near 100 places, chosen by Zipf's law, in the order of the places."""
    rng = np.random.default_rng(seed)
    made = BOXES["narrow"](seed, dimensions=4)
    share = 1 / np.arange(1, 101)
    centres = rng.integers(5000, 60_000, (100, 4))

    def near(count: int, width: int) -> Any:
        place = np.sort(rng.choice(100, count, p=share / share.sum()))
        return np.clip(centres[place] + rng.integers(-width, width, (count, 4)), 0, 65535)

    low = near(boxes, 1000)
    filter = EventFilter(made.schema)
    filter.subscribe_many(low, np.clip(low + 1000, 0, 65535))
    return filter, near(events, 1000)


def measure_skew(folder: Path, seed: int, size: Size, bar: tqdm[None]) -> list[Row]:
    """Largest work of a partition, divided by the mean.

    Partitions with equal numbers of events in the order of arrival are compared with those of `match_frame`.
    """
    rows = []
    for name, (filter, events) in {
        "Zipf hot spots": hot_spots(seed, size.events // 5, size.boxes),
        "flights": flights(seed, size),
    }.items():
        bar.set_description(name)
        everything = always(filter)
        files = folder / name.replace(" ", "-")
        files.mkdir()
        filter.save(files / "index")
        pq.write_table(events_table(events, filter), files / "events.parquet", coerce_timestamps="us")
        workload = filter.workload(events)
        bar.update()
        job = {
            "way": "skew",
            "master": "local[2]",
            "events": str(files / "events.parquet"),
            "index": str(files / "index"),
            "partitions": PARTS,
            "always": everything,
        }
        found, _ = run(job)
        for parts, one in zip(PARTS, found, strict=True):
            chunks = [chunk.sum() for chunk in np.array_split(workload, parts)]
            work = one["work"]
            slowest = max(work) / (sum(work) / parts)
            rows.append(
                {
                    "events": name,
                    "partitions": parts,
                    "in_turn": float(max(chunks) / np.mean(chunks)),
                    "slowest": float(slowest),
                    "verdict": outcome(slowest <= SKEW),
                }
            )
    return rows


def always(filter: EventFilter) -> int:
    """Add a subscription that matches all events; its id."""
    free = np.full((1, len(filter.schema.names)), np.inf)
    if any(attribute.kind == "str" for attribute in filter.schema.attributes.values()):
        name = filter.schema.names[0]
        return filter.subscribe(f"{name} IS NULL OR {name} IS NOT NULL")
    return int(filter.subscribe_many(-free, free)[0])


def flights(seed: int, size: Size) -> tuple[EventFilter, Any]:
    """A filter with alerts about flights, and flights sorted by carrier."""
    made = workload("flights", seed)
    filter = EventFilter(made.schema)
    made.subscribe(filter, 0, size.boxes // 10)
    frame = made.events(0, size.events // 5)
    return filter, frame.sort_values(list(frame.columns[:1]), kind="stable").reset_index(drop=True)


def events_table(events: Any, filter: EventFilter) -> pa.Table:
    """Events with ids, as an Arrow table."""
    if isinstance(events, np.ndarray):
        columns = {name: events[:, k] for k, name in enumerate(filter.schema.names)}
        return pa.table({"id": np.arange(len(events)), **columns})
    found = pa.Table.from_pandas(events, preserve_index=False)
    return found.append_column("id", pa.array(np.arange(len(found))))


# -- output ----------------------------------------------------------------------------------------------


def figure(rows: Sequence[Row], skews: Sequence[Row]) -> Figure:
    """Draw throughput, memory and balance by the number of partitions."""
    from matplotlib.figure import Figure

    drawn = Figure((11, 3.6), layout="constrained")
    throughput, memory, skew = drawn.subplots(1, 3)
    ways = list(dict.fromkeys(row["way"] for row in rows if row["way"].startswith("match_frame")))
    first = rows[0]["events"]
    for way in ways:
        own = [row for row in rows if row["way"] == way and row["events"] == first]
        x = [row["partitions"] for row in own]
        throughput.plot(x, [row["events_s"] for row in own], "o-", label=way)
        memory.plot(x, [row["together"] for row in own], "o-", label=way)
    for row, style in zip(rows[:2], ("--", ":"), strict=True):
        throughput.axhline(row["events_s"], color="grey", linestyle=style, label=row["way"])
    throughput.set(title="events a second", xscale="log", yscale="log", xlabel="partitions")
    throughput.legend(fontsize=7)
    memory.set(title="memory, GiB, shared pages once", xscale="log", xlabel="partitions", ylim=(0, None))
    for name in dict.fromkeys(row["events"] for row in skews):
        own = [row for row in skews if row["events"] == name]
        x = [row["partitions"] for row in own]
        (line,) = skew.plot(x, [row["slowest"] for row in own], "o-", label=f"{name}, match_frame")
        skew.plot(
            x, [row["in_turn"] for row in own], "o--", color=line.get_color(), label=f"{name}, equal counts"
        )
    skew.axhline(SKEW, color="grey", linestyle=":")
    skew.set(title="slowest partition / mean, visits", xscale="log", xlabel="partitions", ylim=(0.9, None))
    skew.legend(fontsize=7)
    for axes in (throughput, memory, skew):
        axes.set_xticks(sorted({row["partitions"] for row in [*rows, *skews] if row.get("partitions")}))
        axes.get_xaxis().set_major_formatter("{x:.0f}")
        axes.minorticks_off()
    return drawn


def shown(rows: Iterable[Row]) -> list[Row]:
    """The rows with the memory and the name of the largest process in one cell."""
    return [
        {**row, "largest": f"{row['largest']:.2f} GiB ({row['process']})"} if "process" in row else row
        for row in rows
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments spark", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a short trial with few boxes and events")
    parser.add_argument(
        "--workload", choices=BOXES, default="wide", help="source of events and boxes (%(default)s)"
    )
    parser.add_argument("--events", type=positive, help=f"number of events ({FULL.events:,})")
    parser.add_argument("--boxes", type=positive, help=f"number of subscriptions ({FULL.boxes:,})")
    parser.add_argument("--big", type=positive, help=f"number of events of the last run ({FULL.big:,})")
    parser.add_argument(
        "--repeats", type=positive, help=f"number of runs; their median counts ({FULL.repeats})"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the workloads (%(default)s)")
    parser.add_argument("--out", type=new_file, help="JSON file for the results")
    parser.add_argument("--figure", type=new_file, help="picture of the results, .png or .svg")
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL
    size = size._replace(
        **{
            name: getattr(given, name) or getattr(size, name)
            for name in ("events", "boxes", "big", "repeats")
        }
    )
    with tempfile.TemporaryDirectory() as name, tqdm(unit="run", leave=False) as bar:
        folder = Path(name)
        bar.set_description("drawing events")
        rows = judged(measure(prepare(folder, given.workload, given.seed, size), size, folder, bar))
        skews = measure_skew(folder, given.seed, size, bar)
    print(machine.one_line())
    print(f"{size.boxes:,} {given.workload} subscriptions in twelve dimensions, medians of {size.repeats}")
    print("\n" + table(shown(rows), COLUMNS))
    print("\nlargest work of a partition, divided by the mean, in visits\n" + table(skews, SKEWS))
    keep(given.out, "spark", size._asdict() | {"workload": given.workload, "seed": given.seed}, rows + skews)
    if given.figure is not None:
        save_picture(figure(rows, skews), given.figure, dpi=110)
    return 0
