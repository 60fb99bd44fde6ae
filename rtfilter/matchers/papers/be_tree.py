"""BE-Tree: boxes by one attribute after the other, and by intervals within each (Sadoghi and Jacobsen 2011).

From the paper: the space is cut in two alternating phases. A node holds a list of boxes. A full list is
*partitioned*: an attribute that is not used above is chosen, and all boxes of the list that constrain it move
to the root of a tree of intervals of that attribute. Each interval is a node as well. If the list of an
interval is full, the interval is *clustered*: it is cut in two, and boxes whose sides lie in one half move
there. If it cannot be cut, or is cut already, its list is partitioned by another attribute. A list that
cannot be partitioned may hold twice as many. An event visits, from the root on, the partitions of each node,
and the half of each interval that holds its value, and compares the boxes of all visited lists. Boxes are
added and removed one by one; an empty node is removed.

It is exact: a box lies in an interval of an attribute only if its side does, so an event that does not visit
the interval cannot match the box, and visited boxes are compared.

Differences: the paper's values are discrete and have a domain, which is cut in the middle. Here an interval
is cut at the median of the sides in its list, so that no domain is needed; a single value gets an interval of
its own. Halves do not overlap, so an event visits one of them. The paper ranks attributes by savings and
cost, and learns from events. Here the attribute is chosen whose first cut moves the most boxes: it depends on
the boxes alone, so the same changes always make the same tree. A list is cut once per insertion, so that a
change stays short. The paper's faster comparisons, lazy or by bitmaps, are for predicates that many
subscriptions share, and are left out.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.rows import BoxMatcher

#: Boxes of a list above which it is cut.
FULL: Final = 64
#: One box in this number of boxes of a list must move, or the list is not cut.
WORTH: Final = 8
#: Rows of a piece of a list.
PIECE: Final = 32
NONE: Final = -1

NODE: Final = np.dtype(
    [
        ("attribute", np.int64),  # the attribute of the interval; NONE at the root of all
        ("low", np.float64),  # the interval, closed below and open above
        ("high", np.float64),
        ("cut", np.float64),  # the point at which its halves meet
        ("left", np.int64),  # half, or NONE if it is not cut
        ("right", np.int64),
        ("parent", np.int64),  # the node of which it is a half or a partition
        ("partition", np.int64),  # the first partition, or NONE
        ("next", np.int64),  # the next partition of the same parent, or the next free node
        ("piece", np.int64),  # the last piece of its list, or NONE; all other pieces are full
        ("count", np.int64),  # boxes in its list
        ("full", np.int64),  # boxes above which it is cut
    ],
    align=True,
)

FREE_ROWS, FREE_NODE, USED_NODES, NODES, FREE_PIECE, USED_PIECES, PIECES = range(7)
"""Places in `TreeArrays.state`.

