"""Response times of a scheduled batch, and how much shortest first gains.

All events of a batch arrive at time 0. Let m be the mean and G the Gini coefficient of their costs t_1..t_n.
If events are searched and released one by one, without an estimate, then

* a random order has the expected mean response time m (n + 1) / 2;
* shortest first has the mean response time (m / 2) (n (1 - G) + 1);
* so shortest first gains the share **n G / (n + 1)**. It grows with the batch, up to G. The gain of "nearly
  50 %" of the paper (Wang et al.) needs G = 1/2, as for exponentially distributed costs.

These equations are exact.
"""

import math

import numpy as np
import numpy.typing as npt

from rtfilter.scheduler.schedules import FloatArray, Schedule, as_cost, as_permutation


def completion_times(cost: npt.ArrayLike, schedule: Schedule, estimation: float = 0.0) -> FloatArray:
    """Return the time from the arrival of the batch to the release of each event.

    An event waits for the estimation, for all groups before its own, and for its whole group.

    Parameters
    ----------
    cost : array_like of float (n,)
        Cost of each event in the order of arrival, in seconds or in work units; finite and at least 0. The
        cost of a group is the sum of its costs: if the events of a group share work, give each its share.
    schedule : Schedule
        A schedule of the same n events.
    estimation : float
        Cost of the estimation, in the same unit; finite and at least 0.

    Returns
    -------
    float64 (n,)
        In the order of arrival, not in that of the schedule.

    Raises
    ------
    ValueError
        A cost is NaN, infinite or negative, or the schedule is not one of n events.
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
    """Return the mean of :func:`completion_times`; raise ``ValueError`` for an empty batch, too."""
    times = completion_times(cost, schedule, estimation)
    if not len(times):
        raise ValueError("an empty batch has no mean response time")
    return float(times.mean())


def gini(cost: npt.ArrayLike) -> float:
    """Return the Gini coefficient G = sum_ij |t_i - t_j| / (2 n^2 m) of costs (n,), in [0, 1); of zeros, 0.

    Raises ``ValueError`` without costs, and for costs that are NaN, infinite or negative.
    """
    costs = np.sort(_some(cost))
    n = len(costs)
    total = float(costs.sum())
    if total == 0:
        return 0.0
    return float((2 * np.arange(n) + 1 - n) @ (costs / total)) / n


def expected_random_response(cost: npt.ArrayLike) -> float:
    """Return the expected mean response of a random order, by event: m (n + 1) / 2. Errors as in `gini`."""
    costs = _some(cost)
    return float(costs.mean()) * (len(costs) + 1) / 2


def shortest_first_response(cost: npt.ArrayLike) -> float:
    """Return the mean response of shortest first by costs: (m / 2) (n (1 - G) + 1). Errors as in `gini`."""
    costs = _some(cost)
    return float(costs.mean()) / 2 * (len(costs) * (1 - gini(costs)) + 1)


def relative_gain(cost: npt.ArrayLike) -> float:
    """Return the share of a random order's response that shortest first saves: n G / (n + 1). See `gini`."""
    costs = _some(cost)
    return len(costs) * gini(costs) / (len(costs) + 1)


def _some(cost: npt.ArrayLike) -> FloatArray:
    costs = as_cost(cost)
    if not len(costs):
        raise ValueError("a response time needs at least one cost")
    return costs
