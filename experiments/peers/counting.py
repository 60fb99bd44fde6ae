"""A lean counting matcher: count, per subscription, the constraints that an event satisfies (N-5).

Each finite side of a box is a constraint. Per attribute, half-open ones are sorted by their end, so that the
satisfied ones are a prefix; closed ranges lie in an interval tree, which yields just those that hold a value.
A subscription matches when its counter has reached its number of constraints. Counters are bytes, the tree
is implicit and its lists are contiguous; nothing is hashed. Work is one increment per satisfied constraint,
beside setting all counters to zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from experiments.peers.peer import Peer, Way
from rtfilter.replay.workloads import Bounds
from rtfilter.replay.workloads.base import FloatArray, IntArray
from rtfilter.results import Matches

IdArray = NDArray[np.int32]


class Lists(NamedTuple):
    """The constraints of all attributes; `..._cuts` int64 (d + 1,) tells where each attribute's begin.

    A range lies in the node of the interval tree, numbered in order, that is the number with most trailing
    zeros among the places of its ends; an event meets the nodes on the way from the root to its own place.
    """

    upper: FloatArray  # finite highs of sides without a low, descending
    upper_ids: IdArray
    upper_cuts: IntArray
    lower: FloatArray  # finite lows of sides without a high, ascending
    lower_ids: IdArray
    lower_cuts: IntArray
    ends: FloatArray  # different ends of ranges, ascending
    end_cuts: IntArray
    starts: IntArray  # first range of each node, and of the one after the last
    start_cuts: IntArray
    lows: FloatArray  # node by node, ascending within
    low_ids: IdArray
    highs: FloatArray  # node by node, descending within
    high_ids: IdArray
    range_cuts: IntArray


class Counting(Peer):
    """Counters in an array of bytes, set to zero for each event."""

    name = "counting"
    package = "numba"

    def __init__(self, boxes: Bounds) -> None:
        self.lists = _lists(boxes)
        needed = (np.isfinite(boxes.low) | np.isfinite(boxes.high)).sum(axis=1)
        self._needed = needed.astype(np.uint8)
        self._always = np.flatnonzero(needed == 0)  # no constraint: no counter ever moves
        self.increments = 0
        """Of the last call."""

    @property
    def ways(self) -> Mapping[str, Way]:
        """Event by event, in one call."""
        return {"count": self.ask}

    def ask(self, points: FloatArray) -> Matches:
        """Answer a batch."""
        offsets, ids, self.increments = _ask(self.lists, self._needed, self._always, points)
        return Matches(offsets, ids)


def _lists(boxes: Bounds) -> Lists:
    parts = [_attribute(low, high) for low, high in zip(boxes.low.T, boxes.high.T, strict=True)]
    arrays: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for cuts, of in {
        "upper_cuts": "upper", "lower_cuts": "lower", "end_cuts": "ends",
        "start_cuts": "starts", "range_cuts": "lows",
    }.items():  # fmt: skip
        arrays[cuts] = np.cumsum([0, *(len(part[of]) for part in parts)])
    return Lists(**arrays)


def _attribute(low: FloatArray, high: FloatArray) -> dict[str, NDArray[Any]]:
    """The lists of one attribute."""
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    upper, lower = np.flatnonzero(~has_low & has_high), np.flatnonzero(has_low & ~has_high)
    upper = upper[np.argsort(-high[upper], kind="stable")]
    lower = lower[np.argsort(low[lower], kind="stable")]
    both = np.flatnonzero(has_low & has_high)
    ends = np.unique(np.concatenate([low[both], high[both]]))
    first, last = (2 * np.searchsorted(ends, side[both]) + 2 for side in (low, high))
    # Of the places first..last the one with most trailing zeros: the bits that both ends share, then a 1.
    node = last >> _bits((first - 1) ^ last) << _bits((first - 1) ^ last)
    by_low, by_high = np.lexsort((low[both], node)), np.lexsort((-high[both], node))
    return {
        "upper": high[upper],
        "upper_ids": upper.astype(np.int32),
        "lower": low[lower],
        "lower_ids": lower.astype(np.int32),
        "ends": ends,
        "starts": np.searchsorted(node[by_low], np.arange(2 * len(ends) + 3)),
        "lows": low[both][by_low],
        "low_ids": both[by_low].astype(np.int32),
        "highs": high[both][by_high],
        "high_ids": both[by_high].astype(np.int32),
    }


def _bits(numbers: IntArray) -> IntArray:
    """Place of the highest bit that is set; of positive numbers below 2^52."""
    bits: IntArray = np.frexp(numbers.astype(float))[1].astype(np.int64) - 1
    return bits


@numba.njit(cache=True, nogil=True)
def _ask(
    lists: Lists, needed: NDArray[np.uint8], always: IntArray, points: FloatArray
) -> tuple[IntArray, IntArray, int]:
    """Offsets and ids per event, and the increments of all."""
    n, d = points.shape
    counters = np.zeros(len(needed), np.uint8)
    offsets = np.zeros(n + 1, np.int64)
    ids = np.empty(max(1024, 2 * len(needed)), np.int64)
    found = increments = 0
    for event in range(n):
        while found + len(needed) > len(ids):
            ids = np.concatenate((ids, np.empty_like(ids)))
        counters[:] = 0
        for box in always:
            ids[found] = box
            found += 1
        for j in range(d):
            x = points[event, j]
            for at in range(lists.upper_cuts[j], lists.upper_cuts[j + 1]):
                if lists.upper[at] < x:
                    break
                found = _hit(lists.upper_ids[at], counters, needed, ids, found)
                increments += 1
            for at in range(lists.lower_cuts[j], lists.lower_cuts[j + 1]):
                if lists.lower[at] > x:
                    break
                found = _hit(lists.lower_ids[at], counters, needed, ids, found)
                increments += 1
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
                        found = _hit(lists.low_ids[at], counters, needed, ids, found)
                        increments += 1
                else:
                    for at in range(base + starts[node], base + starts[node + 1]):
                        if lists.highs[at] < x:
                            break
                        found = _hit(lists.high_ids[at], counters, needed, ids, found)
                        increments += 1
                if node == place:
                    break
        offsets[event + 1] = found
    return offsets, ids[:found], increments


@numba.njit(cache=True, nogil=True, inline="always")
def _hit(box: int, counters: NDArray[np.uint8], needed: NDArray[np.uint8], ids: IntArray, found: int) -> int:
    """Count a satisfied constraint of a box; how many boxes have been found."""
    counters[box] += 1
    if counters[box] == needed[box]:
        ids[found] = box
        return found + 1
    return found
