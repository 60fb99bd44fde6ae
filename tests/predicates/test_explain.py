"""Explanations: the verdicts are those of the predicate, the distances those of the values."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicate_cases import events, schemas, sources
from rtfilter.events.schema import Schema
from rtfilter.predicates.explain import explain
from rtfilter.predicates.model import Constraint, Filter, Predicate
from rtfilter.predicates.parse import parse

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)


def of(constraint, value):
    """Explanation of one constraint on one value; None is a missing one."""
    row = {} if value is None else {constraint.attribute: value}
    return explain(Predicate((Filter((constraint,)),)), row).filters[0].constraints[0]


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_verdicts_are_those_of_the_predicate(data):
    types = data.draw(schemas())
    schema = Schema(types)
    predicate = parse(data.draw(sources(types))[0], schema)
    row = schema.read(data.draw(events(types))).row(0)
    explanation = explain(predicate, row)
    assert explanation.matched == predicate.matches(row)
    assert [f.satisfied for f in explanation.filters] == [f.matches(row) for f in predicate.filters]
    for conjunction, explained in zip(predicate.filters, explanation.filters, strict=True):
        satisfied = [constraint.satisfied for constraint in explained.constraints]
        assert satisfied == [constraint.matches(row) for constraint in conjunction.constraints]
    assert str(explanation)


@pytest.mark.parametrize(
    ("operator", "constant", "value", "distance", "reason"),
    [
        ("<", 10, 12.5, 2.5, "is 12.5, too high by 2.5"),
        ("<", 10, 10, 0, "is 10, which is not below 10"),
        (">", 1, 1, 0, "is 1, which is not above 1"),
        ("<=", 2.0**53, 2**53 + 1, 0, "is 9007199254740993, which is not at most 9007199254740992.0"),
        ("<", 0, 9_992_800_000_000_000, 9.9928e15, "is 9992800000000000, too high by 9992800000000000"),
        (">=", 10, 4, 6, "is 4, too low by 6"),
        ("=", 10, 4, 6, "is 4, off by 6"),
        ("in", [1, 10], 8, 2, "is 8, off by 2"),
        ("<", 10, 5, None, "is 5"),
        ("<>", 10, 10, None, "is 10"),
        ("not in", [10], 10, None, "is 10"),
        ("<", 10, "x", None, "is 'x', of another type"),
        ("<", 10, None, None, "missing"),
        ("is null", None, 5, None, "is 5"),
        ("exists", None, None, None, "missing"),
        ("=", "ab", "cd", None, "is 'cd'"),
        ("=", "ab", 5, None, "is 5, of another type"),
        ("=", True, False, None, "is False"),
        ("like", "a%c%e", "abe", None, "is 'abe', which lacks 'c' in its place"),
        ("like", "%c", "abe", None, "is 'abe', which does not end like 'c'"),
        ("like", "%c", "abc", None, "is 'abc'"),
        ("like", "%c", 5, None, "is 5, of another type"),
        ("not like", "%c", "abc", None, "is 'abc'"),
        ("like ignore case", "%C", "ABE", None, "is 'ABE', which does not end like 'c'"),
        ("ignore case", "abc", "ABE", None, "is 'ABE'"),
        ("cidr", "10.0.0.0/8", "soon", None, "is 'soon', which is no IP address"),
        ("cidr", "10.0.0.0/8", "11.0.0.1", None, "is '11.0.0.1'"),
        ("not cidr", "10.0.0.0/8", "10.0.0.1", None, "is '10.0.0.1'"),
        ("in", [], 5, None, "is 5"),
        ("<", NOON, datetime(2024, 5, 31, 12, 0, 1, 500_000), 1.5, None),
    ],
)
def test_distance_and_reason(operator, constant, value, distance, reason):
    explained = of(Constraint("x", operator, constant), value)
    assert explained.distance == distance
    assert explained.missing == (value is None)
    assert explained.value == value
    if reason is not None:
        assert explained.reason == reason


def test_seconds_for_timestamps():
    assert of(Constraint("x", ">", NOON), "2024-05-31T11:59Z").reason.endswith("too low by 60 s")
    at_noon = of(Constraint("x", ">", NOON), "2024-05-31T12:00Z").reason
    assert at_noon == "is '2024-05-31T12:00Z', which is not above 2024-05-31T12:00:00Z"


def test_report():
    schema = Schema({"price": float, "symbol": str, "qty": int})
    predicate = parse("price < 10 AND symbol = 'A' OR qty IS NULL AND symbol LIKE 'B%'", schema)
    assert str(explain(predicate, {"price": 12.5, "symbol": "A"})) == (
        "no match\n"
        "  filter 1 of 2: no\n"
        "    no   price < 10: is 12.5, too high by 2.5\n"
        "    yes  symbol = 'A': is 'A'\n"
        "  filter 2 of 2: no\n"
        "    yes  qty IS NULL: missing\n"
        "    no   symbol LIKE 'B%': is 'A'"
    )


def test_a_report_of_tests_of_all_kinds():
    schema = Schema({"bid": float, "ask": float, "symbol": str, "host": str})
    predicate = parse(
        "symbol LIKE '%.N' AND ask - bid > 2 * bid AND bid < ask AND LOWER(symbol) <> 'a.n' "
        "AND CIDR(host, '10.0.0.0/8')",
        schema,
    )
    assert str(explain(predicate, {"bid": 10, "ask": 11, "symbol": "A.L", "host": "local"})) == (
        "no match\n"
        "  filter 1 of 1: no\n"
        "    no   symbol LIKE '%.N': is 'A.L', which does not end like '.N'\n"
        "    no   ask - bid > 2 * bid: ask - bid is 1 and 2 * bid is 20, too low by 19\n"
        "    yes  bid < ask: bid is 10 and ask is 11\n"
        "    yes  LOWER(symbol) <> 'a.n': is 'A.L'\n"
        "    no   CIDR(host, '10.0.0.0/8'): is 'local', which is no IP address"
    )


def test_report_of_everything_and_nothing():
    assert str(explain(Predicate.everything(), {})).endswith("no constraint: every event")
    assert "nothing can match it" in str(explain(Predicate(()), {}))


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [(float, 0, "odd"), (str, "", 5), (bool, False, 0), (datetime, "1960-01-01", "soon")],
)
def test_not_in_an_empty_set_asks_for_a_value_of_the_type(kind, value, other):
    schema = Schema({"x": kind})
    predicate = parse(Predicate((Filter((Constraint("x", "not in", []),)),)), schema)
    assert parse("NOT (x IN ())", schema) == predicate
    assert parse(str(predicate), schema) == predicate
    assert [explain(predicate, row).matched for row in ({"x": value}, {"x": other}, {})] == [
        True,
        False,
        False,
    ]
