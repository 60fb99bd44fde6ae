"""Whether events are matched where they are, or dealt out first so that all tasks have the same work.

Dealing moves every event, which costs as much as visiting some leaves of the index. It pays where otherwise
some cores would wait for others for longer than that. `decide` compares both, from the work of each
partition: `look` estimates it from the first events of each, and a stream knows it from the batch before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pyspark.accumulators import AccumulatorParam

from rtfilter.dtypes import FloatArray
from rtfilter.spark.blocks import Layout
from rtfilter.spark.routes import Route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from rtfilter.spark.blocks import Batches

Balance = bool | Literal["auto"]

#: Costs of an event beside its search, in visits of a leaf (about 0.16 us): to read it, to estimate its work
#: and send it where it is dealt to, and to take it there.
READ, SEND, TAKE = 10.0, 5.0, 3.0
#: Cost of a second round of tasks, in visits.
ROUND = 500_000.0
#: Work of the slowest core, as a multiple of the mean, up to which cores count as equally busy.
EVEN = 1.1
#: Events of each partition that are looked at, and those that it is taken to have if it has more.
LOOK, MANY = 1024, 100_000
#: Operators of Spark that give their first rows without computing the others, and sources that do.
PASSING = {"Coalesce", "Filter", "Project", "Sample", "Union"}
CACHED = {"InMemoryTableScan", "Scan In-memory"}
FILES = {f"Scan {kind}" for kind in ("avro", "csv", "json", "orc", "parquet", "text")}
READABLE = {*CACHED, *FILES, "BatchScan", "LocalTableScan", "Range"}


@dataclass(frozen=True)
class Work:
    """What there is to do in each of p partitions.

    Attributes
    ----------
    events : float64 (p,)
        Number of events, perhaps estimated.
    visits : float64 (p,)
        Leaves of the index that the search of all of them visits.
    """

    events: FloatArray
    visits: FloatArray


@dataclass(frozen=True)
class Decision:
    """Whether events are dealt out, and why.

    Attributes
    ----------
    dealt : bool
    reason : str
        "even": the cores are equally busy anyway. "cheap": they are not, but dealing would take longer.
        "skewed": they are not, and dealing pays. "asked": the caller said so. "shards": a task should need
        few shards of an index. "unseen": to look at some events, Spark would have to compute all of them.
    skew : float, optional
        Work of the slowest core as a multiple of the mean, if events stay where they are.
    """

    dealt: bool
    reason: str
    skew: float | None = None

    def __str__(self) -> str:
        """Return what the plan of the result shows."""
        seen = "" if self.skew is None else f", slowest core {self.skew:.2f} times the mean"
        return f"{'deal out' if self.dealt else 'match where they are'} ({self.reason}{seen})"


def decide(work: Work, cores: int) -> Decision:
    """Compare the time until the slowest core is done, with and without dealing."""
    total = READ * work.events + work.visits
    mean = float(total.sum()) / cores
    here = slowest(total, cores)
    skew = here / mean if mean else 1.0
    if skew <= EVEN:
        return Decision(False, "even", skew)
    sent = slowest((READ + SEND) * work.events, cores)
    moved = sent + float((TAKE * work.events + work.visits).sum()) / cores + ROUND
    return Decision(True, "skewed", skew) if moved < here else Decision(False, "cheap", skew)


def slowest(work: FloatArray, cores: int) -> float:
    """Return the work of the busiest of several cores that take one partition after the other."""
    loads = [0.0] * cores
    for one in work.tolist():
        heapq.heappushpop(loads, loads[0] + one)
    return max(loads)


def choose(events: DataFrame, route: Route, layout: Layout, names: list[str], balance: Balance) -> Decision:
    """Decide for a frame; by default after a look at some of its events, in a short job of Spark."""
    known = settled(route, balance)
    if known is not None:
        return known
    work = look(events, route, layout, names)
    if work is None:  # a stream cannot be dealt out; other frames could have all their events in one place
        return Decision(not events.isStreaming, "unseen")
    return decide(work, cores_of(events))


def checked(balance: Balance) -> Balance:
    """Return what was asked for. Raises `ValueError` where it is neither True, False nor "auto"."""
    if isinstance(balance, bool) or balance == "auto":
        return balance
    raise ValueError(f'balance is True, False or "auto", not {balance!r}')


def settled(route: Route, balance: Balance) -> Decision | None:
    """Return the decision if it does not depend on the events."""
    if balance != "auto":
        return Decision(balance, "asked")
    return Decision(True, "shards") if len(route.leases) > 1 else None


def cores_of(events: DataFrame) -> int:
    """Return how many tasks run at a time."""
    return int(events.sparkSession.sparkContext.defaultParallelism)


def look(events: DataFrame, route: Route, layout: Layout, names: list[str]) -> Work | None:
    """Estimate the work of each partition from its first events; None if that would compute all of them.

    Partitions that go on are taken to be of equal size, as Spark cuts files so; those of a cache are counted.
    """
    if events.isStreaming:
        return None
    fresh = events.select("*")  # the plan of `events` may be older than its cache
    sources = set(_operators(fresh._jdf.queryExecution().sparkPlan())) - PASSING
    if not sources <= READABLE:
        return None

    def estimate(batches: Batches) -> Batches:
        import pyarrow as pa

        number, visits = 0, 0
        for batch in layout.unpacked(batches):
            number, visits = number + len(batch), visits + int(route.find(batch.select(names))[2].sum())
        found = {"part": pa.array([_partition()], pa.int32()), "events": [number], "visits": [visits]}
        yield pa.RecordBatch.from_pydict(found)

    first = layout.carried(_first(events, LOOK), ordered=False)
    rows = first.mapInArrow(estimate, "part int, events long, visits long").collect()
    seen = np.array([(row.events, row.visits) for row in sorted(rows)], float).reshape(-1, 2)
    number = np.where(seen[:, 0] < LOOK, seen[:, 0], MANY)
    if sources <= CACHED:
        exact = counts(events)
        number[: len(exact)] = exact
    return Work(number, number * seen[:, 1] / np.maximum(seen[:, 0], 1))


def counts(events: DataFrame) -> FloatArray:
    """Return the number of events in each partition, float64 (p,), without empty partitions at the end."""
    from pyspark.sql import functions as sf

    found = {row[0]: float(row[1]) for row in events.groupBy(sf.spark_partition_id()).count().collect()}
    return np.array([found.get(part, 0.0) for part in range(max(found, default=-1) + 1)])


def _first(events: DataFrame, number: int) -> DataFrame:
    """Return the first events of each partition; Spark does not compute the others."""
    from pyspark.sql import DataFrame

    spark = events.sparkSession
    local = events.limit(number)._jdf.queryExecution().analyzed().child()  # of a limit of all partitions
    java: Any = spark._jvm
    return DataFrame(java.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, local), spark)


def _operators(plan: Any) -> Iterator[str]:
    """Yield the kinds of the operators of a plan, without names of tables; of what is cached, only that."""
    first, *rest = plan.nodeName().split()
    yield " ".join([first, *rest[:1]]) if first == "Scan" else first
    children = plan.children()
    for k in range(children.size()):
        yield from _operators(children.apply(k))


def _partition() -> int:
    from pyspark import TaskContext

    task = TaskContext.get()
    return task.partitionId() if task else 0


class Reports:
    """What the tasks of a micro-batch say of the partitions that its events came in.

    Pickled with the work of a task; a task that runs twice reports the same.
    """

    def __init__(self, context: Any) -> None:
        self._total = context.accumulator({}, _Latest())

    def add(self, events: int, visits: int) -> None:
        """Report for the partition of this task, which calls it once, when it has seen all events."""
        self._total.add({_partition(): (events, visits)})

    def work(self, events: FloatArray) -> Work | None:
        """Return the expected work of a batch whose p partitions have so many events, float64 (p,).

        A partition's events are taken to be like those that it had before, or like all events if it had none.
        None if nothing was reported.
        """
        told = {part: found for part, found in self._total.value.items() if found[0]}
        if not told:
            return None
        all_events, all_visits = np.sum(list(told.values()), axis=0)
        each = np.full(len(events), all_visits / all_events)
        for part, (number, visits) in told.items():
            if part < len(events):
                each[part] = visits / number
        return Work(events, events * each)

    def clear(self) -> None:
        """Forget what was reported, before the next batch."""
        self._total.value = {}


class _Latest(AccumulatorParam[dict[int, tuple[int, int]]]):
    """Partitions and what each reported."""

    def zero(self, value: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        return {}

    def addInPlace(  # noqa: N802
        self, value1: dict[int, tuple[int, int]], value2: dict[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        return {**value1, **value2}
