"""Bulk loading: the same tree on one thread and on two, in leaves of whole vectors, sorted."""

import threading

import numpy as np
import pytest

from rtfilter import RStarTree
from rtfilter.index import bulk
from rtfilter.index.kernels.layout import LANES, USED_NODE, WORD

rng = np.random.default_rng(11)


def boxes(count, d=3, side=0.2):
    low = rng.random((count, d)) * (1 - side)
    return low, low + side


def leaf_rows(tree):
    """The rows of the entries of each leaf, in their order."""
    nodes, entries = tree._tree.nodes, tree._tree.entries
    used = nodes[: tree._tree.state[USED_NODE]]
    return [entries[head["entries"] :][: head["count"]] for head in used if head["level"] == 0]


@pytest.mark.slow
@pytest.mark.parametrize("repeated", [False, True])
def test_two_threads_pack_what_one_packs(monkeypatch, repeated):
    low, high = boxes(20_000)
    if repeated:
        low[10_000:], high[10_000:] = low[:10_000], high[:10_000]
    points = rng.random((300, 3))
    found = []
    for cores in (1, 2):
        monkeypatch.setattr(bulk, "PARALLEL", 100)
        monkeypatch.setattr(bulk, "_cores", lambda cores=cores: cores)
        tree = RStarTree.bulk_load(low, high, capacity=(8, 64))
        tree.check()
        found.append([sorted(ids) for ids in tree.search(points)])
    assert found[0] == found[1]


def test_a_failing_thread_is_not_swallowed(monkeypatch):
    fill = bulk.pack.fill_nodes

    def fail(*given):
        # Elsewhere it works: the levels above the leaves are filled by the thread that waits.
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError("no room")
        fill(*given)

    monkeypatch.setattr(bulk, "PARALLEL", 100)
    monkeypatch.setattr(bulk, "_cores", lambda: 2)
    monkeypatch.setattr(bulk.pack, "fill_nodes", fail)
    with pytest.raises(MemoryError, match="no room"):
        RStarTree.bulk_load(*boxes(5000), capacity=(8, 64))


def test_leaves_hold_whole_vectors_of_mask_words():
    tree = RStarTree.bulk_load(*boxes(40_000))
    assert max(map(len, leaf_rows(tree))) <= 7 * LANES * WORD


def test_entries_of_a_vector_lie_together_in_one_dimension():
    low, high = boxes(20_000, d=4, side=0.1)
    tree = RStarTree.bulk_load(low, high)
    bounds = tree._tree.bounds
    shares = []
    for rows in leaf_rows(tree):
        whole = bounds[rows, 1].max(axis=0) - bounds[rows, 0].min(axis=0)
        extents = [
            bounds[part, 1].max(axis=0) - bounds[part, 0].min(axis=0)
            for part in np.array_split(rows, -(-len(rows) // (LANES * WORD)))
        ]
        shares.append((np.mean(extents, axis=0) / whole).min())
    assert np.mean(shares) < 0.5


def test_the_dimension_they_lie_together_in_is_tested_first():
    low, high = boxes(3000, d=4, side=0.6)
    low[:, 2] = rng.random(3000)  # the others say little
    high[:, 2] = low[:, 2] + 0.01
    tree = RStarTree.bulk_load(low, high)
    assert tree._tree.ranking[tree._tree.state[0], 0] == 2


def test_minus_zero_is_zero():
    tree = RStarTree.bulk_load([[-0.0], [0.0]], [[1.0], [1.0]])
    tree.check()
    assert tree.stats()["boxes"] == 1


def test_the_ids_of_one_box_lie_side_by_side():
    """A search reads them all: scattered, each would wait for memory."""
    rng = np.random.default_rng(3)
    low = rng.integers(0, 20, (2000, 1)).astype(float)
    tree = RStarTree.bulk_load(low, low + 1)
    slots, links = tree._tree.slots, tree._tree.links
    for box in range(20):
        chain = [int(slots[box]["link"])]
        while links[chain[-1]]["next"] >= 0:
            chain.append(int(links[chain[-1]]["next"]))
        assert chain == list(range(chain[0], chain[0] - len(chain), -1))
    tree.check()
