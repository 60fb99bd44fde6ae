"""A job on Spark: events in Parquet, a saved index of rules, matches in Parquet.

It makes its own events first; in your program they are there already.
"""

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from rtfilter import EventFilter, Schema
from rtfilter.spark import match_frame


def save_rules(path):
    rules = EventFilter(Schema({"symbol": str, "price": float}))
    rules.subscribe_many([f"symbol = 'S{k}' AND price < {k}" for k in range(1, 100)])
    rules.save(path)


def main(folder):
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # so that the executors find rtfilter, too
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("rules")
        .config("spark.ui.enabled", False)
        .config("spark.python.unix.domain.socket.enabled", True)  # saves 40 ms a task
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    number = sf.col("id") % 100
    ticks = spark.range(10_000).select("id", sf.concat(sf.lit("S"), number).alias("symbol"), price(number))
    ticks.write.parquet(f"{folder}/ticks")

    save_rules(folder / "rules.index")
    matches = match_frame(spark.read.parquet(f"{folder}/ticks"), folder / "rules.index")
    matches.write.parquet(f"{folder}/matches")
    print(f"{spark.read.parquet(f'{folder}/matches').count():,} matches in {folder / 'matches'}")
    spark.stop()


def price(number):
    return (number + sf.when(sf.col("id") < 5_000, -0.5).otherwise(0.5)).alias("price")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
