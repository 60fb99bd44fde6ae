"""Large changes: in bits or aside, while others match and change, and seen all at once."""

import os
import threading
import time

import numpy as np
import pytest

from examples import SCHEMA, random_events, random_predicate
from kinds import EACH
from oracle import as_sets, subscribers
from rtfilter import EventFilter, Schema, UnknownSubscriptionError
from rtfilter.adaptive import FixedPlan
from rtfilter.filter import inside
from rtfilter.matching import road, updates
from rtfilter.matching.copies import Copy
from rtfilter.matching.updates import Updates
from rtfilter.predicates.predicate import parse
from rtfilter.subscriptions.content import Subscriptions

WAYS = {"bits": -1, "aside": 10**9}
EVENTS = random_events(np.random.default_rng(5), 12)
ROWS = [SCHEMA.read(event).row(0) for event in EVENTS]


@pytest.fixture(autouse=True)
def small_turns(monkeypatch):
    """Whatever is more than four is large, and goes by twos."""
    for name, value in {"AT_ONCE": 4, "BIT": 2, "LONG": -1, "KNOWN": 3}.items():
        monkeypatch.setattr(updates, name, value)


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setattr(updates, "ASIDE", WAYS[request.param])
    return request.param


class Model:
    """A filter, and what it should hold."""

    def __init__(self, matcher="rtree", count=20, seed=0):
        self.rng = np.random.default_rng(seed)
        self.filter = EventFilter(SCHEMA, matcher=matcher)
        self.held = {}
        self.add(count)

    def drawn(self, count):
        return [random_predicate(self.rng) if self.rng.integers(8) else "FALSE" for _ in range(count)]

    def add(self, count, first=None):
        sources = self.drawn(count)
        ids = None if first is None else self.rng.permutation(np.arange(first, first + count))
        names = self.filter.subscribe_many(sources, ids=ids)
        self.held |= {id: self.filter[id].predicate for id in names.tolist()}

    def remove(self, ids):
        known = self.filter.unsubscribe_many(ids)
        wanted, seen = [], set()
        for id in ids:
            wanted.append(id in self.held and id not in seen)
            seen.add(id)
        assert known.tolist() == wanted
        for id in ids:
            self.held.pop(id, None)

    def check(self):
        """All that can be asked is as in the model."""
        expected = subscribers(self.held, ROWS)
        assert as_sets(self.filter.match_batch(EVENTS)) == expected
        assert {row: set(ids.tolist()) for row, ids, _ in self.filter.stream(EVENTS)} == dict(
            enumerate(expected)
        )
        assert self.filter.match_batch(EVENTS).any.tolist() == [bool(ids) for ids in expected]
        assert len(self.filter) == len(self.held)
        assert self.filter.ids().tolist() == sorted(self.held)
        for id in range(60):
            assert (id in self.filter) == (id in self.held)
            if id in self.held:
                assert self.filter[id].predicate == self.held[id]
            else:
                with pytest.raises(UnknownSubscriptionError):
                    _ = self.filter[id]

    def settled(self):
        """Nothing is left of a large change."""
        held = self.filter._subscriptions
        return not len(held.claimed) and not len(held.hidden) and not held._hidden_count


def each_turn(monkeypatch, call):
    """Call between all turns of large changes."""
    for owner, name in (
        (Updates, "_add_pieces"),
        (Updates, "_clear_pieces"),
        (Updates, "_read"),
        (Copy, "_read"),
        (Copy, "catch_up"),
    ):
        monkeypatch.setattr(owner, name, around(getattr(owner, name), call))
    turn = Updates._alone_with_index

    def then_call(*arguments):
        result = turn(*arguments)  # the first one claims ids: what comes before it, is no part of the change
        call()
        return result

    monkeypatch.setattr(Updates, "_alone_with_index", then_call)


def around(real, call):
    def turn(*arguments):
        call()
        result = real(*arguments)
        call()
        return result

    return turn


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
def test_between_turns_nothing_or_all_of_a_large_change_is_seen(monkeypatch, matcher, way):
    model = Model(matcher)
    before, after, calls = dict(model.held), None, []

    def look():
        calls.append(1)
        changed = model.filter.stats()["version"] > version
        model.held = after if changed else before
        model.check()

    each_turn(monkeypatch, look)
    version = model.filter.stats()["version"]
    sources = model.drawn(9)
    given = [40, 31, 33, 39, 36, 35, 34, 38, 32]
    after = before | {id: parse(source, SCHEMA) for id, source in zip(given, sources, strict=True)}
    model.filter.subscribe_many(sources, ids=given)
    assert model.filter.stats()["version"] == version + 1
    model.held = before = after
    model.check()

    version, gone = model.filter.stats()["version"], [3, 7, 40, 31, 3, 99, 33, 5, 12, 0, 1]
    after = {id: own for id, own in before.items() if id not in gone}
    known = model.filter.unsubscribe_many(gone)
    assert known.tolist() == [id in before for id in gone[:4]] + [False, False] + [True] * 5
    assert model.filter.stats()["version"] == version + 1
    model.held = after
    model.check()
    assert model.settled()
    assert len(calls) > 12


