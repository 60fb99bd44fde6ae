"""Schemas, and reading events of every form into points and rows."""

import decimal
import io
import json
import math
import re
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rtfilter
from cases import cases
from predicate_cases import STRINGS, events, schemas
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.basics.extras import install
from rtfilter.events import encoding
from rtfilter.events.encoding import (
    ALIEN,
    HIGHEST,
    IDENTITY_MAX,
    LOWEST,
    MISSING,
    ORDER_MAX,
    ending_code,
    microseconds,
    number,
    string_code,
    string_codes,
)
from rtfilter.events.foreign import arrow_rows
from rtfilter.events.moments import instants, microseconds_of
from rtfilter.events.schema import KINDS, Attribute, Schema
from rtfilter.filter import EventFilter
from rtfilter.index.kernels import text_codes
from rtfilter.predicates.predicate import Predicate

NUMBERS = Schema({"x": float, "n": int})
MIXED = Schema({"price": float, "symbol": str, "ok": bool, "at": datetime})
NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
NOON_US = 1_717_156_800_000_000
AB = string_code("ab")[0]


MICROSECONDS = {"us": 1, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "D": 86400 * 10**6}
MICROSECONDS |= {"W": 7 * MICROSECONDS["D"]}
MICROSECONDS |= {unit: Fraction(1, 1000**k) for k, unit in enumerate(("ns", "ps", "fs", "as"), 1)}


class Nowhere(tzinfo):
    """A time zone that does not tell its offset."""

    def utcoffset(self, moment):
        return None


# Schema


def test_dimensions_count_strings_three_times():
    assert MIXED.names == ("price", "symbol", "ok", "at")
    assert MIXED.dimensions == 6
    assert MIXED.offsets == {"price": 0, "symbol": 1, "ok": 4, "at": 5}


def test_json_round_trip():
    schema = Schema(
        {
            "a": Attribute(int, low=0, high=9),
            "b": str,
            "c": bool,
            "d": Attribute(datetime, high=NOON),
            "e": float,
        }
    )
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    assert hash(again) == hash(schema)
    assert list(again.attributes) == list("abcde")


ENDS = {
    int: [
        0,
        -5,
        2**60 + 1,
        1.5,
        np.int8(3),
        np.uint64(2**63),
        np.float32(0.1),
        Decimal("0.1"),
        Decimal(7),
        -0.0,
    ],
    datetime: [
        NOON,
        datetime(2024, 5, 31, 12),
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(1, 1, 1),
        datetime.max,
        date(2024, 5, 31),
        np.datetime64("2024-05-31"),
        np.datetime64("2024-05-31T12:00:00.123456789"),
        pd.Timestamp("2024-05-31 12:00", tz="Asia/Tokyo"),
        "2024-05-31T12:00:00+02:00",
        "2024-05-31",
    ],
}


@cases(("kind", "end"), [(kind, end) for kind, ends in ENDS.items() for end in ends])
def test_every_accepted_domain_is_saved_exactly(kind, end):
    schema = Schema({"a": Attribute(kind, low=end), "b": Attribute(kind, high=end)})
    again = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert again == schema
    assert again.fields == schema.fields
    coordinate = microseconds(end) if kind is datetime else number(end)
    assert schema.attribute("a").bounds == (coordinate, HIGHEST)
    assert schema.attribute("b").bounds == (LOWEST, coordinate)


def test_a_filter_with_any_accepted_domain_is_saved(tmp_path):
    schema = Schema(
        {f"{kind.__name__}{i}": Attribute(kind, end) for kind in ENDS for i, end in enumerate(ENDS[kind])}
    )
    EventFilter(schema).save(tmp_path / "index")
    assert EventFilter.load(tmp_path / "index").schema == schema


@pytest.mark.parametrize(
    "data",
    [
        {
            "a": "float",
            "b.c": {"type": "int", "low": 0, "high": 9},
            "d": {"type": "timestamp", "low": "2024-05-31"},
        },
        [
            {"name": "a", "type": "float"},
            {"name": "b.c", "type": "int", "low": 0, "high": 9},
            {"name": "d", "type": "timestamp", "low": "2024-05-31"},
        ],
    ],
)
def test_both_forms_of_json_are_read(data):
    expected = {"a": float, "b.c": Attribute(int, 0, 9), "d": Attribute(datetime, datetime(2024, 5, 31))}
    assert Schema.from_json(data) == Schema(expected)


@cases(
    ("data", "message"),
    [
        (None, "a schema is a JSON object"),
        ("float", "a schema is a JSON object"),
        (["a"], r"a schema is a JSON object .* got the list \['a'\]$"),
        ('{"a": "int"}', r"such as the dict .* got the str .*; pass json\.loads\(text\)"),
        (Path("schema.json"), r"got the [A-Za-z]*Path .*; pass json\.loads\(text\), of a file"),
        (io.StringIO('{"a": "int"}'), r"got the StringIO .*; pass json\.loads\(text\), of a file"),
        ({}, "at least one attribute"),
        ([], "at least one attribute"),
        ({"a": "flaot"}, "attribute 'a': the type 'flaot' is unknown; use int, float"),
        ({"a": None}, "attribute 'a': a type is needed"),
        ({"a": {"type": [["int"]]}}, "attribute 'a': a type is needed"),
        ({"a": {"low": 1}}, "attribute 'a': a type is needed"),
        ({"a": {"type": "int", "min": 0}}, "attribute 'a': 'min' is unknown; known are type, low and high"),
        ({"a": {"type": "int", "low": [0]}}, "attribute 'a': the domain of a int attribute cannot end at"),
        (
            {"a": {"type": "timestamp", "low": 5}},
            "attribute 'a': the domain of a timestamp attribute cannot end at 5",
        ),
        ([{"type": "int"}], "None cannot name an attribute"),
        ([{"name": "a", "type": "int"}, {"name": "a", "type": "int"}], "'a' occurs twice"),
        ({"a..b": "int"}, "'a..b' cannot name an attribute"),
    ],
)
def test_json_that_is_no_schema(data, message):
    with pytest.raises(ValueError, match=message):
        Schema.from_json(data)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("float", float),
        ("timestamp", datetime),
        ({"type": "int", "low": 0, "high": 9}, Attribute(int, 0, 9)),
        (Attribute("int", low=0, high=9), Attribute(int, 0, 9)),
    ],
)
def test_a_schema_takes_the_names_of_types_that_json_has(given, expected):
    schema = Schema({"a": given})
    assert schema == Schema({"a": expected})
    assert schema.to_json() == Schema({"a": expected}).to_json()


