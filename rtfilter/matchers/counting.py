"""A lean counting matcher: count, per box, the constraints that an event satisfies (Novák 2013).

Each side of a box that is not open at both ends is a constraint. Per attribute, half-open sides are sorted by
their end, so that the satisfied ones are a prefix; closed sides lie in an interval tree, which returns only
the sides that contain a value. A box matches when its counter has reached its number of constraints. Counters
are bytes, the tree is implicit and its lists are contiguous; nothing is hashed. Work is one increment per
satisfied constraint, beside setting all counters to zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import AnyArray, FloatArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.matchers.layers import LayeredMatcher
from rtfilter.matchers.rows import FoundRows

RowArray = NDArray[np.int32]


class Lists(NamedTuple):
    """The constraints of all attributes; `..._cuts`, int64 (d + 1,), has the start of each attribute.

    Nodes of the interval tree are numbered in order. A range lies in the node whose number has the most
    trailing zeros among the places of its ends. An event visits the nodes on the path from the root to its
    own place.
    """

    upper: FloatArray  # highs of sides without a low, descending
    upper_rows: RowArray
    upper_cuts: IntArray
    lower: FloatArray  # lows of sides without a high, ascending
    lower_rows: RowArray
    lower_cuts: IntArray
    ends: FloatArray  # different ends of ranges, ascending
    end_cuts: IntArray
    starts: IntArray  # first range of each node, and of the end
    start_cuts: IntArray
    lows: FloatArray  # node by node, ascending within
    low_rows: RowArray
    highs: FloatArray  # node by node, descending within
    high_rows: RowArray
    range_cuts: IntArray


class CountingIndex:
    """Counters in an array of bytes, set to zero for each event, over n > 0 boxes."""

    def __init__(self, low: FloatArray, high: FloatArray) -> None:
        self.lists = _lists(low, high)
        needed = ((low > -np.inf) | (high < np.inf)).sum(axis=1)
        self._needed = needed.astype(np.uint8)
        self._always = np.flatnonzero(needed == 0)  # boxes without constraints: their counters never change
        self._ends = [_Ends(*pair) for pair in zip(low.T, high.T, strict=True)]

    @unwrapped
    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point; work is increments."""
        return FoundRows(*_search(self.lists, self._needed, self._always, points))

    def estimate(self, points: FloatArray) -> IntArray:
        """Return the increments per point, plus one for each box without constraints, int64 (n,)."""
        total = np.full(len(points), len(self._always))
        for ends, column in zip(self._ends, points.T, strict=True):
            total += ends.holding(column)
        return np.asarray(total, np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of the lists and counters."""
        ends = [array for own in self._ends for array in (own.lows, own.highs)]
        return sum(array.nbytes for array in (*self.lists, self._needed, self._always, *ends))


class _Ends:
    """The ends of one attribute's constraints, sorted: enough to count the constraints that hold a value."""

    def __init__(self, low: FloatArray, high: FloatArray) -> None:
        constrained = (low > -np.inf) | (high < np.inf)
        self.lows, self.highs = np.sort(low[constrained]), np.sort(high[constrained])

    def holding(self, values: FloatArray) -> IntArray:
        """Return how many intervals hold each value: those that have begun, less those that have ended."""
        begun = np.searchsorted(self.lows, values, side="right")
        return begun - np.searchsorted(self.highs, values, side="left")


class CountingMatcher(LayeredMatcher):
    """Matches by counting satisfied constraints; ahead where boxes are nested or match many events."""

    unit = "increments"

    def __init__(self, schema: Schema) -> None:
        if schema.dimensions > 255:
            raise ValueError(
                f"the matcher 'counting' counts up to 255 coordinates in a byte, not {schema.dimensions}; "
                "choose another matcher"
            )
        super().__init__(schema)

    def _build(self, low: FloatArray, high: FloatArray) -> CountingIndex:
        return CountingIndex(low, high)


def _lists(lows: FloatArray, highs: FloatArray) -> Lists:
    parts = [_attribute(low, high) for low, high in zip(lows.T, highs.T, strict=True)]
    arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for cuts, of in {
        "upper_cuts": "upper", "lower_cuts": "lower", "end_cuts": "ends",
        "start_cuts": "starts", "range_cuts": "lows",
    }.items():  # fmt: skip
        arrays[cuts] = np.cumsum([0, *(len(part[of]) for part in parts)])
    return Lists(**arrays)


def _attribute(low: FloatArray, high: FloatArray) -> dict[str, AnyArray]:
    """Build the lists of one attribute."""
    has_low, has_high = low > -np.inf, high < np.inf
    upper, lower = np.flatnonzero(~has_low & has_high), np.flatnonzero(has_low & ~has_high)
    upper = upper[np.argsort(-high[upper], kind="stable")]
    lower = lower[np.argsort(low[lower], kind="stable")]
    both = np.flatnonzero(has_low & has_high)
    ends = np.unique(np.concatenate([low[both], high[both]]))
    first, last = (2 * np.searchsorted(ends, side[both]) + 2 for side in (low, high))
    # Among the places first..last, the one with the most trailing zeros: the bits that both ends share, then
    # a 1.
    node = last >> _bits((first - 1) ^ last) << _bits((first - 1) ^ last)
    by_low, by_high = np.lexsort((low[both], node)), np.lexsort((-high[both], node))
    return {
        "upper": high[upper],
        "upper_rows": upper.astype(np.int32),
        "lower": low[lower],
        "lower_rows": lower.astype(np.int32),
        "ends": ends,
        "starts": np.searchsorted(node[by_low], np.arange(2 * len(ends) + 3)),
        "lows": low[both][by_low],
        "low_rows": both[by_low].astype(np.int32),
        "highs": high[both][by_high],
        "high_rows": both[by_high].astype(np.int32),
    }


def _bits(numbers: IntArray) -> IntArray:
    """Return the place of the highest set bit of positive numbers below 2^52."""
    bits: IntArray = np.frexp(numbers.astype(float))[1].astype(np.int64) - 1
    return bits


@kernel
def _search(
    lists: Lists, needed: NDArray[np.uint8], always: IntArray, points: FloatArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return offsets and boxes per event, and its increments."""
    n, d = points.shape
    counters = np.zeros(len(needed), np.uint8)
    offsets = np.zeros(n + 1, np.int64)
    rows = np.empty(max(1024, 2 * len(needed)), np.int64)
    increments = np.zeros(n, np.int64)
    found = 0
    for event in range(n):
        counted = 0
        while found + len(needed) > len(rows):
            rows = np.concatenate((rows, np.empty_like(rows)))
        counters[:] = 0
        for box in always:
            rows[found] = box
            found += 1
        for j in range(d):
            x = points[event, j]
            for at in range(lists.upper_cuts[j], lists.upper_cuts[j + 1]):
                if lists.upper[at] < x:
                    break
                found = _hit(lists.upper_rows[at], counters, needed, rows, found)
                counted += 1
            for at in range(lists.lower_cuts[j], lists.lower_cuts[j + 1]):
                if lists.lower[at] > x:
                    break
                found = _hit(lists.lower_rows[at], counters, needed, rows, found)
                counted += 1
            ends = lists.ends[lists.end_cuts[j] : lists.end_cuts[j + 1]]
            rank = np.searchsorted(ends, x)
            place = 2 * rank + (2 if rank < len(ends) and ends[rank] == x else 1)
            starts = lists.starts[lists.start_cuts[j] : lists.start_cuts[j + 1]]
            base, height = lists.range_cuts[j], 1
            while (1 << height) < len(starts):
                height += 1
            for bit in range(height, -1, -1):
                node = ((place >> bit) | 1) << bit
                if node >= len(starts) - 1:
                    continue
                if place < node:
                    for at in range(base + starts[node], base + starts[node + 1]):
                        if lists.lows[at] > x:
                            break
                        found = _hit(lists.low_rows[at], counters, needed, rows, found)
                        counted += 1
                else:
                    for at in range(base + starts[node], base + starts[node + 1]):
                        if lists.highs[at] < x:
                            break
                        found = _hit(lists.high_rows[at], counters, needed, rows, found)
                        counted += 1
                if node == place:
                    break
        offsets[event + 1], increments[event] = found, counted
    return offsets, rows[:found], increments


@kernel
def _hit(box: int, counters: NDArray[np.uint8], needed: NDArray[np.uint8], rows: IntArray, found: int) -> int:
    """Count a satisfied constraint of a box; return how many boxes have been found."""
    counters[box] += 1
    if counters[box] == needed[box]:
        rows[found] = box
        return found + 1
    return found
