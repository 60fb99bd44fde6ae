"""This library as a peer."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.peers.peer import Peer, Way
from rtfilter.index.tree import RStarTree
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