def test_names_that_are_no_types_are_told_with_those_that_are():
    with pytest.raises(ValueError, match="attribute 'a': the type 'flaot' is unknown; use int, float, str"):
        Schema({"a": "flaot"})
    with pytest.raises(TypeError, match="or a name: int, float, str, bool, timestamp; got 'double'"):
        Attribute("double")
    with pytest.raises(TypeError, match=r"Schema\.from_json reads an array of objects"):
        Schema([{"name": "a", "type": "int"}])


@pytest.mark.parametrize("given", [["a"], "a", 5, None])
def test_attributes_without_types_are_refused(given):
    with pytest.raises(TypeError, match=r'such as \{"price": float, "symbol": str\}; got'):
        Schema(given)


def test_order_of_attributes_distinguishes_schemas():
    """Arrays are read in that order."""
    assert Schema({"a": int, "b": int}) != Schema({"b": int, "a": int})


@cases("name", ["", ".", "a.", ".a", "a..b", "$or", 5])
def test_unusable_names(name):
    with pytest.raises(ValueError, match="cannot name an attribute"):
        Schema({name: float})


@cases(
    ("arguments", "message"),
    [
        ((str, "a"), "str attribute has no domain"),
        ((bool, 0, 1), "bool attribute has no domain"),
        ((int, 5, 3), "domain is empty"),
        ((float, math.nan), "cannot end at nan"),
        ((float, None, math.inf), "cannot end at inf"),
        ((datetime, 5), "cannot end at 5"),
        ((int, "low"), "cannot end at 'low'"),
        ((int, True), "cannot end at True"),
        ((float, 10**5000), "cannot end at <more than 40 digits>"),
        ((int, Decimal("nan")), "cannot end at"),
        ((int, Fraction(1, 3)), "cannot end at"),
        ((datetime, np.datetime64("NaT")), "cannot end at"),
        ((datetime, np.datetime64("12024-05-31")), "after 9999"),
        ((datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))), "before the year 1"),
        ((datetime, date(2024, 5, 31), "2024-05-30"), "domain is empty"),
        ((int, 2**53 + 1, 2**53), "domain is empty"),
    ],
)
def test_impossible_domains(arguments, message):
    with pytest.raises(ValueError, match=message):
        Attribute(*arguments)


def test_unknown_type_and_empty_schema():
    with pytest.raises(TypeError, match="one of int, float, str, bool, datetime"):
        Schema({"a": list})
    with pytest.raises(TypeError, match="one of int, float, str, bool, datetime"):
        Schema({"a": 5})
    with pytest.raises(ValueError, match="at least one attribute"):
        Schema({})


@pytest.mark.parametrize(("name", "near"), [("prise", "price"), ("SYMBOL", "symbol"), ("okk", "ok")])
def test_did_you_mean(name, near):
    with pytest.raises(PredicateError, match=f"unknown attribute '{name}'; did you mean '{near}'"):
        MIXED.attribute(name)


