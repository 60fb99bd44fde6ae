"""SGIM: groups drop what cannot match, are made anew as subscriptions double, and vanish when empty."""

from datetime import datetime
from functools import partial

import numpy as np
import pytest

import rtfilter.matchers.papers.sgim
from interrupts import twice
from lengths import long_but
from rtfilter import EventFilter, Predicate, Schema
from rtfilter.matchers import Filters, check_matcher
from rtfilter.matchers.papers.eventwise import FlatEvent
from rtfilter.matchers.papers.sgim import Classes, SgimMatcher

SCHEMA = Schema({"x": float, "y": float, "b": bool})


def filter_of(count, rng):
    """A filter with ranges of both numbers, and booleans; and the sources."""
    sources = []
    for _ in range(count):
        x, y = rng.uniform(0, 100, 2).round(1)
        sources.append(f"x BETWEEN {x} AND {x + 20} AND y < {y}" + " AND b" * int(rng.integers(2)))
    filter = EventFilter(SCHEMA, matcher="sgim")
    return filter, sources


def matcher_of(sources, schema=SCHEMA, **options):
    """A matcher of predicates with ids 0, 1, ..., put in one after the other."""
    matcher = SgimMatcher(schema, **options)
    predicates = [Predicate.parse(source, schema) for source in sources]
    matcher.add(Filters.of_predicates(schema, predicates))
    return matcher


def asked(matcher, *events):
    """Ids of each event."""
    hits = matcher.match(matcher._schema.read(list(events)))
    return [sorted(hits.ids[a:b].tolist()) for a, b in zip(hits.offsets, hits.offsets[1:], strict=False)]


def evaluated(matcher, event):
    """The constraints that were evaluated, in order."""
    tried, satisfies = [], FlatEvent.satisfies

    def counted(self, test):
        tried.append(test)
        return satisfies(self, test)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlatEvent, "satisfies", counted)
        matcher.match(matcher._schema.read([event]))
    return tried


def test_groups_are_made_anew_without_a_change_of_answers():
    filter, sources = filter_of(200, np.random.default_rng(0))
    plain = EventFilter(SCHEMA, matcher="naive")
    events = [{"x": x, "y": y, "b": x % 2 == 0} for x in range(0, 130, 7) for y in (0.0, 30.5, 99.0)]
    classes = set()
    for source in sources:
        filter.subscribe(source)
        plain.subscribe(source)
        if len(filter) in (7, 8, 15, 16, 63, 64, 200):
            classes.add((filter.stats()["classes"], len(filter)))
            found = [sorted(ids) for ids in filter.match_batch(events)]
            assert found == [sorted(ids) for ids in plain.match_batch(events)]
    assert classes == {(1, 7), (4, 8), (4, 15), (5, 16), (6, 63), (7, 64), (8, 200)}


def test_empty_groups_vanish():
    filter, sources = filter_of(100, np.random.default_rng(1))
    ids = filter.subscribe_many(sources)
    assert filter.stats()["groups"] > 20
    assert filter.unsubscribe_many(ids).all()
    assert filter.stats()["groups"] == 0


def test_groups_are_made_anew_where_few_are_left():
    filter, sources = filter_of(64, np.random.default_rng(3))
    ids = filter.subscribe_many(sources)
    filter.unsubscribe_many(ids[16:])
    assert filter.stats()["classes"] == 7  # of 64
    filter.unsubscribe_many(ids[:2])
    assert filter.stats()["classes"] == 5  # of 14
    plain = EventFilter(SCHEMA, matcher="naive")
    plain.subscribe_many(sources[2:16])
    events = [{"x": x, "y": y, "b": True} for x in range(0, 130, 7) for y in (0.0, 30.5)]
    assert sum(map(len, filter.match_batch(events))) == sum(map(len, plain.match_batch(events))) > 0


def test_what_is_bounded_narrowly_and_often_is_chosen():
    both = [f"x >= {k} AND x <= {k + 1} AND y < {50 + k}" for k in range(16)]
    rarely = [*(f"x < {k}" for k in range(15)), "y = 3 AND x < 16"]
    for sources in (both, rarely):
        assert matcher_of(sources, attributes=1).details()["grouped_by"] == ["x"]


def test_booleans_and_timestamps_make_groups():
    schema = Schema({"b": bool, "t": datetime, "s": str})
    sources = [f"t > '2024-01-{day:02}' AND s > 'a' AND b = {day % 2 == 0}" for day in range(1, 21)]
    details = matcher_of(sources, schema, attributes=3).details()
    assert sorted(details["grouped_by"]) == ["b", "t"]
    assert details["groups"] > 6


