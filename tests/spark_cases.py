"""What the tests of Spark share: when they run, events, and what is expected of them."""

import os
import shutil

import pytest

NO_JAVA = not (shutil.which("java") or os.environ.get("JAVA_HOME"))
marks = [
    pytest.mark.xdist_group("spark"),  # one session
    pytest.mark.skipif(NO_JAVA, reason="Spark needs Java 17 or newer"),
]

SCHEMA = "id string, price double, symbol string, at struct<depth: int>, other long"


def frame(spark, rows, slices=4):
    """Events as a DataFrame."""
    return spark.createDataFrame(rows, SCHEMA).repartition(slices)


def pairs(result):
    """Rows of a result, sorted."""
    return sorted((row["id"], row["subscription"]) for row in result.collect())


def expected(filter, rows):
    """The same, event by event."""
    return sorted((row["id"], int(s)) for row in rows for s in filter.match(row))
