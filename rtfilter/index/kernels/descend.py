"""Searching: one traversal for a batch of points, down to any level, resumable from where it stopped.

Each node is visited once with the list of points that reached it (the paper's IntersectBuffer; W-2 in its
corrected form). The lists live on one stack, `arena`: the list of the node on top of the stack is the last
one in the arena, and those of its children are appended behind it, so memory stays at one list per level.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtfilter.index.kernels.array_types import Bool1, Float2, Int1, Int2, Int32_1, Word1, Word2
from rtfilter.index.kernels.borrow import borrowed
from rtfilter.index.kernels.dealt import opened_dealt
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    CELLS,
    HEIGHT,
    INEXACT,
    INNER_CAPACITY,
    LANES,
    ONE,
    ROOT,
    WORD,
    Tree,
    opened_tree,
    words_for,
    words_of,
)
from rtfilter.index.kernels.runs import Runs, collect, offsets_of, opened_runs
from rtfilter.index.kernels.select_point import (
    candidates,
    fetch_ends,
    fetch_first,
    fetch_rest,
    locate,
    verify,
)
from rtfilter.index.kernels.vector import prefetch, trailing_zeros

Numbers = TypeVar("Numbers", bound=NDArray[Any])

#: Points whose masks are under way from memory while one is tested: the first mask of each, then the rest.
AHEAD = 2
#: Points that use most of a leaf's masks: then all of them are fetched, in order.
MANY = 128


@kernel
def first_nan(points: Float2) -> int:
    """The first of the points with a coordinate that is not a number, -1 if there is none."""
    for i in range(points.shape[0]):
        for k in range(points.shape[1]):
            if points[i, k] != points[i, k]:
                return i
    return -1


@kernel
def doubled(array: Numbers) -> Numbers:
    """The array with twice the room."""
    larger = np.empty(max(2 * len(array), 64), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def overlapping(tree: Tree, node: int, points: Float2, reached: Int32_1, rows: Int1, found: Word2) -> None:
    """The entries of a node that contain each of the points in `reached`: a row of bits for each."""
    reached, rows, found = borrowed((reached, rows, found))
    for i in range(len(reached)):
        point = points[reached[i]]
        locate(tree, node, point, rows)
        if candidates(tree, node, rows, True, found[i]):
            verify(tree, node, point, rows, found[i])


@kernel
def expand(tree: Tree, node: int, points: Float2, reached: Int32_1) -> tuple[Int1, Int1, Int32_1]:
    """Distribute points that reached an inner node over its children.

    Returns the children, int64 (k,), where each one's points begin, int64 (k + 1,), and those points, int32.
    """
    head = tree.nodes[node]
    found = np.empty((len(reached), words_of(tree, head.level)), np.uint64)
    overlapping(tree, node, points, reached, np.empty(tree.mbr.shape[2], np.int64), found)
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
    place = cuts[:-1].copy()
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
def frontier(where: Int1, points: Float2, stop_level: int) -> tuple[Int1, Int1, Int32_1, Int1, int]:
    """Where the paths of all points stop at nodes of `stop_level` (counted from the leaves, W-2).

    Returns nodes int64 (k,); cuts int64 (k + 1,) into pairs; pairs int32: the points of each node, ascending;
    workload int64 (n,): nodes per point; visits: (node, point) pairs expanded above.
    """
    tree = opened_tree(where)
    n = len(points)
    workload = np.zeros(n, np.int64)
    arena = np.empty(4 * n + 64, np.int32)
    arena[:n] = np.arange(n)
    stack = np.empty((tree.state[HEIGHT] * tree.state[INNER_CAPACITY] + 1, 3), np.int64)
    stack[0] = np.array([tree.state[ROOT], 0, n])
    depth = 1 if n > 0 else 0
    nodes = np.empty(64, np.int64)
    cuts = np.zeros(65, np.int64)
    pairs = np.empty(2 * n + 64, np.int32)
    known, used, visits = 0, 0, 0
    while depth > 0:
        depth -= 1
        node, start, stop = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        if tree.nodes[node].level > stop_level:
            visits += stop - start
            children, child_cuts, by_child = expand(tree, node, points, arena[start:stop])
            arena, depth = push(children, child_cuts, by_child, arena, stop, stack, depth)
            continue
        while used + stop - start > len(pairs):
            pairs = doubled(pairs)
        if known == len(nodes):
            nodes, cuts = doubled(nodes), doubled(cuts)
        nodes[known] = node
        for i in range(start, stop):
            pairs[used] = arena[i]
            workload[arena[i]] += 1
            used += 1
        known += 1
        cuts[known] = used
    return nodes[:known].copy(), cuts[: known + 1].copy(), pairs[:used].copy(), workload, visits


@kernel
def push(
    nodes: Int1, cuts: Int1, pairs: Int32_1, arena: Int32_1, top: int, stack: Int2, depth: int
) -> tuple[Int32_1, int]:
    """Put the nodes that points reached on the stack, their lists behind `top` in the arena."""
    while top + len(pairs) > len(arena):
        arena = doubled(arena)
    arena[top : top + len(pairs)] = pairs
    for i in range(len(nodes)):
        if cuts[i + 1] > cuts[i]:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = nodes[i], top + cuts[i], top + cuts[i + 1]
            depth += 1
    return arena, depth


@kernel
def to_fetch(tree: Tree, nodes: Int1, cuts: Int1, i: int) -> tuple[int, int, int]:
    """Masks of the leaf after nodes[i]: from, to, and how many to fetch with each point of nodes[i]."""
    if i + 2 >= len(cuts) or cuts[i + 2] - cuts[i + 1] < MANY:
        return 0, 0, 0
    first = tree.nodes[nodes[i + 1]].masks
    words = tree.mbr.shape[2] * CELLS * words_of(tree, 0)
    return first, first + words, (words // (cuts[i + 1] - cuts[i]) // LANES + 1) * LANES


@kernel
def search_leaves(
    tree: Tree,
    points: Float2,
    leaves: Int1,
    cuts: Int1,
    pairs: Int32_1,
    done: Bool1,
    runs: Runs,
    ahead: tuple[Int2, Int1, Word1],
) -> bool:
    """Add the hits to the runs, if there is room; the points pairs[cuts[i]:cuts[i + 1]] reached leaves[i].

    `done` (bool, n) tells which points need no further hit; empty if all are wanted.
    """
    leaves, cuts, pairs, done = borrowed((leaves, cuts, pairs, done))
    rows, leaf_of, found = borrowed(ahead)
    run, used = runs.size
    leaf, few = -1, False
    mask, last_mask, share = 0, 0, 0
    for i in range(len(pairs) + AHEAD):
        if i < len(pairs):
            while leaf < 0 or cuts[leaf + 1] <= i:
                leaf += 1
                few = cuts[leaf + 1] - cuts[leaf] < MANY
                mask, last_mask, share = to_fetch(tree, leaves, cuts, leaf)
            place = i % len(rows)
            leaf_of[place] = leaves[leaf]
            locate(tree, leaves[leaf], points[pairs[i]], rows[place])
            if few:
                fetch_first(tree, leaves[leaf], rows[place])
            for m in range(mask, min(mask + share, last_mask), LANES):
                prefetch(tree.masks, m)
            mask += share
        if few and 0 < i <= len(pairs):
            place = (i - 1) % len(rows)
            fetch_rest(tree, leaf_of[place], rows[place])
        if i < AHEAD:
            continue
        place, point = (i - AHEAD) % len(rows), pairs[i - AHEAD]
        if (len(done) > 0 and done[point]) or not candidates(
            tree, leaf_of[place], rows[place], not few, found
        ):
            continue
        if few:
            fetch_ends(tree, leaf_of[place], points[point], rows[place], found)
        verify(tree, leaf_of[place], points[point], rows[place], found)
        after = collect(tree, leaf_of[place], found, runs.ids, runs.exact, used)
        if after < 0 or run == len(runs.points):
            return False
        if after == used:
            continue
        for h in range(used if len(done) > 0 else after, after):
            done[point] |= tree.state[INEXACT] == 0 or runs.exact[h] != 0
        used = after
        runs.points[run] = point
        run += 1
        runs.cuts[run] = used
        runs.size[0], runs.size[1] = run, used
    return True


@kernel
def search(
    tree: Tree, points: Float2, nodes: Int1, cuts: Int1, pairs: Int32_1, first_only: bool, runs: Runs
) -> tuple[bool, Int1, Int1]:
    """Finish points from a frontier: the rows pairs[cuts[i]:cuts[i + 1]] of `points` stopped at nodes[i].

    With `first_only` a point is dropped after its first exact hit. Fills `runs`; returns whether they had
    the room (the rest is of no use then), `offsets_of` them, and visits int64 (n,): nodes visited per point.
    """
    points = borrowed(points)
    visits = np.zeros(len(points), np.int64)
    done = np.zeros(len(points) if first_only else 0, np.bool_)
    # Of the points whose masks are under way: where their masks begin, their leaf; and one point's entries.
    ahead = (
        np.empty((AHEAD + 1, tree.mbr.shape[2]), np.int64),
        np.empty(AHEAD + 1, np.int64),
        np.empty(words_of(tree, 0), np.uint64),
    )
    stack = np.empty((len(nodes) + tree.state[HEIGHT] * tree.state[INNER_CAPACITY] + 1, 3), np.int64)
    arena, top, depth = np.empty(2 * len(pairs) + 64, np.int32), 0, 0
    runs.size[:] = 0
    runs.cuts[0] = 0
    complete = True
    while complete and len(nodes) > 0:
        for point in pairs:
            visits[point] += 1
        if tree.nodes[nodes[0]].level > 0:
            arena, depth = push(nodes, cuts, pairs, arena, top, stack, depth)
        else:
            complete = search_leaves(tree, points, nodes, cuts, pairs, done, runs, ahead)
        if depth == 0:
            break
        depth -= 1
        top = stack[depth, 1]
        nodes, cuts, pairs = expand(tree, stack[depth, 0], points, arena[top : stack[depth, 2]])
    return complete, offsets_of(runs, len(points)), visits


@kernel
def search_all(where: Int1, points: Float2, first_only: bool, room: Int1) -> tuple[bool, Int1, Int1]:
    """`search` of all points from the root. Tree and runs are given by their addresses."""
    tree, runs = opened_tree(where), opened_runs(room)
    nodes, cuts = np.empty(1, np.int64), np.zeros(2, np.int64)
    nodes[0], cuts[1] = tree.state[ROOT], len(points)
    return search(tree, points, nodes, cuts, np.arange(len(points)).astype(np.int32), first_only, runs)


@kernel
def search_from(
    where: Int1, points: Float2, nodes: Int1, cuts: Int1, pairs: Int32_1, room: Int1
) -> tuple[bool, Int1, Int1]:
    """`search` of all points from a frontier. Tree and runs are given by their addresses."""
    return search(opened_tree(where), points, nodes, cuts, pairs, False, opened_runs(room))


@kernel
def search_part(where: Int1, dealt_at: Int1, g: int, room: Int1) -> tuple[bool, Int1, Int1]:
    """`search` for group g of `Dealt`, in its order. All arrays are given by their addresses."""
    dealt = opened_dealt(dealt_at)
    first, last = dealt.cuts[g], dealt.cuts[g + 1]
    starts = dealt.starts[first : last + 1]
    return search(
        opened_tree(where),
        dealt.points[dealt.point_cuts[g] : dealt.point_cuts[g + 1]],
        dealt.nodes[first:last],
        starts - starts[0],
        dealt.pairs[starts[0] : starts[-1]],
        False,
        opened_runs(room),
    )
