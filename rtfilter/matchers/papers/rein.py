"""REIN: mark all boxes that do *not* contain the event; the unmarked boxes do (Qian et al. 2014). And HEM.

From the paper: each attribute has the lower ends of all boxes, and the upper ends, sorted by value. A box
contains an event unless, in some attribute, its lower end lies above the value or its upper end below. So an
event visits the ends outside of its values and sets a bit for the box of each; the boxes whose bit is still 0
are the answer. That is De Morgan's rule: no counter and no candidate is needed, and no match is lost. It is
fast if boxes are so large that few ends lie outside, and slow if they are small.

Differences: the paper puts ends into buckets of equal width, and compares the ends in the bucket of the
value. Here the ends of a layer are sorted, because a layer does not change: the ends outside of a value are
found by bisection, and no end is compared. An open side has no end. Changes make layers; the paper's buckets
change one by one.

HEM is REIN with sets of bits for the marks of many ends, joined word by word (Shi and Qian 2022). From the
paper: the ends of a side are cut into groups of equal size, and each cut has a set of bits for the boxes of
all ends behind it. An event joins the set of a cut near its value, and treats only the ends in between one by
one: it marks them if the cut lies behind the value; if it lies before, it removes them from a copy of the
set. It uses the cut that is less work. A processor joins 64 boxes or more by one operation, so this is far
less work than marking them all.

Differences: the published program of HEM cuts only between buckets of equal width. If the last bucket holds
more ends than a group, as when many sides reach to the end of the domain, its sets have too many boxes, and
it loses matches. Here groups are cut anywhere in the sorted order, so each set has exactly the boxes behind
its cut, and the answer is that of REIN. The paper's grouping of attributes, for events that lack many, is
left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.jit import kernel, part, unwrapped
from rtfilter.index.kernels.vector import ones, trailing_zeros
from rtfilter.matchers.layers import LayeredMatcher
from rtfilter.matchers.rows import FoundRows

RowArray = NDArray[np.int32]
WordArray = NDArray[np.uint64]

#: Most groups of a side, and boxes for each. More groups take more memory, and less time up to some number.
GROUPS, LEAST = 64, 64


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


class EndsIndex:
    """The sides of n > 0 boxes, and their sets: of no group for REIN, of some for HEM.

    The set of group g holds the boxes of this group's ends and of all later ends.
    """

    def __init__(self, low: FloatArray, high: FloatArray, groups: int = 0) -> None:
        self._count, self._sides = len(low), Sides.of(low, high)
        self._sets = np.zeros((2 * low.shape[1], groups, -(-self._count // 64)), np.uint64)
        if groups:
            _fill(self._sides, self._sets)

    @unwrapped
    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point; work is bits that change one by one, and words joined."""
        return FoundRows(*_search(self._sides, self._sets, self._count, points))

    @unwrapped
    def estimate(self, points: FloatArray) -> IntArray:
        """Return the work of `search` for each point, plus one, int64 (n,)."""
        outside = self._sides.outside(points)
        if not self._sets.size:
            return np.asarray(1 + outside.sum(axis=1), np.int64)
        return 1 + _work(outside, self._sides.cuts, *self._sets.shape[1:])

    @property
    def nbytes(self) -> int:
        """Memory of the sides and sets."""
        return self._sets.nbytes + sum(array.nbytes for array in self._sides)


class ReinMatcher(LayeredMatcher):
    """Matches by marking the boxes that do not; fast if few constraints exclude a box."""

    unit = "marks"

    def _build(self, low: FloatArray, high: FloatArray) -> EndsIndex:
        return EndsIndex(low, high)


class HemMatcher(LayeredMatcher):
    """Matches by joining stored sets of boxes that do not; faster than `rein` if there are many boxes."""

    unit = "bits and words"

    def _build(self, low: FloatArray, high: FloatArray) -> EndsIndex:
        return EndsIndex(low, high, min(GROUPS, max(1, len(low) // LEAST)))


@kernel
def _fill(sides: Sides, sets: WordArray) -> None:
    groups = sets.shape[1]
    for side in range(len(sets)):
        first = sides.cuts[side]
        length = sides.cuts[side + 1] - first
        for group in range(groups - 1, -1, -1):
            if group < groups - 1:
                sets[side, group] = sets[side, group + 1]
            begin, end = _cut(length, groups, group), _cut(length, groups, group + 1)
            _put(sets[side, group], sides.rows, first + begin, first + end)


@part
def _put(words: WordArray, rows: RowArray, first: int, last: int) -> None:
    """Set the bits of ``rows[first:last]``."""
    for at in range(first, last):
        words[rows[at] >> 6] |= np.uint64(1) << np.uint64(rows[at] & 63)


@part
def _cut(length: int, groups: int, group: int) -> int:
    """Return the first end of a group, with `length` ends in all."""
    return length * group // groups


@part
def _group(length: int, groups: int, place: int) -> int:
    """Return the group that holds a place, 0 <= place < length."""
    group = place * groups // length
    while _cut(length, groups, group + 1) <= place:
        group += 1
    return group


@kernel
def _search(
    sides: Sides, sets: WordArray, count: int, points: FloatArray
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
            before, after, group = 0, length, 0
            if groups > 0:
                group = _group(length, groups, place)
                before, after = _cut(length, groups, group), _cut(length, groups, group + 1)
            if groups > 0 and place - before < after - place:
                copy[:] = sets[side, group]
                for at in range(first + before, first + place):
                    row = sides.rows[at]
                    copy[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))
                _join(marked, copy)
                work[event] += place - before + words
            else:
                _put(marked, sides.rows, first + place, first + after)
                work[event] += after - place
                if group + 1 < groups:
                    _join(marked, sets[side, group + 1])
                    work[event] += words
        unmarked = count
        for word in range(words):
            unmarked -= ones(marked[word])
        if found + unmarked > len(rows):
            # No more than twice what is needed: the first touch of memory takes longer than to write there.
            longer = np.empty(max(2 * len(rows), found + unmarked), np.int64)
            longer[:found] = rows[:found]
            rows = longer
        found = _write_others(marked, count, rows, found)
        offsets[event + 1] = found
    return offsets, rows[:found], work


@part
def _write_others(words: WordArray, count: int, found: IntArray, size: int) -> int:
    """Write the rows 0 to `count` that are not in `words` after ``found[:size]``; return the new size."""
    for word in range(len(words)):
        rest = ~words[word]
        while rest != 0:
            row = word * 64 + trailing_zeros(rest)
            if row >= count:
                return size
            found[size] = row
            size += 1
            rest &= rest - np.uint64(1)
    return size


@part
def _join(words: WordArray, others: WordArray) -> None:
    """Add the bits of `others` to `words`."""
    for word in range(len(words)):
        words[word] |= others[word]


@kernel
def _work(outside: IntArray, cuts: IntArray, groups: int, words: int) -> IntArray:
    """Return the work that `_search` will count for each event."""
    work = np.zeros(len(outside), np.int64)
    for event in range(len(outside)):
        for side in range(outside.shape[1]):
            length = cuts[side + 1] - cuts[side]
            place = length - outside[event, side]
            if place == length:
                continue
            group = _group(length, groups, place)
            before, after = place - _cut(length, groups, group), _cut(length, groups, group + 1) - place
            work[event] += min(before, after)
            if before < after or group + 1 < groups:
                work[event] += words
    return work
