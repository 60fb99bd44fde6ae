"""Reading events with lists: what they stand for, in every form, and what is refused."""

import json
import re
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from cases import cases
from oracle import choices as brute_force
from rtfilter import EventError, EventFilter, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.events.elements import MAX_CHOICES
from rtfilter.events.encoding import MISSING
from rtfilter.events.nesting import MAX_NESTING

SCHEMA = Schema({"n": int, "tags": str, "staff.name": str, "staff.pay": float, "at": datetime})
EVENTS = [
    {"n": 1, "tags": ["a", "b"], "staff": [{"name": "Ann", "pay": 2**53 + 1}, {"name": "Bob"}]},
    {"n": 2, "tags": []},
    {"n": None, "tags": ["abcdefg"], "staff": [{"pay": 7.5}], "at": ["2024-05-31", "2024-06-01"]},
    {"n": 3, "tags": None, "staff": []},
]


def rows_of(schema, events):
    """For each event the flat events that it stands for, as sorted JSON."""
    table = schema.read(events)
    searched = table.searched
    found = [searched.row(row) for row in range(len(searched))]
    if table.choices is None:
        return [[json.dumps(row, sort_keys=True, default=str)] for row in found]
    lists = [found[start:stop] for start, stop in pairwise(table.choices.offsets.tolist())]
    return [sorted(json.dumps(row, sort_keys=True, default=str) for row in own) for own in lists]


def expected(events):
    found = [[{name: value for name, (value, _) in one.items()} for one in brute_force(e)] for e in events]
    return [sorted(json.dumps(row, sort_keys=True, default=str) for row in own) for own in found]


def test_an_event_stands_for_each_choice():
    assert rows_of(SCHEMA, EVENTS) == expected(EVENTS)
    assert [rows_of(SCHEMA, event)[0] for event in EVENTS] == expected(EVENTS)


def test_choices_have_the_points_of_flat_events():
    table = SCHEMA.read(EVENTS)
    flat = [table.searched.row(row) for row in range(len(table.searched))]
    assert table.searched.points.tolist() == SCHEMA.read(flat).points.tolist()
    assert table.choices.offsets.tolist() == [0, 4, 5, 7, 8]
    assert len(table) == 4
    for name in SCHEMA.names:
        assert list(table.searched.values(name)) == [row.get(name) for row in flat]


def test_events_without_lists_have_no_choices():
    assert SCHEMA.read([{"n": 1, "tags": 7, "other": [1]}, {"tags": "a"}]).choices is None
    assert SCHEMA.read({"n": np.array(7), "tags": 7, "staff": {"name": "Ann", "other": [1]}}).choices is None


def test_equal_choices_count_once():
    event = {"tags": ["a"] * 50, "staff": [{"name": "Ann", "other": k} for k in range(500)]}
    assert len(SCHEMA.read(event).searched) == 1
    assert len(Schema({"x": float}).read({"x": [1, True, 1.5, 1, {}, None]}).searched) == 3


def test_a_choice_that_lacks_what_another_one_has_is_marked():
    table = SCHEMA.read(EVENTS)
    pay = table.searched.points[:, SCHEMA.offsets["staff.pay"]]
    assert (pay[:4] == MISSING).tolist() == table.choices.partial[:4].tolist()
    assert table.choices.partial.sum() == 2
    assert SCHEMA.read({"tags": ["a", "b"]}).choices.partial is None


@pytest.mark.parametrize("form", [tuple, np.array], ids=["tuple", "array"])
def test_what_else_is_a_list(form):
    event = {"n": form([2, 1])}
    assert SCHEMA.read(event).searched.points[:, 0].tolist() == [2, 1]


def test_rows_of_values_may_have_lists():
    schema = Schema({"x": float, "s": str})
    assert rows_of(schema, [[1, ["a", "b"]], [2, "c"]]) == expected(
        [{"x": 1, "s": ["a", "b"]}, {"x": 2, "s": "c"}]
    )


RULES = [
    "tags = 'a'",
    "tags <> 'a'",
    "staff.name = 'Ann' AND staff.pay = 9007199254740993",
    "staff.name = 'Bob' AND staff.pay IS NULL",
    "staff.pay IS NULL",
    "tags IS NULL AND n > 1",
    "at = '2024-06-01'",
    "staff.pay = 9007199254740992",
]
WANTED = [[0, 1, 2, 3], [4, 5], [1, 6], [4, 5]]


