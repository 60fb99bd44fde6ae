"""Boxes: nothing that matches is lost, nothing in an exact box is wrong, and the cost stays bounded."""

import math
from datetime import datetime
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from predicate_cases import CONSTANTS, conditions, events, inside, schemas, sql, truth, values
from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import (
    ALIEN,
    HIGHEST,
    IDENTITY_MAX,
    LOWEST,
    MISSING,
    ORDER_MAX,
    Timestamp,
    ending_code,
    string_code,
)
from rtfilter.events.schema import Attribute, Schema
from rtfilter.predicates.boxes.compiling import MAX_BOXES, MAX_SPLIT, compile_predicate
from rtfilter.predicates.model.constraints import COMPARE, FORMS, Constraint, Filter
from rtfilter.predicates.predicate import Predicate, parse

SCHEMA = Schema({"x": float, "s": str, "flag": bool, "t": datetime})
FREE = [-math.inf, math.inf]


def sides(source, schema=SCHEMA):
    """Boxes as lists of [low, high] pairs per dimension."""
    boxes = compile_predicate(parse(source, schema), schema)
    return np.stack([boxes.low, boxes.high], axis=2).tolist()


@given(st.data())
@settings(max_examples=400)
def test_boxes_hold_every_match_and_exact_boxes_only_matches(data):
    types = data.draw(schemas())
    condition = data.draw(conditions(types))
    schema = Schema(types)
    predicate = parse(sql(condition), schema)
    boxes = compile_predicate(predicate, schema)
    assert (boxes.low <= boxes.high).all()
    assert len({(low.tobytes(), high.tobytes()) for low, high in zip(*boxes[:2], strict=True)}) == len(
        boxes.low
    )
    for _ in range(5):
        event = data.draw(events(types))
        table = schema.read(event)
        expected = truth(condition, event, types)
        assert predicate.matches(table.row(0)) == expected
        hit = [inside(table.points[0], low, high) for low, high in zip(boxes.low, boxes.high, strict=True)]
        if expected:
            assert any(hit)
        if any(np.logical_and(hit, boxes.exact)):
            assert expected


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200)
def test_many_values_on_one_string_attribute(data):
    """Sets, holes, prefixes and ranges that meet on the three dimensions of one string."""
    schema = Schema({"s": str})
    texts = values(str)
    operators = ["<>", "prefix", "not prefix", "<", ">=", "not in", "exists", *sorted(FORMS)]

    def constant(op):
        form = op.removeprefix("not ")
        if form in CONSTANTS:
            return data.draw(CONSTANTS[form])
        return [data.draw(texts), data.draw(texts)] if op == "not in" else data.draw(texts)

    given_constraints = [
        Constraint("s", op, constant(op))
        for op in data.draw(st.lists(st.sampled_from(operators), min_size=1, max_size=4))
    ]
    predicate = Predicate((Filter(tuple(given_constraints)),))
    boxes = compile_predicate(predicate, schema)
    for text in data.draw(st.lists(texts, min_size=1, max_size=10)):
        point = schema.encode({"s": text})[0]
        hit = [inside(point, low, high) for low, high in zip(boxes.low, boxes.high, strict=True)]
        matched = predicate.matches({"s": text})
        assert any(hit) or not matched
        assert matched or not any(np.logical_and(hit, boxes.exact))


@cases(
    ("source", "expected"),
    [
        ("TRUE", [FREE]),
        ("x = 7", [[7, 7]]),
        ("x <= 7", [[LOWEST, 7]]),
        ("x < 7", [[LOWEST, math.nextafter(7, 0)]]),
        ("x > 7", [[math.nextafter(7, 8), HIGHEST]]),
        ("x >= 7", [[7, HIGHEST]]),
        ("x BETWEEN 3 AND 7", [[3, 7]]),
        ("x <> 7", [[LOWEST, math.nextafter(7, 0)], [math.nextafter(7, 8), HIGHEST]]),
        ("x IS NULL", [[MISSING, MISSING]]),
        ("x IS NOT NULL", [[LOWEST, ALIEN]]),
        ("x IN (3, 7)", [[3, 3], [7, 7]]),
        ("x > 2 AND x IN (1, 3, 5) AND x <> 5", [[3, 3]]),
        ("x >= 2 AND x > 3 AND x <= 9 AND x <= 8", [[math.nextafter(3, 4), 8]]),
    ],
)
def test_sides_of_a_number(source, expected):
    assert sorted(box[0] for box in sides(source)) == expected
    assert all(box[1:] == [FREE] * 5 for box in sides(source))
    assert compile_predicate(parse(source, SCHEMA), SCHEMA).exact.all()


