"""Searching: one traversal for a batch of queries, down to any level, resumable from where it stopped.

Queries are rows of one array: points, or boxes (low ends, then high ends); `selection` has the kind, and the
relation to select (`select_box`). Each node is visited once with the list of queries that reached it (the
IntersectBuffer of Wang et al.). The lists are on one stack, `arena`: the list of the top node is the last one
in the arena, and those of its children are appended after it, so memory is at most one list per level.

The search of leaves by points is one pipeline through all leaves, so that masks are fetched from memory
before they are needed, also those of the next leaf.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtfilter.index.kernels.array_types import Bool1, Float2, Int1, Int2, Int32_1, Word1, Word2
from rtfilter.index.kernels.borrow import borrowed
from rtfilter.index.kernels.frontiers import opened_parts
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    CELLS,
    HEIGHT,
    INNER_CAPACITY,
    LANES,
    ONE,
    ROOT,
    STALE,
    TODO,
    WORD,
    Tree,
    opened_tree,
    words_for,
    words_of,
)
from rtfilter.index.kernels.runs import Runs, keep, offsets_of, opened_runs
from rtfilter.index.kernels.select_box import POINT, select_box
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


#: Points whose masks are under way from memory while one is tested: the first mask of each, then the rest.
AHEAD = 2
#: Points that use most of a leaf's masks: then all of them are fetched, in order.
MANY = 128


@kernel
def to_fetch(tree: Tree, nodes: Int1, cuts: Int1, i: int) -> tuple[int, int, int]:
    """Return masks of the leaf after nodes[i]: first, last, and how many to fetch per point of nodes[i]."""
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

    `done` (bool, n) marks points that need no further hit; empty if all hits are wanted.
    """
    leaves, cuts, pairs, done = borrowed((leaves, cuts, pairs, done))
    rows, leaf_of, found = borrowed(ahead)
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
        if not keep(tree, leaf_of[place], point, found, done, runs):
            return False
    return True


@kernel
def search_leaves_by_boxes(
    tree: Tree,
    boxes: Float2,
    selection: int,
    leaves: Int1,
    cuts: Int1,
    pairs: Int32_1,
    done: Bool1,
    runs: Runs,
    found: Word1,
) -> bool:
    """Add the hits of query boxes to the runs, if there is room; see `search_leaves`."""
    leaves, cuts, pairs, done, found = borrowed((leaves, cuts, pairs, done, found))
    unsure = np.empty_like(found)
    for i in range(len(leaves)):
        for query in pairs[cuts[i] : cuts[i + 1]]:
            if len(done) > 0 and done[query]:
                continue
            if not select_box(tree, leaves[i], boxes[query], selection, found, unsure):
                continue
            if not keep(tree, leaves[i], query, found, done, runs):
                return False
    return True


#: Arguments of `search` for a search from the root.
FROM_ROOT = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), 0
#: Results of `search_one`: it needs larger runs; the tree or the point cannot be searched.
NO_ROOM, WRONG = -1, -2


@kernel
def first_nan(points: Float2) -> int:
    """Return the row of the first point with a NaN coordinate, -1 if there is none."""
    for i in range(points.shape[0]):
        for k in range(points.shape[1]):
            if points[i, k] != points[i, k]:
                return i
    return -1