KINDS = pa.schema(
    [
        ("n", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("staff", pa.list_(pa.struct({"name": pa.string(), "pay": pa.int64()}))),
        ("at", pa.list_(pa.string())),
    ]
)


@cases("form", ["dicts", "pandas", "pandas of arrays", "arrow", "polars", "record batch"])
def test_all_forms_match_the_same(form):
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(RULES)
    whole = [{**event, "staff": [{"pay": 7}]} if row == 2 else event for row, event in enumerate(EVENTS)]
    table = pa.Table.from_pylist(whole, KINDS)
    batch = {
        "dicts": lambda: whole,
        "pandas": lambda: pd.DataFrame(whole),
        "pandas of arrays": lambda: table.to_pandas(integer_object_nulls=True),
        "arrow": lambda: table,
        "polars": lambda: polars.from_arrow(table),
        "record batch": lambda: table.combine_chunks().to_batches()[0],
    }[form]()
    assert [sorted(ids.tolist()) for ids in filter.match_batch(batch)] == WANTED


def test_lists_of_moments_in_a_table():
    filter = EventFilter(Schema({"at": datetime}))
    filter.subscribe("at = '2024-06-01'")
    moments = [[datetime(2024, 5, 31, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC)], None, []]
    table = pa.table({"at": pa.array(moments, pa.list_(pa.timestamp("us", "UTC")))})
    assert filter.match_batch(table).any.tolist() == [True, False, False]


def test_a_map_is_no_list():
    table = pa.table({"tags": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string())), "n": [1]})
    with pytest.raises(EventError, match="attribute 'tags' is a column of the type map<string, string>"):
        SCHEMA.read(table)


def refused(events, message, schema=SCHEMA):
    with pytest.raises(EventError, match=re.escape(message)) as caught:
        schema.read(events)
    return caught.value


def test_too_many_choices():
    many = list(map(str, range(MAX_CHOICES + 1)))
    error = refused(
        [{}, {"tags": many}], "event 1: the list 'tags' has 1,001 choices of elements, and at most 1,000"
    )
    assert (error.row, error.attribute) == (1, "tags")
    assert len(SCHEMA.read({"tags": many[1:]}).searched) == MAX_CHOICES
    both = {"tags": many[:40], "staff": [{"name": name} for name in many[:40]]}
    refused(both, "the lists tags, staff have 1,600 choices of elements")
    deep = {"staff": [{"name": many[:40], "pay": list(range(40))}]}
    refused(deep, "the lists staff.name, staff.pay have 1,600 choices of elements")
    assert SCHEMA.read({"tags": many[:40], "other": many}).searched is not None


def test_bad_elements_name_the_event():
    for events in ([{}, {"n": [1, 2, float("nan")]}], pd.DataFrame({"n": [[], [1, np.nan]]})):
        error = refused(events, "event 1: attribute 'n' is NaN")
        assert (error.row, error.attribute) == (1, "n")
    refused(
        [{"tags": ["a", "b"]}, {"staff": [{"pay": 1}, {"pay": 1e999}]}],
        "event 1: attribute 'staff.pay' is inf",
    )


def test_a_name_with_two_values_is_refused():
    refused({"staff.pay": 1, "staff": [{"pay": 2}]}, "attribute 'staff.pay' occurs twice")
    refused({"staff": [{"a": 1, "pay": 2, "x": {}}], "staff.pay": [3]}, "attribute 'staff.pay' occurs twice")
    schema = Schema({"a.b.c": int})
    refused({"a": [{"b.c": 1, "b": {"c": 2}}]}, "attribute 'a.b.c' occurs twice", schema)


def test_nesting_is_limited():
    event = [1]
    for _ in range(MAX_NESTING):
        event = [event]
    refused({"n": event}, "nested deeper than 64 levels")
    assert len(SCHEMA.read({"n": event[0]}).searched) == 1


def test_workload_and_visits_count_all_choices():
    filter = EventFilter(SCHEMA)
    filter.subscribe_many([f"n = {k}" for k in range(200)])
    filter.configure(controller=FixedPlan(0, 1))
    one = filter.stream([{"n": 1}]).workload[0]
    assert filter.stream([{"n": [1, 2, 3]}, {"n": 1}]).workload.tolist() == [3 * one, one]
    stream = filter.stream([{"n": [1, 2, 3]}, {"n": 1}])
    assert len(stream.visits) == len(stream) == 2
    assert stream.matches().counts.tolist() == [3, 1]


def test_an_object_in_a_cell_of_pandas_is_read_as_in_a_dict():
    schema = Schema({"url.code": int, "price": float})
    events = [{"url": {"code": 200}, "price": 1.0}, {"url": None}, {"url": [{"code": 1}, {"code": 2}]}]
    frame = schema.read(pd.DataFrame(events))
    assert frame.searched.points.tolist() == schema.read(events).searched.points.tolist()
    (one,) = schema.read(pd.DataFrame([{"url": {"cod": 200}}])).odd
    assert one.name == "url.cod"


@pytest.mark.parametrize("value", [5, 5.5, True, "a", np.datetime64("2024-05-31")], ids=str)
def test_an_array_of_no_dimension_is_its_value(value):
    schema = Schema({"n": float, "s": str, "b": bool, "at": datetime})
    for name in schema.names:
        plain, array = ({name: one} for one in (value, np.array(value)))
        assert schema.read(array).points.tolist() == schema.read(plain).points.tolist()
        assert schema.read([array]).points.tolist() == schema.read([plain]).points.tolist()
    with pytest.raises(EventError, match="is NaN"):
        schema.read({"n": np.array(np.nan)})
