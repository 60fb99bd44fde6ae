"""Comparisons of expressions: their values, text, JSON, boxes, and explanations."""

import json
import math
import pickle
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from predicate_cases import comparisons, computed, events, expressions, inside, schemas, sql, truth
from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.compiling import compile_predicate, unbounded
from rtfilter.predicates.explanations.explanation import explain
from rtfilter.predicates.model.combine import MAX_DEPTH
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.operands.expressions import MAX_OPERATIONS, Operation, evaluate, evaluate_columns
from rtfilter.predicates.predicate import Predicate, parse
from rtfilter.predicates.stored.predicate_store import PredicateStore, kept

TYPES = {"a": float, "b": int, "c": float, "s": str, "z": str, "t": datetime, "u": datetime}
SCHEMA = Schema(TYPES)
NUMBERS = {"a": float, "b": int}


def operand(side):
    """An expression of `predicate_cases` as the library has it."""
    return Operation(side[0], operand(side[1]), operand(side[2])) if isinstance(side, tuple) else side


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_values_are_those_of_a_naive_evaluator(data):
    side = data.draw(expressions(["a", "b"]))
    event = data.draw(events(NUMBERS))
    assert evaluate(operand(side), event) == computed(side, event, NUMBERS)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_columns_are_the_values_where_they_are_sure(data):
    side = data.draw(expressions(["a", "b"]))
    rows = data.draw(st.lists(events(NUMBERS), min_size=1, max_size=6))
    table = Schema(NUMBERS).read(rows)
    found = evaluate_columns(operand(side), dict(zip("ab", table.points.T, strict=True)), len(rows))
    assert not (found.none & found.unsure).any()
    for row, (value, unsure, none) in enumerate(zip(*found, strict=True)):
        if not unsure:
            wanted = evaluate(operand(side), table.row(row))
            assert (None if none else value) == wanted


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_boxes_hold_all_that_matches(data):
    types = data.draw(schemas())
    condition = data.draw(comparisons(types))
    schema = Schema(types)
    predicate = parse(sql(condition), schema)
    low, high, exact = compile_predicate(predicate, schema)
    for _ in range(4):
        event = data.draw(events(types))
        table = schema.read(event)
        hits = [inside(table.points[0], *ends) for ends in zip(low, high, strict=True)]
        matches = truth(condition, event, types)
        assert predicate.matches(table.row(0)) == matches
        assert any(hits) or not matches
        if any(hit and sure for hit, sure in zip(hits, exact, strict=True)):
            assert matches


@pytest.mark.slow
@given(st.data())
@settings(max_examples=300)
def test_boxes_of_one_attribute_hold_the_neighbours_of_their_ends(data):
    """The tightest place: values around the solution."""
    types = {"a": float}
    side = data.draw(expressions(["a"]))
    at = data.draw(st.floats(-1e6, 1e6) | st.integers(-(2**60), 2**60))
    value = computed(side, {"a": at}, types)
    if value is None or abs(value) > 1e300 or side == "a":
        return
    for operator in ("=", "<=", ">="):
        predicate = parse(sql(("compare", operator, side, float(value))), Schema(types))
        low, high, _ = compile_predicate(predicate, Schema(types))
        near = [at, *(math.nextafter(at, to) for to in (-math.inf, math.inf))]
        for event in ({"a": x} for x in near):
            if predicate.matches(event):
                point = np.array([float(event["a"])])
                assert any(inside(point, *ends) for ends in zip(low, high, strict=True))


@cases(
    ("condition", "low", "high"),
    [
        ("2 * a + 1 > 7", 3, math.inf),
        ("7 < 1 + a * 2", 3, math.inf),
        ("10 - a >= 4", -math.inf, 6),
        ("a / -4 < 2", -8, math.inf),
        ("(a - 5) * 3 = 6", 7, 7),
        ("a * 2 <= 6 AND a > 1", 1, 3),
    ],
)
def test_what_is_linear_in_one_attribute_narrows_the_box(condition, low, high):
    schema = Schema({"a": float})
    boxes = compile_predicate(parse(condition, schema), schema)
    (a,), (b,) = boxes.low[:, 0], boxes.high[:, 0]
    assert not boxes.exact.any()
    assert a == pytest.approx(low) if low > -math.inf else a < -1e308
    assert b == pytest.approx(high) if high < math.inf else b > 1e308


