"""Plain bit masks without a tree, as one of the peers; see `rtfilter.matchers.masks`."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.peers.peer import Peer, Way
from rtfilter.dtypes import FloatArray
from rtfilter.matchers.masks import MaskIndex
from rtfilter.replay.workloads.base import Bounds
from rtfilter.results import Matches


class BitMasks(Peer):
    """Masks over all boxes."""

    name = "bit masks"
    package = "numba"

    def __init__(self, boxes: Bounds) -> None:
        self._index = MaskIndex(boxes.low, boxes.high)

    @property
    def ways(self) -> Mapping[str, Way]:
        """A whole batch."""
        return {"masks": self.ask}

    def ask(self, points: FloatArray) -> Matches:
        """Answer a batch."""
        offsets, rows, _ = self._index.search(points)
        return Matches(offsets, rows)
