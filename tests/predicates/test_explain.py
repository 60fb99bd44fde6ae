"""Explanations: the verdicts are those of the predicate, the distances those of the values."""

import contextlib
import math
from datetime import UTC, datetime
from fractions import Fraction
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from limits import sources_within
from predicate_cases import BIG, CONSTANTS, POOLS, STRINGS, events, schemas, truth
from rtfilter import EventFilter
from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import READERS
from rtfilter.events.schema import Schema
from rtfilter.predicates.explanations.explanation import explain
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import COMPARE, PRESENCE, SETS, Constraint, Filter, Quantified
from rtfilter.predicates.operands.like import canonical_like, is_like, sample, why_unlike
from rtfilter.predicates.predicate import Predicate, parse

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)


def of(constraint, value):
    """Explanation of one constraint on one value; None is a missing one."""
    row = {} if value is None else {constraint.attribute: value}
    return explain(Predicate((Filter((constraint,)),)), row).filters[0].constraints[0]


def drawn(data):
    """A predicate, an event and the types of the attributes."""
    types = data.draw(schemas())
    schema = Schema(types)
    source, condition = data.draw(sources_within(types))
    predicate = parse(source, schema)
    event = data.draw(events(types))
    row = schema.read(event).row(0)
    assert predicate.matches(row) == truth(condition, event, types)
    return predicate, row, types


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150)
def test_verdicts_are_those_of_the_predicate(data):
    predicate, row, _ = drawn(data)
    explanation = explain(predicate, row)
    assert explanation.matched == predicate.matches(row)
    assert [f.satisfied for f in explanation.filters] == [f.matches(row) for f in predicate.filters]
    for conjunction, explained in zip(predicate.filters, explanation.filters, strict=True):
        satisfied = [constraint.satisfied for constraint in explained.constraints]
        assert satisfied == [constraint.matches(row) for constraint in conjunction.constraints]
    assert str(explanation)


