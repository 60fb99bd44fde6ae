"""The pool of nodes, and the entries that wait for a node.

New boxes, entries of a forced reinsertion and entries of dissolved nodes wait in `Tree.todo`, a stack of
(row, level, former node) triples.
"""

from rtfilter.index.kernels.grid import UP_TO_DATE
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
