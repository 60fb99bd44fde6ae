"""One batch on its way: estimate, order, group by group, each event released when its group ends (W-3)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.adaptive import Plan
from rtfilter.index.tree import FloatArray, Hits, IntArray, RStarTree
from rtfilter.results import Matches
from rtfilter.scheduler import Order, schedule


class Completion(NamedTuple):
    """An event that is done.

    Attributes
    ----------
    event : int
        Its row in the batch.
    ids : int64 (k,)
        Subscriptions that match it.
    response : float
        Seconds from the arrival of the batch until its group was done.
    """

    event: int
    ids: IntArray
    response: float


class BatchRun:
    """Executes one batch by a plan; may be stepped by any thread.

    Parameters
    ----------
    tree : RStarTree
        Must not change before the run is done.
    points : float64 (n, d)
    plan : Plan
    order : Order
        The policy.
    refine : callable
        Turns the hits of some rows of the batch into ids: (rows, hits) -> (offsets, ids).
    arrival : float
        `perf_counter` when the batch arrived.
    """

    def __init__(
        self,
        tree: RStarTree,
        points: FloatArray,
        plan: Plan,
        order: Order,
        refine: Callable[[IntArray, Hits], tuple[IntArray, IntArray]],
        arrival: float,
    ) -> None:
        self._tree, self._refine, self._arrival = tree, refine, arrival
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._closed = False
        self._results: list[tuple[IntArray, IntArray, IntArray]] = []  # rows, offsets, ids of each group
        begun = perf_counter()
        frontier = tree.frontier(points, plan.level)
        cuts_of = schedule(order, frontier.workload, plan.group)
        self.order, self.cuts = cuts_of.order, cuts_of.cuts
        self._parts = frontier.split(self.order, self.cuts)
        groups = len(self.cuts) - 1
        self.plan = plan
        self.workload = frontier.workload
        self.estimation = perf_counter() - begun
        self.estimation_visits = frontier.visits
        self.ended = np.empty(groups)  # seconds from arrival, per group
        self.busy = np.empty(groups)  # the same without the time in which nobody stepped
        self._worked = perf_counter() - arrival
        self.visits = np.zeros(len(points), np.int64)

    @property
    def done(self) -> bool:
        """Whether all groups are done."""
        return len(self._results) == len(self.ended)

    def step(self, group: int) -> tuple[IntArray, IntArray, IntArray]:
        """Rows, offsets and ids of a group, computed with those before it if they are not yet."""
        with self._lock:
            while len(self._results) <= group:
                # Once the index was let go, the rest cannot be computed any more.
                if self._error is not None:
                    raise self._error
                if self._closed:
                    raise RuntimeError("the stream was closed before this event was computed")
                try:
                    self._advance()
                except Exception as error:
                    self._error = error
                    raise
            return self._results[group]

    def finish(self) -> None:
        """Compute what is left."""
        if len(self.ended):
            self.step(len(self.ended) - 1)

    def finish_for_change(self) -> None:
        """`finish` on behalf of a thread to whom an error of this batch is none of its business."""
        with contextlib.suppress(Exception):  # kept, and met by the consumer
            self.finish()

    def close(self, wait: bool = True) -> bool:
        """Compute nothing any more; False when that may not be waited for and a thread is computing now."""
        if not self._lock.acquire(blocking=wait):
            return False
        self._closed = True
        self._lock.release()
        return True

    def matches(self) -> Matches:
        """All matches of a finished run, in the order of its rows."""
        counts = np.zeros(len(self.visits) + 1, np.int64)
        for rows, offsets, _ in self._results:
            counts[rows + 1] = np.diff(offsets)
        starts = np.cumsum(counts)
        ids = np.empty(starts[-1], np.int64)
        for rows, offsets, own in self._results:
            at = np.repeat(starts[rows] - offsets[:-1], np.diff(offsets)) + np.arange(len(own))
            ids[at] = own
        return Matches(starts, ids)

    def _advance(self) -> None:
        group = len(self._results)
        begun = perf_counter()
        rows = self.order[self.cuts[group] : self.cuts[group + 1]]
        hits = self._tree.resume_part(self._parts, group)
        self.visits[rows] = hits.visits
        offsets, ids = self._refine(rows, hits)
        now = perf_counter()
        self._worked += now - begun
        self.busy[group] = self._worked
        self.ended[group] = now - self._arrival
        self._results.append((rows, offsets, ids))

    @property
    def match_count(self) -> int:
        """Matches of a finished run."""
        return sum(len(ids) for _, _, ids in self._results)

    @property
    def response(self) -> FloatArray:
        """Response time of each event of a finished run, seconds, float64 (n,), by row."""
        return self._by_row(self.ended)

    @property
    def mean_busy_response(self) -> float:
        """Mean response time without the consumer's own time between releases: what a plan answers for."""
        return float(self._by_row(self.busy).mean()) if len(self.visits) else 0.0

    def _by_row(self, per_group: FloatArray) -> FloatArray:
        times = np.empty(len(self.visits))
        times[self.order] = np.repeat(per_group, np.diff(self.cuts))
        return times