@cases(
    ("operator", "constant", "value", "distance", "reason"),
    [
        ("<", 10, 12.5, 2.5, "is 12.5, too high by 2.5"),
        ("<", 10, 10, 0, "is 10, not below 10"),
        (">", 1, 1, 0, "is 1, not above 1"),
        ("<=", 2.0**53, 2**53 + 1, 1, "is 9007199254740993, too high by 1"),
        (">=", 2**53 + 1, 2.0**53, 1, "is 9007199254740992.0, too low by 1"),
        ("<", 0, 9_992_800_000_000_000, 9.9928e15, "is 9992800000000000, too high by 9992800000000000"),
        (">=", 10, 4, 6, "is 4, too low by 6"),
        ("=", 10, 4, 6, "is 4, too low by 6"),
        ("=", 10, 16.5, 6.5, "is 16.5, too high by 6.5"),
        ("in", [1, 10], 8, 2, "is 8, too low by 2 for 10, the nearest"),
        ("in", [10], 8, 2, "is 8, too low by 2"),
        ("in", [], 5, None, "is 5, no value is in an empty set"),
        ("<", 10, 5, None, "is 5"),
        ("<>", 10, 10, None, "is 10, excluded"),
        ("not in", [10, 11], 10, None, "is 10, excluded"),
        ("<", 10, "x", None, "is 'x', of another type: not a number"),
        ("<", 10, None, None, "missing"),
        ("is null", None, 5, None, "is 5, must be missing"),
        ("is null", None, None, None, "missing"),
        ("exists", None, None, None, "missing"),
        ("exists", None, 5, None, "is 5"),
        ("=", "ab", "cd", None, "is 'cd', character 1 is 'c', not 'a'"),
        ("=", "ACME", "ACMX", None, "is 'ACMX', character 4 is 'X', not 'E'"),
        ("=", "ACME", "AC", None, "is 'AC', lacks 'ME' after character 2"),
        ("=", "AC", "ACME", None, "is 'ACME', goes on after character 2, with 'ME'"),
        ("=", "ab", 5, None, "is 5, of another type: not a string"),
        ("<>", "ab", "ab", None, "is 'ab', excluded"),
        ("in", ["abc", "xyz"], "abd", None, "is 'abd', none of 2 texts; 'abc' agrees up to character 2"),
        ("in", ["abc", "xyz"], "m", None, "is 'm', none of 2 texts"),
        ("in", ["abc"], "abd", None, "is 'abd', character 3 is 'd', not 'c'"),
        ("not in", ["a", "b"], "b", None, "is 'b', excluded"),
        ("<", "b", "ba", None, "is 'ba', not below 'b': goes on after character 1, with 'a'"),
        ("<", "b", "b", None, "is 'b', not below 'b'"),
        ("<=", "abc", "abd", None, "is 'abd', not at most 'abc': character 3 is 'd', not 'c'"),
        (">", "b", "a", None, "is 'a', not above 'b': character 1 is 'a', not 'b'"),
        (">=", "ab", "a", None, "is 'a', not at least 'ab': lacks 'b' after character 1"),
        ("prefix", "ab", "ac", None, "is 'ac', character 2 is 'c', not 'b'"),
        ("prefix", "ab", "", None, "is '', lacks 'ab'"),
        ("not prefix", "ab", "abc", None, "is 'abc', begins with 'ab'"),
        ("=", True, False, None, "is False, not True"),
        ("<>", True, True, None, "is True, excluded"),
        ("in", [True], False, None, "is False, not True"),
        ("=", True, 1, None, "is 1, of another type: not a boolean"),
        ("like", "a%c%e", "abbe", None, "is 'abbe', lacks 'c' after character 1 and before character 4"),
        ("like", "a%b%c%", "acb", None, "is 'acb', lacks 'c' after character 3"),
        ("like", "%b%c", "ac", None, "is 'ac', lacks 'b' before character 2"),
        ("like", "%b%", "a", None, "is 'a', lacks 'b'"),
        ("like", "a_c%d", "abxd", None, "is 'abxd', does not begin like 'a_c': character 3 is 'x', not 'c'"),
        ("like", "a_c", "abcd", None, "is 'abcd', goes on after character 3, with 'd'"),
        ("like", "a__", "ab", None, "is 'ab', does not begin like 'a__': ends after character 2"),
        ("like", "ab%bc", "abc", None, "is 'abc', too short by 1 character"),
        ("like", "%c", "abe", None, "is 'abe', does not end like 'c': character 3 is 'e', not 'c'"),
        ("like", "%c", "abc", None, "is 'abc'"),
        ("like", "%c", 5, None, "is 5, of another type: not a string"),
        ("not like", "%c", "abc", None, "is 'abc', fits '%c'"),
        (
            "like ignore case",
            "%C",
            "ABE",
            None,
            "is 'ABE', 'abe' but for case: does not end like 'c': character 3 is 'e', not 'c'",
        ),
        (
            "like ignore case",
            "%C",
            "abe",
            None,
            "is 'abe', does not end like 'c': character 3 is 'e', not 'c'",
        ),
        ("not like ignore case", "%C", "ABC", None, "is 'ABC', fits '%c' but for case"),
        ("ignore case", "abc", "ABE", None, "is 'ABE', 'abe' but for case: character 3 is 'e', not 'c'"),
        ("not ignore case", "abc", "ABC", None, "is 'ABC', equal to 'abc' but for case"),
        ("cidr", "10.0.0.0/8", "soon", None, "is 'soon', no IP address"),
        ("cidr", "10.0.0.0/8", "11.0.0.1", None, "is '11.0.0.1', 7 of 8 leading bits agree"),
        ("cidr", "10.0.0.0/8", "::1", None, "is '::1', an address of IPv6, not IPv4"),
        ("cidr", "2001:db8::/32", "2001:db9::1", None, "is '2001:db9::1', 31 of 32 leading bits agree"),
        ("not cidr", "10.0.0.0/8", "10.0.0.1", None, "is '10.0.0.1', in the network '10.0.0.0/8'"),
        ("<", NOON, datetime(2024, 5, 31, 12, 0, 1, 500_000), 1.5, None),
        ("in", [NOON], datetime(2024, 5, 31, 12, 0, 1), 1, None),
        (">", NOON, 5, None, "is 5, of another type: not a timestamp"),
    ],
)
def test_distance_and_reason(operator, constant, value, distance, reason):
    explained = of(Constraint("x", operator, constant), value)
    assert explained.distance == distance
    assert explained.missing == (value is None)
    assert explained.value == value
    assert explained.unit == ("s" if constant in (NOON, [NOON]) else "")
    if reason is not None:
        assert explained.reason == reason


