"""Each value means the same at every door: library, frames, HTTP, WebSocket, TCP, command, Arrow, Spark."""

import csv
import datetime as dt
import io
import json
from unicodedata import normalize

import pyarrow as pa
import pytest
from doors import Http, Socket, Tcp
from real_server import RealServer

from rtfilter import EventFilter, Schema
from rtfilter.basics.errors import EventError
from rtfilter.cli import main

pytestmark = pytest.mark.slow
SIZE = normalize("NFC", "größe")
TYPES = {"n": "float", "i": "int", "s": "str", "b": "bool", "t": "timestamp", "a.b": "int", SIZE: "int"}
NOON = "t = TIMESTAMP '2024-05-31T12:00:00Z'"
CONDITIONS = [
    "n = 5", "i = 9007199254740993", "i = 9007199254740992", "s = '94107'", "s = 'a'", "s = 'b'",
    "b", "b = FALSE", NOON, '"a.b" = 1', f"{SIZE} = 7", "n IS NOT NULL", "s IS NULL",
]  # fmt: skip
RULES = [
    # An event, the conditions that hold besides the last two, and whether something is odd.
    ({"n": 5}, {"n = 5"}, False),
    ({"n": 5.0}, {"n = 5"}, False),
    ({"n": "5"}, set(), True),
    ({"n": True}, set(), True),
    ({"n": None}, set(), False),
    ({"N": 5}, set(), True),
    ({"other": 5}, set(), False),
    ({"i": 9007199254740993}, {"i = 9007199254740993"}, False),
    ({"i": 9007199254740992}, {"i = 9007199254740992"}, False),
    ({"s": "94107"}, {"s = '94107'"}, False),
    ({"s": 94107}, set(), True),
    ({"s": ["a", "b"]}, {"s = 'a'", "s = 'b'"}, False),
    ({"s": []}, set(), False),
    ({"s": ["a", None]}, {"s = 'a'"}, False),
    ({"b": True}, {"b"}, False),
    ({"b": False}, {"b = FALSE"}, False),
    ({"b": 1}, set(), True),
    ({"t": "2024-05-31T12:00:00Z"}, {NOON}, False),
    ({"t": "2024-05-31t14:00:00+02:00"}, {NOON}, False),
    ({"t": "2024-05-31 12:00:00"}, {NOON}, False),
    ({"t": "2024-05-31T24:00:00Z"}, set(), True),
    ({"t": "2016-12-31T23:59:60Z"}, set(), True),
    ({"t": "2024-152"}, set(), True),
    ({"t": 1717156800}, set(), True),
    ({"a": {"b": 1}}, {'"a.b" = 1'}, False),
    ({"a": [{"b": 1}, {"b": 2}]}, {'"a.b" = 1'}, False),
    ({"a": {"c": 1}}, set(), False),
    ({"a": 1}, set(), False),
    ({normalize("NFD", SIZE): 7}, {f"{SIZE} = 7"}, False),
]


def expected(event, matched):
    """With what holds of all events."""
    more = {"n IS NOT NULL"} if event.get("n") is not None else set()
    lacks = event.get("s") is None or event["s"] == []
    return matched | more | ({"s IS NULL"} if lacks else set())


@pytest.fixture(scope="module")
def filter():
    made = EventFilter(Schema(TYPES))
    made.subscribe_many(CONDITIONS)
    return made


def names(ids):
    return {CONDITIONS[id] for id in ids}


def test_the_library_takes_it_alone_and_among_others(filter):
    for event, matched, odd in RULES:
        found = filter.schema.read([{"n": 1, "s": "x"}, event])
        assert names(filter.match(event)) == expected(event, matched), event
        assert names(filter.match_batch(found)[1]) == expected(event, matched), event
        assert bool(found.odd) is odd is bool(filter.schema.read(event).odd), event


def test_arrow_tables_take_it(filter):
    """They need a column that the schema has."""
    for event, matched, odd in RULES:
        found = filter.schema.read(pa.Table.from_pylist([{"i": 0} | event]))
        assert names(filter.match_batch(found)[0]) == expected(event, matched), event
        assert bool(found.odd) is odd, event


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = RealServer(tmp_path_factory.mktemp("values"), "--schema", json.dumps(TYPES))
    door = Http(server)
    server.ids = [door.ask("SUBSCRIBE", where=where)["subscription"] for where in CONDITIONS]
    yield server
    server.kill()