@pytest.mark.parametrize(
    ("source", "x", "most"),
    [
        ("x < {k}", 0.5, 3),  # 1, 2 and 3 are in the first class, whose width is 3
        ("x < {k} AND x < 99", 0.5, 3 + 1),
        ("x > {k}", 20, 4),
        ("x > {k} AND x > -9", 20, 4 + 1),
    ],
)
def test_open_sides_hold_and_the_closest_of_several_bounds_counts(source, x, most):
    matcher = matcher_of([source.format(k=k) for k in range(1, 17)])
    assert matcher.details() == {"groups": 5, "grouped_by": ["x"], "classes": 5}
    assert asked(matcher, {"x": x}) == [list(range(16))]
    assert len(evaluated(matcher, {"x": x})) == most


def test_each_constraint_is_evaluated_once_an_event():
    matcher = matcher_of([f"b AND y > {k % 3}" for k in range(20)])
    tried = evaluated(matcher, {"b": True, "y": 1.5})
    assert len(tried) == len(set(tried)) > 0


def test_groups_and_all_constraints_that_are_come_to_are_counted():
    """Also those whose outcome is known: looking it up is work as well."""
    matcher = matcher_of([f"b AND y > {k}" for k in range(4)])  # too few for groups
    (visits,) = matcher.match(SCHEMA.read([{"b": True, "y": 1.5}])).visits
    assert visits == 1 + 4 * 2
    (visits,) = matcher.match(SCHEMA.read([{"b": False, "y": 1.5}])).visits
    assert visits == 1 + 4


@pytest.mark.slow
@pytest.mark.parametrize("change", ["add", "remove"])
@pytest.mark.parametrize("every", long_but([1, 4], [4]))
def test_making_groups_anew_may_be_cut_short(change, every):
    """Nothing is lost, and what came is gone when it is removed."""
    sources = [f"x > {k} AND b" for k in range(16)]
    event = {"x": 20.0, "b": True}

    def made():
        matcher = matcher_of(sources[:7] if change == "add" else sources)
        matcher.remove(np.arange(3, 16) if change == "remove" else np.arange(0))
        return matcher

    def call(matcher):
        if change == "add":
            predicates = [Predicate.parse("x > 3", SCHEMA)]
            matcher.add(Filters.of_predicates(SCHEMA, predicates, np.array([7])))
        else:
            matcher.remove(np.array([2]))

    def undo(matcher):
        matcher.remove(np.array([7, 2]))

    before, matcher = made().details(), made()
    call(matcher)
    assert matcher.details() != before
    left = [0, 1, 3, 4, 5, 6] if change == "add" else [0, 1]
    for matcher, lines in twice([rtfilter.matchers.papers.sgim], made, call, undo, every):
        assert asked(matcher, event) == [left], lines
        assert sum(map(len, matcher._groups.groups.values())) == len(left), lines


def test_groups_spare_evaluations():
    filter, sources = filter_of(400, np.random.default_rng(2))
    filter.subscribe_many([source.removesuffix(" AND b") for source in sources])
    matcher = filter._subscriptions.matcher
    hits = matcher.match(SCHEMA.read([{"x": 10.0, "y": 50.0, "b": True}, {"x": 10.0}]))
    groups = matcher.details()["groups"]
    assert groups < hits.visits[0] < 2 * 400
    assert hits.visits[1] == groups  # every filter bounds y


def test_a_class_never_falls_where_the_value_rises():
    for low, width in ((0.0, 0.1), (-1e308, 1e308), (2.0**53, 1.0)):
        classes = Classes("x", low, width, 7)
        values = sorted([low + k * width / 3 for k in range(-9, 40)] + [-1.7e308, 1.7e308, 2**53 + 1])
        found = [classes.of(value) for value in values if abs(value) < 1.8e308]
        assert found == sorted(found)
        assert {found[0], found[-1]} <= set(range(7))


@pytest.mark.slow
@pytest.mark.parametrize("attributes", [1, 5])
def test_groups_by_all_attributes_or_one(attributes):
    check_matcher(partial(SgimMatcher, attributes=attributes), rounds=4)


def test_no_attribute_is_refused():
    with pytest.raises(ValueError, match="attributes must be at least 1; got 0"):
        SgimMatcher(SCHEMA, attributes=0)
