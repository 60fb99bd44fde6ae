"""Boxes with equalities in a hash table, the others in a tree: who goes where, and what is tried."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interrupts import Interrupt, Lines
from oracle import as_sets
from rtfilter import EventFilter, Schema
from rtfilter.index.kernels import pools
from rtfilter.matchers import equal_sides, lookup, split_by_kind
from rtfilter.matchers.equal_sides import CROWDED, NODES, EqualSides
from rtfilter.replay.workloads import workload

SCHEMA = Schema({"symbol": float, "venue": float, "price": float})


def made(*rules):
    filter = EventFilter(SCHEMA, matcher="split")
    filter.subscribe_many(list(rules))
    return filter


def matcher_of(filter):
    return filter._subscriptions.matcher


def test_subscriptions_with_an_equality_are_looked_up():
    filter = made("symbol = 1 AND price > 2", "price > 2", "symbol = 1 OR price > 5", "symbol IN (1, 7)")
    assert filter.stats()["looked_up"] == 3  # those of 0 and 3, which has two boxes
    assert filter.stats()["boxes"] == 6
    events = [{"symbol": 1.0, "price": 3.0}, {"symbol": 7.0, "price": 3.0}, {"price": 6.0}, {"symbol": 1.0}]
    assert as_sets(filter.match_batch(events)) == [{0, 1, 2, 3}, {1, 3}, {1, 2}, {2, 3}]


def test_an_event_tries_those_that_wait_under_its_values():
    rules = [f"symbol = {k % 50} AND venue = 1" for k in range(500)]
    filter = made(*rules)
    table = SCHEMA.read([{"symbol": 3.0, "venue": 1.0}, {"symbol": 3.0}, {"symbol": 51.0, "venue": 2.0}])
    equal = matcher_of(filter)._lookup.equal
    _, rows, tried = equal.search(table.points)
    assert len(rows) == 10
    assert tried[0] < 80  # not all, though all wait for this venue
    assert (
        equal.estimate(table.points).tolist() == tried.tolist() == matcher_of(filter).workload(table).tolist()
    )
    assert matcher_of(filter).match(table).visits.tolist() == tried.tolist()


def test_zeros_are_equal_whatever_their_sign():
    filter = EventFilter(SCHEMA, matcher="split")
    low = np.array([[-0.0, -np.inf, -np.inf], [0.0, -np.inf, -np.inf], [-np.inf, -0.0, 1.0]])
    high = np.array([[0.0, np.inf, np.inf], [-0.0, np.inf, np.inf], [np.inf, 0.0, 2.0]])
    filter.subscribe_boxes(low, high)
    assert filter.stats()["looked_up"] == 3
    events = np.array([[x, y, 1.0] for x in (0.0, -0.0) for y in (0.0, -0.0)])
    assert as_sets(filter.match_batch(events)) == [{0, 1, 2}] * 4


def test_too_many_under_one_value_go_to_the_tree():
    count = CROWDED + lookup.PIECE
    low = np.full((count, 3), -np.inf)
    low[:, 0], high = 1.0, np.full((count, 3), np.inf)
    high[:, 0] = 1.0
    low[:, 2] = np.arange(count)
    filter = EventFilter(SCHEMA, matcher="split")
    filter.subscribe_boxes(low, high)
    assert filter.stats()["looked_up"] == lookup.PIECE
    assert filter.match_batch([{"symbol": 1.0, "price": 9.0}]).counts.tolist() == [10]
    assert filter.unsubscribe_many(np.arange(count)).all()
    assert filter.stats()["boxes"] == 0


@given(st.lists(st.integers(-30, 30), max_size=120), st.integers(0, 2**32))
def test_what_is_removed_leaves_no_trace(changes, seed):
    """A table of 2 dimensions, with as many boxes of small whole numbers as there are steps."""
    rng = np.random.default_rng(seed)
    table, held = EqualSides(2), {}
    points = np.array([[x, y] for x in range(-1, 6) for y in range(-1, 6)], float)
    for step, change in enumerate(changes):
        if change < 0 and held:
            row = list(held)[change % len(held)]
            table.remove(row)
            table.give_back(row)
            del held[row]
        else:
            low = rng.integers(0, 5, 2).astype(float)
            high = low + np.array([0, rng.integers(0, 3)])
            (row,) = table.take_rows(1).tolist()
            table.put(np.array([row]), low[None], high[None])
            held[row] = low, high
        if step % 40 == 39:
            table.pack()
    offsets, rows, _ = table.search(points)
    for at, point in enumerate(points):
        expected = {
            row for row, (low, high) in held.items() if (low <= point).all() and (point <= high).all()
        }
        found = rows[offsets[at] : offsets[at + 1]].tolist()
        assert len(found) == len(expected)
        assert set(found) == expected
    own = np.array(list(held), np.int64)
    for sides, given_ones in zip(table.boxes(own), zip(*held.values(), strict=True), strict=False):
        assert sides.tolist() == [one.tolist() for one in given_ones]
    assert len(table) == len(held)
    for row in held:
        table.remove(row)
        table.remove(row)
        table.give_back(row)
    assert len(table) == table._waiting.sum() == 0
    heads = table._heads[: int(table._state[equal_sides.BUCKETS] + table._state[equal_sides.SPLIT])]
    assert (heads == (-1, 0)).all()
    used = table._state[equal_sides.USED]
    again = table.take_rows(len(held))
    assert len(set(again.tolist())) == len(held)
    low = np.zeros((len(held), 2))
    table.put(again, low, low)
    assert table._state[NODES] == len(held)
    assert table._state[equal_sides.USED] <= used + 10 * len(held)


def test_buckets_grow_with_the_boxes_and_share_them():
    table = EqualSides(1)
    values = np.arange(10_000.0)[:, None]
    for first in range(0, 10_000, 1000):
        table.put(table.take_rows(1000), values[first : first + 1000], values[first : first + 1000])
    tried = table.estimate(values)
    assert 1 <= tried.mean() < 3
    assert tried.max() < 20
    rows = table.search(values)[1]
    assert rows.tolist() == list(range(10_000))
    table.pack()
    assert table.search(values)[1].tolist() == list(range(10_000))


@pytest.mark.slow
def test_to_pack_copies_the_boxes_and_not_the_address_space_behind_them(monkeypatch):
    monkeypatch.setattr(equal_sides, "MOST", 1 << 24)  # rows, of which a copy would take 256 MB
    values = np.arange(float(pools.LARGE // 16 + 1))[:, None]  # of buckets, with which they lie in such space
    table = EqualSides(1)
    table.put(table.take_rows(len(values)), values, values)
    tracemalloc.start()
    try:
        table.pack()
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert table.search(values)[1].tolist() == list(range(len(values)))
    more = values + len(values)
    table.put(table.take_rows(len(more)), more, more)
    assert table.search(more)[1].tolist() == list(range(len(values), 2 * len(values)))


@pytest.mark.parametrize("dimensions", [3, 24])
def test_it_finds_what_the_tree_finds(dimensions):
    own = workload("sparse", 1, dimensions)
    filters = [EventFilter(own.schema, matcher=name) for name in ("rtree", "split")]
    for filter in filters:
        own.subscribe(filter, 0, 6000)
        filter.unsubscribe_many(np.arange(0, 6000, 3))
    events = own.events(0, 300)
    tree, found = (filter.match_batch(events) for filter in filters)
    assert filters[1].stats()["looked_up"] > 3000
    assert as_sets(found) == as_sets(tree)


@pytest.mark.slow
def test_changes_that_are_cut_short_leave_all_or_nothing():
    def ready():
        return made("symbol = 1", "price > 1", "symbol IN (2, 3)")

    events = [{"symbol": float(k), "price": 2.0} for k in range(5)]
    changes = [
        lambda filter: filter.subscribe("symbol = 4 OR venue = 3", 9),
        lambda filter: filter.update(2, "symbol IN (1, 4)"),
        lambda filter: filter.unsubscribe_many([0, 2]),
    ]
    for change in changes:
        filter = ready()
        with Lines([equal_sides, lookup, split_by_kind]) as lines:
            change(filter)
        expected = [as_sets(ready().match_batch(events)), as_sets(filter.match_batch(events))]
        assert expected[0] != expected[1]
        for at in lines.ends():
            filter = ready()
            with Lines([equal_sides, lookup, split_by_kind], at), pytest.raises(Interrupt):
                change(filter)
            found = as_sets(filter.match_batch(events))
            assert found in expected
            assert filter.stats()["looked_up"] == len(matcher_of(filter)._lookup.equal)
            filter.unsubscribe_many(filter.ids())
            assert filter.stats()["boxes"] == 0
            assert not any(filter.match_batch(events).counts)
