"""A call of `match_files` whose workers stop within the third file, for tests that kill it.

Arguments of the program: the events, the index, and the directory of the result. Spark also runs this module
as the process that it forks workers from.
"""

import os
import sys
from contextlib import contextmanager
from time import sleep

THIRD = "part-00002"


def stop_within_the_third_file():
    from rtfilter.spark import file_matching as files

    whole_file = files.whole_file

    @contextmanager
    def stopping(folder, name):
        with whole_file(folder, name) as file:
            if name.startswith(THIRD):
                file.write(b"half a file")
                file.flush()
                sleep(600)  # until the worker is killed
            yield file

    files.whole_file = stopping


def main(events, index, out):
    from pyspark.sql import SparkSession

    from rtfilter.spark import file_matching as files
    from rtfilter.spark import match_files

    files.LEAST = 1  # so that a few events are several units
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)
    builder = builder.config("spark.driver.host", "localhost").config("spark.driver.memory", "512m")
    spark = builder.config("spark.python.daemon.module", "files_driver").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    match_files(spark, events, index, out=out)


if __name__ == "__main__":
    if "pyspark.worker" in sys.argv:
        from pyspark.daemon import manager

        stop_within_the_third_file()
        manager()
    else:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        main(*sys.argv[1:])
