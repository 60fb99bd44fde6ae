"""Packing a whole tree; many leaves on two threads if there are two cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np

from rtfilter.index.kernels import hash_tables as tables
from rtfilter.index.kernels import layout, pack
from rtfilter.index.kernels.array_types import Bool1, Float2, Float3, Int1
from rtfilter.index.kernels.layout import Tree
from rtfilter.index.kernels.pools import use_huge_pages

#: Share of its capacity that bulk loading fills of a node, to leave room for later insertions. Leaves of the
#: default capacity hold seven whole vectors of mask words.
FILL = 7 / 8
#: Number of boxes from which a second thread is worth its start.
PARALLEL = 50_000
#: Number of boxes in the sample that a cut is chosen on.
LEAST_SAMPLE, MOST_SAMPLE = 64, 512
#: Number of entries in the sample that the order of a node is chosen on.
NODE_SAMPLE = 128


def load(tree: Tree, ids: Int1, low: Float2, high: Float2, exact: Bool1) -> None:
    """Fill an empty tree, which has room for n > 0 boxes and links (see `RStarTree.bulk_load`)."""
    inner, leaf = (int(tree.state[c]) for c in (layout.INNER_CAPACITY, layout.LEAF_CAPACITY))
    table = np.full(tree.tables.shape[1], -1, np.int32)
    first = tables.distinct(low, high, table)
    rows = np.flatnonzero(first == np.arange(len(ids)))
    threads = 2 if len(rows) >= PARALLEL and _cores() > 1 else 1
    cuts = grouped(pack.frame_boxes(tree, low, high, rows), rows, int(leaf * FILL), threads)
    for pool, count in ((tree.bounds, len(rows)), (tree.slots, len(rows)), (tree.links, len(ids))):
        use_huge_pages(pool, count)
    pack.fill_tables(tree, ids, low, high, exact, first, table, rows)
    entries, level = np.arange(len(rows)), 0
    while True:
        count = len(cuts) - 1
        nodes = pack.new_nodes(tree, level, count)
        layout.use_huge_pages_for_rows(tree)
        fill = partial(pack.fill_nodes, tree, nodes, entries.astype(np.int32), cuts)
        middle = count // threads
        _in_parallel(fill, [(0, middle), (middle, count)] if 0 < middle < count else [(0, count)])
        if count == 1:
            tree.state[layout.ROOT] = nodes[0]
            tree.state[layout.HEIGHT] = level + 1
            return
        entries, level = nodes, level + 1
        cuts = grouped(pack.frame_nodes(tree, entries), entries, int(inner * FILL), threads=1)


def grouped(boxes: Float3, rows: Int1, target: int, threads: int) -> Int1:
    """Reorder `rows`, one for each framed box, into groups of at most `target`; return their int64 bounds."""
    places = np.arange(len(rows))
    groups = -(-len(rows) // target)
    sample = min(max(target, LEAST_SAMPLE), MOST_SAMPLE)
    bounds = [0, groups]
    if threads > 1 and groups > 1:
        bounds.insert(1, _cut(boxes, places, groups, sample))
    cuts = np.zeros(groups + 1, np.int64)

    def cut(first: int, last: int) -> None:
        start, stop = len(rows) * first // groups, len(rows) * last // groups
        own = pack.group(boxes, places[start:stop], last - first, sample)
        pack.sort_blocks(boxes, places[start:stop], own, NODE_SAMPLE)
        cuts[first + 1 : last + 1] = start + own[1:]

    _in_parallel(cut, list(pairwise(bounds)))
    rows[:] = rows[places]
    return cuts


def _cut(boxes: Float3, places: Int1, groups: int, sample: int) -> int:
    """Reorder the places for the best cut, and return the number of groups before it."""
    k, kind, parts = pack.choose_cut(boxes, places, groups, sample)
    order = np.argpartition(pack.keys_of(boxes, k, kind)[places], len(places) * parts // groups)
    places[:] = places[order]
    return int(parts)


def _in_parallel(work: Callable[[int, int], None], parts: Sequence[tuple[int, int]]) -> None:
    """Call `work` for each part (first, last), each in its own thread; kernels do not hold the GIL."""
    if len(parts) == 1:
        work(*parts[0])
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        for running in [pool.submit(work, *part) for part in parts]:
            running.result()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
