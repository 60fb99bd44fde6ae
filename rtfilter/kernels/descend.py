"""Searching: one traversal for a batch of points, down to any level, resumable from where it stopped.

Each node is visited once with the list of points that reached it (the paper's IntersectBuffer; W-2 in its
corrected form). The lists live on one stack, `arena`: the list of the node on top of the stack is the last
one in the arena, and those of its children are appended behind it, so memory stays at one list per level.
"""

from typing import NamedTuple

import numpy as np

from rtfilter.kernels.grid import ONE, candidates, fetch_first, fetch_rest, locate, verify, words_of
from rtfilter.kernels.jit import kernel
from rtfilter.kernels.layout import (
    BOXES,
    CELLS,
    HEIGHT,
    INEXACT,
    INNER_CAPACITY,
    LANES,
    LINKS,
    ROOT,
    WORD,
    Array,
    Tree,
    words_for,
)
from rtfilter.kernels.vector import prefetch, trailing_zeros

#: Points whose masks are under way from memory while one is tested: the first mask of each, then the rest.
AHEAD = 2
#: Points that use most of a leaf's masks: then all of them are fetched, in order.
MANY = 64


@kernel
def doubled(array: Array) -> Array:
    """The array with twice the room."""
    larger = np.empty(max(2 * len(array), 64), array.dtype)
    larger[: len(array)] = array
    return larger


@kernel
def scratch(tree: Tree) -> tuple[Array, Array]:
    """Room to test AHEAD + 1 points at once: `rows` of `locate` for each, and `found` of `candidates`."""
    rows = np.empty((AHEAD + 1, tree.mbr.shape[2]), np.int64)
    return rows, np.empty(max(words_of(tree, 0), words_of(tree, 1)), np.uint64)


@kernel
def expand(
    tree: Tree, node: int, points: Array, arena: Array, start: int, stop: int, rows: Array, found: Array
) -> tuple[Array, Array]:
    """Distribute the points arena[start:stop] of an inner node over its children.

    Returns `sizes` int64 (count,): points per child, and the points child by child, int32.
    """
    head = tree.nodes[node]
    sizes = np.zeros(head.count, np.int64)
    hits = np.empty((max(64, 2 * (stop - start)), 2), np.int32)  # (child, point) in order of points
    used = 0
    for i in range(start, stop):
        point = arena[i]
        locate(tree, node, points[point], rows[0])
        if not candidates(tree, node, rows[0], found):
            continue
        verify(tree, node, points[point], rows[0], found)
        if used + head.count > len(hits):
            larger = np.empty((2 * len(hits) + head.count, 2), np.int32)
            larger[:used] = hits[:used]
            hits = larger
        for w in range(words_for(head.count)):
            bits = found[w]
            while bits != 0:
                j = w * WORD + trailing_zeros(bits)
                bits &= bits - ONE
                hits[used, 0], hits[used, 1] = j, point
                used += 1
                sizes[j] += 1
    place = np.cumsum(sizes) - sizes
    by_child = np.empty(used, np.int32)
    for h in range(used):
        j = hits[h, 0]
        by_child[place[j]] = hits[h, 1]
        place[j] += 1
    return sizes, by_child


@kernel
def frontier(tree: Tree, points: Array, stop_level: int) -> tuple[Array, Array, Array, Array, int]:
    """Where the paths of all points stop at nodes of `stop_level` (counted from the leaves, W-2).

    Returns nodes int64 (k,); cuts int64 (k + 1,) into pairs; pairs int32: the points of each node, ascending;
    workload int64 (n,): nodes per point; visits: (node, point) pairs expanded above.
    """
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
    rows, found = scratch(tree)
    while depth > 0:
        depth -= 1
        node, start, stop = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        if tree.nodes[node].level > stop_level:
            visits += stop - start
            sizes, by_child = expand(tree, node, points, arena, start, stop, rows, found)
            arena, depth = push_children(tree, node, sizes, by_child, arena, stop, stack, depth)
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
def push_children(
    tree: Tree,
    node: int,
    sizes: Array,
    by_child: Array,
    arena: Array,
    top: int,
    stack: Array,
    depth: int,
) -> tuple[Array, int]:
    """Put the children that points reached on the stack, their lists behind `top` in the arena."""
    while top + len(by_child) > len(arena):
        arena = doubled(arena)
    arena[top : top + len(by_child)] = by_child
    for j in range(len(sizes)):
        if sizes[j] > 0:
            stack[depth, 0] = tree.entries[tree.nodes[node].entries + j]
            stack[depth, 1] = top
            stack[depth, 2] = top + sizes[j]
            top += sizes[j]
            depth += 1
    return arena, depth


class Runs(NamedTuple):
    """Room for what a search finds: hits leaf by leaf, and in a leaf point by point.

    The same arrays serve the next search: memory that is new to the process costs more than to search it.
    """

    ids: Array  # int64
    exact: Array  # uint8, as long as `ids`; not used where each box has one link and all are exact
    points: Array  # int32: the point of each run of hits
    cuts: Array  # int64: where each run begins, one more at the end; longer than `points`


