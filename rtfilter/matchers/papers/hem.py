"""HEM: REIN with sets of bits for the marks of many ends, joined word by word (Shi and Qian 2022).

From the paper: the ends of a side are cut into groups of equal size, and each cut has a set of bits for the
boxes of all ends behind it. An event joins the set of a cut near its value, and treats only the ends in
between one by one: it marks them if the cut lies behind the value; if it lies before, it removes them from a
copy of the set. It uses the cut that is less work. A processor joins 64 boxes or more by one operation, so
this is far less work than marking them all.

Differences: as with `rein`, ends are sorted, and an event finds its place by bisection. The published program
cuts only between buckets of equal width. If the last bucket holds more ends than a group, as when many sides
reach to the end of the domain, its sets have too many boxes, and it loses matches. Here groups are cut
anywhere in the sorted order, so each set has exactly the boxes behind its cut, and the answer is that of
`rein`. The paper's grouping of attributes, for events that lack many, is left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.bits import others, put, take, with_room, write_others
from rtfilter.index.kernels.interrupts import unwrapped
from rtfilter.index.kernels.jit import kernel
from rtfilter.matchers.layers import LayeredMatcher
from rtfilter.matchers.papers.rein import Sides
from rtfilter.matchers.rows import FoundRows

#: Most groups of a side, and boxes for each. More groups take more memory, and less time up to some number.
GROUPS, LEAST = 64, 64


class HemIndex:
    """The sides of n > 0 boxes, and their sets."""

    def __init__(self, low: FloatArray, high: FloatArray, groups: int | None = None) -> None:
        self._count, self._sides = len(low), Sides.of(low, high)
        groups = min(GROUPS, max(1, self._count // LEAST)) if groups is None else groups
        words = (self._count + 63) // 64
        self._sets = np.zeros((2 * low.shape[1], groups, words), np.uint64)
        _fill(self._sides, self._sets)

    @unwrapped
    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point; work is bits that change one by one, and words joined."""
        return FoundRows(*_search(self._sides, self._sets, self._count, points))

    @unwrapped
    def estimate(self, points: FloatArray) -> IntArray:
        """Return the work of `search` for each point, plus one."""
        groups, words = self._sets.shape[1:]
        return 1 + _work(self._sides.outside(points), self._sides.cuts, groups, words)

    @property
    def nbytes(self) -> int:
        """Memory of the sides and sets."""
        return self._sets.nbytes + sum(array.nbytes for array in self._sides)


class HemMatcher(LayeredMatcher):
    """Matches by joining stored sets of boxes that do not; faster than `rein` if there are many boxes."""

    unit = "bits and words"

    def _build(self, low: FloatArray, high: FloatArray) -> HemIndex:
        return HemIndex(low, high)


@kernel
def _fill(sides: Sides, sets: NDArray[np.uint64]) -> None:
    """Fill the sets: the set of group g holds the boxes of this group's ends and of all later ends."""
    groups = sets.shape[1]
    for side in range(len(sets)):
        first = sides.cuts[side]
        length = sides.cuts[side + 1] - first
        for group in range(groups - 1, -1, -1):
            if group < groups - 1:
                sets[side, group] = sets[side, group + 1]
            put(
                sets[side, group],
                sides.rows,
                first + _cut(length, groups, group),
                first + _cut(length, groups, group + 1),
            )


@kernel
def _cut(length: int, groups: int, group: int) -> int:
    """Return the first end of a group, with `length` ends in all."""
    return length * group // groups


@kernel
def _group(length: int, groups: int, place: int) -> int:
    """Return the group that holds a place, 0 <= place < length."""
    group = place * groups // length
    while _cut(length, groups, group + 1) <= place:
        group += 1
    return group


@kernel
def _search(
    sides: Sides, sets: NDArray[np.uint64], count: int, points: FloatArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return offsets and boxes per event, and its work."""
    n, d = points.shape
    groups, words = sets.shape[1], sets.shape[2]
    marked, copy = np.empty(words, np.uint64), np.empty(words, np.uint64)
    offsets, work = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    rows = np.empty(1024, np.int64)
    found = 0
    for event in range(n):
        marked[:] = 0
        for side in range(2 * d):
            first, last = sides.cuts[side], sides.cuts[side + 1]
            length = last - first
            value = points[event, side] if side < d else -points[event, side - d]
            place = np.searchsorted(sides.ends[first:last], value, side="right")
            if place == length:
                continue
            group = _group(length, groups, place)
            before, after = _cut(length, groups, group), _cut(length, groups, group + 1)
            if place - before < after - place:
                copy[:] = sets[side, group]
                take(copy, sides.rows, first + before, first + place)
                _join(marked, copy)
                work[event] += place - before + words
            else:
                put(marked, sides.rows, first + place, first + after)
                work[event] += after - place
                if group + 1 < groups:
                    _join(marked, sets[side, group + 1])
                    work[event] += words
        rows = with_room(rows, found, others(marked, count))
        found = write_others(marked, count, rows, found)
        offsets[event + 1] = found
    return offsets, rows[:found], work


@kernel
def _join(words: NDArray[np.uint64], others: NDArray[np.uint64]) -> None:
    """Add the bits of `others` to `words`."""
    for word in range(len(words)):
        words[word] |= others[word]


@kernel
def _work(beyond: IntArray, cuts: IntArray, groups: int, words: int) -> IntArray:
    """Return the work that `_search` will count for each event."""
    work = np.zeros(len(beyond), np.int64)
    for event in range(len(beyond)):
        for side in range(beyond.shape[1]):
            length = cuts[side + 1] - cuts[side]
            place = length - beyond[event, side]
            if place == length:
                continue
            group = _group(length, groups, place)
            before, after = place - _cut(length, groups, group), _cut(length, groups, group + 1) - place
            work[event] += min(before, after)
            if before < after or group + 1 < groups:
                work[event] += words
    return work
