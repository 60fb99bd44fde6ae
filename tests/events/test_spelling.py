"""Names with accents, which Unicode writes in two ways: each is the other one, wherever names are read."""

from unicodedata import normalize

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from rtfilter import EventFilter, Schema
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate

NFC, NFD = (normalize(form, "größe") for form in ("NFC", "NFD"))
SPELLINGS = [(a, b) for a in (NFC, NFD) for b in (NFC, NFD)]
EVENTS = {
    "dict": lambda name: {name: 7},
    "dict with others": lambda name: {"other": 1, name: 7, "o\u0308": 3},
    "list": lambda name: [{name: 7}],
    "list in it": lambda name: {name: [1, 7]},
    "pandas": lambda name: pd.DataFrame({name: [7]}),
    "polars": lambda name: polars.DataFrame({name: [7]}),
    "arrow": lambda name: pa.table({name: [7]}),
    "batch": lambda name: pa.RecordBatch.from_pydict({name: [7]}),
}
CONDITIONS = {
    "sql": lambda name: f"{name} = 7",
    "quoted": lambda name: f'"{name}" BETWEEN 6 AND 8',
    "arithmetic": lambda name: f"{name} + 1 = 8",
    "pattern": lambda name: {name: [7]},
    "or": lambda name: {"$or": [{name: [7]}, {name: [9]}]},
    "constraint": lambda name: Predicate([Filter([Constraint(name, "=", 7)])]),
}


def matched(filter, events):
    return [len(ids) for ids in filter.match_batch(events if not isinstance(events, dict) else [events])]


@pytest.mark.parametrize("form", EVENTS)
@pytest.mark.parametrize(("schema", "event"), SPELLINGS)
def test_events_are_read_in_every_spelling(form, schema, event):
    filter = EventFilter(Schema({schema: int}))
    filter.subscribe(f"{NFC} = 7")
    assert matched(filter, EVENTS[form](event)) == [1]
    assert len(filter.match(EVENTS[form](event))) == 1 if form.startswith("dict") else True


@pytest.mark.parametrize("form", CONDITIONS)
@pytest.mark.parametrize(("schema", "condition"), SPELLINGS)
def test_predicates_are_read_in_every_spelling(form, schema, condition):
    filter = EventFilter(Schema({schema: int}))
    filter.subscribe(CONDITIONS[form](condition))
    assert matched(filter, {NFC: 7}) == [1]
    assert matched(filter, {NFC: 70}) == [0]


@pytest.mark.parametrize("name", [NFC, NFD])
def test_bounds_are_read_in_every_spelling(name):
    filter = EventFilter(Schema({NFC: int}))
    filter.subscribe_boxes({name: [1.0]}, {name: [8.0]})
    filter.subscribe_boxes(pd.DataFrame({name: [1.0]}), pa.table({name: [8.0]}))
    assert matched(filter, {NFC: 7}) == [2]
    with pytest.raises(PredicateError, match="two spellings"):
        filter.subscribe_boxes({NFC: [1.0], NFD: [1.0]}, {})


@pytest.mark.parametrize("name", [NFC, NFD])
def test_names_inside_objects_are_read_in_every_spelling(name):
    filter = EventFilter(Schema({f"{NFC}.{NFC}": int, f"a.{NFC}": int}))
    filter.subscribe(f"{NFC}.{NFC} = 7 AND a.{NFC} = 1")
    inside = {name: [{name: 7}, {name: 8}]}
    assert matched(filter, {**inside, "a": {name: 1}}) == [1]
    assert matched(filter, {f"{name}.{name}": 7, f"a.{name}": 1}) == [1]
    assert matched(filter, pa.Table.from_pylist([{name: {name: 7}, "a": {name: 1}}])) == [1]


def test_two_spellings_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two spellings of Unicode"):
        Schema({NFC: int, NFD: int})
    with pytest.raises(EventError, match=r"event 1: .* occurs twice, in two spellings"):
        Schema({NFC: int}).read([{NFC: 1}, {NFC: 1, NFD: 2}])


def test_values_keep_their_spelling():
    filter = EventFilter(Schema({NFC: str}))
    filter.subscribe(f"{NFC} = '{NFD}'")
    assert matched(filter, [{NFC: NFD}, {NFC: NFC}]) == [1, 0]


def test_a_name_that_is_known_is_not_looked_at():
    schema = Schema({NFC: float, "x": float})
    event = {NFC: 1.0, "x": 2.0}
    assert np.array_equal(schema.encode(event), [[1.0, 2.0]])
    assert schema.read(event)._rows.events[0] is event


@pytest.mark.parametrize(("attribute", "name"), SPELLINGS)
def test_a_predicate_alone_reads_every_spelling(attribute, name):
    schema = Schema({attribute: int, f"a.{attribute}": int})
    for condition, event in ((attribute, {name: 7}), (f"a.{attribute}", {"a": {name: 7}})):
        predicate = Predicate.parse(f"{condition} = 7", schema)
        unchecked = Predicate(predicate.filters)
        for one in (predicate, unchecked):
            assert one.matches(event)
            assert one.matches({key: [value] for key, value in event.items()})
