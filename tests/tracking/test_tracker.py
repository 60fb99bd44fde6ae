"""What events enter, stay inside and leave is what a dict of sets says, event by event."""

import contextlib
import os
import pickle
import threading
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rtfilter.events.keys
import rtfilter.matching.gate
import rtfilter.tracking.codes
import rtfilter.tracking.tracker
import rtfilter.tracking.transitions
from interrupts import Interrupt, Lines
from kinds import id_of
from rtfilter import EventError, EventFilter, Schema, SnapshotError, Tracker

SCHEMA = Schema({"x": float})
MODULES = [
    rtfilter.events.keys,
    rtfilter.tracking.codes,
    rtfilter.matching.gate,
    rtfilter.tracking.tracker,
    rtfilter.tracking.transitions,
]


class Oracle:
    """Intervals by id, and the set of ids that each key is inside, least recently seen first."""

    def __init__(self, max_keys, max_matches=10**9):
        self.intervals, self.inside, self.most = {}, {}, (max_keys, max_matches)
        self.batches = self.dropped = 0

    def match_batch(self, batch):
        found = []
        for key, x in batch:
            before = self.inside.pop(key, set())
            now = {id for id, (low, high) in self.intervals.items() if low <= x <= high}
            if now:
                self.inside[key] = now
            found.append([sorted(now - before), sorted(now & before), sorted(before - now)])
        while len(self.inside) > self.most[0] or sum(map(len, self.inside.values())) > self.most[1]:
            del self.inside[next(iter(self.inside))]
            self.dropped += 1
        self.batches += 1
        return found

    def forget_subscriptions(self, ids):
        left = {key: inside - {*ids} for key, inside in self.inside.items()}
        self.inside = {key: inside for key, inside in left.items() if inside}


def condition(interval):
    return "x BETWEEN {} AND {}".format(*interval)


def as_lists(changes):
    return [[ids.tolist() for ids in one] for one in changes]


def kept(tracker):
    """All that a tracker keeps."""
    keys = tracker.keys()
    lists = [(key, tracker.inside(key).tolist()) for key in keys]
    assert len(tracker) == len(lists)
    return lists, tracker.batches, tracker.dropped


def kept_by(oracle):
    return [(key, sorted(ids)) for key, ids in oracle.inside.items()], oracle.batches, oracle.dropped


def events_of(batch):
    return [{"vehicle": key, "x": x} for key, x in batch]


def zones(count=4, kind=int):
    """Intervals [i, i + 1.5], so that neighbours overlap."""
    filter = EventFilter(SCHEMA)
    low = np.arange(count, dtype=float)[:, None]
    filter.subscribe_boxes(low, low + 1.5, ids=[id_of(kind, i) for i in range(count)])
    return filter


KEYS = st.integers(0, 6)
INTERVALS = st.tuples(st.integers(0, 5), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair)))
STEPS = st.one_of(
    st.tuples(st.just("match"), st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=12)),
    st.tuples(st.just("put"), st.tuples(st.integers(0, 4), INTERVALS)),
    st.tuples(st.just("remove"), st.integers(0, 4)),
    st.tuples(st.just("forget"), KEYS),
    st.tuples(st.just("forget_subscriptions"), st.lists(st.integers(0, 4), max_size=3)),
    st.tuples(st.just("pickle"), st.none()),
)


@pytest.mark.slow
@given(st.lists(STEPS, max_size=25), st.sampled_from([1, 3, 5, 100]), st.sampled_from([1, 5, 10, 1000]))
def test_any_steps_give_what_the_oracle_gives(steps, max_keys, max_matches):
    filter, oracle = EventFilter(SCHEMA), Oracle(max_keys, max_matches)
    tracker = Tracker(filter, "vehicle", max_keys, max_matches)
    steps = [("put", (id, (id, id + 2))) for id in range(4)] + steps
    for step, what in steps:
        if step == "match":
            assert as_lists(tracker.match_batch(events_of(what))) == oracle.match_batch(what)
        elif step == "put":
            id, interval = what
            if id in filter:
                filter.update(id, condition(interval))
            else:
                filter.subscribe(condition(interval), id)
            oracle.intervals[id] = interval
        elif step == "remove":
            assert filter.unsubscribe(what) == (oracle.intervals.pop(what, None) is not None)
        elif step == "forget":
            assert set(tracker.forget(what).tolist()) == oracle.inside.pop(what, set())
        elif step == "forget_subscriptions":
            tracker.forget_subscriptions(what)
            oracle.forget_subscriptions(what)
        else:
            tracker = pickle.loads(pickle.dumps(tracker))
            filter = tracker.filter
        assert kept(tracker) == kept_by(oracle)


