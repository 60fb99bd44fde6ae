"""Snapshots that version 0.1.0 wrote are read, answer, live on and are saved again."""

from pathlib import Path

import numpy as np
import pytest

from oracle import as_sets
from rtfilter import EventFilter, RStarTree, Schema, SnapshotError
from rtfilter.filter import inside
from rtfilter.matching.filter_parts import KIND
from rtfilter.snapshots import arrays as snapshot

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
    assert {id: str(old[id].predicate) for id in PREDICATES} == PREDICATES
    inside(old).matcher.tree.check()
    assert inside(old).matcher.tree.capacity == (4, 4)
    assert old.subscribe("price = 2") == 16
    old.save(tmp_path / "again")
    again = EventFilter.load(tmp_path / "again")
    assert as_sets(again.match_batch(EVENTS)) == [*EXPECTED[:3], {12, 13, 16}, EXPECTED[4]]


def test_a_filter_of_0_1_0_can_take_another_matcher():
    filter = EventFilter.load(DATA / "filter-0.1.0", matcher="hashes")
    assert as_sets(filter.match_batch(EVENTS)) == EXPECTED


@pytest.mark.parametrize("wrong", [False, True])
def test_boxes_of_a_former_version_had_no_endings(tmp_path, wrong):
    schema = Schema({"a": str, "x": float, "b": str})
    filter = EventFilter(schema, matcher="masks")
    filter.subscribe_many(["a = 'u' AND b LIKE 'v%'", "x > 1", "a IS NULL AND b LIKE '%w'"])
    filter.save(tmp_path / "new")
    found = snapshot.read(tmp_path / "new", KIND)
    endings = [schema.offsets[name] + 2 for name in ("a", "b")][wrong:]
    sides = {side: np.delete(found.arrays[side], endings, axis=1) for side in ("box_low", "box_high")}
    meta = {name: fact for name, fact in found.meta.items() if name != "text_coordinates"}
    snapshot.write(tmp_path / "former", KIND, meta, {**found.arrays, **sides})
    if wrong:
        with pytest.raises(SnapshotError, match="do not fit"):
            EventFilter.load(tmp_path / "former")
        return
    former = EventFilter.load(tmp_path / "former")
    events = [{"a": "u", "b": "vw"}, {"x": 2.0, "b": "vw"}, {"b": "wv"}]
    assert as_sets(former.match_batch(events)) == as_sets(filter.match_batch(events)) == [{0}, {1, 2}, set()]


def test_a_tree_of_0_1_0_answers(old):
    tree = RStarTree.load(DATA / "tree-0.1.0")
    tree.check()
    points = old.schema.encode(EVENTS)
    former = np.delete(points, old.schema.offsets["symbol"] + 2, axis=1)  # without the ending of the text
    assert len(tree) == len(inside(old).matcher.tree)
    assert (
        np.diff(tree.search(former).offsets) == np.diff(inside(old).matcher.tree.search(points).offsets)
    ).all()
