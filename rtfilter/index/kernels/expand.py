"""A step down by one level: it distributes the queries at an inner node over its children."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtfilter.index.kernels.array_types import Float2, Int1, Int2, Int32_1, Word2
from rtfilter.index.kernels.borrow import borrowed
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import ONE, WORD, Tree, words_for, words_of
from rtfilter.index.kernels.select_box import POINT, select_box
from rtfilter.index.kernels.select_point import candidates, locate, verify
from rtfilter.index.kernels.vector import trailing_zeros

Numbers = TypeVar("Numbers", bound=NDArray[Any])


@kernel
def doubled(array: Numbers) -> Numbers:
    """Return a copy of the array with at least twice the room."""
    larger = np.empty(max(2 * len(array), 64), array.dtype)
    for i in range(len(array)):
        larger[i] = array[i]
    return larger


@kernel
def select(
    tree: Tree, node: int, queries: Float2, selection: int, reached: Int32_1, rows: Int1, found: Word2
) -> None:
    """Select the entries of a node for each query in `reached`: write a row of bits for each to `found`."""
    reached, rows, found = borrowed((reached, rows, found))
    if selection != POINT:
        unsure = np.empty(found.shape[1], np.uint64)
        for i in range(len(reached)):
            select_box(tree, node, queries[reached[i]], selection, found[i], unsure)
        return
    for i in range(len(reached)):
        point = queries[reached[i]]
        locate(tree, node, point, rows)
        if candidates(tree, node, rows, True, found[i]):
            verify(tree, node, point, rows, found[i])


@kernel
def expand(
    tree: Tree, node: int, queries: Float2, selection: int, reached: Int32_1
) -> tuple[Int1, Int1, Int32_1]:
    """Distribute queries that reached an inner node over its children.

    Returns the children, int64 (k,), the start of each one's queries, int64 (k + 1,), and these, int32.
    """
    head = tree.nodes[node]
    found = np.empty((len(reached), words_of(tree, head.level)), np.uint64)
    select(tree, node, queries, selection, reached, np.empty(tree.mbr.shape[2], np.int64), found)
    used = words_for(head.count)
    sizes = np.zeros(head.count, np.int64)
    for i in range(len(reached)):
        for w in range(used):
            bits = found[i, w]
            while bits != 0:
                sizes[w * WORD + trailing_zeros(bits)] += 1
                bits &= bits - ONE
    children = np.empty(head.count, np.int64)
    cuts = np.zeros(head.count + 1, np.int64)
    for j in range(head.count):
        children[j] = tree.entries[head.entries + j]
        cuts[j + 1] = cuts[j] + sizes[j]
    place = np.empty(head.count, np.int64)
    for j in range(head.count):
        place[j] = cuts[j]
    by_child = np.empty(cuts[-1], np.int32)
    for i in range(len(reached)):
        for w in range(used):
            bits = found[i, w]
            while bits != 0:
                j = w * WORD + trailing_zeros(bits)
                bits &= bits - ONE
                by_child[place[j]] = reached[i]
                place[j] += 1
    return children, cuts, by_child


@kernel
def push(
    nodes: Int1, cuts: Int1, pairs: Int32_1, arena: Int32_1, top: int, stack: Int2, depth: int
) -> tuple[Int32_1, int]:
    """Push the reached nodes on the stack, with their lists after `top` in the arena."""
    while top + len(pairs) > len(arena):
        arena = doubled(arena)
    for i in range(len(pairs)):
        arena[top + i] = pairs[i]
    for i in range(len(nodes)):
        if cuts[i + 1] > cuts[i]:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = nodes[i], top + cuts[i], top + cuts[i + 1]
            depth += 1
    return arena, depth