@pytest.mark.slow
def test_importing_the_schema_imports_no_heavy_library():
    """Nor does reading dicts and arrays; checked without the package's own ``__init__``."""
    code = (
        "import sys, types, numpy as np\n"
        "package = sys.modules['rtfilter'] = types.ModuleType('rtfilter')\n"
        f"package.__path__ = {list(rtfilter.__path__)!r}\n"
        "from rtfilter.events.schema import Schema\n"
        "schema = Schema({'x': float})\n"
        "schema.encode([{'x': 1}]), schema.encode(np.ones((1, 1)))\n"
        "print({'pandas', 'pyarrow', 'numba'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


# Encoding


def test_points_of_a_dict():
    point = MIXED.encode({"price": 3, "symbol": "ACME", "ok": True, "at": NOON, "extra": math.nan})
    assert point.tolist() == [[3, *string_code("ACME"), 1, NOON_US]]
    assert point.dtype == np.float64


def test_missing_and_alien_values():
    assert MIXED.encode({"symbol": None}).tolist() == [[MISSING] * 6]
    assert MIXED.encode({"price": "3", "symbol": 3, "ok": 1, "at": 5}).tolist() == [[ALIEN] * 6]


@cases(
    "value",
    [
        *(b"a", bytearray(b"a"), {"a"}, frozenset("a"), time(12), timedelta(1), np.timedelta64(5, "s"), 1j),
        *(Path("a"), object(), TypeError),
    ],
)
def test_values_of_types_that_no_event_has_are_refused(value):
    """In a dict, a list of dicts, a column of objects and a list inside an event."""
    column = np.empty((1, 1), object)
    column[0, 0] = value
    for kind in (float, str, bool, datetime):
        schema = Schema({"x": kind})
        for form in ({"x": value}, [{"x": value}], column, {"x": [value]}):
            with pytest.raises(EventError) as caught:
                schema.read(form)
            assert str(caught.value) == (
                f"event 0: attribute 'x' is of the type {type(value).__name__}, which no event has; "
                "leave it out, or convert it"
            )
        assert schema.read({"x": None, "other": value}).points[0, 0] == MISSING


def test_columns_of_pandas_of_types_that_no_event_has_are_refused():
    for column in ([b"a", None], [time(12), None], [timedelta(1), None]):
        with pytest.raises(EventError, match=r"attribute 'x' is .*, which no event has; leave it out"):
            Schema({"x": str}).read(pd.DataFrame({"x": column}))


def test_a_bad_text_of_a_table_is_told_with_its_row():
    """Equal texts are read once."""
    at = pa.array(["2024-01-01", "2024-01-01", "2025-01-01"])
    schema = Schema({"at": Attribute(datetime, high=datetime(2024, 6, 1))})
    for table in (pa.table({"at": at}), pd.DataFrame({"at": at.to_pylist()})):
        with pytest.raises(EventError) as caught:
            schema.read(table)
        assert caught.value.row == 2


def test_a_uuid_is_its_text():
    id = UUID("05de60fe-2320-4112-9f85-afe018c070bd")
    schema = Schema({"x": str})
    filter = EventFilter(schema)
    filter.subscribe_many([f"x = '{id}'", "x LIKE '05de60fe-2320%'", {"x": [id]}, "x LIKE '%9F85%'"])
    forms = [{"x": id}, [[id]], pd.DataFrame({"x": [id]}), pa.table({"x": pa.array([id.bytes], pa.uuid())})]
    for form in forms:
        assert filter.match_batch([form] if isinstance(form, dict) else form).ids.tolist() == [0, 1, 2]
    assert arrow_rows(forms[-1]) == [{"x": str(id)}]
    assert Predicate.parse(f"x = '{id}'", schema).matches({"x": id})


@cases(
    ("value", "coordinate"),
    [
        (True, ALIEN),
        (np.bool_(True), ALIEN),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), float(2**64 - 1)),
        (decimal.Decimal("0.1"), 0.1),
        (2**60 + 1, float(2**60)),
        ([1], 1),
        ({"nested": 1}, MISSING),
        (pd.NA, MISSING),
        (pd.NaT, MISSING),
    ],
)
def test_what_counts_as_a_number(value, coordinate):
    """One dict, a list of dicts and a column of objects agree."""
    schema = Schema({"x": float})
    column = np.empty((1, 1), object)
    column[0, 0] = value
    for form in ({"x": value}, [{"x": value}], column):
        assert schema.encode(form).tolist() == [[coordinate]]


@cases(
    ("value", "coordinate"),
    [
        (NOON, NOON_US),
        (NOON.replace(tzinfo=None), NOON_US),
        (NOON.astimezone(timezone(timedelta(hours=-7))), NOON_US),
        ("2024-05-31T12:00:00Z", NOON_US),
        ("2024-05-31T14:00:00+02:00", NOON_US),
        ("2024-05-31 12:00", NOON_US),
        (date(2024, 5, 31), NOON_US - 43_200_000_000),
        (np.datetime64("2024-05-31T12:00"), NOON_US),
        (np.datetime64(-1, "ns"), -1),
        (np.datetime64(-1, "as"), -1),
        (np.datetime64(2_500_000, "ps"), 2),
        (np.datetime64(-292_277, "Y"), -9_223_371_158_400_000_000),
        (np.datetime64(292_500, "Y"), ALIEN),
        (datetime(2024, 5, 31, 12, tzinfo=Nowhere()), NOON_US),
        (pd.Timestamp("1969-12-31T23:59:59.999999999Z"), -1),
        (np.datetime64("NaT"), MISSING),
        (np.datetime64(10**6, "Y"), ALIEN),
        ("soon", ALIEN),
        ("2024-05-31T12:00:60Z", ALIEN),
        ("\ud800", ALIEN),
        (NOON_US, ALIEN),
    ],
)
def test_what_counts_as_a_timestamp(value, coordinate):
    """In a dict, a list, and, where NumPy has the type, an array."""
    schema = Schema({"at": datetime})
    forms = [{"at": value}, [{"at": value}]]
    if isinstance(value, np.datetime64):
        forms.append(np.array([[value]]))
    for form in forms:
        assert schema.encode(form).tolist() == [[coordinate]]


