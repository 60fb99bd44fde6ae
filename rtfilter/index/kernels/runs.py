"""The hits of a search, and their copy in the order of the queries.

A search finds its hits leaf by leaf, and in a leaf query by query: each such *run* is appended, and all are
copied to their places at the end.
"""

from typing import NamedTuple

import numpy as np

from rtfilter.index.kernels.array_types import Bool1, Byte1, Int1, Int32_1, Word1
from rtfilter.index.kernels.borrow import ByAddress, borrowed
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import BOXES, INEXACT, LINKS, ONE, WORD, Tree, words_for
from rtfilter.index.kernels.vector import trailing_zeros

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # spreads ids over the bits of a hash, upper ones best


class Runs(NamedTuple):
    """Room for the results of a search: hits leaf by leaf, and in a leaf point by point.

    The next search uses the same arrays: the first write to new memory takes longer than the search.
    """

    ids: Int1  # int64
    exact: Byte1  # uint8, as long as `ids`; not used where each box has one link and all are exact
    queries: Int32_1  # int32: the query of each run of hits
    cuts: Int1  # int64: where each run begins, one more at the end; longer than `queries`
    size: Int1  # int64 (2,): how many runs there are, and hits in them


def room_for(hits: int) -> Runs:
    """Return room for `hits` hits."""
    return Runs(
        ids=np.empty(hits, np.int64),
        exact=np.empty(hits, np.uint8),
        queries=np.empty(hits, np.int32),
        cuts=np.empty(hits + 1, np.int64),
        size=np.zeros(2, np.int64),
    )


RUNS_BY_ADDRESS = ByAddress(lambda: room_for(1))
opened_runs = RUNS_BY_ADDRESS.opened


@kernel
def collect(tree: Tree, node: int, found: Word1, ids: Int1, exact: Byte1, used: int) -> int:
    """Write the ids of the entries in `found` of a leaf, and their exactness, after the first `used`.

    Returns the new number of used places, or -1 if there is no more room.
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
def keep(tree: Tree, leaf: int, query: int, found: Word1, done: Bool1, runs: Runs) -> bool:
    """Add a run: the ids of the entries in `found` of a leaf, for a query. Return False without room.

    `done`, unless empty, is set for a query with an exact hit.
    """
    tree, runs = borrowed((tree, runs))
    run, used = runs.size
    after = collect(tree, leaf, found, runs.ids, runs.exact, used)
    if after < 0 or run == len(runs.queries):
        return False
    if after > used:
        for h in range(used if len(done) > 0 else after, after):
            done[query] |= tree.state[INEXACT] == 0 or runs.exact[h] != 0
        runs.queries[run] = query
        runs.cuts[run + 1] = after
        runs.size[0], runs.size[1] = run + 1, after
    return True


@kernel
def offsets_of(runs: Runs, queries: int) -> Int1:
    """Return the offset of the hits of each of `queries` queries, int64 (queries + 1,)."""
    offsets = np.zeros(queries + 1, np.int64)
    for r in range(runs.size[0]):
        offsets[runs.queries[r] + 1] += runs.cuts[r + 1] - runs.cuts[r]
    for i in range(queries):
        offsets[i + 1] += offsets[i]
    return offsets


@kernel
def gather(room: Int1, offsets: Int1, ids: Int1, exact: Byte1) -> None:
    """Write ids (and exactness, unless `exact` is empty) of the runs query by query, by `offsets_of`."""
    runs = opened_runs(room)
    place = offsets[:-1].copy()
    for r in range(runs.size[0]):
        first, size = runs.cuts[r], runs.cuts[r + 1] - runs.cuts[r]
        at = place[runs.queries[r]]
        for h in range(size):
            ids[at + h] = runs.ids[first + h]
        if len(exact) > 0:
            for h in range(size):
                exact[at + h] = runs.exact[first + h]
        place[runs.queries[r]] = at + size


@kernel
def distinct(offsets: Int1, ids: Int1, exact: Byte1) -> None:
    """Keep each id of a query once, exact if any of its hits was; all arrays in place.

    A hash table has the place of each id. Places of former queries are below those of the present one, so the
    table is never cleared.
    """
    offsets, ids, exact = borrowed((offsets, ids, exact))
    most, used = 1, 0
    for i in range(len(offsets) - 1):
        most = max(most, offsets[i + 1] - offsets[i])
    bits = 1
    while most >> (bits - 1) > 0:  # at most half of it is in use
        bits += 1
    table = np.full(1 << bits, -1, np.int64)
    shift, last = np.uint64(64 - bits), len(table) - 1
    for i in range(len(offsets) - 1):
        start, stop, first = offsets[i], offsets[i + 1], used
        for h in range(start, stop):
            slot = np.int64((np.uint64(ids[h]) * GOLDEN) >> shift)
            while table[slot] >= first and ids[table[slot]] != ids[h]:
                slot = (slot + 1) & last
            if table[slot] < first:
                table[slot], ids[used] = used, ids[h]
                if len(exact) > 0:
                    exact[used] = exact[h]
                used += 1
            elif len(exact) > 0:
                exact[table[slot]] |= exact[h]
        offsets[i] = first
    offsets[-1] = used
