"""The pool of nodes, and the entries that wait for a node.

New boxes, entries of a forced reinsertion and entries of dissolved nodes wait in `Tree.todo`, a stack of
(row, level) pairs.
"""

from rtfilter.index.kernels.grid import UP_TO_DATE
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    FREE_INNER,
    FREE_LEAF,
    TODO,
    USED_ENTRY,
    USED_MASK,
    USED_NODE,
    Tree,
    block_of,
    capacity_of,
    least_entries,
)


@kernel
def minimum_of(tree: Tree, level: int) -> int:
    """Least entries of a node of this level, the root excepted."""
    return least_entries(capacity_of(tree, level))


@kernel
def new_node(tree: Tree, level: int) -> int:
    """An empty node; see `layout.has_room`."""
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
        tree.state[USED_ENTRY] += capacity_of(tree, level)
        tree.state[USED_MASK] += block_of(tree, level)
    tree.nodes[node].level = level
    tree.nodes[node].parent = -1
    tree.nodes[node].count = 0
    tree.nodes[node].drawn = 0
    return node


@kernel
def free_node(tree: Tree, node: int) -> None:
    """Give a node back to the pool."""
    free = FREE_LEAF if tree.nodes[node].level == 0 else FREE_INNER
    tree.nodes[node].parent = tree.state[free]
    tree.nodes[node].level = -1
    tree.state[free] = node


@kernel
def wait(tree: Tree, row: int, level: int) -> None:
    """Let an entry wait for a node of `level`."""
    tree.todo[tree.state[TODO], 0] = row
    tree.todo[tree.state[TODO], 1] = level
    tree.state[TODO] += 1