def test_every_operator_has_a_reason():
    told = test_distance_and_reason.table
    failing = {case[0] for case in told if not of(Constraint("x", *case[:2]), case[2]).satisfied}
    assert failing == {*COMPARE, *PRESENCE}


@cases(
    ("operator", "constant", "value", "agrees"),
    [
        ("=", "ACME", "ACMX", 3),
        ("prefix", "ACME", "AC", 2),
        ("in", ["abc", "x"], "abd", 2),
        ("like", "a%c%e", "abbe", 1),
        ("ignore case", "abc", "ABE", 2),
        ("cidr", "10.0.0.0/8", "11.0.0.1", 7),
        ("cidr", "10.0.0.0/8", "soon", None),
        ("=", "ACME", "ACME", None),
        ("=", "ACME", 5, None),
        ("=", "ACME", None, None),
        ("<", 1, 2, None),
    ],
)
def test_how_far_text_agrees(operator, constant, value, agrees):
    assert of(Constraint("x", operator, constant), value).agrees == agrees


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_an_event_that_is_changed_as_told_satisfies_the_constraint(data):
    predicate, row, types = drawn(data)
    for conjunction in explain(predicate, row).filters:
        for explained in conjunction.constraints:
            test, remedy = explained.constraint, explained.remedy
            if explained.satisfied:
                assert not remedy
            elif remedy:
                assert set(remedy) <= set(test.attributes)
                assert test.matches({**row, **remedy})
                schema = Schema(types)
                assert (
                    schema.read({**row, **remedy}).row(0).items()
                    >= {name: value for name, value in remedy.items() if value is not None}.items()
                )
            elif isinstance(test, Constraint) and test.operator != "exists":
                others = [*POOLS[types[test.attribute]], "", None]
                assert not any(test.accepts(value) for value in others)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_distances_and_agreement_are_those_of_the_values(data):
    predicate, row, _ = drawn(data)
    for explained in (one for each in explain(predicate, row).filters for one in each.failing):
        test = explained.constraint
        if isinstance(test, Comparison):
            if explained.distance is not None and explained.distance < BIG:
                left, right = map(Fraction, explained.value)
                unit = 10**6 if explained.unit else 1
                assert float(abs(left - right) / unit) == pytest.approx(explained.distance)
            continue
        if isinstance(test, Quantified):
            if explained.missing:
                continue
            assert (explained.distance, explained.agrees) == (
                explained.telling.distance,
                explained.telling.agrees,
            )
            explained, test = explained.telling, explained.telling.constraint
        value = row.get(test.attribute)
        if explained.distance is not None:
            unit = 10**6 if explained.unit else 1
            found = Fraction(READERS[type(test.sample)](value))
            constants = test.value if test.operator in SETS else [test.value]
            true = min(abs(found - Fraction(one)) for one in constants) / unit
            assert nearly(explained.distance, true)
            assert ("too" in explained.shortfall) is (explained.distance > 0)
        if explained.agrees is not None and test.operator in ("=", "prefix"):
            assert value[: explained.agrees] == test.value[: explained.agrees]
            assert value[: explained.agrees + 1] != test.value[: explained.agrees + 1] or value == test.value
        if explained.agrees is not None and test.operator == "cidr":
            network = ip_network(test.value)
            wider = network.supernet(new_prefix=explained.agrees)
            assert (ip_address(value) in wider) is (wider.version == ip_address(value).version)
            assert ip_address(value) not in network.supernet(new_prefix=explained.agrees + 1)


def nearly(distance, true):
    """Whether a float64 is an exact distance, rounded."""
    try:
        return float(true) == pytest.approx(distance, rel=1e-12, abs=1e-12)
    except OverflowError:
        return distance == math.inf


@given(st.data())
@settings(max_examples=150)
def test_the_piece_of_a_pattern_that_does_not_fit(data):
    pattern = canonical_like(data.draw(CONSTANTS["like"]))
    value = data.draw(st.text("abé%_", max_size=8) | st.sampled_from(STRINGS))
    assert is_like(sample(pattern), pattern)
    if not is_like(value, pattern):
        lack = why_unlike(value, pattern)
        assert lack.phrase
        # Up to there it fits the beginning of the pattern, as far as that goes.
        assert any(is_like(value[: lack.agrees], beginning) for beginning in beginnings(pattern))


