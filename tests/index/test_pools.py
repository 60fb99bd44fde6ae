"""Pools grow, in place where they are large, and keep their content."""

import mmap

import numpy as np
import pytest

from boxes import random_boxes, random_points
from oracle import as_sets, matches
from rtfilter import RStarTree
from rtfilter.index.kernels import layout, pools

LARGE = pools.LARGE // 16
MOST = 1 << 20


def start(array):
    return array.__array_interface__["data"][0]


def rows(count, columns=2):
    return np.arange(count * columns, dtype=np.float64).reshape(count, columns)


@pytest.mark.parametrize("count", [0, 1, 1000, LARGE])
@pytest.mark.parametrize("reserves", [True, False])
def test_growing_keeps_the_content(monkeypatch, count, reserves):
    if not reserves:
        monkeypatch.setattr(pools, "_reserved", lambda least, most: None)
    grown = pools.grown(rows(count), count + 1, MOST)
    assert len(grown) > count
    assert grown.shape[1:] == (2,)
    assert (grown[:count] == rows(count)).all()
    assert start(grown) % pools.LINE == 0
    assert grown.flags.carray


def test_a_pool_with_the_room_stays():
    pool = rows(10)
    assert pools.grown(pool, 10, MOST) is pool


def test_a_small_pool_takes_little():
    assert len(pools.grown(rows(100), 101, MOST)) == 150


@pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="no address space to reserve")
def test_a_large_pool_grows_where_it_lies():
    pool = pools.grown(rows(10), LARGE, MOST)
    assert len(pool) == MOST
    pool[-1] = 7
    assert pools.grown(pool, MOST, MOST) is pool
    larger = pools.grown(pool, MOST + 1, MOST)
    assert (larger[:10] == rows(10)).all()
    assert larger[MOST - 1].tolist() == [7, 7]


@pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="no address space to reserve")
def test_limited_address_space_is_not_used_up(monkeypatch):
    monkeypatch.setattr(pools, "_address_space_is_free", lambda: False)
    assert len(pools.grown(rows(10), LARGE, MOST)) == 2 * LARGE


@pytest.mark.parametrize("moves", [True, False])
def test_a_mapped_pool_becomes_the_beginning_of_a_larger_one(monkeypatch, tmp_path, moves):
    if not moves:
        monkeypatch.setattr(pools, "_mremap", lambda: None)
    rows(LARGE + 5).tofile(tmp_path / "pool")
    mapped = np.asarray(np.memmap(tmp_path / "pool", np.float64, "c", shape=(LARGE + 5, 2)))
    grown = pools.grown(mapped, LARGE + 6, MOST)
    assert (grown[: LARGE + 5] == rows(LARGE + 5)).all()
    assert grown[LARGE + 5].tolist() == [0, 0]
    grown[0], grown[-1] = -1, -2
    assert (mapped == rows(LARGE + 5)).all()
    del mapped
    assert (grown[1 : LARGE + 5] == rows(LARGE + 5)[1:]).all()
    assert (np.fromfile(tmp_path / "pool") == rows(LARGE + 5).ravel()).all()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["reserved", "copied", "small"])
@pytest.mark.parametrize("capacity", [(4, 4), (8, 64), (512, 4096)])
def test_a_tree_answers_wherever_its_pools_lie(monkeypatch, tmp_path, capacity, way):
    if way != "small":
        monkeypatch.setattr(pools, "LARGE", 64)
    if way == "copied":
        monkeypatch.setattr(pools, "_reserved", lambda least, most: None)
    rng = np.random.default_rng(3)
    low, high = random_boxes(rng, 900, 3)
    points = random_points(rng, 40, 3)
    RStarTree.bulk_load(low[:300], high[:300], capacity=capacity).save(tmp_path / "tree")
    tree, other = (RStarTree.load(tmp_path / "tree") for _ in range(2))
    for i in range(300, 600):
        tree.insert(i, low[i], high[i])
    tree.insert_many(np.arange(600, 900), low[600:], high[600:])
    assert tree.delete(0)
    assert tree.delete_many(np.arange(1, 500)).all()
    for own, first, last in ((tree, 500, 900), (other, 0, 300)):
        own.check()
        expected = matches(low[first:last], high[first:last], points, np.arange(first, last))
        assert as_sets(own.search(points)) == expected
    assert tree.nbytes < 100_000_000


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="memory cannot be given back")
def test_whole_pages_are_given_back_and_others_stay():
    pool = pools.grown(rows(0), LARGE, MOST)
    page = mmap.PAGESIZE // 16
    pool[: 4 * page] = 1
    assert pools.give_back(pool, 1, 3 * page - 1) == mmap.PAGESIZE
    assert (pool[:page] == 1).all()
    assert (pool[page : 2 * page] == 0).all()
    assert (pool[2 * page : 4 * page] == 1).all()
    assert pools.give_back(pool, 1, page) == 0
    assert pools.give_back(rows(LARGE), 0, LARGE) == 0


def test_leaves_that_are_dissolved_give_their_memory_back(monkeypatch):
    monkeypatch.setattr(pools, "LARGE", 64)
    given, give_back = [], pools.give_back
    monkeypatch.setattr(layout, "give_back", lambda *what: given.append(give_back(*what)))
    rng = np.random.default_rng(4)
    low = rng.random((4000, 12))
    tree = RStarTree.bulk_load(low[:2000], low[:2000] + 0.1, capacity=(512, 256))
    leaves = tree.stats()["nodes_per_level"][-1]
    for i in range(1800):
        tree.delete(i)
    fewer = tree.stats()["nodes_per_level"][-1]
    assert fewer < leaves / 2
    if hasattr(mmap, "MADV_DONTNEED"):
        masks = 12 * layout.CELLS * 256 // 8
        assert sum(given) >= (leaves - fewer) * (masks - 2 * mmap.PAGESIZE)
    for i in range(2000, 4000):
        tree.insert(i, low[i], low[i] + 0.1)
    tree.check()
    tree.delete_many(np.arange(1800, 4000))
    tree.check()
