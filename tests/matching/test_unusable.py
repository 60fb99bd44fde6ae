"""Of a batch with events that cannot be used, the others match as they do without them."""

import json
import logging

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinds import EACH
from oracle import as_sets
from rtfilter import BadEvent, EventError, EventFilter, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.filter import inside
from rtfilter.matchers.port import Takes
from rtfilter.matchers.rtree import RTreeMatcher
from rtfilter.watch.metrics import Metrics

SCHEMA = Schema({"n": {"type": "int", "low": 0, "high": 99}, "m": {"type": "float", "low": 0}, "tags": str})
RULES = [
    "n > 5",
    "n = 3 OR m < 2",
    "m IS NULL",
    "NOT (m > 1)",
    "n IS NULL AND m IS NULL",
    "tags = 'a' AND n > m",
    "tags LIKE '%c'",
    {"tags": [{"exists": False}]},
]
NUMBERS = Schema({name: SCHEMA.attributes[name] for name in ("n", "m")})
numbers = st.integers(0, 9) | st.none()
tags = st.sampled_from(["a", "bc", None]) | st.lists(st.sampled_from(["a", "bc"]), max_size=3)
good = st.fixed_dictionaries({"n": numbers, "m": numbers, "tags": tags})
bad = st.fixed_dictionaries({"n": st.sampled_from([-1, 100]), "m": numbers, "tags": tags})
bad |= st.fixed_dictionaries({"n": numbers, "m": st.just(-2), "tags": tags})
batches = st.lists(good | bad, max_size=12)
COLUMNS = pa.schema({"n": pa.int64(), "m": pa.int64(), "tags": pa.string()})


def is_bad(event) -> bool:
    return any(event[name] is not None and not 0 <= event[name] <= 99 for name in ("n", "m"))


def flat(batch: list[dict]) -> list[dict]:
    """The events without lists, which some forms do not take."""
    return [event | {"tags": None if isinstance(event["tags"], list) else event["tags"]} for event in batch]


def cells(event: dict) -> tuple:
    return tuple(event[name] for name in SCHEMA.names)


def lines(batch: list[dict]) -> str:
    return "\n".join(map(json.dumps, batch))


def masked(batch: list[dict]) -> np.ma.MaskedArray:
    values = np.array([[event["n"], event["m"]] for event in batch], object).reshape(-1, 2)
    missing = values == None  # noqa: E711
    return np.ma.array(np.where(missing, 0, values).astype(np.int64), mask=missing)


FORMS = {
    "dicts": lambda batch: batch,
    "tuple of dicts": tuple,
    "rows": lambda batch: [cells(event) for event in batch],
    "lines": lines,
    "bytes of lines": lambda batch: lines(batch).encode(),
    "array": lambda batch: json.dumps(batch, indent=1),
    "texts": lambda batch: [json.dumps(event) for event in batch],
    "objects": lambda batch: np.array([cells(event) for event in flat(batch)], object).reshape(-1, 3),
    "masked array": masked,
    "pandas": lambda batch: pd.DataFrame(batch, columns=COLUMNS.names).astype({"n": "Int64", "m": "Int64"}),
    "Arrow": lambda batch: pa.Table.from_pylist(flat(batch), COLUMNS),
    "record batch": lambda batch: pa.RecordBatch.from_pylist(flat(batch), COLUMNS),
    "stream": lambda batch: pa.Table.from_pylist(flat(batch), COLUMNS).to_reader(max_chunksize=2),
}
FLAT = ("objects", "Arrow", "record batch", "stream")


def filled(schema=SCHEMA, **options) -> EventFilter:
    filter = EventFilter(schema, **options)
    filter.subscribe_many(RULES if schema is SCHEMA else RULES[:5])
    return filter


def wanted_of(filter, batch) -> list[set[int]]:
    """What one event after the other matches; nothing, if it cannot be used."""
    return [set() if is_bad(event) else as_sets([filter.match(event)])[0] for event in batch]


