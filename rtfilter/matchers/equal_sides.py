"""Boxes with a side of a single value, in a hash table by that value: an event looks up its values.

A box is stored under one of its equalities, the one with the fewest boxes so far (access predicates, Fabret
et al.), as a node of a chain. A node has only the sides that are not open at both ends: with many attributes,
most sides are open. The table grows by one bucket with each box (linear hashing, Litwin 1980), so no change
takes long.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.index.kernels.hash_tables import MULTIPLIER, mix
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.index.kernels.pools import grown
from rtfilter.matchers.rows import MOST

CROWDED: Final = 512
"""Boxes in a bucket that take no further box: each event with this value would try them all."""

# Nodes lie in a pool of float64: next and previous node or -1, row, number of sides, then coordinate, low and
# high end of each side. The first side is the equality.
NEXT, BEFORE, ROW, COUNT, SIDES = 0, 1, 2, 3, 4
# The state: buckets at the end of the last doubling, buckets split since then, nodes, length of the pool.
BUCKETS, SPLIT, NODES, USED = 0, 1, 2, 3
HEAD, LENGTH = 0, 1  # of a bucket


class EqualSides:
    """Boxes by row, 0 <= row < `rows`, the number ever in use. Rows of removed boxes are used again."""

    def __init__(self, dimensions: int) -> None:
        self.rows, self._dimensions = 0, dimensions
        self._state = np.array([8, 0, 0, 0])
        self._heads = np.full((16, 2), (-1, 0), np.int64)
        self._pool = np.empty(64)
        self._nodes = np.empty(16, np.int64)  # of each row; -1 for none
        self._waiting = np.zeros(dimensions, np.int64)  # boxes under each coordinate
        self._free_rows: list[int] = []
        self._free_nodes: dict[int, list[int]] = {}  # by number of sides

    def __len__(self) -> int:
        return int(self._state[NODES])

    def widen(self, dimensions: int) -> None:
        """Let boxes have more sides; the new ones of those that there are stay open."""
        self._waiting = np.concatenate([self._waiting, np.zeros(dimensions - len(self._waiting), np.int64)])
        self._dimensions = dimensions

    @unwrapped
    def crowded(self, low: FloatArray, high: FloatArray) -> BoolArray:
        """Return which boxes, float64 (n, D), have no equality, or equalities with crowded buckets only."""
        return _crowded(self._state, self._heads, low + 0.0, high)

    def take_rows(self, count: int) -> IntArray:
        """Take and return free rows, int64 (count,); rows that get no box are lost."""
        free = [self._free_rows.pop() for _ in range(min(count, len(self._free_rows)))]
        first, rows = self.rows, self.rows + count - len(free)
        self._nodes = grown(self._nodes, rows, MOST)
        self._nodes[first:rows] = -1
        self.rows = rows
        return np.concatenate([np.array(free, np.int64), np.arange(first, rows)])

    def put(self, rows: IntArray, low: FloatArray, high: FloatArray) -> None:
        """Put boxes, float64 (n, D) with an equality each, into rows of `take_rows`."""
        low, high = low + 0.0, high + 0.0  # 0 and -0 are equal, but their bits differ before this
        sides = ((low > -np.inf) | (high < np.inf)).sum(axis=1)
        nodes, used = np.empty(len(rows), np.int64), int(self._state[USED])
        for at, count in enumerate(sides.tolist()):
            free = self._free_nodes.get(count)
            if free:
                nodes[at] = free.pop()
            else:
                nodes[at], used = used, used + SIDES + 3 * count
        self._pool = grown(self._pool, used, 8 * MOST)
        self._state[USED] = used
        buckets = int(self._state[BUCKETS] + self._state[SPLIT]) + len(rows)
        self._heads = grown(self._heads, buckets, MOST)
        _put(self._state, self._heads, self._pool, self._nodes, self._waiting, nodes, rows, low, high)

    def pack(self) -> None:
        """Store the boxes of each bucket side by side, so that a search reads them in sequence."""
        buckets = int(self._state[BUCKETS] + self._state[SPLIT])
        heads, nodes = _copied(self._heads, buckets), _copied(self._nodes, self.rows)
        pool = grown(np.empty(0), max(int(self._state[USED]), 64), 8 * MOST)
        used = _pack(self._state, heads, self._pool, nodes, pool)
        state = self._state.copy()
        state[USED] = used
        # In one step: an interrupt leaves all of the old arrays, or of the new ones.
        self.__dict__.update(_heads=heads, _nodes=nodes, _pool=pool, _state=state, _free_nodes={})

    def remove(self, row: int) -> None:
        """Remove the box of a row, if there is one; `give_back` frees the row."""
        node = int(self._nodes[row])
        if node >= 0:
            sides = int(self._pool[node + COUNT])
            _remove(self._state, self._heads, self._pool, self._nodes, self._waiting, row)
            self._free_nodes.setdefault(sides, []).append(node)

    def give_back(self, row: int) -> None:
        """Free a row, once, when no other data refers to it."""
        self._free_rows.append(row)

    def holds(self, rows: IntArray) -> BoolArray:
        """Return whether a box lies in each of some rows, bool (k,)."""
        found: BoolArray = self._nodes[rows] >= 0
        return found

    def boxes(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the boxes in some rows, float64 (k, D) each."""
        low = np.full((len(rows), self._dimensions), -np.inf)
        high = np.full((len(rows), self._dimensions), np.inf)
        _boxes(self._pool, self._nodes, rows, low, high)
        return low, high

    @unwrapped
    def search(self, points: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return offsets and rows of the boxes that contain each point, and how many boxes were tried."""
        return _search(self._state, self._heads, self._pool, np.flatnonzero(self._waiting), points + 0.0)

    @unwrapped
    def estimate(self, points: FloatArray) -> IntArray:
        """Return how many boxes a search will try for each point, int64 (n,)."""
        return _estimate(self._state, self._heads, np.flatnonzero(self._waiting), points + 0.0)

    @property
    def nbytes(self) -> int:
        """Memory in use."""
        buckets = int(self._state[BUCKETS] + self._state[SPLIT])
        return 8 * (int(self._state[USED]) + 2 * buckets + self.rows)


def _copied(pool: IntArray, rows: int) -> IntArray:
    """Copy the first rows of a pool. Its other rows may be address space that takes no memory."""
    copy = grown(pool[:0], max(rows, 16), MOST)
    copy[:rows] = pool[:rows]
    return copy


@kernel
def _bucket(state: IntArray, coordinate: int | np.int64, bits: np.uint64) -> int:
    """Return the bucket of boxes that have an equality to the float64 with these bits."""
    hashed = mix(bits * MULTIPLIER + np.uint64(coordinate))
    buckets = np.uint64(state[BUCKETS])
    place = hashed & (buckets + buckets - np.uint64(1))
    if place >= buckets + np.uint64(state[SPLIT]):
        place -= buckets
    return int(place)


@kernel
def _best(state: IntArray, heads: NDArray[np.int64], low: FloatArray, high: FloatArray) -> tuple[int, int]:
    """Return the coordinate of the equality with the fewest boxes, -1 for none, and their number."""
    best, fewest, bits = -1, 0, low.view(np.uint64)
    for j in range(len(low)):
        if low[j] == high[j] and np.isfinite(low[j]):
            length = heads[_bucket(state, j, bits[j]), LENGTH]
            if best < 0 or length < fewest:
                best, fewest = j, length
    return best, fewest


@kernel
def _crowded(
    state: IntArray, heads: NDArray[np.int64], low: FloatArray, high: FloatArray
) -> NDArray[np.bool_]:
    found = np.empty(len(low), np.bool_)
    for row in range(len(low)):
        best, fewest = _best(state, heads, low[row], high[row])
        found[row] = best < 0 or fewest >= CROWDED
    return found


@kernel
def _put(
    state: IntArray,
    heads: NDArray[np.int64],
    pool: FloatArray,
    nodes: IntArray,
    waiting: IntArray,
    own: IntArray,
    rows: IntArray,
    low: FloatArray,
    high: FloatArray,
) -> None:
    """Write each box into its own node, and link that."""
    for k in range(len(rows)):
        node, lows, highs = own[k], low[k], high[k]
        best, _ = _best(state, heads, lows, highs)
        pool[node + ROW] = rows[k]
        at, count = node + SIDES + 3, 1
        pool[node + SIDES], pool[node + SIDES + 1], pool[node + SIDES + 2] = best, lows[best], highs[best]
        for j in range(len(lows)):
            if j != best and (lows[j] > -np.inf or highs[j] < np.inf):
                pool[at], pool[at + 1], pool[at + 2] = j, lows[j], highs[j]
                at += 3
                count += 1
        pool[node + COUNT] = count
        nodes[rows[k]] = node
        waiting[best] += 1
        state[NODES] += 1
        _link(heads, pool, _bucket(state, best, lows.view(np.uint64)[best]), node)
        if state[NODES] > state[BUCKETS] + state[SPLIT]:
            _split(state, heads, pool)


@kernel
def _link(heads: NDArray[np.int64], pool: FloatArray, bucket: int, node: int) -> None:
    head = heads[bucket, HEAD]
    pool[node + NEXT], pool[node + BEFORE] = head, -1
    if head >= 0:
        pool[head + BEFORE] = node
    heads[bucket, HEAD] = node
    heads[bucket, LENGTH] += 1


@kernel
def _unlink(heads: NDArray[np.int64], pool: FloatArray, bucket: int, node: int) -> None:
    after, before = np.int64(pool[node + NEXT]), np.int64(pool[node + BEFORE])
    if after >= 0:
        pool[after + BEFORE] = before
    if before >= 0:
        pool[before + NEXT] = after
    else:
        heads[bucket, HEAD] = after
    heads[bucket, LENGTH] -= 1


@kernel
def _split(state: IntArray, heads: NDArray[np.int64], pool: FloatArray) -> None:
    """Move part of one bucket to a new one."""
    old, new = state[SPLIT], state[BUCKETS] + state[SPLIT]
    heads[new, HEAD], heads[new, LENGTH] = -1, 0
    state[SPLIT] += 1
    node, bits = heads[old, HEAD], pool.view(np.uint64)
    while node >= 0:
        after = int(pool[node + NEXT])
        if _bucket(state, np.int64(pool[node + SIDES]), bits[node + SIDES + 1]) == new:
            _unlink(heads, pool, old, node)
            _link(heads, pool, new, node)
        node = after
    if state[SPLIT] == state[BUCKETS]:
        state[BUCKETS] += state[BUCKETS]
        state[SPLIT] = 0


@kernel
def _pack(
    state: IntArray, heads: NDArray[np.int64], pool: FloatArray, nodes: IntArray, fresh: FloatArray
) -> int:
    """Copy all nodes, bucket by bucket; return the length of the new pool."""
    used = 0
    for bucket in range(state[BUCKETS] + state[SPLIT]):
        node, before = heads[bucket, HEAD], -1
        if node >= 0:
            heads[bucket, HEAD] = used
        while node >= 0:
            size = SIDES + 3 * int(pool[node + COUNT])
            for at in range(size):
                fresh[used + at] = pool[node + at]
            node = int(pool[node + NEXT])
            fresh[used + BEFORE], fresh[used + NEXT] = before, used + size if node >= 0 else -1
            nodes[np.int64(fresh[used + ROW])] = used
            before, used = used, used + size
    return used


@kernel
def _remove(
    state: IntArray,
    heads: NDArray[np.int64],
    pool: FloatArray,
    nodes: IntArray,
    waiting: IntArray,
    row: int,
) -> None:
    node = nodes[row]
    coordinate = np.int64(pool[node + SIDES])
    _unlink(heads, pool, _bucket(state, coordinate, pool.view(np.uint64)[node + SIDES + 1]), node)
    waiting[coordinate] -= 1
    state[NODES] -= 1
    nodes[row] = -1


@kernel
def _boxes(pool: FloatArray, nodes: IntArray, rows: IntArray, low: FloatArray, high: FloatArray) -> None:
    for k in range(len(rows)):
        node = nodes[rows[k]]
        if node < 0:
            continue
        for at in range(node + SIDES, node + SIDES + 3 * np.int64(pool[node + COUNT]), 3):
            low[k, np.int64(pool[at])], high[k, np.int64(pool[at])] = pool[at + 1], pool[at + 2]


@kernel
def _search(
    state: IntArray, heads: NDArray[np.int64], pool: FloatArray, coordinates: IntArray, points: FloatArray
) -> tuple[IntArray, IntArray, IntArray]:
    rows, found = np.empty(1024, np.int64), 0
    offsets, tried = np.zeros(len(points) + 1, np.int64), np.zeros(len(points), np.int64)
    bits = points.view(np.uint64)
    for event in range(len(points)):
        point = points[event]
        for j in coordinates:
            bucket = _bucket(state, j, bits[event, j])
            length = heads[bucket, LENGTH]
            if not length:
                continue
            tried[event] += length
            while found + length > len(rows):
                rows = np.concatenate((rows, np.empty_like(rows)))
            found = _try(pool, heads[bucket, HEAD], j, point, rows, found)
        offsets[event + 1] = found
    return offsets, rows[:found], tried


@kernel
def _try(pool: FloatArray, node: int, coordinate: int, point: FloatArray, rows: IntArray, found: int) -> int:
    """Write the rows of a chain whose boxes contain a point behind `found` rows; return their number."""
    while node >= 0:
        # Another coordinate may lead to this bucket, too: its boxes are found from there.
        inside = pool[node + SIDES] == coordinate
        if inside:
            for at in range(node + SIDES, node + SIDES + 3 * np.int64(pool[node + COUNT]), 3):
                x = point[np.int64(pool[at])]
                if not pool[at + 1] <= x <= pool[at + 2]:
                    inside = False
                    break
        if inside:
            rows[found] = np.int64(pool[node + ROW])
            found += 1
        node = int(pool[node + NEXT])
    return found


@kernel
def _estimate(
    state: IntArray, heads: NDArray[np.int64], coordinates: IntArray, points: FloatArray
) -> IntArray:
    found, bits = np.zeros(len(points), np.int64), points.view(np.uint64)
    for event in range(len(points)):
        for j in coordinates:
            found[event] += heads[_bucket(state, j, bits[event, j]), LENGTH]
    return found
