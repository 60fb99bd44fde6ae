"""Deleting ids with all their boxes (the R*-tree of Beckmann et al.)."""

from rtfilter.index.kernels.array_types import Bool1, Float2, Int1
from rtfilter.index.kernels.entries import position, refresh_entry, remove_entry, shrink
from rtfilter.index.kernels.grid import redraw
from rtfilter.index.kernels.hash_tables import first_link, remove_box, remove_first_link
from rtfilter.index.kernels.insert import drain
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import HEIGHT, REINSERTED, ROOT, UPDATES, Tree, opened_tree
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
def delete(where: Int1, start: int, ids: Int1, removed: Bool1) -> int:
    """Delete ids `start`.. of n with all their boxes and return how many are gone; see `insert`.

    `removed` (bool, n) is set where the id was known.
    """
    tree = opened_tree(where)
    for i in range(start, len(ids)):
        while first_link(tree, ids[i]) >= 0:
            if not drain(tree):
                return i
            lower_root(tree)
            removed[i] = True
            box = remove_first_link(tree, ids[i])
            tree.state[UPDATES] += 1
            if box >= 0:
                leaf = tree.slots[box].leaf
                remove_entry(tree, leaf, position(tree, leaf, box))
                remove_box(tree, box)
                tree.state[REINSERTED] = 0
                condense(tree, leaf, tree.bounds[box])
    if drain(tree):
        lower_root(tree)
        redraw(tree)
    return len(ids)
