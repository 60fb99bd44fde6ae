"""The entries of a node, and its rectangle, which is always their exact bounding box.

Masks are updated once, at the end of a change (`grid.redraw`).
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float2, Int32_1
from rtfilter.index.kernels.grid import clear_bits, postpone, set_bits
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import Tree, rectangles


@kernel
def own(tree: Tree, node: int, row: int) -> None:
    """Record that `row` is an entry of `node`."""
    if tree.nodes[node].level == 0:
        tree.slots[row].leaf = node
    else:
        tree.nodes[row].parent = node


@kernel
def position(tree: Tree, node: int, row: int) -> int:
    """Return the place of `row` among the entries of `node`, or -1."""
    head = tree.nodes[node]
    for j in range(head.count):
        if tree.entries[head.entries + j] == row:
            return j
    return -1


@kernel
def append_entry(tree: Tree, node: int, row: int) -> None:
    """Add an entry to a node with room; the caller updates rectangles."""
    head = tree.nodes[node]
    tree.entries[head.entries + head.count] = row
    head.count += 1
    head.age += 1
    own(tree, node, row)
    postpone(tree, node)


@kernel
def remove_entry(tree: Tree, node: int, j: int) -> None:
    """Remove entry j of a node, and put the last entry into its place; the caller updates rectangles."""
    head = tree.nodes[node]
    last = head.count - 1
    if j < head.drawn:
        clear_bits(tree, node, j)
    if j != last:
        if last < head.drawn:
            clear_bits(tree, node, last)
        tree.entries[head.entries + j] = tree.entries[head.entries + last]
        if j < head.drawn:
            set_bits(tree, node, j)
    head.count = last
    head.drawn = min(head.drawn, last)
    head.age += 1
    postpone(tree, node)


@kernel
def set_entries(tree: Tree, node: int, rows: Int32_1) -> None:
    """Make `rows` the entries of a node, with exact rectangle; masks are not drawn."""
    head = tree.nodes[node]
    head.count = len(rows)
    head.drawn = 0
    for j in range(len(rows)):
        tree.entries[head.entries + j] = rows[j]
        own(tree, node, rows[j])
    measure(tree, node)


@kernel
def fill_node(tree: Tree, node: int, rows: Int32_1) -> None:
    """Make `rows` the entries of a node, to be drawn at the end of the change."""
    set_entries(tree, node, rows)
    postpone(tree, node)


@kernel
def measure(tree: Tree, node: int) -> bool:
    """Compute a node's rectangle from its entries; return whether it changed."""
    head = tree.nodes[node]
    source = rectangles(tree, head.level)
    changed = False
    for k in range(source.shape[2]):
        low, high = np.inf, -np.inf
        for j in range(head.count):
            row = tree.entries[head.entries + j]
            low, high = min(low, source[row, 0, k]), max(high, source[row, 1, k])
        if low != tree.mbr[node, 0, k] or high != tree.mbr[node, 1, k]:
            tree.mbr[node, 0, k], tree.mbr[node, 1, k] = low, high
            changed = True
    return changed


@kernel
def shrink(tree: Tree, node: int, gone: Float2) -> bool:
    """Shrink a node's rectangle after the entry with the sides `gone` has left; return whether it changed.

    Only sides that this entry reached can change.
    """
    head = tree.nodes[node]
    source = rectangles(tree, head.level)
    changed = False
    for k in range(gone.shape[1]):
        for end in range(2):
            if gone[end, k] != tree.mbr[node, end, k]:
                continue
            most = -np.inf  # outward
            sign = 2.0 * end - 1.0
            for j in range(head.count):
                most = max(most, sign * source[tree.entries[head.entries + j], end, k])
                if most == sign * gone[end, k]:
                    break
            changed |= most != sign * gone[end, k]
            tree.mbr[node, end, k] = sign * most
    return changed


@kernel
def extend(tree: Tree, node: int, sides: Float2) -> bool:
    """Extend a node's rectangle to cover `sides`; return whether it grew."""
    grown = False
    for k in range(sides.shape[1]):
        if sides[0, k] < tree.mbr[node, 0, k]:
            tree.mbr[node, 0, k] = sides[0, k]
            grown = True
        if sides[1, k] > tree.mbr[node, 1, k]:
            tree.mbr[node, 1, k] = sides[1, k]
            grown = True
    return grown


@kernel
def refresh_entry(tree: Tree, node: int, j: int) -> None:
    """Redraw the mask bits of an entry whose rectangle changed."""
    if j < tree.nodes[node].drawn:
        clear_bits(tree, node, j)
        set_bits(tree, node, j)


@kernel
def widen(tree: Tree, node: int, sides: Float2) -> None:
    """Extend the rectangles of a node, and of those above it, to cover `sides`."""
    while extend(tree, node, sides) and tree.nodes[node].parent >= 0:
        parent = tree.nodes[node].parent
        refresh_entry(tree, parent, position(tree, parent, node))
        node = parent


@kernel
def refresh_ancestors(tree: Tree, node: int) -> None:
    """Update the rectangles above `node` after its rectangle changed."""
    while tree.nodes[node].parent >= 0:
        parent = tree.nodes[node].parent
        refresh_entry(tree, parent, position(tree, parent, node))
        if not measure(tree, parent):
            break
        node = parent
