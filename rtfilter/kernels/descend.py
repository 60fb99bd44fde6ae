"""Searching: one traversal for a batch of points, down to any level, resumable from where it stopped.

Each node is visited once with the list of points that reached it (the paper's IntersectBuffer; W-2 in its
corrected form). The lists live on one stack, `arena`: the list of the node on top of the stack is the last
one in the arena, and those of its children are appended behind it, so memory stays at one list per level.
"""

import numpy as np

from rtfilter.kernels.grid import ONE, candidates, fetch, locate, verify, words_of
from rtfilter.kernels.jit import kernel
from rtfilter.kernels.layout import (
    CELLS,
    HEIGHT,
    IDS,
    INNER_CAPACITY,
    LANES,
    LINKS,
    ROOT,
    WORD,
    Array,
    Tree,
)
from rtfilter.kernels.vector import prefetch, trailing_zeros

AHEAD = 2  # points whose masks are under way from memory while one is tested
MANY = 64  # points that use most of a leaf's masks: then all of them are fetched, in order


@kernel
def doubled(array: Array) -> Array:
    """The array with twice the room."""
    larger = np.empty(2 * len(array) + 64, array.dtype)
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
        for w in range((head.count + WORD - 1) // WORD):
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


@kernel
def collect(tree: Tree, node: int, found: Array, ids: Array, exact: Array, used: int) -> int:
    """Put the ids of the entries in `found` of a leaf behind the `used` first of `ids`.

    Returns how many are used then, or -1 when `ids` is too short. (An array that may be replaced in the inner
    loop would cost ten times the rest of the loop, in reference counts.)
    """
    head = tree.nodes[node]
    for w in range((head.count + WORD - 1) // WORD):
        bits = found[w]
        first = head.entries + w * WORD
        while bits != 0:
            link = tree.slots[tree.entries[first + trailing_zeros(bits)]].link
            bits &= bits - ONE
            while link >= 0:
                if used == len(ids):
                    return -1
                ids[used] = tree.links[link].id
                exact[used] = tree.links[link].exact
                used += 1
                link = tree.links[link].next
    return used


@kernel
def gather(
    n: int, points: Array, cuts: Array, hit_ids: Array, hit_exact: Array, distinct: bool
) -> tuple[Array, Array, Array]:
    """Hits point by point, from runs: those at cuts[r]:cuts[r + 1] are of points[r].

    Returns offsets int64 (n + 1,), ids int64, exact uint8. With `distinct` the ids of a point are sorted and
    each is kept once, exact if any of its hits was.
    """
    offsets = np.zeros(n + 1, np.int64)
    for r in range(len(points)):
        offsets[points[r] + 1] += cuts[r + 1] - cuts[r]
    for i in range(n):
        offsets[i + 1] += offsets[i]
    place = offsets[:-1].copy()
    ids = np.empty(offsets[n], np.int64)
    exact = np.empty(offsets[n], np.uint8)
    for r in range(len(points)):
        at, many = place[points[r]], cuts[r + 1] - cuts[r]
        ids[at : at + many] = hit_ids[cuts[r] : cuts[r + 1]]
        exact[at : at + many] = hit_exact[cuts[r] : cuts[r + 1]]
        place[points[r]] += many
    if not distinct:
        return offsets, ids, exact
    used = 0
    for i in range(n):
        start, stop = offsets[i], offsets[i + 1]
        order = np.argsort(ids[start:stop])
        own_ids, own_exact = ids[start:stop][order], exact[start:stop][order]
        offsets[i] = used
        for h in range(len(order)):
            if h > 0 and own_ids[h] == own_ids[h - 1]:
                exact[used - 1] |= own_exact[h]
            else:
                ids[used], exact[used] = own_ids[h], own_exact[h]
                used += 1
    offsets[n] = used
    return offsets, ids[:used].copy(), exact[:used].copy()


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
    tree: Tree, points: Array, nodes: Array, cuts: Array, pairs: Array, first_only: bool
) -> tuple[Array, Array, Array, Array]:
    """Finish points from a frontier: the rows pairs[cuts[i]:cuts[i + 1]] of `points` stopped at nodes[i].

    With `first_only` a point is dropped after its first exact hit. Returns the hits of `gather` and visits
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
    hit_ids = np.empty(len(points) + 64, np.int64)
    hit_exact = np.empty(len(points) + 64, np.uint8)
    run_points = np.empty(len(points) + 64, np.int32)
    run_cuts = np.zeros(len(points) + 65, np.int64)
    runs, used = 0, 0
    while depth > 0:
        depth -= 1
        node, start, stop = stack[depth, 0], stack[depth, 1], stack[depth, 2]
        for i in range(start, stop):
            visits[arena[i]] += 1
        if tree.nodes[node].level > 0:
            sizes, by_child = expand(tree, node, points, arena, start, stop, rows, found)
            arena, depth = push_children(tree, node, sizes, by_child, arena, stop, stack, depth)
            continue
        next_mask, last_mask, share = to_fetch(tree, stack, depth, stop - start)
        for i in range(start, stop + AHEAD):
            if i < stop:
                ahead = rows[i % len(rows)]
                locate(tree, node, points[arena[i]], ahead)
                if stop - start < MANY:
                    fetch(tree, node, ahead)
                for mask in range(next_mask, min(next_mask + share, last_mask), LANES):
                    prefetch(tree.masks, mask)
                next_mask += share
            if i < start + AHEAD:
                continue
            point, own = arena[i - AHEAD], rows[(i - AHEAD) % len(rows)]
            if done[point] or not candidates(tree, node, own, found):
                continue
            verify(tree, node, points[point], own, found)
            after = collect(tree, node, found, hit_ids, hit_exact, used)
            while after < 0:
                hit_ids, hit_exact = doubled(hit_ids), doubled(hit_exact)
                after = collect(tree, node, found, hit_ids, hit_exact, used)
            used = after
            if used == run_cuts[runs]:
                continue
            done[point] = first_only and hit_exact[run_cuts[runs] : used].any()
            if runs == len(run_points):
                run_points, run_cuts = doubled(run_points), doubled(run_cuts)
            run_points[runs] = point
            runs += 1
            run_cuts[runs] = used
    several = tree.state[LINKS] > tree.state[IDS]  # then an id may be met twice
    offsets, ids, exact = gather(
        len(points), run_points[:runs], run_cuts[: runs + 1], hit_ids, hit_exact, several
    )
    return offsets, ids, exact, visits


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
) -> tuple[Array, Array, Array, Array]:
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
    )
