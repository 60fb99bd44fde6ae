"""Subscriptions that cover a predicate, are covered by it or mean the same, beside brute force over all."""

import json
from datetime import datetime
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinds import EACH, KINDS, id_of
from predicate_cases import conditions, schemas, sql
from rtfilter import EventFilter, Predicate, PredicateError, Schema
from rtfilter.filter import inside

SCHEMA = Schema({"x": float, "y": float, "s": str, "at": datetime})
WAYS = ("covers", "covered", "equal")


def answer(way, own, predicate):
    """What `Predicate.covers` says of one subscription."""
    covers = {"covers": [(own, predicate)], "covered": [(predicate, own)]}
    pairs = covers.get(way) or [*covers["covers"], *covers["covered"]]
    answers = [one.covers(two) for one, two in pairs]
    return False if False in answers else None if None in answers else True


def require_right(filter, predicates, predicate):
    """The answers of a filter are those of each subscription; what is known there is known here."""
    nothing = Predicate.parse("FALSE", filter.schema)
    for way in WAYS:
        found = getattr(filter.related(predicate), way)
        ids, unknown = set(found.ids.tolist()), set(found.unknown.tolist())
        assert len(ids) == len(found.ids)
        assert not ids & unknown
        for id, own in predicates.items():
            right = answer(way, own, predicate)
            if right is None:
                continue
            if right and way != "covers" and nothing.covers(own) is not False:
                continue  # what nothing satisfies may be left out
            assert (id in ids) is right, (way, str(own), str(predicate))
            assert id not in unknown, (way, str(own), str(predicate))


@pytest.mark.parametrize("matcher", EACH)
@given(data=st.data())
@settings(max_examples=12)
def test_beside_brute_force(matcher, data):
    types = data.draw(schemas())
    filter = EventFilter(Schema(types), matcher=matcher, max_unbounded=None)
    texts = [sql(data.draw(conditions(types))) for _ in range(data.draw(st.integers(1, 8)))]
    predicates = {id: Predicate.parse(text, filter.schema) for id, text in enumerate(texts)}
    filter.subscribe_many(texts)
    for text in [*texts[:3], sql(data.draw(conditions(types)))]:
        require_right(filter, predicates, Predicate.parse(text, filter.schema))


def test_a_subscription_may_be_covered_though_its_box_reaches_beyond():
    filter = EventFilter(SCHEMA)
    filter.subscribe("x > y AND y > 5")  # whose box bounds y alone
    found = filter.related("x > 5").covered
    assert found.ids.tolist() + found.unknown.tolist() == [0]


def intervals(count, seed=0):
    """Predicates on two attributes, of which some contain others, with sets and ends of all kinds."""
    rng = np.random.default_rng(seed)
    found = []
    for n in range(count):
        low, wide = rng.integers(0, 20, 2), rng.integers(0, 12, 2)
        parts = [f"x BETWEEN {low[0]} AND {low[0] + wide[0]}", f"y > {low[1]}"]
        if n % 3:
            parts[1] = f"y BETWEEN {low[1]} AND {low[1] + wide[1]}"
        if n % 5 == 0:
            parts.append(f"x <> {low[0] + 1}")
        if n % 7 == 0:
            parts[0] = f"x IN ({low[0]}, {low[0] + 1})"
        if n % 11 == 0:
            parts.append("s LIKE '%a'")
        found.append(" AND ".join(parts))
    return found


@pytest.mark.slow
def test_many_subscriptions():
    filter = EventFilter(SCHEMA, matcher={"name": "rtree", "capacity": (4, 8)})
    texts = intervals(150)
    filter.subscribe_many(texts)
    predicates = {id: filter[id].predicate for id in range(len(texts))}
    for text in [*texts[:12], "x > 3 AND y > 3", "x IN (4, 5) AND y = 9", "x BETWEEN 2 AND 22 AND y > 0"]:
        predicate = Predicate.parse(text, SCHEMA)
        require_right(filter, predicates, predicate)
        assert not len(filter.related(predicate).covers.unknown)


def test_a_union_covers_together():
    """No box of the subscription contains that of the predicate."""
    filter = EventFilter(SCHEMA)
    filter.subscribe("x < 5 OR x BETWEEN 5 AND 7 OR x > 7", id=1)
    filter.subscribe("x < 5 OR x > 5", id=2)
    filter.subscribe("x BETWEEN 0 AND 10", id=3)
    assert filter.related("x BETWEEN 0 AND 10").covers.ids.tolist() == [1, 3]
    assert filter.related("x IN (1, 9)").covers.ids.tolist() == [1, 2, 3]
    assert filter.related("x < 5 OR x >= 5").covered.ids.tolist() == [1, 2, 3]
    assert filter.related("x >= 5 OR x < 5").equal.ids.tolist() == [1]


