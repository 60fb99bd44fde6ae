"""Arrays of bounds: their boxes, the predicates they stand for, and what is refused."""

import math
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import given as drawn
from hypothesis import strategies as st

from cases import cases
from predicate_cases import inside
from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import ALIEN, HIGHEST, LOWEST, MISSING
from rtfilter.events.schema import Schema
from rtfilter.predicates.bounds.bound_arrays import bounds_predicate, compile_bounds
from rtfilter.predicates.predicate import parse

SCHEMA = Schema({"x": float, "s": str, "flag": bool, "t": datetime})


def test_bounds_arrays():
    low = [[1, -math.inf, 0, -math.inf], [-math.inf, -math.inf, -math.inf, 5]]
    high = [[2, math.inf, 1, math.inf], [3, math.inf, math.inf, math.inf]]
    lows, highs, ends = compile_bounds(low, high, SCHEMA)
    assert not len(ends.owners)
    assert lows.flags.c_contiguous
    assert lows.shape == (2, 6)
    assert lows[0].tolist() == [1, MISSING, MISSING, MISSING, 0, MISSING]
    assert highs[0].tolist() == [2, ALIEN, ALIEN, ALIEN, 1, ALIEN]
    assert lows[1].tolist() == [LOWEST, MISSING, MISSING, MISSING, MISSING, 5]
    assert highs[1].tolist() == [3, ALIEN, ALIEN, ALIEN, ALIEN, HIGHEST]


@cases(
    ("low", "high", "message"),
    [
        ([[0, math.nan]], [[1, 1]], r"row 0, attribute 'y': NaN"),
        ([[0, 0], [2, 0]], [[1, 1], [1, 1]], r"row 1, attribute 'x': low above high in \[2.0, 1.0\]"),
        ([[math.inf, 0]], [[math.inf, 1]], "low is inf or high is -inf"),
        ([[0, 0, 0]], [[1, 1, 1]], r"shape \(n, 2\)"),
        ([0, 0], [1, 1], r"shape \(n, 2\)"),
        ([[0, 0]], [[1, 1], [1, 1]], r"shape \(n, 2\)"),
        ([[0, 0], [1]], [[1, 1], [1, 1]], "row 1, low is no array: this row has length 1, but row 0 has 2$"),
        ([[1, 1]], [np.ones(2), np.ones(3)], "row 1, high is no array: this row has length 3, but row 0"),
        ([0, [1, 2]], [[1, 1]], "low is no array: a row has one plain value for each attribute"),
        ([[[0], [0]]], [[1, 1]], r"shape \(n, 2\); low has \(1, 2, 1\)"),
        (0, 1, r"shape \(n, 2\); low has \(\)"),
        ([[0, 0], [0, "a"]], [[1, 1]] * 2, "row 1, attribute 'y' is a number, but has the bound str 'a'"),
        ([["0", "0"]], [[1, 1]], "row 0, attribute 'x' is a number, but has the bound str '0'"),
        ([[0, 10**400]], [[1, 1]], "row 0, attribute 'y' has the bound .* beyond float64"),
        ([[0, 0]], [[1, 2**200 + 2**100]], "row 0, attribute 'y' has a bound of more than 115 bits"),
        ([[0, 1j]], [[1, 1]], "row 0, attribute 'y' is a number, but has the bound complex 1j"),
        (np.zeros((1, 2), complex), [[1, 1]], "row 0, attribute 'x' is a number, but its bounds are complex"),
        ([[0, [1]]], [[1, 1]], "low is no array"),
        ([[0, {}]], [[1, 1]], "row 0, attribute 'y' is a number, but has the bound dict"),
        ([[False, True]], [[1, 1]], "row 0, attribute 'x' is a number, but its bounds are bool"),
        (np.zeros((1, 2), "M8[s]"), [[1, 1]], "attribute 'x' is a number, but its bounds are datetime64"),
        (np.zeros((1, 2), "m8[s]"), [[1, 1]], "attribute 'x' is a number, but its bounds are timedelta64"),
        (np.zeros((1, 2), "V4"), [[1, 1]], "attribute 'x' is a number, but its bounds are"),
        (np.zeros(1, [("x", float), ("y", float)]), [[1, 1]], "records; pass a DataFrame"),
        ([[2**53 + 1, 0]], [[2**53, 1]], r"low above high in \[9007199254740993, 9007199254740992\]"),
        ({"x": [0], "z": [0]}, {"x": [1]}, "unknown attribute 'z'"),
        ({"x": [0], "y": [0, 1]}, {"x": [1]}, "the columns of low have 1, 2 rows"),
        ({"x": [0]}, {"x": [1, 2]}, r"shape \(n, 2\); got"),
        ({"x": [[0]]}, {"x": [1]}, "row 0, attribute 'x' is a number, but has|of one dimension"),
        (pd.DataFrame([[0, 0]]), [[1, 1]], r"must have the names of attributes, not 0; .* to_numpy\(\)"),
        (pd.DataFrame([[0, 0]], columns=["x", "x"]), [[1, 1]], "low has several columns called 'x'"),
        (pd.DataFrame({"x": ["0"]}), [[1, 1]], "row 0, attribute 'x' is a number, but has the bound str"),
        (
            pl.LazyFrame({"x": [0]}),
            [[1, 1]],
            "low is a LazyFrame; pass an array, a DataFrame of pandas or Pol",
        ),
        (
            pl.Series([0.0]),
            [[1, 1]],
            "a polars.Series has no named columns; pass a DataFrame, an Arrow table",
        ),
        (pl.DataFrame({"x": ["0"]}), [[1, 1]], "row 0, attribute 'x' is a number, but has the bound str '0'"),
        (pl.DataFrame({"z": [0]}), [[1, 1]], "unknown attribute 'z'"),
    ],
)
def test_bounds_that_are_refused(low, high, message):
    with pytest.raises(PredicateError, match=message):
        compile_bounds(low, high, Schema({"x": float, "y": int}))


