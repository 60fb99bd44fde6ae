"""Copies, and the log of changes that they and others follow."""

import pickle
import threading

import numpy as np
import pytest

from examples import SCHEMA, random_events, random_predicate
from kinds import BOXED, EACH
from lengths import long_but
from oracle import as_sets, subscribers
from rtfilter import EventFilter, Schema
from rtfilter.filter import inside, part_of
from rtfilter.matching import copies
from rtfilter.snapshots import arrays as snapshot
from rtfilter.subscriptions import slices
from rtfilter.subscriptions.content import Subscriptions


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(slices, "SLICE", 16)
    monkeypatch.setattr(copies, "FEW", 4)


class Meanwhile:
    """Changes a filter at random whenever a copy has read a slice."""

    def __init__(self, monkeypatch, filter, seed, changes):
        self.filter, self.rng = filter, np.random.default_rng(seed)
        self.left, self.packed, read = changes, False, copies.Copy._read

        def read_and_change(*arguments):
            found = read(*arguments)
            for _ in range(3):
                if self.left:
                    self.left -= 1
                    self.change()
            return found

        def empty_and_change(own, of=None, schema=None):
            if not self.packed:
                self.packed = True
                self.change()  # after all was read, before it is packed
            return empty(own, of, schema)

        empty = Subscriptions.empty
        if changes:
            monkeypatch.setattr(Subscriptions, "empty", empty_and_change)
        monkeypatch.setattr(copies.Copy, "_read", read_and_change)

    def change(self):
        ids = self.filter.ids()
        id, source = int(self.rng.choice(ids)), random_predicate(self.rng)
        kind = self.rng.integers(4)
        if kind == 0:
            self.filter.unsubscribe(id)
        elif kind == 1:
            self.filter.update(id, source)
        elif kind == 2:
            self.filter.subscribe(source)
        else:
            self.filter.unsubscribe(id)
            self.filter.subscribe("FALSE" if self.rng.integers(2) else source, id)


def content(filter):
    predicates = {id: filter[id].predicate for id in filter.ids().tolist()}
    events = random_events(np.random.default_rng(5), 30)
    matches = as_sets(filter.match_batch(events))
    assert matches == subscribers(predicates, [SCHEMA.read(event).row(0) for event in events])
    texts = {id: str(predicate) for id, predicate in predicates.items()}
    return {"predicates": texts, "matches": matches, "version": filter.stats()["version"]}


def random_filter(matcher, seed):
    rng = np.random.default_rng(seed)
    filter = EventFilter(SCHEMA, matcher=matcher)
    count = 100 if matcher in BOXED or matcher == "auto" else 50
    filter.subscribe_many([random_predicate(rng) for _ in range(count)])
    ends = rng.integers(0, 9, 40)
    ends[::3] = 2**62 - 1  # no float64
    filter.subscribe_boxes({"n": ends}, {"n": np.full(40, 2**63 - 1)})
    filter.unsubscribe_many(np.arange(0, count, 7))
    return filter


@pytest.mark.slow
@pytest.mark.parametrize("changes", long_but([0, 1, 300], [1, 300]))
@pytest.mark.parametrize("matcher", [*EACH, "auto"])
def test_a_saved_copy_is_of_one_version_whatever_changes_meanwhile(monkeypatch, tmp_path, matcher, changes):
    filter = random_filter(matcher, seed=changes)
    meanwhile = Meanwhile(monkeypatch, filter, changes, changes)
    filter.save(tmp_path / "index")
    assert meanwhile.left < changes or not changes
    loaded = EventFilter.load(tmp_path / "index")
    assert content(loaded) == content(filter)
    assert loaded.subscribe("TRUE") == filter.subscribe("TRUE")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [0, 1, 300])
def test_repacking_loses_nothing_that_changes_meanwhile(monkeypatch, changes):
    filter = random_filter("rtree", seed=changes)
    meanwhile = Meanwhile(monkeypatch, filter, changes, changes)
    told = []
    monkeypatch.setattr(inside(filter).controller, "on_update", told.append)
    filter.repack()
    meanwhile.left = 0
    inside(filter).matcher.tree.check()
    list(filter.stream(random_events(np.random.default_rng(5), 3)))
    before, updates = content(filter), filter.stats()["updates"]
    filter.repack()
    assert content(filter) == before
    assert filter.stats()["updates"] == updates
    filter.subscribe("TRUE")
    assert filter.stats()["updates"] == updates + 1
    list(filter.stream(random_events(np.random.default_rng(5), 3)))
    assert told[-1] == 1


def test_copies_of_equal_subscriptions_are_equal():
    filter = random_filter("rtree", seed=1)
    filter.repack()
    packed = inside(filter).matcher.tree.boxes_at_level(inside(filter).matcher.tree.height - 1)
    for copy in (pickle.loads(pickle.dumps(filter)), part_of(filter, filter.ids())):
        assert np.array_equal(
            packed, inside(copy).matcher.tree.boxes_at_level(inside(copy).matcher.tree.height - 1)
        )


def repacked(filter, rng):
    filter.repack()