@cases("unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"])
@cases("step", [1, 25])
def test_datetime64_of_every_unit_in_an_array_and_alone(unit, step):
    """Whole microseconds, rounded down, or another type where int64 does not hold them."""
    rng = np.random.default_rng(1)
    counts = rng.integers(-(2**63) + 1, 2**63, 200) >> rng.integers(0, 63, 200)
    column = counts.view(f"datetime64[{step}{unit}]")
    found = instants(column)
    for row, count in enumerate(counts.tolist()):
        alone = microseconds_of(column[row])
        assert alone == (None if found.beyond[row] else found.microseconds[row])
        if unit in "YM":
            continue  # of no fixed length: the array and the single value need only agree
        exact = Fraction(count) * step * MICROSECONDS[unit]
        assert found.beyond[row] == (abs(exact // 1) >= 2**63)
        if not found.beyond[row]:
            assert (found.microseconds[row], found.cut[row]) == (exact // 1, exact % 1 > 0)


def test_numpy_and_str_subclasses():
    class Name(str):
        __slots__ = ()

        def __hash__(self):
            raise AssertionError("the string itself is encoded, not what a subclass makes of it")

    assert Schema({"s": str}).encode({"s": Name("ab")}).tolist() == [list(string_code("ab"))]
    assert Schema({"b": bool}).encode({"b": np.bool_(True)}).tolist() == [[1]]


@pytest.mark.slow
@given(st.lists(st.sampled_from(STRINGS) | st.text(max_size=9), min_size=2, max_size=30, unique=True))
def test_string_codes_keep_order_and_identity(texts):
    codes = {text: string_code(text) for text in texts}
    ordered = sorted(texts, key=lambda text: text.encode("utf-8", "surrogatepass"))
    assert ordered == sorted(texts), "the order of the bytes is the order of the code points"
    orders = [codes[text][0] for text in ordered]
    assert orders == sorted(orders)
    assert all(
        0 <= order <= ORDER_MAX and 0 <= identity <= IDENTITY_MAX and 0 <= ending <= ORDER_MAX
        for order, identity, ending in codes.values()
    )
    assert all(float(code) == code for own in codes.values() for code in own)
    short = [text for text in texts if len(text.encode("utf-8", "surrogatepass")) <= 6]
    assert len({codes[text][1] for text in short}) == len(short)
    assert all((codes[text][1] <= IDENTITY_MAX // 2) == (text in short) for text in texts)


@given(st.lists(st.text(st.characters(max_codepoint=0x7F), max_size=12), min_size=1, max_size=8), st.text())
def test_many_strings_have_the_codes_of_each(texts, other):
    many = [f"{text}{at}" for at in range(100) for text in texts] + texts
    for strings in (many, [*many, other]):
        assert string_codes(strings).tolist() == [list(string_code(text)) for text in strings]


@pytest.mark.parametrize("codes_of", [encoding._ascii_codes, text_codes.ascii_codes])
@given(
    st.lists(
        st.text(st.characters(max_codepoint=0x7F), max_size=12)
        | st.builds(
            lambda text, size: (text * size)[:size], st.text("aZ\0~", min_size=1), st.integers(0, 400)
        ),
        min_size=1,
        max_size=40,
    )
)
@example([("BLAKE2" * 50)[:size] for size in (0, 1, 6, 7, 8, 127, 128, 129, 255, 256, 257)])
def test_arrays_and_compiled_code_make_the_codes_of_ascii_strings(codes_of, texts):
    assert codes_of(texts).tolist() == [list(string_code(text)) for text in texts]


def test_string_codes_are_the_same_in_every_process():
    """Snapshots and Spark executors depend on them: these numbers must never change."""
    assert string_code("") == (0, 0, 0)
    assert string_code("ACME") == (71757314981888, 560184204144293, 111520493142016)
    assert string_code("a longer string") == (106791886089831, 2437905205973531, 113723913172083)


def test_texts_with_the_same_end_but_for_case_are_neighbours():
    texts = ["Straße", "STRASSE", "rasse", "trasse", "assa", "asse", "sse", "", "E"]
    ordered = sorted(texts, key=lambda text: text.casefold()[::-1])
    endings = [string_code(text)[2] for text in ordered]
    assert endings == sorted(endings)
    assert string_code("Straße")[2] == string_code("STRASSE")[2] == ending_code("trasse")
    assert string_code("a" * 300 + "E")[2] == ending_code("aaaaae")


def test_identity_spreads_neighbours():
    """The 64 cells of a node's grid should all be used by alphabetic symbols."""
    codes = np.array([int(string_code(f"SYM{i:03}")[1]) for i in range(640)])
    cells = np.bincount(codes * 64 // (IDENTITY_MAX // 2 + 1), minlength=64)
    assert cells.min() >= 1
    assert cells.max() < 40


def test_minus_zero_is_zero():
    for form in ({"x": -0.0, "n": 0}, [{"x": -0.0, "n": 0}], np.array([[-0.0, 0]])):
        assert not np.signbit(NUMBERS.encode(form)).any()


# Forms of events


@given(st.data())
def test_one_dict_equals_a_list_of_dicts(data):
    types = data.draw(schemas())
    schema = Schema(types)
    batch = data.draw(st.lists(events(types), max_size=4))
    table = schema.read(batch)
    assert table.points.shape == (len(batch), schema.dimensions)
    assert table.points.flags.c_contiguous
    for i, event in enumerate(batch):
        one = schema.read(event)
        assert one.points.tolist() == [table.points[i].tolist()]
        expected = {name: value for name, value in event.items() if value is not None and name in types}
        assert one.row(0) == table.row(i) == expected


class Text(str):
    __slots__ = ()


ODD = [
    0.5, -0.0, 3, True, False, None, "a", Text("1"), b"1", 2**53 + 1, 10**18 + 1, 10**400, -(10**400),
    math.nan, math.inf, -math.inf, {1}, sys.float_info.max, int(sys.float_info.max) + 1, -1e308,
    np.float64(2), np.float32(0.1), np.int8(5), np.True_, decimal.Decimal("0.1"), datetime(2024, 1, 1),
    {"x": 1}, [1],
]  # fmt: skip


def outcome(schema, events):
    try:
        table = schema.read(events)
    except EventError as error:
        return str(error), error.row, error.attribute
    return table.points.tobytes(), [table.row(k) for k in range(len(table))]


TYPES = [*KINDS.values(), Attribute(float, 0, 10), Attribute(int, -5, 2**53)]


@given(st.lists(st.sampled_from(TYPES), min_size=2, max_size=4), st.data())
def test_the_quick_ways_are_the_slow_way(kinds, data):
    schema = Schema({f"a{k}": kind for k, kind in enumerate(kinds)})
    values = st.tuples(*[st.sampled_from([0.5, 3, *ODD]) for _ in kinds])
    rows = data.draw(st.lists(values, min_size=1, max_size=3))
    dicts = [dict(zip(schema.names, row, strict=True)) for row in rows]
    slow = outcome(schema, [MappingProxyType(event) for event in dicts])
    assert outcome(schema, dicts) == slow
    assert outcome(schema, rows) == slow
    assert outcome(schema, list(map(list, rows))) == slow
    assert outcome(schema, dicts[0]) == outcome(schema, MappingProxyType(dicts[0]))
    dicts[0].popitem()
    assert outcome(schema, dicts) == outcome(schema, [MappingProxyType(event) for event in dicts])


def test_rows_of_values_are_read_in_the_order_of_the_schema():
    schema = Schema({"price": float, "at.depth": int, "symbol": str})
    rows = [(1.5, 2, "A"), [3, None, "B"]]
    dicts = [{"price": 1.5, "at": {"depth": 2}, "symbol": "A"}, {"price": 3, "symbol": "B"}]
    assert schema.read(rows).points.tolist() == schema.read(dicts).points.tolist()
    assert schema.read(rows).row(1) == {"price": 3, "symbol": "B"}


@pytest.mark.parametrize("rows", [[(1, 2), (1,)], [(1, 2), (1, 2, 3)]])
def test_a_row_of_another_length_is_named(rows):
    with pytest.raises(EventError, match=r"event 1: this row has \d values; expected 2: x, y") as caught:
        Schema({"x": float, "y": float}).read(rows)
    assert caught.value.row == 1


def test_polars():
    schema = Schema({"x": float, "n": int, "s": str, "ok": bool, "t": datetime, "at.depth": int})
    events = [
        {
            "x": 0.5,
            "n": 2**53 + 1,
            "s": "long enough",
            "ok": True,
            "t": datetime(2024, 1, 2),
            "at": {"depth": 3},
        },
        {"x": None, "n": None, "s": None, "ok": None, "t": None, "at": None},
        {"x": -1.0, "n": 5, "s": "a", "ok": False, "t": datetime(1969, 1, 2, 3), "at": {"depth": None}},
    ]
    frame = polars.DataFrame(events)
    table, expected = schema.read(frame), schema.read(events)
    assert table.points.tolist() == expected.points.tolist()
    assert [table.row(k)["n"] for k in (0, 2)] == [2**53 + 1, 5]
    coded = frame.with_columns(polars.col("s").cast(polars.Categorical))
    assert schema.read(coded).points.tolist() == expected.points.tolist()
    with pytest.raises(EventError, match="none of the attributes"):
        schema.read(polars.DataFrame({"y": [1]}))
    with pytest.raises(EventError, match="NaN") as caught:
        schema.read(polars.DataFrame({"x": [1.0, math.nan]}))
    assert caught.value.row == 1


def test_without_pyarrow_polars_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EventError, match=rf"polars\.DataFrame needs pyarrow: {re.escape(install('arrow'))}$"):
        Schema({"x": float}).read(polars.DataFrame({"x": [1.0]}))


def test_arrays_give_points_and_rows():
    values = np.array([[1.5, 2], [-3, 4]])
    table = NUMBERS.read(values)
    assert table.points.tolist() == values.tolist()
    assert table.row(1) == {"x": -3.0, "n": 4.0}
    values[0, 0] = 9
    assert table.points[0, 0] == 1.5, "the caller's memory is not shared"


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float16, np.longdouble])
def test_array_dtypes(dtype):
    assert NUMBERS.encode(np.array([[1, 2]], dtype)).tolist() == [[1, 2]]


def test_rows_keep_integers_exactly():
    assert NUMBERS.read(np.array([[2**53 + 1, 0]])).row(0) == {"x": 2**53 + 1, "n": 0}


def test_fortran_order_becomes_c_order():
    points = NUMBERS.encode(np.asfortranarray(np.arange(6.0).reshape(3, 2)))
    assert points.flags.c_contiguous
    assert points.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_masked_cells_are_missing():
    """Whatever the value under the mask, even NaN."""
    events = np.ma.array([[math.nan, 2], [3, 4]], mask=[[True, False], [False, True]])
    table = NUMBERS.read(events)
    assert table.points.tolist() == [[MISSING, 2], [3, MISSING]]
    assert [table.row(0), table.row(1)] == [{"n": 2.0}, {"x": 3.0}]


def test_arrays_of_objects_booleans_and_datetimes():
    objects = np.array([[1.5, "ab", True, NOON], [None, 7, 0, "2024-05-31T12:00Z"]], object)
    table = MIXED.read(objects)
    assert table.points.tolist() == [
        [1.5, *string_code("ab"), 1, NOON_US],
        [MISSING, ALIEN, ALIEN, ALIEN, ALIEN, NOON_US],
    ]
    assert table.row(1) == {"symbol": 7, "ok": 0, "at": "2024-05-31T12:00Z"}
    assert Schema({"a": bool, "b": bool}).encode(np.array([[True, False]])).tolist() == [[1, 0]]
    moments = np.array([["2024-05-31T12:00:00"], ["NaT"]], "datetime64[s]")
    assert Schema({"at": datetime}).encode(moments).tolist() == [[NOON_US], [MISSING]]


@pytest.mark.parametrize("shape", [(2,), (1, 3), (2, 1), (1, 2, 1), ()])
def test_array_of_wrong_shape(shape):
    with pytest.raises(EventError, match=r"expected an array of shape \(n, 2\) \[x, n\]"):
        NUMBERS.read(np.zeros(shape))


@cases("dtype", [complex, "m8[s]", "M8[s]", bool, "V8", [("x", float)]])
def test_an_array_of_another_type_is_refused(dtype):
    with pytest.raises(EventError, match="'x' is a number, but the array holds"):
        Schema({"x": float}).read(np.zeros((1, 1), dtype))


@pytest.mark.parametrize("dtype", ["U1", "S1", np.dtypes.StringDType()])
def test_an_array_of_text_is_refused_where_an_attribute_has_no_text(dtype):
    with pytest.raises(EventError, match="'x' is a number, but the array holds") as caught:
        Schema({"x": float, "s": str}).read(np.array([["1", "a"]], dtype))
    assert caught.value.attribute == "x"


def test_an_array_of_text_holds_strings_and_timestamps():
    table = Schema({"s": str, "at": datetime}).read(np.array([["a", "2024-05-31T12:00Z"]]))
    assert table.points.tolist() == [[*string_code("a"), NOON_US]]


def test_numeric_array_for_other_attributes_is_refused():
    """None of its values could ever match, so it is a mistake."""
    with pytest.raises(EventError, match="'symbol' is a string, but the array holds float64"):
        Schema({"x": float, "symbol": str}).read(np.zeros((1, 2)))


@pytest.mark.parametrize(
    "form", [[], np.empty((0, 2)), pd.DataFrame({"x": [], "n": []}), pa.table({"x": []})]
)
def test_no_events(form):
    assert NUMBERS.encode(form).shape == (0, 2)


@pytest.mark.parametrize("form", [5, None, {1, 2}, iter([])])
def test_unreadable_forms(form):
    with pytest.raises(EventError, match="cannot read events from"):
        NUMBERS.read(form)


@pytest.mark.parametrize("column", [polars.Series([2.0]), pa.chunked_array([[2.0]])])
def test_a_column_is_no_table(column):
    with pytest.raises(EventError, match="has no named columns; pass a DataFrame, an Arrow table or an arr"):
        NUMBERS.read(column)


def test_list_of_something_else():
    with pytest.raises(EventError, match="event 1: this is of type list; expected a mapping"):
        NUMBERS.read([{"x": 1}, [1, 2]])


@pytest.mark.parametrize("events", [(2.0, 3.0), [2.0, 3.0], [np.array([2.0, 3.0])]])
def test_a_list_of_numbers_or_arrays_is_told_what_a_list_may_hold(events):
    message = "event 0: this is of type .* a list holds mappings, or nothing but lists or tuples of"
    with pytest.raises(EventError, match=message):
        NUMBERS.read(events)


def frame(**columns):
    return pd.DataFrame(columns)


def test_pandas_columns():
    zone = timezone(timedelta(hours=2))
    data = frame(
        price=[1.5, math.nan],
        symbol=["ab", None],
        ok=[True, False],
        at=pd.to_datetime([NOON.astimezone(zone), pd.NaT]),
    )
    table = MIXED.read(data)
    assert table.points.tolist() == [
        [1.5, *string_code("ab"), 1, NOON_US],
        [MISSING, MISSING, MISSING, MISSING, 0, MISSING],
    ]
    assert table.row(1) == {"ok": False}
    assert table.row(0) == {
        "price": 1.5,
        "symbol": "ab",
        "ok": True,
        "at": np.datetime64("2024-05-31T12:00"),
    }


@cases(
    ("name", "series", "coordinates"),
    [
        ("price", pd.array([1, None], "Int64"), [1, MISSING]),
        ("price", pd.array([1.5, None], "Float64"), [1.5, MISSING]),
        ("price", pd.array([1, None], "int64[pyarrow]"), [1, MISSING]),
        ("price", pd.Series([1, "x"], dtype=object), [1, ALIEN]),
        ("price", pd.Series([True, False]), [ALIEN, ALIEN]),
        ("price", pd.Categorical([3, None]), [3, MISSING]),
        ("price", pd.Series([True, 1], dtype=object), [ALIEN, 1]),
        ("ok", pd.array([True, None], "boolean"), [1, MISSING]),
        ("ok", pd.array([True, None], "bool[pyarrow]"), [1, MISSING]),
        ("price", pd.array([True, None], "bool[pyarrow]"), [ALIEN, MISSING]),
        ("at", pd.array([date(1970, 1, 2), None], "date32[pyarrow]"), [86_400_000_000, MISSING]),
        ("at", pd.array([date(1970, 1, 2), None], "date64[pyarrow]"), [86_400_000_000, MISSING]),
        ("price", pd.array([date(1970, 1, 2), None], "date32[pyarrow]"), [ALIEN, MISSING]),
        (
            "symbol",
            pd.array([["ab"], None], pd.ArrowDtype(pa.list_(pa.string()))),
            [string_code("ab")[0], MISSING],
        ),
        ("ok", pd.Series([1, 0]), [ALIEN, ALIEN]),
        ("symbol", pd.array(["ab", None], "string"), [string_code("ab")[0], MISSING]),
        ("symbol", pd.array(["ab", None], "string[pyarrow]"), [string_code("ab")[0], MISSING]),
        ("symbol", pd.Categorical(["ab", None]), [string_code("ab")[0], MISSING]),
        ("symbol", pd.Series(["ab", 7], dtype=object), [string_code("ab")[0], ALIEN]),
        ("symbol", pd.Series(["\ud800", 5], dtype=object), [string_code("\ud800")[0], ALIEN]),
        ("symbol", pd.Series([1, 2]), [ALIEN, ALIEN]),
        ("at", pd.Series(["2024-05-31T12:00Z", "soon"]), [NOON_US, ALIEN]),
        ("at", pd.array([NOON, None], "timestamp[ms, UTC][pyarrow]"), [NOON_US, MISSING]),
        ("at", pd.to_datetime(["2024-05-31T12:00", None]), [NOON_US, MISSING]),
        ("at", pd.Series([NOON, date(1970, 1, 1)], dtype=object), [NOON_US, 0]),
    ],
)
def test_pandas_dtypes(name, series, coordinates):
    """The first coordinate of the attribute."""
    table = MIXED.read(pd.DataFrame({name: series}))
    assert table.points[:, MIXED.offsets[name]].tolist() == coordinates
    assert [name in table.row(i) for i in range(2)] == [c != MISSING for c in coordinates]


def test_pandas_columns_of_one_name():
    with pytest.raises(EventError, match="several columns called 'x'"):
        NUMBERS.read(pd.DataFrame([[1, 2]], columns=["x", "x"]))


@cases(
    ("name", "array", "coordinates"),
    [
        ("price", pa.array([1, None]), [1, MISSING]),
        ("price", pa.array([1.5, None]), [1.5, MISSING]),
        ("price", pa.array([decimal.Decimal("0.10"), None]), [0.1, MISSING]),
        ("price", pa.array([np.float16(1.5), None], pa.float16()), [1.5, MISSING]),
        ("price", pa.array(["1", None]), [ALIEN, MISSING]),
        ("price", pa.array([True, None]), [ALIEN, MISSING]),
        ("price", pa.nulls(2), [MISSING, MISSING]),
        ("price", pa.array([[1], None]), [1, MISSING]),
        ("ok", pa.array([True, None]), [1, MISSING]),
        ("ok", pa.array([1, None]), [ALIEN, MISSING]),
        ("symbol", pa.array(["ab", None]), [string_code("ab")[0], MISSING]),
        ("symbol", pa.array(["ab", None], pa.large_string()), [string_code("ab")[0], MISSING]),
        ("symbol", pa.array(["ab", None]).dictionary_encode(), [string_code("ab")[0], MISSING]),
        ("at", pa.array([NOON, None], pa.timestamp("ns", "Europe/Prague")), [NOON_US, MISSING]),
        ("at", pa.array([NOON_US // 10**6, None], pa.timestamp("s")), [NOON_US, MISSING]),
        ("at", pa.array([date(1970, 1, 2), None]), [86_400_000_000, MISSING]),
        ("at", pa.array(["2024-05-31T12:00Z", None]), [NOON_US, MISSING]),
    ],
)
def test_arrow_types(name, array, coordinates):
    """As a table, as a record batch and in several chunks; the first coordinate of the attribute."""
    table = pa.table({name: array})
    for form in (table, table.to_batches()[0], pa.concat_tables([table.slice(0, 1), table.slice(1)])):
        read = MIXED.read(form)
        assert read.points[:, MIXED.offsets[name]].tolist() == coordinates
        assert [name in read.row(i) for i in range(2)] == [c != MISSING for c in coordinates]


def test_arrow_structs_are_nested_objects():
    schema = Schema({"url.resource": str, "url": str})
    table = pa.table({"url": [{"resource": "/a", "code": 200}, None]})
    read = schema.read(table)
    assert read.row(0) == {"url.resource": "/a"}
    assert read.row(1) == {}


# Nested dicts


def test_nested_objects_are_flattened():
    """With the event of the counting example (Novák 2013)."""
    schema = Schema({"http.resource": str, "http.response": int, "type": str})
    event = {"type": "GET", "http": {"resource": "/apache_pb.gif", "protocol": "HTTP/1.0", "response": 200}}
    assert schema.read(event).row(0) == {
        "type": "GET",
        "http.resource": "/apache_pb.gif",
        "http.response": 200,
    }


def test_dotted_names_may_also_come_flat():
    schema = Schema({"a.b": int, "a.c": int})
    assert schema.read({"a.b": 1, "a": {"c": 2}}).row(0) == {"a.b": 1, "a.c": 2}


def test_one_name_with_two_values():
    """Names are unique within an event; names outside the schema are not looked at."""
    event = {"a.b": 1, "a": {"b": 2}}
    with pytest.raises(EventError, match=r"event 1: attribute 'a\.b' occurs twice"):
        Schema({"a.b": int}).read([{}, event])
    assert Schema({"a.c": int}).read(event).row(0) == {}


def test_objects_nested_too_deeply():
    event = {}
    for _ in range(100_000):
        event = {"a": event}
    with pytest.raises(EventError, match="nested deeper than 64"):
        Schema({"a.b": int}).read(event)


def test_objects_are_nested_up_to_64_levels():
    event = {"b": 1}
    for _ in range(63):
        event = {"a": event}
    path = "a." * 63 + "b"
    assert Schema({path: int}).read(event).row(0) == {path: 1}
    with pytest.raises(EventError, match="nested deeper than 64"):
        Schema({path: int}).read({"a": event})


# Errors


@cases("value", [math.nan, np.float32("nan"), np.float64("nan")])
@cases("kind", [float, int, str, bool, datetime])
def test_nan_names_row_and_attribute(value, kind):
    schema = Schema({"a": kind, "b": kind})
    for form, row in (({"b": value}, 0), ([{}, {"b": value}], 1)):
        with pytest.raises(EventError, match=f"event {row}: attribute 'b' is NaN"):
            schema.read(form)


@pytest.mark.parametrize(
    "form",
    [
        np.array([[1, 1], [1, math.nan]]),
        np.ma.array([[math.nan, 1], [1, math.nan]], mask=[[True, False], [False, False]]),
        pa.table({"x": [1.0, 1.0], "n": [1.0, math.nan]}),
        np.array([[1, 1], [1, math.nan]], object),
    ],
)
def test_nan_in_columns(form):
    with pytest.raises(EventError, match="event 1: attribute 'n' is NaN"):
        NUMBERS.read(form)


def test_nan_in_a_column_of_another_type():
    with pytest.raises(EventError, match="event 1: attribute 's' is NaN"):
        Schema({"s": str}).read(pa.table({"s": [1.0, math.nan]}))


@pytest.mark.parametrize("value", [math.inf, -math.inf, 10**400, decimal.Decimal("inf"), np.float32("inf")])
def test_infinity(value):
    for form in ({"n": value}, [{"n": 1}, {"n": value}], np.array([[1, value]], object)):
        with pytest.raises(EventError, match="attribute 'n' is infinite or beyond float64"):
            NUMBERS.read(form)


@cases(
    "form",
    [
        np.array([[math.inf]]),
        np.array([[math.inf]], np.float32),
        np.array([[math.inf]], np.float16),
        np.array([["1e4000"]]).astype(np.longdouble),
        np.ma.array([["1e4000"]]).astype(np.longdouble),
        pd.DataFrame({"n": [math.inf]}),
        pa.table({"n": [-math.inf]}),
    ],
)
def test_infinity_in_columns(form):
    with pytest.raises(EventError, match="attribute 'n' is infinite"):
        Schema({"n": int}).read(form)


@cases(
    "form",
    [
        {"n": 65536},
        [{"n": 0}, {"n": -1}],
        np.array([[0], [65536]]),
        np.array([[0.0], [-0.5]]),
        pd.DataFrame({"n": [0, 70000]}),
        pa.table({"n": [70000]}),
        [{"n": 0}, {"n": decimal.Decimal(70000)}],
    ],
)
def test_outside_the_domain(form):
    schema = Schema({"n": Attribute(int, low=0, high=65535)})
    with pytest.raises(EventError, match=r"outside its domain \[0, 65535\]"):
        schema.read(form)


def test_domain_ends_are_closed_and_aliens_are_not_in_question():
    schema = Schema({"n": Attribute(int, low=0, high=65535), "at": Attribute(datetime, low=NOON)})
    batch = [{"n": 0, "at": NOON}, {"n": 65535}, {"n": "x", "at": 3}, {}]
    assert schema.encode(batch)[:, 0].tolist() == [0, 65535, ALIEN, MISSING]
    with pytest.raises(EventError, match="attribute 'at'"):
        schema.read({"at": NOON - timedelta(microseconds=1)})


BIG = 2**53
INTEGERS = [
    lambda n: {"n": n},
    lambda n: [{"n": n}],
    lambda n: np.array([[n]]),
    lambda n: np.ma.array([[n]], mask=[[False]]),
    lambda n: np.array([[n]], object),
    lambda n: pd.DataFrame({"n": [n]}),
    lambda n: pd.DataFrame({"n": [n]}, dtype="Int64" if n < 2**63 else "UInt64"),
    lambda n: pa.table({"n": pa.array([n], pa.int64() if n < 2**63 else pa.uint64())}),
]


@cases("form", INTEGERS)
@cases(
    ("low", "high", "inside"),
    [
        (None, BIG, [BIG]),
        (None, BIG + 1, [BIG, BIG + 1]),
        (BIG + 1, None, [BIG + 1, BIG + 2]),
        (-BIG, float(BIG), [BIG]),
        (2**63 + 1, 2**64 - 2, [2**63 + 1, 2**64 - 2]),
    ],
)
def test_domains_beyond_float64_are_exact_for_every_form(form, low, high, inside):
    schema = Schema({"n": Attribute(int, low=low, high=high)})
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    for n in (BIG, BIG + 1, BIG + 2, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1):
        if n in inside:
            assert schema.encode(form(n)).tolist() == [[float(n)]]
        elif high is not None or n < low:
            with pytest.raises(EventError, match=f"is {n}, outside its domain"):
                schema.read(form(n))


def test_domains_of_timestamps_are_exact_far_ahead():
    """In the year 2500 a microsecond is less than what float64 tells apart."""
    end = datetime(2500, 1, 1, tzinfo=UTC)
    schema = Schema({"at": Attribute(datetime, high=end)})
    after = np.datetime64("2500-01-01T00:00:00.000001")
    assert len(schema.read({"at": end})) == 1
    for form in ({"at": after}, np.array([[after]]), pa.table({"at": np.array([after])})):
        with pytest.raises(EventError, match=r"domain \[-inf, 2500-01-01T00:00:00Z\]"):
            schema.read(form)


@cases("form", INTEGERS)
@cases("n", [5, BIG, BIG + 1, -BIG - 1, 2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_coordinate_and_its_rest_are_the_integer(form, n):
    table = Schema({"n": int}).read(form(n))
    rest = table.rests(np.array([0]), np.array([0]))
    assert int(table.points[0, 0]) + int(rest[0]) == n
    assert table.take(np.array([0])).rests(np.array([0]), np.array([0])) == rest


def test_tables_are_read_again_only_by_an_equal_schema():
    table = Schema({"x": float, "n": int}).read({"x": 1, "n": 2})
    assert Schema({"x": float, "n": int}).read(table) is table
    narrow = {"x": Attribute(float, 0), "n": int}
    for other in ({"n": int, "x": float}, {"x": float}, {"x": str, "n": int}, narrow):
        with pytest.raises(EventError, match="read by another schema"):
            Schema(other).read(table)


@cases("type_", [float, str])
@cases(
    "form",
    [
        lambda rows: [dict(zip("xy", row, strict=True)) for row in rows],
        lambda rows: np.array(rows),
        lambda rows: pd.DataFrame(rows, columns=["x", "y"]),
        lambda rows: pa.table(dict(zip("xy", zip(*rows, strict=True), strict=True))),
    ],
)
def test_values_of_some_rows(form, type_):
    schema = Schema({"x": type_, "y": type_})
    table = schema.read(form([(type_(row), type_(10 * row)) for row in range(4)]))
    assert list(table.rows(range(1, 4)).rows(range(1, 3)).values("x")) == [type_(2), type_(3)]
    assert list(table.take(np.array([2, 0, 2])).values("y")) == [type_(20), type_(0), type_(20)]
    assert list(table.take(np.array([], np.int64)).values("y")) == []


def test_values_of_a_row_look_at_no_other_row():
    class Event(dict):
        def get(self, name, default=None):
            seen.append(self["n"])
            return super().get(name, default)

    seen = []
    table = Schema({"n": int}).read([Event(n=n) for n in range(50)])
    seen.clear()
    assert list(table.rows(range(7, 9)).values("n")) == [7, 8]
    assert seen == [7, 8]
