"""The inside of a node: per dimension a grid of 64 cells, per cell a bit mask of the entries that overlap it.

Testing a point against all entries of a node is one look-up and one AND per dimension. `cell` is monotone in
floating point, so an entry on [low, high] that contains x always has its bit in the cell of x, wherever the
grid lies: a grid may be stale and imprecise, but never loses a match. Candidates are verified exactly.

Dimensions are tested in the order in which they exclude most, so that a point that no entry contains is known
after a few; those that exclude nothing (no entry constrains them) are not tested at all.
"""

import numpy as np

from rtfilter.kernels.jit import kernel
from rtfilter.kernels.layout import CELLS, INNER_CAPACITY, LEAF_CAPACITY, WORD, Array, Tree

OPEN = 1e300  # a side beyond this is an open end and says nothing about where values lie
ONE = np.uint64(1)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def cell(x: float, low: float, scale: float) -> int:
    """Cell of coordinate x: 0 is kept for a missing value (-inf), 1..63 ascend with x."""
    inside = int(min(max((x - low) * scale, 0.0), CELLS - 2.0)) + 1
    return inside if x > -np.inf else 0


@kernel
def capacity_of(tree: Tree, level: int) -> int:
    """Most entries a node of this level may hold."""
    return tree.state[LEAF_CAPACITY] if level == 0 else tree.state[INNER_CAPACITY]


@kernel
def words_of(tree: Tree, level: int) -> int:
    """Mask words of a node of this level."""
    return (capacity_of(tree, level) + WORD - 1) // WORD


@kernel
def rectangles(tree: Tree, level: int) -> Array:
    """The array that the entries of a node of this level are rows of: boxes, or other nodes' rectangles."""
    return tree.bounds if level == 0 else tree.mbr


@kernel
def set_bits(tree: Tree, node: int, j: int) -> None:
    """Enter entry j into the masks of the cells it overlaps. Its bits must be clear."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    box = rectangles(tree, head.level)[tree.entries[head.entries + j]]
    bit = ONE << np.uint64(j % WORD)
    for k in range(box.shape[1]):
        first = cell(box[0, k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        last = cell(box[1, k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        base = head.masks + k * CELLS * stride + j // WORD
        for c in range(first, last + 1):
            tree.masks[base + c * stride] |= bit
    for i in range(head.tested, box.shape[1]):  # this entry may be the first to constrain a dimension
        k = tree.ranking[node, i]
        first = cell(box[0, k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        last = cell(box[1, k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        if first > 0 or last < CELLS - 1:
            tree.ranking[node, i] = tree.ranking[node, head.tested]
            tree.ranking[node, head.tested] = k
            head.tested += 1


@kernel
def clear_bits(tree: Tree, node: int, j: int) -> None:
    """Take entry j out of all masks."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    keep = ~(ONE << np.uint64(j % WORD))
    base = head.masks + j // WORD
    for row in range(tree.mbr.shape[2] * CELLS):
        tree.masks[base + row * stride] &= keep


@kernel
def build_grid(tree: Tree, node: int) -> None:
    """Lay the grid over the finite ends of the node's entries and fill all masks anew."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    source = rectangles(tree, head.level)
    entries = tree.entries[head.entries : head.entries + head.count]
    dimensions = source.shape[2]
    used = (head.count + WORD - 1) // WORD
    overlapped = np.zeros(dimensions, np.int64)  # cells that entries overlap, summed
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
        # One cell below and one above all ends, so that values outside are told from values inside.
        step = max((high - low) / (CELLS - 4), max(abs(low), abs(high)) * 2.0**-50, 2.0**-500)
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
    tree.ranking[node] = np.argsort(overlapped)
    tree.nodes[node].tested = (overlapped < CELLS * head.count).sum()
    tree.nodes[node].built = head.count
    tree.nodes[node].age = 0


@kernel
def touch(tree: Tree, node: int) -> bool:
    """Count a change of the node; once it has changed as much as was built, rebuild its grid and say so."""
    tree.nodes[node].age += 1
    if tree.nodes[node].age >= max(tree.nodes[node].built, 8):
        build_grid(tree, node)
        return True
    return False


@kernel
def candidates(tree: Tree, node: int, point: Array, found: Array) -> bool:
    """AND the masks of the cells `point` falls into: a superset of the entries that contain it.

    Fills `found` (uint64, at least the words in use) and tells whether any bit is left.
    """
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    used = (head.count + WORD - 1) // WORD
    for w in range(used):
        found[w] = ALL
    if head.count % WORD:
        found[used - 1] = (ONE << np.uint64(head.count % WORD)) - ONE
    for i in range(head.tested):
        k = tree.ranking[node, i]
        c = cell(point[k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        row = head.masks + (k * CELLS + c) * stride
        # A slice, because its indices cannot be negative: only then does LLVM vectorise the loop (4 times).
        mask = tree.masks[row : row + used]
        left = np.uint64(0)
        for w in range(used):
            both = found[w] & mask[w]
            found[w] = both
            left |= both
        if left == 0:
            return False
    return head.count > 0


@kernel
def contains(boxes: Array, box: int, point: Array) -> bool:
    """Whether the closed box in row `box` contains `point`."""
    for k in range(len(point)):
        x = point[k]
        if not (boxes[box, 0, k] <= x <= boxes[box, 1, k]):
            return False
    return True
