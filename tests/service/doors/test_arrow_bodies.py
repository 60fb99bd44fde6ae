"""Streams of Arrow's, good and bad."""

import io
import struct
from datetime import UTC, datetime

import pytest

from rtfilter.basics.errors import EventError
from rtfilter.service.doors import arrow
from rtfilter.service.doors.problems import MediaTypeError
from rtfilter.service.service_errors import TooLargeError

pa = pytest.importorskip("pyarrow")
KIND = "application/vnd.apache.arrow.stream"


def stream(table, **options):
    found = io.BytesIO()
    with pa.ipc.new_stream(found, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=2)
    return found.getvalue()


def test_rows_are_events():
    at = datetime(2024, 5, 31, 12, tzinfo=UTC)
    table = pa.table(
        {
            "price": [1.5, None, 3.0],
            "at": pa.array([at] * 3, pa.timestamp("ns", "UTC")),
            "tags": [["a"], [], None],
            "inner": [{"x": 1}, {"x": 2}, None],
            "symbol": pa.array(["a", "b", "a"]).dictionary_encode(),
        }
    )
    found = arrow.rows(arrow.table(stream(table), 3))
    assert found[0] == {"price": 1.5, "at": at, "tags": ["a"], "inner": {"x": 1}, "symbol": "a"}
    assert [row["price"] for row in found] == [1.5, None, 3.0]


def test_they_are_published(server):
    answer = server.ask("POST", "/filters/default/events", stream(pa.table({"price": [1, 2]})), kind=KIND)
    assert (answer.status, len(answer.body["positions"])) == (202, 2)
    answer = server.ask(
        "POST", "/filters/default/events", stream(pa.table({"price": [1, float("nan")]})), kind=KIND
    )
    assert (answer.status, answer.body["type"], answer.body["row"]) == (422, "/problems/event", 1)


def test_matches_come_as_a_stream_where_that_is_asked_for(server):
    wish = {"where": "price > 5"}
    id = server.ask("POST", "/filters/default/subscriptions", wish, user="ann").body["subscription"]
    asked = stream(pa.table({"price": [1, 9, 7]}))
    for accept in ("*/*", "application/json", "text/html, */*;q=0.1"):
        answer = server.ask("POST", "/filters/default/match", asked, kind=KIND, user="ann", accept=accept)
        assert answer.body == {"matches": [[], [id], [id]]}
    for accept in (KIND, f"application/json;q=0.5, {KIND.upper()};q=1"):
        answer = server.ask("POST", "/filters/default/match", asked, kind=KIND, user="ann", accept=accept)
        assert answer.headers["content-type"] == KIND
        with pa.ipc.open_stream(answer.bytes) as found:
            assert found.read_all().to_pydict() == {"matches": [[], [id], [id]]}


@pytest.mark.parametrize("accepted", [KIND, "application/json"])
def test_many_matches_are_looked_up_and_written_in_parts(server, monkeypatch, accepted):
    where, user = {"where": "symbol = 'parts'"}, f"for {accepted}"
    made = [server.ask("POST", "/filters/default/subscriptions", where, user=user).body for _ in range(3)]
    server.settle()
    wanted = [sorted(one["subscription"] for one in made) if row % 2 else [] for row in range(20)]
    lines = b"".join(b'{"symbol": "%s"}\n' % (b"parts" if ids else b"none") for ids in wanted)
    monkeypatch.setattr("rtfilter.service.asking.MOST_MATCHES", 6)
    monkeypatch.setattr("rtfilter.service.doors.streamed.PART", 10)
    index, looked_up = server.pipeline.filters._indexes["default"], []
    plain = index.look_up
    monkeypatch.setattr(index, "look_up", lambda events: looked_up.append(len(events)) or plain(events))
    answer = server.ask(
        "POST", "/filters/default/match", lines, user=user, kind="application/x-ndjson", Accept=accepted
    )
    if accepted == KIND:
        with pa.ipc.open_stream(answer.bytes) as found:
            matches = found.read_all().to_pydict()["matches"]
    else:
        matches = answer.body["matches"]
    assert [sorted(one) for one in matches] == wanted
    assert sum(looked_up) == 20
    assert max(looked_up) < 10


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("encoded", [False, True])
def test_nothing_compressed_is_unpacked(compression, encoded):
    column = pa.array(["x" * 1000] * 2)
    table = pa.table({"x": column.dictionary_encode() if encoded else column})
    with pytest.raises(MediaTypeError, match="without compression"):
        arrow.rows(arrow.table(stream(table, compression=compression), 10))


