"""Hash tables that are full hand over to larger ones bit by bit, and lose nothing on the way."""

import pickle

import numpy as np
import pytest

from lengths import long_but
from rtfilter import RStarTree
from rtfilter.index import tree as index
from rtfilter.index.kernels import hash_tables
from rtfilter.index.kernels.layout import MOVED


@pytest.fixture(autouse=True)
def bit_by_bit(monkeypatch):
    monkeypatch.setattr(index, "MOVED_AT_ONCE", 16)


def growing(rng, size=256):
    """A tree whose hash tables have just begun to move."""
    low = rng.random((size // 2, 2))
    tree = RStarTree.bulk_load(low, low + 0.1)
    assert tree._tree.tables.shape == (2, size)
    tree.insert(size // 2, [0.0, 0.0], [1.0, 1.0])
    assert tree._tree.old_tables.shape == (2, size)
    return tree


@pytest.mark.parametrize("seed", long_but(range(20), range(4)))
def test_whatever_is_done_while_tables_move_all_is_found(seed):
    rng = np.random.default_rng(seed)
    tree = growing(rng)
    known, sides = set(tree.ids().tolist()), rng.random((1000, 2))
    for step in range(40):
        if rng.random() < 0.4:
            id = int(rng.choice(sorted(known)))
            assert tree.delete(id)
            known.remove(id)
        else:
            tree.insert(1000 + step, sides[step], sides[step] + 0.1)
            known.add(1000 + step)
        tree.check()
        assert set(tree.ids().tolist()) == known
    assert not tree._tree.old_tables.size


@pytest.mark.slow
def test_an_insertion_moves_a_few_places():
    tree = growing(np.random.default_rng(1), size=1 << 15)
    moved = []
    while tree._tree.old_tables.size:
        moved.append(tree._tree.state[MOVED : MOVED + 2].max())
        tree.insert(100_000 + len(moved), [len(moved)] * 2, [len(moved) + 1.0] * 2)
    assert np.diff(moved).max() < 200
    assert len(moved) < (1 << 15) / 8
    tree.check()


def test_tables_that_move_are_saved_as_one():
    tree = growing(np.random.default_rng(2))
    for copy in (RStarTree.from_arrays(tree.to_arrays()), pickle.loads(pickle.dumps(tree))):
        assert not copy._tree.old_tables.size
        copy.check()
        assert copy.ids().tolist() == tree.ids().tolist()
    tree.check()


def test_many_boxes_at_once_finish_what_was_begun():
    rng = np.random.default_rng(3)
    tree = growing(rng)
    low = rng.random((5000, 2))
    tree.insert_many(np.arange(1000, 6000), low, low + 0.1)
    tree.check()
    assert len(tree) == 5129
    tree.insert_many(np.arange(6000, 6100), low[:100], low[:100] + 0.2)
    tree.check()


def test_a_run_of_entries_across_the_end_of_a_table_is_moved_whole():
    """All ids hash to the last place of 32, so they stand at the end of the table and at its beginning."""
    ids = [id for id in range(3000) if int(hash_tables.hash_id(id)) & 31 == 31][:60]
    tree = RStarTree(1)
    for n, id in enumerate(ids):
        tree.insert(id, [n], [n])
        tree.check()
        if n % 3 == 2:
            assert tree.delete(ids[n - 1])
            tree.check()
    assert tree.ids().tolist() == sorted(id for n, id in enumerate(ids) if n % 3 != 1)
