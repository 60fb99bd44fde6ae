"""Keys are read from every form of events, and from every form beside them."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cases import cases
from rtfilter import EventError, EventFilter, Schema, Tracker

ROWS = [{"vehicle": "a", "at": {"fleet": 1}, "x": 0.5}, {"vehicle": "b", "at": {"fleet": 2}, "x": 0.5}]
FRAME = {"vehicle": ["a", "b"], "at.fleet": [1, 2], "x": [0.5, 0.5]}
TABLE = pa.table({"vehicle": ["a", "b"], "at": [{"fleet": 1}, {"fleet": 2}], "x": [0.5, 0.5]})
FORMS = {
    "dicts": ROWS,
    "a tuple of dicts": tuple(ROWS),
    "pandas": pd.DataFrame(FRAME),
    "polars": pl.DataFrame(FRAME),
    "arrow": pa.table(FRAME),
    "arrow with structs": TABLE,
    "a record batch": TABLE.to_batches()[0],
    "a stream of arrow": None,
}


def tracker(key=None, **others):
    filter = EventFilter(Schema({"x": float, **others}))
    filter.subscribe("x < 1")
    return Tracker(filter, key)


def keys_of(made, events, keys=None):
    made.match_batch(events, keys)
    return made.keys()


@cases("form", FORMS)
@cases(("key", "expected"), [("vehicle", ["a", "b"]), ("at.fleet", [1, 2])])
@cases("known", [False, True])
def test_an_attribute_of_the_schema_or_not(form, key, expected, known):
    events = TABLE.to_reader() if form == "a stream of arrow" else FORMS[form]
    others = {key: type(expected[0])} if known else {}
    assert keys_of(tracker(key, **others), events) == expected


@pytest.mark.parametrize("events", [np.array([[0.5, 1], [0.5, 2]]), [[0.5, 1], [0.5, 2]]])
def test_arrays_and_rows_have_the_attributes_of_the_schema(events):
    assert keys_of(tracker("fleet", fleet=int), events) == [1, 2]
    with pytest.raises(
        EventError, match=r"only the attributes of the schema \(x, fleet\), so not the key 'other'"
    ):
        keys_of(tracker("other", fleet=int), events)


def test_a_table_that_was_read_already():
    made = tracker("vehicle", vehicle=str)
    assert keys_of(made, made.filter.schema.read(ROWS)) == ["a", "b"]
    other = tracker("vehicle")
    with pytest.raises(EventError, match="only the attributes of the schema"):
        keys_of(other, other.filter.schema.read(ROWS))


def test_a_function_of_an_event():
    def both(event):
        return event["vehicle"], event["at"]["fleet"]

    assert keys_of(tracker(both), ROWS) == [("a", 1), ("b", 2)]
    with pytest.raises(TypeError, match="the key is a function of an event, and DataFrame is no list"):
        keys_of(tracker(both), pd.DataFrame(FRAME))


@pytest.mark.parametrize(
    "keys",
    [
        ["a", "b"],
        ("a", "b"),
        np.array(["a", "b"]),
        pd.Series(["a", "b"]),
        pd.Series(["a", "b"], dtype="category"),
        pl.Series(["a", "b"]),
        pa.array(["a", "b"]),
        pa.chunked_array([["a"], ["b"]]),
        {"a": 1, "b": 2}.keys(),
    ],
    ids=lambda keys: f"{type(keys).__module__}.{type(keys).__name__}",
)
def test_keys_beside_the_events(keys):
    assert keys_of(tracker("vehicle"), [[0.5], [0.5]], keys) == ["a", "b"]


@pytest.mark.parametrize(
    "keys",
    [
        ["a", None],
        np.ma.array([1, 2], mask=[False, True]),
        [1.5, np.nan],
        [1, np.float64("nan")],
        pd.Series([1, pd.NA], dtype="Int64"),
        pd.to_datetime(pd.Series(["2024-05-31", None])),
        pa.array(["a", None]),
    ],
    ids=str,
)
def test_a_missing_key_is_an_error(keys):
    with pytest.raises(EventError, match="event 1: the key is missing") as raised:
        keys_of(tracker(), [[0.5], [0.5]], keys)
    assert raised.value.row == 1


def test_equal_keys_are_one():
    keys = [1, 1.0, True, np.int64(1), "1"]
    assert keys_of(tracker(), [[0.5]] * 5, keys) == [1, "1"]


@pytest.mark.parametrize("keys", [np.array([["a"], ["b"]]), [["a"], "b"], [{}, "b"]])
def test_a_key_without_a_hash_is_an_error(keys):
    with pytest.raises(EventError, match=r"event 0: the key is the .* which has no hash"):
        keys_of(tracker(), [[0.5], [0.5]], keys)
