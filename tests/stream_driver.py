"""Two streaming queries, of events and of changes, for tests that kill them and start them again.

Arguments of the program: a directory with files of events and changes, and an index. With `--changes-first`
events begin when all changes are applied.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from rtfilter.spark import ChangeStage, MatchStage, Once


def run(spark, home, changes_first=False):
    """Start both queries, and wait until all files are read."""

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
    if changes_first:
        changes.awaitTermination()
    events = start("events", "id long, x double", MatchStage(home / "index", Once(home / "out")))
    for query in (changes, events):
        query.awaitTermination()


def main():
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", False)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    run(spark, Path(sys.argv[1]), "--changes-first" in sys.argv)


if __name__ == "__main__":
    main()
