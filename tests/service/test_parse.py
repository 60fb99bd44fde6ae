"""Bytes, objects and columns become the same events."""

import json
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter import EventError, EventFilter, Schema
from rtfilter.service.parse import Listed, Parse, parts

pa = pytest.importorskip("pyarrow")
SCHEMA = Schema({"price": float, "count": int, "symbol": str, "hot": bool})
KINDS = {
    pa.float64(): st.floats(),
    pa.float16(): st.floats(width=16).map(np.float16),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.large_string(): st.text(max_size=3),
    pa.timestamp("us"): st.just(1_700_000_000_000_000),
    pa.list_(pa.int8()): st.lists(st.integers(0, 3), max_size=2),
}
CONDITIONS = (
    """
price > 0; price IS NULL; price IS NOT NULL; price = 3; count >= 9007199254740993; count < 0; count IS NULL
symbol = 'a'; symbol LIKE 'a%'; symbol IS NOT NULL; symbol < 'b'; hot = TRUE; hot = FALSE; hot IS NULL
""".strip()
    .replace("\n", "; ")
    .split("; ")
)


@st.composite
def tables(draw):
    count = draw(st.integers(0, 4))
    names = draw(st.lists(st.sampled_from(["price", "count", "symbol", "hot", "other"]), max_size=6))
    columns = []
    for _ in names:
        kind = draw(st.sampled_from(list(KINDS)))
        values = draw(st.lists(st.none() | KINDS[kind], min_size=count, max_size=count))
        columns.append(pa.array(values, kind))
    return pa.Table.from_arrays(columns, names)


@pytest.fixture(scope="module")
def filter():
    made = EventFilter(SCHEMA)
    made.subscribe_many(CONDITIONS)
    return made


def found(filter, read):
    """What the events match; or the row that is wrong, and with which attribute."""
    try:
        return [sorted(ids.tolist()) for ids in filter.match_batch(read().table)]
    except EventError as error:
        return error.row, error.attribute


@pytest.mark.slow
@given(table=tables())
def test_columns_are_read_as_their_rows(filter, table):
    parse = Parse(SCHEMA)
    if len(set(table.column_names)) == table.num_columns:
        rows = found(filter, lambda: parse.objects(table.to_pylist(), stored=False))
        assert found(filter, lambda: parse.columns(table) or parse.objects(table.to_pylist())) == rows
    else:
        assert parse.columns(table) is None


def test_columns_are_read_where_they_are_plain():
    plain = pa.table({"price": [1.5, None], "symbol": ["a", "b"], "else": [[1], None]})
    assert len(Parse(SCHEMA).columns(plain).table) == 2


def test_lines_are_read_alike_to_be_stored_and_to_be_matched(filter):
    parse = Parse(SCHEMA)
    lines = b'{"price": 3, "symbol": "a"}\n\n{"count": 9007199254740993}\n{}\n'
    assert parse.lines(lines).bodies == [line for line in lines.split(b"\n") if line]
    matched = [sorted(ids.tolist()) for ids in filter.match_batch(parse.lines(lines, stored=False).table)]
    decoded = [json.loads(line) for line in lines.split(b"\n") if line]
    assert matched == [sorted(ids.tolist()) for ids in filter.match_batch(decoded)]


@pytest.mark.parametrize(
    "bad", [b"{", b"[1]", b'{"price": NaN}', b'{"price": 1e999}', b'"\xff"', b"[" * 10_000]
)
def test_the_row_that_is_wrong_is_told(bad):
    parse = Parse(SCHEMA)
    for read in (parse.lines, partial(parse.lines, stored=False)):
        with pytest.raises(EventError) as told:
            read(b"{}\n" + bad + b"\n{}")
        assert told.value.row == 1
    for read in (parse.one, partial(parse.one, stored=False)):
        with pytest.raises(EventError) as told:
            read(bad)
        assert told.value.row is None


def test_no_event_is_longer_than_its_delivery_may_be():
    parse = Parse(SCHEMA, most=40)
    short, long = {"symbol": "abc"}, {"symbol": "x" * 40}
    for read, row in [
        (lambda: parse.one(json.dumps(long).encode()), None),
        (lambda: parse.objects([long], lone=True), None),
        (lambda: parse.objects([short, long]), 1),
        (lambda: parse.lines(b"\n".join(json.dumps(one).encode() for one in [long, short])), 0),
    ]:
        with pytest.raises(
            EventError, match="an event has at most 40 bytes as JSON, and this one has"
        ) as error:
            read()
        assert error.value.row == row
    assert parse.objects([long], stored=False)  # what is matched only is not delivered


def test_events_with_lists_are_read_in_parts(monkeypatch):
    """Their choices would take much memory."""
    monkeypatch.setattr("rtfilter.service.parse.LISTED", 2)
    parse, filter = Parse(SCHEMA), EventFilter(SCHEMA)
    filter.subscribe("price = 3", 7)
    rows = [{"price": [row, 9], "symbl": "a"} if row % 2 else {"price": row} for row in range(7)]
    lines = b"\n".join(json.dumps(row).encode() for row in rows)
    table = parse.lines(lines, stored=False).table
    assert isinstance(table, Listed)
    found = [filter.match_batch(table.rows(range(first, min(first + 2, 7)))) for first in range(0, 7, 2)]
    assert [ids.tolist() for part in found for ids in part] == [[7] if row == 3 else [] for row in range(7)]
    whole = SCHEMA.read(rows).odd
    assert [(one.name, one.row, one.events) for one in table.odd] == [
        (one.name, one.row, one.events) for one in whole
    ]
    assert parse.lines(lines).bodies == lines.split(b"\n")
    rows[5]["price"] = [1e400]
    with pytest.raises(EventError) as refused:
        parse.objects(rows)
    assert (refused.value.row, str(refused.value)[:8]) == (5, "event 5:")


def test_stored_events_that_may_have_lists_are_matched_few_at_once():
    plain, listed = b'{"price": 1}', b'{"price": [1, 2]}'
    assert parts([]) == [(0, 0)]
    assert parts([plain] * 40) == [(0, 40)]
    assert parts([listed] * 16) == [(0, 16)]
    assert parts([plain] * 39 + [listed]) == [(0, 16), (16, 32), (32, 40)]
