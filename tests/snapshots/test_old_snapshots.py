"""Snapshots that version 0.1.0 wrote are read, answer, live on and are saved again."""

from pathlib import Path

import numpy as np
import pytest

from oracle import as_sets
from rtfilter import EventFilter, RStarTree

DATA = Path(__file__).parent / "data"
EVENTS = [
    {"price": 15.0, "symbol": "B", "size": 7},
    {"symbol": "abcdefghij"},
    {"symbol": "abcdefghxy", "size": 5, "halted": True},
    {"price": 2.0, "symbol": "ACME"},
    {"at": "2021-01-01T00:00:00Z", "halted": True, "size": 100},
]
EXPECTED = [{0}, {10}, {14}, {12, 13}, {10, 14, 15}]
PREDICATES = {
    0: "price >= 10 AND price <= 20 AND symbol IN ('A', 'B')",
    14: "size >= 5.0 AND halted IN (TRUE)",
}


@pytest.fixture
def old():
    return EventFilter.load(DATA / "filter-0.1.0")


def test_a_filter_of_0_1_0_answers_and_lives_on(old, tmp_path):
    removed = old.unsubscribe_many([11, 99])  # 11 was removed before it was saved
    assert removed.tolist() == [False, False]
    assert old.ids().tolist() == [0, 10, 12, 13, 14, 15]
    assert as_sets(old.match_batch(EVENTS)) == as_sets(old.stream(EVENTS).matches()) == EXPECTED
    assert {id: str(old.predicate(id)) for id in PREDICATES} == PREDICATES
    old.tree.check()
    assert old.tree.capacity == (4, 4)
    assert old.subscribe("price = 2") == 16
    old.save(tmp_path / "again")
    again = EventFilter.load(tmp_path / "again")
    assert as_sets(again.match_batch(EVENTS)) == [*EXPECTED[:3], {12, 13, 16}, EXPECTED[4]]


def test_a_filter_of_0_1_0_can_take_another_matcher():
    filter = EventFilter.load(DATA / "filter-0.1.0", matcher="hashes")
    assert as_sets(filter.match_batch(EVENTS)) == EXPECTED


def test_a_tree_of_0_1_0_answers(old):
    tree = RStarTree.load(DATA / "tree-0.1.0")
    tree.check()
    points = old.schema.encode(EVENTS)
    assert len(tree) == len(old.tree)
    assert (np.diff(tree.search(points).offsets) == np.diff(old.tree.search(points).offsets)).all()
