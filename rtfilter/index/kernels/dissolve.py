"""Dissolving wide nodes with too few entries, in steps: each change moves some of their entries elsewhere.

Until it is empty, such a node stays in the tree, gets no entries, and may have a larger rectangle than
necessary.
"""

from rtfilter.index.kernels.delete import condense, leave, lower_root
from rtfilter.index.kernels.entries import remove_entry
from rtfilter.index.kernels.insert import drain
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import LEAVING, REINSERTED, STAYS, Tree
from rtfilter.index.kernels.nodes import wait

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
