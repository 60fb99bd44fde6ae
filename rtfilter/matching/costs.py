"""The costs of recent batches with two matchers; both match each batch.

The cost of a batch that is matched as a whole is its time. The cost of a streamed batch is the mean response
of its events, by the best of some plans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import get_clock_info, perf_counter, thread_time
from typing import Final

from rtfilter.adaptive import WHOLE, Plan
from rtfilter.adaptive.matchers import PASSES, Pair
from rtfilter.adaptive.plans import plans_of
from rtfilter.events.table import EventTable
from rtfilter.index.kernels import counts
from rtfilter.matchers.port import Matcher, leveled
from rtfilter.scheduler import Order, schedule

MOST_PASSES, SPENT = 25, 0.02
"""Most passes over the batches, and the seconds after which no further pass begins."""
SLOW = 8.0
"""A candidate whose first pass takes this many times as long is matched only once."""
PART = 0.05
"""Seconds of batches that are timed together, about."""
RUNS, WARM = 3, 0.05
"""Runs for one time: the least run counts, without the first. From `WARM` seconds on, one run is enough."""
GROUPS: Final = (16, 64, 256)
"""Group sizes of the plans that are tried."""

# The time of the thread, if the clock is fine enough: other threads use the core meanwhile.
clock = thread_time if get_clock_info("thread_time").resolution < 1e-5 else perf_counter


class Costs:
    """The costs of batches with one matcher.

    Parameters
    ----------
    matcher : Matcher
    order : Order
        The order of the events of a streamed batch.
    reading : callable
        Returns a context manager that is entered during each batch.
    """

    def __init__(
        self,
        matcher: Matcher,
        order: Order,
        reading: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._matcher, self._levels = matcher, leveled(matcher)
        self._order, self._reading = order, reading

    def of(self, events: EventTable, plan: Plan | None) -> float:
        """Return the seconds of a batch, or with a plan the mean response of its events."""
        with self._reading():
            begun = clock()
            if plan is None or plan.group is None:
                self._matcher.match(events)
                return clock() - begun
            frontier = self._levels.frontier(events, plan.level)
            order, cuts = schedule(self._order, frontier.workload, plan.group)
            groups, waited = frontier.split(order, cuts), 0.0
            for group in range(len(cuts) - 1):
                self._levels.resume_part(groups, group)
                waited += float(cuts[group + 1] - cuts[group]) * (clock() - begun)
            return waited / len(events)

    def plan(self, events: EventTable) -> Plan:
        """Return the plan with the least mean response."""
        plans = plans_of(len(events), self._levels.height, GROUPS)
        return min(plans, key=lambda plan: self.of(events, plan))


def pairs(
    size_class: int, streamed: bool, batches: Sequence[EventTable], own: Costs, other: Costs
) -> list[Pair]:
    """Match batches of one class with both matchers, alternately."""
    begun, loads = clock(), counts.loads
    whole = WHOLE if streamed else None
    first = Pair(
        size_class, len(batches[0]), own.of(batches[0], whole), other.of(batches[0], whole), streamed
    )
    if loads == counts.loads and first.other > SLOW * first.own:
        return [first]
    plans = [one.plan(batches[0]) if streamed else None for one in (own, other)]
    size = min(len(batches), max(1, int(PART / max(first.own, first.other))))
    parts = [batches[begin : begin + size] for begin in range(0, len(batches) - size + 1, size)]
    found: list[Pair] = []
    while len(found) < PASSES or (len(found) < MOST_PASSES and clock() - begun < SPENT):
        part = parts[len(found) % len(parts)]
        if len(found) % 2:
            after = _seconds(other, part, plans[1])
            before = _seconds(own, part, plans[0])
        else:
            before, after = _seconds(own, part, plans[0]), _seconds(other, part, plans[1])
        found.append(Pair(size_class, sum(map(len, part)), before, after, streamed))
    return found


def _seconds(one: Costs, part: Sequence[EventTable], plan: Plan | None) -> float:
    """Return the least time of some runs over batches.

    The first run counts only if it is long: the other matcher has used the caches.
    """
    first = math.fsum(one.of(batch, plan) for batch in part)
    if first >= WARM:
        return first
    return min(math.fsum(one.of(batch, plan) for batch in part) for _ in range(RUNS - 1))