@pytest.mark.xdist_group("doors")  # one server for all
@pytest.mark.parametrize("made", [Http, Socket, Tcp])
def test_the_doors_of_a_server_take_it(server, made):
    door = made(server)
    for event, matched, odd in RULES:
        answer = door.ask("MATCH", event=event)
        (ids,) = answer["matches"]
        assert {CONDITIONS[server.ids.index(id)] for id in ids} == expected(event, matched), event
        assert ("hints" in answer) is odd, event
        assert ("hints" in door.ask("PUBLISH", event=event)) is odd, event
    if made is not Http:
        door.close()


def test_the_command_takes_it(tmp_path, capsys):
    (tmp_path / "subs.jsonl").write_text("\n".join(map(json.dumps, CONDITIONS)))
    (tmp_path / "events.jsonl").write_text("\n".join(json.dumps(event) for event, *_ in RULES))
    given = [str(tmp_path / name) for name in ("subs.jsonl", "events.jsonl")]
    assert main(["match", *given, "--schema", json.dumps(TYPES)]) == 0
    captured = capsys.readouterr()
    found = [set() for _ in RULES]
    for row in csv.DictReader(io.StringIO(captured.out)):
        found[int(row["event"])].add(int(row["subscription"]))
    assert [names(ids) for ids in found] == [expected(event, matched) for event, matched, _ in RULES]
    for line, (event, _, odd) in enumerate(RULES, 1):
        first = all(event.keys() != before.keys() for before, _, was in RULES[: line - 1] if was)
        assert (f"events.jsonl:{line}: " in captured.err) is (odd and first), event


KINDS = {int: "bigint", float: "double", str: "string", bool: "boolean"}


def test_spark_takes_it(spark, filter):
    """Columns have types there: those of another type are refused, and told what to do."""
    from rtfilter.spark import match_frame

    columns = ["n", "i", "s", "b", "t", "a", normalize("NFD", SIZE)]
    kinds = ["double", "bigint", "array<string>", "boolean", "string", "array<struct<b:bigint>>", "bigint"]
    rows, wanted, refused = [], [], 0
    for number, (event, matched, odd) in enumerate(RULES):
        ((name, value),) = event.items()
        if odd and name != "N" and type(value) in KINDS and name != "t":
            frame = spark.createDataFrame([(number, value)], f"id int, {name} {KINDS[type(value)]}")
            with pytest.raises(EventError, match="cast the column"):
                match_frame(frame, filter)
            refused += 1
        elif name in columns and not odd and (name != "a" or value not in (1, {"c": 1})):
            found = float(value) if name == "n" and value is not None else value
            listed = found if name not in ("s", "a") or isinstance(found, list) else [found]
            rows.append((number, *(listed if name == column else None for column in columns)))
            wanted += [(number, where) for where in expected(event, matched)]
    assert (len(rows), refused) == (17, 4)
    kinds = ", ".join(f"`{name}` {kind}" for name, kind in zip(columns, kinds, strict=True))
    found = match_frame(spark.createDataFrame(rows, f"id int, {kinds}").coalesce(1), filter).collect()
    assert sorted((row.id, CONDITIONS[row.subscription]) for row in found) == sorted(wanted)


def test_misspelt_columns_are_hinted_on_spark_and_strict_refuses_them(spark, caplog):
    from rtfilter.spark import match_frame

    frame = spark.createDataFrame([(1, 5.0, "A")], "id int, volage double, s string")
    for _ in range(2):
        lax = EventFilter(Schema({"voltage": "float", "s": "str"}))
        match_frame(frame, lax)
    told = [one.getMessage() for one in caplog.records if one.name == "rtfilter.events"]
    assert told == ["unknown attribute 'volage'; did you mean 'voltage'?"]
    with pytest.raises(EventError, match="unknown attribute 'volage'"):
        match_frame(frame, EventFilter(Schema({"voltage": "float", "s": "str"}, strict=True)))
    match_frame(frame.drop("volage"), EventFilter(Schema({"voltage": "float", "s": "str"}, strict=True)))


@pytest.mark.parametrize(
    "value", [b"a", {"a"}, dt.time(12), dt.timedelta(1), object()], ids=lambda one: type(one).__name__
)
def test_what_has_no_meaning_is_refused_with_its_place(filter, value):
    for events, row in (({"n": value}, 0), ([{"n": 1}, {"n": value}], 1)):
        with pytest.raises(EventError) as told:
            filter.schema.read(events)
        assert (told.value.row, told.value.attribute) == (row, "n")
