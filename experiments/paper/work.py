"""The work of a batch by plan, in units that are the same in every run (W-3, W-4, W-6).

The unit is the visit: an event tested against the entries of a node. Events that share a visit of a node (a
group of several, or a batch on its way down to the frontier) save nothing in that unit, whereas on a modern
machine they share what fetching the node costs. So where plans have groups, a node costs one unit for each
event that visits it and one more for each group that comes to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.paper.index import Levels
from experiments.paper.settings import Setting
from rtfilter.adaptive import Plan
from rtfilter.replay.workloads.base import FloatArray, IntArray
from rtfilter.scheduler import schedule, shortest_first


class Work(NamedTuple):
    """Mean responses of b batches by p plans, in work units, shortest first by the estimate."""

    plans: list[Plan]
    response: FloatArray  # (b, p)
    estimation: FloatArray  # (b, p): the part of each response that every event waits for
    random: FloatArray  # (b,): event by event from the root in random order, as expected
    perfect: FloatArray  # (b,): the same, shortest first by true cost: no estimate is as good

    @property
    def law(self) -> FloatArray:
        """n G / (n + 1): what perfect shortest first saves against a random order, as a share (W-4)."""
        return 1 - self.perfect / self.random


def work(setting: Setting, levels: Levels, batches: FloatArray) -> Work:
    """The work of batches, points float64 (b, n, d), on an index."""
    b, n, d = batches.shape
    plans = setting.plans(levels.height, n)
    points = batches.reshape(b * n, d)
    if setting.grouped:
        return _joined([by_plan(levels.reached(batch), plans) for batch in batches], plans)
    return by_level(levels.visits(points).reshape(b, n, -1))


def by_level(visits: IntArray) -> Work:
    """The work event by event, by the visits of each event at each level, int64 (b, n, H).

    At level l the estimate is paid first: all visits above l. An event then costs its visits from l on, and
    the order is that of its visits at l alone.
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


def by_plan(reached: Sequence[NDArray[np.bool_]], plans: Sequence[Plan]) -> Work:
    """The work of one batch in groups: who reaches which node, per level bool (n, nodes)."""
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
    """Mean responses of b batches event by event, in random order and by true cost; costs (b, n)."""
    n = total.shape[1]
    return total.mean(axis=1) * (n + 1) / 2, np.cumsum(np.sort(total, axis=1), axis=1).mean(axis=1)


def _joined(works: Sequence[Work], plans: list[Plan]) -> Work:
    parts = zip(*(own[1:] for own in works), strict=True)
    response, estimation, random, perfect = (np.concatenate(part) for part in parts)
    return Work(plans, response, estimation, random, perfect)