@cases(
    "condition", ["a <> 2 * b", "a * a > 4", "1 / a > 2", "a + c > 1", "s = z", "t < u", "a * 0 = 0", "a = a"]
)
def test_other_comparisons_ask_for_presence_alone(condition):
    predicate = parse(condition, SCHEMA)
    boxes = compile_predicate(predicate, SCHEMA)
    assert unbounded(boxes, SCHEMA).all()
    empty, odd = SCHEMA.read([{}, {name: [] for name in TYPES}]).points
    assert not any(
        inside(point, low, high) for point in (empty, odd) for low, high in zip(*boxes[:2], strict=True)
    )
    bounded = compile_predicate(parse(f"({condition}) AND b > 1", SCHEMA), SCHEMA)
    assert not unbounded(bounded, SCHEMA).any()


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_text_and_json_come_back_equal(data):
    types = data.draw(schemas())
    predicate = parse(sql(data.draw(comparisons(types))), Schema(types))
    again = Predicate.from_json(json.loads(json.dumps(predicate.to_json())))
    assert again == predicate
    assert hash(again) == hash(predicate)
    assert parse(again, Schema(types)) == predicate
    assert parse(str(predicate), Schema(types)) == predicate
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    store = PredicateStore()
    store.put(0, kept(predicate))
    assert PredicateStore.from_arrays(store.to_arrays()).get(0) == predicate


def test_the_form_in_json():
    predicate = parse("(a + 1) * b >= c AND t < u", SCHEMA)
    assert predicate.to_json() == [
        [
            [
                [[{"attribute": "a"}, "+", 1], "*", {"attribute": "b"}],
                ">=",
                {"attribute": "c"},
            ],
            [{"attribute": "t"}, "<", {"attribute": "u"}, "timestamp"],
        ]
    ]


@cases(
    "data",
    [
        [[[{"attribute": "a"}, "<"]]],
        [[[{"attribute": 5}, "<", {"attribute": "b"}]]],
        [[[{"name": "a"}, "<", {"attribute": "b"}]]],
        [[[["a", "+", 1], "<", 5]]],
        [[[[{"attribute": "a"}, "^", 1], "<", 5]]],
        [[[[{"attribute": "a"}, "+"], "<", 5]]],
        [[[[{"attribute": "a"}, "+", True], "<", 5]]],
        [[[[{"attribute": "a"}, "+", 1e999], "<", 5]]],
        [[[{"attribute": "a"}, "in", {"attribute": "b"}]]],
        [[[{"attribute": "a"}, "<", {"attribute": "b"}, "colour"]]],
        [[[{"attribute": "a"}, "<", {"attribute": "b"}, "bool"]]],
        [[[1, "<", 2]]],
    ],
)
def test_json_of_something_else(data):
    with pytest.raises(PredicateError):
        Predicate.from_json(data)


def test_equality_is_by_value():
    one, two = Comparison(Operation("*", "a", 2), ">", "b"), Comparison(Operation("*", "a", 2.0), ">", "b")
    assert one == two
    assert hash(one) == hash(two)
    assert str(two) == "a * 2 > b"
    assert one != Comparison(Operation("*", "b", 2), ">", "a")
    assert Comparison(5, "<", Operation("+", "a", 1)) == Comparison(Operation("+", "a", 1), ">", 5)
    assert one.attributes == ("a", "b")
    assert Constraint("a", ">", 1).attributes == ("a",)


@cases(
    ("arguments", "message"),
    [
        (("a", "in", "b"), "unknown operator 'in' of a comparison"),
        ((1, "<", 2), "a comparison of constants"),
        (("a", "<", "b", "colour"), "unknown family"),
        (("a", "<", "b", "bool"), "booleans have no order"),
        (("a", "=", 5, "str"), "arithmetic and constants need numbers"),
        ((Operation("+", "a", 1), "=", "b", "timestamp"), "arithmetic and constants need numbers"),
        (("a", "=", None), "neither a number nor the name"),
        (("a", "=", math.inf), "infinite or beyond float64"),
        (("a", "=", 10**400), "infinite or beyond float64"),
    ],
)
def test_what_is_no_comparison_is_refused(arguments, message):
    with pytest.raises(PredicateError, match=message):
        Comparison(*arguments)


@pytest.mark.parametrize(
    ("comparison", "message"),
    [
        (Comparison("a", "<", "d"), "unknown attribute 'd'"),
        (Comparison("a", "<", "s"), "a is a number and s is a string; they cannot be compared"),
        (
            Comparison(Operation("+", "a", "s"), "<", 1),
            "attribute 's' is a string; arithmetic and distances need numbers",
        ),
        (Comparison("s", "<", 5), "cannot be compared with the int 5"),
    ],
)
def test_what_does_not_fit_the_schema_is_refused(comparison, message):
    with pytest.raises(PredicateError, match=message):
        parse(Predicate((Filter((comparison,)),)), SCHEMA)


def test_a_comparison_with_a_constant_becomes_a_constraint_and_the_family_that_of_the_schema():
    given = Predicate((Filter((Comparison("a", "<", 5), Comparison("t", "<", "u"))),))
    assert parse(given, SCHEMA) == parse("a < 5 AND t < u", SCHEMA)


