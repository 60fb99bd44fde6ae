"""The search of the leaves that queries reached.

The search of points is one pipeline through all leaves, so that masks are fetched from memory before they
are needed, also those of the next leaf.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Bool1, Float2, Int1, Int2, Int32_1, Word1
from rtfilter.index.kernels.borrow import borrowed
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import CELLS, LANES, Tree, words_of
from rtfilter.index.kernels.runs import Runs, keep
from rtfilter.index.kernels.select_box import select_box
from rtfilter.index.kernels.select_point import (
    candidates,
    fetch_ends,
    fetch_first,
    fetch_rest,
    locate,
    verify,
)
from rtfilter.index.kernels.vector import prefetch

#: Points whose masks are under way from memory while one is tested: the first mask of each, then the rest.
AHEAD = 2
#: Points that use most of a leaf's masks: then all of them are fetched, in order.
MANY = 128


@kernel
def to_fetch(tree: Tree, nodes: Int1, cuts: Int1, i: int) -> tuple[int, int, int]:
    """Return masks of the leaf after nodes[i]: first, last, and how many to fetch per point of nodes[i]."""
    if i + 2 >= len(cuts) or cuts[i + 2] - cuts[i + 1] < MANY:
        return 0, 0, 0
    first = tree.nodes[nodes[i + 1]].masks
    words = tree.mbr.shape[2] * CELLS * words_of(tree, 0)
    return first, first + words, (words // (cuts[i + 1] - cuts[i]) // LANES + 1) * LANES


@kernel
def search_leaves(
    tree: Tree,
    points: Float2,
    leaves: Int1,
    cuts: Int1,
    pairs: Int32_1,
    done: Bool1,
    runs: Runs,
    ahead: tuple[Int2, Int1, Word1],
) -> bool:
    """Add the hits to the runs, if there is room; the points pairs[cuts[i]:cuts[i + 1]] reached leaves[i].

    `done` (bool, n) marks points that need no further hit; empty if all hits are wanted.
    """
    leaves, cuts, pairs, done = borrowed((leaves, cuts, pairs, done))
    rows, leaf_of, found = borrowed(ahead)
    leaf, few = -1, False
    mask, last_mask, share = 0, 0, 0
    for i in range(len(pairs) + AHEAD):
        if i < len(pairs):
            while leaf < 0 or cuts[leaf + 1] <= i:
                leaf += 1
                few = cuts[leaf + 1] - cuts[leaf] < MANY
                mask, last_mask, share = to_fetch(tree, leaves, cuts, leaf)
            place = i % len(rows)
            leaf_of[place] = leaves[leaf]
            locate(tree, leaves[leaf], points[pairs[i]], rows[place])
            if few:
                fetch_first(tree, leaves[leaf], rows[place])
            for m in range(mask, min(mask + share, last_mask), LANES):
                prefetch(tree.masks, m)
            mask += share
        if few and 0 < i <= len(pairs):
            place = (i - 1) % len(rows)
            fetch_rest(tree, leaf_of[place], rows[place])
        if i < AHEAD:
            continue
        place, point = (i - AHEAD) % len(rows), pairs[i - AHEAD]
        if (len(done) > 0 and done[point]) or not candidates(
            tree, leaf_of[place], rows[place], not few, found
        ):
            continue
        if few:
            fetch_ends(tree, leaf_of[place], points[point], rows[place], found)
        verify(tree, leaf_of[place], points[point], rows[place], found)
        if not keep(tree, leaf_of[place], point, found, done, runs):
            return False
    return True


@kernel
def search_leaves_by_boxes(
    tree: Tree,
    boxes: Float2,
    selection: int,
    leaves: Int1,
    cuts: Int1,
    pairs: Int32_1,
    done: Bool1,
    runs: Runs,
    found: Word1,
) -> bool:
    """Add the hits of query boxes to the runs, if there is room; see `search_leaves`."""
    leaves, cuts, pairs, done, found = borrowed((leaves, cuts, pairs, done, found))
    unsure = np.empty_like(found)
    for i in range(len(leaves)):
        for query in pairs[cuts[i] : cuts[i + 1]]:
            if len(done) > 0 and done[query]:
                continue
            if not select_box(tree, leaves[i], boxes[query], selection, found, unsure):
                continue
            if not keep(tree, leaves[i], query, found, done, runs):
                return False
    return True
