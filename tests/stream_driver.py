"""What `test_spark_streams` starts, kills and starts again: two queries, of events and of changes.

Arguments: a directory with files of events and of changes, and an index.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rtfilter.spark import ChangeStage, MatchStage, Once


def main():
    home = Path(sys.argv[1])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    def start(name, schema, stage):
        files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return (
            files.parquet(str(home / name))
            .writeStream.foreachBatch(stage)
            .option("checkpointLocation", str(home / f"{name}-state"))
            .trigger(availableNow=True)
            .start()
        )

    changes = start("changes", "id long, where string, removed boolean", ChangeStage(home / "index"))
    if "--changes-first" in sys.argv:
        changes.awaitTermination()
    events = start("events", "id long, x double", MatchStage(home / "index", Once(home / "out")))
    print("started", flush=True)
    for query in (changes, events):
        query.awaitTermination()
    print("done", flush=True)


main()
