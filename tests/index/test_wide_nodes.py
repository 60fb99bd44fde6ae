"""The rules that are adapted for wide nodes: a change moves few entries, and loses none."""

import numpy as np
import pytest

from boxes import random_boxes, random_points
from lengths import long_but
from oracle import as_sets, matches
from rtfilter import RStarTree
from rtfilter.index.kernels import layout

MOST_MOVED = 32 + 64 + 1
"""Entries that a change moves without a split: of a node that is dissolved, reinserted ones, and its own."""


def homes(tree):
    """The leaf of each box row, -1 where there is no box."""
    slots = tree._tree.slots[: tree._tree.state[layout.USED_BOX]]
    return np.where(slots["link"] >= 0, slots["leaf"], -1)


@pytest.mark.slow
def test_a_change_moves_few_entries_and_splits_one_leaf_at_most():
    rng = np.random.default_rng(1)
    low = rng.random((4000, 3))
    tree = RStarTree.bulk_load(low[:2000], low[:2000] + 0.1, capacity=(512, 400))
    before = homes(tree)
    for i in range(3800):
        if i < 1800:
            assert tree.delete(i)
        else:
            tree.insert(200 + i, low[200 + i], low[200 + i] + 0.1)
        after = homes(tree)
        before = np.append(before, np.full(len(after) - len(before), -1, before.dtype))
        split_off = np.setdiff1d(after, before)
        assert len(split_off) <= 1
        assert ((after != before) & ~np.isin(after, split_off)).sum() <= MOST_MOVED
        before = after
    tree.check()


@pytest.mark.slow
def test_an_entry_that_would_split_another_node_goes_back():
    rng = np.random.default_rng(4)
    low = rng.random((6000, 3))
    high = low + 0.6 * rng.random((6000, 1))
    tree, leaves = RStarTree(3, (300, 250)), []
    for i in range(6000):
        tree.insert(i, low[i], high[i])
        leaves.append(tree.stats()["nodes_per_level"][-1])
    assert np.diff(leaves).max() == 1
    tree.check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "capacity", long_but([(4, 210), (210, 4), (210, 210), (4, 320)], [(4, 320), (210, 4)])
)
@pytest.mark.parametrize("seed", long_but(range(3), [0]))
def test_any_changes_keep_all_invariants(capacity, seed):
    rng = np.random.default_rng(seed)
    low, high = random_boxes(rng, 4000, 3)
    points = random_points(rng, 30, 3)
    tree = RStarTree.bulk_load(low[:1500], high[:1500], capacity=capacity)
    known, fresh, left = set(range(1500)), 1500, False
    for step in range(160):
        share = [0.05, 0.95, 0.2, 0.7][step // 40]  # of insertions
        inserted = np.arange(fresh, fresh + rng.binomial(25, share))
        fresh += len(inserted)
        for i in inserted.tolist():
            tree.insert(i, low[i], high[i])
        deleted = rng.permutation(sorted(known))[: 25 - len(inserted)]
        if step % 8 == 0:
            assert tree.delete_many(deleted).all()
        else:
            for i in deleted.tolist():
                assert tree.delete(i)
                left = left or tree._tree.state[layout.LEAVING] >= 0
        known = known - set(deleted.tolist()) | set(inserted.tolist())
        if step % 8 == 1:
            tree.check()
        if step % 20 == 0:
            tree = RStarTree.from_arrays(tree.to_arrays())
            ids = np.array(sorted(known))
            assert as_sets(tree.search(points)) == matches(low[ids], high[ids], points, ids)
    assert left or capacity[1] < 200
    tree.check()
    assert tree.delete_many(np.array(sorted(known))).all()
    tree.check()
    assert tree.height == 1
