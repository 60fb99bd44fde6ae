"""The events of a message."""

import contextlib
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.basics.errors import EventError
from rtfilter.nats import event_messages
from rtfilter.nats.event_messages import events_of

VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.text('ab}{[]\n,:"', max_size=5)
EVENTS = st.dictionaries(st.text("ab\n}", min_size=1, max_size=3), VALUES, max_size=3)


def arrow(rows, **options):
    table = pa.Table.from_pylist(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


@given(EVENTS, st.sampled_from([None, 2]), st.sampled_from(["", " ", "\n"]))
def test_one_object(event, indent, around):
    text = json.dumps(event, indent=indent)
    (found,) = events_of(f"{around}{text}{around}".encode())
    assert json.loads(found) == event


@given(st.lists(EVENTS, min_size=2, max_size=5), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_lines(events, end):
    found = events_of(end.join(map(json.dumps, events)).encode())
    assert [json.loads(one) for one in found] == events


@given(st.lists(EVENTS, max_size=5), st.sampled_from([None, 2]))
def test_an_array(events, indent):
    found = events_of(json.dumps(events, indent=indent).encode())
    assert [json.loads(one) for one in found] == events


def test_arrow():
    rows = [{"price": 1.5, "symbol": "A", "tags": ["x"]}, {"price": None, "symbol": "B", "tags": []}] * 150
    assert [json.loads(one) for one in events_of(arrow(rows))] == rows


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b" \n ", "empty"),
        (b"[1, 2", "not JSON"),
        (b"[{}, {]", "not JSON"),
        (b"\xff\xff\xff\xff", "Arrow"),
        (b"\xff\xff\xff\xff\x00\x01\x02\x03abc", "Arrow"),
        (arrow([{"x": 1}] * 9, compression="lz4"), "compressed"),
    ],
)
def test_a_message_without_events_is_refused(data, why):
    with pytest.raises(EventError, match=why):
        events_of(data)


@given(st.data())
def test_damaged_arrow_is_events_or_refused(data):
    body = bytearray(arrow([{"x": 1.5, "s": "abc"}, {"x": None, "s": "d"}]))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(4, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(EventError):
        assert all(isinstance(one, bytes) for one in events_of(bytes(body)))


def test_the_number_of_events_is_limited(monkeypatch):
    monkeypatch.setattr(event_messages, "MOST", 3)
    for data in (b"[1,2,3,4]", b"{}\n{}\n{}\n{}", arrow([{"x": 1}] * 4)):
        with pytest.raises(EventError, match="3 events"):
            events_of(data)
    monkeypatch.setattr(event_messages, "MOST_BYTES", 10)
    with pytest.raises(EventError, match="too much"):
        events_of(arrow([{"x": 123456}]))
