"""Fixtures of several modules."""

import os
import sys

import numpy as np
import pytest

from rtfilter import EventFilter, Schema


@pytest.fixture(scope="session")
def spark():
    """A session on two local cores, for all tests of Spark."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.python.unix.domain.socket.enabled", True)
        .config("spark.ui.showConsoleProgress", False)
        .config("spark.driver.host", "localhost")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def alerts():
    """Conditions on numbers, strings and a dotted attribute."""
    filter = EventFilter(Schema({"price": float, "symbol": str, "at.depth": int}))
    rng = np.random.default_rng(3)
    for low in rng.integers(0, 90, 60):
        filter.subscribe(f"price BETWEEN {low} AND {low + 15} AND symbol IN ('A', 'B')")
    filter.subscribe_many(["symbol LIKE 'A%'", "price < 3 OR price > 97", "at.depth >= 4", "symbol IS NULL"])
    return filter


@pytest.fixture(scope="session")
def rows():
    """Events with missing attributes, and names that occur twice."""
    rng = np.random.default_rng(4)
    prices, symbols = rng.uniform(0, 100, 300), rng.choice(["A", "AB", "B", "C"], 300)
    rows = [
        {"id": f"e{i // 2}", "price": float(p), "symbol": str(s), "at": {"depth": i % 6}, "other": i}
        for i, (p, s) in enumerate(zip(prices, symbols, strict=True))
    ]
    rows[5]["price"] = rows[6]["symbol"] = rows[7]["at"] = rows[8]["at"]["depth"] = None
    return rows