@pytest.mark.slow
@pytest.mark.parametrize("matcher", EACH)
def test_others_change_meanwhile(monkeypatch, tmp_path, matcher, way):
    model = Model(matcher)
    ids = iter(range(1000, 2000))
    meanwhile = {}

    def change():
        with monkeypatch.context() as context:
            context.setattr(updates, "AT_ONCE", 10**9)
            id = next(ids)
            source = model.drawn(1)[0]
            model.filter.subscribe(source, id)
            meanwhile[id] = model.filter[id].predicate
            if id % 2:
                model.filter.update(id, "n > 2")
                meanwhile[id] = model.filter[id].predicate
            if id % 3 == 0:
                assert model.filter.unsubscribe(id)
                del meanwhile[id]

    with monkeypatch.context() as patch:
        each_turn(patch, change)
        model.add(9, 30)
        model.remove([*range(0, 12), *range(30, 36)])
    assert len(meanwhile) > 8
    model.held |= meanwhile
    model.check()
    assert model.settled()
    model.filter.save(tmp_path / "index")
    model.filter = EventFilter.load(tmp_path / "index")
    model.check()


@pytest.mark.slow
def test_a_snapshot_has_nothing_or_all_of_a_large_change(monkeypatch, tmp_path, way):
    model, sizes = Model(), set()

    def save():
        with monkeypatch.context() as context:
            context.setattr(Copy, "_read", read)
            context.setattr(Copy, "catch_up", catch_up)
            model.filter.save(tmp_path / "index")
        loaded = EventFilter.load(tmp_path / "index")
        sizes.add(len(loaded))
        assert as_sets(loaded.match_batch(EVENTS)) == as_sets(model.filter.match_batch(EVENTS))

    read, catch_up = Copy._read, Copy.catch_up
    each_turn(monkeypatch, save)
    model.add(9)
    model.remove(list(range(11)))
    assert sizes <= {20, 29, 18}
    assert len(sizes) >= 2


def test_next_ids_lie_behind_all_that_were_given(way):
    model = Model()
    model.add(9, 30)
    assert model.filter.subscribe("n > 1") == 39
    assert model.filter.subscribe_many(["n > 1"] * 9).tolist() == list(range(40, 49))
    assert model.filter.subscribe("n > 1") == 49


@pytest.mark.parametrize("count", [3, 6], ids=["small", "large"])
def test_ids_that_were_refused_stay_free(way, count):
    model = Model()
    with pytest.raises(ValueError, match="exists already"):
        model.filter.subscribe_many(["n > 1"] * count, ids=[7, *range(2**63 - count, 2**63 - 1)])
    assert model.filter.subscribe("n > 1") == 20


def test_next_ids_lie_behind_those_that_are_being_added(monkeypatch, way):
    model, names = Model(), []

    def add():
        if not names:
            names.append(model.filter.subscribe("n > 1"))

    each_turn(monkeypatch, add)
    model.filter.subscribe_many(["n > 1"] * 6, ids=range(20, 26))
    assert names == [26]
    assert model.filter.subscribe("n > 1") == 27


def test_updates_are_boxes_whichever_way_they_went(way):
    filter = EventFilter(Schema({"x": float}), matcher="rtree")
    ids = filter.subscribe_many(["x < 1 OR x > 5"] * 5 + ["FALSE"] * 4)
    assert filter.stats()["updates"] == 10
    filter.unsubscribe_many(ids)
    assert filter.stats()["updates"] == 20


def test_a_large_change_is_told_once(way):
    model = Model()
    with model.filter.changes() as changes:
        model.add(9)
        model.remove([1, 2, 3, 4, 5, 99])
        told = [(one.version, len(one.added), one.removed.tolist()) for one in changes]
    assert told == [(2, 9, []), (3, 0, [1, 2, 3, 4, 5])]


@pytest.mark.parametrize("matcher", EACH)
def test_an_id_that_exists_refuses_a_large_change(matcher, way):
    model = Model(matcher)
    for ids in ([30, 31, 32, 33, 34, 7], [30, 31, 32, 33, 34, 30], [30, 31, 32, 33, 34, -1]):
        with pytest.raises(ValueError, match=r"exists already|distinct|must be in"):
            model.filter.subscribe_many(model.drawn(6), ids=ids)
        model.check()
        assert model.settled()
    model.remove([50, 51, 52, 53, 54, 55])
    assert model.filter.stats()["version"] == 1
    assert model.settled()


