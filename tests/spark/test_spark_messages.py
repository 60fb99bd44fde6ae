"""Errors of subscriptions in a DataFrame name the subscription by its id."""

import pyarrow as pa
import pytest
from pyspark.sql import types

from rtfilter import EventError, EventFilter, PredicateError, Schema
from rtfilter.spark.data_frames import _require_fitting
from rtfilter.spark.subscribing import SubscriptionReader

SCHEMA = Schema({"x": float, "y": float})


def refused(call, *arguments):
    with pytest.raises(PredicateError) as caught:
        call(*arguments)
    return caught.value


def test_bounds_that_cannot_be():
    batch = pa.table({"id": [7, 9], "low.x": [1.0, 5.0], "high.x": [2.0, 4.0]})
    reader = SubscriptionReader(SCHEMA)
    for error in (refused(reader.hulls, batch), refused(reader.subscribe, EventFilter(SCHEMA), batch)):
        assert str(error) == "subscription 9: attribute 'x': low above high in [5.0, 4.0]"
        assert (error.attribute, error.reason) == ("x", "low above high in [5.0, 4.0]")


def test_conditions_that_cannot_be_show_the_place():
    batch = pa.table({"id": [7, 9], "where": ["x > 1", "x > 1 AND z = 2"]})
    reader = SubscriptionReader(SCHEMA)
    for error in (refused(reader.hulls, batch), refused(reader.subscribe, EventFilter(SCHEMA), batch)):
        assert str(error) == (
            "subscription 9: unknown attribute 'z'; the schema has x, y\n    x > 1 AND z = 2\n              ^"
        )
        assert (error.row, error.attribute, error.source) == (None, "z", "x > 1 AND z = 2")


def test_a_hull_is_around_all_boxes_of_a_condition():
    where = ["x BETWEEN 1 AND 2 AND y = 3 OR x BETWEEN 5 AND 7 AND y = 1", "FALSE", "x = 4 AND y = 4"]
    ids, low, high = SubscriptionReader(SCHEMA).hulls(pa.table({"id": [7, 8, 9], "where": where}))
    assert ids.tolist() == [7, 8, 9]
    assert (low.tolist(), high.tolist()) == ([[1, 1], [0, 0], [4, 4]], [[7, 3], [0, 0], [4, 4]])


def test_large_integers_in_bounds_are_exact():
    low = [2**53 + 1, 2**53, None]
    batch = pa.table({"id": [7, 9, 11], "low.x": pa.array(low, pa.int64()), "high.y": [None, None, 5.0]})
    reader = SubscriptionReader(SCHEMA)
    filter = EventFilter(SCHEMA)
    reader.subscribe(filter, batch)
    assert sorted(filter.match({"x": 2**53, "y": 0}).tolist()) == [9, 11]
    ids, lows, highs = reader.hulls(batch)
    assert ids.tolist() == [7, 9, 11]
    assert lows[:2, 0].tolist() == [2.0**53, 2.0**53]
    assert highs[2].tolist() == [float("inf"), 5.0]


def test_labels_that_cannot_be_kept_are_named():
    for label, value, reason in (
        ("ttl", 0.0, "a time to live is finite and above 0"),
        ("expires", "soon", "expires must be a time or seconds since 1970"),
        ("metadata", "x", "metadata as text must be JSON"),
        ("metadata", "[1]", "metadata is a dict"),
    ):
        batch = pa.table({"id": [2, 3], "where": ["x > 1"] * 2, label: [None, value]})
        filter = EventFilter(SCHEMA)
        with pytest.raises(ValueError, match=f"subscription 3: {reason}"):
            SubscriptionReader(SCHEMA).subscribe(filter, batch)
        assert len(filter) == 0


def test_elements_of_arrays_have_to_fit_as_values_do():
    schema = Schema({"tags": int, "staff.name": int, "a.b.c": int})
    texts = types.ArrayType(types.StringType())
    staff = types.ArrayType(types.StructType([types.StructField("name", types.StringType())]))
    for name, kind, attribute in (("tags", texts, "tags"), ("staff", staff, "staff.name")):
        with pytest.raises(
            EventError, match=f"column '{attribute}' is string, but .* cast the column"
        ) as caught:
            _require_fitting(name, kind, schema)
        assert caught.value.attribute == attribute
    _require_fitting("tags", types.ArrayType(types.ArrayType(types.LongType())), schema)
    _require_fitting("other", texts, schema)
    _require_fitting("a", types.StructType([types.StructField("other", texts)]), schema)