@cases(
    "source",
    [
        "FALSE",
        "x < 3 AND x > 5",
        "x BETWEEN 5 AND 3",
        "x IS NULL AND x = 3",
        "x IS NULL AND x IS NOT NULL",
        "x = 1 AND x = 2",
        "s < ''",
        "s LIKE 'a%' AND s LIKE 'b%'",
        "flag = TRUE AND flag <> TRUE",
        {"x": []},
    ],
)
def test_unsatisfiable_predicates_have_no_boxes(source):
    predicate = parse(source, SCHEMA)
    assert len(compile_predicate(predicate, SCHEMA).low) == 0
    assert not predicate.matches({"x": 4, "s": "a", "flag": True})


@cases(
    ("source", "exact"),
    [
        ("s = 'abcdef'", True),
        ("s = 'abcdefg'", False),
        ("s = 'abcdeé'", False),
        ("s = 'a\0'", True),
        ("s <> 'abcdef'", True),
        ("s <> 'abcdefg'", False),
        ("s LIKE 'abcdef%'", True),
        ("s LIKE 'abcdefg%'", False),
        ("s LIKE '%'", True),
        ("s LIKE 'a\0%'", False),
        ("s NOT LIKE 'ab%'", True),
        ("s < 'abc'", True),
        ("s >= 'abc'", True),
        ("s <= 'abc'", False),
        ("s > 'abc'", False),
        ("s < 'abcdefg'", False),
        ("s LIKE '%b'", False),
        ("s LIKE 'a%b'", False),
        ("s NOT LIKE 'a%b'", False),
        ("LOWER(s) = 'ab'", False),
        ("CIDR(s, '10.0.0.0/8')", False),
        ("NOT CIDR(s, '10.0.0.0/8')", False),
        ("s IN ('ab', 'ac') AND s LIKE '_b'", True),
        ("x < 9007199254740991", True),
        ("x < 9007199254740992", False),
        ("x = 9007199254740993", False),
        ("t < TIMESTAMP '2255-01-01'", True),
        ("t < TIMESTAMP '9999-01-01'", False),
    ],
)
def test_which_boxes_are_exact(source, exact):
    """Six UTF-8 bytes and 53 bits are what a coordinate holds."""
    assert compile_predicate(parse(source, SCHEMA), SCHEMA).exact.tolist() == [exact] * len(sides(source))


@pytest.mark.parametrize(
    ("source", "event"),
    [
        ("x < 1e18", {"x": 10**18 - 1}),
        ("x > -1e18", {"x": 1 - 10**18}),
        ("x <> 1e18", {"x": 10**18 - 1}),
        ("x <= 9007199254740993", {"x": 2**53 + 1}),
        ("t < '9999-12-31T23:59:59.999999'", {"t": "9999-12-31T23:59:59.999998"}),
    ],
)
def test_neighbours_that_share_a_coordinate_are_not_lost(source, event):
    predicate = parse(source, SCHEMA)
    boxes = compile_predicate(predicate, SCHEMA)
    assert predicate.matches(event)
    assert any(inside(SCHEMA.encode(event)[0], low, high) for low, high in zip(*boxes[:2], strict=True))