def test_large_batches_of_many_keys_give_what_the_oracle_gives():
    rng = np.random.default_rng(5)
    filter, oracle = EventFilter(SCHEMA), Oracle(150)
    for id in rng.choice(2**62, 60, replace=False).tolist():  # with ids that leave no bits for the rows
        low = int(rng.integers(0, 90))
        oracle.intervals[id] = (low, low + 12)
        filter.subscribe(condition(oracle.intervals[id]), id)
    tracker = Tracker(filter, max_keys=150)
    for _ in range(6):
        keys, x = rng.integers(0, 300, 400), rng.integers(0, 110, 400)
        found = tracker.match_batch(x[:, None].astype(float), keys)
        assert as_lists(found) == oracle.match_batch(list(zip(keys.tolist(), x.tolist(), strict=True)))
        assert kept(tracker) == kept_by(oracle)
    assert tracker.dropped > 100


# What a change of subscriptions means


def test_an_updated_or_removed_subscription_is_left_with_the_next_event_of_its_keys():
    filter = zones()
    tracker = Tracker(filter, "vehicle")
    tracker.match_batch(events_of([("a", 1.2), ("b", 1.2), ("c", 3.8)]))  # a and b inside 0 and 1, c inside 3
    filter.update(0, "x > 50")
    filter.unsubscribe(1)
    filter.subscribe("x > 0", id=9)
    assert tracker.inside("a").tolist() == [0, 1]  # nothing has been seen of it
    changes = tracker.match_batch(events_of([("a", 1.2), ("c", 3.8), ("a", 1.2)]))
    assert as_lists(changes) == [[[9], [], [0, 1]], [[9], [3], []], [[], [9], []]]
    assert tracker.inside("b").tolist() == [0, 1]


def test_a_subscription_that_comes_back_under_its_id_is_the_same():
    filter = zones()
    tracker = Tracker(filter, "vehicle")
    tracker.match_batch(events_of([("a", 0.5)]))
    filter.unsubscribe(0)
    filter.subscribe("x < 1", id=0)
    assert as_lists(tracker.match_batch(events_of([("a", 0.5)]))) == [[[], [0], []]]


def test_forgotten_subscriptions_are_not_left():
    filter = zones()
    tracker = Tracker(filter, "vehicle")
    tracker.match_batch(events_of([("a", 1.2), ("b", 0.5)]))
    filter.unsubscribe(0)
    tracker.forget_subscriptions([0, 77])
    assert tracker.keys() == ["a"]
    assert as_lists(tracker.match_batch(events_of([("a", 1.2), ("b", 0.5)]))) == [[[], [1], []], [[], [], []]]
    with pytest.raises(TypeError, match="ids must be integers"):
        tracker.forget_subscriptions(["a"])


# Ids that are text


