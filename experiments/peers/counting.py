"""Lean counting as one of the peers; see `rtfilter.matchers.counting`."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.peers.peer import Peer, Way
from rtfilter.dtypes import FloatArray
from rtfilter.matchers.counting import CountingIndex
from rtfilter.replay.workloads.base import Bounds
from rtfilter.results import Matches


class Counting(Peer):
    """Counters of satisfied constraints."""

    name = "counting"
    package = "numba"

    def __init__(self, boxes: Bounds) -> None:
        self._index = CountingIndex(boxes.low, boxes.high)
        self.increments = 0
        """Of the last call."""

    @property
    def ways(self) -> Mapping[str, Way]:
        """Event by event, in one call."""
        return {"count": self.ask}

    def ask(self, points: FloatArray) -> Matches:
        """Answer a batch."""
        offsets, rows, increments = self._index.search(points)
        self.increments = int(increments.sum())
        return Matches(offsets, rows)