@pytest.mark.parametrize("form", FORMS)
@given(batch=batches, group=st.sampled_from([None, 1, 3]))
@example(batch=[{"n": -1, "m": None, "tags": None}], group=1)
@example(batch=[{"n": -1, "m": 1, "tags": ["a"]}, {"n": 7, "m": 1, "tags": ["a", "bc"]}], group=1)
def test_others_match_as_without_them(form, batch, group):
    schema = NUMBERS if form == "masked array" else SCHEMA
    filter = filled(schema, controller=FixedPlan(0, group), matcher="rtree")
    batch = flat(batch) if form in FLAT else batch
    wanted = wanted_of(filter, batch)
    found = []

    def ask(way, *on_error):
        found.clear()
        answer = way(FORMS[form](batch), on_error=on_error[0] if on_error else found.append)
        return answer

    rows = [row for row, event in enumerate(batch) if is_bad(event)]
    assert as_sets(ask(filter.match_batch)) == wanted
    assert [(one.row, one.error.row) for one in found] == [(row, row) for row in rows]
    assert all(str(one).startswith(f"event {one.row}: attribute ") for one in found)
    assert as_sets(ask(filter.stream).matches()) == wanted
    assert [one.row for one in found] == rows
    assert as_sets(ask(filter.match_batch, "skip")) == wanted
    if rows:
        for way in (filter.match_batch, filter.stream):
            with pytest.raises(EventError) as caught:
                way(FORMS[form](batch))
            assert caught.value.row in rows


@pytest.mark.parametrize("matcher", EACH)
@pytest.mark.parametrize("batch", [[{"n": -1}] * 2, [{"n": -1}, {"n": 7, "tags": ["a", "bc"]}, {"m": -1}]])
def test_every_matcher_finds_nothing_for_them(matcher, batch):
    filter = EventFilter(SCHEMA, matcher=matcher, controller=FixedPlan(0, 1))
    filter.subscribe_many(RULES)
    wanted = [as_sets([filter.match(event)])[0] if event.get("n") == 7 else set() for event in batch]
    assert as_sets(filter.match_batch(batch, on_error="skip")) == wanted
    assert as_sets(filter.stream(batch, on_error="skip").matches()) == wanted
    assert filter.match_batch(batch, on_error="skip").any.tolist() == [bool(ids) for ids in wanted]


MANY = list(map(str, range(1001)))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("batch", "bad"),
    [
        (
            [{"n": 7}, (7, 1, "a"), {"n": 7}, 5, b"{}", None],
            {1: "tuple", 3: "int", 4: "bytes", 5: "NoneType"},
        ),
        ([(7, 1, "a"), (7, 1), [7, 1, "a"]], {1: "this row has 2 values"}),
        ([(7, 1, "a"), (7, 1), {"n": 7}], {0: "tuple", 1: "tuple"}),
        (
            [b'{"n": 7}', {"n": 7}, '{"n": }', "[7]", b'{"n": 7}\n', b"\xff"],
            {1: "dict", 2: "JSON", 3: "[7]", 5: ""},
        ),
        ('{"n": 7}\n{"n": \n\n7\n{"n": 7}', {1: "this is not JSON", 2: "an event is a JSON object, not 7"}),
        (b'[{"n": 7}, 7, {"n": -1}, [], {"n": 7}]', {1: "not 7", 2: "-1", 3: "not []"}),
        (b"nothing", {0: "this is not JSON"}),
        ([{"tags": MANY}, {"tags": MANY[1:]}], {0: "1,001 choices"}),
        ([{"n": float("nan")}, {"n": {7}}, {"n": 7}], {0: "NaN", 1: "set"}),
    ],
)
def test_each_is_reported_with_its_row_and_its_error(batch, bad, strict):
    filter = EventFilter(Schema(SCHEMA.attributes, strict=strict))
    filter.subscribe_many([*RULES, "tags IS NULL OR tags IS NOT NULL"])
    found: list[BadEvent] = []
    counts = filter.match_batch(batch, on_error=found.append).counts
    assert [one.row for one in found] == list(bad) == np.flatnonzero(counts == 0).tolist()
    for one, text in zip(found, bad.values(), strict=True):
        assert str(one).startswith(f"event {one.row}: ")
        assert text in one.reason
        assert one.reason == one.error.message
        assert one.attribute == one.error.attribute
        assert not isinstance(batch, list) or one.event is batch[one.row]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ('[{"n": 7}, {"n": }]', "no JSON array"),
        (np.zeros((2, 5)), "expected an array of shape"),
        (pd.DataFrame({"o": [1, 2]}), "none of the attributes"),
        ({"n": 7}, "for a single event use match"),
        (5, "cannot read events from int"),
    ],
)
def test_an_error_of_the_whole_batch_is_raised(batch, message):
    filter = EventFilter(SCHEMA, metrics=Metrics())
    with pytest.raises(EventError, match=message):
        filter.match_batch(batch, on_error="skip")