Number of free rows; first free node, nodes ever used, nodes; the same of pieces.
"""


class TreeArrays(NamedTuple):
    """Nodes, lists of rows, and the place of each row. Node 0 is the root."""

    nodes: NDArray[np.void]
    slots: NDArray[np.int32]
    """Rows; piece p is ``slots[p * PIECE:][:PIECE]``."""
    before: IntArray
    """The previous piece of the same list, or the next free piece."""
    node: IntArray
    """The node of each row, or NONE."""
    slot: IntArray
    """The slot of each row that has a node."""
    free: IntArray
    """The rows without a node: the first ``state[FREE_ROWS]``."""
    state: IntArray

    @classmethod
    def room(cls, rows: int, nodes: int = 16, pieces: int = 16) -> TreeArrays:
        """Return an empty tree with room for some rows, nodes and pieces."""
        state = np.array([rows, NONE, 0, 0, NONE, 0, 0])
        made = cls(
            np.zeros(nodes, NODE),
            np.empty(pieces * PIECE, np.int32),
            np.empty(pieces, np.int64),
            np.full(rows, NONE, np.int64),
            np.empty(rows, np.int64),
            np.arange(rows)[::-1].copy(),
            state,
        )
        _new_node(made, NONE, NONE, -np.inf, np.inf)
        return made

    def with_rows(self, rows: int) -> TreeArrays:
        """Return the tree with room for at least `rows` more rows."""
        had, left = len(self.node), int(self.state[FREE_ROWS])
        if rows <= left:
            return self
        count = max(2 * had, had + rows)
        more = TreeArrays.room(count)
        more.node[:had], more.slot[:had] = self.node, self.slot
        free = np.empty(count, np.int64)
        fresh = count - had
        free[:fresh], free[fresh : fresh + left] = np.arange(had, count)[::-1], self.free[:left]
        state = self.state.copy()
        state[FREE_ROWS] += fresh
        return self._replace(node=more.node, slot=more.slot, free=free, state=state)

    def larger(self) -> TreeArrays:
        """Return the tree with room for twice as many nodes and pieces."""
        nodes = np.concatenate([self.nodes, np.zeros_like(self.nodes)])
        slots, before = (np.concatenate([a, np.empty_like(a)]) for a in (self.slots, self.before))
        return self._replace(nodes=nodes, slots=slots, before=before)


class BETreeMatcher(BoxMatcher):
    """Matches with a BE-Tree, which takes little memory, and changes box by box."""

    unit = "nodes and boxes"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._tree = TreeArrays.room(len(self._rows.ids))
        self._rows.alive[:] = False

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        boxes = filters.boxes()
        count = len(boxes.ids)
        if not count:
            return
        grown = self._tree.with_rows(count)
        self._rows = self._rows.grown(len(grown.node))
        self._rows.alive[len(self._tree.node) : len(grown.node)] = False
        self._tree = grown
        left = int(grown.state[FREE_ROWS])
        self._write(grown.free[left - count : left][::-1].tolist(), boxes)
        self._updates += count
        while count := count - insert(self._tree, self._rows.low, self._rows.high, self._rows.alive, count):
            self._tree = self._tree.larger()

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        known = np.zeros(len(ids), np.bool_)
        for place, id in enumerate(ids.tolist()):
            known[place] = id in self._known
            rows = np.array(list(self._chain(id)), np.int64)
            self._updates += delete(self._tree, self._rows.alive, rows)
            self._known.pop(id, None)
        return known

    def _alive(self) -> IntArray:
        return np.flatnonzero(self._tree.node >= 0)

    @unwrapped
    def match(self, events: EventTable) -> Hits:
        """See `Matcher`; visits are nodes, and boxes that are compared."""
        return self._hits(*search(self._tree, self._rows.low, self._rows.high, events.points, True))

    @unwrapped
    def workload(self, events: EventTable) -> IntArray:
        """See `Matcher`: the visits that matching will count."""
        work: IntArray = search(self._tree, self._rows.low, self._rows.high, events.points, False)[2]
        return work

    def stats(self) -> dict[str, Any]:
        """Return the numbers of boxes and nodes, and the memory."""
        tree, rows = self._tree, len(self._tree.node)
        memory = sum(array.nbytes for array in tree) + self._rows.nbytes(rows)
        return self._stats(memory, boxes=rows - int(tree.state[FREE_ROWS]), nodes=int(tree.state[NODES]))


@kernel
def insert(tree: TreeArrays, low: FloatArray, high: FloatArray, alive: BoolArray, count: int) -> int:
    """Insert the next `count` free rows; return how many found room."""
    for done in range(count):
        row = tree.free[tree.state[FREE_ROWS] - 1]
        node = _home(tree, low[row], high[row])
        pieces = tree.nodes[node].count // PIECE + 3  # as many as a cut and a new piece may need
        if tree.state[NODES] + 2 > len(tree.nodes) or tree.state[PIECES] + pieces > len(tree.before):
            return done
        tree.state[FREE_ROWS] -= 1
        _push(tree, node, row)
        alive[row] = True
        if tree.nodes[node].count > tree.nodes[node].full:
            _split(tree, low, high, node)
    return count


@kernel
def delete(tree: TreeArrays, alive: BoolArray, rows: IntArray) -> int:
    """Delete rows, and nodes that become empty; return how many of the rows were there."""
    found = 0
    for row in rows:
        node = tree.node[row]
        if node != NONE:
            _pull(tree, row)
            alive[row] = False
            tree.free[tree.state[FREE_ROWS]] = row
            tree.state[FREE_ROWS] += 1
            _prune(tree, node)
            found += 1
    return found


@kernel
def search(
    tree: TreeArrays, low: FloatArray, high: FloatArray, points: FloatArray, compare: bool
) -> tuple[IntArray, IntArray, IntArray]:
    """Return offsets and rows per event, and its work; without `compare`, only the work."""
    n = len(points)
    nodes = tree.nodes
    offsets, work = np.zeros(n + 1, np.int64), np.zeros(n, np.int64)
    stack = np.empty(tree.state[NODES], np.int64)
    hits = np.empty(len(tree.node), np.int64)
    rows, found = np.empty(1024, np.int64), 0
    for event in range(n):
        point = points[event]
        stack[0] = 0
        left, own = 1, 0
        while left:
            left -= 1
            node = stack[left]
            work[event] += 1 + nodes[node].count
            if compare:
                own = _compare(tree, node, low, high, point, hits, own)
            if nodes[node].left != NONE:
                below = point[nodes[node].attribute] < nodes[node].cut
                stack[left] = nodes[node].left if below else nodes[node].right
                left += 1
            partition = nodes[node].partition
            while partition != NONE:
                stack[left] = partition
                left += 1
                partition = nodes[partition].next
        while found + own > len(rows):
            rows = np.concatenate((rows, np.empty_like(rows)))
        rows[found : found + own] = hits[:own]
        found += own
        offsets[event + 1] = found
    return offsets, rows[:found], work


@kernel
def _compare(
    tree: TreeArrays,
    node: int,
    low: FloatArray,
    high: FloatArray,
    point: FloatArray,
    hits: IntArray,
    own: int,
) -> int:
    """Write the rows of a node's list that contain a point behind ``hits[:own]``; return their number."""
    piece, rest = tree.nodes[node].piece, tree.nodes[node].count
    while rest > 0:
        size = (rest - 1) % PIECE + 1
        for at in range(piece * PIECE, piece * PIECE + size):
            row = tree.slots[at]
            inside = True
            for j in range(len(point)):
                if not low[row, j] <= point[j] <= high[row, j]:
                    inside = False
                    break
            if inside:
                hits[own] = row
                own += 1
        rest -= size
        piece = tree.before[piece]
    return own


