"""The program of one measurement on Spark: it reads a job as JSON and prints rows."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from experiments.spark.cluster import processor_seconds
from rtfilter import EventFilter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
BATCH = 1 << 16
"""Events that a process without Spark reads and matches together."""
ALONE, FRAME, FILES = "one process, no Spark", "match_frame", "match_files"
"""Names of the ways that take turns."""


def alone(job: Row) -> list[Row]:
    """Match all events without Spark: read them, match them, and look up the ids of the events."""
    index = EventFilter.load(job["index"])
    rows = [matched_alone(index, job["events"]) for _ in range(job["repeats"] + 1)]
    return rows[1:]  # the first run loaded the kernels


def matched_alone(index: EventFilter, path: str) -> Row:
    """Match the events of a file in this process, and return their number, the matches, and the seconds."""
    import pyarrow.parquet as pq

    names, begun, events, matches = list(index.schema.names), perf_counter(), 0, 0
    for batch in pq.ParquetFile(path).iter_batches(BATCH, use_threads=False):
        found = index.match_batch(batch.select(names))
        row, _ = found.pairs()
        matches += len(batch.column("id").take(row))
        events += len(batch)
    return {"seconds": perf_counter() - begun, "events": events, "matches": matches}


def turns(job: Row) -> list[Row]:
    """Match all events without Spark, by `match_frame` and by `match_files`, in turns; a row for each."""
    from rtfilter.spark import match_files, match_frame

    spark, alone, events = session(job), EventFilter.load(job["index"]), job["events"]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, Callable[[int], int]] = {
            ALONE: lambda _: matched_alone(alone, events)["matches"],
            FRAME: lambda _: used(match_frame(spark.read.parquet(events), job["index"], balance=False)),
            FILES: lambda turn: match_files(spark, events, job["index"], out=f"{folder}/{turn}").matches,
        }
        for turn in range(job["repeats"] + 1):
            for name, match in ways.items():
                begun, processor = perf_counter(), processor_seconds(os.getpid())
                row: Row = {"name": name, "matches": match(turn)}
                row["seconds"] = perf_counter() - begun
                row["processor"] = processor_seconds(os.getpid()) - processor
                rows.append(row)
    spark.stop()
    return rows[len(ways) :]  # the first turn started the workers and mapped the index


def session(job: Row) -> SparkSession:
    """Return a Spark session on the master of a job."""
    from pyspark.sql import SparkSession

    from rtfilter.spark.sessions import SOCKETS

    spark = (
        SparkSession.builder.master(job["master"])
        .config("spark.ui.enabled", False)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "1g")
        .config(SOCKETS, True)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def spent(spark: SparkSession, group: str) -> Row:
    """Return the number of bytes that the jobs of a group shuffled."""
    tracker = spark.sparkContext.statusTracker()
    java: Any = spark.sparkContext._jsc
    store = java.sc().statusStore()
    written = 0
    for number in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(number)
        for stage in info.stageIds if info else []:
            written += store.lastStageAttempt(stage).shuffleWriteBytes()
    return {"shuffled": written}


def matched(job: Row) -> list[Row]:
    """Match all events by `match_frame` in each way, one after the other, and use the whole result."""
    from rtfilter.spark import match_frame

    spark = session(job)
    events = spark.read.parquet(job["events"])
    rows = []
    for turn in range(job["repeats"] + 1):
        for balance in job["balances"]:
            group = f"turn {turn} {balance}"
            spark.sparkContext.setJobGroup(group, group)
            begun = perf_counter()
            result = match_frame(events, job["index"], balance=balance)
            count = used(result)
            seconds = perf_counter() - begun
            row = {"balance": balance, "seconds": seconds, "matches": count, "reason": reason(result)}
            rows.append(row | spent(spark, group))
    spark.stop()
    return rows[len(job["balances"]) :]  # the first turn started the workers and mapped the index


def reason(result: DataFrame) -> str:
    """Return the statement about balance in the plan of a result."""
    plan = result._jdf.queryExecution().sparkPlan().toString()
    found = re.search(r"(match where they are|deal out) \([^)]*\)", plan)
    return found[0] if found else ""


def used(result: DataFrame) -> int:
    """Return the number of rows of a result. Spark computes all columns of all rows for it."""
    from pyspark.sql import functions as sf

    row = result.agg(sf.count("*").alias("n"), sf.sum(sf.hash(*result.columns))).collect()[0]
    return int(row.n)


def joined(job: Row) -> list[Row]:
    """Match a sample of the events by a join of Spark: a broadcast nested loop over the bounds."""
    from pyspark.sql import functions as sf

    spark = session(job)
    events = spark.read.parquet(job["events"]).limit(job["sample"]).repartition(job["partitions"]).cache()
    boxes = spark.read.parquet(job["boxes"])
    events.count()
    condition = sf.expr(
        " AND ".join(f"{name} BETWEEN `low.{name}` AND `high.{name}`" for name in job["names"])
    )
    begun = perf_counter()
    count = used(events.join(sf.broadcast(boxes), condition).select(events.id, "subscription"))
    rows = [{"seconds": perf_counter() - begun, "events": job["sample"], "matches": count}]
    spark.stop()
    return rows


def worked(job: Row) -> list[Row]:
    """Return the work of each partition, in visits; a row for each way.

    The index has one subscription that matches all events, so the result has a row for each event.
    """
    from pyspark.sql import functions as sf

    from rtfilter.spark import match_frame

    spark = session(job)
    events, rows = spark.read.parquet(job["events"]), []
    for balance in job["balances"]:
        result = match_frame(events, job["index"], balance=balance, details=True)
        always = result.where(sf.col("subscription") == job["always"])
        work = always.groupBy(sf.spark_partition_id()).agg(sf.sum("workload")).collect()
        rows.append({"balance": balance, "work": [row[1] for row in work]})
    spark.stop()
    return rows


def boxes(job: Row, first: int, count: int, side: float) -> DataFrame:
    """Return boxes of one side at random places between 0 and 1, as a frame of bounds."""
    from pyspark.sql import functions as sf

    frame = session(job).range(first, first + count)
    for k in range(job["dimensions"]):
        low = sf.rand(seed=1000 * k + first)
        frame = frame.withColumn(f"low.a{k}", low).withColumn(f"high.a{k}", sf.expr(f"`low.a{k}` + {side}"))
    return frame


def sharded(job: Row) -> list[Row]:
    """Build an index in shards, append a tenth, or match events with it; return one row."""
    from rtfilter import Schema
    from rtfilter.spark import ShardedIndex, build_sharded, match_frame

    spark, names = session(job), [f"a{k}" for k in range(job["dimensions"])]
    side, begun = 1e-4 ** (1 / len(names)), perf_counter()
    row: Row = {}
    if job["way"] == "build":
        schema = Schema(dict.fromkeys(names, float))
        index = build_sharded(boxes(job, 0, job["boxes"], side), job["index"], schema)
    elif job["way"] == "append":
        index = ShardedIndex.open(job["index"])
        index = index.append(boxes(job, job["boxes"], job["boxes"] // 10, side))
    else:
        index = ShardedIndex.open(job["index"])
        points = boxes(job, 0, job["events"], 0.0)
        events = points.select("id", *(points[f"`low.{name}`"].alias(name) for name in names))
        row["matches"] = used(match_frame(events, index))
    row |= {"subscriptions": len(index), "seconds": perf_counter() - begun}
    spark.stop()
    return [row]


WAYS = {
    "alone": alone,
    "match": matched,
    "join": joined,
    "work": worked,
    "turns": turns,
    **dict.fromkeys(("build", "append", "match in shards"), sharded),
}


def main() -> None:
    """Run the job in standard input."""
    job = json.load(sys.stdin)
    print(json.dumps(WAYS[job["way"]](job)))


if __name__ == "__main__":
    main()
