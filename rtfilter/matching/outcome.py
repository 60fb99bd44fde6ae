"""The results of the groups of a batch: matches, operations and response times, by row of the batch."""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from rtfilter.adaptive import Report
from rtfilter.dtypes import AnyArray, FloatArray, IntArray
from rtfilter.results import Matches, StreamRecord


class Group(NamedTuple):
    """A finished group of k events."""

    rows: IntArray | None
    """int64 (k,): rows of the batch; None for all rows in their order."""
    offsets: IntArray
    """int64 (k + 1,): event i of the group has ``ids[offsets[i]:offsets[i + 1]]``."""
    ids: AnyArray
    visits: IntArray
    """int64 (k,): operations of the search."""
    ended: float
    """Seconds from the arrival of the batch to the end of the group."""
    busy: float
    """The same without the time in which no thread computed the batch."""

    @property
    def places(self) -> IntArray | slice:
        """The rows, as an index into arrays of the batch."""
        return slice(None) if self.rows is None else self.rows


class Outcome:
    """The results of a batch of n events, as far as its groups are finished.

    Attributes
    ----------
    groups : list of Group
        The finished groups, in their order. All other methods but `report` need a batch whose groups are all
        finished.
    """

    __slots__ = ("_kind", "groups", "size")

    def __init__(self, size: int, kind: type = int) -> None:
        self.size, self._kind = size, kind  # of events, and the type of ids
        self.groups: list[Group] = []

    def matches(self) -> Matches:
        """Return all matches, in the order of the rows."""
        if len(self.groups) == 1 and self.groups[0].rows is None:
            return self._of(self.groups[0].offsets, self.groups[0].ids)
        counts = np.zeros(self.size, np.int64)
        for group in self.groups:
            counts[group.places] = np.diff(group.offsets)
        starts = np.concatenate([[0], np.cumsum(counts)])
        ids: AnyArray = np.empty(starts[-1], np.int64 if self._kind is int else object)
        for group in self.groups:
            first = starts[:-1][group.places] - group.offsets[:-1]
            ids[np.repeat(first, np.diff(group.offsets)) + np.arange(len(group.ids))] = group.ids
        return self._of(starts, ids)

    def _of(self, offsets: IntArray, ids: AnyArray) -> Matches:
        return Matches(offsets, ids) if self._kind is int else Matches.named(offsets, ids, self._kind)

    @property
    def match_count(self) -> int:
        """Number of matches of all events."""
        return sum(len(group.ids) for group in self.groups)

    @property
    def visits(self) -> IntArray:
        """Operations per event after the estimate, int64 (n,), by row."""
        visits = np.zeros(self.size, np.int64)
        for group in self.groups:
            visits[group.places] = group.visits
        return visits

    @property
    def response(self) -> FloatArray:
        """Response time of each event in seconds, float64 (n,), by row."""
        response = np.empty(self.size)
        for group in self.groups:
            response[group.places] = group.ended
        return response

    def report(self, worked: float, estimation: float, estimation_visits: int) -> Report:
        """Return the report for a controller.

        Its times exclude the consumer's own time, which no plan can change.

        Unfinished events count with `worked`, the seconds that the batch has taken so far.
        """
        sizes = [len(group.offsets) - 1 for group in self.groups]
        unfinished = self.size - sum(sizes)
        total = sum(map(operator.mul, (group.busy for group in self.groups), sizes)) + unfinished * worked
        visits = np.concatenate([group.visits for group in self.groups]).sum() if sizes else 0
        return Report(
            total / self.size, self.size, unfinished, worked, estimation, len(sizes), int(visits),
            estimation_visits,
        )  # fmt: skip

    def record(self, size_class: int, estimation: float, workload: IntArray | None) -> StreamRecord:
        """Return the record of a stream for observers, such as metrics."""
        ended = np.array([group.ended for group in self.groups])
        sizes = np.array([len(group.offsets) - 1 for group in self.groups], np.int64)
        estimate = np.ones(self.size, np.int64) if workload is None else workload
        return StreamRecord(size_class, ended, sizes, self.match_count, estimation, estimate, self.visits)
