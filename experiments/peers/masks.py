"""Plain bit masks without a tree: the idea inside our nodes, over all subscriptions at once.

Each dimension is cut into cells at quantiles of the bounds. Each cell has one bit per subscription, set where
the side overlaps the cell. An event ANDs the masks of its cells, one a dimension, and verifies what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from experiments.peers.peer import Peer, Way, grouped
from rtfilter.index.kernels.vector import trailing_zeros
from rtfilter.replay.workloads import Bounds
from rtfilter.replay.workloads.base import FloatArray, IntArray
from rtfilter.results import Matches

F = TypeVar("F", bound=Callable[..., Any])
WordArray = NDArray[np.uint64]

#: Words of the masks that all events are led through before the next: they stay in the cache.
BLOCK = 256


class BitMasks(Peer):
    """Masks of 64 cells a dimension; of 256 in up to 4 dimensions, where there are few masks."""

    name = "bit masks"
    package = "numba"

    def __init__(self, boxes: Bounds) -> None:
        count, dimensions = boxes.low.shape
        cells = 256 if dimensions <= 4 else 64
        ends = np.concatenate(boxes)
        shares = np.arange(1, cells) / cells
        self._edges = [
            np.unique(np.quantile(column[np.isfinite(column)], shares, method="lower"))
            if np.isfinite(column).any()
            else np.empty(0)
            for column in ends.T
        ]
        self._boxes = Bounds(boxes.low.copy(), boxes.high.copy())
        self._masks = np.zeros((dimensions, cells, -(-count // 64)), np.uint64)
        for j, masks in enumerate(self._masks):
            first, last = (self._cells(side[:, j], j) for side in boxes)
            _fill(masks, first, last)

    def _cells(self, values: FloatArray, dimension: int) -> IntArray:
        return np.searchsorted(self._edges[dimension], values, side="right").astype(np.int64)

    @property
    def ways(self) -> Mapping[str, Way]:
        """A whole batch."""
        return {"masks": self.ask}

    def ask(self, points: FloatArray) -> Matches:
        """Answer a batch."""
        cells = np.stack([self._cells(column, j) for j, column in enumerate(points.T)], axis=1)
        events, ids = _search(self._masks, cells, *self._boxes, points)
        return grouped(events, ids, len(points))


def _kernel(function: F) -> F:
    compiled: Any = numba.njit(cache=True, nogil=True)(function)
    result: F = compiled
    return result


@_kernel
def _fill(masks: WordArray, first: IntArray, last: IntArray) -> None:
    """Set the bit of each box in its cells `first` to `last` of one dimension."""
    for box in range(len(first)):
        bit = np.uint64(1) << np.uint64(box & 63)
        for cell in range(first[box], last[box] + 1):
            masks[cell, box >> 6] |= bit


@_kernel
def _search(
    masks: WordArray, cells: IntArray, low: FloatArray, high: FloatArray, points: FloatArray
) -> tuple[IntArray, IntArray]:
    """Pairs of a row of the points and a box that contains it, in no order."""
    events, ids, found = np.empty(1024, np.int64), np.empty(1024, np.int64), 0
    hits = np.empty(BLOCK * 64, np.int64)
    for start in range(0, masks.shape[2], BLOCK):
        stop = min(start + BLOCK, masks.shape[2])
        for event in range(len(points)):
            count = _search_block(masks, cells[event], start, stop, low, high, points[event], hits)
            while found + count > len(ids):
                events = np.concatenate((events, np.empty_like(events)))
                ids = np.concatenate((ids, np.empty_like(ids)))
            for hit in range(count):
                events[found + hit], ids[found + hit] = event, hits[hit]
            found += count
    return events[:found], ids[:found]


@_kernel
def _search_block(
    masks: WordArray,
    cells: IntArray,
    start: int,
    stop: int,
    low: FloatArray,
    high: FloatArray,
    point: FloatArray,
    hits: IntArray,
) -> int:
    """Write the boxes of words `start` to `stop` that contain a point; their number.

    A function of its own because arrays that grow in the same loop made it ten times slower.
    """
    left = masks[0, cells[0], start:stop].copy()
    for j in range(1, len(cells)):
        row = masks[j, cells[j], start:stop]
        for word in range(len(left)):  # a loop that compiles to vector instructions; stopping early would not
            left[word] &= row[word]
    count = 0
    for word in range(len(left)):
        rest = left[word]
        while rest != 0:
            box = (start + word) * 64 + trailing_zeros(rest)
            rest &= rest - np.uint64(1)
            inside = True
            for j in range(len(point)):
                if not low[box, j] <= point[j] <= high[box, j]:
                    inside = False
                    break
            if inside:
                hits[count] = box
                count += 1
    return count
