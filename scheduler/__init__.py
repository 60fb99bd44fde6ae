"""Scheduling of one batch: the order of its events, and when each event is released.

A batch of n events arrives at once. An estimate gives each event a *workload*: the number of index nodes at
which its search paths stop. An :data:`Order` turns the workloads into a permutation of the rows, and
:func:`schedule` cuts the permutation into groups. Groups are searched one after the other, and an event is
released when its group ends. With groups of one event, shortest first gives the smallest mean response time.
Larger groups share parts of the search, but their events wait longer.

The package takes arrays and returns arrays. It uses no index, no clock and no configuration, so it can
schedule any batch of jobs with estimated sizes.

>>> from rtfilter import scheduler
>>> plan = scheduler.schedule(scheduler.shortest_first, [5, 0, 2, 9], group=1)
>>> plan.order.tolist(), plan.cuts.tolist()
([1, 2, 0, 3], [0, 1, 2, 3, 4])
>>> scheduler.completion_times([5.0, 0.0, 2.0, 9.0], plan, estimation=1.0).tolist()
[8.0, 1.0, 3.0, 17.0]

Orders: :func:`fifo`, :func:`shortest_first` (Wang et al.), :func:`longest_first` (the worst order) and
:func:`true_cost_order` (the best order, by costs known only afterwards). Response times and what an order
gains: :func:`completion_times`, :func:`mean_response`, :func:`gini`, :func:`relative_gain`,
:func:`expected_random_response` and :func:`shortest_first_response`. Parts of equal work for parallel
workers: :func:`balanced_parts`.
"""

from rtfilter.scheduler.response import (
    completion_times,
    expected_random_response,
    gini,
    mean_response,
    relative_gain,
    shortest_first_response,
)
from rtfilter.scheduler.schedules import (
    ORDERS,
    FloatArray,
    IntArray,
    Order,
    Schedule,
    balanced_parts,
    fifo,
    longest_first,
    resolve,
    schedule,
    shortest_first,
    true_cost_order,
)

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
