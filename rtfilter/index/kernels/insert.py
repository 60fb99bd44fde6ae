"""Inserting boxes one at a time (the R*-tree of Beckmann et al.).

`drain` places all waiting entries. The caller has made sure that all pools have room.
Decisions here need no current masks: they are drawn once, at the end (`redraw`).
No decision here needs masks that are up to date: they are drawn once, at the end (`redraw`).
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float1, Float2
from rtfilter.index.kernels.entries import append_entry, widen
from rtfilter.index.kernels.geometry import area, area_of_union, covers, framed, overlap_growth, widen_frame
from rtfilter.index.kernels.hash_tables import add_box, add_link, move, place_of_box, row_at
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    ONE,
    REINSERTED,
    ROOT,
    STAYS,
    TODO,
    UPDATES,
    WORD,
    Tree,
    capacity_of,
    rectangles,
    words_for,
    words_of,
)
from rtfilter.index.kernels.nodes import wait
from rtfilter.index.kernels.select_point import candidates, locate
from rtfilter.index.kernels.sorting import ascending
from rtfilter.index.kernels.split import overflow
from rtfilter.index.kernels.vector import trailing_zeros

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
