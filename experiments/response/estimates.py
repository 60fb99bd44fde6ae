"""Shortest first by the estimate, compared with shortest first by the true cost.

The estimate of an event is its workload: the number of nodes at which its search paths stop at a level. Its
true cost is that of its search alone, from the root; after an estimate, a part of it remains. Costs are
measured in two units: visits of nodes, which are the same in each run, and seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from rtfilter import EventFilter, scheduler
from rtfilter.adaptive import Controller, Report, Shape, Ticket
from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.events.table import EventTable
from rtfilter.index.tree import RStarTree
from rtfilter.replay.output import Row

COLUMNS = {
    "workload": "workload",
    "level": "level",
    "unit": "unit",
    "correlation": "rank correlation",
    "over_true": "by estimate / by true cost",
    "over_fifo": "by estimate / arrival order",
    "true_over_fifo": "true cost / arrival order",
}


class Work(NamedTuple):
    """The costs of a burst of n events in one unit: an estimate at one level, then one event at a time."""

    unit: str
    workload: IntArray
    """int64 (n,): the estimate of each event, in nodes."""
    cost: FloatArray
    """float64 (n,): the cost of the search of each event after the estimate."""
    estimation: float
    """The cost of the estimate."""


def works(tree: RStarTree, points: FloatArray, level: int, repeats: int) -> Iterator[Work]:
    """Yield costs in visits and in seconds, medians of `repeats` times; points are float64 (n, d)."""
    n = len(points)
    each = np.arange(n + 1)
    times = np.empty((repeats, n))
    visits = np.empty(n)
    estimations = []
    for turn in range(repeats):
        begun = perf_counter()
        frontier = tree.frontier(points, level)
        parts = frontier.split(each[:-1], each)
        estimations.append(perf_counter() - begun)
        for row in range(n):
            begun = perf_counter()
            hits = tree.resume_part(parts, row)
            times[turn, row] = perf_counter() - begun
            visits[row] = hits.visits[0]
    yield Work("visits", frontier.workload, visits, frontier.visits)
    yield Work("seconds", frontier.workload, np.median(times, axis=0), median(estimations))


def correlation(workload: IntArray, cost: FloatArray) -> float | None:
    """Return Spearman's rank correlation; None if all workloads or all costs are equal."""
    if not (np.ptp(workload) and np.ptp(cost)):
        return None
    return float(spearmanr(workload, cost).statistic)


def judge(work: Work, alone: FloatArray) -> Row:
    """Return the rank correlation of estimate and true cost, and the mean response in three orders.

    Parameters
    ----------
    work : Work
        The costs with an estimate at one level.
    alone : float64 (n,)
        True cost of each event in the same unit. The other two orders need no estimate.

    Returns
    -------
    Row
        The mean responses ``by_estimate``, ``by_true`` and ``fifo`` (that of a random order), and ratios.
    """
    order = scheduler.schedule(scheduler.shortest_first, work.workload, 1)
    by_estimate = scheduler.mean_response(work.cost, order, work.estimation)
    by_true, fifo = scheduler.shortest_first_response(alone), scheduler.expected_random_response(alone)
    return {
        "unit": work.unit,
        "correlation": correlation(work.workload, alone),
        "by_estimate": by_estimate,
        "by_true": by_true,
        "fifo": fifo,
        "over_true": by_estimate / by_true,
        "over_fifo": by_estimate / fifo,
        "true_over_fifo": by_true / fifo,
    }


def measure(tree: RStarTree, points: FloatArray, repeats: int) -> list[Row]:
    """Return a row per level and unit for a burst of points, float64 (n, d)."""
    found = [list(works(tree, points, level, repeats)) for level in range(tree.height)]
    alone = {work.unit: work.cost for work in found[0]}  # at level 0 nothing has been searched yet
    return [
        {"level": level, **judge(work, alone[work.unit])} for level, own in enumerate(found) for work in own
    ]


class Listener:
    """Passes calls of a filter on to a controller, and keeps the last ticket and the last report."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.log = controller.log
        self.ticket: Ticket | None = None
        self.told: Report | None = None

    @property
    def response(self) -> float:
        """Mean response of the last burst in seconds."""
        return float("nan") if self.told is None else self.told.mean_response

    @property
    def settled(self) -> bool:
        """True if the controller had settled at the last burst."""
        return self.ticket is not None and self.ticket.episode == 0

    def plan(self, size: int, shape: Shape) -> Ticket:
        """See `rtfilter.adaptive.Controller.plan`."""
        self.ticket = self._controller.plan(size, shape)
        return self.ticket

    def report(self, ticket: Ticket, report: Report) -> None:
        """See `rtfilter.adaptive.Controller.report`."""
        self.told = report
        self._controller.report(ticket, report)

    def drop(self, ticket: Ticket) -> None:
        """See `rtfilter.adaptive.Controller.drop`."""
        self._controller.drop(ticket)

    def on_update(self, count: int = 1) -> None:
        """See `rtfilter.adaptive.Controller.on_update`."""
        self._controller.on_update(count)

    def snapshot(self) -> dict[str, Any]:
        """See `rtfilter.adaptive.Controller.snapshot`."""
        return self._controller.snapshot()


def stream(filter: EventFilter, order: str, controller: Listener, events: EventTable) -> float:
    """Stream a burst to a consumer that does nothing; return its mean response in seconds."""
    filter.configure(order=order, controller=controller)
    for _ in filter.stream(events):
        pass
    return controller.response