def test_moments_that_are_refused():
    schema = Schema({"t": datetime, "u": datetime})
    nanoseconds = np.array([[0, 1]], "M8[ns]")
    with pytest.raises(PredicateError, match="row 0, attribute 'u': no whole microsecond lies between"):
        compile_bounds(nanoseconds, nanoseconds, schema)
    far = np.array([[0, 10**6]], "M8[Y]")
    with pytest.raises(PredicateError, match=r"row 0, attribute 'u' has the bound .* int64 microseconds"):
        compile_bounds(far, far, schema)
    with pytest.raises(PredicateError, match="attribute 't' is a timestamp, but has the bound str 'soon'"):
        compile_bounds([["soon", 1]], [["soon", 1]], schema)


@cases(("low", "high"), [(2, 3), (0.25, 0.75), (-1, 0.5), (0, 2), (-1, math.inf)])
@cases("form", [list, np.array, lambda ends: {"flag": [end for _, end in ends]}])
def test_bounds_of_a_boolean_are_0_and_1(low, high, form):
    with pytest.raises(
        PredicateError, match="row 0, attribute 'flag': a boolean's bound is 0, 1 or infinite"
    ):
        compile_bounds(form([[0, low]]), form([[0, high]]), Schema({"x": float, "flag": bool}))


def test_tables_with_bounds_on_a_string_are_refused():
    with pytest.raises(PredicateError, match="attribute 's' is a string, which has no bounds"):
        compile_bounds({"s": [1]}, {"s": [2]}, Schema({"s": str, "x": float}))


def test_bounds_on_a_string_are_refused():
    lows = [[[1]], [["a"]], [[True]], np.zeros((1, 1), "M8[s]"), np.array([["a"]])]
    for low in lows:
        with pytest.raises(PredicateError, match="attribute 's' is a string, which has no bounds") as caught:
            compile_bounds(low, low, Schema({"s": str}))
        assert caught.value.row == 0