class Stream:
    """Iterator over the completed events of a batch, in order of completion.

    Attributes
    ----------
    plan : Plan
        Level and group size the batch is run with.
    workload : int64 (n,)
        Nodes at which each event's paths stopped at that level: the estimate.
    estimation : float
        Seconds that estimating and ordering took.
    """

    def __init__(
        self, run: BatchRun, release: Callable[[], None], finished: Callable[[BatchRun], None]
    ) -> None:
        self._run, self._release, self._finished = run, release, finished
        self.plan, self.workload, self.estimation = run.plan, run.workload, run.estimation
        self._group = self._at = 0  # the next group, and the next event of the present one
        self._rows: list[int] = []
        self._offsets = self._ids = run.order[:0]

    def __iter__(self) -> Iterator[Completion]:
        return self

    def __next__(self) -> Completion:
        if self._at == len(self._rows):
            self._load_group()
        at = self._at
        self._at += 1
        ids = self._ids[self._offsets[at] : self._offsets[at + 1]]
        return Completion(self._rows[at], ids, float(self._run.ended[self._group - 1]))

    def _load_group(self) -> None:
        if self._group == len(self._run.ended):
            self._settle()
            raise StopIteration
        rows, self._offsets, self._ids = self._run.step(self._group)
        self._rows, self._at = rows.tolist(), 0
        self._group += 1
        if self._run.done:
            self._settle()

    def __len__(self) -> int:
        """Number of events of the batch."""
        return len(self._run.visits)

    def close(self) -> None:
        """Give up what has not been computed; later updates need not finish it."""
        self._run.close()
        self._settle()

    def __del__(self) -> None:
        # Garbage is collected anywhere, so nothing here may wait: a thread that computes lets go by itself.
        if hasattr(self, "_release") and self._run.close(wait=False):
            self._release()

    def matches(self) -> Matches:
        """All matches of the batch in arrival order; the rest of the batch is computed now."""
        self._finish()
        return self._run.matches()

    @property
    def response(self) -> FloatArray:
        """Response time of each event in seconds, float64 (n,), by row; computes the rest of the batch."""
        self._finish()
        return self._run.response

    @property
    def mean_response(self) -> float:
        """Mean response time in seconds (0 for an empty batch); computes the rest of the batch."""
        return float(self.response.mean()) if len(self) else 0.0

    @property
    def visits(self) -> IntArray:
        """Nodes visited per event after the estimate, int64 (n,); computes the rest of the batch."""
        self._finish()
        return self._run.visits

    @property
    def order(self) -> NDArray[np.int64]:
        """Rows in the order of their search, int64 (n,)."""
        return self._run.order

    @property
    def estimation_visits(self) -> int:
        """(node, event) pairs that the estimate expanded."""
        return self._run.estimation_visits

    def _finish(self) -> None:
        self._run.finish()
        self._settle()

    def _settle(self) -> None:
        """The index is needed no more."""
        self._release()
        if self._run.done:
            self._finished(self._run)
