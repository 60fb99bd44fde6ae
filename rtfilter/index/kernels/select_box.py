"""The entries of a node that intersect a query box, contain it, or lie within it.

A query is a row of 2 d numbers: its low ends, then its high ends. In each dimension they are in two cells,
the first and the last. An entry that contains the query has its bit in both; one that intersects it has a bit
in any cell from the first to the last; one within it has such a bit, but none in the neighbouring cells.
Coordinates in different cells compare as their cells do, so only entries that end in the first or the last
cell are unsure: their bounds are compared.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float1, Float3, Word1
from rtfilter.index.kernels.grid import cell
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import ALL, CELLS, ONE, WORD, Tree, rectangles, words_for, words_of
from rtfilter.index.kernels.vector import trailing_zeros

NONE = np.uint64(0)

#: Kinds of search: it selects boxes that contain a point (see `select_point`), or, by a query box, those that
#: contain it, intersect it, or lie within it.
POINT, CONTAIN, INTERSECT, WITHIN = 0, 1, 2, 3


@kernel
def select_box(tree: Tree, node: int, query: Float1, selection: int, found: Word1, unsure: Word1) -> bool:
    """Select the entries of a node for a query box, into `found`; return whether there are any.

    In a leaf these are the selected boxes. Boxes within the query are in children that intersect it. `unsure`
    is scratch, as long as `found`.
    """
    head = tree.nodes[node]
    dimensions = tree.mbr.shape[2]
    low, high = query[:dimensions], query[dimensions:]
    if selection == WITHIN and head.level > 0:
        selection = INTERSECT
    used = words_for(head.count)
    for w in range(used):
        found[w], unsure[w] = ALL, NONE
    if head.count % WORD:
        found[used - 1] = (ONE << np.uint64(head.count % WORD)) - ONE
    some = head.count > 0
    for i in range(dimensions):
        k = tree.ranking[node, i]
        unbounded = low[k] == -np.inf and high[k] == np.inf
        if not some or (unbounded and selection != CONTAIN):  # nothing more to exclude
            continue
        if i < head.tested:
            some = narrow(tree, node, k, low[k], high[k], selection, found, unsure)
        elif selection == WITHIN:  # here all entries are unbounded, and the query is not
            found[:used] = NONE
            some = False
    return some and verify_box(tree, node, low, high, selection, found, unsure)


@kernel
def narrow(
    tree: Tree, node: int, k: int, low: float, high: float, selection: int, found: Word1, unsure: Word1
) -> bool:
    """Remove entries that the cells in dimension k exclude, note unsure ones; return if any is left.

    The cells at both ends of the grid have only infinite ends: no entry is unsure there.
    """
    head = tree.nodes[node]
    masks, stride, used = tree.masks, words_of(tree, head.level), words_for(head.count)
    first = cell(low, tree.grid[node, 0, k], tree.grid[node, 1, k])
    last = cell(high, tree.grid[node, 0, k], tree.grid[node, 1, k])
    lowest, highest = first == 0, last == CELLS - 1
    base = head.masks + k * CELLS * stride
    at_first, at_last = base + first * stride, base + last * stride
    some = NONE
    if selection == CONTAIN:
        for w in range(used):
            before = ALL if lowest else masks[at_first - stride + w]
            after = ALL if highest else masks[at_last + stride + w]
            found[w] &= masks[at_first + w] & masks[at_last + w]
            unsure[w] |= ~(before & after)
            some |= found[w]
        return some != NONE
    touched = masks[at_first : at_first + used].copy()
    for row in range(at_first + stride, at_last + 1, stride):
        for w in range(used):
            touched[w] |= masks[row + w]
    if selection == INTERSECT:
        for w in range(used):
            above_first = ALL if first == CELLS - 1 else masks[at_first + stride + w]
            below_last = ALL if last == 0 else masks[at_last - stride + w]
            found[w] &= touched[w]
            unsure[w] |= masks[at_first + w] & ~above_first | masks[at_last + w] & ~below_last
            some |= found[w]
        return some != NONE
    for w in range(used):
        before = NONE if lowest else masks[at_first - stride + w]
        after = NONE if highest else masks[at_last + stride + w]
        found[w] &= touched[w] & ~before & ~after
        unsure[w] |= masks[at_first + w] | masks[at_last + w]
        some |= found[w]
    return some != NONE


@kernel
def verify_box(
    tree: Tree, node: int, low: Float1, high: Float1, selection: int, found: Word1, unsure: Word1
) -> bool:
    """Compare the bounds of unsure entries in `found`; return whether any entry is left."""
    head = tree.nodes[node]
    boxes = rectangles(tree, head.level)
    some = False
    for w in range(words_for(head.count)):
        bits = found[w] & unsure[w]
        while bits != 0:
            j = trailing_zeros(bits)
            bits &= bits - ONE
            wrong = not is_selected(boxes, tree.entries[head.entries + w * WORD + j], low, high, selection)
            found[w] ^= np.uint64(wrong) << np.uint64(j)
        some |= found[w] != 0
    return some


@kernel
def is_selected(boxes: Float3, box: int, low: Float1, high: Float1, selection: int) -> bool:
    """Return whether the box in row `box` contains or intersects the query, or is in it; ends closed."""
    right = True
    for k in range(len(low)):
        own_low, own_high = boxes[box, 0, k], boxes[box, 1, k]
        if selection == CONTAIN:
            right &= (own_low <= low[k]) & (high[k] <= own_high)
        elif selection == INTERSECT:
            right &= (own_low <= high[k]) & (low[k] <= own_high)
        else:
            right &= (low[k] <= own_low) & (own_high <= high[k])
    return right
