"""Attributes that are added to a filter: its subscriptions stay, and new ones may use them."""

import threading

import numpy as np
import pytest

from examples import SCHEMA, random_events, random_predicate
from kinds import EACH
from oracle import as_sets, subscribers
from rtfilter import EventFilter, Schema
from rtfilter.matching import copies
from rtfilter.subscriptions import slices

SMALL = Schema({"x": float, "n": int})
MORE = {"s": str, "b": bool}
"""With these, it is `SCHEMA`."""


def predicates_of(schema, rng, count):
    """Random predicates that ask for attributes of a schema alone."""
    found = []
    while len(found) < count:
        source = random_predicate(rng)
        try:
            EventFilter(schema, max_unbounded=None).subscribe(source)
            found.append(source)
        except ValueError:
            pass
    return found


def require_right(filter, rng):
    events = random_events(rng, 40)
    predicates = {id: filter[id].predicate for id in filter.ids().tolist()}
    expected = subscribers(predicates, [SCHEMA.read(event).row(0) for event in events])
    assert as_sets(filter.match_batch(events)) == expected
    assert as_sets(filter.stream(events).matches()) == expected
    assert [set(filter.match(event).tolist()) for event in events] == expected


@pytest.mark.parametrize("matcher", [*EACH, "auto", None])
def test_a_filter_with_more_attributes_matches_what_its_predicates_say(tmp_path, matcher):
    rng = np.random.default_rng(1)
    filter = EventFilter(SMALL, matcher=matcher, max_unbounded=None)
    before = filter.subscribe_many(predicates_of(SMALL, rng, 40)).tolist()
    filter.subscribe_boxes({"n": [2**62 - 1, 3]}, {"n": [2**63 - 1, 3]})  # with an end that is no float64
    version = filter.stats()["version"]
    filter.add_attributes(MORE)
    assert filter.schema == SCHEMA
    assert filter.stats()["version"] == version
    require_right(filter, rng)
    filter.subscribe_many([random_predicate(rng) for _ in range(40)])
    filter.subscribe("s = 'ab' AND x > 0")
    filter.update(before[0], "s LIKE '%1' OR b = TRUE")
    filter.unsubscribe(before[1])
    filter.repack(*([] if matcher in ("rtree", "auto", None) else [matcher]))
    require_right(filter, rng)
    filter.save(tmp_path / "index")
    require_right(EventFilter.load(tmp_path / "index"), rng)


def test_attributes_are_added_again_and_again():
    filter = EventFilter(Schema({"a0": float}), matcher="rtree")
    filter.subscribe_boxes({"a0": np.arange(100.0)}, {"a0": np.full(100, np.inf)})
    for place in range(1, 6):
        filter.add_attributes({f"a{place}": float})
        filter.subscribe(f"a{place} = {place}", 1000 + place)
    event = {f"a{place}": place for place in range(6)}
    assert sorted(filter.match(event).tolist()) == [0, *range(1001, 1006)]
    assert sorted(filter.match(b'{"a0": 50, "a5": 5}').tolist()) == [*range(51), 1005]


class _Meanwhile(dict):
    """An event; while it is read, its filter gets more attributes."""

    filter: EventFilter

    def get(self, *arguments):
        if self.filter.schema == SMALL:
            self.filter.add_attributes(MORE)
            self.filter.subscribe("s IS NULL", 7)
        return super().get(*arguments)


@pytest.mark.parametrize(
    "way",
    [
        lambda filter, event: filter.match(event).tolist(),
        lambda filter, event: filter.match_batch([event])[0].tolist(),
        lambda filter, event: filter.stream([event]).matches()[0].tolist(),
    ],
    ids=["match", "match_batch", "stream"],
)
def test_an_event_that_came_before_lacks_what_was_added(way):
    filter = EventFilter(SMALL, matcher="rtree")
    filter.subscribe("x > 0", 1)
    event = _Meanwhile(x=1.0, s="a")
    event.filter = filter
    assert sorted(way(filter, event)) == [1, 7]
    assert filter.match({"x": 1.0, "s": "a"}).tolist() == [1]


def test_an_event_with_lists_that_came_before_lacks_what_was_added():
    filter = EventFilter(SMALL, matcher="rtree")
    filter.subscribe("x > 0", 1)
    event = _Meanwhile(x=[-1.0, 1.0], s=["a"])
    event.filter = filter
    assert sorted(filter.match(event).tolist()) == [1, 7]


@pytest.mark.parametrize("matcher", ["rtree", "hashes"])
def test_a_subscription_that_was_read_before_is_taken(matcher):
    filter = EventFilter(SMALL, matcher=matcher)
    draft = filter._subscriptions.draft(["x > 0", "x > 2 OR n = 1"])
    filter.add_attributes(MORE)
    filter._parts.updates.add(draft)
    assert filter.match({"x": 1, "n": 1, "s": "a"}).tolist() == [0, 1]


def test_what_cannot_be_added_changes_nothing():
    filter = EventFilter(SMALL)
    filter.subscribe("x > 0")
    schema = filter.schema
    with pytest.raises(ValueError, match="there is an attribute 'n' already, and its type cannot be changed"):
        filter.add_attributes({"s": str, "n": str})
    for wrong in ({}, {"s": "text"}, {"a..b": str}):
        with pytest.raises(ValueError):  # noqa: PT011  # those of `Schema`
            filter.add_attributes(wrong)
    assert filter.schema is schema


def test_others_match_and_change_meanwhile(monkeypatch):
    monkeypatch.setattr(slices, "SLICE", 16)
    monkeypatch.setattr(copies, "FEW", 4)
    filter = EventFilter(SMALL, matcher="rtree")
    filter.subscribe_boxes({"x": np.zeros(200)}, {"x": np.full(200, 9.0)})
    wrong, done = [], threading.Event()

    def match(event):
        while not done.is_set():
            found = sorted(filter.match(event).tolist())
            if found[:200] != list(range(200)):
                wrong.append(found)

    threads = [threading.Thread(target=match, args=(event,)) for event in ({"x": 5.0}, b'{"x": 5.0}')]
    for thread in threads:
        thread.start()
    try:
        for place in range(20):
            filter.add_attributes({f"more{place}": str if place % 2 else float})
            filter.subscribe(f"x = 4 AND more{place} IS NOT NULL")
            filter.unsubscribe(filter.subscribe("x > 7"))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(filter.match({"x": 4, **{f"more{place}": str(place) for place in range(1, 20, 2)}})) == 210


def test_candidates_are_verified_by_the_new_attributes():
    filter = EventFilter(Schema({"s": str}), matcher="rtree", max_unbounded=None)
    filter.subscribe_many(["s LIKE '%b%'"] * 20)
    assert len(filter.match_batch([{"s": "abc"}])[0]) == 20
    filter.add_attributes({"t": str})
    filter.subscribe_many(["t LIKE '%b%'"] * 20)
    assert sorted(filter.match_batch([{"s": "abc", "t": "aaa"}])[0].tolist()) == list(range(20))
    assert sorted(filter.match_batch([{"s": "aaa", "t": "abc"}])[0].tolist()) == list(range(20, 40))
