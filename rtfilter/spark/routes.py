"""The parts of an index in which each event is searched, and its estimated work there."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.filter import inside
from rtfilter.spark.leases import Lease

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: A leaf of shard s has the id s * LEAVES + its number in an index of leaves.
LEAVES = 1 << 32
#: Events whose leaves are looked up together: they may be thousands for each.
TOGETHER = 4096
#: Shares into which the work of a shard is divided, for each partition that it spans.
SLOTS = 32


@dataclass(frozen=True)
class Route:
    """The shards of an index, or its one piece, and the search for those in which an event is searched.

    Attributes
    ----------
    leases : list of Lease
        The index, or its shards.
    leaves : Lease, optional
        For shards: a filter with the box of each of their leaves.
    shares : float64 (number of leases,)
        Expected work of each, in any unit.
    """

    leases: list[Lease]
    leaves: Lease | None
    shares: FloatArray

    @property
    def schema(self) -> Schema:
        """The schema of the index."""
        return self.leases[0].schema

    @classmethod
    def whole(cls, lease: Lease) -> Route:
        """Return the route to an index in one piece."""
        return cls([lease], None, np.ones(1))

    def find(self, events: EventTable) -> tuple[IntArray, IntArray, IntArray]:
        """Return the shards in which n events are searched: row, shard, and leaves to visit, int64 (m,) each.

        An event that reaches no leaf is not searched.
        """
        if self.leaves is None:
            workload = inside(self.leases[0].open()).matcher.workload(events.searched)
            if events.choices is not None:
                workload = events.choices.sums(workload)
            rows = np.flatnonzero(workload)
            return rows, np.zeros(len(rows), np.int64), workload[rows]
        leaves, shards = self.leaves.open(), len(self.leases)
        parts = [np.empty((3, 0), np.int64)]
        for start in range(0, len(events), TOGETHER):
            found = leaves.match_batch(events.rows(range(start, min(start + TOGETHER, len(events)))))
            row = np.repeat(np.arange(len(found)), found.counts)
            visits = np.bincount(row * shards + found.ids // LEAVES, minlength=len(found) * shards)
            met = np.flatnonzero(visits)
            parts.append(np.stack([start + met // shards, met % shards, visits[met]]))
        rows, shard, workload = np.concatenate(parts, axis=1)
        return rows, shard, workload

    def slots(self, parts: int) -> list[IntArray]:
        """Return for each shard the partitions, int64, that take equal shares of its work.

        Shards follow one another along the partitions, so that all partitions have the same work and each
        needs few shards.
        """
        if len(self.leases) == 1:
            return [np.arange(parts)]
        ends = np.cumsum(self.shares) / self.shares.sum() * parts
        starts = np.concatenate([[0.0], ends[:-1]])
        found = []
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            number = int(np.ceil(SLOTS * (end - start))) or 1
            places = start + (np.arange(number) + 0.5) / number * (end - start)
            found.append(np.minimum(places.astype(np.int64), parts - 1))
        return found


#: Events of which matches are counted together, and the matches after which counting ends.
FEW, ENOUGH = 64, 1 << 18


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
        some = events.rows(range(counted, min(counted + FEW, len(events))))
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
