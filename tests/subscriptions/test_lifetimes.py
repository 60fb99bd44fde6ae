"""Times to live: gone at once for all who ask, removed later, a few at a time."""

import pickle
import threading
from datetime import timedelta
from math import inf, nan

import numpy as np
import pytest

from cases import cases
from kinds import EACH, KINDS, id_of, require_sound
from oracle import as_sets
from rtfilter import EventFilter, Schema, UnknownSubscriptionError
from rtfilter.filter import part_of
from rtfilter.matching import updates

SCHEMA = Schema({"x": float})
EVENT = {"x": 1.0}


class Clock:
    """Seconds that go on when they are told to."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request):
    return request.param


def held(filter):
    """How many are there for the index."""
    return len(filter._subscriptions)


@pytest.mark.parametrize("matcher", EACH)
def test_who_is_beyond_its_deadline_is_gone_for_all_who_ask(clock, kind, matcher):
    filter = EventFilter(SCHEMA, matcher=matcher, clock=clock)
    a, b, c = (id_of(kind, number) for number in (1, 2, 3))
    filter.subscribe("x > 0", id=a)
    filter.subscribe("x > 0", id=b, ttl=10)
    filter.subscribe("FALSE", id=c, ttl=timedelta(seconds=10))
    for now, ids in ((1009.9, [a, b, c]), (1010.0, [a])):
        clock.now = now
        with filter._road.gate.reading():  # nothing is removed while another matches
            assert filter.ids().tolist() == ids
            assert len(filter) == filter.stats()["subscriptions"] == len(ids)
            assert [id in filter for id in (a, b, c)] == [True, b in ids, b in ids]
            matching = {id for id in ids if id != c}
            assert set(filter.match(EVENT).tolist()) == matching
            assert as_sets(filter.match_batch([EVENT, {}])) == [matching, set()]
            assert as_sets(filter.stream([EVENT, {}]).matches()) == [matching, set()]
            assert filter.match_batch([EVENT]).counts.tolist() == [len(matching)]
            assert part_of(filter, [a, b]).ids().tolist() == [id for id in ids if id != c]
            assert held(filter) == 3
    for call in (filter.__getitem__, lambda id: filter.explain(EVENT, id)):
        with pytest.raises(UnknownSubscriptionError):
            call(b)
    for change in ({"predicate": "x > 5"}, {"ttl": 5}, {"metadata": {}}):
        with pytest.raises(UnknownSubscriptionError):
            filter.update(b, **change)
    assert not filter.unsubscribe(b)
    assert filter.match_batch([EVENT]).any.tolist() == [True]
    filter.unsubscribe(a)
    assert filter.match_batch([EVENT]).any.tolist() == [False]
    assert len(filter) == held(filter) == 0
    require_sound(filter)


def test_a_batch_leaves_out_those_that_are_gone(clock):
    filter = EventFilter(SCHEMA, clock=clock)
    filter.subscribe_many(["x > 0"] * 20, ttl=1)
    filter.subscribe("x > 0.5")
    clock.now += 1
    with filter._road.gate.reading():
        assert filter.match_batch([EVENT, {"x": 0.2}]).any.tolist() == [True, False]


def test_a_batch_that_has_begun_keeps_to_its_moment(clock, kind):
    filter = EventFilter(SCHEMA, clock=clock)
    a, b = id_of(kind, 1), id_of(kind, 2)
    filter.subscribe("x > 0", id=a, ttl=10)
    stream = filter.stream([EVENT] * 5)
    first = next(stream)
    clock.now += 10
    assert filter.match(EVENT).tolist() == []
    filter.subscribe("x > 0", id=b)  # which removes the first, and has its handle
    assert held(filter) == 1
    assert [ids.tolist() for _, ids, _ in [first, *stream]] == [[a]] * 5
    assert filter.match(EVENT).tolist() == [b]


def test_a_moment_can_be_given(clock):
    filter = EventFilter(SCHEMA, clock=clock)
    for ttl in (10, 20):
        filter.subscribe("x > 0", ttl=ttl)
    assert [filter.match_batch([EVENT], at=at).counts[0] for at in (1009.0, 1010.0, 1020.0)] == [2, 1, 0]
    assert held(filter) == 2  # what is asked of another moment removes nothing


def test_at_the_end_of_time_only_those_that_end_are_gone(clock, kind):
    filter = EventFilter(SCHEMA, clock=clock)
    a, b, c = (id_of(kind, number) for number in range(3))
    filter.subscribe_many(["x > 0"] * 3, ids=[a, b, c], ttl=[5, None, 5])
    filter.update(c, ttl=None)
    assert set(filter.match_batch([EVENT], at=inf)[0].tolist()) == {b, c}
    clock.now = inf
    assert set(filter.match(EVENT).tolist()) == set(filter.ids().tolist()) == {b, c}
    assert [len(filter), a in filter, b in filter] == [2, False, True]
    filter.unsubscribe(c)
    assert filter.ids().tolist() == [b]
    require_sound(filter)


@pytest.mark.parametrize("at", [nan, "now", True, None])
def test_a_moment_is_a_number(clock, at):
    filter = EventFilter(SCHEMA, clock=clock)
    filter.subscribe("x > 0", ttl=10)
    if at is None:
        assert filter.match_batch([EVENT], at=at).counts[0] == 1
    else:
        with pytest.raises((TypeError, ValueError), match="at is a number of seconds"):
            filter.match_batch([EVENT], at=at)


@pytest.mark.parametrize("now", [nan, inf, -inf])
def test_nothing_is_counted_from_a_moment_that_is_none(clock, now):
    filter = EventFilter(SCHEMA, clock=clock)
    id = filter.subscribe("x > 0")
    clock.now = now
    for change in (lambda: filter.subscribe("x > 0", ttl=5), lambda: filter.update(id, ttl=5)):
        with pytest.raises(ValueError, match="but a time to live needs finite seconds"):
            change()
    assert (filter.stats()["version"], filter[id].expires) == (1, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_who_ask_hear_the_same_when_a_clock_goes_backwards(clock, kind, seed):
    rng = np.random.default_rng(seed)
    filter = EventFilter(SCHEMA, clock=clock)
    ids = [id_of(kind, number) for number in range(30)]
    filter.subscribe_many(["x > 0"] * 30, ids=ids, ttl=rng.integers(1, 20, 30).tolist())
    for _ in range(60):
        clock.now = 1000.0 + float(rng.integers(-5, 25))
        present = set(filter.ids().tolist())
        assert len(filter) == len(present)
        assert {id for id in ids if id in filter} == present
        assert all(filter[id].expires > clock.now for id in present)
        assert set(part_of(filter, ids).ids().tolist()) == present
        id = ids[rng.integers(30)]
        if id not in present:
            filter.subscribe("x > 0", id=id, ttl=3)
            present.add(id)
        assert set(filter.match(EVENT).tolist()) == set(filter.ids().tolist()) == present
        require_sound(filter)
    clock.now = 2000.0
    for _ in range(10):
        filter.match(EVENT)
        clock.now += 1
    assert held(filter) == 0


@pytest.mark.parametrize("count", [1, 60], ids=["small", "large"])
@pytest.mark.parametrize("aside", [False, True], ids=["bits", "aside"])
def test_who_is_gone_can_be_subscribed_anew(clock, kind, count, aside, monkeypatch):
    monkeypatch.setattr(updates, "ASIDE", 10**9 if aside else -1)
    filter = EventFilter(SCHEMA, clock=clock)
    ids = [id_of(kind, number) for number in range(count)]
    filter.subscribe_many(["x > 0"] * count, ids=ids, ttl=5, metadata=[{"old": True}] * count)
    clock.now += 4.5
    with pytest.raises(ValueError, match="exists already"):
        filter.subscribe_many(["x > 5"] * count, ids=ids)
    clock.now += 0.5
    with filter.changes() as changes:
        assert filter.subscribe_many(["x > 5"] * count, ids=ids).tolist() == ids
        told = [(len(one.added), len(one.removed)) for one in changes]
    assert told[-1] == (count, 0)
    assert sum(removed for _, removed in told) == count
    assert filter.match(EVENT).tolist() == []
    assert set(filter.match({"x": 6.0}).tolist()) == set(ids)
    assert filter[ids[0]].expires is filter[ids[0]].metadata is None
    clock.now += 10**6
    assert len(filter) == held(filter) == count
    require_sound(filter)


def test_a_subscription_is_renewed_without_touching_the_index(clock, kind):
    filter = EventFilter(SCHEMA, clock=clock)
    id = id_of(kind, 1)
    filter.subscribe("x > 0", id=id, ttl=10)
    boxes, version = filter.stats()["updates"], filter.stats()["version"]
    for _ in range(5):
        clock.now += 9
        filter.update(id, ttl=10)
    assert filter[id].expires == clock.now + 10
    assert filter.match(EVENT).tolist() == [id]
    assert filter.stats()["updates"] == boxes
    assert filter.stats()["version"] == version + 5
    filter.update(id, ttl=None)
    assert filter[id].expires is None
    clock.now += 10**9
    assert id in filter


def test_an_update_keeps_what_it_does_not_name(clock):
    filter = EventFilter(SCHEMA, clock=clock)
    id = filter.subscribe("x > 0", ttl=10, metadata={"a": 1})
    filter.update(id, "x > 5")
    assert (filter[id].expires, filter[id].metadata) == (1010.0, {"a": 1})
    filter.update(id, "FALSE", metadata={"b": 2})
    assert (filter[id].expires, filter[id].metadata) == (1010.0, {"b": 2})
    filter.update(id, ttl=20)
    assert (filter[id].expires, filter[id].metadata) == (1020.0, {"b": 2})
    assert str(filter[id].predicate) == "FALSE"
    filter.update(id, "x > 7", ttl=None, metadata=None)
    assert (filter[id].expires, filter[id].metadata) == (None, None)
    with pytest.raises(TypeError, match="nothing to update"):
        filter.update(id)


@cases("ttl", [0, -1, inf, nan, np.float64(-3), timedelta(0), np.timedelta64("NaT"), 10**400])
def test_a_time_that_is_none_is_refused(ttl):
    filter = EventFilter(SCHEMA)
    with pytest.raises(ValueError, match=r"^a time to live is finite and above 0"):
        filter.subscribe("x > 0", ttl=ttl)
    with pytest.raises(ValueError, match=r"^row 1, a time to live"):
        filter.subscribe_many(["x > 0"] * 2, ttl=[1, ttl])
    assert filter.stats()["version"] == 0


@cases("ttl", [True, "5", {"s": 3}, {5}, np.timedelta64(1, "Y"), np.True_])
def test_what_is_no_time_is_refused(ttl):
    filter = EventFilter(SCHEMA)
    with pytest.raises(TypeError, match=r"ttl|time to live"):
        filter.subscribe("x > 0", ttl=ttl)
    with pytest.raises(ValueError, match="ttl has 3 rows for 2"):
        filter.subscribe_many(["x > 0"] * 2, ttl=[1, 2, 3])
    assert filter.stats()["version"] == 0


def test_each_may_have_a_time_of_its_own(clock):
    filter = EventFilter(SCHEMA, clock=clock)
    times = [5, None, timedelta(minutes=1), np.timedelta64(1500, "ms"), np.int64(3), 2.5]
    ids = filter.subscribe_boxes([[0.0]] * 6, [[9.0]] * 6, ttl=times)
    assert [filter[id].expires for id in ids.tolist()] == [1005.0, None, 1060.0, 1001.5, 1003.0, 1002.5]


@pytest.mark.parametrize("copy", ["pickle", "snapshot"])
@pytest.mark.parametrize("matcher", ["rtree", "hashes"])
def test_copies_keep_the_deadlines(clock, kind, copy, matcher, tmp_path):
    filter = EventFilter(SCHEMA, matcher=matcher, clock=clock)
    ids = [id_of(kind, number) for number in range(50)]
    filter.subscribe_many(["x > 0"] * 50, ids=ids, ttl=[number + 1 for number in range(49)] + [None])
    clock.now += 10
    if copy == "pickle":
        again = pickle.loads(pickle.dumps(filter))
        again._subscriptions.clock = clock
    else:
        filter.save(tmp_path / "filter")
        again = EventFilter.load(tmp_path / "filter", clock=clock)
    assert set(again.match(EVENT).tolist()) == set(again.ids().tolist()) == set(ids[10:])
    clock.now += 10
    assert set(again.match(EVENT).tolist()) == set(ids[20:])
    assert again[ids[30]].expires == 1031.0
    again.subscribe("x > 0", id=ids[0])
    clock.now += 10**6
    assert len(again) == 2


def test_what_is_gone_is_removed_by_changes_and_after_batches_a_few_at_a_time(clock):
    filter = EventFilter(SCHEMA, clock=clock)
    filter.subscribe_boxes(np.zeros((100, 1)), np.ones((100, 1)), ttl=10)
    clock.now += 10
    left = []
    for call in (
        lambda: filter.match(EVENT),
        lambda: filter.match(EVENT),  # at the same moment: it has just been done
        lambda: filter.match_batch([EVENT] * 2),
        lambda: list(filter.stream([EVENT] * 2)),
        lambda: filter.match_batch([EVENT]).any,
        lambda: filter.subscribe("x > 8", ttl=0.5),
        lambda: filter.unsubscribe(0),
        lambda: filter.update(100, ttl=0.5),
    ):
        call()
        left.append(held(filter))
        clock.now += 0 if len(left) == 1 else 0.01
    assert left == [92, 92, 84, 76, 68, 61, 53, 45]
    assert len(filter) == 1
    filter.subscribe_boxes(np.zeros((40, 1)), np.ones((40, 1)))  # a large change removes all the others
    assert held(filter) == len(filter) == 41


def test_memory_is_bounded_however_long_it_goes_on(clock):
    filter = EventFilter(SCHEMA, clock=clock)
    most = 0
    for number in range(400):
        clock.now += 1
        filter.subscribe("x > 0", id=f"{number}", ttl=20)
        most = max(most, held(filter))
    assert most <= 22
    assert filter._subscriptions.next_id <= 22


@pytest.mark.parametrize("late", [False, True])
def test_who_matches_waits_for_others_only_when_it_is_overdue(clock, late):
    filter = EventFilter(SCHEMA, clock=clock)
    filter.subscribe("x > 0", ttl=10)
    clock.now += 12 if late else 10
    inside, leave, found = threading.Event(), threading.Event(), []

    def other():
        with filter._road.gate.reading():
            inside.set()
            leave.wait(120)

    def match():
        found.append(filter.match(EVENT).tolist())

    threads = [threading.Thread(target=target) for target in (other, match)]
    threads[0].start()
    assert inside.wait(120)
    threads[1].start()
    threads[1].join(0.1 if late else 120)
    assert threads[1].is_alive() == late
    leave.set()
    for thread in threads:
        thread.join(120)
    assert found == [[]]
    assert held(filter) == (not late)


def test_a_batch_within_an_order_removes_nothing(clock):
    filter = EventFilter(SCHEMA, clock=clock)
    filter.subscribe("x > 0", ttl=10)
    clock.now += 20
    found = []

    def order(workload):
        found.append((filter.match(EVENT).tolist(), held(filter)))
        return np.argsort(workload)

    from rtfilter.adaptive import FixedPlan

    filter.configure(order=order, controller=FixedPlan(0, 1))
    list(filter.stream([EVENT] * 3))
    assert found == [([], 1)]
    assert held(filter) == 0


def test_what_is_gone_is_told_when_it_is_removed(clock, kind):
    filter = EventFilter(SCHEMA, clock=clock)
    id = id_of(kind, 1)
    filter.subscribe("x > 0", id=id, ttl=10)
    with filter.changes() as changes:
        clock.now += 10
        assert list(changes) == []
        filter.match(EVENT)
        told = [(len(one.added), one.removed.tolist()) for one in changes]
    assert told == [(0, [id])]


def test_a_time_to_live_of_one_is_no_column():
    with pytest.raises(TypeError, match="a time to live is a number of seconds or a timedelta, not '60'"):
        EventFilter(SCHEMA).subscribe("x < 1", ttl="60")
