"""Searching: one traversal for a batch of queries, down to any level, resumable from where it stopped.

Queries are rows of one array: points, or boxes (low ends, then high ends); `selection` has the kind, and the
relation to select (`select_box`). Each node is visited once with the list of queries that reached it (the
IntersectBuffer of Wang et al.). The lists are on one stack, `arena`: the list of the top node is the last one
in the arena, and those of its children are appended after it, so memory is at most one list per level.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float2, Int1, Int32_1
from rtfilter.index.kernels.borrow import borrowed
from rtfilter.index.kernels.dealt import opened_dealt
from rtfilter.index.kernels.expand import doubled, expand, push
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    HEIGHT,
    INNER_CAPACITY,
    ONE,
    ROOT,
    STALE,
    TODO,
    WORD,
    opened_tree,
    words_for,
    words_of,
)
from rtfilter.index.kernels.leaves import AHEAD, search_leaves, search_leaves_by_boxes
from rtfilter.index.kernels.runs import offsets_of, opened_runs
from rtfilter.index.kernels.select_box import POINT
from rtfilter.index.kernels.select_point import candidates, locate, verify
from rtfilter.index.kernels.vector import trailing_zeros

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
    dealt_at: Int1,
    group: int,
    room: Int1,
) -> tuple[bool, Int1, Int1]:
    """Search for all queries, from the root or from a frontier. Tree and runs are given by address.

    The rows pairs[cuts[i]:cuts[i + 1]] of `queries` stopped at nodes[i]; without `cuts` the search starts at
    the root. With `dealt_at`, the addresses of `Dealt`, the search is for one group, in its order, and all
    these arrays are empty.

    With `first_only` a query ends after its first exact hit. Fills the runs; returns whether they had enough
    room (otherwise the rest is invalid), `offsets_of` them, and visits int64 (n,): nodes visited per query.
    """
    tree, runs = opened_tree(where), opened_runs(room)
    if len(dealt_at) > 0:
        dealt = opened_dealt(dealt_at)
        first, last = dealt.cuts[group], dealt.cuts[group + 1]
        queries = dealt.queries[dealt.query_cuts[group] : dealt.query_cuts[group + 1]]
        nodes = dealt.nodes[first:last]
        cuts = np.empty(last - first + 1, np.int64)
        for i in range(last - first + 1):
            cuts[i] = dealt.starts[first + i] - dealt.starts[first]
        pairs = dealt.pairs[dealt.starts[first] : dealt.starts[last]]
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