@kernel
def _home(tree: TreeArrays, low: FloatArray, high: FloatArray) -> int:
    """Return the node for a box: in the first partition that takes it below the root, else in any."""
    nodes, node = tree.nodes, 0
    while True:
        best = NONE
        partition = nodes[node].partition
        while partition != NONE:
            j = nodes[partition].attribute
            if low[j] > -np.inf or high[j] < np.inf:
                interval = partition
                while nodes[interval].left != NONE:
                    if high[j] < nodes[interval].cut:
                        interval = nodes[interval].left
                    elif low[j] >= nodes[interval].cut:
                        interval = nodes[interval].right
                    else:
                        break
                if best == NONE or interval != partition:
                    best = interval
                if interval != partition:
                    break
            partition = nodes[partition].next
        if best == NONE:
            return node
        node = best


@kernel
def _split(tree: TreeArrays, low: FloatArray, high: FloatArray, node: int) -> None:
    """Cut or partition a node with a full list; if that is not worth it, double the limit of its list."""
    nodes, rows = tree.nodes, _list(tree, node)
    j = nodes[node].attribute
    if j != NONE and nodes[node].left == NONE:
        cut, moved = _best_cut(rows, low, high, j, nodes[node].low, nodes[node].high)
        if moved * WORTH >= len(rows):
            left = _new_node(tree, node, j, nodes[node].low, cut)
            right = _new_node(tree, node, j, cut, nodes[node].high)
            nodes[node].cut, nodes[node].left, nodes[node].right = cut, left, right
            for row in rows:
                if high[row, j] < cut:
                    _pull(tree, row)
                    _push(tree, left, row)
                elif low[row, j] >= cut:
                    _pull(tree, row)
                    _push(tree, right, row)
            return
    used = np.zeros(low.shape[1], np.bool_)
    above = node
    while above != 0:
        used[nodes[above].attribute] = True
        above = nodes[above].parent
    best, most = NONE, 0
    for j in range(low.shape[1]):
        if not used[j]:
            _, moved = _best_cut(rows, low, high, j, -np.inf, np.inf)
            if moved > most:
                best, most = j, moved
    if most * WORTH < len(rows):
        nodes[node].full = 2 * len(rows)
        return
    partition = _new_node(tree, node, best, -np.inf, np.inf)
    if nodes[node].partition == NONE:
        nodes[node].partition = partition
    else:
        last = nodes[node].partition
        while nodes[last].next != NONE:
            last = nodes[last].next
        nodes[last].next = partition
    for row in rows:
        if low[row, best] > -np.inf or high[row, best] < np.inf:
            _pull(tree, row)
            _push(tree, partition, row)