def test_equal_is_by_meaning():
    filter = EventFilter(SCHEMA)
    filter.subscribe("x BETWEEN 0 AND 10 AND s = 'a long text of its own'", id=1)
    filter.subscribe("s LIKE 'a%' AND x >= 3", id=2)
    filter.subscribe("at > TIMESTAMP '2024-05-31T12:00:00Z'", id=3)
    filter.subscribe("x * 2 > y", id=4)
    for text, ids in [
        ("x >= 0 AND NOT (x > 10) AND s IN ('a long text of its own')", [1]),
        ("x >= 3 AND s >= 'a' AND s < 'b'", [2]),
        ("at >= TIMESTAMP '2024-05-31T12:00:00.000001Z'", [3]),
        ("y < x * 2", [4]),
        ("x >= 3 AND s > 'a' AND s < 'b'", []),
    ]:
        found = filter.related(text).equal
        assert (found.ids.tolist(), found.unknown.tolist()) == (ids, []), text


def test_each_relation_is_searched_once_when_it_is_asked_for():
    filter = EventFilter(SCHEMA)
    found = filter.related("x < 5")
    filter.subscribe("x < 9", id=1)
    assert found.covers.ids.tolist() == [1]
    filter.subscribe("x < 8", id=2)
    assert (found.covers.ids.tolist(), found.covered.ids.tolist()) == ([1], [])
    assert repr(found) == "Related('x < 5')"


def test_what_is_unknown_is_told_apart():
    filter = EventFilter(SCHEMA)
    filter.subscribe("s LIKE '%b%'", id=1)
    filter.subscribe("s LIKE 'abc%'", id=2)
    found = filter.related("s LIKE 'abc%'").covers
    assert (found.ids.tolist(), found.unknown.tolist()) == ([2], [1])
    found = filter.related("s LIKE '%b%'").covered
    assert (found.ids.tolist(), found.unknown.tolist()) == ([1], [2])


def test_what_nothing_satisfies():
    filter = EventFilter(SCHEMA)
    filter.subscribe("x < 3 AND x > 5", id=1)
    filter.subscribe("x < 3", id=2)
    assert filter.related("x < 2 AND x > 7").covers.ids.tolist() == [1, 2]
    assert filter.related("x < 2 AND x > 7").covered.ids.tolist() == [1]
    assert filter.related("x < 4").covered.ids.tolist() == [1, 2]
    assert filter.related("FALSE").equal.ids.tolist() == [1]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_ids_are_those_given(kind):
    filter = EventFilter(SCHEMA)
    ids = [id_of(KINDS[kind], number) for number in (3, 1, 2)]
    filter.subscribe_many(["x < 5", "x < 9", "s LIKE '%a'"], ids=ids)
    assert filter.related("x < 4").covers.ids.tolist() == sorted(ids[:2])
    assert filter.related("x < 7").covered.ids.tolist() == ids[:1]
    assert filter.related("s LIKE '%a'").equal.ids.tolist() == ids[2:]
    assert filter.related("x < 4").covers.ids.dtype == (np.int64 if kind == "int" else object)
    assert filter.related("y < 4").covers.ids.tolist() == []
    if kind == "uuid":
        assert type(filter.related("x < 4").covers.ids[0]) is UUID


@pytest.mark.parametrize("matcher", EACH)
def test_expired_ones_are_hidden(matcher):
    now = [0.0]
    filter = EventFilter(SCHEMA, matcher=matcher, clock=lambda: now[0])
    filter.subscribe("x < 5", id=1, ttl=10)
    filter.subscribe("x < 5", id=2)
    filter.subscribe("x < 5 AND x > 7", id=3, ttl=10)
    for way in WAYS:
        assert getattr(filter.related("x < 5"), way).ids.tolist() == (
            [1, 2, 3] if way == "covered" else [1, 2]
        )
    now[0] = 10.0
    for way in WAYS:
        assert getattr(filter.related("x < 5"), way).ids.tolist() == [2]
    assert filter.related("FALSE").covered.ids.tolist() == []


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("s LIKE '\x7f%'", "s >= '\x7f' AND s < '\x80'"),
        ("s LIKE 'a\x7f%'", "s >= 'a\x7f' AND s < 'a\x80'"),
        ("s LIKE '\xff%'", "s >= '\xff' AND s < '\u0100'"),
        ("s LIKE 'ab\u07ff%'", "s >= 'ab\u07ff' AND s < 'ab\u0800'"),
        ("s LIKE '\uffff%'", "s >= '\uffff' AND s < '\U00010000'"),
        ("s LIKE '\U0010ffff%'", "s >= '\U0010ffff'"),
        ("s >= 'a' AND s < 'b' AND s <> 'zz'", "s LIKE 'a%'"),
        ("s >= 'a' AND s < 'b' AND s <> ''", "s LIKE 'a%'"),
    ],
)
def test_texts_whose_codes_have_gaps(one, two):
    """Between what begins with one character and with the next one, UTF-8 leaves bytes that none has."""
    for own, other in ((one, two), (two, one)):
        filter = EventFilter(SCHEMA)
        filter.subscribe(own)
        for way in WAYS:
            assert getattr(filter.related(other), way).ids.tolist() == [0], way