@pytest.mark.parametrize("kind", [str, UUID])
def test_text_and_uuids_give_what_integers_give(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(rtfilter.tracking.codes, "SPARE", 5)
    rng, filter = np.random.default_rng(7), EventFilter(SCHEMA, ids=kind)
    number_of = {}
    oracle = Oracle(12, 30)
    tracker = Tracker(filter, "vehicle", 12, 30)
    for step in range(40):
        for id in rng.choice(40, 3, replace=False).tolist():
            low = int(rng.integers(0, 9))
            name = id_of(kind, id)
            filter.unsubscribe(name)
            filter.subscribe(condition((low, low + 3)), name)
            oracle.intervals[id], number_of[name] = (low, low + 3), id
        batch = list(zip(rng.integers(0, 20, 15).tolist(), rng.integers(0, 12, 15).tolist(), strict=True))
        batch = batch[: 1 if step % 4 == 0 else 15]
        found = tracker.match_batch(events_of(batch))
        numbers = [[sorted(number_of[name] for name in ids) for ids in one] for one in as_lists(found)]
        assert numbers == oracle.match_batch(batch)
        if step == 20:
            tracker.forget_subscriptions([id_of(kind, 3), id_of(kind, 99)])
            tracker.forget_subscriptions(id_of(kind, 4))
            oracle.forget_subscriptions([3, 4])
        if step == 25:
            tracker = pickle.loads(pickle.dumps(tracker))
            filter = tracker.filter
        if step == 30:
            tracker.save(tmp_path / "state")
            tracker = Tracker.load(tmp_path / "state", filter)
        lists, *counts = kept(tracker)
        assert [(key, sorted(map(number_of.get, ids))) for key, ids in lists] == kept_by(oracle)[0]
        assert tuple(counts) == kept_by(oracle)[1:]
        assert len(tracker._codes) <= 2 * 40
    key = tracker.keys()[0]
    assert tracker.forget(key).tolist()


def test_names_that_nothing_is_inside_take_no_memory(monkeypatch):
    monkeypatch.setattr(rtfilter.tracking.codes, "SPARE", 5)
    filter = EventFilter(SCHEMA)
    tracker = Tracker(filter, "vehicle")
    for number in range(60):
        filter.subscribe("x > 0", f"zone {number}")
        tracker.match({"vehicle": "a", "x": 1})
        filter.unsubscribe(f"zone {number}")
    assert len(tracker._codes) <= 8
    assert tracker.inside("a").tolist() == ["zone 59"]


def test_an_id_is_compared_and_no_key_that_another_one_had():
    filter = EventFilter(SCHEMA)
    filter.subscribe("x > 0", "a")
    tracker = Tracker(filter, "vehicle")
    tracker.match({"vehicle": "v", "x": 1})
    filter.unsubscribe("a")
    filter.subscribe("x > 0", "b")
    assert filter._subscriptions.next_id == 1  # the handle of "a" is now that of "b"
    assert list(map(list, tracker.match({"vehicle": "v", "x": 1}))) == [["b"], [], ["a"]]
    filter.unsubscribe("b")
    filter.subscribe("x > 0", "b")
    assert list(map(list, tracker.match({"vehicle": "v", "x": 1}))) == [[], ["b"], []]


@pytest.mark.parametrize("kind", [int, str, UUID])
def test_what_ends_is_left_with_the_next_event(kind):
    now = [0.0]
    filter = EventFilter(SCHEMA, ids=kind, clock=lambda: now[0])
    filter.subscribe("x > 0", id_of(kind, 1), ttl=10)
    filter.subscribe("x > 0", id_of(kind, 2))
    tracker = Tracker(filter, "vehicle")
    told = []
    for moment in (1, 10, 11):
        now[0] = moment
        found = tracker.match_batch([{"vehicle": "v", "x": 1}])
        told.append([{1: "entered", 0: "inside", -1: "left"}[code] for code in found.codes.tolist()])
        assert found.left.ids.tolist() == [id_of(kind, 1)] * (moment == 10)
    assert [sorted(one) for one in told] == [["entered", "entered"], ["inside", "left"], ["inside"]]
    filter.subscribe("x > 0", id_of(kind, 1))
    assert tracker.match({"vehicle": "v", "x": 1}).entered.tolist() == [id_of(kind, 1)]


@pytest.mark.parametrize("kind", [str, UUID])
def test_results_have_the_type_of_the_ids(kind):
    filter = EventFilter(SCHEMA, ids=kind)
    filter.subscribe("x > 5", id_of(kind, 1))
    tracker = Tracker(filter, "vehicle")
    tracker.forget_subscriptions([id_of(kind, 1)])
    for x in (1, 6):
        found = tracker.match_batch([{"vehicle": "v", "x": x}])
        assert (found.ids.dtype, found.entered.kind) == (object, kind)
        assert found.to_arrow()["left"].type == filter.match_batch([{"x": x}]).to_arrow().type


def test_ids_of_another_type_are_refused(tmp_path):
    for kinds in ((int, str), (UUID, int)):
        saved, other = (EventFilter(SCHEMA, ids=kind) for kind in kinds)
        for kind, filter in zip(kinds, (saved, other), strict=True):
            filter.subscribe("x >= 0", id_of(kind, 1))
        tracker = Tracker(saved, "vehicle")
        tracker.match({"vehicle": "a", "x": 1})
        tracker.save(tmp_path / "state")
        again = Tracker.load(tmp_path / "state", other)
        with pytest.raises(TypeError, match="matches with ids of another type"):
            again.match({"vehicle": "a", "x": 1})


# Keys that are kept


def test_a_key_that_is_inside_nothing_takes_no_memory():
    tracker = Tracker(zones(), "vehicle")
    tracker.match_batch(events_of([(key, 99) for key in range(100)] + [("a", 0), ("a", 99), ("b", 0)]))
    assert tracker.keys() == ["b"]
    assert "b" in tracker
    assert "a" not in tracker


def test_keys_least_recently_seen_are_dropped_and_are_new_then():
    tracker = Tracker(zones(), "vehicle", max_keys=2)
    tracker.match_batch(events_of([("a", 0), ("b", 0), ("c", 0), ("a", 0)]))
    assert (tracker.keys(), tracker.dropped) == (["c", "a"], 1)
    changes = tracker.match_batch(
        events_of([("c", 0), ("b", 0)])
    )  # b is entered again, nothing told that it left
    assert as_lists(changes) == [[[], [0], []], [[0], [], []]]
    assert (tracker.keys(), tracker.dropped) == (["c", "b"], 2)


def test_a_batch_of_many_matches_leaves_no_more_than_were_asked_for():
    filter = zones(100)
    filter.subscribe_boxes([[0]] * 500, [[50]] * 500)
    tracker = Tracker(filter, "vehicle", max_matches=1200)
    tracker.match_batch(events_of([(key, 20) for key in range(9)]))  # 502 matches each
    assert (tracker.keys(), tracker.dropped) == ([7, 8], 7)
    filter.subscribe_boxes([[0]] * 700, [[50]] * 700)
    assert as_lists([tracker.match(event)[1:] for event in events_of([(8, 20)])])[0][1] == []
    assert (tracker.keys(), tracker.dropped) == ([], 9)  # one event alone has more


def test_a_forgotten_key_is_as_never_seen():
    tracker = Tracker(zones(), "vehicle")
    tracker.match_batch(events_of([("a", 1.2)]))
    assert tracker.forget("a").tolist() == [0, 1]
    assert tracker.forget("a").tolist() == []
    assert as_lists(tracker.match_batch(events_of([("a", 1.2)]))) == [[[0, 1], [], []]]


def test_single_events():
    tracker = Tracker(zones(), "vehicle")
    found = [tracker.match({"vehicle": "a", "x": x}) for x in (0, 1.2, 99)]
    assert as_lists(found) == [[[0], [], []], [[1], [0], []], [[], [], [0, 1]]]
    assert as_lists([tracker.match(np.array([0.0]), key="b")]) == [[[0], [], []]]
    with pytest.raises(ValueError, match="match takes one event, not 2; match_batch takes several"):
        tracker.match(events_of([("a", 1), ("a", 2)]))
    assert tracker.batches == 4


def test_an_empty_batch():
    tracker = Tracker(zones(), "vehicle")
    changes = tracker.match_batch([])
    assert len(changes) == len(changes.ids) == 0
    assert as_lists(changes) == []


# Errors change nothing


@pytest.mark.parametrize(
    ("events", "options", "error", "message"),
    [
        ([{"vehicle": "a", "x": 0}, {"x": 0}], {}, EventError, "event 1: the key 'vehicle' is missing"),
        ([{"vehicle": float("nan"), "x": 0}], {}, EventError, "event 0: the key 'vehicle' is missing"),
        ([{"vehicle": ["a"], "x": 0}], {}, EventError, r"event 0: the key 'vehicle' is the list \['a'\]"),
        ([{"vehicle": "a", "x": float("nan")}], {}, EventError, "event 0: attribute 'x'"),
        ([[0.0]], {}, EventError, "have only the attributes of the schema"),
        ([[0.0]], {"keys": ["a", "b"]}, ValueError, "2 keys for 1 events"),
        ([[0.0]], {"keys": "a"}, TypeError, "one key for each event, not 'a'"),
        ([[0.0]], {"keys": [None]}, EventError, "event 0: the key is missing"),
    ],
)
def test_an_error_says_what_is_wrong_and_changes_nothing(events, options, error, message):
    tracker = Tracker(zones(), "vehicle")
    tracker.match_batch(events_of([("a", 0)]))
    before = kept(tracker)
    with pytest.raises(error, match=message):
        tracker.match_batch(events, **options)
    assert kept(tracker) == before


def test_keys_have_to_come_from_somewhere():
    with pytest.raises(TypeError, match=r"pass keys=\.\.\., or make it with Tracker\(filter, 'vehicle'\)"):
        Tracker(zones()).match_batch([{"x": 0}])
    for wrong in (7, "", ["vehicle"]):
        with pytest.raises(TypeError, match="a key is the name of an attribute"):
            Tracker(zones(), wrong)
    for wrong in (0, 1.5, True):
        with pytest.raises(ValueError, match="max_keys is an integer of at least 1"):
            Tracker(zones(), "vehicle", wrong)
        with pytest.raises(ValueError, match="max_matches is an integer of at least 1"):
            Tracker(zones(), "vehicle", max_matches=wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "failures"), [(int, 0), pytest.param(int, 1, marks=pytest.mark.long), (int, 2), (str, 0)]
)
def test_a_call_cut_short_at_any_line_is_whole_or_undone(monkeypatch, kind, failures):
    """Also where taking it back is cut short, once or twice."""
    left, recover = [0], Tracker._recover

    def interrupted(self):
        if self._undo is not None and left[0]:
            left[0] -= 1
            raise Interrupt("while recovering")
        recover(self)

    monkeypatch.setattr(Tracker, "_recover", interrupted)
    monkeypatch.setattr(rtfilter.tracking.codes, "SPARE", -10)  # names are looked through at once
    first, second = (
        events_of([("a", 0), ("b", 1.2), ("c", 2)]),
        events_of([("d", 1.2), ("b", 9), ("d", 2), ("a", 1)]),
    )
    filter = zones(kind=kind)

    def made():
        tracker = Tracker(filter, "vehicle", max_keys=2)
        tracker.match_batch(first)
        return tracker

    def state(tracker):
        lists, *counts = kept(tracker)
        return sorted(lists), counts  # keys of what was undone count as seen

    tracker = made()
    before = state(tracker)
    with Lines(MODULES) as lines:
        tracker.match_batch(second)
    after = state(tracker)
    assert before != after
    seen = []
    for at in lines.ends():
        tracker = made()
        left[0] = failures
        with Lines(MODULES, at) as cut, pytest.raises(Interrupt):
            tracker.match_batch(second)
        for _ in range(failures):
            with contextlib.suppress(Interrupt):
                state(tracker)
        left[0] = 0
        assert state(tracker) in (before, after), cut.place
        seen.append(state(tracker) == after)
        tracker.match_batch(first)  # nobody waits for ever
    assert seen == sorted(seen), "what was counted is undone later on"
    assert 0 < sum(seen) < len(seen) / 4


