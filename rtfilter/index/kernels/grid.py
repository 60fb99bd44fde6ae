"""The inside of a node: per dimension a grid of 64 cells, per cell a bit mask of the entries that overlap it.

Testing a point against all entries of a node is one look-up and one AND per dimension. `cell` is monotone in
floating point, so an entry on [low, high] that contains x always has its bit in the cell of x, wherever the
grid lies: a grid may be imprecise, but never loses a match. By the same token an entry with bits in the cells
before *and* after that of a finite x contains x: only entries that end in the cell of x are compared
(`verify`), 64 at once by the `code` of their ends, a byte that ascends within the cell. Where codes are
equal, where there are few candidates, and in narrow nodes, which have no codes, the bounds themselves are
read: they are larger than masks and codes together, and would not fit the cache.

Dimensions are tested in the order in which they exclude most; those that no entry constrains are not tested
at all. Bulk loading sorts the entries of a leaf along one dimension (`pack.sort_blocks`): that comes first,
for it leaves most vectors of words without a bit. In the others so many dimensions follow, without looking,
as are expected to leave a bit: a test for none costs as much as the next mask.
"""

import numpy as np

from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    CELLS,
    CODES,
    INNER_CAPACITY,
    LANES,
    LEAF_CAPACITY,
    STALE,
    WORD,
    Array,
    Tree,
    block,
    in_vectors,
    words,
    words_for,
)
from rtfilter.index.kernels.vector import (
    TOGETHER,
    compare,
    intersect,
    intersect_together,
    not_in_both,
    ones,
    prefetch,
    some_left,
    trailing_zeros,
)

OPEN = 1e300  # a side beyond this is an open end and says nothing about where values lie
FETCHED = 8  # dimensions whose masks are fetched ahead; few points get further
UP_TO_DATE = -2  # of `Node.stale`
PASS = 32  # drawing one entry by itself costs as much as its share, and that of so many, in building a grid
FEW = (
    16  # up to so many candidates the bounds are read straight away: looking into the cells beside costs more
)
LEFT = 2.0  # while more entries of a vector are expected to be left, it is not worth a test whether any is
EMPTIED = 0.2  # share of vectors without a bit that makes a dimension the first to be tested
ONE = np.uint64(1)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def cell(x: float, low: float, scale: float) -> int:
    """Cell of coordinate x: the first is kept for -inf, the last for inf, those between ascend with x."""
    inside = int(min(max((x - low) * scale, 0.0), CELLS - 3.0)) + 1
    return inside + int(x == np.inf) - int(x == -np.inf)


@kernel
def code(x: float, low: float, scale: float) -> int:
    """Place of x within its cell, 0..255, ascending with x."""
    inside = min(max((x - low) * scale, 0.0), CELLS - 3.0)
    return int((inside - int(inside)) * 256.0)


@kernel
def capacity_of(tree: Tree, level: int) -> int:
    """Most entries a node of this level may hold."""
    return tree.state[LEAF_CAPACITY] if level == 0 else tree.state[INNER_CAPACITY]


@kernel
def words_of(tree: Tree, level: int) -> int:
    """Mask words of a node of this level."""
    return words(capacity_of(tree, level))


@kernel
def block_of(tree: Tree, level: int) -> int:
    """Words of a node of this level in `Tree.masks`."""
    return block(tree.mbr.shape[2], words_of(tree, level))