@kernel
def frontier(
    where: Int1, queries: Float2, selection: int, stop_level: int
) -> tuple[Int1, Int1, Int32_1, Int1, int]:
    """Return the nodes of `stop_level`, counted from the leaves, at which the paths of all queries stop.

    Returns nodes int64 (k,); cuts int64 (k + 1,) into pairs; pairs int32: each node's queries, ascending;
    workload int64 (n,): nodes per query; visits: (node, query) pairs expanded above.
    """
    tree = opened_tree(where)
    n = len(queries)
    workload = np.zeros(n, np.int64)
    arena = np.empty(4 * n + 64, np.int32)
    for i in range(n):
        arena[i] = i
    stack = np.empty((tree.state[HEIGHT] * tree.state[INNER_CAPACITY] + 1, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = tree.state[ROOT], 0, n
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
            children, child_cuts, by_child = expand(tree, node, queries, selection, arena[start:stop])
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
def search(
    where: Int1,
    queries: Float2,
    selection: int,
    first_only: bool,
    nodes: Int1,
    cuts: Int1,
    pairs: Int32_1,
    parts_at: Int1,
    group: int,
    room: Int1,
) -> tuple[bool, Int1, Int1]:
    """Search for all queries, from the root or from a frontier. Tree and runs are given by address.

    The rows pairs[cuts[i]:cuts[i + 1]] of `queries` stopped at nodes[i]; without `cuts` the search starts at
    the root. With `parts_at`, the addresses of `PartArrays`, the search is for one group, in its order, and
    all these arrays are empty.

    With `first_only` a query ends after its first exact hit. Fills the runs; returns whether they had enough
    room (otherwise the rest is invalid), `offsets_of` them, and visits int64 (n,): nodes visited per query.
    """
    tree, runs = opened_tree(where), opened_runs(room)
    if len(parts_at) > 0:
        parts = opened_parts(parts_at)
        first, last = parts.cuts[group], parts.cuts[group + 1]
        queries = parts.queries[parts.query_cuts[group] : parts.query_cuts[group + 1]]
        nodes = parts.nodes[first:last]
        cuts = np.empty(last - first + 1, np.int64)
        for i in range(last - first + 1):
            cuts[i] = parts.starts[first + i] - parts.starts[first]
        pairs = parts.pairs[parts.starts[first] : parts.starts[last]]
    elif len(cuts) == 0:
        nodes, cuts, pairs = np.empty(1, np.int64), np.empty(2, np.int64), np.empty(len(queries), np.int32)
        nodes[0], cuts[0], cuts[1] = tree.state[ROOT], 0, len(queries)
        for i in range(len(queries)):
            pairs[i] = i
    queries = borrowed(queries)
    visits = np.zeros(len(queries), np.int64)
    done = np.zeros(len(queries) if first_only else 0, np.bool_)
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
        for query in pairs:
            visits[query] += 1
        if tree.nodes[nodes[0]].level > 0:
            arena, depth = push(nodes, cuts, pairs, arena, top, stack, depth)
        elif selection == POINT:
            complete = search_leaves(tree, queries, nodes, cuts, pairs, done, runs, ahead)
        else:
            complete = search_leaves_by_boxes(
                tree, queries, selection, nodes, cuts, pairs, done, runs, ahead[2]
            )
        if depth == 0:
            break
        depth -= 1
        top = stack[depth, 1]
        nodes, cuts, pairs = expand(tree, stack[depth, 0], queries, selection, arena[top : stack[depth, 2]])
    return complete, offsets_of(runs, len(queries)), visits


@kernel
def search_one(where: Int1, queries: Float2, first_only: bool, room: Int1) -> int:
    """Search for one point, with little cost in addition to the visited nodes; see `search`.

    Its hits are the first ``runs.size[1]`` of the runs. Returns the number of visited nodes, `NO_ROOM` or
    `WRONG`. It makes no lists of points for each child, and returns one number to Python.
    """
    tree, runs, queries = opened_tree(where), opened_runs(room), borrowed(queries)
    point = queries[0]
    if tree.state[TODO] > 0 or tree.state[STALE] >= 0:
        return WRONG
    for k in range(len(point)):
        if point[k] != point[k]:
            return WRONG
    # One array for all lists: each new array takes 40 ns.
    most = tree.state[INNER_CAPACITY] if tree.state[HEIGHT] > 1 else 1
    masks, width = max(words_of(tree, 0), words_of(tree, 1)), (AHEAD + 1) * len(point)
    waiting = tree.state[HEIGHT] * most + 1
    memory = np.empty(waiting + width + AHEAD + masks + 3 * most + 3, np.int64)
    stack, depth = memory[:waiting], 1  # counted: numba frees memory after the last use of a counted array
    rest = borrowed(memory)[waiting:]
    rows, rest = rest[:width].reshape(AHEAD + 1, len(point)), rest[width:]
    found, rest = rest[:masks].view(np.uint64), rest[masks:]
    ahead, rest = (rows, rest[: AHEAD + 1], found), rest[AHEAD + 1 :]
    leaves, cuts, pairs = rest[:most], rest[most : 2 * most + 1], rest[2 * most + 1 : 3 * most + 1]
    pairs, rows = pairs.view(np.int32), ahead[0]
    done = np.zeros(1 if first_only else 0, np.bool_)
    cuts[0] = 0
    stack[0] = tree.state[ROOT]
    runs.size[:] = 0
    runs.cuts[0] = 0
    visits = 1
    while depth > 0:
        depth -= 1
        node, reached = stack[depth], 0
        head = tree.nodes[node]
        if head.level == 0:
            leaves[0], cuts[1], pairs[0], reached = node, 1, 0, 1
        else:
            locate(tree, node, point, rows[0])
            if candidates(tree, node, rows[0], True, found):
                verify(tree, node, point, rows[0], found)
                for w in range(words_for(head.count)):
                    bits = found[w]
                    while bits != 0:
                        child = tree.entries[head.entries + w * WORD + trailing_zeros(bits)]
                        bits &= bits - ONE
                        visits += 1
                        if head.level == 1:
                            leaves[reached], cuts[reached + 1], pairs[reached] = child, reached + 1, 0
                            reached += 1
                        else:
                            stack[depth] = child
                            depth += 1
        if reached > 0 and not search_leaves(
            tree, queries, leaves[:reached], cuts[: reached + 1], pairs[:reached], done, runs, ahead
        ):
            return NO_ROOM
        if first_only and done[0]:
            break
    return visits
