"""What the tests of Spark share: events, and what is expected of them."""

import os

import pytest

marks = [pytest.mark.needs("java")]
"""Of tests that start Spark themselves; those with the fixture `spark` have them anyway."""

SCHEMA = "id string, price double, symbol string, at struct<depth: int>, other long"


def temporary(folder):
    """Environment in which Python and Java leave their temporary files in a folder when they are killed."""
    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={folder}"
    return {"TMPDIR": str(folder), "JDK_JAVA_OPTIONS": java, "SPARK_LOCAL_DIRS": str(folder)}


def frame(spark, rows, slices=4):
    """Events as a DataFrame."""
    return spark.createDataFrame(rows, SCHEMA).repartition(slices)


def pairs(result):
    """Rows of a result, sorted."""
    return sorted((row["id"], row["subscription"]) for row in result.collect())


def expected(filter, rows):
    """The same, event by event."""
    return sorted((row["id"], int(s)) for row in rows for s in filter.match(row))
