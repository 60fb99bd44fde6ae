"""The work of the events in each partition, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.accumulators import AccumulatorParam

from rtfilter.dtypes import FloatArray
from rtfilter.events.table import EventTable
from rtfilter.spark.routes import Route

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Events of which matches are counted together, and the matches after which counting ends.
TOGETHER, ENOUGH = 64, 1 << 18


@dataclass(frozen=True)
class Work:
    """The work in each of p partitions.

    Attributes
    ----------
    events : float64 (p,)
        Number of events, perhaps estimated.
    visits : float64 (p,)
        Leaves of the index that the search of all of them visits.
    hits : float64 (p,)
        Subscriptions that match them, all together: rows of the result.
    """

    events: FloatArray
    visits: FloatArray
    hits: FloatArray

    @classmethod
    def like(cls, seen: FloatArray, number: FloatArray) -> Work:
        """Return the work of partitions with `number` events, float64 (p,), each like the seen events.

        `seen` is float64 (p, 3): of each partition the number of events seen, their visits, and their hits.
        """
        each = seen[:, 1:] / np.maximum(seen[:, :1], 1)
        return cls(number, number * each[:, 0], number * each[:, 1])


def seen(route: Route, events: EventTable) -> FloatArray:
    """Return the number of some events, their visits and their hits, float64 (3,).

    Hits are counted for the first events only if they have many. The route leads to an index in one piece.
    """
    visits = int(route.find(events)[2].sum())
    index, counted, hits = route.leases[0].open(), 0, 0
    while counted < len(events) and hits < ENOUGH:
        some = events.rows(range(counted, min(counted + TOGETHER, len(events))))
        found = index.match_batch(some, at=-inf)  # at no time, so that nothing is removed
        counted, hits = counted + len(some), hits + int(found.counts.sum())
    return np.array([len(events), visits, hits * len(events) / max(counted, 1)])


def counts(events: DataFrame) -> FloatArray:
    """Return the number of events in each partition, float64 (p,), without empty partitions at the end."""
    from pyspark.sql import functions as sf

    found = {row[0]: float(row[1]) for row in events.groupBy(sf.spark_partition_id()).count().collect()}
    return np.array([found.get(part, 0.0) for part in range(max(found, default=-1) + 1)])


def partition() -> int:
    """Return the number of the partition that this task computes."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return task.partitionId() if task else 0


class Reports:
    """The reports of a micro-batch's tasks about the partitions of its events.

    Pickled with the work of a task; a task that runs twice reports the same.
    """

    def __init__(self, context: Any) -> None:
        self._total = context.accumulator({}, _Latest())

    def add(self, events: int, visits: int, hits: int) -> None:
        """Report for the partition of this task, which calls it once, after all events."""
        self._total.add({partition(): (events, visits, hits)})

    def work(self, events: FloatArray) -> Work | None:
        """Return the expected work of a batch whose p partitions have `events` events, float64 (p,).

        The events of a partition are taken to be like its earlier ones, or like all events if it had none.
        Returns None if there are no reports.
        """
        told = {part: found for part, found in self._total.value.items() if found[0]}
        if not told:
            return None
        before = np.tile(np.sum(list(told.values()), axis=0, dtype=float), (len(events), 1))
        for part, found in told.items():
            if part < len(events):
                before[part] = found
        return Work.like(before, events)

    def clear(self) -> None:
        """Clear the reports, before the next batch."""
        self._total.value = {}


Told = dict[int, tuple[int, int, int]]


class _Latest(AccumulatorParam[Told]):
    """Partitions and their reports."""

    def zero(self, value: Told) -> Told:
        return {}

    def addInPlace(self, value1: Told, value2: Told) -> Told:  # noqa: N802
        return {**value1, **value2}
