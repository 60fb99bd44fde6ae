"""Errors: what they carry besides their text, and that it survives the way to another process."""

import copy
import math
import pickle
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from cases import cases
from rtfilter.basics.errors import EventError, PredicateError, SnapshotError, UnknownSubscriptionError
from rtfilter.events.schema import Attribute, Schema
from rtfilter.predicates.bounds.bound_arrays import compile_bounds
from rtfilter.predicates.predicate import parse

SCHEMA = Schema({"price": Attribute(float, low=0, high=10), "symbol": str, "a.b": int})
DEEP = {"a": 1}
for _ in range(70):
    DEEP = {"a": DEEP}


def caught(call):
    with pytest.raises((EventError, PredicateError)) as found:
        call()
    return found.value


@cases(
    ("events", "row", "attribute", "message", "reason"),
    [
        ([{}, {"price": math.nan}], 1, "price", "attribute 'price' is NaN; where", "is NaN; where"),
        ({"price": math.inf}, 0, "price", "attribute 'price' is infinite", "is infinite"),
        ([{}, {}, {"price": 11}], 2, "price", "attribute 'price' is 11, outside", "is 11, outside"),
        ([{}, {"a.b": 1, "a": {"b": 2}}], 1, "a.b", "attribute 'a.b' occurs twice", "occurs twice"),
        ([{}, DEEP], 1, None, "objects or lists are nested deeper", "objects or lists are"),
        (pa.table({"price": [1, 2, 99]}), 2, "price", "attribute 'price' is 99", "is 99, outside"),
        (np.ones((1, 3)), None, "symbol", "attribute 'symbol' is a string, but", "is a string, but"),
        (np.ones((1, 2)), None, None, "expected an array", "expected an array"),
        (7, None, None, "cannot read events from int", "cannot read events from int"),
    ],
)
def test_what_event_errors_carry(events, row, attribute, message, reason):
    error = caught(partial(SCHEMA.read, events))
    assert (error.row, error.attribute) == (row, attribute)
    assert error.message.startswith(message)
    assert error.reason.startswith(reason)
    assert str(error) == ("" if row is None else f"event {row}: ") + error.message


def test_an_event_of_another_type_is_named_by_its_row():
    error = caught(lambda: SCHEMA.read([{}, 5]))
    assert str(error).startswith(
        "event 1: this is of type int; expected a mapping of names to values; a list "
    )
    assert (error.row, error.attribute) == (1, None)
    assert error.reason == str(error).removeprefix("event 1: ")


@cases(
    ("source", "attribute", "reason"),
    [
        ("prise < 1", "prise", "unknown attribute; did you mean 'price'?"),
        ("price < 'x'", "price", "is a number, it cannot be compared with the str 'x'"),
        ("price < 1e999", "price", "the constant inf is infinite or beyond float64"),
        ("price LIKE 'a%'", "price", "is a number, which has no operator 'prefix'; use =, <>"),
        ("price = NULL", None, "a comparison with NULL is never true; use IS NULL or IS NOT NULL"),
        ({"prise": [1]}, "prise", "unknown attribute; did you mean 'price'?"),
        ({"symbol": [{"anything-but": ["A", 1]}]}, "symbol", "is a string, it cannot be compared with"),
        ({"symbol": [{"numeric": ["<", 1]}]}, "symbol", "numeric needs an attribute of numbers"),
        ({"symbol": "A"}, None, "expected a list of alternatives; got 'A'"),
    ],
)
def test_what_predicate_errors_carry(source, attribute, reason):
    error = caught(partial(parse, source, SCHEMA))
    assert (error.row, error.attribute) == (None, attribute)
    assert error.reason.startswith(reason)
    assert (error.source, error.position is None) == (
        (source, False) if isinstance(source, str) else (None, True)
    )


def test_errors_of_bounds_name_row_and_attribute():
    error = caught(lambda: compile_bounds([[0, 0], [2, 0]], [[1, 1], [1, 1]], Schema({"x": int, "y": int})))
    assert str(error) == "row 1, attribute 'x': low above high in [2.0, 1.0]"
    assert error.message == "attribute 'x': low above high in [2.0, 1.0]"
    assert (error.row, error.attribute, error.reason) == (1, "x", "low above high in [2.0, 1.0]")


def test_a_row_that_is_set_later_changes_no_text():
    error = caught(lambda: parse("price < 'x'", SCHEMA))
    before = str(error)
    error.row = 3
    assert str(error) == before


def samples():
    noted = caught(lambda: parse("qty < 1 AND prise < 1", SCHEMA))
    noted.row = 3
    noted.add_note("in predicate 3 of 4")
    return [
        noted,
        caught(lambda: SCHEMA.read([{}, {"price": math.nan}])),
        caught(lambda: SCHEMA.read([{}, 5])),
        caught(lambda: compile_bounds([[1]], [[0]], Schema({"x": int}))),
        SnapshotError("it is truncated"),
        UnknownSubscriptionError(7),
    ]


@cases("error", samples())
@pytest.mark.parametrize(
    "move",
    [
        *(partial(lambda protocol, error: pickle.loads(pickle.dumps(error, protocol)), n) for n in (2, 5)),
        lambda error: cloudpickle.loads(cloudpickle.dumps(error)),
        copy.copy,
    ],
    ids=["pickle 2", "pickle 5", "cloudpickle", "copy"],
)
def test_errors_survive_pickling(move, error):
    moved = move(error)
    assert type(moved) is type(error)
    assert str(moved) == str(error)
    assert moved.args == error.args
    assert vars(moved) == vars(error)
