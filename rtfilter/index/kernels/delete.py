"""Deleting and replacing ids with all their boxes (the R*-tree of Beckmann et al.)."""

import numpy as np

from rtfilter.index.kernels.array_types import Bool1, Float2, Int1
from rtfilter.index.kernels.entries import position, refresh_entry, remove_entry, shrink
from rtfilter.index.kernels.grid import redraw
from rtfilter.index.kernels.hash_tables import first_link, remove_box, remove_first_link
from rtfilter.index.kernels.insert import can_take, drain, enter
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import HEIGHT, REINSERTED, ROOT, UPDATES, Tree, has_room, opened_tree
from rtfilter.index.kernels.nodes import free_node, minimum_of, wait


@kernel
def condense(tree: Tree, node: int, sides: Float2) -> None:
    """After an entry left `node`: dissolve nodes that are too empty, shrink rectangles, up to the root."""
    gone = sides.copy()
    while tree.nodes[node].parent >= 0:
        head = tree.nodes[node]
        parent = head.parent
        before = tree.mbr[node].copy()
        if head.count < minimum_of(tree, head.level):
            for i in range(head.count):
                wait(tree, tree.entries[head.entries + i], head.level)
            remove_entry(tree, parent, position(tree, parent, node))
            free_node(tree, node)
        elif shrink(tree, node, gone):
            refresh_entry(tree, parent, position(tree, parent, node))
        else:
            return
        gone, node = before, parent
    shrink(tree, node, gone)


@kernel
def lower_root(tree: Tree) -> None:
    """While the root has a single child, let the child be the root. Nothing may be waiting."""
    root = tree.state[ROOT]
    while tree.nodes[root].level > 0 and tree.nodes[root].count == 1:
        child = tree.entries[tree.nodes[root].entries]
        free_node(tree, root)
        tree.nodes[child].parent = -1
        tree.state[ROOT] = child
        tree.state[HEIGHT] -= 1
        root = child


@kernel
def remove(tree: Tree, identifier: int) -> bool:
    """Take out an id with all its boxes; whether it was known. Masks are drawn later."""
    known = False
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


@kernel
def delete(where: Int1, ids: Int1, removed: Bool1) -> bool:
    """Delete n ids with all their boxes from the tree at these addresses; False, for want of room, if none.

    `removed` (bool, n) tells which were known.
    """
    tree = opened_tree(where)
    if not has_room(tree, 1, 1):
        return False
    for i in range(len(ids)):
        removed[i] = remove(tree, ids[i])
    redraw(tree)
    return True


@kernel
def delete_one(where: Int1, identifier: int) -> int:
    """Delete one id with all its boxes: 1 if it was known, 0 if not, -1 for want of room."""
    tree = opened_tree(where)
    if not has_room(tree, 1, 1):
        return -1
    known = remove(tree, identifier)
    redraw(tree)
    return int(known)


@kernel
def replace(where: Int1, identifier: int, low: Float2, high: Float2, exact: Bool1) -> int:
    """Delete one id and insert it with n other boxes; see `delete_one`."""
    tree = opened_tree(where)
    if not can_take(tree, len(exact)):
        return -1
    known = remove(tree, identifier)
    sides = np.empty((2, low.shape[1]))
    for i in range(len(exact)):
        enter(tree, identifier, low[i], high[i], exact[i], sides)
    redraw(tree)
    return int(known)
