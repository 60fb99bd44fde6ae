"""Values of many types, through the library, the client, the doors of HTTP, and ``rtfilter publish``."""

import base64
import io
import json
import urllib.error
import urllib.request
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from real_server import RealServer

from rtfilter import EventError, EventFilter, Schema
from rtfilter.cli import FAILED, main
from rtfilter.client import ClientError, connect_plain

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
ID = UUID("05de60fe-2320-4112-9f85-afe018c070bd")
TYPES = {"n": "int", "x": "float", "s": "str", "ok": "bool", "at": "timestamp"}

GOOD = [
    ("x", Decimal("9.5"), "x = 9.5"),
    ("n", Decimal(2**60 + 1), f"n = {2**60 + 1}"),
    ("n", Decimal(f"{2**60 + 1}.0"), f"n = {2**60 + 1}"),
    ("n", 10**37 + 1, f"n > {10**37} AND n < {10**37 + 2}"),
    ("at", NOON, "at = '2024-05-31T12:00:00Z'"),
    ("at", pd.Timestamp("2024-05-31 12:00:00.000000001"), "at = '2024-05-31T12:00:00Z'"),
    ("at", pd.Timestamp("1969-12-31 23:59:59.999999999"), "at = '1969-12-31T23:59:59.999999Z'"),
    ("at", date(2024, 5, 31), "at = '2024-05-31'"),
    ("n", np.int64(7), "n = 7"),
    ("x", np.float32(0.5), "x = 0.5"),
    ("ok", np.True_, "ok = TRUE"),
    ("s", np.str_("ab"), "s = 'ab'"),
    ("at", np.datetime64("2024-05-31T12:00:00.000000001"), "at = '2024-05-31T12:00:00Z'"),
    ("n", [1, 7], "n = 7"),
    ("n", np.array([1, 7]), "n = 7"),
    ("x", None, "x IS NULL"),
    ("at", pd.NaT, "at IS NULL"),
    ("s", ID, f"s = '{ID}'"),
]
COLUMNS = [
    ("x", pa.array([Decimal("9.5")]), "x = 9.5"),
    ("n", pa.array([Decimal(10**37 + 1)], pa.decimal128(38)), f"n > {10**37} AND n < {10**37 + 2}"),
    ("n", pa.array([2**64 - 1], pa.uint64()), f"n = {2**64 - 1}"),
    ("x", pa.array([0.5], pa.float16()), "x = 0.5"),
    ("at", pa.array([NOON], pa.timestamp("ns", "UTC")), "at = '2024-05-31T12:00:00Z'"),
    ("at", pa.array([-1], pa.timestamp("ns")), "at = '1969-12-31T23:59:59.999999Z'"),
    ("at", pa.array([date(2024, 5, 31)]), "at = '2024-05-31'"),
    ("s", pa.array(["ab"]).dictionary_encode(), "s = 'ab'"),
    ("s", pa.array(["ab"], pa.large_string()), "s = 'ab'"),
    ("n", pa.array([[1, 7]]), "n = 7"),
    ("s", pa.array([None]), "s IS NULL"),
    ("s", pa.array([ID.bytes], pa.uuid()), f"s = '{ID}'"),
]
NO_JSON = [
    {1, 7},
    b"ab",
    time(12),
    timedelta(1),
    np.timedelta64(1, "s"),
    float("nan"),
    Decimal("NaN"),
    np.float64("inf"),
]
NO_COLUMN = [pa.array([b"ab"]), pa.array([time(12)]), pa.array([timedelta(1)])]
NO_COLUMN += [pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))]


def names(table):
    return [f"{one[0]}-{i}" for i, one in enumerate(table)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("values"), "--schema", json.dumps(TYPES))
    yield server
    server.kill()


@pytest.fixture
def client(server):
    with connect_plain(server.url, user="ann") as client:
        yield client


def ask(server, path, kind, body):
    """What a door of HTTP answers."""
    headers = {"Authorization": "Basic " + base64.b64encode(b"ann:").decode(), "Content-Type": kind}
    url = f"http://localhost:{server.port}/filters/default/{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def stream(table):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def missed(client, conditions, publish):
    """Those of some conditions that do not match their own event, of all that `publish` publishes."""
    ids = {client.subscribe(where): where for where in conditions}
    publish()
    end = client.subscribe("s = 'the end'")
    client.publish({"s": "the end"})
    wanted, seen = set(ids), set()
    for delivery in client.deliveries(timeout=20):
        for event in delivery.events:
            seen.update(event.subscriptions)
        if end in seen:
            break
    client.stop()
    for id in (*ids, end):
        client.unsubscribe(id)
    return [ids[id] for id in wanted - seen]


def taken(where, events):
    filter = EventFilter(Schema.from_json(TYPES))
    filter.subscribe(where)
    return [len(ids) for ids in filter.match_batch(events)]


