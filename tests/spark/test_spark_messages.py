"""Errors of subscriptions in a DataFrame name the subscription by its id."""

import pyarrow as pa
import pytest

from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.predicates.bound_columns import bounded_columns
from rtfilter.spark.subscribing import SubscriptionReader

SCHEMA = Schema({"x": float, "y": float})


def refused(call, *arguments):
    with pytest.raises(PredicateError) as caught:
        call(*arguments)
    return caught.value


def test_bounds_that_cannot_be():
    batch = pa.table({"id": [7, 9], "low.x": [1.0, 5.0], "high.x": [2.0, 4.0]})
    reader = SubscriptionReader(SCHEMA, bounded_columns(batch.column_names, SCHEMA))
    for error in (refused(reader.hulls, batch), refused(reader.subscribe, EventFilter(SCHEMA), batch)):
        assert str(error) == "subscription 9: attribute 'x': low above high in [5.0, 4.0]"
        assert (error.attribute, error.reason) == ("x", "low above high in [5.0, 4.0]")


def test_conditions_that_cannot_be_show_the_place():
    batch = pa.table({"id": [7, 9], "where": ["x > 1", "x > 1 AND z = 2"]})
    error = refused(SubscriptionReader(SCHEMA, []).hulls, batch)
    assert str(error) == (
        "subscription 9: unknown attribute 'z'; the schema has x, y\n    x > 1 AND z = 2\n              ^"
    )
    assert (error.row, error.attribute, error.source) == (None, "z", "x > 1 AND z = 2")


def test_large_integers_in_bounds_are_exact():
    low = [2**53 + 1, 2**53, None]
    batch = pa.table({"id": [7, 9, 11], "low.x": pa.array(low, pa.int64()), "high.y": [None, None, 5.0]})
    reader = SubscriptionReader(SCHEMA, bounded_columns(batch.column_names, SCHEMA))
    filter = EventFilter(SCHEMA)
    reader.subscribe(filter, batch)
    assert sorted(filter.match({"x": 2**53, "y": 0}).tolist()) == [9, 11]
    ids, lows, highs = reader.hulls(batch)
    assert ids.tolist() == [7, 9, 11]
    assert lows[:2, 0].tolist() == [2.0**53, 2.0**53]
    assert highs[2].tolist() == [float("inf"), 5.0]
