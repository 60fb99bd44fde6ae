"""TAMA: count the attributes whose cells on all levels of a table hold the event (Zhao and Wu 2011).

From the paper: the values of each attribute are cut into two cells, each of these into two again, and so on
for some levels. A side of a box is stored in the fewest cells, of any level, that cover it; a smallest cell
in which it ends counts as a whole. An event meets one cell of each level and adds one to the counter of every
box stored there. Cells of one side do not overlap, so an attribute counts once, and a box is found when its
counter has reached the number of its attributes. No values are compared and no match is lost, but a box may
be found whose side ends in the event's smallest cell, before its value: the method is approximate.

Differences: found boxes are compared with the event, so the answer is exact. Cells are cut at quantiles of
the ends instead of halves of a domain, which may be infinite here. A side that is open at both ends is not
stored. Changes make layers; the paper's table changes one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.matchers.layers import LayeredMatcher
from rtfilter.matchers.rows import FoundRows

#: Most smallest cells of an attribute, a power of 2. More cells take more memory, and find fewer wrong boxes.
CELLS = 1024


class TamaIndex:
    """The table of n > 0 boxes.

    Cell 1 of an attribute holds all values, and cell c consists of cells 2 c and 2 c + 1 of the next level.
    """

    def __init__(self, low: FloatArray, high: FloatArray, cells: int | None = None) -> None:
        if cells is None:
            cells = min(CELLS, 1 << (2 * len(low)).bit_length())
        shares = np.arange(1, cells) / cells
        self._low, self._high = low.copy(), high.copy()
        self._edges = np.full((low.shape[1], cells - 1), np.inf)
        for edges, column in zip(self._edges, np.concatenate([low, high]).T, strict=True):
            finite = column[np.isfinite(column)]
            if len(finite):
                edges[:] = np.quantile(finite, shares, method="lower")
        constrained = (low > -np.inf) | (high < np.inf)
        self._needed = constrained.sum(axis=1).astype(np.uint16)
        self._always = np.flatnonzero(self._needed == 0)  # boxes without constraints
        first, last = self._cells(low), self._cells(high)
        counts = np.zeros((low.shape[1], 2 * cells), np.int64)
        _put(counts, np.empty(0, np.int32), first, last, constrained)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self._rows = np.empty(self._starts[-1], np.int32)
        _put(self._starts[:-1].reshape(counts.shape).copy(), self._rows, first, last, constrained)
        self._counts = counts
        for level in range(1, cells.bit_length()):  # increments on the way down to each cell
            self._counts[:, 1 << level : 2 << level] += np.repeat(
                self._counts[:, 1 << level - 1 : 1 << level], 2, axis=1
            )

    def _cells(self, values: FloatArray) -> IntArray:
        """Return the smallest cells of some values, int64 (n, d), from 0 on."""
        pairs = zip(self._edges, values.T, strict=True)
        return np.stack([np.searchsorted(*pair, side="right") for pair in pairs], axis=1)

    @unwrapped
    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point; work is increments, and boxes that were compared."""
        return FoundRows(
            *_search(
                self._edges,
                self._starts,
                self._rows,
                self._needed,
                self._always,
                self._low,
                self._high,
                points,
            )
        )

    def estimate(self, points: FloatArray) -> IntArray:
        """Return the increments per point, plus one for each box without constraints, int64 (n,)."""
        cells = self._cells(points) + self._counts.shape[1] // 2
        increments = self._counts[np.arange(cells.shape[1]), cells].sum(axis=1)
        return np.asarray(len(self._always) + increments, np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of the table, counters and boxes."""
        arrays = [self._starts, self._rows, self._counts, self._needed, self._low, self._high, self._edges]
        return sum(array.nbytes for array in arrays)


class TamaMatcher(LayeredMatcher):
    """Matches by counting cells; faster than `counting` if sides are long."""

    unit = "increments and boxes"

    def _build(self, low: FloatArray, high: FloatArray) -> TamaIndex:
        return TamaIndex(low, high)


@kernel
def _put(
    at: IntArray, rows: NDArray[np.int32], first: IntArray, last: IntArray, constrained: NDArray[np.bool_]
) -> None:
    """Add one to `at` for each cell of each box; unless `rows` is empty, write the box to its place."""
    cells = at.shape[1] // 2
    for box in range(len(first)):
        for j in range(first.shape[1]):
            left, right = first[box, j] + cells, last[box, j] + cells + 1
            while constrained[box, j] and left < right:  # the fewest cells that cover left..right - 1
                for cell, covers in ((left, left & 1), (right - 1, right & 1)):
                    if covers:
                        if len(rows) > 0:
                            rows[at[j, cell]] = box
                        at[j, cell] += 1
                left, right = (left + 1) >> 1, right >> 1


@kernel
def _search(
    edges: FloatArray,
    starts: IntArray,
    stored: NDArray[np.int32],
    needed: NDArray[np.uint16],
    always: IntArray,
    low: FloatArray,
    high: FloatArray,
    points: FloatArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """Return offsets and boxes per event, and its work."""
    n, d = points.shape
    cells = edges.shape[1] + 1
    counters = np.empty(len(needed), np.uint16)
    offsets, work = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    rows = np.empty(max(1024, 2 * len(needed)), np.int64)
    found = 0
    for event in range(n):
        while found + len(needed) > len(rows):
            rows = np.concatenate((rows, np.empty_like(rows)))
        counters[:] = 0
        for box in always:
            rows[found] = box
            found += 1
        for j in range(d):
            cell = np.searchsorted(edges[j], points[event, j], side="right") + cells
            while cell > 0:
                first, last = starts[2 * j * cells + cell], starts[2 * j * cells + cell + 1]
                work[event] += last - first
                found, tried = _hit(
                    stored[first:last], counters, needed, low, high, points[event], rows, found
                )
                work[event] += tried
                cell >>= 1
        offsets[event + 1] = found
    return offsets, rows[:found], work


@kernel
def _hit(
    stored: NDArray[np.int32],
    counters: NDArray[np.uint16],
    needed: NDArray[np.uint16],
    low: FloatArray,
    high: FloatArray,
    point: FloatArray,
    rows: IntArray,
    found: int,
) -> tuple[int, int]:
    """Count the boxes of a cell, and compare complete ones; return how many are found, were compared."""
    tried = 0
    for box in stored:
        counters[box] += 1
        if counters[box] == needed[box]:
            tried += 1
            inside = True
            for j in range(len(point)):
                if not low[box, j] <= point[j] <= high[box, j]:
                    inside = False
                    break
            if inside:
                rows[found] = box
                found += 1
    return found, tried
