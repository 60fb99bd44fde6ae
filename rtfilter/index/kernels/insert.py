"""Inserting boxes one at a time, forced reinsertion and splits (the R*-tree of Beckmann et al.).

`drain` places all waiting entries. The caller has made sure that all pools have room. Decisions here need no
current masks: these are drawn once, at the end (`redraw`).

In a wide node, with more entries than in papers, one change would be long: a third of 4096 entries would
move, and each may split another node. So few of them are reinserted, and an entry that would split another
node returns to its own: at most one node per level is split.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float1, Float2, Float3, Int1, Int32_1
from rtfilter.index.kernels.geometry import (
    area,
    area_of_union,
    covers,
    framed,
    overlap,
    overlap_growth,
    widen_frame,
)
from rtfilter.index.kernels.hash_tables import add_box, add_link, move, place_of_box, row_at
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    HEIGHT,
    ONE,
    REINSERTED,
    ROOT,
    STAYS,
    TODO,
    UPDATES,
    WORD,
    Tree,
    capacity_of,
    is_wide,
    rectangles,
    words_for,
    words_of,
)
from rtfilter.index.kernels.nodes import (
    append_entry,
    extend,
    fill_node,
    minimum_of,
    new_node,
    refresh_ancestors,
    wait,
    widen,
)
from rtfilter.index.kernels.select_point import candidates, locate
from rtfilter.index.kernels.sorting import ascending, partition
from rtfilter.index.kernels.vector import trailing_zeros

REINSERTED_SHARE = 0.3
REINSERTED_MOST = 64  # of a wide node: more do not improve the tree, and take long
SAMPLE = 128  # entries from which a wide node chooses its split axis


@kernel
def split_order(boxes: Float3, minimum: int) -> tuple[Int1, int]:
    """Return the R* split of framed boxes (n, 2, d): an order of them and the size of the first node.

    The axis has the least sum of margins over all distributions; on it the distribution has the least
    overlap, then the least area. For a wide node, axis and sort key are chosen on a sample.
    """
    n, _, dimensions = boxes.shape
    some = boxes if n <= SAMPLE else sampled(boxes)
    fewest = max(1, minimum * len(some) // n)
    axis, least = 0, np.inf
    for k in range(dimensions):
        margin = 0.0
        for end in range(2):
            left, right = running_boxes(some, ascending(ends_of(some, end, k)))
            for cut in range(fewest, len(some) - fewest + 1):
                for m in range(dimensions):
                    margin += left[cut - 1, 1, m] - left[cut - 1, 0, m] + right[cut, 1, m] - right[cut, 0, m]
        if margin < least:
            axis, least = k, margin
    low, high = distribution(some, axis, 0, fewest), distribution(some, axis, 1, fewest)
    end, best = (1, high) if high[2:] < low[2:] else (0, low)
    if n > SAMPLE:
        best = distribution(boxes, axis, end, minimum)
    return best[0], best[1]


@kernel
def sampled(boxes: Float3) -> Float3:
    """Return `SAMPLE` of the boxes, evenly spread."""
    some = np.empty((SAMPLE, 2, boxes.shape[2]))
    for i in range(SAMPLE):
        copy_box(boxes[i * len(boxes) // SAMPLE], some[i])
    return some


@kernel
def copy_box(box: Float2, into: Float2) -> None:
    """Copy the sides of a box, float64 (2, d)."""
    for end in range(2):
        for k in range(box.shape[1]):
            into[end, k] = box[end, k]


@kernel
def ends_of(boxes: Float3, end: int, k: int) -> Float1:
    """Return the low ends (0) or the high ends (1) of boxes in dimension k."""
    found = np.empty(len(boxes))
    for i in range(len(boxes)):
        found[i] = boxes[i, end, k]
    return found


@kernel
def distribution(boxes: Float3, axis: int, end: int, minimum: int) -> tuple[Int1, int, float, float]:
    """Return the best split of boxes sorted by one end: order, size of the first node, overlap, area."""
    order = ascending(ends_of(boxes, end, axis))
    left, right = running_boxes(boxes, order)
    best_cut, best_overlap, best_area = minimum, np.inf, np.inf
    for cut in range(minimum, len(boxes) - minimum + 1):
        shared = overlap(left[cut - 1], right[cut])
        total = area(left[cut - 1]) + area(right[cut])
        if shared < best_overlap or (shared == best_overlap and total < best_area):
            best_cut, best_overlap, best_area = cut, shared, total
    return order, best_cut, best_overlap, best_area


@kernel
def running_boxes(boxes: Float3, order: Int1) -> tuple[Float3, Float3]:
    """Return bounding boxes of the first 1..n and of the last n..1 boxes of an order, float64 (n, 2, d)."""
    n = len(order)
    left = np.empty((n, 2, boxes.shape[2]))
    right = np.empty((n, 2, boxes.shape[2]))
    copy_box(boxes[order[0]], left[0])
    copy_box(boxes[order[n - 1]], right[n - 1])
    for i in range(1, n):
        for k in range(boxes.shape[2]):
            left[i, 0, k] = min(left[i - 1, 0, k], boxes[order[i], 0, k])
            left[i, 1, k] = max(left[i - 1, 1, k], boxes[order[i], 1, k])
            j = n - 1 - i
            right[j, 0, k] = min(right[j + 1, 0, k], boxes[order[j], 0, k])
            right[j, 1, k] = max(right[j + 1, 1, k], boxes[order[j], 1, k])
    return left, right


@kernel
def reinsert(tree: Tree, node: int, rows: Int32_1, boxes: Float3) -> None:
    """Keep the entries nearest to the node's centre, and let the farthest wait, nearest of them first.

    The remaining entries keep their order, because packing has put similar ones together.
    """
    n = len(rows)
    distance = np.zeros(n)
    for k in range(boxes.shape[2]):
        low, high = np.inf, -np.inf
        for i in range(n):
            low, high = min(low, boxes[i, 0, k]), max(high, boxes[i, 1, k])
        for i in range(n):
            distance[i] += ((boxes[i, 0, k] + boxes[i, 1, k]) / 2 - (low + high) / 2) ** 2
    far = farthest(distance, min(max(1, int(n * REINSERTED_SHARE)), REINSERTED_MOST))
    moves = np.zeros(n, np.bool_)
    for i in range(len(far)):
        moves[far[i]] = True
    kept, count = np.empty(n, np.int32), 0
    for i in range(n):
        if not moves[i]:
            kept[count] = rows[i]
            count += 1
    level = tree.nodes[node].level
    tree.state[REINSERTED] |= 1 << level
    fill_node(tree, node, kept[:count])
    refresh_ancestors(tree, node)
    former = node if is_wide(tree, level) else -1
    for i in range(len(far)):  # `todo` is a stack
        wait(tree, rows[far[i]], level, former)


@kernel
def farthest(distance: Float1, count: int) -> Int1:
    """Return the rows of the greatest distances, the greatest first."""
    nearness, rows = np.empty(len(distance)), np.empty(len(distance), np.int64)
    for i in range(len(distance)):
        nearness[i], rows[i] = -distance[i], i
    partition(nearness, rows, count)
    order = ascending(nearness[:count])
    found = np.empty(count, np.int64)
    for i in range(count):
        found[i] = rows[order[i]]
    return found


@kernel
def framed_entries(tree: Tree, level: int, rows: Int32_1) -> Float3:
    """Return the rectangles of entries of nodes of a level in frame coordinates, (n, 2, d)."""
    source = rectangles(tree, level)
    boxes = np.empty((len(rows), 2, source.shape[2]))
    for i in range(len(rows)):
        framed(tree, source[rows[i]], boxes[i])
    return boxes


@kernel
def overflow(tree: Tree, node: int, extra: int) -> None:
    """Handle one entry too many for a full node: reinsert once per level and insertion, else split."""
    while True:
        head = tree.nodes[node]
        level, parent = head.level, head.parent
        rows = np.empty(head.count + 1, np.int32)
        for j in range(head.count):
            rows[j] = tree.entries[head.entries + j]
        rows[head.count] = extra
        boxes = framed_entries(tree, level, rows)
        if parent >= 0 and not (tree.state[REINSERTED] >> level) & 1:
            reinsert(tree, node, rows, boxes)
            return
        order, cut = split_order(boxes, minimum_of(tree, level))
        twin = new_node(tree, level)
        ordered = np.empty(len(rows), np.int32)
        for j in range(len(rows)):
            ordered[j] = rows[order[j]]
        fill_node(tree, node, ordered[:cut])
        fill_node(tree, twin, ordered[cut:])
        if parent < 0:
            parent = new_node(tree, level + 1)
            rows[0], rows[1] = node, twin
            fill_node(tree, parent, rows[:2])
            tree.state[ROOT] = parent
            tree.state[HEIGHT] += 1
            return
        refresh_ancestors(tree, node)
        if tree.nodes[parent].count < capacity_of(tree, level + 1):
            append_entry(tree, parent, twin)
            if extend(tree, parent, tree.mbr[twin]):
                refresh_ancestors(tree, parent)
            return
        node, extra = parent, twin


MOVED_AT_ONCE = 16  # places of old hash tables that an insertion moves: all move before the next growth
NEAR = 32  # candidates of least area enlargement whose overlap is computed


@kernel
def covering(tree: Tree, node: int, sides: Float2) -> int:
    """Return the smallest entry of an inner node that covers the box, -1 if there is none.

    An entry covers a box if both its outermost corners are in it; masks find the few candidates.
    """
    head = tree.nodes[node]
    rows, box = np.empty(sides.shape[1], np.int64), np.empty_like(sides)
    found = np.zeros((2, words_of(tree, head.level)), np.uint64)
    for end in range(2 if head.drawn > 0 else 0):  # else its grid, too, may be behind
        locate(tree, node, sides[end], rows)
        candidates(tree, node, rows, True, found[end])
    best, least = -1, np.inf
    for w in range(words_for(head.count)):
        bits = found[0, w] & found[1, w]
        for j in range(max(head.drawn, w * WORD), min(head.count, w * WORD + WORD)):
            bits |= ONE << np.uint64(j % WORD)
        while bits != 0:
            j = w * WORD + trailing_zeros(bits)
            bits &= bits - ONE
            entry = tree.entries[head.entries + j]
            rectangle = tree.mbr[entry]
            if tree.nodes[entry].leaving == STAYS and covers(rectangle, sides):
                framed(tree, rectangle, box)
                size = area(box)
                if size < least:
                    best, least = j, size
    return best


@kernel
def choose_child(tree: Tree, node: int, sides: Float2) -> int:
    """Return the entry of `node` for a box: least overlap growth above leaves, else least area growth.

    A dissolving entry is only chosen if there is no other.
    """
    head = tree.nodes[node]
    count = head.count
    best = covering(tree, node, sides)
    if best >= 0:  # mostly: it need not grow
        return best
    box, least = np.empty_like(sides), np.inf
    framed(tree, sides, box)
    children = np.empty((count, 2, sides.shape[1]))
    growth = np.empty(count)
    areas = np.empty(count)
    best = 0
    for j in range(count):
        entry = tree.entries[head.entries + j]
        framed(tree, tree.mbr[entry], children[j])
        areas[j] = area(children[j])
        growth[j] = area_of_union(children[j], box) - areas[j]
        if tree.nodes[entry].leaving != STAYS:
            growth[j] = np.inf
        if growth[j] < growth[best] or (growth[j] == growth[best] and areas[j] < areas[best]):
            best = j
    if head.level > 1 or growth[best] == 0.0:  # an entry that holds the box already adds no overlap
        return best
    least = np.inf
    for j in ascending(growth)[:NEAR]:
        if growth[j] == np.inf:
            break
        added = overlap_growth(children, j, box, least)
        if added < least:
            best, least = j, added
    return best


@kernel
def place(tree: Tree, row: int, level: int, former: int) -> None:
    """Place a waiting entry in a node; split or reinsert if the node is full; see `wait`."""
    sides = rectangles(tree, level)[row]
    node, most = tree.state[ROOT], capacity_of(tree, level)
    while tree.nodes[node].level > level:
        j = choose_child(tree, node, sides)
        node = tree.entries[tree.nodes[node].entries + j]
    if tree.nodes[node].count == most and former >= 0 and tree.nodes[former].count < most:
        node = former
    widen(tree, node, sides)
    if tree.nodes[node].count < most:
        append_entry(tree, node, row)
    else:
        overflow(tree, node, row)


@kernel
def drain(tree: Tree) -> None:
    """Place all waiting entries."""
    while tree.state[TODO] > 0:
        tree.state[TODO] -= 1
        entry = tree.todo[tree.state[TODO]]
        place(tree, entry[0], entry[1], entry[2])


@kernel
def enter(tree: Tree, identifier: int, low: Float1, high: Float1, exact: bool, sides: Float2) -> None:
    """Add a box and place it; `sides` (2, d) is scratch."""
    for k in range(len(low)):
        sides[0, k], sides[1, k] = low[k] + 0.0, high[k] + 0.0  # no negative zeros
    tree.state[REINSERTED] = 0
    move(tree, MOVED_AT_ONCE)
    table, at = place_of_box(tree, sides)
    box = row_at(table, at)
    if box < 0:
        widen_frame(tree, sides)
        box = add_box(tree, sides, table, at)
        wait(tree, box, 0, -1)
        add_link(tree, identifier, box, exact)
        drain(tree)
    else:
        add_link(tree, identifier, box, exact)
    tree.state[UPDATES] += 1
