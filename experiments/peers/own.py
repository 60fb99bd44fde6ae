"""Indexes of this library as peers: the R*-tree, lean counting, and plain bit masks without a tree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.peers.peer import Peer, Way
from rtfilter.basics.dtypes import FloatArray
from rtfilter.basics.results import Matches
from rtfilter.index.tree import RStarTree
from rtfilter.matchers.counting import CountingIndex
from rtfilter.matchers.masks import MaskIndex
from rtfilter.replay.workloads import Bounds


class RTFilter(Peer):
    """`RStarTree`, bulk-loaded."""

    name = "rtfilter"
    package = "rtfilter"

    def __init__(self, boxes: Bounds) -> None:
        self.tree = RStarTree.bulk_load(*boxes)

    @property
    def ways(self) -> Mapping[str, Way]:
        """Return a single way: one `search` for the whole batch."""
        return {"search": self.tree.search}


class PaperNodes(RTFilter):
    """`RStarTree` with the node capacities of the paper (Wang et al.), its boxes inserted one by one."""

    name = "rtfilter, nodes of 10 and 20"

    def __init__(self, boxes: Bounds) -> None:
        self.tree = RStarTree(boxes.low.shape[1], (10, 20))
        self.tree.insert_many(np.arange(len(boxes.low)), *boxes)


class Counting(Peer):
    """Counters of satisfied constraints, see `rtfilter.matchers.counting`; it counts event by event."""

    name, package, way = "counting", "numba", "count"
    index: type[CountingIndex | MaskIndex] = CountingIndex

    def __init__(self, boxes: Bounds) -> None:
        self._index = self.index(boxes.low, boxes.high)
        self.increments = 0
        """Operations of the last call."""

    @property
    def ways(self) -> Mapping[str, Way]:
        """Return a single way: one call for the whole batch."""
        return {self.way: self.ask}

    def ask(self, points: FloatArray) -> Matches:
        """Answer a batch."""
        offsets, rows, operations = self._index.search(points)
        self.increments = int(operations.sum())
        return Matches(offsets, rows)


class BitMasks(Counting):
    """Masks over all boxes, see `rtfilter.matchers.masks`."""

    name, way, index = "bit masks", "masks", MaskIndex
