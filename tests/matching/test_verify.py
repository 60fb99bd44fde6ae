"""Inexact hits decided together are those that each predicate decides alone."""

import json
from datetime import datetime
from heapq import nlargest
from itertools import count

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limits import sources_within
from oracle import as_sets, subscribers
from predicate_cases import events, schemas
from rtfilter import EventFilter, Schema
from rtfilter.matching import verify
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import COMPARE, Constraint
from rtfilter.predicates.predicate import parse
from rtfilter.subscriptions import verification
from rtfilter.subscriptions.verification import Verified

TYPES = {"a": float, "b": int, "s": str, "z": str, "t": datetime, "ok": bool}


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 2])
@given(data=st.data())
@settings(max_examples=60)
def test_hits_decided_together_are_those_of_the_predicates(many, data):
    types = data.draw(schemas())
    schema = Schema(types)
    drawn = data.draw(st.lists(sources_within(types), min_size=1, max_size=5))
    batch = data.draw(st.lists(events(types), min_size=1, max_size=8))
    batch += batch[:2]
    target = EventFilter(schema, matcher="rtree")
    target.subscribe_many([source for source, _ in drawn])
    table = schema.read(batch)
    predicates = {id: parse(source, schema) for id, (source, _) in enumerate(drawn)}
    wanted = subscribers(predicates, [table.row(row) for row in range(len(batch))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "MANY", many)
        patch.setattr(verify, "COMPILED", many)
        assert as_sets(target.match_batch(batch)) == wanted
        assert as_sets(target.stream(batch).matches()) == wanted
    assert [set(target.match(event).tolist()) for event in batch] == wanted


@pytest.mark.parametrize("ids", [[5, 6], ["low", "high"]], ids=["int", "str"])
def test_a_network_beside_a_comparison_is_asked_once_for_each_text(monkeypatch, ids):
    asked = []
    monkeypatch.setitem(COMPARE, "not cidr", lambda value, _: asked.append(value) or value != "10.0.0.1")
    target = EventFilter(Schema({"s": str, "bid": float, "ask": float}), matcher="rtree")
    outside = "NOT CIDR(s, '10.0.0.0/8')"
    target.subscribe_many([f"{outside} AND bid < ask", f"{outside} AND bid - ask >= 0"], ids=ids)
    texts = ["10.0.0.1", "11.0.0.1", "a long text that is no address", "b", "another long text"]
    rng = np.random.default_rng(5)
    prices = rng.integers(0, 3, (200, 2)).astype(float).tolist()
    batch = [{"s": texts[row % 5], "bid": bid, "ask": ask} for row, (bid, ask) in enumerate(prices)]
    assert as_sets(target.match_batch(batch)) == [
        set() if event["s"] == "10.0.0.1" else {ids[event["bid"] >= event["ask"]]} for event in batch
    ]
    assert sorted(asked) == sorted(texts)


def filled(count=400, seed=3):
    """Events of all types, some of them incomplete, odd, large, or equal in what their codes tell."""
    rng = np.random.default_rng(seed)
    texts = ["a", "b", "abcdefg", "abcdefh", "abcdefgh"]
    found = []
    for _ in range(count):
        event = {
            "a": float(rng.choice([0.5, 1, 2, 1e16, -3])),
            "b": int(rng.choice([1, 2, 3, 2**53 + 1, 2**53])),
            "s": str(rng.choice(texts)),
            "z": str(rng.choice(texts)),
            "t": datetime(2024, 5, int(rng.integers(1, 4))),
            "ok": bool(rng.integers(2)),
        }
        for name in TYPES:
            if rng.random() < 0.05:
                event[name] = [None, "odd", 7][rng.integers(3)]
        found.append(event)
    return found


CONDITIONS = [
    "a * b > 2 AND s = 'abcdefg'",
    "a + b = 3",
    "b - 1 >= 9007199254740992",
    "s = z",
    "s <> z AND ok",
    "s < z",
    "s > 'abcdefg' AND t < DATE '2024-05-03'",
    "s <> 'abcdefg' AND b IN (1, 9007199254740993)",
    "NOT s IN ('abcdefg', 'b')",
    "s NOT LIKE 'abcdefg%' AND a IS NOT NULL",
    "b <> 9007199254740993 AND z IS NULL",
    "a * b > 2 OR s = 'abcdefgh'",
    "ok <> TRUE AND a / b < 1",
]


@pytest.mark.slow
@pytest.mark.parametrize("form", [list, lambda rows: pd.DataFrame(rows, columns=list(TYPES), dtype=object)])
@pytest.mark.parametrize("matcher", ["rtree", "masks", "hashes"])
def test_every_kind_of_test_on_a_large_batch(matcher, form):
    schema = Schema(TYPES)
    batch = form(filled())
    target = EventFilter(schema, matcher=matcher)
    target.subscribe_many(CONDITIONS)
    table = schema.read(batch)
    predicates = {id: parse(source, schema) for id, source in enumerate(CONDITIONS)}
    wanted = subscribers(predicates, [table.row(row) for row in range(len(batch))])
    assert all(any(id in ids for ids in wanted) for id in predicates)
    assert as_sets(target.match_batch(batch)) == wanted
    assert as_sets(target.stream(batch).matches()) == wanted


def counted(monkeypatch, owner, name):
    calls, method = [], getattr(owner, name)

    def called(*arguments):
        calls.append(arguments)
        return method(*arguments)

    monkeypatch.setattr(owner, name, called)
    return calls


def test_comparisons_ask_no_event_where_coordinates_tell_all(monkeypatch):
    target = EventFilter(Schema({"bid": float, "ask": float, "s": str}), matcher="rtree")
    target.subscribe_many(["bid * 2 >= ask + 1", "bid >= ask AND s = 'A'", "bid >= ask AND s = 'B'"])
    rng = np.random.default_rng(1)
    batch = [
        {"bid": float(bid), "ask": float(ask), "s": "AB"[row % 2]}
        for row, (bid, ask) in enumerate(rng.random((500, 2)))
    ]
    calls = counted(monkeypatch, Comparison, "matches")
    wanted = [
        {
            id
            for id, holds in enumerate(
                (
                    event["bid"] * 2 >= event["ask"] + 1,
                    event["bid"] >= event["ask"] and event["s"] == "A",
                    event["bid"] >= event["ask"] and event["s"] == "B",
                )
            )
            if holds
        }
        for event in batch
    ]
    assert as_sets(target.match_batch(batch)) == wanted
    assert not calls


def test_each_comparison_is_computed_once_for_a_batch(monkeypatch):
    target = EventFilter(Schema({"bid": float, "ask": float, "n": int}), matcher="rtree")
    target.subscribe_many([f"bid >= ask AND n < {n}" for n in range(10, 30)])
    computed = counted(monkeypatch, verify, "verdicts")
    batch = np.random.default_rng(2).random((300, 3))
    target.match_batch(batch)
    assert sum(isinstance(test, Comparison) for test, *_ in computed) == 1


@pytest.mark.parametrize(
    ("condition", "asked"), [("NOT CIDR(s, '10.0.0.0/8')", 5), ("s LIKE 'a long%prefix %'", 0)]
)
def test_a_string_is_asked_about_once_or_compared_by_compiled_code(monkeypatch, condition, asked):
    target = EventFilter(Schema({"s": str}), matcher="rtree")
    target.subscribe(condition)
    batch = [{"s": f"a long prefix {row % 5}"} for row in range(200)]
    calls = counted(monkeypatch, Constraint, "accepts")
    assert target.match_batch(batch).counts.tolist() == [1] * 200
    assert len(calls) == asked


def counted_kinds(target):
    """The candidates of each kind that has some."""
    kinds = target.stats()["verified"]["kinds"]
    return {kind: own["candidates"] for kind, own in kinds.items() if own["candidates"]}


def test_python_is_not_asked_about_patterns_on_a_text_of_one_event():
    target = EventFilter(Schema({"s": str}), matcher="rtree")
    target.subscribe_many([f"s LIKE 'a long%{text} %'" for text in ("prefix", "postfix", "way")])
    assert target.match({"s": "a long prefix 1"}).tolist() == [0]
    assert counted_kinds(target) == {"compiled": 3}
    assert target.stats()["verified"]["refused"] == 2
    target.match_batch([{"s": "a long prefix 1"}] * 20)
    assert not target._subscriptions.predicates._parsed  # only their compiled form is kept


def test_compiled_code_and_python_decide_about_one_event():
    target = EventFilter(Schema({"s": str, "z": str}), matcher="rtree")
    target.subscribe_many(
        ["s LIKE 'a%b'", "s LIKE 'a%z%b'", "s LIKE 'a%' AND s < z", "s LIKE 'a%' AND s > z", "s = 'ab'"]
    )
    assert sorted(target.match({"s": "ab", "z": "b"}).tolist()) == [0, 2, 4]
    assert sorted(target.match({"s": "ab", "z": "a"}).tolist()) == [0, 3, 4]
    assert counted_kinds(target) == {"compiled": 4, "python": 4}
    assert target.stats()["verified"]["refused"] == 4


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("condition", "event", "kinds"),
    [
        ({"n": [2**53 + 1]}, {"n": 2**53 + 1}, {"ends": 1}),
        ("s LIKE 'a%z%'", {"s": "ay"}, {"compiled": 1}),
        ("s < z", {"s": "a", "z": "b"}, {"python": 1}),
        ("s IS NULL AND z = 'a'", {"o": [{"s": "b", "z": "a"}, {"z": "a"}]}, {}),
        ("o.s IS NULL AND o.z = 'a'", {"o": [{"s": "b"}, {"z": "a"}]}, {"lists": 1}),
        ("n > 3", {"n": 4}, {}),
    ],
)
def test_candidates_and_time_are_counted_by_kind(condition, event, kinds, alone):
    schema = Schema({"n": int, "s": str, "z": str, "o.s": str, "o.z": str})
    target = EventFilter(schema, matcher="rtree")
    if isinstance(condition, dict):
        target.subscribe_boxes(condition, condition)
    else:
        cost = target[target.subscribe(condition)].predicate.cost
        found = {kind for kind in ("compiled", "python") if getattr(cost, kind)}
        assert found == {"compiled", "python"} & set(kinds)
    times = verify.COMPILED
    for _ in range(times if alone else 1):
        if alone:
            target.match(event)
        else:
            target.match_batch([event] * times)
    assert counted_kinds(target) == {kind: times * count for kind, count in kinds.items()}
    verified = target.stats()["verified"]
    spent = {kind for kind, own in verified["kinds"].items() if own["seconds"] > 0}
    assert set(kinds) <= spent
    assert "python" in kinds or "python" not in spent
    assert verified["candidates"] == sum(kinds.values()) * times
    assert 0 <= verified["seconds"] < 10


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", [int, str])
def test_the_subscriptions_that_are_verified_most_often_are_named(kind, alone):
    target = EventFilter(Schema({"bid": float, "ask": float, "s": str}), matcher="rtree", ids=kind)
    ids = [kind(number) for number in range(3)]
    target.subscribe_many(["bid >= ask", "bid >= ask AND s = 'a'", "bid = 1"], ids=ids)
    batch = [{"bid": 1.0, "ask": 2.0, "s": "a" if row == 0 else "b"} for row in range(20)]
    for _ in range(5):
        if alone:
            for event in batch:
                target.match(event)
        else:
            target.match_batch(batch)
    first, *others = target.stats()["verified"]["dearest"]
    assert first["id"] == ids[0]
    assert first["share"] >= 0.8
    assert {one["id"] for one in others} <= {ids[1]}
    assert first["matched"] == 0
    json.dumps(target.stats())
    target.unsubscribe(ids[0])
    assert ids[0] not in {one["id"] for one in target.stats()["verified"]["dearest"]}


def test_a_signal_handler_may_match_while_counts_are_compared(monkeypatch):
    counted, handles = Verified(), count(10**6)

    def interrupted(most, known, key):
        def key_of(one):
            counted.add((), 0, [(next(handles), 1)])
            return key(one)

        return nlargest(most, known, key_of)

    monkeypatch.setattr(verification, "nlargest", interrupted)
    counted.add((), 0, [(handle, 1) for handle in range(100)])
    assert len(counted.dearest()) == verification.DEAREST
