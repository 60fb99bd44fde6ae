"""Facts about a frame in the text of its physical plan: Spark Connect gives nothing else of the plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Operators of Spark that give the same rows in the same order when they run again.
STEADY = {
    "AdaptiveSparkPlan",
    "BroadcastExchange",
    "BroadcastHashJoin",
    "ColumnarToRow",
    "CommandResult",
    "FileScan",
    "Filter",
    "InMemoryRelation",
    "InMemoryTableScan",
    "LocalTableScan",
    "Project",
    "Range",
    "Sample",
    "Union",
}
#: Operators that read what Spark keeps.
CACHED = {"InMemoryTableScan", "Scan In-memory"}

_OPERATOR = re.compile(r"^([ :+|-]*)(?:\*?\(\d+\) )?((?:File)?Scan [\w-]+|\w+)", re.MULTILINE)


def plan_of(events: DataFrame) -> str:
    """Return the physical plan of a frame now; the frame's own plan may be older than its cache."""
    if hasattr(events, "_jdf"):
        return str(events.select("*")._jdf.queryExecution().executedPlan().toString())
    return str(cast("Any", events)._explain_string())


def operators(events: DataFrame) -> Iterator[str]:
    """Yield the kinds of the operators of a frame's plan, without names of tables; of a cache, only that."""
    cache = None
    for found in _OPERATOR.finditer(plan_of(events)):
        depth, kind = len(found[1]), found[2]
        if cache is None or depth <= cache:
            cache = depth if kind in CACHED else None
            yield kind


def may_reorder(events: DataFrame) -> bool:
    """Return whether the rows may have another order when they are computed again."""
    return not all(found[2].partition(" ")[0] in STEADY for found in _OPERATOR.finditer(plan_of(events)))


def cores_of(events: DataFrame) -> int:
    """Return how many tasks run at a time: the number of partitions that Spark gives to a range."""
    from pyspark.sql import functions as sf

    numbers = events.sparkSession.range(1 << 10)
    found = re.search(r"splits=(\d+)", plan_of(numbers))
    return int(found[1]) if found else numbers.select(sf.spark_partition_id()).distinct().count()
