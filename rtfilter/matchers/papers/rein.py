"""REIN: mark all boxes that do *not* contain the event; the unmarked boxes do (Qian et al. 2014).

From the paper: each attribute has the lower ends of all boxes, and the upper ends, sorted by value. A box
contains an event unless, in some attribute, its lower end lies above the value or its upper end below. So an
event visits the ends outside of its values and sets a bit for the box of each; the boxes whose bit is still 0
are the answer. That is De Morgan's rule: no counter and no candidate is needed, and no match is lost. It is
fast if boxes are so large that few ends lie outside, and slow if they are small.

Differences: the paper puts ends into buckets of equal width, and compares the ends in the bucket of the
value. Here the ends of a layer are sorted, because a layer does not change: the ends outside of a value are
found by bisection, and no end is compared. An open side has no end. Changes make layers; the paper's buckets
change one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.bits import others, put, with_room, write_others
from rtfilter.index.kernels.interrupts import unwrapped
from rtfilter.index.kernels.jit import kernel
from rtfilter.matchers.layers import LayeredMatcher
from rtfilter.matchers.rows import FoundRows

RowArray = NDArray[np.int32]


class Sides(NamedTuple):
    """The finite ends of n boxes: d sides of lower ends, then d sides of negated upper ends.

    So the ends outside of a value, negated for upper ends, are always the last ones of a side.
    """

    ends: FloatArray
    """Ascending within a side."""
    rows: RowArray
    """The box of each end."""
    cuts: IntArray
    """int64 (2 d + 1,): the start of each side."""

    @classmethod
    def of(cls, low: FloatArray, high: FloatArray) -> Sides:
        """Return the sides of some boxes."""
        ends, rows = [], []
        for column in np.concatenate([low, -high], axis=1).T:
            own = np.flatnonzero(column > -np.inf)
            own = own[np.argsort(column[own], kind="stable")]
            ends.append(column[own])
            rows.append(own.astype(np.int32))
        return cls(np.concatenate(ends), np.concatenate(rows), np.cumsum([0, *map(len, ends)]))

    def outside(self, points: FloatArray) -> IntArray:
        """Return how many ends of each side lie outside of each point, int64 (n, 2 d)."""
        found = np.empty((len(points), 2 * points.shape[1]), np.int64)
        for side, values in enumerate(np.concatenate([points, -points], axis=1).T):
            ends = self.ends[self.cuts[side] : self.cuts[side + 1]]
            found[:, side] = len(ends) - np.searchsorted(ends, values, side="right")
        return found


class ReinIndex:
    """The sides of n > 0 boxes."""

    def __init__(self, low: FloatArray, high: FloatArray) -> None:
        self._count, self._sides = len(low), Sides.of(low, high)

    @unwrapped
    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point; work is marks."""
        return FoundRows(*_search(self._sides, self._count, points))

    def estimate(self, points: FloatArray) -> IntArray:
        """Return the marks per point, plus one, int64 (n,)."""
        return np.asarray(1 + self._sides.outside(points).sum(axis=1), np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of the sides."""
        return sum(array.nbytes for array in self._sides)


class ReinMatcher(LayeredMatcher):
    """Matches by marking the boxes that do not; fast if few constraints exclude a box."""

    unit = "marks"

    def _build(self, low: FloatArray, high: FloatArray) -> ReinIndex:
        return ReinIndex(low, high)


@kernel
def _search(sides: Sides, count: int, points: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return offsets and boxes per event, and its marks."""
    n, d = points.shape
    marked = np.empty((count + 63) // 64, np.uint64)
    offsets, marks = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    rows = np.empty(1024, np.int64)
    found = 0
    for event in range(n):
        marked[:] = 0
        for side in range(2 * d):
            first, last = sides.cuts[side], sides.cuts[side + 1]
            value = points[event, side] if side < d else -points[event, side - d]
            first += np.searchsorted(sides.ends[first:last], value, side="right")
            put(marked, sides.rows, first, last)
            marks[event] += last - first
        rows = with_room(rows, found, others(marked, count))
        found = write_others(marked, count, rows, found)
        offsets[event + 1] = found
    return offsets, rows[:found], marks
