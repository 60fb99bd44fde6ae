"""SGIM: groups drop what cannot match, are made anew as subscriptions double, and vanish when empty."""

import numpy as np
import pytest

from rtfilter import EventFilter, Schema
from rtfilter.matchers import check_matcher
from rtfilter.matchers.sgim import Classes, SgimMatcher

SCHEMA = Schema({"x": float, "y": float, "b": bool})


def filter_of(count, rng):
    """A filter with ranges of both numbers, and booleans; and the sources."""
    sources = []
    for _ in range(count):
        x, y = rng.uniform(0, 100, 2).round(1)
        sources.append(f"x BETWEEN {x} AND {x + 20} AND y < {y}" + " AND b" * int(rng.integers(2)))
    filter = EventFilter(SCHEMA, matcher="sgim")
    return filter, sources


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


def test_groups_spare_evaluations():
    filter, sources = filter_of(400, np.random.default_rng(2))
    filter.subscribe_many([source.removesuffix(" AND b") for source in sources])
    matcher = filter._subscriptions.matcher
    hits = matcher.match(SCHEMA.read([{"x": 10.0, "y": 50.0, "b": True}, {"x": 10.0}]))
    groups = matcher.details()["groups"]
    assert groups < hits.visits[0] < 400
    assert hits.visits[1] == groups  # every filter bounds y


def test_a_class_never_falls_where_the_value_rises():
    for low, width in ((0.0, 0.1), (-1e308, 1e308), (2.0**53, 1.0)):
        classes = Classes("x", low, width, 7)
        values = sorted([low + k * width / 3 for k in range(-9, 40)] + [-1.7e308, 1.7e308, 2**53 + 1])
        found = [classes.of(value) for value in values if abs(value) < 1.8e308]
        assert found == sorted(found)
        assert {found[0], found[-1]} <= set(range(7))


@pytest.mark.parametrize("seed", range(3))
def test_groups_by_all_attributes_or_one(seed):
    for attributes in (1, 5):
        check_matcher(lambda schema, attributes=attributes: SgimMatcher(schema, attributes=attributes), seed)


def test_no_attribute_is_refused():
    with pytest.raises(ValueError, match="at least 1 attribute; got 0"):
        SgimMatcher(SCHEMA, attributes=0)
