"""The results of the groups of a batch: matches, operations and response times, by row of the batch."""

from __future__ import annotations

import operator
import threading
from typing import NamedTuple

import numpy as np

from rtfilter.adaptive import Report, Ticket
from rtfilter.basics.dtypes import AnyArray, FloatArray, IntArray
from rtfilter.basics.results import Matches, StreamRecord
from rtfilter.index.kernels import counts


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
    """The results of a batch of n events, as far as its groups are finished, and the data of its report.

    It is separate from the batch: the frames of an interrupted batch keep its stream alive.

    Attributes
    ----------
    ticket : Ticket or None
        The ticket of the controller; None for a batch without a controller.
    groups : list of Group
        The finished groups, in their order. All other methods but `report` need a batch whose groups are all
        finished.
    loads : int
        Number of kernels loaded before the batch.
    reported : Lock
        Acquired by the first report, and never released.
    worked, estimation, estimation_visits : float, float, int
        Seconds so far; seconds of frontier and order; operations of the frontier.
    """

    estimation, estimation_visits, worked = 0.0, 0, 0.0

    def __init__(self, size: int, ticket: Ticket | None = None, kind: type = int) -> None:
        self.size, self.ticket, self._kind = size, ticket, kind  # of events; the type of ids
        self.groups: list[Group] = []
        self.loads, self.reported = counts.loads, threading.Lock()

    def matches(self) -> Matches:
        """Return all matches, in the order of the rows."""
        offsets: IntArray
        ids: AnyArray
        if len(self.groups) == 1 and self.groups[0].rows is None:
            _, offsets, ids, *_ = self.groups[0]
        else:
            sizes = np.zeros(self.size, np.int64)
            for group in self.groups:
                sizes[group.places] = np.diff(group.offsets)
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            ids = np.empty(offsets[-1], np.int64 if self._kind is int else object)
            for group in self.groups:
                first = offsets[:-1][group.places] - group.offsets[:-1]
                ids[np.repeat(first, np.diff(group.offsets)) + np.arange(len(group.ids))] = group.ids
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

    def report(self) -> Report:
        """Return the report for the controller.

        Its times exclude the consumer's own time, which no plan can change. Unfinished events count with the
        time that the batch has taken so far.
        """
        sizes = [len(group.offsets) - 1 for group in self.groups]
        unfinished = self.size - sum(sizes)
        total = sum(map(operator.mul, (group.busy for group in self.groups), sizes))
        visits = np.concatenate([group.visits for group in self.groups]).sum() if sizes else 0
        return Report(
            (total + unfinished * self.worked) / self.size, self.size, unfinished, self.worked,
            self.estimation, len(sizes), int(visits), self.estimation_visits,
        )  # fmt: skip

    def record(self, size_class: int, workload: IntArray | None) -> StreamRecord:
        """Return the record of a stream for observers, such as metrics."""
        ended = np.array([group.ended for group in self.groups])
        sizes = np.array([len(group.offsets) - 1 for group in self.groups], np.int64)
        estimate = np.ones(self.size, np.int64) if workload is None else workload
        return StreamRecord(
            size_class, ended, sizes, self.match_count, self.estimation, estimate, self.visits
        )
