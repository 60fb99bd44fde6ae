"""Mean responses of batches in seconds, by plan, as the filter itself measures them."""

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

#: Event by event, each searched from the root, in the order of arrival: no batch search.
ARRIVAL = "arrival order"
#: Quick batches are timed up to so many times as often as slow ones.
MORE = 20


def call(index: GrowingFilter, plan: Plan, policy: str = "shortest") -> Call:
    """Streams a batch by a plan in an order; answers the mean response, seconds."""
    return partial(stream, index.filter, policy, Listener(FixedPlan(plan.level, plan.group)))


def calls(run: Run, index: GrowingFilter, batch: int) -> dict[str, Call]:
    """Every plan for batches of a size by its label, and `ARRIVAL`; kernels are loaded."""
    plans = run.setting.plans(index.filter.tree.height, batch)
    by_name = {label(plan, batch): call(index, plan) for plan in plans}
    by_name[ARRIVAL] = call(index, Plan(0, 1), "fifo")
    gc.freeze()  # predicates of flights are objects, which a collection between batches need not look at
    few = index.events(0, min(batch, 2))
    for warm_up in by_name.values():
        warm_up(few)
    return by_name


def batches(index: GrowingFilter, batch: int, start: int = 0) -> Iterator[EventTable]:
    """Batches of a size without end, events of the workload from `start` on."""
    while True:
        yield index.events(start, batch)
        start += batch


def times(run: Run, index: GrowingFilter, by_name: Mapping[str, Call], batch: int, start: int = 0) -> Times:
    """Mean responses of all calls in seconds, on the same batches of a size, from event `start` on.

    There are as many batches as the profile says and, where they are quick, up to `MORE` times as many.
    """
    least, probe = run.profile.timed, index.events(0, batch)
    begun = perf_counter()
    for trial in by_name.values():
        trial(probe)
    affordable = int(run.profile.patience / (perf_counter() - begun))
    rounds = min(max(least, affordable), MORE * least)
    return in_turns(by_name, batches(index, batch, start), rounds, run.tell)
