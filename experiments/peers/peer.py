"""The interface of a peer, and functions that several peers use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.basics.results import Matches
from rtfilter.replay.workloads import Bounds

Way = Callable[[FloatArray], Iterable[ArrayLike]]
"""Function of points, float64 (n, d), that returns the rows of the boxes that contain each, in any order."""


class Peer(ABC):
    """An index of closed boxes, whose ids are their rows. The constructor builds it.

    Boxes may have infinite sides; points are finite. A peer that takes finite sides only maps them by
    `Finite`. A peer that cannot index some boxes says so in `refuses`.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    """Module that must be installed."""

    @abstractmethod
    def __init__(self, boxes: Bounds) -> None: ...

    @classmethod
    def refuses(cls, boxes: Bounds) -> str:
        """Return why the peer cannot index these boxes; empty if it can."""
        return ""

    @property
    @abstractmethod
    def ways(self) -> Mapping[str, Way]:
        """The ways to ask, by name. The fastest one counts."""


class Finite:
    """Maps infinite sides into a finite range. All answers stay the same.

    The range of a dimension reaches from 1 below its smallest finite end to 1 above its largest. A point
    outside of the range is moved to its edge. There it still lies outside of all finite sides and inside of
    all infinite ones.
    """

    def __init__(self, boxes: Bounds) -> None:
        ends = np.concatenate(boxes)
        self._needed = not np.isfinite(ends).all()
        self._low = np.where(np.isfinite(ends), ends, np.inf).min(axis=0, initial=np.inf) - 1
        self._high = np.where(np.isfinite(ends), ends, -np.inf).max(axis=0, initial=-np.inf) + 1
        nowhere = self._low > self._high  # dimensions without any finite end
        self._low[nowhere], self._high[nowhere] = 0, 0

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return ends or points, float64 (n, d), moved into the range; unchanged without infinite sides."""
        return np.clip(values, self._low, self._high) if self._needed else values


def grouped(events: IntArray, ids: IntArray, count: int) -> Matches:
    """Return the ids of each of `count` events, from pairs of an event's row and an id, int64 (m,) each."""
    order = np.argsort(events, kind="stable")
    return Matches(np.searchsorted(events[order], np.arange(count + 1)), ids[order])
