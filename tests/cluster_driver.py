"""What `test_spark_cluster` runs in a process of its own: a session on a cluster whose executors come and go.

Arguments: the master's URL, the path of an index, of which executors shall see nothing. Prints what it found.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from rtfilter import EventFilter
from rtfilter.spark import match_frame

EVENTS, PARTS = 20_000, 8


def executors(application):
    """Process ids of the executors of an application, oldest first."""
    lines = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True).stdout
    mine = [line for line in lines.splitlines() if "ExecutorBackend" in line and application in line]
    return sorted(int(line.split()[0]) for line in mine)


def kill_one(spark, job):
    """Kill an executor once some task is done; whether it came to that."""
    tracker, killed = spark.sparkContext.statusTracker(), False
    while job.is_alive():
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        if not killed and any(stage is not None and stage.numCompletedTasks > 0 for stage in stages):
            os.kill(executors(spark.sparkContext.applicationId)[0], signal.SIGKILL)
            killed = True
        time.sleep(0.01)
    return killed


def main():
    master, path = sys.argv[1:]
    filter = EventFilter.load(path)
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", False)
        .config("spark.executor.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    points = np.random.default_rng(1).random((EVENTS, 3))
    expected = {(e, int(s)) for e, found in enumerate(filter.match_batch(points)) for s in found}
    columns = {name: points[:, k] for k, name in enumerate("xyz")}
    frame = spark.createDataFrame(pa.table({"id": np.arange(EVENTS), **columns}))
    source = frame.repartition(PARTS)  # rows come in an order of chance
    result = match_frame(source, path, partitions=PARTS)
    with open(Path(path) / "manifest.json", "a") as manifest:  # to the executors now another index
        manifest.write(" ")
    for _ in range(2):  # while events are dealt, and again while they are matched: Spark has kept the blocks
        found = []
        job = threading.Thread(target=lambda found=found: found.extend(result.collect()))
        job.start()
        killed = kill_one(spark, job)
        pairs = [(row.id, row.subscription) for row in found]
        print("killed", killed, "pairs", len(pairs) == len(set(pairs)) and set(pairs) == expected)
    print("homes", len(list(Path(os.environ["TMPDIR"]).glob("rtfilter-*/[!h]*/"))))


main()
