"""This library, as one of the peers."""

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
        """`search` of a whole batch."""
        return {"search": self.tree.search}


class PaperNodes(RTFilter):
    """The same with the paper's capacities, its boxes inserted one by one."""

    name = "rtfilter, nodes of 10 and 20"

    def __init__(self, boxes: Bounds) -> None:
        self.tree = RStarTree(boxes.low.shape[1], (10, 20))
        self.tree.insert_many(np.arange(len(boxes.low)), *boxes)
