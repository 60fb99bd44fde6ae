"""The pool of nodes, their entries and rectangles, and the entries that wait for a node.

The rectangle of a node is always the exact bounding box of its entries. Masks are updated once, at the end of
a change (`grid.redraw`). New boxes, entries of a forced reinsertion and entries of dissolved nodes wait in
`Tree.todo`, a stack of (row, level, former node) triples.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float2, Int32_1
from rtfilter.index.kernels.grid import UP_TO_DATE, clear_bits, postpone, set_bits
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    FREE_INNER,
    FREE_LEAF,
    FREED,
    LEAVING,
    STAYS,
    TODO,
    USED_ENTRY,
    USED_MASK,
    USED_NODE,
    Tree,
    block_of,
    capacity_of,
    is_wide,
    least_entries,
    rectangles,
)


@kernel
def minimum_of(tree: Tree, level: int) -> int:
    """Return the least entries of a node of this level, except the root."""
    return least_entries(capacity_of(tree, level))


@kernel
def new_node(tree: Tree, level: int) -> int:
    """Return an empty node; see `layout.has_room`."""
    free = FREE_LEAF if level == 0 else FREE_INNER
    node = tree.state[free]
    if node >= 0:
        tree.state[free] = tree.nodes[node].parent
    else:
        node = tree.state[USED_NODE]
        tree.state[USED_NODE] += 1
        tree.nodes[node].entries = tree.state[USED_ENTRY]
        tree.nodes[node].masks = tree.state[USED_MASK]
        tree.nodes[node].stale = UP_TO_DATE
        tree.nodes[node].leaving = STAYS
        tree.state[USED_ENTRY] += capacity_of(tree, level)
        tree.state[USED_MASK] += block_of(tree, level)
    tree.nodes[node].level = level
    tree.nodes[node].parent = -1
    tree.nodes[node].count = 0
    tree.nodes[node].drawn = 0
    tree.nodes[node].built = 0
    return node


@kernel
def free_node(tree: Tree, node: int) -> None:
    """Return a node to the pool."""
    free = FREE_LEAF if tree.nodes[node].level == 0 else FREE_INNER
    tree.state[FREED] |= is_wide(tree, tree.nodes[node].level)
    tree.nodes[node].parent = tree.state[free]
    tree.nodes[node].level = -1
    tree.state[free] = node


@kernel
def let_leave(tree: Tree, node: int) -> None:
    """Mark a node for `dissolve`, unless it is the last of its siblings without the mark.

    It becomes the second in the queue, so that only the first may have far fewer entries than others.
    """
    if tree.nodes[node].leaving != STAYS:
        return
    above = tree.nodes[tree.nodes[node].parent]
    others = 0
    for other in tree.entries[above.entries : above.entries + above.count]:
        others += other != node and tree.nodes[other].leaving == STAYS
    if others == 0:
        return
    first = tree.state[LEAVING]
    if first < 0:
        tree.nodes[node].leaving = -1
        tree.state[LEAVING] = node
    else:
        tree.nodes[node].leaving = tree.nodes[first].leaving
        tree.nodes[first].leaving = node


@kernel
def let_stay(tree: Tree, node: int) -> None:
    """Remove the mark for `dissolve` from a node, if it has one."""
    before, following = -1, tree.state[LEAVING]
    while following >= 0 and following != node:
        before, following = following, tree.nodes[following].leaving
    if following < 0:
        return
    if before < 0:
        tree.state[LEAVING] = tree.nodes[node].leaving
    else:
        tree.nodes[before].leaving = tree.nodes[node].leaving
    tree.nodes[node].leaving = STAYS


@kernel
def find_leaving(tree: Tree) -> None:
    """Mark all wide nodes with too few entries for `dissolve`, whatever `Node.leaving` says."""
    tree.state[LEAVING] = -1
    for node in range(tree.state[USED_NODE]):
        tree.nodes[node].leaving = STAYS
    for node in range(tree.state[USED_NODE]):
        head = tree.nodes[node]
        few = head.level >= 0 and head.count < minimum_of(tree, head.level)
        if few and head.parent >= 0 and is_wide(tree, head.level):
            let_leave(tree, node)


@kernel
def wait(tree: Tree, row: int, level: int, former: int) -> None:
    """Push an entry that waits for a node of `level`: `former`, if not -1, rather than another full one."""
    tree.todo[tree.state[TODO], 0] = row
    tree.todo[tree.state[TODO], 1] = level
    tree.todo[tree.state[TODO], 2] = former
    tree.state[TODO] += 1


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