# Threads


@pytest.mark.slow
def test_threads_that_have_keys_of_their_own_and_changes_beside_them():
    filter = zones(8)
    tracker = Tracker(filter)
    failures = []

    def drive(own):
        rng, state = np.random.default_rng(own), {}
        try:
            for _ in range(60):
                keys = [(own, int(key)) for key in rng.integers(0, 9, 20)]
                for key, (entered, inside, left) in zip(
                    keys, tracker.match_batch(rng.uniform(0, 10, (20, 1)), keys), strict=True
                ):
                    before = state.get(key, set())
                    entered, inside, left = map(set, (entered.tolist(), inside.tolist(), left.tolist()))
                    assert inside | left == before
                    assert not entered & before
                    state[key] = entered | inside
            assert all(set(tracker.inside(key).tolist()) == ids for key, ids in state.items())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=drive, args=(own,)) for own in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        filter.unsubscribe(7)
        filter.subscribe("x > 2", id=7)
    for thread in threads:
        thread.join()
    assert not failures
    assert tracker.batches == 240


# Keeping


@pytest.mark.parametrize(
    "keys", [["a", "\ud800é"], [1, 2**70], [1.5, True], [("f", 1), UUID(int=7)], [np.int64(4)]]
)
def test_a_saved_tracker_goes_on(tmp_path, keys):
    filter = zones()
    tracker = Tracker(filter, "vehicle", max_keys=5)
    tracker.match_batch(events_of([(key, 1.2) for key in keys]))
    tracker.save(tmp_path / "state")
    again = Tracker.load(tmp_path / "state", filter)
    assert kept(again) == kept(tracker)
    assert (again.key, again.max_keys) == ("vehicle", 5)
    changes = again.match_batch(events_of([(key, 0.5) for key in keys]))
    assert as_lists(changes) == [[[], [0], [1]]] * len(keys)  # nothing is entered again