@kernel
def codes_of(tree: Tree, node: int, k: int) -> int:
    """Where the codes in dimension k begin: a byte for the low end of each entry, then for each high end."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    return head.masks + (tree.mbr.shape[2] * CELLS + k * CODES) * stride


@kernel
def put_code(tree: Tree, codes: int, j: int, value: int) -> None:
    """Write byte j of those that begin at `codes`."""
    at, shift = codes + j // 8, np.uint64(j % 8 * 8)
    tree.masks[at] = tree.masks[at] & ~(np.uint64(0xFF) << shift) | np.uint64(value) << shift


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
    """Take entry j out of all masks."""
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
    """Lay the grid over the finite ends of the node's entries and fill all masks anew."""
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
        # One cell below and one above all ends, so that values outside are told from values inside.
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
    tree.ranking[node] = np.argsort(overlapped)
    clustered = np.argmax(empty)
    if empty[clustered] * LANES > EMPTIED * CELLS * used:
        rank = np.argmax(tree.ranking[node] == clustered)
        tree.ranking[node, 1 : rank + 1] = tree.ranking[node, :rank].copy()
        tree.ranking[node, 0] = clustered
    head.tested = (overlapped < CELLS * head.count).sum()
    head.sure, left = 0, float(min(head.count, LANES * WORD))
    while head.sure < head.tested and left >= LEFT:
        left *= overlapped[tree.ranking[node, head.sure]] / (CELLS * head.count)
        head.sure += 1
    head.built = head.drawn = head.count
    head.age = 0


@kernel
def postpone(tree: Tree, node: int) -> None:
    """Let the masks of a node wait for `redraw`."""
    if tree.nodes[node].stale == UP_TO_DATE:
        tree.nodes[node].stale = tree.state[STALE]
        tree.state[STALE] = node


@kernel
def redraw(tree: Tree) -> None:
    """Bring all masks up to date. One pass over a node costs as much as drawing a few entries one by one."""
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


