"""Matching on Spark, compared with a range join of Spark and with one process without Spark.

All of them read the same events from Parquet: even ones, and ones whose first half is much work and whose
second half is hardly any. Each place has a process of its own, in which the ways to balance take turns. The
first turn starts the workers and maps the index, and does not count. The join is measured once, on a sample.
The overhead is the core time per event, compared with that of the process without Spark, which has one core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from experiments.arguments import add_sizes, command, sized
from experiments.output import keep, outcome
from experiments.spark.cluster import Cluster, Watch, cluster
from rtfilter import EventFilter
from rtfilter.replay import machine
from rtfilter.replay.output import Row, save_picture, table
from rtfilter.replay.workloads import BOXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMES, PROCESS, SKEW, LATE = 50.0, 4e9, 1.1, 1.05
"""Targets: smallest throughput as a multiple of the join's, largest memory of a process in bytes, largest
work of a partition as a multiple of the mean where dealing pays, and longest time of the default as a
multiple of that of the better way."""
BLOCK = 1 << 17
"""Number of events that are drawn at a time."""
CLUSTER = "cluster of 2"
PLACES = {"local[1]": 1, "local[2]": 2, CLUSTER: 2}
"""The masters of Spark, with the number of cores."""
WAYS: dict[bool | str, str] = {
    False: "left where they are",
    True: "dealt out",
    "auto": "as auto decides",
}
"""The treatments of events, by `balance` of `match_frame`."""
LARGE = 3
"""Boxes of the index for uneven events, as a multiple of those for even ones."""
GIB = 2**30
COLUMNS = {
    "input": "",
    "place": "",
    "way": "events are",
    "events": "events",
    "events_s": "events/s",
    "times": "times the join",
    "overhead": "overhead a core",
    "shuffled": "shuffled, B/event",
    "slowest": "slowest partition / mean",
    "together": "memory, GiB",
    "largest": "largest process",
    "reason": "because",
    "verdict": "",
}


class Size(NamedTuple):
    """The size of a measurement."""

    boxes: int
    events: int
    sample: int
    """Events that the join gets."""
    big: int
    """Events of the last run."""
    repeats: int


FULL = Size(200_000, 1_000_000, 2000, 10_000_000, 5)
QUICK = Size(2000, 20_000, 500, 40_000, 1)


@dataclass(frozen=True)
class Data:
    """The files that jobs read, and the names of the attributes."""

    events: Path
    uneven: Path
    big: Path
    index: Path
    large: Path
    """An index of more boxes, in which events are more work."""
    always: int
    """A subscription there that matches all events."""
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
    write_events(folder / "events", made.events, names, size.events)
    write_events(folder / "big", made.events, names, size.big)
    uneven = middle_then_edge(seed, len(names), size.events // 2)
    write_events(folder / "uneven", uneven, names, size.events // 2)
    low, high = made.subscriptions(0, size.boxes)
    index = EventFilter(made.schema, matcher="rtree")
    index.subscribe_boxes(low, high)
    index.save(folder / "index")
    for first in range(1, LARGE):
        index.subscribe_boxes(*made.subscriptions(first * size.boxes, size.boxes))
    free = np.full((1, len(names)), np.inf)
    always = int(index.subscribe_boxes(-free, free)[0])
    index.save(folder / "large")
    events, uneven_events, big = (folder / name for name in ("events", "uneven", "big"))
    places = folder / "index", folder / "large"
    data = Data(events, uneven_events, big, *places, always, folder / "boxes", names)
    sides = {
        f"{side}.{attribute}": values[:, k]
        for side, values in (("low", low), ("high", high))
        for k, attribute in enumerate(names)
    }
    pq.write_table(pa.table({"subscription": np.arange(len(low)), **sides}), data.boxes)
    return data


def middle_then_edge(seed: int, dimensions: int, count: int) -> Callable[[int, int], Any]:
    """Draw events for `write_events`: a half amid all boxes, then a half where there are hardly any."""

    def draw(first: int, number: int) -> Any:
        rng = np.random.default_rng((seed, first))
        middle = (np.arange(first, first + number) < count / 2)[:, None]
        inner = rng.integers(13_107, 52_428, (number, dimensions))
        return np.where(middle, inner, rng.integers(0, 100, (number, dimensions))).astype(float)

    return draw


AnyWatch = TypeVar("AnyWatch", bound=AbstractContextManager[Any])


def run(job: Mapping[str, Any], watch: AnyWatch, place: Cluster | None = None) -> tuple[Any, AnyWatch]:
    """Run a job while its processes are watched, perhaps on a cluster; return its rows, and the watch."""
    environment = {**os.environ, **(place.environment if place else {}), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", "experiments.spark.job"]
    if job["way"] == "alone" and hasattr(os, "sched_setaffinity"):
        core = str(max(os.sched_getaffinity(0)))
        command = ["taskset", "-c", core, *command]
    with watch:
        done = subprocess.run(
            command, input=json.dumps(job), env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{job['way']} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1]), watch


def measure(data: Data, size: Size, folder: Path, bar: tqdm[None]) -> list[Row]:
    """Measure all ways to match even events; one row each, first without Spark, then the join."""
    join = {"way": "join", "boxes": str(data.boxes), "names": data.names, "sample": size.sample}
    common = {"events": str(data.events), "index": str(data.index), "repeats": size.repeats}
    rows = _measured("even", "one process, no Spark", 1, {**common, "way": "alone"}, bar)
    job = {**common, **join, "master": "local[2]", "partitions": 2}
    rows += _measured("even", "join, local[2]", 2, job, bar)
    for place, cores in PLACES.items():
        with cluster(folder / "cluster", memory="1g") if place == CLUSTER else nullcontext() as own:
            job = {**common, "way": "match", "master": own.url if own else place, "balances": list(WAYS)}
            rows += _measured("even", place, cores, job, bar, own)
    _require_equal([*rows[:1], *rows[2:]])
    return rows


def measure_uneven(data: Data, size: Size, bar: tqdm[None]) -> list[Row]:
    """Measure all ways to match uneven events, and the work of partitions; one row each."""
    common = {"events": str(data.uneven), "index": str(data.large), "repeats": size.repeats}
    rows = _measured("uneven", "one process, no Spark", 1, {**common, "way": "alone"}, bar)
    job = {**common, "way": "match", "master": "local[2]", "balances": list(WAYS)}
    rows += _measured("uneven", "local[2]", 2, job, bar)
    _require_equal(rows)
    found, _ = run({**job, "always": data.always, "way": "work"}, Watch())
    for row, one in zip(rows[1:], found, strict=True):
        row["slowest"] = max(one["work"]) / (sum(one["work"]) / PLACES["local[2]"])
    return rows


def measure_big(data: Data, size: Size, bar: tqdm[None]) -> list[Row]:
    """Measure the memory for many events, as one row."""
    common = {"events": str(data.big), "index": str(data.index), "repeats": 1}
    return _measured(
        "even", "local[2]", 2, {**common, "way": "match", "master": "local[2]", "balances": ["auto"]}, bar
    )


def _measured(
    name: str, place: str, cores: int, job: Mapping[str, Any], bar: tqdm[None], own: Cluster | None = None
) -> list[Row]:
    """Run a job; a row for each way to balance in it."""
    bar.set_description(f"{name}, {place}")
    bar.update()
    found, watch = run(job, Watch(), own)
    number = job["sample"] if "sample" in job else pq.read_metadata(job["events"]).num_rows
    rows = []
    for balance in job.get("balances", [None]):
        mine = [row for row in found if row.get("balance") == balance]
        rows.append(
            {
                "input": name,
                "place": place,
                "cores": cores,
                "balance": balance,
                "way": WAYS.get(balance, ""),
                "events": number,
                "matches": mine[0]["matches"],
                "events_s": number / median(row["seconds"] for row in mine),
                "shuffled": mine[0]["shuffled"] / number if "shuffled" in mine[0] else None,
                "reason": mine[0].get("reason", ""),
                "together": watch.use.together / GIB,
                "largest": watch.use.largest / GIB,
                "process": watch.use.name,
                "seconds": [row["seconds"] for row in mine],
            }
        )
    return rows


def _require_equal(rows: Iterable[Row]) -> None:
    """Raise ``RuntimeError`` if ways found different numbers of matches."""
    matches = {row["matches"] for row in rows}
    if len(matches) != 1:
        raise RuntimeError(f"the ways disagree about the number of matches: {matches}")


def judged(rows: list[Row]) -> list[Row]:
    """Return the rows with ratios to the join and to the process without Spark, and with verdicts."""
    join = rows[1]["events_s"]
    alone = {row["input"]: row["events_s"] for row in rows if row["cores"] == 1 and row["balance"] is None}
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        if isinstance(row["balance"], bool):
            key = row["input"], row["place"]
            best[key] = max(best.get(key, 0.0), row["events_s"])
    for row in rows:
        if row["balance"] is None:
            continue
        row["times"] = row["events_s"] / join
        row["overhead"] = row["cores"] * alone[row["input"]] / row["events_s"] - 1
        if row["balance"] == "auto":
            met = row["times"] >= TIMES and row["largest"] * GIB < PROCESS
            met = met and row["events_s"] * LATE >= best.get((row["input"], row["place"]), 0.0)
            row["verdict"] = outcome(met and row.get("slowest", 1.0) <= SKEW)
    return rows


# -- output ----------------------------------------------------------------------------------------------


def figure(rows: Sequence[Row]) -> Figure:
    """Draw throughput on even and uneven events, the work of the slowest core, and memory."""
    from matplotlib.figure import Figure

    most = {row["input"]: row["events"] for row in reversed(rows)}  # of the first row of each input
    usual = [row for row in rows if row["events"] == most[row["input"]]]
    drawn = Figure((12, 7.5))
    drawn.set_layout_engine("constrained", h_pad=0.12, w_pad=0.12, wspace=0.04)
    even, uneven, work, memory = drawn.subplot_mosaic(
        [["even", "uneven"], ["even", "work"], ["even", "memory"]], gridspec_kw={"height_ratios": [4, 3, 5]}
    ).values()
    for axes, name, title in (
        (even, "even", f"Even events, {_amount(most['even'])}"),
        (uneven, "uneven", f"Uneven events, {_amount(most['uneven'])}"),
    ):
        own = [row for row in usual if row["input"] == name]
        _bars(axes, title, own, [row["events_s"] / 1000 for row in own], "{:,.0f}")
        axes.set_xlabel("thousand events a second (more is better)", fontsize=11)
    own = [row for row in usual if "slowest" in row]
    _bars(work, "Work on uneven events", own, [row["slowest"] for row in own], "{:.2f}")
    work.axvline(1, color="black", linewidth=1)
    work.set_xlabel("slowest core / mean of all (1 is best)", fontsize=11)
    own = [rows[0], *(row for row in rows if row["input"] == "even" and row["balance"] == "auto")]
    names = [f"{row['place']}, {_amount(row['events'])}" for row in own]
    _bars(memory, "Memory on even events", own, [row["together"] for row in own], "{:.1f}", names)
    memory.set_xlabel("GiB in all processes (less is better)", fontsize=11)
    return drawn


def _amount(events: int) -> str:
    """Return a number of events in words."""
    return f"{events / 1e6:g} million"


def _bars(
    axes: Any,
    title: str,
    rows: Sequence[Row],
    values: Sequence[float],
    written: str,
    names: Sequence[str] | None = None,
) -> None:
    """Draw a bar for each row, with its name before it and its number behind it; a gap between places."""
    if names is None:
        names = [row["place"] + (f": {row['way']}" if row["way"] else "") for row in rows]
        gaps = [row["place"] != before["place"] for row, before in pairwise([*rows[:1], *rows])]
    else:
        gaps = [False] * len(rows)
    places = np.arange(len(rows)) + 0.5 * np.cumsum([0, *gaps[1:]])
    colours = {None: "0.6", False: "tab:blue", True: "tab:orange", "auto": "tab:green"}
    bars = axes.barh(places, values, color=[colours[row["balance"]] for row in rows])
    axes.bar_label(bars, [written.format(value) for value in values], padding=3, fontsize=11)
    axes.set_yticks(places, names, fontsize=11)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=13, loc="left")
    axes.set_xlim(0, 1.15 * max(values, default=1.0))
    axes.spines[["top", "right"]].set_visible(False)


def shown(rows: Iterable[Row]) -> list[Row]:
    """Return the rows with the memory and the name of the largest process in one cell."""
    return [
        {**row, "largest": f"{row['largest']:.2f} GiB ({row['process']})"} if "process" in row else row
        for row in rows
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("spark", __doc__, "quick", "seed", "out", "figure")
    parser.add_argument("--workload", choices=BOXES, default="wide", help="of events and boxes (%(default)s)")
    add_sizes(
        parser,
        FULL,
        events="number of events",
        boxes="number of subscriptions",
        big="number of events of the last run",
        repeats="number of runs; their median counts",
    )
    given = parser.parse_args(arguments)
    size = sized(given, QUICK, FULL)
    with tempfile.TemporaryDirectory() as name, tqdm(unit="run", leave=False) as bar:
        folder = Path(name)
        bar.set_description("drawing events")
        data = prepare(folder, given.workload, given.seed, size)
        rows = measure(data, size, folder, bar) + measure_uneven(data, size, bar)
        rows = judged(rows + measure_big(data, size, bar))
    print(machine.one_line())
    print(f"{size.boxes:,} {given.workload} subscriptions in twelve dimensions, medians of {size.repeats}")
    print("\n" + table(shown(rows), COLUMNS))
    keep(given.out, "spark", size._asdict() | {"workload": given.workload, "seed": given.seed}, rows)
    if given.figure is not None:
        save_picture(figure(rows), given.figure, dpi=100)
    return 0