def test_a_string_is_cut_out_sharply():
    """The neighbours of a code are other strings' codes: random strings would never meet them."""
    order, identity, _ = string_code("b")
    schema = Schema({"s": str})
    whole = [0, ORDER_MAX]
    assert sides("s <> 'b'", schema) == [
        [whole, [0, identity - 1], FREE],
        [whole, [identity + 1, IDENTITY_MAX], FREE],
    ]
    above = order + 256**5
    assert sides("s NOT LIKE 'b%'", schema) == [
        [[0, order - 1], FREE, FREE],
        [[above, ORDER_MAX], FREE, FREE],
    ]
    assert sides("s LIKE 'b%'", schema) == [[[order, above - 1], FREE, FREE]]


@cases(
    ("source", "beginnings"),
    [
        ("s LIKE 'ab%c%'", ["ab"]),
        ("s LIKE '%c%'", [""]),
        ("s NOT LIKE 'ab%c'", [""]),
        ("s LIKE 'ab%c%' AND s LIKE 'a%d%'", ["ab"]),
        ("LOWER(s) LIKE 'a-b%'", ["A-B", "A-b", "a-B", "a-b"]),
        ("LOWER(s) LIKE 'a%' AND s LIKE 'A%c%'", ["A"]),
        ("LOWER(s) LIKE '%a%'", [""]),
        ("CIDR(s, '10.0.0.0/8')", ["10."]),
        ("CIDR(s, '10.20.0.0/12')", ["10."]),
        ("CIDR(s, '0.0.0.0/0')", [""]),
        ("CIDR(s, '2001:db8::/32')", ["2001:"]),
        ("CIDR(s, '10.0.0.0/8') AND CIDR(s, '11.0.0.0/8')", []),
    ],
)
def test_a_test_of_text_is_bounded_by_how_it_begins(source, beginnings):
    schema = Schema({"s": str})
    prefixes = parse(" OR ".join(f"s LIKE '{start}%'" for start in beginnings) or "FALSE", schema)
    wanted = compile_predicate(prefixes, schema)
    found = compile_predicate(parse(source, schema), schema)
    assert sorted(found.low.tolist()) == sorted(wanted.low.tolist())
    assert sorted(found.high.tolist()) == sorted(wanted.high.tolist())
    assert not found.exact.any()


@cases(
    ("source", "end"),
    [
        ("s LIKE '%.Tar'", "%.tar"),
        ("s LIKE '%a' AND s LIKE '%ba'", "%ba"),
        ("s LIKE '%a long end'", "%ng end"),
        ("LOWER(s) = 'straße'", "trasse"),
        ("LOWER(s) = 'ab'", "ab"),
        ("LOWER(s) LIKE '%ß'", "%ss"),
        ("s LIKE 'a%b_'", ""),
        ("s NOT LIKE '%.tar'", ""),
        ("s = 'abc' AND s LIKE '%c'", ""),
    ],
)
def test_a_test_of_text_is_bounded_by_how_it_ends(source, end):
    """By the last six bytes; with % anything may stand before them."""
    (ending,) = {tuple(ending) for _, _, ending in sides(source, Schema({"s": str}))}
    code = ending_code(end.removeprefix("%"))
    last = code + (256 ** (7 - len(end)) - 1 if end.startswith("%") else 0)
    assert list(ending) == ([code, last] if end else FREE)


def test_no_text_has_two_ends():
    assert sides("s LIKE '%a' AND s LIKE '%b'", Schema({"s": str})) == []


@pytest.mark.parametrize("step", [1, -1])
def test_equal_boxes_are_kept_once_and_the_exact_one_decides(step):
    """Two filters with the same box: one alone would be inexact, the other makes the box exact."""
    schema = Schema({"s": str})
    filters = [Filter((Constraint("s", "not prefix", "abcdefgh"),)), Filter((Constraint("s", "prefix", ""),))]
    boxes = compile_predicate(Predicate(tuple(filters[::step])), schema)
    assert boxes.low.tolist() == [[0, -math.inf, -math.inf]]
    assert boxes.exact.tolist() == [True]