@pytest.mark.parametrize("matcher", EACH)
def test_a_large_change_that_fails_leaves_nothing_that_is_seen(monkeypatch, matcher, way):
    model = Model(matcher)
    kind = type(model.filter._subscriptions.matcher)
    add, left = kind.add, [3]

    def failing(self, filters):
        left[0] -= 1
        if left[0] == 0:
            raise MemoryError
        add(self, filters)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "add", failing)
        if way == "aside" and matcher == "rtree":
            left[0] = 2
        with pytest.raises(MemoryError):
            model.add(9, 30)
    model.check()
    # Whoever comes next removes what was left, a bit each, and may use the ids.
    for id in range(70, 80):
        model.add(1, id)
    assert model.settled()
    model.add(9, 30)
    model.check()


def test_a_turn_changes_few_boxes(monkeypatch):
    monkeypatch.setattr(updates, "ASIDE", -1)
    filter, counts = EventFilter(Schema({"x": float}), matcher="rtree"), [0]
    writing = filter._road.gate.writing

    def counted():
        counts.append(inside(filter).matcher.tree.updates)
        return writing()

    monkeypatch.setattr(filter._road.gate, "writing", counted)
    low = np.arange(40.0).reshape(-1, 1)
    filter.unsubscribe_many(filter.subscribe_boxes(low, low + 1))
    counts.append(inside(filter).matcher.tree.updates)
    assert counts[-1] == 80
    assert np.diff(counts).max() == updates.BIT


@pytest.mark.parametrize(
    "call",
    [
        lambda filter: filter.subscribe("n > 1", 33),
        lambda filter: filter.unsubscribe(33),
        lambda filter: filter.update(33, "n > 1"),
    ],
    ids=["subscribe", "unsubscribe", "update"],
)
def test_a_change_of_the_same_id_waits(monkeypatch, call):
    monkeypatch.setattr(updates, "ASIDE", -1)
    model, order = Model(), []
    real = Updates._add_pieces
    threads = []

    def one():
        try:
            call(model.filter)
        except ValueError:
            order.append("refused")
        order.append("small")

    def slow(*arguments):
        if not threads:
            threads.append(threading.Thread(target=one))
            threads[0].start()
            threads[0].join(0.05)
        return real(*arguments)

    monkeypatch.setattr(Updates, "_add_pieces", slow)
    model.filter.subscribe_many(model.drawn(9), ids=range(30, 39))
    order.append("large")
    threads[0].join(120)
    assert order.index("small") >= order.index("large") - 1  # it may end before this thread goes on
    assert (33 in model.filter) == ("unsubscribe" not in str(call.__code__.co_names))
    assert model.settled()


def test_a_large_change_from_within_one_is_refused(monkeypatch):
    model = Model()
    monkeypatch.setattr(updates, "ASIDE", -1)
    real = Updates._add_pieces

    def again(*arguments):
        with pytest.raises(RuntimeError, match="changing"):
            model.filter.subscribe_many(["n > 1"] * 9)
        return real(*arguments)

    monkeypatch.setattr(Updates, "_add_pieces", again)
    model.add(9)
    model.check()


def test_an_order_that_makes_a_large_change_is_refused_while_another_waits_for_it(monkeypatch):
    model, waits, real = Model(), threading.Event(), Updates._alone_with_index

    def turn(*arguments):
        waits.set()  # has the turn of large changes, and waits for the batch
        return real(*arguments)

    other = threading.Thread(target=model.remove, args=(list(range(9)),))

    def order(workload):
        other.start()
        assert waits.wait(120)
        with pytest.raises(RuntimeError, match="an order"):
            model.filter.unsubscribe_many(np.arange(9, 18))
        return np.argsort(workload)

    monkeypatch.setattr(Updates, "_alone_with_index", turn)
    model.filter.configure(controller=FixedPlan(0, 1))
    model.filter.configure(order=order)
    model.filter.stream(EVENTS)
    other.join(120)
    model.filter.configure(order=np.argsort)
    model.check()
    assert model.settled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_what_another_process_left_is_cleared_by_small_changes(monkeypatch):
    monkeypatch.setattr(updates, "ASIDE", -1)
    model, exits, real = Model(), [], Updates._add_pieces

    def fork():
        child = os.fork()
        if child:
            exits.append(os.waitpid(child, 0)[1])
            return
        try:
            for id in range(50, 60):
                model.add(1, id)
            model.check()
            os._exit(not model.settled())
        finally:
            os._exit(2)

    def bits(*arguments):
        done = real(*arguments)
        if not exits:
            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
        return done

    monkeypatch.setattr(Updates, "_add_pieces", bits)
    model.filter.subscribe_many(model.drawn(9), ids=range(30, 39))
    assert exits == [0]