@pytest.mark.parametrize(("name", "value", "where"), GOOD, ids=names(GOOD))
def test_the_library_reads_a_value(name, value, where):
    assert taken(where, [{name: value}]) == [1]


@pytest.mark.parametrize("value", NO_JSON, ids=str)
def test_the_library_refuses_what_the_client_refuses(value):
    for name in TYPES:
        with pytest.raises(EventError, match=f"event 0: attribute '{name}' is "):
            taken("x > 0", [{name: value}])


@pytest.mark.parametrize("column", NO_COLUMN, ids=lambda column: str(column.type))
def test_the_library_refuses_columns_that_the_commands_refuse(column):
    for name in TYPES:
        with pytest.raises(EventError, match=rf"attribute '{name}' is .* which no event has"):
            taken("x > 0", pa.table({name: column}))


@pytest.mark.parametrize(("name", "column", "where"), COLUMNS, ids=names(COLUMNS))
def test_the_library_reads_a_column(name, column, where):
    assert taken(where, pa.table({name: column})) == [1]


@pytest.mark.slow
def test_the_client_sends_what_the_library_reads(client):
    def publish():
        for name, value, _ in GOOD:
            client.publish([{name: value}])

    assert missed(client, [where for *_, where in GOOD], publish) == []


@pytest.mark.slow
def test_the_doors_of_arrow_read_what_the_library_reads(server, client):
    def publish():
        for name, column, _ in COLUMNS:
            answer = ask(
                server, "events", "application/vnd.apache.arrow.stream", stream(pa.table({name: column}))
            )
            assert answer[0] == 202, answer

    assert missed(client, [where for *_, where in COLUMNS], publish) == []


@pytest.mark.slow
def test_publish_and_match_read_what_the_library_reads(server, client, tmp_path, capsys):
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(TYPES))

    def publish():
        for at, (name, column, where) in enumerate(COLUMNS):
            path, rules = tmp_path / f"{at}.parquet", tmp_path / f"{at}.jsonl"
            if not pa.types.is_float16(column.type):  # Parquet of old has none
                pq.write_table(pa.table({name: column}), path)
                rules.write_text(json.dumps(where))
                assert main(["publish", str(path), "--user", "ann", "--url", server.url]) == 0
                capsys.readouterr()
                assert main(["match", str(rules), str(path), "--schema", str(schema)]) == 0
                assert capsys.readouterr().out.split() == ["event,subscription", "0,0"], where

    assert missed(client, [where for *_, where in COLUMNS if "0.5" not in where], publish) == []


@pytest.mark.slow
def test_a_file_of_pandas_is_published(server, client, tmp_path):
    frame = pd.DataFrame({"at": pd.to_datetime(["2024-05-31 12:00", None]), "s": ["ab", "cd"]})
    frame.to_parquet(tmp_path / "frame.parquet")

    def publish():
        assert main(["publish", str(tmp_path / "frame.parquet"), "--user", "ann", "--url", server.url]) == 0

    conditions = ["at = '2024-05-31T12:00:00Z' AND s = 'ab'", "at IS NULL AND s = 'cd'"]
    assert missed(client, conditions, publish) == []


@pytest.mark.slow
@pytest.mark.parametrize("value", NO_JSON, ids=lambda value: type(value).__name__)
def test_the_client_refuses_what_json_cannot_say(client, value):
    with pytest.raises(ClientError, match=r"^events\[1\]\.x is "):
        client.publish([{"x": 1}, {"x": value}])
    with pytest.raises(ClientError, match=r"^event\.x\[1\] is "):
        client.publish({"x": [1, value]})


@pytest.mark.slow
@pytest.mark.parametrize("column", NO_COLUMN, ids=lambda column: str(column.type))
def test_columns_that_no_event_has_are_refused(server, tmp_path, capsys, column):
    table = pa.table({"s": column})
    status, answer = ask(server, "events", "application/vnd.apache.arrow.stream", stream(table))
    assert (status, "'s'" in answer["detail"]) == (415, True)
    if pa.types.is_duration(column.type):
        return  # Parquet has none
    path, rules = tmp_path / "s.parquet", tmp_path / "rules.jsonl"
    pq.write_table(table, path)
    rules.write_text('"s = 1"')
    (tmp_path / "schema.json").write_text(json.dumps(TYPES))
    assert main(["publish", str(path), "--user", "ann", "--url", server.url]) == FAILED
    assert f"{path}: attribute 's' is a column of the type {str(column.type)[:3]}" in capsys.readouterr().err
    rules.write_text("\"s = 'x'\"")
    assert main(["match", str(rules), str(path), "--schema", str(tmp_path / "schema.json")]) == FAILED
    assert f"{path}: attribute 's' is a column of the type {str(column.type)[:3]}" in capsys.readouterr().err
