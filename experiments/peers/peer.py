"""What a peer is, and what several of them need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.replay.workloads import Bounds
from rtfilter.replay.workloads.base import FloatArray, IntArray
from rtfilter.results import Matches

Way = Callable[[FloatArray], Iterable[ArrayLike]]
"""From points, float64 (n, d), to the rows of the boxes that contain each, in any order."""


class Peer(ABC):
    """An index of closed boxes, their rows the ids. Making one builds it.

    Boxes may have infinite sides; points are finite. A peer that takes no infinite sides maps them by
    `Finite`, one that cannot do some boxes at all says so in `refuses`.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    """Module that has to be installed."""

    @abstractmethod
    def __init__(self, boxes: Bounds) -> None: ...

    @classmethod
    def refuses(cls, boxes: Bounds) -> str:
        """Why it cannot index these boxes, or nothing."""
        return ""

    @property
    @abstractmethod
    def ways(self) -> Mapping[str, Way]:
        """Ways to ask, by name; the fastest counts."""


class Finite:
    """Maps infinite sides into a finite range and keeps every answer.

    The range of a dimension reaches 1 beyond its finite ends. A point beyond it is moved to its edge: there
    it is still outside of all finite sides and inside of all infinite ones.
    """

    def __init__(self, boxes: Bounds) -> None:
        ends = np.concatenate(boxes)
        self._needed = not np.isfinite(ends).all()
        self._low = np.where(np.isfinite(ends), ends, np.inf).min(axis=0, initial=np.inf) - 1
        self._high = np.where(np.isfinite(ends), ends, -np.inf).max(axis=0, initial=-np.inf) + 1
        nowhere = self._low > self._high  # no finite end at all
        self._low[nowhere], self._high[nowhere] = 0, 0

    def __call__(self, values: FloatArray) -> FloatArray:
        """Bounds or points, float64 (n, d), within the range; unchanged when no side is infinite."""
        return np.clip(values, self._low, self._high) if self._needed else values


def grouped(events: IntArray, ids: IntArray, count: int) -> Matches:
    """Ids per event from pairs of a row of the `count` events and an id, in any order."""
    order = np.argsort(events, kind="stable")
    return Matches(np.searchsorted(events[order], np.arange(count + 1)), ids[order])
