"""The entries of a node that contain a point.

The test of a point against all entries is one look-up and one AND per dimension. `cell` is monotone in
floating point, so an entry on [low, high] that contains x always has its bit in the cell of x, wherever the
grid lies: a grid may be imprecise, but never loses a match. Likewise, an entry with bits in the cells
before *and* after that of a finite x contains x: only entries that end in the cell of x are compared
(`verify`), 64 at once by the `code` of their ends. If codes are equal, if there are few candidates, and
in narrow nodes, which have no codes, the bounds themselves are read: they are larger than masks and codes
together, and would not fit the cache.

Dimensions are tested in the order in which they exclude most; dimensions that no entry constrains are not
tested. Bulk loading sorts the entries of a leaf along one dimension (`pack.sort_blocks`): that comes first,
because it clears most vectors of words. Then follow, without a test for an empty vector, as many dimensions
as are expected to leave a bit: such a test costs as much as the next mask.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float1, Float3, Int1, Word1
from rtfilter.index.kernels.grid import cell, code, codes_of
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    ALL,
    CELLS,
    LANES,
    ONE,
    WORD,
    Tree,
    in_vectors,
    rectangles,
    words_for,
    words_of,
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

FETCHED = 8  # dimensions whose masks are fetched ahead; few points get further
FEW = 16  # with at most this many candidates only bounds are read: neighbouring cells would cost more


@kernel
def locate(tree: Tree, node: int, point: Float1, rows: Int1) -> None:
    """Write the masks of the cells of `point` to `rows`, by rank of the tested dimensions."""
    head = tree.nodes[node]
    stride = words_of(tree, head.level)
    for i in range(head.tested):
        k = tree.ranking[node, i]
        c = cell(point[k], tree.grid[node, 0, k], tree.grid[node, 1, k])
        rows[i] = head.masks + (k * CELLS + c) * stride


@kernel
def fetch_first(tree: Tree, node: int, rows: Int1) -> None:
    """Prefetch the first of the masks at `rows` into the cache."""
    head = tree.nodes[node]
    if head.tested > 0:
        for w in range(0, words_for(head.count), LANES):
            prefetch(tree.masks, rows[0] + w)


@kernel
def fetch_rest(tree: Tree, node: int, rows: Int1) -> None:
    """Prefetch the other masks at `rows`, where the first leaves any bit."""
    head = tree.nodes[node]
    if not in_vectors(words_of(tree, head.level)) or head.tested == 0:
        return
    for w in range(0, words_for(head.count), LANES):
        if some_left(tree.masks, rows[0] + w):
            for i in range(1, min(head.tested, max(FETCHED, head.sure))):
                prefetch(tree.masks, rows[i] + w)


@kernel
def candidates(tree: Tree, node: int, rows: Int1, cached: bool, found: Word1) -> bool:
    """AND the masks at `rows`: a superset of the entries that contain the point.

    With `cached`, most masks are in the cache, and it is faster to read more of them with fewer branches.
    Fills `found` (uint64, words in use, rounded up to `LANES`) and returns whether any bit is left.
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
def fetch_ends(tree: Tree, node: int, point: Float1, rows: Int1, found: Word1) -> None:
    """Prefetch the data of `verify` for many candidates of a leaf, and their ids."""
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
def bit_count(found: Word1, used: int) -> int:
    """Return the number of bits set in the first words."""
    total = 0
    for w in range(used):
        total += ones(found[w])
    return total


@kernel
def verify(tree: Tree, node: int, point: Float1, rows: Int1, found: Word1) -> None:
    """Remove from `found` the entries that do not contain the point."""
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
def contains(boxes: Float3, box: int, point: Float1) -> bool:
    """Return whether the closed box in row `box` contains `point`."""
    inside = True
    for k in range(len(point)):
        inside &= (boxes[box, 0, k] <= point[k]) & (point[k] <= boxes[box, 1, k])
    return inside
