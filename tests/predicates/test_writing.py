"""Predicates as SQL conditions and as event patterns that are read again as equal predicates; their cost."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from limits import patterns_within
from predicate_cases import conditions, schemas, sql
from rtfilter import Predicate, PredicateError, Schema
from rtfilter.predicates.boxes.cost import MOST
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import Constraint, Quantified
from rtfilter.predicates.operands.expressions import Distance
from rtfilter.predicates.operands.intervals import Now

SCHEMA = Schema({"price": float, "qty": int, "symbol": str, "ok": bool, "url.code": int})


def p(source):
    return Predicate.parse(source, SCHEMA)


def has_form(test):
    """Whether event patterns have a form for a test, said anew."""
    if isinstance(test, Comparison):
        near = isinstance(test.left, Distance) and isinstance(test.right, int | float)
        return (near or isinstance(test.right, Now)) and test.operator != "<>"
    if isinstance(test, Quantified):
        alone = test.quantifier == "all" or len(test.tests) == 1
        ordered = all(one.operator in ("<", "<=", ">", ">=") for one in test.tests)
        opposite = test.quantifier == "all" and len(test.tests) == 1 and test.tests[0].operator[:3] == "not"
        tests = test.tests
        if opposite:
            name, negated, value = tests[0]
            tests = (Constraint(name, negated.removeprefix("not "), value),)
        return (alone or ordered) and all(map(has_form, tests))
    operator, value = test.operator, test.value
    if "like" in operator:
        plain = value.replace("\\\\", "").replace("\\_", "").replace("\\%", "")
        if "ignore case" not in operator:
            return "_" not in plain
        ends = plain.startswith("%") or plain.endswith("%")
        return operator[0] != "n" and "_" not in plain and plain.count("%") == 1 and ends
    return operator != "not like ignore case" and not (
        operator[0] in "<>" and operator != "<>" and isinstance(value, str)
    )


@pytest.mark.slow
@given(st.data())
@settings(max_examples=150)
def test_conditions_are_read_again(data):
    types = data.draw(schemas())
    schema = Schema(types)
    predicate = Predicate.parse(sql(data.draw(conditions(types))), schema)
    assert Predicate.parse(predicate.to_sql(), schema) == predicate
    tests = [test for one in predicate.filters for test in one.constraints]
    if all(map(has_form, tests)) and all(one.constraints for one in predicate.filters):
        written = json.loads(json.dumps(predicate.to_pattern()))
        assert Predicate.parse(written, schema) == predicate
    else:
        with pytest.raises(PredicateError, match="has no form as an event pattern") as caught:
            predicate.to_pattern()
        names = {name for test in tests for name in test.attributes}
        assert caught.value.attribute is None or caught.value.attribute in names


@given(st.data())
@settings(max_examples=80)
def test_patterns_are_read_again(data):
    types = data.draw(schemas())
    schema = Schema(types)
    predicate = Predicate.parse(data.draw(patterns_within(types))[0], schema)
    assert Predicate.parse(predicate.to_sql(), schema) == predicate
    assert Predicate.parse(json.loads(json.dumps(predicate.to_pattern())), schema) == predicate


@cases(
    ("condition", "pattern"),
    [
        ("price > 3 AND price <= 7", {"price": [{"numeric": [">", 3, "<=", 7]}]}),
        ("qty IN (1, 2)", {"qty": [1, 2]}),
        ("qty IN (1)", {"qty": [1, 1]}),
        ("qty IN ()", {"qty": []}),
        ("NOT (qty IN (1, 2))", {"qty": [{"anything-but": [1, 2]}]}),
        ("symbol NOT LIKE 'a%'", {"symbol": [{"anything-but": {"prefix": "a"}}]}),
        ("symbol LIKE '%a*\\\\b'", {"symbol": [{"wildcard": "*a\\*\\\\b"}]}),
        ("LOWER(symbol) LIKE '%x'", {"symbol": [{"suffix": {"equals-ignore-case": "x"}}]}),
        ("NOT CIDR(symbol, '::/0')", {"symbol": [{"anything-but": {"cidr": "::/0"}}]}),
        ("ok AND url.code IS NULL", {"ok": [True], "url.code": [{"exists": False}]}),
        ("qty = 1 OR price = 2", {"$or": [{"qty": [1]}, {"price": [2]}]}),
        ("FALSE", {"$or": []}),
        (
            "price > 1 AND qty = 2 AND price <> 3",
            {"price": [{"numeric": [">", 1]}], "qty": [2], "$or": [{"price": [{"anything-but": 3}]}]},
        ),
    ],
)
def test_forms(condition, pattern):
    assert p(condition).to_pattern() == pattern
    assert p(pattern) == p(condition)


@cases(
    ("condition", "message", "attribute"),
    [
        ("TRUE", "TRUE has no form", None),
        (
            "qty = 1 AND price > qty",
            "price > qty has no form as an event pattern: patterns have no arith",
            "price",
        ),
        ("price * 2 > 5", "price [*] 2 > 5 has no form", "price"),
        (
            "symbol < 'b'",
            "symbol < 'b' has no form as an event pattern: patterns do not order text",
            "symbol",
        ),
        ("symbol LIKE 'a_b'", "symbol LIKE 'a_b' has no form .* no _", "symbol"),
        ("LOWER(symbol) LIKE '%a%'", "only a beginning or an end is compared without case", "symbol"),
        ("NOT (LOWER(symbol) LIKE 'a%')", "this operator has no complement", "symbol"),
        (" AND ".join(f"qty <> {n}" for n in range(40)), "qty <> 32 .* no deeper than 32 levels", "qty"),
    ],
)
def test_without_a_form(condition, message, attribute):
    with pytest.raises(PredicateError, match=message) as caught:
        p(condition).to_pattern()
    assert caught.value.attribute == attribute
    assert p(p(condition).to_sql()) == p(condition)


def test_as_deep_as_patterns_go():
    condition = p(" AND ".join(f"qty <> {n}" for n in range(32)))
    assert p(condition.to_pattern()) == condition


def test_a_condition_that_is_too_long():
    predicate = Predicate.from_json([[["symbol", "in", [f"{n:099}" for n in range(700)]]]])
    with pytest.raises(PredicateError, match="at most 65536 are read; use to_pattern or to_json"):
        predicate.to_sql()
    assert p(predicate.to_pattern()) == predicate


def test_parse_tells_the_place():
    with pytest.raises(PredicateError, match="did you mean 'price'") as caught:
        p("qty = 1 AND prise < 10")
    assert caught.value.position == 12
    with pytest.raises(PredicateError, match=r"at \$.qty\[0\]"):
        p({"qty": [{"numeric": [">", 1, "<"]}]})


@cases(
    ("condition", "boxes", "checked", "unbounded"),
    [
        ("price < 10 AND symbol = 'ACME'", 1, False, False),
        ("qty IN (1, 5, 9)", 3, False, False),
        ("price <> 5", 2, False, False),
        ("symbol = 'a long text of its own'", 1, True, False),
        ("symbol LIKE 'a%b'", 1, True, False),
        ("symbol LIKE '%b'", 1, True, False),
        ("symbol LIKE '%b%'", 1, True, True),
        ("symbol LIKE '%b' AND qty = 3", 1, True, False),
        ("price > qty OR qty = 1", 2, True, True),
        ("price < 3 AND price > 5", 0, False, False),
        ("TRUE", 1, False, False),
    ],
)
def test_cost(condition, boxes, checked, unbounded):
    cost = p(condition).cost
    assert (cost.boxes, cost.checked, cost.unbounded) == (boxes, checked, unbounded)


@cases(
    ("condition", "said"),
    [
        ("price < 10 AND symbol = 'ACME'", "1 box"),
        ("price < 3 AND price > 5", "0 boxes"),
        ("qty = 3 AND symbol LIKE 'a%b'", "1 box; compiled code verifies symbol LIKE 'a%b'"),
        ("price > qty", "no bound: nearly every event is a candidate; Python verifies price > qty"),
        (
            "price > qty AND symbol = 'abcdefgh' AND qty = 1",
            "1 box; compiled code verifies symbol = 'abcdefgh'; Python verifies price > qty",
        ),
        ("qty IN (1, 3, 5, 7, 9) AND price IN (1, 3, 5, 7)", "16 boxes; candidates are verified"),
    ],
)
def test_the_cost_names_the_constraints_that_are_verified(condition, said):
    assert str(p(condition).cost) == said


def test_constraints_of_many_conditions_are_verified_by_python():
    for count, (compiled, python) in ((MOST, (1, 0)), (MOST + 1, (0, 1))):
        cost = p({"symbol": [f"abcdefgh{number}" for number in range(count)]}).cost
        assert (len(cost.compiled), len(cost.python)) == (compiled, python)


def test_the_cost_needs_a_schema():
    free = Predicate((p("qty = 1").filters[0],))
    with pytest.raises(PredicateError, match=r"use Predicate.parse\(predicate, schema\)"):
        _ = free.cost
    assert p(free).cost == (1, False, False, (), ())
    assert free.filters[0].constraints[0] == Constraint("qty", "=", 1)
