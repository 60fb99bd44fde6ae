"""Misspelt attributes and values of another type: reported, and refused by a strict schema."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rtfilter.basics.errors import EventError
from rtfilter.events import mismatches
from rtfilter.events.schema import Schema
from rtfilter.events.spelling import Spelling

TYPES = {"price": "float", "symbol": "str", "ok": "bool", "at": "timestamp", "url.code": "int", "tags": "str"}
SCHEMA = Schema(TYPES)
STRICT = Schema(TYPES, strict=True)
WHOLE = {"price": 1.5, "symbol": "A", "ok": True, "at": "2024-05-31", "url": {"code": 1}, "tags": ["a"]}

ODD = [
    ({"prise": 1}, "prise", "unknown attribute 'prise'; did you mean 'price'?"),
    ({"Price": 1}, "Price", "unknown attribute 'Price'; did you mean 'price'?"),
    ({"url": {"cod": 1}}, "url.cod", "unknown attribute 'url.cod'; did you mean 'url.code'?"),
    ({"url": [{"cod": 1}]}, "url.cod", "unknown attribute 'url.cod'; did you mean 'url.code'?"),
    ({"price": "9.5"}, "price", "attribute 'price' is a number, and '9.5' is none"),
    ({"price": True}, "price", "attribute 'price' is a number, and True is none"),
    ({"symbol": 5}, "symbol", "attribute 'symbol' is a string, and 5 is none"),
    ({"ok": 1}, "ok", "attribute 'ok' is a boolean, and 1 is none"),
    ({"at": 1717156800}, "at", "attribute 'at' is a timestamp, and 1717156800 is none"),
    ({"at": "24:00"}, "at", "attribute 'at' is a timestamp, and '24:00' is none: it is not like"),
    ({"tags": ["a", 5]}, "tags", "attribute 'tags' is a string, and 5 is none"),
    ({"url": [{"code": 1}, {"code": "x"}]}, "url.code", "attribute 'url.code' is a number, and 'x' is none"),
]


@pytest.mark.parametrize(("event", "name", "said"), ODD, ids=str)
def test_each_oddity_is_reported_with_its_place(event, name, said):
    for events, row in ((event, 0), ([{"price": 1}, event, event], 1)):
        (one,) = SCHEMA.read(events).odd
        assert (one.name, one.row, one.events) == (name, row, 1 + bool(row))
        assert str(one).startswith(said)


@pytest.mark.parametrize(("event", "name", "said"), [*ODD, ({"colour": 1}, "colour", "unknown")], ids=str)
def test_a_strict_schema_refuses_each_oddity_with_row_and_attribute(event, name, said):
    for events, row in ((event, 0), ([WHOLE, event], 1)):
        with pytest.raises(EventError) as told:
            STRICT.read(events)
        assert (told.value.row, told.value.attribute) == (row, name)
        assert told.value.message.startswith(said)


def test_what_is_meant_so_is_not_odd():
    for schema in (SCHEMA, STRICT):
        assert schema.read(WHOLE).odd == schema.read([WHOLE, {}, {"price": None}]).odd == ()
    for other in (
        {"colour": 1},
        {"url": {"host": "x"}},
        {"price": 1, "prise": 2},
        {5: 1},
        {"x": {"price": 1}},
    ):
        assert SCHEMA.read(WHOLE | other).odd == SCHEMA.read([other, WHOLE]).odd == ()


@pytest.mark.parametrize("event", [{"colour": 1}, {5: 1}, {"url": {"host": "x"}}, {"prise": 2}], ids=str)
def test_a_strict_schema_refuses_every_other_name(event):
    with pytest.raises(EventError, match="unknown attribute"):
        STRICT.read(WHOLE | event)


def test_columns_are_looked_at_once():
    frame = {"prise": [1.0, 2.0, 3.0], "symbol": ["A", None, "B"], "ok": [1, 0, 1]}
    for table in (pd.DataFrame(frame), pa.table(frame)):
        found = {one.name: (one.row, one.events) for one in SCHEMA.read(table).odd}
        assert found == {"prise": (0, 3), "ok": (0, 3)}
        with pytest.raises(EventError, match="prise"):
            STRICT.read(table)
        assert SCHEMA.read(table[:0]).odd == ()
    nested = pa.table({"price": [1.5], "url": [{"cod": 5}]})
    assert [one.name for one in SCHEMA.read(nested).odd] == ["url.cod"]
    numbers = Schema({"x": float, "y": float}, strict=True)
    with pytest.raises(EventError, match="unknown attribute 'z'"):
        numbers.read(pa.table({"x": [1.0], "y": [1.0], "z": [1.0]}))
    with pytest.raises(EventError, match="'y' is a number, and '1' is none") as told:
        numbers.read(np.array([[1, 1], [1, "1"]], object))
    assert told.value.row == 1


def test_a_table_of_a_lax_schema_is_none_of_a_strict_one():
    table = SCHEMA.read([{"colour": 1}])
    with pytest.raises(EventError, match=r"read by another schema.*strict"):
        STRICT.read(table)
    assert SCHEMA.read(STRICT.read([WHOLE])).odd == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PRICE", "price"),
        ("prise", "price"),
        ("pric", "price"),
        ("priice", "price"),
        ("pirce", "price"),
        ("userId", "user_id"),
        ("user id ", "user_id"),
        ("N", "n"),
        (" n", "n"),
        ("custmer", "customer"),
        ("customer.nam", "customer.name"),
        ("attribute2", None),
        ("atribute1", "attribute1"),
        ("temp_min", None),
        ("m", None),
        ("prices and more", None),
        ("x" * 1000, None),
    ],
)
def test_one_letter_capitals_and_signs_make_a_name_misspelt(name, meant):
    known = ["price", "user_id", "n", "customer.name", "attribute1", "temp_max"]
    assert Spelling(known).meant(name) == meant


def test_a_publisher_with_new_names_without_end_mutes_no_hint_and_takes_no_memory():
    spelling = Spelling(["price", "symbol"])
    for number in range(30_000):
        assert spelling.meant(f"{number:x}") is None
    assert len(spelling.settled) < 10_100
    assert spelling.meant("prise") == "price"


def test_the_names_of_objects_are_looked_at():
    schema = Schema({"customer.name": "str", "n": "int"})
    (one,) = schema.read({"custmer": {"name": "A"}, "n": 1}).odd
    assert str(one) == "unknown attribute 'custmer'; did you mean 'customer'?"
    assert schema.read({"custmer": {"name": "A"}, "customer": {"name": "B"}, "n": 1}).odd == ()


@pytest.mark.parametrize(
    ("event", "name"),
    [
        ({"url": 5}, "url"),
        ({"url": [5]}, "url"),
        ({"url": {"code": {"x": 1}}}, "url.code.x"),
        ({"url": [[{"cod": 1}]]}, "url.cod"),
        ({"price": {"x": 1}}, "price.x"),
    ],
    ids=str,
)
def test_a_strict_schema_looks_into_objects(event, name):
    with pytest.raises(EventError) as told:
        STRICT.read(event)
    assert told.value.attribute == name


def test_a_strict_schema_looks_for_one_unknown_name_only(monkeypatch):
    """Each takes a comparison with all attributes, and one event may have thousands."""
    asked = []
    unknown = mismatches.unknown
    monkeypatch.setattr(mismatches, "unknown", lambda name, names: asked.append(name) or unknown(name, names))
    with pytest.raises(EventError, match="unknown attribute 'y0'"):
        STRICT.read([WHOLE, {f"y{number}": 1 for number in range(1000)}])
    assert asked == ["y0"]


def test_a_strict_schema_is_kept_by_json():
    assert Schema.from_json(STRICT.to_json()) == Schema(STRICT.to_json()) == STRICT != SCHEMA
    with pytest.raises(TypeError, match="strict is True or False; got 'no'"):
        Schema(TYPES, strict="no")
    assert Schema.from_json({"strict": False, "attributes": TYPES}) == SCHEMA
    assert Schema.from_json({"strict": "bool", "attributes": "int"}).names == ("strict", "attributes")
    for wrong in ({"strict": True}, {"strict": True, "attributes": TYPES, "more": 1}):
        with pytest.raises(ValueError, match='beside "strict" there are "attributes"'):
            Schema.from_json(wrong)
    assert Schema({"at": dt.datetime}, strict=True) == Schema({"at": "timestamp"}, strict=True)


def test_a_strict_schema_looks_at_whole_events_of_numbers_too():
    numbers = Schema({"x": float, "y": float}, strict=True)
    assert numbers.read({"x": 1, "y": 2}).odd == ()
    for events in ({"x": 1, "y": 2, "z": 3}, [{"x": 1, "y": 2}, {"x": 1, "y": 2, "z": 3}]):
        with pytest.raises(EventError, match="unknown attribute 'z'"):
            numbers.read(events)
