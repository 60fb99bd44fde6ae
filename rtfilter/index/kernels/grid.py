"""The inside of a node: per dimension a grid of 64 cells, per cell a bit mask of the entries that overlap it.

In addition to masks, a wide node has a `code` for each entry and end: a byte that ascends within the cell.
`select_point` and `select_box` read masks and codes.
"""

import numpy as np

from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    CELLS,
    CODES,
    LANES,
    ONE,
    OPEN,
    STALE,
    USED_NODE,
    WORD,
    Tree,
    in_vectors,
    rectangles,
    words_for,
    words_of,
)
from rtfilter.index.kernels.sorting import ascending
from rtfilter.index.kernels.vector import some_left

UP_TO_DATE = -2  # of `Node.stale`
PASS = 32  # drawing an entry alone costs as much as drawing this many in a pass
LEFT = 2.0  # expected entries of a vector above which a test for an empty one does not pay
EMPTIED = 0.2  # share of vectors without a bit that makes a dimension the first to be tested


@kernel
def cell(x: float, low: float, scale: float) -> int:
    """Return the cell of coordinate x: the first for -inf, the last for inf, those between ascend with x."""
    inside = int(min(max((x - low) * scale, 0.0), CELLS - 3.0)) + 1
    return inside + int(x == np.inf) - int(x == -np.inf)


@kernel
def code(x: float, low: float, scale: float) -> int:
    """Return the place of x within its cell, 0..255, ascending with x. Only open ends have 0 or 255.

    So a code distinguishes a finite value from an open end in the same cell.
    """
    if abs(x) > OPEN:
        return 255 if x > 0 else 0
    inside = min(max((x - low) * scale, 0.0), CELLS - 3.0)
    return int((inside - int(inside)) * 254.0) + 1