@kernel
def locate(tree: Tree, node: int, point: Array, rows: Array) -> None:
    """Where the masks of the cells of `point` begin, into `rows`, by rank of the tested dimensions."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    for i in range(head.tested):
        k = tree.ranking[node, i]
        c = cell(point[k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        rows[i] = head.masks + (k * CELLS + c) * stride


@kernel
def fetch_first(tree: Tree, node: int, rows: Array) -> None:
    """Have the first of the masks at `rows` brought to the cache while other work goes on."""
    head = tree.nodes[node]
    if head.tested > 0:
        for w in range(0, words_for(head.count), LANES):
            prefetch(tree.masks, rows[0] + w)


@kernel
def fetch_rest(tree: Tree, node: int, rows: Array) -> None:
    """Likewise the others, where the first leaves any bit."""
    head = tree.nodes[node]
    if not in_vectors(words_of(tree, head.level)) or head.tested == 0:
        return
    for w in range(0, words_for(head.count), LANES):
        if some_left(tree.masks, rows[0] + w):
            for i in range(1, min(head.tested, max(FETCHED, head.sure))):
                prefetch(tree.masks, rows[i] + w)


@kernel
def candidates(tree: Tree, node: int, rows: Array, cached: bool, found: Array) -> bool:
    """AND the masks at `rows`: a superset of the entries that contain the point.

    When most of them are in the cache, it pays to read more of them for fewer branches to guess. Fills
    `found` (uint64, words in use, rounded up to `LANES`) and tells whether any bit is left.
    """
    head = tree.nodes[node]
    used = words_for(head.count)
    if head.tested == 0:
        for w in range(used):
            found[w] = ALL
        if head.count % WORD:
            found[used - 1] = (ONE << np.uint64(head.count % WORD)) - ONE
        return head.count > 0
    some = False
    stride = words_of(tree, head.level)
    if in_vectors(stride):
        done = 0
        while cached and done < used and done + TOGETHER * LANES <= stride:
            some |= intersect_together(tree.masks, rows, head.sure, head.tested, done, found)
            done += TOGETHER * LANES
        for w in range(done, used, LANES):
            some |= intersect(tree.masks, rows, head.sure, head.tested, w, found)
        return some
    for w in range(used):
        bits = ALL
        for i in range(head.tested):
            bits &= tree.masks[rows[i] + w]
            if bits == 0:
                break
        found[w] = bits
        some |= bits != 0
    return some


@kernel
def fetch_ends(tree: Tree, node: int, point: Array, rows: Array, found: Array) -> None:
    """Have brought to the cache what `verify` reads for many candidates of a leaf, and the ids it leaves."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    used = words_for(head.count)
    count = bit_count(found, used)
    if not in_vectors(stride) or count <= FEW or count > head.count // 8:  # so many lie side by side
        return
    for i in range(head.tested):
        for w in range(0, used, LANES):
            prefetch(tree.masks, rows[i] - stride + w)
            prefetch(tree.masks, rows[i] + stride + w)
    for w in range(used):
        bits = found[w]
        while bits != 0:
            prefetch(tree.slots, tree.entries[head.entries + w * WORD + trailing_zeros(bits)])
            bits &= bits - ONE
    for i in range(head.tested):
        k = tree.ranking[node, i]
        if abs(point[k]) == np.inf:  # as in `verify`; beside the first cell there may be no memory
            continue
        lows = codes_of(tree, node, k)
        for w in range(0, used, LANES):
            ending = not_in_both(tree.masks, rows[i] - stride, rows[i] + stride, w, found)
            while ending != 0:
                codes = lows + (w + trailing_zeros(ending)) * (WORD // 8)
                ending &= ending - ONE
                prefetch(tree.masks, codes)
                prefetch(tree.masks, codes + stride * (WORD // 8))


@kernel
def bit_count(found: Array, used: int) -> int:
    """Bits set in the first words."""
    total = 0
    for w in range(used):
        total += ones(found[w])
    return total


@kernel
def verify(tree: Tree, node: int, point: Array, rows: Array, found: Array) -> None:
    """Leave in `found` only the entries that contain the point."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    used = words_for(head.count)
    boxes = rectangles(tree, head.level)
    if not in_vectors(stride) or bit_count(found, used) <= FEW:
        for w in range(used):
            bits = found[w]
            while bits != 0:
                j = trailing_zeros(bits)
                bits &= bits - ONE
                outside = not contains(boxes, tree.entries[head.entries + w * WORD + j], point)
                found[w] ^= np.uint64(outside) << np.uint64(j)
        return
    for i in range(head.tested):
        k = tree.ranking[node, i]
        x = point[k]
        if abs(x) == np.inf:  # these cells hold no other value
            continue
        own = code(x, tree.grid[node, 0, k], tree.grid[node, 1, k])
        before, after, codes = rows[i] - stride, rows[i] + stride, codes_of(tree, node, k)
        for start in range(0, used, WORD):  # so many words at a time that a word has a bit for each
            ending = np.uint64(0)  # words with entries that end in this cell
            for w in range(start, min(start + WORD, used), LANES):
                ending |= not_in_both(tree.masks, before, after, w, found) << np.uint64(w - start)
            while ending != 0:
                w = start + trailing_zeros(ending)
                ending &= ending - ONE
                # An entry whose low end is in this cell has no bit in the cell before it.
                lows, highs = found[w] & ~tree.masks[before + w], found[w] & ~tree.masks[after + w]
                above, at_low = compare(tree.masks, codes + w * (WORD // 8), own)
                not_below, at_high = compare(tree.masks, codes + (stride + w) * (WORD // 8), own)
                wrong = lows & above | highs & ~(not_below | at_high)
                unsure = lows & at_low | highs & at_high
                while unsure != 0:
                    j = trailing_zeros(unsure)
                    unsure &= unsure - ONE
                    box = tree.entries[head.entries + w * WORD + j]
                    wrong |= np.uint64((boxes[box, 0, k] > x) | (boxes[box, 1, k] < x)) << np.uint64(j)
                found[w] &= ~wrong


@kernel
def contains(boxes: Array, box: int, point: Array) -> bool:
    """Whether the closed box in row `box` contains `point`."""
    inside = True
    for k in range(len(point)):
        inside &= (boxes[box, 0, k] <= point[k]) & (point[k] <= boxes[box, 1, k])
    return inside
