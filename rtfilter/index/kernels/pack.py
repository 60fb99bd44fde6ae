"""Bulk loading: cut the boxes top-down into groups of about one node each, level by level.

Each cut is chosen on a sample. Sorting by low ends separates wide boxes (the half that begins late cannot
contain an early point), sorting by centres separates narrow ones, so low, high and centre of every dimension
are tried; the cut with the least expected work wins, where work is entries x chance that a point visits them.
A cut by width gains nothing itself, but its thin boxes can then be cut finely along that dimension. If
equalities or don't-care sides are among ranges, only such a cut separates them, so it is tried, too, and
judged by the expected gain of the cuts after it.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Bool1, Float1, Float2, Float3, Int1, Int32_1
from rtfilter.index.kernels.geometry import THIN, area, framed, widen_frame
from rtfilter.index.kernels.grid import build_grid
from rtfilter.index.kernels.hash_tables import BY_SIDES, add_link
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import BOXES, LANES, ROOT, USED_BOX, Tree, words_for
from rtfilter.index.kernels.nodes import free_node, new_node, set_entries
from rtfilter.index.kernels.sorting import ascending, partition

LOW, HIGH, CENTRE, WIDTH = 0, 1, 2, 3  # kinds of sort keys


@kernel
def sort_key(box: Float2, k: int, kind: int) -> float:
    """Return low end, high end, centre (doubled) or width of a framed box in dimension k."""
    if kind == CENTRE:
        return box[0, k] + box[1, k]
    if kind == WIDTH:
        return box[1, k] - box[0, k]
    return box[kind, k]


@kernel
def sort_keys(boxes: Float3, rows: Int1, k: int, kind: int, keys: Float1) -> None:
    """Write the sort keys of these rows of framed boxes into `keys`, float64, as long as `rows`."""
    for i in range(len(rows)):
        keys[i] = sort_key(boxes[rows[i]], k, kind)


def keys_of(boxes: Float3, k: int, kind: int) -> Float1:
    """Return the sort keys of all framed boxes, float64 (n,)."""
    low, high = boxes[:, 0, k], boxes[:, 1, k]
    return {LOW: low, HIGH: high, CENTRE: low + high, WIDTH: high - low}[int(kind)]


@kernel
def extent(boxes: Float3, rows: Int1, k: int) -> tuple[float, float]:
    """Return the least low and the greatest high end of these rows in dimension k."""
    low, high = np.inf, -np.inf
    for row in rows:
        low, high = min(low, boxes[row, 0, k]), max(high, boxes[row, 1, k])
    return low, high


@kernel
def sampled(rows: Int1, size: int) -> Int1:
    """Return at most `size` of the rows, evenly spread."""
    n = min(len(rows), size)
    some = np.empty(n, np.int64)
    for i in range(n):
        some[i] = rows[i * len(rows) // n]
    return some


@kernel
def expected_work(boxes: Float3, sample: Int1, order: Int1, cut: int) -> float:
    """Return the work of the two parts of a sample: the sum of entries times volume of their rectangle."""
    total = 0.0
    dimensions = boxes.shape[2]
    hull = np.empty((2, dimensions))
    for start, stop in ((0, cut), (cut, len(order))):
        if start == stop:
            continue
        for k in range(dimensions):
            low, high = np.inf, -np.inf
            for i in range(start, stop):
                row = sample[order[i]]
                low, high = min(low, boxes[row, 0, k]), max(high, boxes[row, 1, k])
            hull[0, k], hull[1, k] = low, high
        total += area(hull) * (stop - start)
    return total


@kernel
def choose_cut(boxes: Float3, rows: Int1, groups: int, sample_size: int) -> tuple[int, int, int]:
    """Choose a cut of `rows` into groups; return dimension, kind of key, and groups of the first part."""
    sample = sampled(rows, sample_size)
    n = len(sample)
    half = groups // 2
    cut = min(max(n * half // groups, 1), n - 1)
    keys, sums = np.empty(n), np.empty(n + 1)
    best = (0, 0, half)
    least = np.inf
    for k in range(boxes.shape[2]):
        for kind in (LOW, HIGH, CENTRE):
            sort_keys(boxes, sample, k, kind, keys)
            work = expected_work(boxes, sample, ascending(keys), cut)
            if work < least:
                best, least = (k, kind, half), work
    if groups < 4:
        return best
    # One halving leaves this share of the work; assume the same of all that follow.
    share = least / expected_work(boxes, sample, ascending(keys), n)
    least = share ** np.log2(groups)
    for k in range(boxes.shape[2]):
        sort_keys(boxes, sample, k, WIDTH, keys)
        order = ascending(keys)
        sums[0] = 0.0
        for i in range(n):
            sums[i + 1] = sums[i] + keys[order[i]]
        low, high = extent(boxes, sample, k)
        side = high - low + THIN
        thin = half
        while thin > 1:
            cut = max(n * thin // groups, 1)
            visited = min(1.0, 1.0 / thin + sums[cut] / cut / side)
            work = (thin * visited + (groups - thin) * share ** np.log2(groups - thin)) / groups
            if work < least:
                best, least = (k, WIDTH, thin), work
            thin //= 2
    return best


@kernel
def cut_once(boxes: Float3, rows: Int1, groups: int, sample_size: int, keys: Float1) -> int:
    """Reorder `rows`, at least two groups of them, for the best cut; return the number of groups before it.

    `keys` is scratch, float64 (n,).
    """
    k, kind, parts = choose_cut(boxes, rows, groups, sample_size)
    sort_keys(boxes, rows, k, kind, keys)
    partition(keys, rows, len(rows) * parts // groups)
    return parts


@kernel
def group(boxes: Float3, rows: Int1, groups: int, sample_size: int) -> Int1:
    """Reorder `rows` of framed boxes (n, 2, d) into consecutive groups of one size.

    Returns their bounds, int64 (groups + 1,).
    """
    cuts = np.zeros(groups + 1, np.int64)
    cuts[groups] = len(rows)
    keys = np.empty(len(rows))
    pending = [(0, groups)]  # these groups are still one
    while len(pending) > 0:
        first, last = pending.pop()
        if last - first < 2:
            continue
        own = rows[cuts[first] : cuts[last]]
        parts = cut_once(boxes, own, last - first, sample_size, keys[: len(own)])
        cuts[first + parts] = cuts[first] + len(own) * parts // (last - first)
        pending.append((first + parts, last))
        pending.append((first, first + parts))
    return cuts


@kernel
def sort_blocks(boxes: Float3, rows: Int1, cuts: Int1, sample_size: int) -> None:
    """Reorder each group of `rows` so that the entries of a few mask words are near in one dimension.

    Then most points exclude whole words at the first dimension.
    """
    for g in range(len(cuts) - 1):
        own = rows[cuts[g] : cuts[g + 1]]
        blocks = (words_for(len(own)) + LANES - 1) // LANES
        if blocks < 2:
            continue
        sample = sampled(own, sample_size)
        keys = np.empty(len(sample))
        best, least = (0, LOW), np.inf
        for k in range(boxes.shape[2]):
            for kind in (LOW, CENTRE):
                sort_keys(boxes, sample, k, kind, keys)
                visited = slab_width(boxes, reordered(sample, ascending(keys)), k, blocks)
                if visited < least:
                    best, least = (k, kind), visited
        keys = np.empty(len(own))
        sort_keys(boxes, own, best[0], best[1], keys)
        ordered = reordered(own, ascending(keys))
        for i in range(len(own)):
            own[i] = ordered[i]


@kernel
def reordered(rows: Int1, order: Int1) -> Int1:
    """Return the rows in another order."""
    found = np.empty(len(order), np.int64)
    for i in range(len(order)):
        found[i] = rows[order[i]]
    return found


@kernel
def slab_width(boxes: Float3, sorted_rows: Int1, k: int, slabs: int) -> float:
    """Return the sum of the shares of dimension k's extent that equal slabs of the rows take."""
    n, total = len(sorted_rows), 0.0
    for s in range(slabs):
        low, high = extent(boxes, sorted_rows[n * s // slabs : n * (s + 1) // slabs], k)
        total += high - low
    low, high = extent(boxes, sorted_rows, k)
    return total / (high - low + THIN)


@kernel
def frame_boxes(tree: Tree, low: Float2, high: Float2, rows: Int1) -> Float3:
    """Return the boxes of these input rows in frame coordinates, (n, 2, d); widen the tree's frame."""
    boxes = np.empty((len(rows), 2, low.shape[1]))
    for i in range(len(rows)):
        for k in range(low.shape[1]):
            boxes[i, 0, k], boxes[i, 1, k] = low[rows[i], k], high[rows[i], k]
        widen_frame(tree, boxes[i])
    for i in range(len(rows)):
        framed(tree, boxes[i], boxes[i])
    return boxes


@kernel
def frame_nodes(tree: Tree, nodes: Int1) -> Float3:
    """Return the rectangles of nodes in frame coordinates, (n, 2, d)."""
    boxes = np.empty((len(nodes), 2, tree.mbr.shape[2]))
    for i in range(len(nodes)):
        framed(tree, tree.mbr[nodes[i]], boxes[i])
    return boxes


@kernel
def new_nodes(tree: Tree, level: int, count: int) -> Int1:
    """Return `count` empty nodes, int64 (count,); the caller has made room."""
    nodes = np.empty(count, np.int64)
    for g in range(count):
        nodes[g] = new_node(tree, level)
    return nodes


@kernel
def fill_nodes(tree: Tree, nodes: Int1, rows: Int32_1, cuts: Int1, first: int, last: int) -> None:
    """Make each of the groups `first` to `last` (exclusive) of `rows` the entries of its new node.

    Threads may fill different nodes at once.
    """
    for g in range(first, last):
        set_entries(tree, nodes[g], rows[cuts[g] : cuts[g + 1]])
        build_grid(tree, nodes[g])


@kernel
def fill_tables(
    tree: Tree, ids: Int1, low: Float2, high: Float2, exact: Bool1, first: Int1, table: Int32_1, rows: Int1
) -> None:
    """Add boxes and links to an empty tree with room, and free its root.

    Box b is row `rows[b]` of the input. `first` int64 (n,) has for each input row the identical row that
    became a box, and `table` is the hash table of these; both from `hash_tables.distinct`.
    """
    free_node(tree, tree.state[ROOT])
    box_of = np.empty(len(ids), np.int32)
    for box in range(len(rows)):
        row = rows[box]
        box_of[row] = box
        for k in range(low.shape[1]):
            tree.bounds[box, 0, k] = low[row, k] + 0.0  # no negative zeros
            tree.bounds[box, 1, k] = high[row, k] + 0.0
        tree.slots[box].link = tree.slots[box].leaf = -1
    for place in range(len(table)):
        tree.tables[BY_SIDES, place] = ~box_of[table[place]] if table[place] >= 0 else 0
    tree.state[USED_BOX] = tree.state[BOXES] = len(rows)
    for row in by_box(first, box_of, len(rows)):  # searches stay local, also where a box has many ids
        add_link(tree, ids[row], box_of[first[row]], exact[row])


@kernel
def by_box(first: Int1, box_of: Int32_1, boxes: int) -> Int32_1:
    """Return the input rows in the order of their boxes, int32 (n,); rows of one box in their own order."""
    place = np.zeros(boxes + 1, np.int64)
    for row in first:
        place[box_of[row] + 1] += 1
    for box in range(boxes):
        place[box + 1] += place[box]
    order = np.empty(len(first), np.int32)
    for i in range(len(first)):
        box = box_of[first[i]]
        order[place[box]] = i
        place[box] += 1
    return order
