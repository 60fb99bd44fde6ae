"""Changes of a tree: each is one call without interruption; a signal is handled before or after it.

One kernel makes all kinds of changes, because a kernel that inserts takes longest to compile. Ids are deleted
as in the R*-tree of Beckmann et al. Wide nodes with too few entries are dissolved in steps: each change moves
some of their entries elsewhere. Until it is empty, such a node stays in the tree, gets no entries, and may
have a larger rectangle than necessary.
"""

from typing import NamedTuple

import numpy as np

from rtfilter.index.kernels.array_types import Byte1, Float1, Float2, Int1
from rtfilter.index.kernels.borrow import ByAddress
from rtfilter.index.kernels.grid import redraw
from rtfilter.index.kernels.hash_tables import first_link, remove_box, remove_first_link
from rtfilter.index.kernels.insert import drain, enter
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    HEIGHT,
    LEAVING,
    LINKS,
    REINSERTED,
    ROOT,
    STAYS,
    UPDATES,
    Tree,
    has_room,
    is_wide,
    opened_tree,
)
from rtfilter.index.kernels.nodes import (
    free_node,
    let_leave,
    let_stay,
    minimum_of,
    position,
    refresh_entry,
    remove_entry,
    shrink,
    wait,
)


@kernel
def condense(tree: Tree, node: int, sides: Float2) -> None:
    """Dissolve nodes with too few entries and shrink rectangles, from `node` up, after an entry left it.

    A wide node is only marked for `dissolve`.
    """
    gone = sides.copy()
    while tree.nodes[node].parent >= 0:
        head = tree.nodes[node]
        parent = head.parent
        before = tree.mbr[node].copy()
        few = head.count < minimum_of(tree, head.level)
        if few and is_wide(tree, head.level):
            let_leave(tree, node)
        elif few:
            for i in range(head.count):
                wait(tree, tree.entries[head.entries + i], head.level, -1)
            head.count = 0
            leave(tree, node)
            gone, node = before, parent
            continue
        if head.count == 0 or not shrink(tree, node, gone):
            return
        refresh_entry(tree, parent, position(tree, parent, node))
        gone, node = before, parent
    shrink(tree, node, gone)


@kernel
def leave(tree: Tree, node: int) -> None:
    """Remove a node without entries from its parent; the caller updates the parent's rectangle."""
    parent = tree.nodes[node].parent
    remove_entry(tree, parent, position(tree, parent, node))
    free_node(tree, node)


@kernel
def lower_root(tree: Tree) -> None:
    """Replace a root with a single child by that child, repeatedly. No entry may be waiting."""
    root = tree.state[ROOT]
    while tree.nodes[root].level > 0 and tree.nodes[root].count == 1:
        child = tree.entries[tree.nodes[root].entries]
        free_node(tree, root)
        let_stay(tree, child)
        tree.nodes[child].parent = -1
        tree.state[ROOT] = child
        tree.state[HEIGHT] -= 1
        root = child


@kernel
def remove(tree: Tree, identifier: int) -> bool:
    """Remove an id with all its boxes; return whether it was known. Masks are redrawn later."""
    known = False
    tree.state[REINSERTED] = 0
    while first_link(tree, identifier) >= 0:
        known = True
        box = remove_first_link(tree, identifier)
        tree.state[UPDATES] += 1
        if box >= 0:
            leaf = tree.slots[box].leaf
            remove_entry(tree, leaf, position(tree, leaf, box))
            remove_box(tree, box)
            tree.state[REINSERTED] = 0
            condense(tree, leaf, tree.bounds[box])
            drain(tree)
            lower_root(tree)
    return known


AT_ONCE = 32  # entries that are moved with a change


@kernel
def dissolve(tree: Tree) -> None:
    """Move some entries from the first dissolving node, until another node is full."""
    left = AT_ONCE
    while tree.state[LEAVING] >= 0:
        node = tree.state[LEAVING]
        head = tree.nodes[node]
        while head.count > 0 and left > 0 and not tree.state[REINSERTED]:
            row = tree.entries[head.entries + head.count - 1]
            remove_entry(tree, node, head.count - 1)
            wait(tree, row, head.level, -1)
            drain(tree)
            left -= 1
        if head.count > 0:
            return
        tree.state[LEAVING] = head.leaving
        head.leaving = STAYS
        parent, gone = head.parent, tree.mbr[node].copy()
        leave(tree, node)
        condense(tree, parent, gone)
        drain(tree)
        lower_root(tree)


INSERT_ONE, REPLACE, INSERT, DELETE, DELETE_ONE = 0, 1, 2, 3, 4  # kinds of changes
NO_ROOM, WRONG = -1, -2


class Given(NamedTuple):
    """The arrays of a change. Flags are bytes."""

    low: Float1
    high: Float1
    ids: Int1
    flags: Byte1


NOTHING = Given(np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty(0, np.uint8))
GIVEN_BY_ADDRESS = ByAddress(lambda: NOTHING)
opened_given = GIVEN_BY_ADDRESS.opened


@kernel
def change(where: Int1, kind: int, identifier: int, exact: bool, given: Int1) -> int:
    """Change the tree at these addresses completely, or not at all if there is no room or no box.

    `given` are the addresses of a `Given`: numba would take 0.1 us for each array.

    `INSERT_ONE` takes `identifier`, `exact` and a box (d,), (d,). `INSERT` takes n `ids`, their exactness in
    `flags` and their boxes one after another, (n d,), (n d,). `DELETE_ONE` takes `identifier`, `DELETE` takes
    `ids`, and sets the `flags` of the known ones. `REPLACE` deletes `identifier` and inserts it with n
    boxes and `flags`. Unused arrays of a kind are empty.

    Returns the number of known deleted ids, `NO_ROOM`, or `WRONG` for low > high in `INSERT_ONE`.
    """
    tree, arrays = opened_tree(where), opened_given(given)
    low, high, ids, flags = arrays.low, arrays.high, arrays.ids, arrays.flags
    dimensions = tree.mbr.shape[2]
    boxes = len(low) // dimensions
    many = INSERT <= kind <= DELETE
    steps = len(ids) if many else max(boxes, 1)
    if steps > 0 and not has_room(tree, max(boxes, 1), max(boxes, 1)):
        return NO_ROOM
    if boxes > 0 and tree.tables.shape[1] < 2 * (tree.state[LINKS] + boxes):
        return NO_ROOM
    if kind == INSERT_ONE:
        for k in range(dimensions):
            if not low[k] <= high[k]:
                return WRONG
    sides = np.empty((2, dimensions))
    known = 0
    for i in range(steps):
        one = ids[i] if many else identifier
        if kind >= DELETE or (kind == REPLACE and i == 0):
            removed = remove(tree, one)
            known += removed
            if kind == DELETE:
                flags[i] = removed
        if i < boxes:
            first, last = i * dimensions, (i + 1) * dimensions
            sure = exact if kind == INSERT_ONE else flags[i] != 0
            enter(tree, one, low[first:last], high[first:last], sure, sides)
        dissolve(tree)
    redraw(tree)
    return known