@kernel
def codes_of(tree: Tree, node: int, k: int) -> int:
    """Return the start of the codes in dimension k: a byte for each entry's low end, then for each high."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    return head.masks + (tree.mbr.shape[2] * CELLS + k * CODES) * stride


@kernel
def put_code(tree: Tree, codes: int, j: int, value: int) -> None:
    """Write byte j of the bytes that begin at `codes`."""
    at, shift = codes + j // 8, np.uint64(j % 8 * 8)
    tree.masks[at] = tree.masks[at] & ~(np.uint64(0xFF) << shift) | np.uint64(value) << shift


@kernel
def set_bits(tree: Tree, node: int, j: int) -> None:
    """Set the bits of entry j in the masks of the cells that it overlaps. They must be clear."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    box = rectangles(tree, head.level)[tree.entries[head.entries + j]]
    bit = ONE << np.uint64(j % WORD)
    for k in range(box.shape[1]):
        low, scale = tree.grid[node, 0, k], tree.grid[node, 1, k]
        base = head.masks + k * CELLS * stride + j // WORD
        for c in range(cell(box[0, k], low, scale), cell(box[1, k], low, scale) + 1):
            tree.masks[base + c * stride] |= bit
        if in_vectors(stride):
            codes = codes_of(tree, node, k)
            put_code(tree, codes, j, code(box[0, k], low, scale))
            put_code(tree, codes + stride * (WORD // 8), j, code(box[1, k], low, scale))
    for i in range(head.tested, box.shape[1]):  # this entry may be the first to constrain a dimension
        k = tree.ranking[node, i]
        if box[0, k] > -np.inf or box[1, k] < np.inf:
            tree.ranking[node, i] = tree.ranking[node, head.tested]
            tree.ranking[node, head.tested] = k
            head.tested += 1


@kernel
def clear_bits(tree: Tree, node: int, j: int) -> None:
    """Clear the bits of entry j in all masks."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    keep = ~(ONE << np.uint64(j % WORD))
    base = head.masks + j // WORD
    if head.level > 0:  # its rectangle may have changed since it was drawn
        for row in range(tree.mbr.shape[2] * CELLS):
            tree.masks[base + row * stride] &= keep
        return
    box = tree.bounds[tree.entries[head.entries + j]]
    for k in range(box.shape[1]):
        first = cell(box[0, k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        last = cell(box[1, k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        for c in range(first, last + 1):
            tree.masks[base + (k * CELLS + c) * stride] &= keep


@kernel
def build_grid(tree: Tree, node: int) -> None:
    """Place the grid over the finite ends of the node's entries, and fill all masks."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    source = rectangles(tree, head.level)
    entries = tree.entries[head.entries : head.entries + head.count]
    dimensions = source.shape[2]
    used = words_for(head.count)
    overlapped = np.zeros(dimensions, np.int64)  # cells that entries overlap, summed
    empty = np.zeros(dimensions, np.int64)  # vectors of words without a bit, summed over the cells
    tree.masks[head.masks : head.masks + dimensions * CELLS * stride] = np.uint64(0)
    for k in range(dimensions):
        low, high = np.inf, -np.inf
        for box in entries:
            for end in range(2):
                x = source[box, end, k]
                if abs(x) < OPEN:
                    low, high = min(low, x), max(high, x)
        if low > high:  # no finite end
            low, high = 0.0, 1.0
        # One cell below and one above all ends, so that values outside differ from values inside.
        step = max((high - low) / (CELLS - 5), max(abs(low), abs(high)) * 2.0**-50, 2.0**-500)
        low -= step
        scale = 1.0 / step
        tree.grid[node, 0, k] = low
        tree.grid[node, 1, k] = scale
        # Toggle each entry where it begins and after it ends; a running XOR then fills between.
        base = head.masks + k * CELLS * stride
        for j in range(head.count):
            bit = ONE << np.uint64(j % WORD)
            first = cell(source[entries[j], 0, k], low, scale)
            after = cell(source[entries[j], 1, k], low, scale) + 1
            overlapped[k] += after - first
            tree.masks[base + first * stride + j // WORD] ^= bit
            if after < CELLS:
                tree.masks[base + after * stride + j // WORD] ^= bit
        for c in range(1, CELLS):
            row = base + c * stride
            mask, before = tree.masks[row : row + used], tree.masks[row - stride : row - stride + used]
            for w in range(used):
                mask[w] ^= before[w]
        if in_vectors(stride):
            for row in range(base, base + CELLS * stride, stride):
                for w in range(0, used, LANES):
                    empty[k] += not some_left(tree.masks, row + w)
            codes = codes_of(tree, node, k)
            for j in range(head.count):
                put_code(tree, codes, j, code(source[entries[j], 0, k], low, scale))
                put_code(tree, codes + stride * (WORD // 8), j, code(source[entries[j], 1, k], low, scale))
    order = ascending(overlapped)
    for i in range(dimensions):
        tree.ranking[node, i] = order[i]
    clustered = 0
    for k in range(dimensions):
        if empty[k] > empty[clustered]:
            clustered = k
    if empty[clustered] * LANES > EMPTIED * CELLS * used:
        rank = 0
        while tree.ranking[node, rank] != clustered:
            rank += 1
        for i in range(rank, 0, -1):
            tree.ranking[node, i] = tree.ranking[node, i - 1]
        tree.ranking[node, 0] = clustered
    head.tested = 0
    for k in range(dimensions):  # numba's `sum` alone would take a second to compile
        head.tested += overlapped[k] < CELLS * head.count
    head.sure, left = 0, float(min(head.count, LANES * WORD))
    while head.sure < head.tested and left >= LEFT:
        left *= overlapped[tree.ranking[node, head.sure]] / (CELLS * head.count)
        head.sure += 1
    head.built = head.drawn = head.count
    head.age = 0


def let_be_drawn(tree: Tree) -> None:
    """Mark all nodes with codes for `redraw`, because they are from a version with other codes."""
    heads = tree.nodes[: tree.state[USED_NODE]]
    wide = [level for level in (0, 1) if in_vectors(words_of(tree, level))]
    nodes = np.flatnonzero((heads["count"] > 0) & np.isin(np.minimum(heads["level"], 1), wide))
    heads["age"][nodes] = np.maximum(heads["built"][nodes], 8)
    heads["stale"][nodes] = [*nodes[1:], -1][: len(nodes)]
    tree.state[STALE] = nodes[0] if len(nodes) else -1


@kernel
def postpone(tree: Tree, node: int) -> None:
    """Mark the masks of a node for `redraw`."""
    if tree.nodes[node].stale == UP_TO_DATE:
        tree.nodes[node].stale = tree.state[STALE]
        tree.state[STALE] = node


@kernel
def redraw(tree: Tree) -> None:
    """Update all masks. One pass over a node costs as much as drawing a few entries separately."""
    while tree.state[STALE] >= 0:
        node = tree.state[STALE]
        head = tree.nodes[node]
        tree.state[STALE] = head.stale
        head.stale = UP_TO_DATE
        if head.level < 0:  # freed meanwhile
            continue
        if head.age >= max(head.built, 8) or (head.count - head.drawn) * PASS >= head.count:
            build_grid(tree, node)
            continue
        for j in range(head.drawn, head.count):
            set_bits(tree, node, j)
        head.drawn = head.count
