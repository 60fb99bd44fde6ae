"""Response-time arithmetic of a scheduled batch, and the law of its gain (W-3, W-4).

All events of a batch arrive at time 0. With service times t_1..t_n of mean m and Gini coefficient G:

* random order: the expected mean response time is m (n + 1) / 2;
* perfect shortest first: (m / 2) (n (1 - G) + 1);
* hence the relative gain **n G / (n + 1)**. It grows with the batch and saturates at G: "nearly 50 %"
  is what exponential-like work (G = 1/2) allows.

These are identities, not approximations; estimation and grouping are outside them.
"""

import math

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.arrays import FloatArray, as_cost, as_permutation
from rtfilter.scheduler.schedules import Schedule


def completion_times(cost: npt.ArrayLike, schedule: Schedule, estimation: float = 0.0) -> FloatArray:
    """When each event is released, measured from the arrival of the batch.

    Every event waits for the estimation, for all groups before its own and for its whole group.

    Parameters
    ----------
    cost : array_like (n,)
        Cost per event in arrival order, in seconds or work units; finite, >= 0. Costs add up inside a
        group; where events of a group share work, give each its share of what the group took.
    schedule : Schedule
        Of the same n events.
    estimation : float
        Cost of the estimation, in the same unit; finite, >= 0.

    Returns
    -------
    float64 (n,)
        In arrival order, not in schedule order.

    Raises
    ------
    ValueError
        If a cost is NaN, infinite or negative, or the schedule is none of these n events.
    """
    costs = as_cost(cost)
    n = len(costs)
    order = as_permutation(schedule.order, n)
    cuts = np.asarray(schedule.cuts)
    if cuts.ndim != 1 or not len(cuts) or cuts[0] != 0 or cuts[-1] != n or (np.diff(cuts) < 1).any():
        raise ValueError(f"cuts must rise strictly from 0 to {n}, the number of events; got {cuts.tolist()}")
    if not (math.isfinite(estimation) and estimation >= 0):
        raise ValueError(f"the cost of the estimation is finite and not negative; got {estimation}")
    ends = estimation + np.cumsum(costs[order])
    times = np.empty(n)
    times[order] = np.repeat(ends[cuts[1:] - 1], np.diff(cuts))
    return times


def mean_response(cost: npt.ArrayLike, schedule: Schedule, estimation: float = 0.0) -> float:
    """Mean of :func:`completion_times`; ``ValueError`` for an empty batch, which has none."""
    times = completion_times(cost, schedule, estimation)
    if not len(times):
        raise ValueError("an empty batch has no mean response time")
    return float(times.mean())


def gini(cost: npt.ArrayLike) -> float:
    """Gini coefficient G = sum_ij |t_i - t_j| / (2 n^2 m), in [0, 1); 0 when all costs are 0 (W-4)."""
    costs = np.sort(_some(cost))
    n = len(costs)
    total = float(costs.sum())
    if total == 0:
        return 0.0
    return float((2 * np.arange(n) + 1 - n) @ (costs / total)) / n


def expected_random_response(cost: npt.ArrayLike) -> float:
    """Mean response time expected of a random order, event by event: m (n + 1) / 2 (W-4)."""
    costs = _some(cost)
    return float(costs.mean()) * (len(costs) + 1) / 2


def shortest_first_response(cost: npt.ArrayLike) -> float:
    """Mean response time of perfect shortest first, event by event: (m / 2)(n (1 - G) + 1) (W-4)."""
    costs = _some(cost)
    return float(costs.mean()) / 2 * (len(costs) * (1 - gini(costs)) + 1)


def relative_gain(cost: npt.ArrayLike) -> float:
    """What perfect shortest first saves against a random order, as a share: n G / (n + 1) (W-4)."""
    costs = _some(cost)
    return len(costs) * gini(costs) / (len(costs) + 1)


def _some(cost: npt.ArrayLike) -> FloatArray:
    costs = as_cost(cost)
    if not len(costs):
        raise ValueError("the response-time law needs at least one cost")
    return costs