@kernel
def collect(tree: Tree, node: int, found: Array, ids: Array, exact: Array, used: int) -> int:
    """Put the ids of the entries in `found` of a leaf, and their exactness, behind the `used` first.

    Returns how many are used then, or -1 when there is no more room. (An array that may be replaced in the
    inner loop would cost ten times the rest of the loop, in reference counts.)
    """
    head = tree.nodes[node]
    plain = tree.state[LINKS] == tree.state[BOXES] and tree.state[INEXACT] == 0
    for w in range(words_for(head.count)):
        bits = found[w]
        first = head.entries + w * WORD
        if used + WORD > len(ids):
            return -1
        while bits != 0:
            slot = tree.slots[tree.entries[first + trailing_zeros(bits)]]
            bits &= bits - ONE
            if plain:
                ids[used] = slot.id
                used += 1
                continue
            link = slot.link
            while link >= 0:
                if used == len(ids):
                    return -1
                ids[used], exact[used] = tree.links[link].id, tree.links[link].exact
                used += 1
                link = tree.links[link].next
    return used


@kernel
def gather(runs: Runs, count: int, offsets: Array, ids: Array, exact: Array) -> None:
    """Write ids (and exactness, unless `exact` is empty) of the first `count` runs point by point.

    `offsets` int64 (n + 1,) says where those of each point go.
    """
    place = offsets[:-1].copy()
    for r in range(count):
        first, size = runs.cuts[r], runs.cuts[r + 1] - runs.cuts[r]
        at = place[runs.points[r]]
        for h in range(size):
            ids[at + h] = runs.ids[first + h]
        if len(exact) > 0:
            for h in range(size):
                exact[at + h] = runs.exact[first + h]
        place[runs.points[r]] = at + size


@kernel
def distinct(offsets: Array, ids: Array, exact: Array) -> None:
    """Sort the ids of each point and keep each once, exact if any of its hits was; all arrays in place."""
    used = 0
    for i in range(len(offsets) - 1):
        start, stop = offsets[i], offsets[i + 1]
        order = np.argsort(ids[start:stop])
        own_ids = ids[start:stop][order]
        own_exact = exact[start:stop][order] if len(exact) > 0 else exact
        offsets[i] = used
        for h in range(len(order)):
            again = h > 0 and own_ids[h] == own_ids[h - 1]
            if not again:
                ids[used] = own_ids[h]
                used += 1
            if len(exact) > 0:
                exact[used - 1] = own_exact[h] | (exact[used - 1] if again else np.uint8(0))
    offsets[-1] = used


