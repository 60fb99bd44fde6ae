"""Iteration over the events of a batch as they are completed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, FloatArray, IntArray
from rtfilter.basics.results import Matches
from rtfilter.matching.gate import Hold
from rtfilter.matching.road import Batch, Road


class Completion(NamedTuple):
    """A completed event."""

    event: int
    """Its row in the batch."""
    ids: AnyArray
    """(k,): subscriptions that match it, int64, or object if ids are text or UUIDs."""
    response: float
    """Seconds from the arrival of the batch until its group was done."""


class CompletedGroup(NamedTuple):
    """k events that are completed together; ids and response are as in `Completion`."""

    events: Sequence[int]
    """Their rows in the batch."""
    offsets: IntArray
    """int64 (k + 1,): ``ids[offsets[i]:offsets[i + 1]]`` match ``events[i]``."""
    ids: AnyArray
    response: float


class Stream:
    """Iterator over the completed events of a batch, in order of completion.

    Attributes
    ----------
    plan : Plan
        Level and group size of the batch. Without a group size, the batch is searched as a whole, without an
        estimate.
    workload : int64 (n,)
        Estimated work of each event: nodes at which its paths stopped at that level, or another matcher's own
        unit; 1 without an estimate.
    order : int64 (n,)
        Rows in the order of their search.
    estimation : float
        Seconds of the estimate and the ordering.
    estimation_visits : int
        Operations of the estimate: (node, event) pairs that it expanded, or another matcher's own unit.
    """

    def __init__(self, road: Road, batch: Batch, hold: Hold) -> None:
        self._road, self._batch, self._hold = road, batch, hold
        self.plan, self.estimation = batch.plan, batch.outcome.estimation
        self.estimation_visits = batch.outcome.estimation_visits
        self._group = self._at = 0  # the next group, and the next event of the present one
        self._rows: Sequence[int] = ()
        self._offsets: IntArray = np.empty(0, np.int64)
        self._ids: AnyArray = self._offsets
        self._ended = 0.0
        road.watch(self, batch)

    @property
    def workload(self) -> IntArray:
        """See the attributes of the class."""
        return np.ones(len(self), np.int64) if self._batch.workload is None else self._batch.workload

    @property
    def order(self) -> IntArray:
        """See the attributes of the class."""
        return np.arange(len(self)) if self._batch.order is None else self._batch.order

    def __iter__(self) -> Iterator[Completion]:
        return self

    def __next__(self) -> Completion:
        if self._at == len(self._rows):
            self._load_group()
        at = self._at
        ids = self._ids[self._offsets[at] : self._offsets[at + 1]]
        completion = Completion(self._rows[at], ids, self._ended)
        self._at = at + 1
        return completion

    def groups(self) -> Iterator[CompletedGroup]:
        """Return an iterator over completed groups, which costs less per event.

        It goes on after the events that were returned already.
        """
        with suppress(StopIteration):
            while True:
                self._load_group()
                self._at = len(self._rows)
                yield CompletedGroup(self._rows, self._offsets, self._ids, self._ended)

    def _load_group(self) -> None:
        if self._group == self._batch.group_count:
            self._settle()
            raise StopIteration
        rows, self._offsets, self._ids, _, self._ended, _ = self._batch.step(self._group)
        self._rows = range(len(self)) if rows is None else rows.tolist()
        self._at = 0
        self._group += 1
        if self._batch.done:
            self._settle()

    def __len__(self) -> int:
        """Return the number of events of the batch."""
        return len(self._batch)

    def close(self) -> None:
        """Stop the computation of the remaining events; later changes then need not finish the stream."""
        self._batch.close()
        self._hold.close()
        self._road.report(self._batch)

    def matches(self) -> Matches:
        """Return all matches of the batch in arrival order; computes the rest of the batch."""
        self._finish()
        return self._batch.outcome.matches()

    @property
    def response(self) -> FloatArray:
        """Response time of each event in seconds, float64 (n,), by row; computes the rest of the batch."""
        self._finish()
        return self._batch.outcome.response

    @property
    def mean_response(self) -> float:
        """Mean response time in seconds (0 for an empty batch); computes the rest of the batch."""
        return float(self.response.mean()) if len(self) else 0.0

    @property
    def visits(self) -> IntArray:
        """Operations per event after the estimate, int64 (n,); computes the rest of the batch."""
        self._finish()
        return self._batch.outcome.visits

    def _finish(self) -> None:
        self._batch.finish()
        self._settle()

    def _settle(self) -> None:
        """Release the index, report a finished batch, and remove some expired subscriptions."""
        self._hold.close()
        if self._batch.done:
            self._road.report(self._batch)
            if self._batch.moment > -inf:
                self._road.sweep(self._batch.moment)