def test_the_size_of_an_expression_is_bounded_so_that_its_text_is_read():
    side = "a"
    for _ in range(MAX_OPERATIONS):
        side = Operation("-", "b", side)
    predicate = Predicate((Filter((Comparison(side, ">", side),)), Filter(())))
    assert parse(str(predicate), SCHEMA) == predicate
    assert MAX_OPERATIONS < MAX_DEPTH
    with pytest.raises(PredicateError, match=f"more than {MAX_OPERATIONS} operations"):
        Operation("+", side, 1)
    with pytest.raises(PredicateError, match="arithmetic on constants alone"):
        Operation("+", 1, 2)
    with pytest.raises(PredicateError, match=r"unknown arithmetic '\*\*'"):
        Operation("**", "a", 2)


def test_products_of_large_integers_are_exact_and_quick():
    side = "b"
    for _ in range(MAX_OPERATIONS - 1):
        side = Operation("*", side, "b")
    assert evaluate(side, {"b": 10**300}) == 10 ** (300 * MAX_OPERATIONS)
    assert Comparison(side, ">", Operation("-", side, 1)).matches({"b": 10**300})


@cases(
    ("condition", "event", "wanted"),
    [
        ("a * 1e300 * 1.5 > c", {"a": 1.5e300, "c": 1.7e308}, True),  # infinite is above all
        ("a * 1.5 - a * 1.5 = c", {"a": 1.7e308, "c": 0}, False),  # no difference of infinities
        ("a * 1.5 - a * 1.5 <> c", {"a": 1.7e308, "c": 0}, False),
        ("1 / a > c", {"a": 0, "c": 0}, False),
        ("NOT 1 / a > c", {"a": 0, "c": 0}, False),
        ("NOT 1 / a > c", {"a": -0.0, "c": 0}, False),
        ("b + 1 > b", {"b": 2**53}, True),
        ("b + 1 > b", {"b": 2.0**53}, True),
        ("b - c = 1", {"b": 2**60 + 1, "c": 2**60}, True),
        ("a < b", {"a": 1, "b": True}, False),
        ("NOT a < b", {"a": 1, "b": True}, False),
        ("NOT a < b", {"a": 1}, False),
        ("t < u", {"t": "2024-05-31", "u": "2024-05-31T01:00:00+00:30"}, True),
        ("t = u", {"t": "2024-05-31", "u": "soon"}, False),
        ("s < z", {"s": "ab", "z": "abcdefg"}, True),
        ("s = z", {"s": "abcdefg", "z": "abcdefg"}, True),
        ("s <> z", {"s": "abcdefg", "z": "abcdefh"}, True),
        ("s <> z", {"s": "abcdefg", "z": 5}, False),
    ],
)
def test_the_meaning_at_the_edges(condition, event, wanted):
    assert parse(condition, SCHEMA).matches(SCHEMA.read(event).row(0)) is wanted


@cases(
    ("condition", "event", "distance", "reason"),
    [
        ("a < c", {"a": 12.5, "c": 10}, 2.5, "a is 12.5 and c is 10, too high by 2.5"),
        ("a * b > 1000", {"a": 4, "b": 200}, 200, "a * b is 800, too low by 200"),
        ("a + b = c", {"a": 1, "b": 2, "c": 5}, 2, "a + b is 3 and c is 5, too low by 2"),
        ("a < c", {"a": 1, "c": 1}, 0, "a is 1 and c is 1, not below 1"),
        ("a < c", {"a": 1, "c": 2}, None, "a is 1 and c is 2"),
        ("a <> c", {"a": 1, "c": 1}, None, "a is 1 and c is 1, not different from 1"),
        ("a < c", {"a": 1}, None, "c missing"),
        ("a < c", {"a": 1, "c": "x"}, None, "c is 'x', of another type: not a number"),
        ("a / c > 1", {"a": 1, "c": 0}, None, "a / c has no value: a division by zero"),
        ("s = z", {"s": "x", "z": "y"}, None, "s is 'x' and z is 'y', not equal to 'y'"),
        ("t > u", {"t": "2024-05-31T11:59Z", "u": "2024-05-31T12:00Z"}, 60, None),
    ],
)
def test_explanations_say_by_how_much(condition, event, distance, reason):
    explained = explain(parse(condition, SCHEMA), SCHEMA.read(event).row(0)).filters[0].constraints[0]
    assert explained.distance == distance
    assert explained.missing == (len(event) < 2)
    assert str(explained).startswith("yes" if explained.satisfied else "no ")
    if reason is None:
        reason = "t is 2024-05-31T11:59:00Z and u is 2024-05-31T12:00:00Z, too low by 60 s"
    assert explained.reason == reason