ENDS = [
    -0.0,
    0,
    5e-324,
    -5e-324,
    1,
    1.0,
    -7.5,
    2**53 - 1,
    1 - 2**53,
    2**53,
    2.0**53,
    -(2**60),
    HIGHEST,
    LOWEST,
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [float, datetime])
def test_one_filter_alone_has_the_box_that_it_has_among_others(kind):
    """Comparisons alone are compiled in a way of their own; twice the same filter is not."""
    schema = Schema({"s": str, "x": kind, "y": float})
    whole = [Timestamp(value) for value in ENDS if abs(value) < 2**62]
    constraints = [
        Constraint("x", operator, value)
        for operator in ("=", "<", "<=", ">", ">=", "<>", "exists", "is null")
        for value in (ENDS if kind is float else whole)
    ]
    other = Constraint("y", ">=", 3)
    for one, two in product(constraints, repeat=2):
        own = Filter((one, other, two))
        alone, among = (compile_predicate(Predicate(filters), schema) for filters in ((own,), (own, own)))
        assert [column.dtype for column in alone] == [column.dtype for column in among], own
        assert [column.shape for column in alone] == [column.shape for column in among], own
        assert [column.tobytes() for column in alone] == [column.tobytes() for column in among], own


def test_minus_zero_is_zero():
    boxes = compile_predicate(parse("x <= -0.0 OR x <= 0", SCHEMA), SCHEMA)
    assert len(boxes.low) == 1
    assert not np.signbit(boxes.high[0, 0])


def test_large_sets_become_hulls_split_at_the_widest_gaps():
    clusters = [base + step for base in range(0, 16_000, 1000) for step in range(5)]
    boxes = compile_predicate(parse({"x": clusters}, SCHEMA), SCHEMA)
    assert sorted(zip(boxes.low[:, 0], boxes.high[:, 0], strict=True)) == [
        (base, base + 4) for base in range(0, 16_000, 1000)
    ]
    assert not boxes.exact.any()


def test_product_of_sets_is_capped_per_filter():
    schema = Schema(dict.fromkeys("abcdef", int))
    source = " AND ".join(f"{name} IN (1, 5, 9)" for name in "abcdef")
    boxes = compile_predicate(parse(source, schema), schema)
    assert 1 < len(boxes.low) <= MAX_SPLIT
    ones = schema.encode(dict.fromkeys("abcdef", 1))[0]
    assert any(inside(ones, low, high) for low, high in zip(boxes.low, boxes.high, strict=True))


def test_too_many_boxes_are_refused():
    names = [f"a{i}" for i in range(4)]
    schema = Schema(dict.fromkeys(names, int))
    rows = [" AND ".join(f"{name} <> {i}" for name in names) for i in range(200)]
    with pytest.raises(PredicateError, match=f"more than {MAX_BOXES} boxes"):
        compile_predicate(parse(" OR ".join(rows), schema), schema)


def test_a_declared_domain_changes_no_box():
    """Constants outside it are no error, they just never match."""
    bounded = Schema({"x": Attribute(float, low=0, high=10), "s": str, "flag": bool, "t": datetime})
    assert sides("x > 20", bounded) == sides("x > 20")


def test_boxes_of_a_set_of_strings_come_in_the_order_of_the_strings():
    """Not in that of their hashes, which differ by process: each would then grow another tree."""
    texts = [f"x{k}" for k in range(10, 22)]
    expected = [float(string_code(text)[0]) for text in texts]
    found = sides(f"s IN ({', '.join(repr(text) for text in reversed(texts))})")
    assert [box[SCHEMA.names.index("s")][0] for box in found] == expected


@pytest.mark.parametrize(("kind", "value"), [(float, 1.0), (str, "a")])
def test_operator_without_boxes_is_refused(monkeypatch, kind, value):
    monkeypatch.setitem(COMPARE, "near", lambda a, b: a == b)
    predicate = Predicate((Filter((Constraint("x", "near", value), Constraint("x", "=", value))),))
    with pytest.raises(NotImplementedError, match="no boxes for the operator 'near'"):
        compile_predicate(predicate, Schema({"x": kind}))
