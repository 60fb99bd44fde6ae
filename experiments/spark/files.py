"""The overhead of Spark: `match_frame` and `match_files`, beside one process that matches the same events.

All of them read the same events from a Parquet file. Each place has a process of its own, in which the ways
take turns; the first turn starts the workers and maps the index, and does not count. The overhead is the core
time per event, or the processor time of all processes, compared with that of one process without Spark in the
same turn. `match_files` writes its result; that of `match_frame` is used within Spark.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tqdm import tqdm

from experiments.arguments import add_sizes, command, sized
from experiments.output import keep, outcome
from experiments.spark.job import ALONE, FILES, FRAME
from experiments.spark.throughput import run, write_events
from rtfilter import EventFilter
from rtfilter.replay import machine
from rtfilter.replay.output import Row, table
from rtfilter.replay.workloads import BOXES

OVERHEAD, TIMES = 0.15, 1.8
"""Targets of `match_files`: the largest overhead, and the least speed on two cores as a multiple of one."""
PLACES = {"local[1]": 1, "local[2]": 2}
"""The masters of Spark, with the number of cores."""
COLUMNS = {
    "place": "",
    "way": "",
    "events_s": "events/s",
    "overhead": "overhead a core",
    "processor": "more processor time",
    "times": "times one core",
    "verdict": "",
}


class Size(NamedTuple):
    """The size of a measurement."""

    boxes: int
    events: int
    repeats: int


FULL = Size(200_000, 1_000_000, 9)
QUICK = Size(2000, 20_000, 1)


class Turn(NamedTuple):
    """The measurement of a way in a turn."""

    matches: int
    seconds: float
    processor: float
    """Seconds of all processes."""


def measured(job: Row) -> dict[str, list[Turn]]:
    """Return the turns of each way, which another process takes."""
    rows, _ = run({**job, "way": "turns"}, nullcontext())
    found: dict[str, list[Turn]] = {way: [] for way in (ALONE, FRAME, FILES)}
    for row in rows:
        found[row.pop("name")].append(Turn(**row))
    return found


def judged(found: dict[str, dict[str, list[Turn]]], events: int) -> list[Row]:
    """Return a row for each place and way, with medians of turns, and verdicts.

    Raises ``RuntimeError`` if ways disagree about the number of matches.
    """
    rows: list[Row] = []
    for place, ways in found.items():
        cores = PLACES[place]
        for way, own in ways.items():
            row: Row = {"place": place, "way": way, "cores": cores, "matches": own[0].matches}
            row["events_s"] = events / median(turn.seconds for turn in own)
            if way != ALONE:
                pairs = list(zip(own, ways[ALONE], strict=True))
                row["overhead"] = median(cores * turn.seconds / base.seconds for turn, base in pairs) - 1
                row["processor"] = median(turn.processor / base.processor for turn, base in pairs) - 1
                one = next(other for other in [*rows, row] if other["way"] == way)
                row["times"] = row["events_s"] / one["events_s"]
            if way == FILES:
                row["verdict"] = outcome(
                    row["overhead"] <= OVERHEAD and (cores == 1 or row["times"] >= TIMES)
                )
            rows.append({**row, "turns": own})
    if len({row["matches"] for row in rows}) > 1:
        raise RuntimeError(f"the ways disagree: {[(row['way'], row['matches']) for row in rows]}")
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Run the experiment; see ``--help``."""
    parser = command("spark-files", __doc__, "quick", "seed", "out")
    add_sizes(
        parser,
        FULL,
        boxes="number of subscriptions",
        events="number of events",
        repeats="number of turns; their median counts",
    )
    given = parser.parse_args(arguments)
    size = sized(given, QUICK, FULL)
    made = BOXES["wide"](given.seed)
    with tempfile.TemporaryDirectory() as folder:
        events, index = Path(folder, "events"), EventFilter(made.schema, matcher="rtree")
        write_events(events, made.events, list(made.schema.names), size.events)
        index.subscribe_boxes(*made.subscriptions(0, size.boxes))
        index.save(Path(folder, "index"))
        job = {"events": str(events), "index": f"{folder}/index", "repeats": size.repeats}
        found = {place: measured({**job, "master": place}) for place in tqdm(PLACES, leave=False)}
    rows = judged(found, size.events)
    print(machine.one_line())
    print(f"{size.events:,} events, {size.boxes:,} wide subscriptions, medians of {size.repeats} turns")
    print("\n" + table(rows, COLUMNS))
    keep(given.out, "spark-files", size._asdict() | {"seed": given.seed}, rows)
    return 0
