"""An index that grows as the paper's does, and who visits which of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from experiments.paper.settings import Setting
from rtfilter import EventFilter
from rtfilter.events.table import EventTable
from rtfilter.index.tree import RStarTree
from rtfilter.replay.workloads import Bounds, BoxWorkload
from rtfilter.replay.workloads.base import FloatArray, IntArray

#: Subscriptions that are drawn at once.
DRAWN = 100_000
#: So few are inserted even into an empty index; many more than it holds would be packed anew.
FIRST = 63


class Growing(Protocol):
    """An index that subscriptions are added to, in the order of its workload."""

    @property
    def size(self) -> int:
        """Subscriptions in it."""

    def grow(self, size: int) -> None:
        """Add subscriptions until there are so many."""

    def levels(self) -> Levels:
        """Its nodes as they are now."""

    def points(self, start: int, count: int) -> FloatArray:
        """Events `start` to `start + count` of the workload, float64 (count, d)."""


def growing(setting: Setting, seed: int) -> Growing:
    """An empty index of a setting."""
    return GrowingPoints(setting, seed) if setting.transformed else GrowingFilter(setting, seed)


class GrowingFilter:
    """A filter, whose index holds the subscriptions as boxes.

    Events of real data come in random order, as those of the paper: the hours of a day are so alike that they
    would not be independent. After the last they begin anew.

    With the paper's nodes, all are inserted one by one: packing makes another tree (W-1, fact 7). With the
    default ones they are subscribed as a user would.
    """

    def __init__(self, setting: Setting, seed: int) -> None:
        self._packed = setting.grouped
        self._source = setting.source(seed)
        period = self._source.period
        self._mixed = None if period is None else np.random.default_rng(seed).permutation(period)
        self.size = 0
        self.filter = EventFilter(self._source.schema, capacity=setting.capacity)

    def grow(self, size: int) -> None:
        """See `Growing`."""
        while self.size < size:
            most = DRAWN if self._packed else max(FIRST, self.filter.tree.stats()["links"] // 4 - 1)
            count = min(most, DRAWN, size - self.size)
            self._source.subscribe(self.filter, self.size, count)
            self.size += count

    def levels(self) -> Levels:
        """See `Growing`."""
        return Levels.of(self.filter.tree)

    def events(self, start: int, count: int) -> EventTable:
        """Events as the filter takes them."""
        schema, source = self._source.schema, self._source
        if self._mixed is None:
            return schema.read(source.events(start, count))
        rows = self._mixed[np.arange(start, start + count) % len(self._mixed)]
        return schema.read(source.events(0, len(self._mixed)).iloc[rows])

    def points(self, start: int, count: int) -> FloatArray:
        """See `Growing`."""
        return self.events(start, count).points


class GrowingPoints:
    """The other reading of "12-d": points (l1, u1, l2, u2, ...), which an event asks by a box (W-1).

    The box of an event v is l <= v <= u in each of the six attributes. `RStarTree` answers no boxes, so this
    index has visits, but no times.
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

    def levels(self) -> Levels:
        """See `Growing`. An event's box meets a node when least l <= v <= greatest u."""
        nodes = [self._tree.boxes_at_level(level) for level in range(self._tree.height)]
        return Levels([Bounds(low[:, 0::2], high[:, 1::2]) for low, high in nodes])

    def points(self, start: int, count: int) -> FloatArray:
        """See `Growing`; six dimensions."""
        return self._source.events(start, count)


class Levels:
    """The nodes of an index, level by level, and which of them events reach.

    A node's rectangle lies within those above it, so that an event reaches a node just when the node's own
    rectangle contains it. Hence who visits what is itself a question for an index, of rectangles: exact, at
    a fraction of the time of the searches that it tells about.

    Parameters
    ----------
    rectangles : sequence of Bounds
        Of the nodes at each level, the root first.
    """

    def __init__(self, rectangles: Sequence[Bounds]) -> None:
        self._nodes = [RStarTree.bulk_load(low, high) for low, high in rectangles]

    @classmethod
    def of(cls, tree: RStarTree) -> Levels:
        """Of a tree of boxes."""
        return cls([Bounds(*tree.boxes_at_level(level)) for level in range(tree.height)])

    @property
    def height(self) -> int:
        """Number of levels H."""
        return len(self._nodes)

    def visits(self, points: FloatArray) -> IntArray:
        """Nodes that each event visits at each level, int64 (n, H). At the root that is one, always (W-2)."""
        counts = np.stack([nodes.count(points) for nodes in self._nodes], axis=1)
        counts[:, 0] = 1
        return counts

    def reached(self, points: FloatArray) -> list[NDArray[np.bool_]]:
        """Who reaches which node: per level bool (n, nodes)."""
        found = []
        for nodes in self._nodes:
            events, ids = nodes.search(points).pairs()
            reached = np.zeros((len(points), len(nodes)), np.bool_)
            reached[events, ids] = True
            found.append(reached)
        found[0][:] = True
        return found