def test_what_takes_no_bytes_but_becomes_huge_is_refused(monkeypatch):
    for column in (
        pa.FixedSizeListArray.from_arrays(pa.nulls(4), 2),
        pa.array([[None]], pa.list_(pa.null())),
        pa.RunEndEncodedArray.from_arrays(pa.array([10], pa.int32()), pa.array(["x"])),
    ):
        with pytest.raises(MediaTypeError, match="leave it out"):
            arrow.rows(arrow.table(stream(pa.table({"x": column})), 100))
    with pytest.raises(TooLargeError, match="at most 3 events"):
        arrow.rows(arrow.table(stream(pa.table({"x": pa.nulls(4)})), 3))
    monkeypatch.setattr(arrow, "WIDEST", 1000)
    with pytest.raises(TooLargeError, match="values of a column"):
        arrow.rows(arrow.table(stream(pa.table({"x": pa.array(["x" * 600] * 2).dictionary_encode()})), 10))


def test_what_is_damaged_is_refused():
    good = stream(pa.table({"x": ["a", "b"], "y": [1.0, 2.0]}))
    for at in range(0, len(good), 7):
        for bad in (good[:at], good[:at] + b"\xff\xff\xff\x7f" + good[at + 4 :]):
            try:
                found = arrow.rows(arrow.table(bad, 100))
            except (EventError, MediaTypeError, TooLargeError):
                continue
            assert all(isinstance(row, dict) for row in found)


def test_without_pyarrow_it_is_said_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MediaTypeError, match="pip install"):
        arrow.table(b"", 1)


@pytest.mark.parametrize("nested", [False, True])
def test_long_names_are_not_repeated_in_many_rows(nested):
    name, rows = "x" * 10_000, 10_000  # 100 MB of JSON in 20 kB
    column = pa.array([True] * rows)
    if nested:
        column = pa.StructArray.from_arrays([column], [name])
    with pytest.raises(TooLargeError, match="names of the columns"):
        arrow.table(whole_stream(pa.table({"y" if nested else name: column})), rows)


def whole_stream(table):
    found = io.BytesIO()
    with pa.ipc.new_stream(found, table.schema) as writer:
        writer.write_table(table)
    return found.getvalue()


def test_a_time_zone_that_there_is_not_is_refused():
    table = pa.table({"at": pa.array([1], pa.timestamp("us", "Mars/Base"))})
    with pytest.raises(EventError, match="Mars/Base"):
        arrow.rows(table)


def test_a_time_zone_whose_name_is_no_text_is_refused():
    body = stream(pa.table({"at": pa.array([1], pa.timestamp("ns", "Mars/Base"))}))
    with pytest.raises(EventError, match="no stream of Arrow's"):
        arrow.table(body.replace(b"Mars", b"M\xee\x80s"), 10)


def test_a_batch_with_a_negative_number_of_rows_is_refused():
    empty = pa.array([{}] * 77, pa.struct([]))  # no column could show that the number is wrong
    body = stream(pa.Table.from_batches([pa.RecordBatch.from_struct_array(empty)]))
    damaged = body.replace(struct.pack("<q", 2), struct.pack("<q", -1))  # it has two rows a batch
    with pytest.raises(EventError, match="a batch has a negative number of rows"):
        arrow.table(damaged, 100)