@pytest.mark.parametrize("count", [1, 9], ids=["small", "large"])
def test_a_handler_that_comes_while_a_stream_is_computed_does_not_wait_for_its_end(monkeypatch, count):
    model, real, others = Model(), road.verify, []

    def verify(*arguments):
        if not others:  # another thread then finishes the stream, to make a change
            others.append(threading.Thread(target=model.filter.subscribe, args=("n > 1",)))
            others[0].start()
            while not model.filter._road.gate.changing:
                time.sleep(0.001)
            assert len(model.filter) == 20
            with pytest.raises(RuntimeError, match="signal handler"):
                model.filter.unsubscribe_many(np.arange(count))
        return real(*arguments)

    stream = model.filter.stream(EVENTS)
    monkeypatch.setattr(road, "verify", verify)
    assert as_sets(stream.matches()) == subscribers(model.held, ROWS)
    others[0].join(120)
    assert len(model.filter) == 21


def test_what_matches_nothing_takes_turns_as_well(monkeypatch):
    monkeypatch.setattr(updates, "ASIDE", -1)
    filter, turns = EventFilter(SCHEMA, matcher="rtree"), []
    step = around(Updates._add_pieces, lambda: turns.append(len(filter)))
    monkeypatch.setattr(Updates, "_add_pieces", step)
    filter.subscribe_many(["FALSE"] * 9)
    assert len(turns) == 2 * 5
    assert set(turns) == {0}
    filter.unsubscribe_many(filter.subscribe_many(["FALSE"] * 9 + ["n > 1"] * 4))
    assert len(turns) == 2 * (5 + 7)
    assert len(filter) == 9


class Cut(BaseException):
    """As if an interrupt had come."""


def cut_after(monkeypatch, bits):
    """Cut large changes short after so many bits."""
    left = [2 * bits]

    def step():
        if left[0] == 0:
            raise Cut
        left[0] -= 1

    for name in ("add_hidden", "remove_hidden"):
        monkeypatch.setattr(Subscriptions, name, around(getattr(Subscriptions, name), step))


@pytest.mark.parametrize("bits", [1, 4])
@pytest.mark.parametrize("matcher", EACH)
def test_what_a_large_change_left_stays_hidden_until_the_next_removes_it(monkeypatch, matcher, bits):
    monkeypatch.setattr(updates, "ASIDE", -1)
    model = Model(matcher)
    with monkeypatch.context() as patch:
        cut_after(patch, bits)
        with pytest.raises(Cut):
            model.add(9, 30)
    model.check()
    with monkeypatch.context() as patch:
        cut_after(patch, 6)  # five for what was left
        with pytest.raises(Cut):
            model.remove(list(range(9)))
    for id in range(9):
        del model.held[id]  # from the first bit on
    model.check()
    model.add(9)
    assert model.settled()
    model.check()


def test_the_memory_of_what_was_removed_one_by_one_is_given_back(monkeypatch):
    monkeypatch.setattr("rtfilter.matchers.rtree.LEAST_ROWS", 64)
    filter, built = EventFilter(Schema({"x": float}), matcher="rtree"), []
    monkeypatch.setattr(
        Updates,
        "_build_anew",
        around(Updates._build_anew, lambda: built.append(inside(filter).matcher.tree.rows)),
    )
    low = np.arange(100.0).reshape(-1, 1)
    with monkeypatch.context() as patch:
        patch.setattr(updates, "AT_ONCE", 100)
        filter.subscribe_boxes(low, low + 0.5)
    rows = [filter.unsubscribe(id) and inside(filter).matcher.tree.rows for id in range(99)]
    assert rows[:87] == [100] * 87
    assert rows[87:] == [12] * 12
    assert built == [100, 12]
    assert filter.match({"x": 99.0}).tolist() == [99]
    inside(filter).matcher.tree.check()


def test_memory_is_not_given_back_while_a_large_change_goes_on(monkeypatch):
    monkeypatch.setattr("rtfilter.matchers.rtree.LEAST_ROWS", 64)
    monkeypatch.setattr(updates, "ASIDE", -1)
    filter = EventFilter(Schema({"x": float}), matcher="rtree")
    low = np.arange(100.0).reshape(-1, 1)
    filter.subscribe_boxes(low, low + 0.5)
    each_turn(monkeypatch, lambda: filter.unsubscribe(99))  # beside a large removal
    filter.unsubscribe_many(np.arange(98))
    assert filter.ids().tolist() == [98]
    assert inside(filter).matcher.tree.rows == 100
    filter.unsubscribe(77)
    assert inside(filter).matcher.tree.rows == 1
