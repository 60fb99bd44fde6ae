"""Changes of a tree: each is one call that does not stop in the middle; a signal comes before or after it.

All take the tree by its addresses, and do nothing where it has not got the room (`can_take`).
"""

import numpy as np

from rtfilter.index.kernels.array_types import Bool1, Float1, Float2, Int1
from rtfilter.index.kernels.delete import remove
from rtfilter.index.kernels.dissolve import dissolve
from rtfilter.index.kernels.grid import redraw
from rtfilter.index.kernels.insert import enter
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import LINKS, Tree, has_room, opened_tree


@kernel
def can_take(tree: Tree, count: int) -> bool:
    """Whether all pools and tables have room for so many more boxes of any ids."""
    return has_room(tree, count, count) and tree.tables.shape[1] >= 2 * (tree.state[LINKS] + count)


@kernel
def insert(where: Int1, ids: Int1, low: Float2, high: Float2, exact: Bool1) -> bool:
    """Insert n boxes in the tree at these addresses, all or, for want of room, none; whether they are in."""
    tree = opened_tree(where)
    if not can_take(tree, len(ids)):
        return False
    sides = np.empty((2, low.shape[1]))
    for i in range(len(ids)):
        enter(tree, ids[i], low[i], high[i], exact[i], sides)
        dissolve(tree)
    redraw(tree)
    return True


@kernel
def insert_one(where: Int1, identifier: int, low: Float1, high: Float1, exact: bool) -> bool:
    """Insert one box (d,), (d,) if it is one and there is room; whether it is in."""
    tree = opened_tree(where)
    valid = can_take(tree, 1)
    for k in range(len(low)):
        valid &= low[k] <= high[k]
    if valid:
        enter(tree, identifier, low, high, exact, np.empty((2, len(low))))
        dissolve(tree)
        redraw(tree)
    return valid


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
        dissolve(tree)
    redraw(tree)
    return True


@kernel
def delete_one(where: Int1, identifier: int) -> int:
    """Delete one id with all its boxes: 1 if it was known, 0 if not, -1 for want of room."""
    tree = opened_tree(where)
    if not has_room(tree, 1, 1):
        return -1
    known = remove(tree, identifier)
    dissolve(tree)
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
    dissolve(tree)
    redraw(tree)
    return int(known)
