"""The index that grows as in the paper, and which events visit which of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from experiments.paper.settings import Setting
from rtfilter import EventFilter
from rtfilter.adaptive import Controller
from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.events.table import EventTable
from rtfilter.filter import inside
from rtfilter.index.tree import RStarTree
from rtfilter.matchers.rtree import tree_of
from rtfilter.replay.workloads import Bounds, BoxWorkload
from rtfilter.scheduler import Order

DRAWN = 100_000
"""Number of subscriptions that are drawn at a time."""
FIRST = 32
"""Number of first subscriptions that are inserted one by one; more at once would be packed."""


class Growing(Protocol):
    """An index that subscriptions are added to, in the order of its workload."""

    @property
    def size(self) -> int:
        """Number of its subscriptions."""

    def grow(self, size: int) -> None:
        """Add subscriptions until there are `size` of them."""

    def repack(self) -> None:
        """Pack the index again, into another tree of the same subscriptions and node capacities."""

    def levels(self) -> Levels:
        """Return the present nodes of the index."""

    def points(self, start: int, count: int) -> FloatArray:
        """Return events `start` to `start + count` of the workload, float64 (count, d)."""


def growing(setting: Setting, seed: int) -> Growing:
    """Make the empty index of a setting."""
    return GrowingPoints(setting, seed) if setting.transformed else GrowingFilter(setting, seed)


class TreeFilter(EventFilter):
    """A filter with an R*-tree, and with the names by which figures that do not change use it."""

    @property
    def tree(self) -> RStarTree:
        """The index."""
        return tree_of(inside(self).matcher)

    @property
    def policy(self) -> Order:
        """The order of the events."""
        return inside(self).road.order

    @policy.setter
    def policy(self, order: Order) -> None:
        self.configure(order=order)

    @property
    def controller(self) -> Controller:
        """The controller."""
        return inside(self).controller

    @controller.setter
    def controller(self, controller: Controller) -> None:
        self.configure(controller=controller)

    def count(self, events: object) -> IntArray:
        """Return the number of subscriptions that match each event, int64 (n,)."""
        return self.match_batch(events).counts


class GrowingFilter:
    """A filter whose index holds the subscriptions as boxes.

    Events of real data come in random order, because events that follow each other are alike and would not be
    independent. After the last one the sequence starts again.

    With the paper's node capacities, subscriptions are inserted one by one, because packing makes another
    tree. With the default capacities they are subscribed as in a user's program.
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        self._packed = setting.grouped
        self._source = setting.source(seed)
        period = self._source.period
        self._mixed = None if period is None else np.random.default_rng(seed).permutation(period)
        self.size = 0
        self.filter = TreeFilter(self._source.schema, matcher={"name": "rtree", "capacity": setting.capacity})

    def grow(self, size: int) -> None:
        """See `Growing`."""
        while self.size < size:
            most = DRAWN if self._packed else max(FIRST, self.filter.tree.stats()["links"] // 4 - 1)
            count = min(most, DRAWN, size - self.size)
            self._source.subscribe(self.filter, self.size, count)
            self.size += count

    def repack(self) -> None:
        """See `Growing`."""
        self.filter.repack()

    def levels(self) -> Levels:
        """See `Growing`."""
        return Levels.of(self.filter.tree)

    def events(self, start: int, count: int) -> EventTable:
        """Return events `start` to `start + count` of the workload, as the filter takes them."""
        schema, source = self._source.schema, self._source
        if self._mixed is None:
            return schema.read(source.events(start, count))
        rows = self._mixed[np.arange(start, start + count) % len(self._mixed)]
        return schema.read(source.events(0, len(self._mixed)).iloc[rows])

    def points(self, start: int, count: int) -> FloatArray:
        """See `Growing`."""
        return self.events(start, count).points


class GrowingPoints:
    """An index of six intervals as points of twelve dimensions, the other meaning of "12-d" in the paper.

    The intervals [l1, u1], [l2, u2], ... become the point (l1, u1, l2, u2, ...). An event v asks for the
    points with l <= v <= u in each of the six attributes, which is a box. `RStarTree` does not search for
    boxes, so visits are counted for this index, but no times are taken.
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        source = setting.source(seed)
        assert isinstance(source, BoxWorkload)
        self._source = source
        self.size = 0
        self._tree = RStarTree(2 * source.dimensions, setting.capacity)

    def grow(self, size: int) -> None:
        """See `Growing`."""
        while self.size < size:
            count = min(DRAWN, size - self.size)
            low, high = self._source.subscriptions(self.size, count)
            points = np.empty((count, 2 * self._source.dimensions))
            points[:, 0::2], points[:, 1::2] = low, high
            self._tree.insert_many(np.arange(self.size, self.size + count), points, points)
            self.size += count

    def repack(self) -> None:
        """See `Growing`."""
        self._tree.repack()

    def levels(self) -> Levels:
        """See `Growing`. The box of an event meets a node if smallest l <= v <= largest u."""
        nodes = [self._tree.boxes_at_level(level) for level in range(self._tree.height)]
        return Levels([Bounds(low[:, 0::2], high[:, 1::2]) for low, high in nodes])

    def points(self, start: int, count: int) -> FloatArray:
        """See `Growing`; the events have six dimensions."""
        return self._source.events(start, count)


class Levels:
    """The nodes of an index by level, and which events reach them.

    The rectangle of a node lies within those above it. So an event reaches a node if and only if the
    rectangle of this node contains it. Each level is therefore an index of rectangles, and a search in it
    counts visits exactly, in much less time than the searches that it stands for.

    Parameters
    ----------
    rectangles : sequence of Bounds
        The rectangles of the nodes at each level, the root first.
    """

    def __init__(self, rectangles: Sequence[Bounds]) -> None:
        self._nodes = [RStarTree.bulk_load(low, high) for low, high in rectangles]

    @classmethod
    def of(cls, tree: RStarTree) -> Levels:
        """Return the levels of a tree of boxes."""
        return cls([Bounds(*tree.boxes_at_level(level)) for level in range(tree.height)])

    @property
    def height(self) -> int:
        """Number of levels H."""
        return len(self._nodes)

    def visits(self, points: FloatArray) -> IntArray:
        """Return the number of nodes that each event visits at each level, int64 (n, H); 1 at the root."""
        counts = np.stack([nodes.count(points) for nodes in self._nodes], axis=1)
        counts[:, 0] = 1
        return counts

    def reached(self, points: FloatArray) -> list[BoolArray]:
        """Return the nodes that each event reaches: an array per level, bool (n, nodes)."""
        found = []
        for nodes in self._nodes:
            events, ids = nodes.search(points).pairs()
            reached = np.zeros((len(points), len(nodes)), np.bool_)
            reached[events, ids] = True
            found.append(reached)
        found[0][:] = True
        return found