@kernel
def to_fetch(tree: Tree, stack: Array, depth: int, points: int) -> tuple[int, int, int]:
    """Masks of the next leaf on the stack: from, to, and how many to fetch with each point of this one."""
    if depth == 0 or stack[depth - 1, 2] - stack[depth - 1, 1] < MANY:
        return 0, 0, 0
    following = tree.nodes[stack[depth - 1, 0]]
    if following.level > 0:
        return 0, 0, 0
    words = tree.mbr.shape[2] * CELLS * words_of(tree, 0)
    return following.masks, following.masks + words, (words // points // LANES + 1) * LANES


@kernel
def search(
    tree: Tree, points: Array, nodes: Array, cuts: Array, pairs: Array, first_only: bool, runs: Runs
) -> tuple[Runs, int, Array, Array]:
    """Finish points from a frontier: the rows pairs[cuts[i]:cuts[i + 1]] of `points` stopped at nodes[i].

    With `first_only` a point is dropped after its first exact hit. Returns the runs (in larger arrays if
    those given were too small), how many there are, offsets int64 (n + 1,) of the hits per point, and visits
    int64 (n,): nodes visited per point.
    """
    visits = np.zeros(len(points), np.int64)
    done = np.zeros(len(points), np.bool_)
    stack = np.empty((len(nodes) + tree.state[HEIGHT] * tree.state[INNER_CAPACITY] + 1, 3), np.int64)
    stack[: len(nodes), 0] = nodes
    stack[: len(nodes), 1] = cuts[:-1]
    stack[: len(nodes), 2] = cuts[1:]
    depth = len(nodes)
    arena = np.empty(2 * len(pairs) + 64, np.int32)
    arena[: len(pairs)] = pairs
    rows, found = scratch(tree)
    ids, exact, run_points, run_cuts = runs.ids, runs.exact, runs.points, runs.cuts
    offsets = np.zeros(len(points) + 1, np.int64)
    count, used = 0, 0
    run_cuts[0] = 0
    while depth > 0:
        depth -= 1
        node, start, stop = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        for i in range(start, stop):
            visits[arena[i]] += 1
        if tree.nodes[node].level > 0:
            sizes, by_child = expand(tree, node, points, arena, start, stop, rows, found)
            arena, depth = push_children(tree, node, sizes, by_child, arena, stop, stack, depth)
            continue
        few = stop - start < MANY
        next_mask, last_mask, share = to_fetch(tree, stack, depth, stop - start)
        for i in range(start, stop + AHEAD):
            if i < stop:
                ahead = rows[i % len(rows)]
                locate(tree, node, points[arena[i]], ahead)
                if few:
                    fetch_first(tree, node, ahead)
                for mask in range(next_mask, min(next_mask + share, last_mask), LANES):
                    prefetch(tree.masks, mask)
                next_mask += share
            if few and start < i <= stop:
                fetch_rest(tree, node, rows[(i - 1) % len(rows)])
            if i < start + AHEAD:
                continue
            point, own = arena[i - AHEAD], rows[(i - AHEAD) % len(rows)]
            if done[point] or not candidates(tree, node, own, found):
                continue
            verify(tree, node, points[point], own, found)
            after = collect(tree, node, found, ids, exact, used)
            while after < 0:
                ids, exact = doubled(ids), doubled(exact)
                after = collect(tree, node, found, ids, exact, used)
            if after == used:
                continue
            if first_only:
                for h in range(used, after):
                    done[point] |= tree.state[INEXACT] == 0 or exact[h] != 0
            if count == len(run_points):
                run_points, run_cuts = doubled(run_points), doubled(run_cuts)
            offsets[point + 1] += after - used
            used = after
            run_points[count] = point
            count += 1
            run_cuts[count] = used
    for i in range(len(points)):
        offsets[i + 1] += offsets[i]
    return Runs(ids, exact, run_points, run_cuts), count, offsets, visits


@kernel
def search_all(tree: Tree, points: Array, first_only: bool, runs: Runs) -> tuple[Runs, int, Array, Array]:
    """`search` of all points from the root."""
    nodes, cuts = np.empty(1, np.int64), np.zeros(2, np.int64)
    nodes[0], cuts[1] = tree.state[ROOT], len(points)
    return search(tree, points, nodes, cuts, np.arange(len(points)).astype(np.int32), first_only, runs)


@kernel
def deal(
    nodes: Array, cuts: Array, pairs: Array, order: Array, order_cuts: Array
) -> tuple[Array, Array, Array, Array]:
    """Cut a frontier into one frontier per group order[order_cuts[g]:order_cuts[g + 1]], each node by node.

    Returns part_cuts int64 (groups + 1,) into part_nodes int64 and part_starts int64 (where each node's pairs
    begin, one more at the end), and the pairs, int32: places of points within their group.
    """
    groups = len(order_cuts) - 1
    group_of = np.empty(len(order), np.int64)
    place_of = np.empty(len(order), np.int32)
    for g in range(groups):
        for i in range(order_cuts[g], order_cuts[g + 1]):
            group_of[order[i]] = g
            place_of[order[i]] = i - order_cuts[g]
    pair_count = np.zeros(groups + 1, np.int64)
    node_count = np.zeros(groups + 1, np.int64)
    last_node = np.full(groups, -1, np.int64)
    for i in range(len(nodes)):
        for p in range(cuts[i], cuts[i + 1]):
            g = group_of[pairs[p]]
            pair_count[g + 1] += 1
            if last_node[g] != i:
                last_node[g] = i
                node_count[g + 1] += 1
    pair_place = np.cumsum(pair_count)
    part_cuts = np.cumsum(node_count)
    node_place = part_cuts.copy()
    part_nodes = np.empty(part_cuts[groups], np.int64)
    part_starts = np.empty(part_cuts[groups] + 1, np.int64)
    part_starts[part_cuts[groups]] = len(pairs)
    part_pairs = np.empty(len(pairs), np.int32)
    last_node[:] = -1
    for i in range(len(nodes)):
        for p in range(cuts[i], cuts[i + 1]):
            g = group_of[pairs[p]]
            if last_node[g] != i:
                last_node[g] = i
                part_nodes[node_place[g]] = nodes[i]
                part_starts[node_place[g]] = pair_place[g]
                node_place[g] += 1
            part_pairs[pair_place[g]] = place_of[pairs[p]]
            pair_place[g] += 1
    return part_cuts, part_nodes, part_starts, part_pairs


@kernel
def search_part(
    tree: Tree,
    points: Array,
    order_cuts: Array,
    part_cuts: Array,
    part_nodes: Array,
    part_starts: Array,
    part_pairs: Array,
    g: int,
    runs: Runs,
) -> tuple[Runs, int, Array, Array]:
    """`search` for group g of `deal`; `points` are those of the batch, in its order."""
    first, last = part_cuts[g], part_cuts[g + 1]
    starts = part_starts[first : last + 1]
    return search(
        tree,
        points[order_cuts[g] : order_cuts[g + 1]],
        part_nodes[first:last],
        starts - starts[0],
        part_pairs[starts[0] : starts[-1]],
        False,
        runs,
    )
