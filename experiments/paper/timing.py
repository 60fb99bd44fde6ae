"""Mean responses of batches by plan in seconds, as the filter itself takes them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from functools import partial
from time import perf_counter

from experiments.paper.index import GrowingFilter
from experiments.paper.runner import Run
from experiments.response.bursts import Call, Times, in_turns, label
from experiments.response.listener import Listener, stream
from rtfilter.adaptive import FixedPlan, Plan
from rtfilter.events.table import EventTable

ARRIVAL = "arrival order"
"""Name of what is no batch search: each event from the root, in the order of arrival."""
MORE = 20
"""Quick batches are timed at most this many times as often as slow ones."""


def call(index: GrowingFilter, plan: Plan, policy: str = "shortest") -> Call:
    """A function that streams a batch by a plan in an order, and returns the mean response in seconds."""
    return partial(stream, index.filter, policy, Listener(FixedPlan(plan.level, plan.group)))


def calls(run: Run, index: GrowingFilter, batch: int) -> dict[str, Call]:
    """Calls of all plans for batches of a size by label, and of `ARRIVAL`, with their kernels loaded."""
    plans = run.setting.plans(index.filter.tree.height, batch)
    by_name = {label(plan, batch): call(index, plan) for plan in plans}
    by_name[ARRIVAL] = call(index, Plan(0, 1), "fifo")
    gc.freeze()  # predicates of flights are objects that the collector need not look at
    few = index.events(0, min(batch, 2))
    for warm_up in by_name.values():
        warm_up(few)
    return by_name


def batches(index: GrowingFilter, batch: int, start: int = 0) -> Iterator[EventTable]:
    """An endless sequence of batches of a size, from event `start` of the workload on."""
    while True:
        yield index.events(start, batch)
        start += batch


def times(run: Run, index: GrowingFilter, by_name: Mapping[str, Call], batch: int, start: int = 0) -> Times:
    """Time all calls on the same batches of a size, from event `start` on; their mean responses in seconds.

    The profile gives the number of batches. If they are quick, there are up to `MORE` times as many.
    """
    least, probe = run.profile.timed, index.events(0, batch)
    begun = perf_counter()
    for trial in by_name.values():
        trial(probe)
    affordable = int(run.profile.patience / (perf_counter() - begun))
    rounds = min(max(least, affordable), MORE * least)
    return in_turns(by_name, batches(index, batch, start), rounds, run.tell)
