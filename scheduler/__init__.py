"""Scheduling of one batch: who is searched first, and when each event is released.

A batch of n events arrives at once. An estimate gives every event a *workload* (the number of index
nodes at which its search paths stop); an :data:`Order` turns the workloads into a permutation of the
rows, :func:`schedule` cuts the permutation into groups, and each event is released when its own group
ends. Shortest first minimises the mean response time when a group is one event; larger groups share
index traversals and release later.

The package is pure: arrays in, arrays out. It knows no index, no clock and no configuration, so that
it can be used to schedule any batch of jobs with estimated sizes.

>>> import scheduler
>>> plan = scheduler.schedule(scheduler.shortest_first, [5, 0, 2, 9], group=1)
>>> plan.order.tolist(), plan.cuts.tolist()
([1, 2, 0, 3], [0, 1, 2, 3, 4])
>>> scheduler.completion_times([5.0, 0.0, 2.0, 9.0], plan, estimation=1.0).tolist()
[8.0, 1.0, 3.0, 17.0]

Orders: :func:`fifo`, :func:`shortest_first` (W-3), :func:`longest_first` (the bad example),
:func:`true_cost_order` (the oracle). Arithmetic of the gain: :func:`gini`, :func:`relative_gain` and
their neighbours (W-4). Cutting a huge batch into parts of equal work: :func:`balanced_parts` (C-1).
"""

from rtfilter.scheduler.arrays import FloatArray, IntArray
from rtfilter.scheduler.orders import (
    ORDERS,
    Order,
    fifo,
    longest_first,
    resolve,
    shortest_first,
    true_cost_order,
)
from rtfilter.scheduler.parts import balanced_parts
from rtfilter.scheduler.response import (
    completion_times,
    expected_random_response,
    gini,
    mean_response,
    relative_gain,
    shortest_first_response,
)
from rtfilter.scheduler.schedules import Schedule, schedule

__all__ = [
    "ORDERS",
    "FloatArray",
    "IntArray",
    "Order",
    "Schedule",
    "balanced_parts",
    "completion_times",
    "expected_random_response",
    "fifo",
    "gini",
    "longest_first",
    "mean_response",
    "relative_gain",
    "resolve",
    "schedule",
    "shortest_first",
    "shortest_first_response",
    "true_cost_order",
]
