"""This library, as one of the peers."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.peers.peer import Peer, Way
from experiments.workloads import Bounds
from rtfilter.tree import RStarTree


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
