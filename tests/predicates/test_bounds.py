"""Arrays of bounds: their boxes, the predicates they stand for, and what is refused."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicate_cases import inside
from rtfilter.errors import PredicateError
from rtfilter.events.encoding import ALIEN, HIGHEST, LOWEST, MISSING
from rtfilter.events.schema import Schema
from rtfilter.predicates.bounds import bounds_predicate, compile_bounds
from rtfilter.predicates.parse import parse

SCHEMA = Schema({"x": float, "s": str, "flag": bool, "t": datetime})


def test_bounds_arrays():
    low = [[1, -math.inf, 0, -math.inf], [-math.inf, -math.inf, -math.inf, 5]]
    high = [[2, math.inf, 1, math.inf], [3, math.inf, math.inf, math.inf]]
    lows, highs = compile_bounds(low, high, SCHEMA)
    assert lows.flags.c_contiguous
    assert lows.shape == (2, 5)
    assert lows[0].tolist() == [1, MISSING, MISSING, 0, MISSING]
    assert highs[0].tolist() == [2, ALIEN, ALIEN, 1, ALIEN]
    assert lows[1].tolist() == [LOWEST, MISSING, MISSING, MISSING, 5]
    assert highs[1].tolist() == [3, ALIEN, ALIEN, ALIEN, HIGHEST]


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ([[0, math.nan]], [[1, 1]], r"row 0, attribute 'y': NaN"),
        ([[0, 0], [2, 0]], [[1, 1], [1, 1]], r"row 1, attribute 'x': low above high in \[2.0, 1.0\]"),
        ([[math.inf, 0]], [[math.inf, 1]], "wrong infinity"),
        ([[0, 0, 0]], [[1, 1, 1]], r"shape \(n, 2\)"),
        ([0, 0], [1, 1], r"shape \(n, 2\)"),
        ([[0, 0]], [[1, 1], [1, 1]], r"shape \(n, 2\)"),
    ],
)
def test_bounds_that_are_refused(low, high, message):
    with pytest.raises(PredicateError, match=message):
        compile_bounds(low, high, Schema({"x": float, "y": int}))


def test_bounds_on_a_string_are_refused():
    with pytest.raises(PredicateError, match="row 0, attribute 's': bounds on a string"):
        compile_bounds([[1]], [[2]], Schema({"s": str}))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_bounds_box_and_its_predicate_agree(data):
    types = {"x": float, "n": int, "flag": bool, "t": datetime}
    schema = Schema(types)
    bounds = []
    for _ in types:
        ends = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 7.0, 1e6, math.inf])
        bounds.append(sorted([data.draw(ends), data.draw(ends)]))
    if any(a == math.inf or b == -math.inf for a, b in bounds):
        return
    low, high = np.array([bounds]).transpose(2, 0, 1)
    lows, highs = compile_bounds(low, high, schema)
    predicate = bounds_predicate(lows[0], highs[0], schema)
    ones = {"x": st.sampled_from([-1, 0.5, 7]), "n": st.sampled_from([0, 1, 7]), "flag": st.booleans()}
    ones["t"] = st.sampled_from([datetime(1970, 1, 1, 0, 0, 0, us, tzinfo=UTC) for us in (0, 1, 7)])
    event = {name: data.draw(strategy | st.none() | st.just("odd")) for name, strategy in ones.items()}
    assert predicate.matches(event) == inside(schema.encode(event)[0], lows[0], highs[0])
    assert parse(predicate, schema) == predicate