def enlarged(filter, rng):
    filter.subscribe_many([random_predicate(rng) for _ in range(100)])


def given_one_of_many_boxes(filter, rng):
    filter.subscribe(" OR ".join(f"(n = {k} AND x = {k})" for k in range(100)))


@pytest.mark.slow
@pytest.mark.parametrize("change", [repacked, enlarged, given_one_of_many_boxes])
def test_a_copy_loses_nothing_where_all_moves_meanwhile(monkeypatch, tmp_path, change):
    filter, read, changed = random_filter("rtree", seed=1), copies.Copy._read, []

    def read_and_change(*arguments):
        found = read(*arguments)
        if not changed:
            changed.append(change)
            change(filter, np.random.default_rng(5))
        return found

    monkeypatch.setattr(copies.Copy, "_read", read_and_change)
    filter.save(tmp_path / "index")
    assert changed
    assert content(EventFilter.load(tmp_path / "index")) == content(filter)


@pytest.mark.slow
def test_changes_that_never_end_do_not_keep_a_copy_from_its_end(monkeypatch, tmp_path):
    filter = random_filter("rtree", seed=1)
    Meanwhile(monkeypatch, filter, 2, 10**9)
    filter.save(tmp_path / "index")
    assert content(EventFilter.load(tmp_path / "index")) == content(filter)


def test_nobody_waits_while_a_snapshot_is_written(monkeypatch, tmp_path):
    filter, write = random_filter("rtree", seed=1), snapshot.write
    expected = content(filter)

    def slow(*arguments):
        filter.subscribe("TRUE")  # would wait for ever if the copy's reader still held the index
        write(*arguments)

    monkeypatch.setattr(snapshot, "write", slow)
    filter.save(tmp_path / "index")
    assert content(EventFilter.load(tmp_path / "index")) == expected
    assert len(filter) == len(expected["predicates"]) + 1


def test_a_replica_follows_by_a_snapshot_and_the_changes_since(tmp_path):
    filter, rng = random_filter("rtree", seed=3), np.random.default_rng(9)
    with filter.changes() as changes:
        assert changes.version == filter.stats()["version"]
        filter.subscribe_many([random_predicate(rng) for _ in range(20)])
        filter.save(tmp_path / "index")
        replica = EventFilter.load(tmp_path / "index")
        saved = replica.stats()["version"]
        for _ in range(50):
            Meanwhile.change(type("Self", (), {"filter": filter, "rng": rng}))
        for change in changes:
            if change.version > saved:
                replica.unsubscribe_many(change.removed)
                replica.subscribe_many(list(change.added.predicates()), ids=change.added.ids)
                saved = change.version
        assert list(changes) == []
    assert saved == filter.stats()["version"]
    expected, found = content(filter), content(replica)
    assert found["predicates"] == expected["predicates"]
    assert found["matches"] == expected["matches"]


def test_versions_count_calls_that_change_something():
    filter = EventFilter(Schema({"x": float}))
    with filter.changes() as changes:
        filter.subscribe("x > 1", 4)
        filter.update(4, "x > 2")
        filter.unsubscribe(9)
        with pytest.raises(ValueError, match="exists already"):
            filter.subscribe("x > 1", 4)
        filter.subscribe_boxes([[0.0]], [[1.0]], ids=[5])
        filter.unsubscribe_many([5, 4, 4, 8])
        kept = [(one.version, one.added.ids.tolist(), one.removed.tolist()) for one in changes]
    assert kept == [(1, [4], []), (2, [4], [4]), (3, [5], []), (4, [], [5, 4])]
    assert filter.stats()["version"] == 4
    filter.subscribe("TRUE")
    assert list(changes) == []


def test_changes_of_many_threads_are_told_once_and_in_order():
    filter = EventFilter(Schema({"x": float}))
    with filter.changes() as changes:
        threads = [
            threading.Thread(target=lambda: [filter.subscribe("x > 1") for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        told = list(changes)
    assert [change.version for change in told] == list(range(1, 201))
    assert sorted(int(change.added.ids[0]) for change in told) == list(range(200))


def test_who_is_forgotten_is_told_nothing():
    filter = EventFilter(Schema({"x": float}))
    changes = filter.changes()
    del changes
    filter.subscribe("x > 1")
    assert filter._subscriptions._listeners == ()


def test_a_change_that_is_told_again_is_kept_once():
    filter = EventFilter(Schema({"x": float}))
    with filter.changes() as changes:
        filter.subscribe("x > 1")
        (again,) = changes._changes
        assert changes.tell(again)
        changes._told = 0  # as if an interrupt had come before it was noted
        assert changes.tell(again)
        assert [change.version for change in changes] == [1]
        assert changes.tell(again)
        assert list(changes) == []


def test_another_matcher_is_of_the_same_version(tmp_path):
    filter = random_filter("rtree", seed=1)
    filter.save(tmp_path / "index")
    assert (
        EventFilter.load(tmp_path / "index", matcher="masks").stats()["version"]
        == filter.stats()["version"]
        > 0
    )