def test_an_empty_tracker_is_saved_and_others_are_replaced(tmp_path):
    filter = zones()
    tracker = Tracker(filter)
    for batch in ([], [("a", 0)]):
        tracker.match_batch(events_of(batch), [key for key, _ in batch])
        tracker.save(tmp_path / "state")
        again = Tracker.load(tmp_path / "state", filter, key=lambda event: event["y"], max_keys=9)
        assert kept(again) == kept(tracker)
        assert again.max_keys == 9
        assert callable(again.key)


def test_what_cannot_be_saved_says_so(tmp_path):
    tracker = Tracker(zones(), "vehicle")
    tracker.match_batch(events_of([(frozenset("a"), 0)]))
    with pytest.raises(TypeError, match="text, numbers, UUIDs or tuples of these, not the frozenset"):
        tracker.save(tmp_path / "state")
    assert not (tmp_path / "state").exists()
    assert kept(pickle.loads(pickle.dumps(tracker))) == kept(tracker)


def test_another_snapshot_is_refused(tmp_path):
    filter = zones()
    filter.save(tmp_path / "filter")
    with pytest.raises(SnapshotError, match=r"is a snapshot of rtfilter\.filter, not of rtfilter\.tracker"):
        Tracker.load(tmp_path / "filter", filter)
    tracker = Tracker(filter, "vehicle")
    tracker.match_batch(events_of([("a", 0)]))
    tracker.save(tmp_path / "state")
    with pytest.raises(ValueError, match="max_keys is an integer of at least 1, not 0"):
        Tracker.load(tmp_path / "state", filter, max_keys=0)
    from rtfilter.snapshots import arrays

    found = arrays.read(tmp_path / "state", "rtfilter.tracker")
    for name, wrong in {
        "keys": b'["a", "a"]',
        "offsets": [0, 2],
        "ids": [],
        "names": b"[]",
    }.items():
        raw = np.frombuffer(wrong, np.uint8) if isinstance(wrong, bytes) else np.array(wrong, np.int64)
        arrays.write(tmp_path / "state", "rtfilter.tracker", found.meta, {**found.arrays, name: raw})
        with pytest.raises(SnapshotError, match="has content that `save` does not write"):
            Tracker.load(tmp_path / "state", filter)
    assert os.listdir(tmp_path / "state")