@drawn(st.data())
@settings(max_examples=200)
def test_a_bounds_box_and_its_predicate_agree(data):
    types = {"x": float, "n": int, "flag": bool, "t": datetime}
    schema = Schema(types)
    bounds = []
    for name in types:
        finite = [0.0, 1.0] if name == "flag" else [-2.0, -1.0, 0.0, 0.5, 1.0, 7.0, 1e6]
        ends = st.sampled_from([-math.inf, *finite, math.inf])
        bounds.append(sorted([data.draw(ends), data.draw(ends)]))
    if any(a == math.inf or b == -math.inf for a, b in bounds):
        return
    low, high = np.array([bounds]).transpose(2, 0, 1)
    lows, highs, _ = compile_bounds(low, high, schema)
    predicate = bounds_predicate(lows[0], highs[0], schema)
    ones = {"x": st.sampled_from([-1, 0.5, 7]), "n": st.sampled_from([0, 1, 7]), "flag": st.booleans()}
    ones["t"] = st.sampled_from([datetime(1970, 1, 1, 0, 0, 0, us, tzinfo=UTC) for us in (0, 1, 7)])
    event = {name: data.draw(strategy | st.none() | st.just("odd")) for name, strategy in ones.items()}
    assert predicate.matches(event) == inside(schema.encode(event)[0], lows[0], highs[0])
    assert parse(predicate, schema) == predicate


NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
NOON_US = 1_717_156_800_000_000
NOON64 = np.datetime64("2024-05-31T12:00")
ORDINALS = Schema({"n": int, "t": datetime, "flag": bool})
FORMS = {
    "objects": np.array([[5, NOON, True], [None, None, None]], object),
    "texts of moments": [[5, "2024-05-31T12:00Z", True], [None, None, None]],
    "floats": [[5, NOON_US, 1], [math.inf] * 3],
    "integers": np.ma.array([[5, NOON_US, 1], [0, 0, 0]], mask=[[0] * 3, [1] * 3]),
    "frame": pd.DataFrame({"t": [NOON, pd.NaT], "flag": [True, None], "n": [5, math.nan]}),
    "nullable": pd.DataFrame(
        {
            "n": pd.array([5, None], "Int64"),
            "flag": pd.array([True, None], "bool[pyarrow]"),
            "t": pd.array([NOON, None], "timestamp[ns, UTC][pyarrow]"),
        }
    ),
    "arrow": pa.table({"n": [5, None], "t": pa.array([NOON, None], pa.timestamp("s")), "flag": [True, None]}),
    "polars": pl.DataFrame({"t": [NOON, None], "n": [5, None], "flag": [True, None]}),
    "mapping": {
        "n": np.ma.array([5, 0], mask=[0, 1]),
        "t": np.array([NOON64, "NaT"], "M8[ms]"),
        "flag": [True, None],
    },
}


@cases("form", FORMS)
def test_forms_of_bounds(form):
    """Columns of tables are known by name; what is missing is no bound on that side."""
    lows, highs, ends = compile_bounds([[-math.inf] * 3] * 2, FORMS[form], ORDINALS)
    assert highs.tolist() == [[5, NOON_US, 1], [ALIEN] * 3]
    assert lows.tolist() == [[LOWEST] * 3, [MISSING] * 3]
    assert not len(ends.owners)


def test_a_table_needs_no_column_for_what_is_open():
    lows, highs, _ = compile_bounds({}, {"t": [NOON64]}, ORDINALS)
    assert lows.tolist() == [[MISSING, LOWEST, MISSING]]
    assert highs.tolist() == [[ALIEN, NOON_US, ALIEN]]


@pytest.mark.parametrize(
    "empty", [[], np.empty((0, 3)), {"n": []}, pd.DataFrame({"n": []}), pa.table({"n": []})]
)
def test_no_bounds_at_all(empty):
    assert compile_bounds(empty, empty, ORDINALS).low.shape == (0, 3)


