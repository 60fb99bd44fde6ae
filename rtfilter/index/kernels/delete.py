"""Deleting ids with all their boxes (the R*-tree of Beckmann et al.)."""

from rtfilter.index.kernels.array_types import Float2
from rtfilter.index.kernels.entries import position, refresh_entry, remove_entry, shrink
from rtfilter.index.kernels.hash_tables import first_link, remove_box, remove_first_link
from rtfilter.index.kernels.insert import drain
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import HEIGHT, REINSERTED, ROOT, UPDATES, Tree, is_wide
from rtfilter.index.kernels.nodes import free_node, let_leave, let_stay, minimum_of, wait


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
