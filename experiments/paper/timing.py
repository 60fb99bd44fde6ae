"""Mean responses of batches in seconds, by plan, as the filter itself measures them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from adaptive import FixedPlan, Plan
from experiments.bursts import Call, Times, in_turns, label
from experiments.listener import Listener, stream
from experiments.paper.index import GrowingFilter
from experiments.paper.runner import Run
from rtfilter import EventFilter
from rtfilter.events import EventTable

#: Event by event, searched from the root, in the order of arrival, which is random: no batch search.
ARRIVAL = "arrival order"


def call(filter: EventFilter, plan: Plan) -> Call:
    """Streams a batch by a plan, shortest first; answers the mean response, seconds."""
    return partial(stream, filter, "shortest", Listener(FixedPlan(plan.level, plan.group)))


def calls(run: Run, index: GrowingFilter, batch: int) -> dict[str, Call]:
    """Every plan for batches of a size by its label, and `ARRIVAL`."""
    plans = run.setting.plans(index.filter.tree.height, batch)
    by_name = {label(plan, batch): call(index.filter, plan) for plan in plans}
    return {ARRIVAL: partial(stream, index.filter, "fifo", Listener(FixedPlan(0, 1))), **by_name}


def batches(index: GrowingFilter, batch: int, start: int = 0) -> Iterator[EventTable]:
    """Batches of a size without end, events of the workload from `start` on."""
    while True:
        yield index.events(start, batch)
        start += batch


def times(run: Run, index: GrowingFilter, batch: int, rounds: int) -> Times:
    """Mean response of every plan and of `ARRIVAL`, in seconds, on the same batches; compiled before."""
    by_name = calls(run, index, batch)
    for warm_up in by_name.values():
        warm_up(index.events(0, min(batch, 2)))
    return in_turns(by_name, batches(index, batch), rounds, run.tell)