class Complete(RTreeMatcher):
    """Takes no event that lacks an attribute."""

    takes = Takes(missing=False)


def test_events_without_an_attribute_are_left_out_where_the_matcher_needs_all():
    filter = EventFilter(NUMBERS, matcher=Complete)
    filter.subscribe("n = 1")
    found = []
    assert filter.match_batch([{"n": 1}, {"n": 1, "m": 1}], on_error=found.append).counts.tolist() == [0, 1]
    assert "needs all attributes" in found[0].reason
    table = NUMBERS.read([{"n": 1}, {"n": 1, "m": 1}])
    assert filter.match_batch(table, on_error="skip").counts.tolist() == [0, 1]


def test_their_number_is_logged_and_counted(caplog):
    filter = EventFilter(SCHEMA, metrics=Metrics())
    batch = [{"n": -1}, {"n": 1}, {"n": 100}, {"n": "x"}]
    with caplog.at_level(logging.WARNING, "rtfilter"):
        filter.match_batch(batch, on_error="skip")
    told, odd = (record.getMessage() for record in caplog.records)
    assert told.startswith("2 of 4 events cannot be used")
    assert told.endswith("The first: event 0: attribute 'n' is -1, outside its domain [0, 99]")
    assert "event 3" in odd or "'x'" in odd
    assert inside(filter).metrics.refused_events == 2
    caplog.clear()
    assert filter.match_batch(batch[1:2], on_error="skip").counts.tolist() == [0]
    assert not caplog.records


def test_oddities_keep_their_rows():
    table = filled()._road.reader.many([{"n": -1}, {"n": 1}, {"n": "x"}], on_error="skip")
    assert [one.row for one in table.odd] == [2]
    assert [table.row(row) for row in range(3)] == [{}, {"n": 1}, {"n": "x"}]
    assert table.values("n") == [None, 1, "x"]


def test_an_error_of_the_callable_refuses_the_batch():
    def refuse(one):
        raise one.error

    filter = filled()
    with pytest.raises(EventError, match="event 1: "):
        filter.match_batch([{"n": 1}, {"n": -1}], on_error=refuse)
    with pytest.raises(ValueError, match='on_error is "raise", "skip" or a function'):
        filter.match_batch([{"n": 1}], on_error=None)


@pytest.mark.parametrize("bad", [[], [{"n": -1}]])
@pytest.mark.parametrize("form", ["dicts", "texts", "lines"])
def test_what_is_asked_for_may_grow_after_events_are_read(form, bad):
    filter = EventFilter(SCHEMA)
    filter.subscribe("n > 0")
    batch = [*bad, {"n": 1, "tags": ["a", "b"]}, {"n": 1, "tags": MANY}]
    reader = filter._road.reader
    table = reader.many(FORMS[form](batch), on_error="skip")
    assert table.read is not None
    filter.subscribe("tags = 'b'")
    for answer in (filter.match_batch(table), filter.stream(table).matches()):
        assert as_sets(answer) == [*(set() for _ in bad), {0, 1}, set()]