def test_what_may_be_left_out_can_match_nothing():
    """Predicates and subscriptions that nothing satisfies, though their boxes do not tell."""
    filter = EventFilter(SCHEMA)
    nothing = ["s LIKE 'ab%' AND LOWER(s) = 'x'", "x < y AND x > y", "x < 3 AND x > 5"]
    filter.subscribe_many([*nothing, "x < 3", "x < y"])
    for text in nothing:
        assert filter.related(text).covers.ids.tolist() == [0, 1, 2, 3, 4]
        for way in ("covered", "equal"):
            found = getattr(filter.related(text), way)
            assert 2 in found.ids
            assert {*found.ids.tolist(), *found.unknown.tolist()} <= {0, 1, 2}


def test_bounds_are_subscriptions_too():
    filter = EventFilter(Schema({"x": float, "n": int}))
    filter.subscribe_boxes(
        np.array([[0.0, 2**53], [2.0, -np.inf]]), np.array([[9.0, 2**53 + 2], [3.0, np.inf]])
    )
    assert filter.related(f"x = 2.5 AND n = {2**53 + 1}").covers.ids.tolist() == [0, 1]
    assert filter.related(f"x = 2.5 AND n = {2**53 + 3}").covers.ids.tolist() == [1]
    assert filter.related("x >= 0").covered.ids.tolist() == [0, 1]
    assert filter.related("x BETWEEN 2 AND 3").equal.ids.tolist() == [1]


def test_few_nodes_are_visited():
    """Searching by the index, not by a look at all: nodes are counted."""
    rng = np.random.default_rng(1)
    low = rng.random((5000, 2)) * 100
    filter = EventFilter(Schema({"x": float, "y": float}), matcher={"name": "rtree", "capacity": (8, 16)})
    filter.subscribe_boxes(low, low + rng.random((5000, 2)))
    nodes = sum(filter.stats()["nodes_per_level"])
    found = filter.related("x BETWEEN 50 AND 50.1 AND y BETWEEN 50 AND 50.1").covers
    assert found.visits < nodes / 20
    found = filter.related("x BETWEEN 50 AND 53 AND y BETWEEN 50 AND 53").covered
    assert len(found.ids)
    assert not len(found.unknown)
    assert found.visits < nodes / 10
    sides = [(low >= [50, 50]).all(axis=1), (filter_ends(filter) <= [53, 53]).all(axis=1)]
    assert found.ids.tolist() == np.flatnonzero(np.logical_and(*sides)).tolist()


def filter_ends(filter):
    """The high ends of all subscriptions of a filter, by id."""
    ids, _, high, _ = inside(filter).matcher.tree.content()
    return high[np.argsort(ids)]


def test_patterns_and_predicates_are_taken():
    filter = EventFilter(SCHEMA)
    filter.subscribe({"s": [{"prefix": "a"}]}, id=5)
    assert filter.related({"s": ["abc"]}).covers.ids.tolist() == [5]
    assert filter.related(filter[5].predicate).equal.ids.tolist() == [5]
    assert json.loads(json.dumps(filter[5].predicate.to_pattern())) == {"s": [{"prefix": "a"}]}
    assert filter[5].predicate.cost.boxes == 1
    with pytest.raises(PredicateError, match="did you mean 'x'"):
        filter.related("X < 5")


def test_who_is_covered_may_end_as_it_likes_in_the_index():
    """The box of an equality says how a text begins and what it is, and leaves its end open."""
    filter = EventFilter(Schema({"s": str}), matcher="rtree")
    filter.subscribe_many(["s = 'xa'", "s = 'xb'", "s IN ('a', 'ba')", "s LIKE 'a%'", "s LIKE 'a%ba'"])
    assert filter.related("s LIKE '%a'").covered.ids.tolist() == [0, 2, 4]
    assert filter.related("LOWER(s) = 'xa'").covered.ids.tolist() == [0]
    assert filter.related("s = 'ba'").covers.ids.tolist() == [2]