def test_finer_units_are_rounded_inwards():
    low, high = np.array([[-1999], [1000], [1001]], "M8[ns]"), np.array([[2999], [1000], [2000]], "M8[ns]")
    schema = Schema({"t": datetime})
    lows, highs, _ = compile_bounds(low, high, schema)
    assert lows.tolist() == [[-1], [1], [2]]
    assert highs.tolist() == [[2], [1], [2]]
    stamps = [pd.Series(pd.to_datetime(side[:, 0]), dtype=object) for side in (low, high)]
    again = compile_bounds(*(pd.DataFrame({"t": side}) for side in stamps), schema)
    assert [side.tolist() for side in again[:2]] == [lows.tolist(), highs.tolist()]


SIGNED = [2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, -(2**63)]
UNSIGNED = [2**53 + 1, 2**63, 2**64 - 1]
LARGE = [
    *((np.array([[n]]), n) for n in SIGNED),
    *((np.ma.array([[n]]), n) for n in SIGNED),
    *((pd.DataFrame({"n": [n]}), n) for n in [*SIGNED, *UNSIGNED]),
    *((pd.DataFrame({"n": [n]}, dtype="Int64"), n) for n in SIGNED),
    *((pa.table({"n": [n]}), n) for n in SIGNED),
    *((np.array([[n]], np.uint64), n) for n in UNSIGNED),
    *((pa.table({"n": pa.array([n], pa.uint64())}), n) for n in UNSIGNED),
    *((form, n) for n in [*SIGNED, *UNSIGNED, 2**70 + 1, 2**300] for form in (
        [[n]], [[n], [0.5]], np.array([[n]], object), {"n": [n]}, {"n": [n, 0.5]},
    )),
]  # fmt: skip


@cases(("given", "value"), LARGE)
def test_large_integers_are_kept_exactly(given, value):
    schema = Schema({"n": int})
    lows, highs, ends = compile_bounds(given, given, schema)
    assert ends.of_row(0).sides.tolist() == [0, 1]
    predicate = bounds_predicate(lows[0], highs[0], schema, ends.of_row(0))
    assert predicate == parse(f"n = {value}", schema)
    assert not len(ends.of_row(1).owners)


def test_sizes_that_float64_tells_apart_need_no_columns():
    """As an open side needs none, nor a bool."""
    schema = Schema({"n": int, "flag": bool})
    limit = 2**53 - 1
    _, _, ends = compile_bounds([[-limit, 0]], [[limit, 1]], schema)
    assert not len(ends.owners)
    _, _, ends = compile_bounds([[-limit - 1, 0]], [[math.inf, 1]], schema)
    assert ends.sides.tolist() == [0]


@given(
    st.lists(
        st.tuples(
            *[st.sampled_from([-np.inf, -(2.0**53), -1.0, -0.0, 0.0, 2.5, 2.0**53, np.inf, np.nan])] * 2
        )
    )
)
def test_one_row_is_compiled_as_many_are(pairs):
    schema = Schema({f"a{at}": float for at in range(len(pairs) + 1)})
    rows = np.array([*pairs, (1.0, 2.0)])
    low, high = rows[np.newaxis, :, 0].copy(), rows[np.newaxis, :, 1].copy()

    def compiled(low, high):
        try:
            return compile_bounds(low, high, schema)
        except PredicateError as error:
            return str(error)

    one, two = compiled(low, high), compiled(np.repeat(low, 2, axis=0), np.repeat(high, 2, axis=0))
    if isinstance(two, str):
        assert one == two
        return
    assert one.low.tobytes() == two.low[:1].tobytes()
    assert one.high.tobytes() == two.high[:1].tobytes()
    assert [column.tolist() for column in one.ends] == [column.tolist() for column in two.ends.of_row(0)]
