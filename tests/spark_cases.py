"""What the tests of Spark share: events, and what is expected of them."""

import os
import time

import pytest

marks = [pytest.mark.needs("java")]
"""Of tests that start Spark themselves; those with the fixture `spark` have them anyway."""


def temporary(folder):
    """Environment in which Python and Java leave their temporary files in a folder when they are killed."""
    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -Djava.io.tmpdir={folder}"
    return {"TMPDIR": str(folder), "JDK_JAVA_OPTIONS": java, "SPARK_LOCAL_DIRS": str(folder)}


def frame(spark, rows, slices=3):
    """Events as a DataFrame; by Arrow, for which Spark needs no Python."""
    import pyarrow as pa

    depth = pa.struct([("depth", pa.int32())])
    kinds = {
        "id": pa.string(),
        "price": pa.float64(),
        "symbol": pa.string(),
        "at": depth,
        "other": pa.int64(),
    }
    return spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema(kinds))).repartition(slices)


def pairs(result):
    """Rows of a result, sorted."""
    return sorted((row["id"], row["subscription"]) for row in result.collect())


def expected(filter, rows):
    """The same, event by event."""
    return sorted((row["id"], int(s)) for row in rows for s in filter.match(row))


def wait(condition, seconds=120):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