def beginnings(pattern):
    """The pattern cut short at every place where that leaves a pattern."""
    for end in range(len(pattern) + 1):
        with contextlib.suppress(PredicateError):
            yield canonical_like(pattern[:end])


@cases(
    ("condition", "event", "remedy"),
    [
        ("a < 10", {"a": 12}, {"a": 9}),
        ("a < 10", {"a": 12.5}, {"a": math.nextafter(10, 0)}),
        ("a > 10", {}, {"a": 11}),
        ("a <= 10", {"a": 12}, {"a": 10}),
        ("a <> 10", {"a": 10}, {"a": 11}),
        ("a NOT IN (10, 11)", {"a": 10}, {"a": 12}),
        ("a IN (1, 10)", {"a": 7}, {"a": 10}),
        ("a IS NULL", {"a": 7}, {"a": None}),
        ("a IS NOT NULL", {}, {}),
        ("a IN ()", {"a": 1}, {}),
        ("s LIKE '%.N'", {"s": "A.L"}, {"s": ".N"}),
        ("s NOT LIKE 'A%'", {"s": "A.L"}, {"s": "__"}),
        ("CIDR(s, '10.0.0.0/8')", {"s": "11.0.0.1"}, {"s": "10.0.0.0"}),
        ("LOWER(s) = 'abc'", {"s": "ABX"}, {"s": "abc"}),
        ("ok", {"ok": False}, {"ok": True}),
        ("t > TIMESTAMP '2024-05-31T12:00:00Z'", {}, {"t": "2024-05-31T12:00:00.000001Z"}),
        ("a + b = 5", {"a": 1, "b": 2}, {"a": 3}),
        ("2 * a - b > 10", {"a": 1, "b": 2}, {"a": 6.5}),
        ("a * a > 10", {"a": 1}, {}),
        ("a < b", {"b": 2}, {"a": 1}),
        ("t < u", {"t": NOON, "u": NOON}, {"t": "2024-05-31T11:59:59.999999Z"}),
        ("s < z", {"s": "b", "z": "ab"}, {"s": "a"}),
    ],
)
def test_what_would_do(condition, event, remedy):
    schema = Schema({"a": float, "b": float, "s": str, "z": str, "ok": bool, "t": datetime, "u": datetime})
    row = schema.read(event).row(0)
    found = explain(parse(condition, schema), row).filters[0].constraints[0].remedy
    assert {name: str(value) if name in "tu" else value for name, value in found.items()} == remedy


def test_seconds_for_timestamps():
    assert of(Constraint("x", ">", NOON), "2024-05-31T11:59Z").reason.endswith("too low by 60 s")
    at_noon = of(Constraint("x", ">", NOON), "2024-05-31T12:00Z").reason
    assert at_noon == "is '2024-05-31T12:00Z', not above 2024-05-31T12:00:00Z"


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
        "    no   symbol LIKE 'B%': is 'A', character 1 is 'A', not 'B'"
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
        "    no   symbol LIKE '%.N': is 'A.L', does not end like '.N': character 3 is 'L', not 'N'\n"
        "    no   ask - bid > 2 * bid: ask - bid is 1 and 2 * bid is 20, too low by 19\n"
        "    yes  bid < ask: bid is 10 and ask is 11\n"
        "    yes  LOWER(symbol) <> 'a.n': is 'A.L'\n"
        "    no   CIDR(host, '10.0.0.0/8'): is 'local', no IP address"
    )


@pytest.mark.parametrize(
    ("matcher", "cost"), [("rtree", "  cost: 1 box; Python verifies bid < ask"), ("naive", None)]
)
def test_a_report_tells_the_cost_of_verification(matcher, cost):
    filter = EventFilter(Schema({"bid": float, "ask": float}), matcher=matcher)
    filter.subscribe_many(["bid < ask AND bid > 1", "bid > 1"])
    reports = [str(filter.explain({"bid": 2, "ask": 3}, id)).splitlines() for id in (0, 1)]
    assert reports[0][4:] == ([cost] if cost else [])
    assert reports[1] == ["match", "  filter 1 of 1: yes", "    yes  bid > 1: is 2"]


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
