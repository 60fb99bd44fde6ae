"""Plain bit masks without a tree: the method of our nodes, over all boxes at once.

Each dimension is cut into cells at quantiles of the bounds. Each cell has one bit per box, set if the side
overlaps the cell. A search ANDs the masks of the event's cells, one a dimension, and compares the boxes that
are left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.index.kernels.vector import ones, trailing_zeros
from rtfilter.matchers.layers import LayeredMatcher
from rtfilter.matchers.rows import FoundRows, grouped

WordArray = NDArray[np.uint64]

#: Words of the masks that are processed for all events before the next ones: they stay in the cache.
BLOCK = 256


class MaskIndex:
    """Masks over n > 0 boxes: 64 cells a dimension; 256 in up to 4 dimensions, which have few masks."""

    def __init__(self, low: FloatArray, high: FloatArray) -> None:
        count, dimensions = low.shape
        cells = 256 if dimensions <= 4 else 64
        shares = np.arange(1, cells) / cells
        self._low, self._high = low.copy(), high.copy()
        self._edges = []
        for column in np.concatenate([low, high]).T:
            finite = column[np.isfinite(column)]
            chosen = np.quantile(finite, shares, method="lower") if len(finite) else finite
            self._edges.append(np.unique(chosen))
        self._masks = np.zeros((dimensions, cells, -(-count // 64)), np.uint64)
        for j, masks in enumerate(self._masks):
            _fill(masks, self._cells(low[:, j], j), self._cells(high[:, j], j))
        self._bits = _bit_counts(self._masks)

    def _cells(self, values: FloatArray, dimension: int) -> IntArray:
        return np.searchsorted(self._edges[dimension], values, side="right").astype(np.int64)

    def _cells_of(self, points: FloatArray) -> IntArray:
        return np.stack([self._cells(column, j) for j, column in enumerate(points.T)], axis=1)

    @unwrapped
    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point; work is words of masks."""
        events, rows = _search(self._masks, self._cells_of(points), self._low, self._high, points)
        words = self._masks.shape[0] * self._masks.shape[2]
        return FoundRows(*grouped(events, rows, len(points)), np.full(len(points), words))

    @unwrapped
    def estimate(self, points: FloatArray) -> IntArray:
        """Return the words of masks, plus the most boxes that may be left to compare, int64 (n,)."""
        cells = self._cells_of(points)
        left = self._bits[np.arange(cells.shape[1]), cells].min(axis=1)
        return np.asarray(left + self._masks.shape[0] * self._masks.shape[2], np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of masks, boxes and edges."""
        arrays = [self._masks, self._bits, self._low, self._high, *self._edges]
        return sum(array.nbytes for array in arrays)


class MasksMatcher(LayeredMatcher):
    """Matches by AND over bit masks; as fast as the tree up to some thousand boxes."""

    unit = "words"

    def _build(self, low: FloatArray, high: FloatArray) -> MaskIndex:
        return MaskIndex(low, high)


@kernel
def _fill(masks: WordArray, first: IntArray, last: IntArray) -> None:
    """Set the bit of each box in its cells `first` to `last` of one dimension."""
    for box in range(len(first)):
        bit = np.uint64(1) << np.uint64(box & 63)
        for cell in range(first[box], last[box] + 1):
            masks[cell, box >> 6] |= bit


@kernel
def _bit_counts(masks: WordArray) -> IntArray:
    """Return the number of bits set in each mask, int64 (dimensions, cells)."""
    counts = np.zeros(masks.shape[:2], np.int64)
    for j in range(masks.shape[0]):
        for cell in range(masks.shape[1]):
            for word in masks[j, cell]:
                counts[j, cell] += ones(word)
    return counts


@kernel
def _search(
    masks: WordArray, cells: IntArray, low: FloatArray, high: FloatArray, points: FloatArray
) -> tuple[IntArray, IntArray]:
    """Return pairs of a row of the points and a box that contains it, in no order."""
    events, rows, found = np.empty(1024, np.int64), np.empty(1024, np.int64), 0
    hits = np.empty(BLOCK * 64, np.int64)
    for start in range(0, masks.shape[2], BLOCK):
        stop = min(start + BLOCK, masks.shape[2])
        for event in range(len(points)):
            count = _search_block(masks, cells[event], start, stop, low, high, points[event], hits)
            while found + count > len(rows):
                events = np.concatenate((events, np.empty_like(events)))
                rows = np.concatenate((rows, np.empty_like(rows)))
            for hit in range(count):
                events[found + hit], rows[found + hit] = event, hits[hit]
            found += count
    return events[:found], rows[:found]


@kernel
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
    """Write the boxes of words `start` to `stop` that contain a point; return their number.

    It is a separate function because arrays that grow in the same loop make it ten times slower.
    """
    left = masks[0, cells[0], start:stop].copy()
    for j in range(1, len(cells)):
        row = masks[j, cells[j], start:stop]
        for word in range(len(left)):  # compiles to vector instructions; a loop that stops early would not
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
