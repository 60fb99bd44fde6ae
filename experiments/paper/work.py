"""The work of a batch by plan, in units that are the same in each run.

The unit is the visit: one event is tested against the entries of one node. Events that visit a node together
(in a group, or in the estimate of the batch) save nothing in this unit. But on a modern machine they share
the cost of fetching the node. So if plans have groups, a node costs one unit for each event that visits it,
and one more for each group that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.paper.index import Levels
from experiments.paper.settings import Setting
from rtfilter.adaptive import Plan
from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.scheduler import schedule, shortest_first


class Work(NamedTuple):
    """Mean responses of b batches by p plans in work units, shortest first by the estimate.

    Attributes
    ----------
    plans : list of Plan
    response : float64 (b, p)
    estimation : float64 (b, p)
        The part of each response that is the estimate.
    random : float64 (b,)
        Expected mean response event by event from the root, in random order.
    perfect : float64 (b,)
        The same, shortest first by the true cost.
    """

    plans: list[Plan]
    response: FloatArray
    estimation: FloatArray
    random: FloatArray
    perfect: FloatArray

    @property
    def law(self) -> FloatArray:
        """n G / (n + 1): the share of the random order that shortest first by the true cost saves."""
        return 1 - self.perfect / self.random


def work(setting: Setting, levels: Levels, batches: FloatArray) -> Work:
    """Return the work of b batches of n points, float64 (b, n, d), on an index."""
    b, n, d = batches.shape
    plans = setting.plans(levels.height, n)
    points = batches.reshape(b * n, d)
    if setting.grouped:
        return _joined([by_plan(levels.reached(batch), plans) for batch in batches], plans)
    return by_level(levels.visits(points).reshape(b, n, -1))


def by_level(visits: IntArray) -> Work:
    """Return the work event by event, from the visits of each event at each level, int64 (b, n, H).

    With an estimate at level l, all visits above l come first. Then an event costs its visits from l on. The
    order is that of the visits at l.
    """
    height = visits.shape[2]
    total = visits.sum(axis=2)
    above = np.cumsum(visits, axis=2) - visits
    estimation = above.sum(axis=1).astype(float)
    order = np.argsort(visits, axis=1, kind="stable")
    rest = np.take_along_axis(total[:, :, None] - above, order, axis=1)
    response = estimation + np.cumsum(rest, axis=1).mean(axis=1)
    plans = [Plan(level, 1) for level in range(height)]
    return Work(plans, response, estimation, *_one_by_one(total))


def by_plan(reached: Sequence[BoolArray], plans: Sequence[Plan]) -> Work:
    """Return the work of one batch in groups; `reached` has bool (n, nodes) for each level."""
    n = len(reached[0])
    response, estimation = np.empty((1, len(plans))), np.empty((1, len(plans)))
    visits = np.stack([nodes.sum(axis=1) for nodes in reached], axis=1)
    for p, plan in enumerate(plans):
        above = reached[: plan.level]
        spent = sum(int(nodes.sum()) + int(nodes.any(axis=0).sum()) for nodes in above)
        order, cuts = schedule(shortest_first, visits[:, plan.level], plan.group)
        costs = np.zeros(len(cuts) - 1)
        for nodes in reached[plan.level :]:
            fetched = np.logical_or.reduceat(nodes[order], cuts[:-1], axis=0).sum(axis=1)
            costs += fetched + np.add.reduceat(nodes.sum(axis=1)[order], cuts[:-1])
        estimation[0, p] = spent
        response[0, p] = spent + (np.cumsum(costs) * np.diff(cuts)).sum() / n
    return Work(list(plans), response, estimation, *_one_by_one(2 * visits.sum(axis=1)[np.newaxis]))


def _one_by_one(total: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return mean responses event by event in random and in best order; `total` is int64 (b, n)."""
    n = total.shape[1]
    return total.mean(axis=1) * (n + 1) / 2, np.cumsum(np.sort(total, axis=1), axis=1).mean(axis=1)


def _joined(works: Sequence[Work], plans: list[Plan]) -> Work:
    parts = zip(*(own[1:] for own in works), strict=True)
    response, estimation, random, perfect = (np.concatenate(part) for part in parts)
    return Work(plans, response, estimation, random, perfect)