@kernel
def _best_cut(
    rows: IntArray, low: FloatArray, high: FloatArray, j: int, lower: float, upper: float
) -> tuple[float, int]:
    """Return the cut for the sides of some boxes in an interval, and how many boxes it moves; 0 if useless.

    The cut is at the median of the sides' middles, or at the next middle if all sides lie right of it. A
    single value is cut off below, then above.
    """
    middles = np.empty(len(rows), np.float64)
    count, same = 0, True
    for row in rows:
        if low[row, j] > -np.inf or high[row, j] < np.inf:
            if high[row, j] == np.inf:
                middles[count] = low[row, j]
            elif low[row, j] == -np.inf:
                middles[count] = high[row, j]
            else:
                middles[count] = low[row, j] / 2 + high[row, j] / 2
            same = same and low[row, j] == high[row, j]
            count += 1
    if count == 0:
        return 0.0, 0
    middles = np.sort(middles[:count])
    if same and middles[0] == middles[-1]:
        value = middles[0]
        if lower < value:
            return value, count
        value = np.nextafter(value, np.inf)
        return value, count if value < upper else 0
    cut = middles[count // 2]
    left, right = _halves(rows, low, high, j, cut)
    if left == 0:
        at = np.searchsorted(middles, cut, side="right")
        if at < count:
            cut = middles[at]
            left, right = _halves(rows, low, high, j, cut)
    return cut, left + right if max(left, right) < len(rows) else 0


@kernel
def _halves(rows: IntArray, low: FloatArray, high: FloatArray, j: int, cut: float) -> tuple[int, int]:
    """Return the numbers of sides left and right of a cut."""
    left, right = 0, 0
    for row in rows:
        if low[row, j] > -np.inf or high[row, j] < np.inf:
            if high[row, j] < cut:
                left += 1
            elif low[row, j] >= cut:
                right += 1
    return left, right


@kernel
def _list(tree: TreeArrays, node: int) -> IntArray:
    """Return the rows of a node's list."""
    rows = np.empty(tree.nodes[node].count, np.int64)
    piece, rest = tree.nodes[node].piece, len(rows)
    while rest > 0:
        size = (rest - 1) % PIECE + 1
        for at in range(size):
            rows[rest - size + at] = tree.slots[piece * PIECE + at]
        rest -= size
        piece = tree.before[piece]
    return rows


@kernel
def _push(tree: TreeArrays, node: int, row: int) -> None:
    """Put a row into the list of a node."""
    nodes, state = tree.nodes, tree.state
    place = nodes[node].count % PIECE
    if place == 0:
        piece = state[FREE_PIECE]
        if piece != NONE:
            state[FREE_PIECE] = tree.before[piece]
        else:
            piece = state[USED_PIECES]
            state[USED_PIECES] += 1
        state[PIECES] += 1
        tree.before[piece] = nodes[node].piece
        nodes[node].piece = piece
    place += nodes[node].piece * PIECE
    tree.slots[place], tree.slot[row], tree.node[row] = row, place, node
    nodes[node].count += 1


@kernel
def _pull(tree: TreeArrays, row: int) -> None:
    """Remove a row from its list; the last row of the list takes its place."""
    nodes, state, node = tree.nodes, tree.state, tree.node[row]
    nodes[node].count -= 1
    piece, count = nodes[node].piece, nodes[node].count
    last = tree.slots[piece * PIECE + count % PIECE]
    tree.slots[tree.slot[row]], tree.slot[last] = last, tree.slot[row]
    tree.node[row] = NONE
    if count % PIECE == 0:
        nodes[node].piece = tree.before[piece]
        tree.before[piece] = state[FREE_PIECE]
        state[FREE_PIECE] = piece
        state[PIECES] -= 1
    if nodes[node].full > FULL and 4 * count < nodes[node].full:
        nodes[node].full = max(FULL, nodes[node].full // 2)


@kernel
def _new_node(tree: TreeArrays, parent: int, attribute: int, low: float, high: float) -> int:
    """Make a node, and link it nowhere yet."""
    nodes, state = tree.nodes, tree.state
    node = state[FREE_NODE]
    if node != NONE:
        state[FREE_NODE] = nodes[node].next
    else:
        node = state[USED_NODES]
        state[USED_NODES] += 1
    state[NODES] += 1
    made = nodes[node]
    made.attribute, made.low, made.high, made.cut = attribute, low, high, 0.0
    made.left = made.right = made.partition = made.next = made.piece = NONE
    made.parent, made.count, made.full = parent, 0, FULL
    return int(node)


@kernel
def _free_node(tree: TreeArrays, node: int) -> None:
    tree.nodes[node].next = tree.state[FREE_NODE]
    tree.state[FREE_NODE] = node
    tree.state[NODES] -= 1


@kernel
def _is_empty(tree: TreeArrays, node: int) -> bool:
    """Return whether a node has no list, halves or partitions."""
    own = tree.nodes[node]
    return bool(own.count == 0 and own.left == NONE and own.partition == NONE)


@kernel
def _prune(tree: TreeArrays, node: int) -> None:
    """Remove a node if it is empty, both halves at once, and then the nodes above it."""
    nodes = tree.nodes
    while node != 0 and _is_empty(tree, node):
        parent = nodes[node].parent
        if nodes[parent].left == node or nodes[parent].right == node:
            left, right = nodes[parent].left, nodes[parent].right
            if not (_is_empty(tree, left) and _is_empty(tree, right)):
                return
            nodes[parent].left = nodes[parent].right = NONE
            _free_node(tree, left)
            _free_node(tree, right)
        else:
            if nodes[parent].partition == node:
                nodes[parent].partition = nodes[node].next
            else:
                before = nodes[parent].partition
                while nodes[before].next != node:
                    before = nodes[before].next
                nodes[before].next = nodes[node].next
            _free_node(tree, node)
        node = parent
