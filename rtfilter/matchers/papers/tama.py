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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.matchers.layers import LayeredMatcher
from rtfilter.matchers.rows import FoundRows

#: Most smallest cells of an attribute, a power of 2. More cells take more memory, and find fewer wrong boxes.
CELLS = 1024


class TamaTable(NamedTuple):
    """Boxes by cell. Cell 1 of an attribute has all values, and cell c consists of cells 2 c and 2 c + 1."""

    edges: FloatArray  # float64 (d, cells - 1): of the smallest cells
    starts: IntArray  # the first of the `rows` of each cell, attribute by attribute
    rows: NDArray[np.int32]
    needed: NDArray[np.uint16]  # attributes that each box constrains
    always: IntArray  # boxes without constraints
    low: FloatArray
    high: FloatArray


class TamaIndex:
    """The table of n > 0 boxes, and the increments on the way down to each cell."""

    def __init__(self, low: FloatArray, high: FloatArray, cells: int | None = None) -> None:
        if cells is None:
            cells = min(CELLS, 1 << (2 * len(low)).bit_length())
        shares = np.arange(1, cells) / cells
        edges = np.full((low.shape[1], cells - 1), np.inf)
        for own, column in zip(edges, np.concatenate([low, high]).T, strict=True):
            finite = column[np.isfinite(column)]
            if len(finite):
                own[:] = np.quantile(finite, shares, method="lower")
        constrained = (low > -np.inf) | (high < np.inf)
        needed = constrained.sum(axis=1).astype(np.uint16)
        first, last = _cells(edges, low), _cells(edges, high)
        counts = np.zeros((low.shape[1], 2 * cells), np.int64)
        _put(counts, np.empty(0, np.int32), first, last, constrained)
        starts = np.concatenate([[0], np.cumsum(counts)])
        rows = np.empty(starts[-1], np.int32)
        _put(starts[:-1].reshape(counts.shape).copy(), rows, first, last, constrained)
        self._table = TamaTable(
            edges, starts, rows, needed, np.flatnonzero(needed == 0), low.copy(), high.copy()
        )
        self._counts = counts
        for level in range(1, cells.bit_length()):
            above = counts[:, 1 << level - 1 : 1 << level]
            counts[:, 1 << level : 2 << level] += np.repeat(above, 2, axis=1)

    @unwrapped
    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point; work is increments, and boxes that were compared."""
        return FoundRows(*_search(self._table, points))

    def estimate(self, points: FloatArray) -> IntArray:
        """Return the increments per point, plus one for each box without constraints, int64 (n,)."""
        cells = _cells(self._table.edges, points) + self._counts.shape[1] // 2
        increments = self._counts[np.arange(cells.shape[1]), cells].sum(axis=1)
        return np.asarray(len(self._table.always) + increments, np.int64)

    @property
    def nbytes(self) -> int:
        """Memory of the table and counts."""
        return self._counts.nbytes + sum(array.nbytes for array in self._table)


class TamaMatcher(LayeredMatcher):
    """Matches by counting cells; faster than `counting` if sides are long."""

    unit = "increments and boxes"

    def _build(self, low: FloatArray, high: FloatArray) -> TamaIndex:
        return TamaIndex(low, high)


def _cells(edges: FloatArray, values: FloatArray) -> IntArray:
    """Return the smallest cells of some values, int64 (n, d), from 0 on."""
    pairs = zip(edges, values.T, strict=True)
    return np.stack([np.searchsorted(*pair, side="right") for pair in pairs], axis=1)


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
def _search(table: TamaTable, points: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return offsets and boxes per event, and its work."""
    n, d = points.shape
    boxes, cells = len(table.needed), table.edges.shape[1] + 1
    counters = np.empty(boxes, np.uint16)
    offsets, work = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    rows = np.empty(max(1024, 2 * boxes), np.int64)
    found = 0
    for event in range(n):
        while found + boxes > len(rows):
            rows = np.concatenate((rows, np.empty_like(rows)))
        counters[:] = 0
        for box in table.always:
            rows[found] = box
            found += 1
        for j in range(d):
            cell = np.searchsorted(table.edges[j], points[event, j], side="right") + cells
            while cell > 0:
                first, last = table.starts[2 * j * cells + cell], table.starts[2 * j * cells + cell + 1]
                found, tried = _hit(table, table.rows[first:last], counters, points[event], rows, found)
                work[event] += last - first + tried
                cell >>= 1
        offsets[event + 1] = found
    return offsets, rows[:found], work


@kernel
def _hit(
    table: TamaTable,
    stored: NDArray[np.int32],
    counters: NDArray[np.uint16],
    point: FloatArray,
    rows: IntArray,
    found: int,
) -> tuple[int, int]:
    """Count the boxes of a cell, and compare complete ones; return how many are found, were compared."""
    tried = 0
    for box in stored:
        counters[box] += 1
        if counters[box] == table.needed[box]:
            tried += 1
            inside = True
            for j in range(len(point)):
                if not table.low[box, j] <= point[j] <= table.high[box, j]:
                    inside = False
                    break
            if inside:
                rows[found] = box
                found += 1
    return found, tried
