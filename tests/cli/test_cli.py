"""The command line: every command, every form of file, and every expected failure with its place."""

import csv
import errno
import gzip
import io
import json
import os
import random
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forks
from rtfilter import EventFilter, Schema
from rtfilter.basics.extras import install
from rtfilter.cli import main, match, spark_match
from rtfilter.cli.schemas import read_schema
from rtfilter.matching.filter_parts import KIND
from rtfilter.predicates.predicate import parse
from rtfilter.snapshots import arrays as snapshot

SCHEMA = {
    "symbol": "str",
    "price": "float",
    "size": {"type": "int", "low": 0, "high": 65535},
    "x.live": "bool",
}
CONDITIONS = [
    "symbol = 'ACME' AND price < 10",
    "price BETWEEN 5 AND 10 OR symbol LIKE 'longpref%'",
    "x.live = TRUE AND size >= 100",
    "symbol IS NULL",
    "size IN (1, 2, 3) AND NOT price > 8",
    "FALSE",
    "TRUE",
]


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """Run in a temporary directory, so that messages name files as they are given."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(directory):
    """Schema, conditions and events as JSON lines; returns the events, flat."""
    Path("schema.json").write_text(json.dumps(SCHEMA))
    write_lines("subs.jsonl", CONDITIONS)
    events = random_events(57)
    write_lines("events.jsonl", map(nested, events))
    return events


def write_lines(path, values):
    Path(path).write_text("".join(json.dumps(value) + "\n" for value in values))


def random_events(count):
    draw = random.Random(7)
    events = []
    for _ in range(count):
        event = {
            "symbol": draw.choice(["ACME", "longprefix", "longpreview", 'B, "C"\nD', None]),
            "price": draw.choice([4.5, 5, 8, 10.0, None]),
            "size": draw.choice([1, 3, 100, 65535, None]),
            "x.live": draw.choice([True, False, None]),
        }
        events.append({name: value for name, value in event.items() if value is not None})
    return events


def nested(event):
    outer = {name: value for name, value in event.items() if name != "x.live"}
    return outer | ({"x": {"live": event["x.live"]}} if "x.live" in event else {})


def expected(events, conditions=CONDITIONS, ids=None):
    """Pairs by the definition of the semantics, evaluated one by one."""
    schema = read_schema("schema.json")
    predicates = [parse(condition, schema) for condition in conditions]
    ids = range(len(predicates)) if ids is None else ids
    named = sorted(zip(ids, predicates, strict=True), key=lambda pair: pair[0])
    return [
        (row, id) for row, event in enumerate(events) for id, predicate in named if predicate.matches(event)
    ]


def csv_pairs(text):
    header, *rows = csv.reader(io.StringIO(text))
    assert header == ["event", "subscription"]
    return [(int(event), int(id)) for event, id in rows]


def run_match(capsys, *arguments):
    assert main(["match", *arguments]) == 0
    return csv_pairs(capsys.readouterr().out)


def fails(capsys, *arguments, code=2):
    """Run a command that must fail; returns what it said, which begins with the program's name."""
    assert main(list(arguments)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err[captured.err.rindex("rtfilter: error: ") :]
    return last.removeprefix("rtfilter: error: ")


# -- match: forms of events --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_schema_is_a_file_or_json(files, capsys):
    text = Path("schema.json").read_text()
    for given in ("schema.json", text):
        assert run_match(capsys, "subs.jsonl", "events.jsonl", "--schema", given) == expected(files)
        assert main(["index", "build", "subs.jsonl", "--schema", given, "--out", "made"]) == 0
    assert fails(capsys, "match", "subs.jsonl", "events.jsonl", "--schema", '{"a": "flot"}').startswith(
        "--schema: attribute 'a': the type 'flot' is unknown"
    )


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["1", "10", "1000"])
def test_match_equals_naive_evaluation(files, capsys, batch):
    found = run_match(capsys, "subs.jsonl", "events.jsonl", "--schema", "schema.json", "--batch", batch)
    assert found == expected(files)
    assert len(found) > 100


def test_match_csv_events(files, capsys):
    with open("events.csv", "w", newline="") as stream:
        writer = csv.DictWriter(stream, list(SCHEMA), restval="")
        writer.writeheader()
        writer.writerows(files)
    assert run_match(capsys, "subs.jsonl", "events.csv", "--schema", "schema.json") == expected(files)


@pytest.mark.parametrize("row_group", [7, 1000])
def test_match_parquet_events(files, capsys, row_group):
    inner = pa.StructArray.from_arrays([column_of(files, "x.live")], ["live"])
    outer = {name: column_of(files, name) for name in ("symbol", "price", "size")}
    table = pa.table({"extra": [[1]] * len(files), "x": inner, **outer})
    pq.write_table(table, "events.parquet", row_group_size=row_group)
    found = run_match(capsys, "subs.jsonl", "events.parquet", "--schema", "schema.json", "--batch", "10")
    assert found == expected(files)


def column_of(events, name):
    kind = {"symbol": pa.string(), "price": pa.float64(), "size": pa.int64(), "x.live": pa.bool_()}[name]
    return pa.array([event.get(name) for event in events], kind)


def test_match_compressed_events(files, capsys):
    Path("events.jsonl.gz").write_bytes(gzip.compress(Path("events.jsonl").read_bytes()))
    found = run_match(capsys, "subs.jsonl", "events.jsonl.gz", "--schema", "schema.json")
    assert found == expected(files)


def test_blank_lines_are_no_events_but_count_as_lines(files, capsys):
    Path("gaps.jsonl").write_text('\n{"price": 7}\n\n{"price": NaN}\n')
    message = fails(capsys, "match", "subs.jsonl", "gaps.jsonl", "--schema", "schema.json")
    assert message.startswith("gaps.jsonl:4: not JSON: ")
    assert message.endswith("; JSON has no NaN, no infinity and no lone surrogates\n")
    Path("gaps.jsonl").write_text('\n{"price": 7}\n\n')
    assert {row for row, _ in run_match(capsys, "subs.jsonl", "gaps.jsonl", "--schema", "schema.json")} == {0}


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ("1_0,1,2,", "'price': '1_0' is not a number"),
        ("7,maybe,2,", "'live': 'maybe' is not a boolean"),
        ("7,1,x,", "'count': 'x' is not a number"),
        ("7,1,2,noon", "'at': 'noon' is not a timestamp"),
    ],
)
def test_csv_cells_that_are_no_value_of_the_attribute_are_named(capsys, cells, told):
    Path("schema.json").write_text('{"price": "float", "live": "bool", "count": "int", "at": "timestamp"}')
    write_lines("subs.jsonl", ["live = TRUE", "count > 0"])
    given = ["match", "subs.jsonl", "events.csv", "--schema", "schema.json"]
    Path("events.csv").write_text("price,live,count,at\n,1,,\n,,2.5,2024-05-31\n")
    assert run_match(capsys, *given[1:]) == [(0, 0), (1, 1)]
    Path("events.csv").write_text(f"price,live,count,at\n,1,,\n{cells}\n")
    assert fails_after_output(capsys, *given).startswith(f"events.csv:3: column {told}; leave the cell empty")


@pytest.mark.parametrize("kind", ["int", "float"])
def test_large_integers_in_csv_are_exact(capsys, kind):
    Path("schema.json").write_text(json.dumps({"count": kind}))
    Path("events.csv").write_text("count\n9007199254740993\n9007199254740992\n1e300\n")
    write_lines("subs.jsonl", ["count = 9007199254740992", "count = 9007199254740993", "count >= 1e300"])
    found = run_match(capsys, "subs.jsonl", "events.csv", "--schema", "schema.json")
    assert found == [(0, 1), (1, 0), (2, 2)]


def test_no_events_give_only_the_header(files, capsys):
    Path("none.jsonl").write_text("")
    assert run_match(capsys, "subs.jsonl", "none.jsonl", "--schema", "schema.json") == []


# -- match: forms of subscriptions -------------------------------------------------------------------


def test_subscriptions_as_objects_with_ids(files, capsys):
    pattern = {"symbol": ["ACME"], "price": [{"numeric": ["<", 10]}]}
    write_lines("objects.jsonl", [{"id": 9, "where": CONDITIONS[2]}, {"where": pattern, "id": 4}])
    found = run_match(capsys, "objects.jsonl", "events.jsonl", "--schema", "schema.json")
    assert found == expected(files, [CONDITIONS[2], CONDITIONS[0]], [9, 4])


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("ids", [None, [30, 2, 11, 12, 13, 14, 15]])
def test_conditions_in_tables(files, capsys, form, ids):
    columns = {"note": ["a"] * len(CONDITIONS), "where": CONDITIONS} | ({"id": ids} if ids else {})
    write_table(f"subs.{form}", columns)
    found = run_match(capsys, f"subs.{form}", "events.jsonl", "--schema", "schema.json")
    assert found == expected(files, CONDITIONS, ids)


def write_table(path, columns):
    if path.endswith("parquet"):
        pq.write_table(pa.table(columns), path)
        return
    if path.endswith("jsonl"):
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        Path(path).write_text("".join(json.dumps(row, default=datetime.isoformat) + "\n" for row in rows))
        return
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_bounds_in_tables(capsys, form):
    Path("schema.json").write_text('{"price": "float", "at": "timestamp", "live": "bool", "name": "str"}')
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    columns = {
        "low.price": [5.0, None, None, None],
        "high.price": [10.0, 7.0, None, None],
        "low.at": [None, None, noon, None],
        "high.live": [None, None, None, False],
        "id": [3, 1, 4, 15],
    }
    if form == "csv":
        columns = {name: [shown(value) for value in values] for name, values in columns.items()}
    write_table(f"bounds.{form}", columns)
    events = [
        {"price": 5, "at": "2024-05-01T12:00:00Z", "live": True},
        {"price": 10.5, "at": "2024-05-01T14:00:00+02:00", "live": False},
        {"at": "2024-05-01T11:59:59.999999"},
        {"price": 7},
    ]
    write_lines("events.jsonl", events)
    found = run_match(capsys, f"bounds.{form}", "events.jsonl", "--schema", "schema.json")
    assert found == [(0, 1), (0, 3), (0, 4), (1, 4), (1, 15), (3, 1), (3, 3)]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_large_integers_in_bounds_are_exact(capsys, form):
    Path("schema.json").write_text('{"n": "int", "at": "timestamp"}')
    big, late = 2**53, datetime(2500, 1, 1, tzinfo=UTC)
    columns = {"low.n": [big + 1, None, None], "high.n": [big + 1, big, None], "low.at": [None, None, late]}
    if form == "csv":
        columns = {name: [shown(value) for value in values] for name, values in columns.items()}
    write_table(f"bounds.{form}", columns)
    before = late - timedelta(microseconds=1)
    write_lines("events.jsonl", [{"n": big}, {"n": big + 1}, {"at": str(before)}, {"at": str(late)}])
    found = run_match(capsys, f"bounds.{form}", "events.jsonl", "--schema", "schema.json")
    assert found == [(0, 1), (1, 0), (3, 2)]


def shown(value):
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def test_a_saved_index_brings_its_schema(files, capsys):
    target = EventFilter(read_schema("schema.json"))
    target.subscribe_many(CONDITIONS)
    target.save("index")
    assert run_match(capsys, "index", "events.jsonl") == expected(files)
    assert "leave out --schema" in fails(capsys, "match", "index", "events.jsonl", "--schema", "schema.json")


# -- match: output -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_output_files(files, capsys, form, monkeypatch):
    monkeypatch.setattr(match, "_CHUNK", 10)
    monkeypatch.setattr(match, "_ROW_GROUP", 100)
    given = ["match", "subs.jsonl", "events.jsonl", "--schema", "schema.json", "--batch", "5"]
    assert main([*given, "--out", f"o.{form}"]) == 0
    assert capsys.readouterr().out == ""
    assert pairs_of(f"o.{form}") == expected(files)
    Path("events.jsonl").write_text("")
    assert main([*given, "--out", f"o.{form}"]) == 0
    assert pairs_of(f"o.{form}") == []


def pairs_of(path):
    form = path.rpartition(".")[2]
    if form == "csv":
        return csv_pairs(Path(path).read_text())
    if form == "jsonl":
        rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
        return [(row["event"], row["subscription"]) for row in rows]
    table = pq.read_table(path)
    assert table.schema.types == [pa.int64(), pa.int64()]
    return list(zip(table["event"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def test_summary_and_inferred_schema_go_to_standard_error(files, capsys):
    write_lines("subs.jsonl", ["price < 10"])
    assert main(["match", "subs.jsonl", "events.jsonl"]) == 0
    captured = capsys.readouterr()
    found = csv_pairs(captured.out)
    note, line, summary = captured.err.splitlines()
    assert "--schema" in note
    assert f"57 events, {len(found)} matches in " in summary
    Path("inferred.json").write_text(line)
    assert read_schema("inferred.json") == Schema(
        {"symbol": str, "price": float, "size": int, "x.live": bool}
    )
    assert run_match(capsys, "subs.jsonl", "events.jsonl", "--schema", "inferred.json") == found


def test_progress_only_when_asked_for(files, capsys):
    arguments = ["match", "subs.jsonl", "events.jsonl", "--schema", "schema.json"]
    assert main(arguments) == 0
    assert "events/s" in (quiet := capsys.readouterr().err)
    assert quiet.count("\n") == 1
    assert main([*arguments, "--progress"]) == 0
    assert "0.00 events [" in capsys.readouterr().err


def nothing_left(*names):
    """Whether the directory holds only the files that a failed command was given."""
    return {path.name for path in Path().iterdir()} == {"schema.json", "subs.jsonl", "events.jsonl", *names}


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_full_disk_leaves_the_old_output(files, capsys, monkeypatch, form):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(match.os, "fsync", full)
    Path(f"o.{form}").write_text("old")
    message = fails(
        capsys, "match", "subs.jsonl", "events.jsonl", "--schema", "schema.json", "--out", f"o.{form}"
    )
    assert message == f"o.{form}: cannot be written: No space left on device\n"
    assert Path(f"o.{form}").read_text() == "old"
    assert nothing_left(f"o.{form}")


def test_a_bad_event_late_in_the_file_leaves_no_output(files, capsys):
    with open("events.jsonl", "a") as stream:
        stream.write('{"size": 70000}\n')
    arguments = ["match", "subs.jsonl", "events.jsonl", "--schema", "schema.json", "--batch", "5"]
    message = fails(capsys, *arguments, "--out", "o.csv")
    assert message == "events.jsonl:58: attribute 'size' is 70000, outside its domain [0, 65535]\n"
    assert nothing_left()


def test_replay_names_the_line_of_a_bad_event(files, capsys):
    with open("events.jsonl", "a") as stream:
        stream.write('{"size": 70000}\n')
    message = fails(capsys, "replay", "subs.jsonl", "events.jsonl", "--schema", "schema.json")
    assert message == "events.jsonl:58: attribute 'size' is 70000, outside its domain [0, 65535]\n"


def test_interrupt(files, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rtfilter.cli.match._pairs", interrupted)
    arguments = ["match", "subs.jsonl", "events.jsonl", "--schema", "schema.json", "--out", "o.csv"]
    assert main(arguments) == 130
    assert nothing_left()


def test_output_that_cannot_be(files, capsys):
    given = ["match", "subs.jsonl", "events.jsonl", "--out"]
    assert "must end in .csv, .jsonl or .parquet" in fails(capsys, *given, "o.txt")
    assert "does not exist" in fails(capsys, *given, "nowhere/o.csv")
    assert "is an input too" in fails(capsys, *given, "events.jsonl")
    os.mkdir("d.csv")
    assert "is no file" in fails(capsys, *given, "d.csv")


def test_an_output_link_keeps_its_target(files):
    os.symlink("real.csv", "o.csv")
    assert main(["match", "subs.jsonl", "events.jsonl", "--schema", "schema.json", "--out", "o.csv"]) == 0
    assert os.path.islink("o.csv")
    assert csv_pairs(Path("real.csv").read_text()) == expected(files)


# -- schemas -----------------------------------------------------------------------------------------


def inferred(capsys, path):
    """Schema that match infers from a file of events, as its JSON."""
    write_lines("all.jsonl", ["TRUE"])
    assert main(["match", "all.jsonl", path]) == 0
    captured = capsys.readouterr()
    assert csv_pairs(captured.out)[0] == (0, 0)  # the events that inference looked at are matched too
    return json.loads(captured.err.splitlines()[1])


def test_inference_from_json_lines(capsys):
    events = [
        {"a": 1, "b": {"c": True, "d": {"e": "2024-05-01"}}, "mixed": 1, "": 3, "list": [[1], [{"x": "y"}]]},
        {"a": 2.5, "b": {"d": {"e": "2024-05-01T10:00Z"}}, "mixed": "x", "null": None, "t": "2024-05-01"},
        {"mixed": "y", "t": "tomorrow"},
    ]
    write_lines("e.jsonl", events)
    found = {"a": "float", "b.c": "bool", "b.d.e": "timestamp", "mixed": "str", "list": "int"}
    assert inferred(capsys, "e.jsonl") == found | {"list.x": "str", "t": "str"}


def test_inference_from_csv(capsys):
    Path("e.csv").write_text(
        "int,float,zip,code,flag,day,none\n1,1,00501,12,true,2024-05-01,\n-2,1.5e3,10001,12A,FALSE,,\n"
    )
    found = {"int": "int", "float": "float", "zip": "str", "code": "str", "flag": "bool", "day": "timestamp"}
    assert inferred(capsys, "e.csv") == found


def test_inference_from_parquet(capsys):
    columns = {
        "i": pa.array([1], pa.uint8()),
        "f": pa.array([1], pa.float32()),
        "s": pa.array(["a"]).dictionary_encode(),
        "t": pa.array([0], pa.timestamp("ms")),
        "x": pa.array([{"b": True, "l": [1]}]),
    }
    pq.write_table(pa.table(columns), "e.parquet")
    assert inferred(capsys, "e.parquet") == {
        "i": "int", "f": "float", "s": "str", "t": "timestamp", "x.b": "bool", "x.l": "int",
    }  # fmt: skip


def test_lists_in_json_lines(capsys):
    rules = [{"tags": ["a"]}, {"staff": {"name": ["Ann"], "pay": [{"numeric": [">", 5]}]}}]
    write_lines("subs.jsonl", [{"where": rule} for rule in rules])
    staff = [{"name": "Ann", "pay": 1}, {"name": "Bob", "pay": 9}]
    events = [{"tags": ["b", "a"], "staff": staff}, {"staff": [{"name": "Ann", "pay": 9}]}]
    write_lines("events.jsonl", events)
    assert run_match(capsys, "subs.jsonl", "events.jsonl") == [(0, 0), (1, 1)]


def test_inference_looks_at_the_first_events_only(capsys, monkeypatch):
    monkeypatch.setattr("rtfilter.reading.events.SAMPLE", 2)
    write_lines("e.jsonl", [{"a": 1}, {"a": 2}, {"a": 2.5, "b": 1}])
    write_lines("subs.jsonl", ["a >= 2"])
    assert inferred(capsys, "e.jsonl") == {"a": "int"}
    assert run_match(capsys, "subs.jsonl", "e.jsonl") == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "float",\n "b": }', "schema.json: not JSON: Expecting value at line 2, column 7"),
        ('["a"]', "schema.json: a schema is a JSON object"),
        ("{}", "schema.json: a schema needs at least one attribute"),
        (
            '{"a": "flaot"}',
            "schema.json: attribute 'a': the type 'flaot' is unknown; use int, float, str, bool",
        ),
        ('{"a": 1}', "schema.json: attribute 'a': a type is needed"),
        (
            '{"a": {"type": "int", "min": 0}}',
            "schema.json: attribute 'a': 'min' is unknown; known are type, low and high",
        ),
        ('{"a": {"type": "int", "low": 2, "high": 1}}', "schema.json: attribute 'a': the domain is empty"),
        ('{"a": {"type": "timestamp", "low": 5}}', "schema.json: attribute 'a': "),
        ('{"a": "int", "a": "str"}', "schema.json: 'a' occurs twice"),
        ('{"a..b": "int"}', "schema.json: 'a..b' cannot name an attribute"),
    ],
)
def test_bad_schemas(files, capsys, text, message):
    Path("schema.json").write_text(text)
    given = ["match", "subs.jsonl", "events.jsonl", "--schema", "schema.json"]
    assert fails(capsys, *given).startswith(message)


# -- failures of files -------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_the_header_tells_what_separates_cells(capsys, delimiter):
    table = [["id", "where"], ["4", "price > 1 AND symbol IN ('a', 'b')"]]
    Path("s.csv").write_text("".join(delimiter.join(row) + "\n" for row in table))
    Path("e.csv").write_text(
        "".join(delimiter.join(row) + "\n" for row in [["symbol", "price"], ["b", "2.5"]])
    )
    assert run_match(capsys, "s.csv", "e.csv") == [(0, 4)]
    Path("s.csv").write_text("\nwhere\nprice > 1;\n")
    assert fails(capsys, "match", "s.csv", "e.csv").startswith("s.csv:3: ")


def test_a_word_in_a_column_of_numbers_is_told(capsys):
    Path("e.csv").write_text("code,name,price\n" + "5,a,1.5\n" * 30 + "05,b,n/a\n" + "5,c,2\n")
    write_lines("s.jsonl", ["name = 'a'"])
    assert main(["match", "s.jsonl", "e.csv"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "makes text" in line]
    assert told == [
        "rtfilter: e.csv:32: column 'price': 'n/a' makes text of a column in which 31 of 32 cells are "
        "numbers; empty this cell, or give a schema"
    ]


@pytest.mark.parametrize("missing", ["subs.jsonl", "events.jsonl", "schema.json"])
def test_missing_files(files, capsys, missing):
    os.remove(missing)
    if missing == "events.jsonl":
        os.mkdir(missing)
        message = fails(capsys, "match", "subs.jsonl", missing, "--schema", "schema.json")
        assert message == "events.jsonl: Is a directory\n"
        os.rmdir(missing)
    message = fails(capsys, "match", "subs.jsonl", "events.jsonl", "--schema", "schema.json")
    assert message == f"{missing}: No such file or directory\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.jsonl", b'{"price": 1}\n{"price": \n', "e.jsonl:2: not JSON: Expecting value at column"),
        ("e.jsonl", b"[1]\n", "e.jsonl:1: an event is a JSON object, not an array"),
        ("e.jsonl", b'{"price": 1}\n{"symbol": "\xff"}\n', "e.jsonl:2: not JSON: 'utf-8' codec"),
        ("e.jsonl", b"[" * 100_000, "e.jsonl:1: the JSON is nested too deeply"),
        ("e.jsonl", b'{"price": 1e999}', "e.jsonl:1: not JSON: Number out of range"),
        ("e.jsonl", b'{"x.live": true, "x": {"live": true}}', "e.jsonl:1: attribute 'x.live' occurs twice"),
        ("e.csv", b"price\n1\nnan\n", "e.csv:3: attribute 'price' is NaN"),
        ("e.csv", b'symbol,price\n"a\nb",1\nc,nan\n', "e.csv:4: attribute 'price' is NaN"),
        ("e.csv", b"symbol,price\na,1\nb\n", "e.csv:3: 1 cells, but 2 columns; correct the row"),
        ("e.csv", b'symbol,price\na,1\n"b,2\n', "e.csv:3: not CSV: "),
        ("e.csv", b"price,price\n1,2\n", "e.csv:1: two columns are called 'price'"),
        ("e.csv", b"symbol\na\n\xff\n", "e.csv:3: not UTF-8 text"),
        ("e.csv", b"", "e.csv: empty; the first line must name the columns"),
        ("e.csv", b"symbol|price\na|1\n", "e.csv: none of its columns (symbol|price) is an attribute"),
        ("e.csv", b"symbol;price\na;1\nb;1,5\n", "e.csv:3: column 'price': '1,5' is not a number; leave"),
        ("e.csv", b"symbol,price\n,1\nb,n/a\n", "e.csv:3: column 'price': 'n/a' is not a number; leave"),
        ("e.csv", b"x.live\ntrue\nmaybe\n", "e.csv:3: column 'x.live': 'maybe' is not a boolean"),
        ("e.jsonl.gz", gzip.compress(b'{"price": 1}\n' * 99, mtime=0)[:-20], "e.jsonl.gz:2: the compressed"),
        ("e.jsonl.gz", b'{"price": 1}\n', "e.jsonl.gz:1: the compressed file is damaged"),
        ("e.parquet", b"nonsense", "e.parquet: not a readable Parquet file"),
        ("e.txt", b"", "e.txt: the name must end in .jsonl, .csv or .parquet"),
    ],
)  # fmt: skip
def test_bad_events(files, capsys, name, content, message):
    Path(name).write_bytes(content)
    found = fails_after_output(capsys, "match", "subs.jsonl", name, "--schema", "schema.json", "--batch", "1")
    assert found.startswith(message)


LABELS = [{"ttl": 3600, "metadata": {"to": "a"}}, {"ttl": 0.001}, {"metadata": {"to": ["b"]}}, {}]


def write_labels(form, bounds):
    """A file of subscriptions to prices of at least 0, 1, 2, 3, with labels."""
    ttl, notes = ([label.get(name) for label in LABELS] for name in ("ttl", "metadata"))
    if form == "jsonl":
        write_lines("s.jsonl", [{"where": f"price >= {n}", **label} for n, label in enumerate(LABELS)])
        return "s.jsonl"
    texts = [None if note is None else json.dumps(note) for note in notes]
    column = {"low.price": range(4)} if bounds else {"where": [f"price >= {n}" for n in range(4)]}
    columns = {**{name: list(values) for name, values in column.items()}, "ttl": ttl, "metadata": texts}
    write_table(f"s.{form}", columns)
    return f"s.{form}"


@pytest.mark.parametrize("form", ["jsonl", "csv", "csv, bounds", "parquet", "parquet, bounds"])
def test_times_to_live_and_metadata_are_in_the_index(files, capsys, form):
    form, _, bounds = form.partition(", ")
    path = write_labels(form, bounds)
    began = time.time()
    assert main(["index", "build", path, "--schema", "schema.json", "--out", "labels.index"]) == 0
    index = EventFilter.load("labels.index")
    assert began + 3600 <= index[0].expires <= time.time() + 3600
    assert [index[id].metadata for id in (0, 2, 3)] == [{"to": "a"}, {"to": ["b"]}, None]
    assert [index[id].expires for id in (2, 3)] == [None, None]
    time.sleep(max(0.0, began + 0.1 - time.time()))
    assert sorted(index.match({"price": 9.0}).tolist()) == [0, 2, 3]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ({"ttl": 0}, "a time to live is finite and above 0, not 0"),
        ({"ttl": -1}, "a time to live is finite and above 0, not -1"),
        ({"ttl": "1 h"}, "a time to live is a number of seconds"),
        ({"ttl": True}, "a time to live is a number of seconds"),
        ({"metadata": [1]}, "metadata is a dict"),
        ({"metadata": "a"}, "metadata as text must be JSON, but 'a' is not"),
        ({"expires": "soon"}, "expires must be a time or seconds since 1970, not 'soon'"),
        ({"metadata": {"a": "x" * 5000}}, "at most 4,096 are allowed"),
        ({"note": 1}, 'and optionally "id", "ttl" or "expires", and "metadata"'),
    ],
)
def test_bad_labels_are_named_by_their_line(files, capsys, label, message):
    write_lines("s.jsonl", ["price > 1", {"where": "price > 1", **label}])
    found = fails(capsys, "match", "s.jsonl", "events.jsonl", "--schema", "schema.json")
    assert found.startswith("s.jsonl:2: ")
    assert message in found


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("soon,", "a time to live is a number of seconds or a timedelta, not 'soon'"),
        ("nan,", "a time to live is finite and above 0, not nan"),
        (",x", "metadata as text must be JSON, but 'x' is not"),
        (",7", "metadata is a dict"),
    ],
)
@pytest.mark.parametrize("columns", ["where", "low.price"])
def test_bad_labels_in_tables_are_named_by_their_line(files, capsys, row, message, columns):
    cell = "price > 1" if columns == "where" else "1"
    Path("s.csv").write_text(f"{columns},ttl,metadata\n{cell},,\n{cell},{row}\n")
    found = fails(capsys, "match", "s.csv", "events.jsonl", "--schema", "schema.json")
    assert found.startswith(f"s.csv:3: {message}")


def fails_after_output(capsys, *arguments):
    """As `fails`, but pairs of earlier batches may be out already."""
    assert main(list(arguments)) == 2
    return capsys.readouterr().err.removeprefix("rtfilter: error: ")


def test_bad_parquet_events_name_the_row(files, capsys):
    pq.write_table(pa.table({"price": [1.0] * 8 + [float("nan")]}), "e.parquet")
    given = ["match", "subs.jsonl", "e.parquet", "--schema", "schema.json", "--batch", "5"]
    assert fails_after_output(capsys, *given).startswith("e.parquet: row 8: attribute 'price' is NaN")
    pq.write_table(pa.table({"prize": [1.0]}), "e.parquet")
    assert "none of its columns (prize)" in fails(capsys, *given)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"prise < 10"', "2: unknown attribute 'prise'; did you mean 'price'?\n    prise < 10\n    ^\n"),
        ('"price <"', "2: not an SQL condition"),
        ('""', "2: the condition is empty"),
        ("price < 10", "2: not JSON: Expecting value at column 1"),
        ("7", "2: a subscription is a JSON string"),
        ('{"were": "TRUE"}', "2: a subscription is a JSON string"),
        ('{"pattern": {}}', "2: a subscription is a JSON string"),
        ('{"where": 1}', "2: a predicate is an SQL condition (str), an event pattern (mapping)"),
        ('{"where": {"prise": [1]}}', "2: unknown attribute 'prise'"),
        ('{"where": "TRUE", "id": 5}', "1: this subscription has no id; give each one"),
        (json.dumps(" OR ".join(f"(price IN ({','.join(map(str, range(0, 20 * k, k)))}) AND symbol <> '{k}')"
                                for k in range(1, 250))), "2: "),
    ],
)  # fmt: skip
def test_bad_conditions(files, capsys, line, message):
    Path("bad.jsonl").write_text(f'"TRUE"\n{line}\n')
    found = fails(capsys, "match", "bad.jsonl", "events.jsonl", "--schema", "schema.json")
    assert found.startswith(f"bad.jsonl:{message}")


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("7,7", "s.csv:3: the id 7 is taken already, see s.csv:2"),
        ("7,", "s.csv:3: this subscription has no id; give each one"),
        ("-1,2", "s.csv:2: an id is an integer from 0 to 2**63 - 2, not -1"),
        ("x,x", "s.csv:3: the id 'x' is taken already, see s.csv:2"),
        (f"1,{2**63 - 1}", f"s.csv:3: an id is an integer from 0 to 2**63 - 2, not {2**63 - 1}"),
        (f"1,{2**63}", f"s.csv:3: an id is an integer from 0 to 2**63 - 2, not {2**63}"),
    ],
)
@pytest.mark.parametrize("columns", ["id,where", "id,low.price"])
def test_bad_ids(files, capsys, ids, message, columns):
    cell = "TRUE" if columns.endswith("where") else "1"
    Path("s.csv").write_text("\n".join([columns, *(f"{id},{cell}" for id in ids.split(","))]))
    assert fails(capsys, "match", "s.csv", "events.jsonl", "--schema", "schema.json").startswith(message)


@pytest.mark.parametrize("columns", ["id,where", "id,low.price"])
def test_ids_in_csv_are_read_in_one_way(files, capsys, columns):
    cell = "TRUE" if columns.endswith("where") else "1"
    Path("s.csv").write_text(f"{columns}\n 7,{cell}\n+8,{cell}\n")
    found = run_match(capsys, "s.csv", "events.jsonl", "--schema", "schema.json")
    assert {id for _, id in found} == {7, 8}
    Path("s.csv").write_text(f"{columns}\n007,{cell}\n1_0,{cell}\n")
    assert main(["match", "s.csv", "events.jsonl", "--schema", "schema.json"]) == 0
    found = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert {row["subscription"] for row in found} == {"007", "1_0"}  # one that is none: all are text


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("low.price,high.price\n1,2\n5,4\n", "s.csv:3: attribute 'price': low above high in [5.0, 4.0]"),
        ("low.price\n1\nnan\n", "s.csv:3: column 'low.price': 'nan' is not a number"),
        ("low.price\ncheap\n", "s.csv:2: column 'low.price': 'cheap' is not a number"),
        ("low.prise\n1\n", "s.csv: column 'low.prise': unknown attribute 'prise'; did you mean 'price'?"),
        ("low.symbol\na\n", "s.csv: column 'low.symbol': 'symbol' is a string, which has no bounds"),
        ("low.price,where\n1,TRUE\n", "s.csv: subscriptions need a column where"),
        ("price\n1\n", "s.csv: subscriptions need a column where"),
        ("where\nTRUE\nprice >> 1\n", "s.csv:3: "),
    ],
)
def test_bad_tables_of_subscriptions(files, capsys, table, message):
    Path("s.csv").write_text(table)
    found = fails(capsys, "match", "s.csv", "events.jsonl", "--schema", "schema.json")
    assert found.startswith(message)


def test_bad_parquet_subscriptions_name_the_row(files, capsys):
    given = ["match", "s.parquet", "events.jsonl", "--schema", "schema.json"]
    pq.write_table(pa.table({"where": ["TRUE", None]}), "s.parquet")
    assert fails(capsys, *given).startswith("s.parquet: row 1: a predicate is an SQL condition (str)")
    pq.write_table(pa.table({"where": ["TRUE", "prise < 1"]}), "s.parquet")
    assert fails(capsys, *given).startswith("s.parquet: row 1: unknown attribute 'prise'")
    pq.write_table(pa.table({"low.price": ["1"]}), "s.parquet")
    assert "column 'low.price' holds string, but the attribute is a number" in fails(capsys, *given)
    pq.write_table(pa.table({"low.price": [1.0, float("nan")]}), "s.parquet")
    assert fails(capsys, *given).startswith("s.parquet: row 1: attribute 'price': NaN")


def test_parquet_without_pyarrow(files, capsys, monkeypatch):
    Path("e.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message = f"Parquet needs pyarrow: {install('arrow')}\n"
    assert fails(capsys, "match", "subs.jsonl", "e.parquet") == f"e.parquet: {message}"
    assert (
        fails(capsys, "match", "subs.jsonl", "events.jsonl", "--out", "o.parquet") == f"o.parquet: {message}"
    )


# -- index -------------------------------------------------------------------------------------------


@pytest.fixture
def index(files, capsys):
    given = ["subs.jsonl", "--schema", "schema.json", "--out", "index", "--capacity", "8", "16"]
    assert main(["index", "build", *given]) == 0
    assert "7 subscriptions saved in index" in capsys.readouterr().err
    return files


def test_index_build_then_match(index, capsys):
    assert run_match(capsys, "index", "events.jsonl") == expected(index)


def test_index_build_replaces_an_index_and_nothing_else(index, capsys):
    write_lines("one.jsonl", ["TRUE"])
    build = ["index", "build", "one.jsonl", "--schema", "schema.json", "--out"]
    assert main([*build, "index"]) == 0
    assert len(EventFilter.load("index")) == 1
    capsys.readouterr()
    os.mkdir("other")
    Path("other/precious").write_text("")
    assert "has other files than those of an index" in fails(capsys, *build, "other")
    assert "is no directory" in fails(capsys, *build, "subs.jsonl")
    assert "must be at least 4" in fails(capsys, *build, "new", "--capacity", "2", "2")
    assert "build needs a file" in fails(capsys, "index", "build", "index", *build[3:], "new")
    assert os.listdir("other") == ["precious"]
    assert not os.path.exists("new")


def test_an_index_and_a_match_take_how_a_filter_matches(files, capsys):
    defined = json.dumps({"schema": SCHEMA, "matcher": {"name": "filter-nodes", "bit_lists": 0.5}})
    build = ["index", "build", "subs.jsonl", "--schema", defined, "--out", "nodes"]
    assert "leave it out: --schema names a matcher" in fails(capsys, *build, "--capacity", "8", "16")
    assert main(build) == 0
    assert EventFilter.load("nodes")._subscriptions.matcher.options == {"bit_lists": 0.5}
    assert main(["match", "subs.jsonl", "events.jsonl", "--schema", defined]) == 0
    assert csv_pairs(capsys.readouterr().out) == expected(files)


def test_index_info(index, capsys):
    assert main(["index", "info", "index", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["subscriptions"] == 7
    assert facts["capacity"] == [8, 16]
    assert facts["schema"] == SCHEMA
    assert main(["index", "info", "index"]) == 0
    text = capsys.readouterr().out
    assert "subscriptions  7\n" in text
    assert "inner 8, leaf 16" in text


def test_index_check_finds_damage(index, capsys):
    assert main(["index", "check", "index"]) == 0
    assert "7 subscriptions, checksums and tree are in order" in capsys.readouterr().out
    file = next(Path("index").glob("tree_bounds.*.bin"))
    data = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
    assert "its checksum does not fit" in fails(capsys, "index", "check", "index", code=1)
    assert "its checksum does not fit" in fails(capsys, "match", "index", "events.jsonl")
    file.unlink()
    assert "is missing" in fails(capsys, "index", "check", "index", code=1)
    assert fails(capsys, "index", "check", "nowhere") == "nowhere: No such file or directory\n"


def test_index_check_verifies_the_tree(index, capsys):
    found = snapshot.read("index", KIND)
    found.arrays["tree_mbr"][:] = 0
    snapshot.write("index", KIND, found.meta, found.arrays)
    assert "the tree is damaged" in fails(capsys, "index", "check", "index", code=1)


# -- explain -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscriptions", ["subs.jsonl", "index"])
def test_explain(index, capsys, subscriptions):
    row = next(i for i, e in enumerate(index) if e.get("symbol") == "ACME" and e.get("price") == 10)
    schema = ["--schema", "schema.json"] if subscriptions == "subs.jsonl" else []
    given = ["explain", subscriptions, "events.jsonl", *schema]
    assert main([*given, "--event", str(row), "--id", "0"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        f"event {row} (events.jsonl:{row + 1}) and subscription 0: symbol = 'ACME' AND price < 10\n"
    )
    assert "no match\n" in text
    assert "is 10.0, not below 10" in text
    assert "no event in row 57; the rows are 0 to 56" in fails(capsys, *given, "--event", "57", "--id", "0")
    assert "no subscription with the id 99" in fails(capsys, *given, "--event", "0", "--id", "99")


def test_explain_reads_only_the_subscription_it_is_about(files, capsys):
    write_lines("some.jsonl", [{"id": 5, "where": "prise < 1"}, {"id": 6, "where": "price < 1"}])
    given = ["explain", "some.jsonl", "events.jsonl", "--schema", "schema.json", "--event", "0", "--id"]
    assert main([*given, "6"]) == 0
    assert "price < 1" in capsys.readouterr().out
    assert fails(capsys, *given, "5").startswith("some.jsonl:1: unknown attribute 'prise'")


@pytest.mark.parametrize("subscriptions", ["subs.jsonl", "index"])
def test_explain_a_file_of_events(index, capsys, subscriptions):
    schema = ["--schema", "schema.json"] if subscriptions == "subs.jsonl" else []
    given = ["explain", subscriptions, "events.jsonl", *schema]
    predicates = [parse(condition, Schema(read_schema("schema.json").attributes)) for condition in CONDITIONS]
    for chosen, events, ids in (
        (["--id", "0"], range(57), [0]),
        (["--event", "5"], [5], range(7)),
        ([], range(57), range(7)),
    ):
        assert main([*given, *chosen, "--limit", "9"]) == 0
        first, *lines = capsys.readouterr().out.splitlines()
        matched = sum(predicates[id].matches(index[event]) for event in events for id in ids)
        assert first.startswith(f"{matched} of {len(events) * len(ids)} pairs match")
        assert all(len(line) <= 100 for line in lines)
        assert lines[0].split() == ["event", "subscription", "constraint", "value", "by", "how", "much"]
        pairs = [line.split()[:2] for line in lines[1:] if not line.startswith(" ")]
        assert 0 < len(pairs) <= 9
        for event, id in pairs:
            assert (int(event) in events, int(id) in ids) == (True, True)
            assert not predicates[int(id)].matches(index[int(event)])
    assert "no event in row 57" in fails(capsys, *given, "--event", "57")
    assert "no subscription with the id 99" in fails(capsys, *given, "--id", "99")


def test_explain_a_file_in_batches(files, capsys, monkeypatch):
    given = ["explain", "subs.jsonl", "events.jsonl", "--schema", "schema.json", "--limit", "30"]
    assert main(given) == 0
    whole = capsys.readouterr().out
    monkeypatch.setattr("rtfilter.cli.explain.BATCH", 10)
    assert main(given) == 0
    assert capsys.readouterr().out == whole
    monkeypatch.setattr("rtfilter.predicates.explanations.misses.MAX_PAIRS", 7 * 12 + 3)
    assert main(given) == 0
    shown = capsys.readouterr()
    assert "only the first 12 events were explained: at most 87 pairs are" in shown.err
    assert " of 84 pairs match" in shown.out
    monkeypatch.setattr("rtfilter.predicates.explanations.misses.MAX_PAIRS", 6)
    assert "7 subscriptions are more than 6; name one with --id" in fails(capsys, *given)


def test_explain_events_and_bounds_of_parquet(files, capsys):
    pq.write_table(pa.table({"price": [1.0, 12.5]}), "e.parquet")
    pq.write_table(pa.table({"high.price": [5.0, 10.0]}), "b.parquet")
    given = ["explain", "b.parquet", "e.parquet", "--event", "1", "--id", "1"]
    assert main(given) == 0
    text = capsys.readouterr().out
    assert text.startswith("event 1 (e.parquet: row 1) and subscription 1: ")
    assert "too high by 2.5" in text


# -- the program -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [[], ["match"], ["match", "a", "b", "--bat", "1"], ["fly"]],
)
def test_wrong_usage(capsys, arguments):
    assert main(arguments) == 2
    assert "usage: rtfilter" in capsys.readouterr().err


def test_a_wrong_value_is_told_without_the_usage(capsys):
    assert main(["serve", "--data", "d", "--port", "99999"]) == 2
    assert capsys.readouterr().err == (
        "rtfilter serve: error: argument --port: '99999' is no port, 0 to 65535; choose another port; "
        "see rtfilter serve --help\n"
    )


@pytest.mark.parametrize(
    ("arguments", "least", "texts"),
    [
        (["match", "a", "b", "--batch"], 1, ["-1", "1.5", "many", "", "\u00b2", "\u0661"]),
        (["explain", "a", "b", "--id", "1", "--event"], 0, ["-1", "many"]),
        (["explain", "a", "b", "--limit"], 1, ["0", "many"]),
        (["replay", "wide", "--seed"], 0, ["-1", "many"]),
        (["replay", "wide", "--sizes"], 1, ["0", "many"]),
        (["spark-match", "a", "b", "--out", "c", "--partitions"], 1, ["0", "many"]),
    ],
)
def test_whole_numbers(capsys, arguments, least, texts):
    *before, option = arguments
    for text in texts:
        assert main([*before, f"{option}={text}"]) == 2, text
        assert f"{text!r} is not a whole number of at least {least}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [[], ["match"], ["index"], ["index", "build"], ["index", "info"], ["index", "check"], ["explain"]],
)
def test_help_has_an_example(capsys, command):
    assert main([*command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "example" in text
    assert f"  {' '.join(['rtfilter', *command])} " in text


@pytest.mark.parametrize("command", ["match", "index", "explain", "replay"])
def test_every_command_is_reachable(capsys, command):
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: rtfilter {command}")


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rtfilter ")


def start(*arguments, **options):
    # Its output is buffered, as users have it: the rest must not fail once more at exit.
    return forks.python("-m", "rtfilter", *arguments, stderr=subprocess.PIPE, **options)


@pytest.mark.slow
def test_the_entry_point_reads_standard_input(files):
    program = Path(sys.executable).with_name("rtfilter")
    command = [program, "match", "subs.jsonl", "-", "--schema", "schema.json"]
    with open("events.jsonl") as events:
        done = subprocess.run(command, stdin=events, capture_output=True, text=True, check=True)
    assert csv_pairs(done.stdout) == expected(files)


@pytest.mark.slow
def test_nobody_reads_the_output(files):
    """As in ``rtfilter ... | head -1``: no message, no traceback."""
    write_lines("many.jsonl", [{"price": 7}] * 50_000)
    process = start("match", "subs.jsonl", "many.jsonl", "--schema", "schema.json", stdout=subprocess.PIPE)
    assert process.stdout.readline() == "event,subscription\n"
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_standard_output_on_a_full_disk(files):
    with open("/dev/full", "w") as full:
        process = start("match", "subs.jsonl", "events.jsonl", "--schema", "schema.json", stdout=full)
        _, said = process.communicate()
    assert said == "rtfilter: error: standard output: cannot be written: No space left on device\n"
    assert process.returncode == 2


# -- odd numbers and odd text ------------------------------------------------------------------------


def test_an_id_that_none_can_have_is_refused_alike(index, capsys):
    Path("bounds.csv").write_text("id,low.price\n7,1\n")
    ids = [2**63 - 1, 2**64, 10**25, "9" * 5000, "7.0", "-1", "\u0661"]
    for subscriptions, some in (("subs.jsonl", ids), ("bounds.csv", ids[::3]), ("index", ids[::3])):
        for id in some:
            assert main(["explain", subscriptions, "events.jsonl", "--event", "0", f"--id={id}"]) == 2
            said = capsys.readouterr().err
            assert "argument --id: an id is an integer from 0 to 2**63 - 2; got '" in said, subscriptions
            assert len(said.splitlines()[-1]) < 200


def test_the_largest_id_is_one_like_others(files, capsys):
    largest = 2**63 - 2
    write_lines("large.jsonl", [{"id": largest, "where": "TRUE"}])
    assert main(["index", "build", "large.jsonl", "--schema", "schema.json", "--out", "large"]) == 0
    capsys.readouterr()
    assert {id for _, id in run_match(capsys, "large", "events.jsonl")} == {largest}
    assert main(["explain", "large", "events.jsonl", "--event", "0", "--id", str(largest)]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["match", "a", "b", "--batch"],
        ["explain", "a", "b", "--id", "1", "--event"],
        ["replay", "wide", "--bursts"],
        ["replay", "wide", "--subscriptions"],
        ["replay", "wide", "--sizes"],
        ["replay", "wide", "--seed"],
    ],
)
def test_numbers_that_are_too_large_are_refused(capsys, arguments):
    assert main([*arguments, "9" * 5000]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "is too large; at most" in last
    assert len(last) < 200


def test_lone_surrogates_in_files_are_shown_escaped(files, capsys, monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), "utf-8")  # strict, as a terminal is
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    Path("odd.jsonl").write_text("\"symbol = '\\ud800'\"\n")
    Path("odd-events.jsonl").write_text('{"symbol": "\\ud800\\udfff", "price": 1}\n')
    given = ["odd.jsonl", "odd-events.jsonl", "--schema", "schema.json"]
    assert main(["explain", *given, "--event", "0", "--id", "0"]) == 0
    Path("odd.json").write_text('{"\\ud800": "float"}')
    write_lines("all.jsonl", ["TRUE"])
    assert main(["index", "build", "all.jsonl", "--schema", "odd.json", "--out", "i\udcff"]) == 0
    assert main(["index", "info", "i\udcff"]) == 0
    assert main(["index", "info", "i\udcff", "--json"]) == 0
    assert main(["index", "check", "i\udcff"]) == 0
    output.flush()
    printed = output.buffer.getvalue().decode()
    assert "symbol = '\\ud800'" in printed
    assert "i\\udcff\n" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ["match", "no\udcff.jsonl", "events.jsonl", "--schema", "schema.json"],
        ["match", "subs.jsonl", "no\udcff.jsonl"],
        ["match", "subs.jsonl", "events.jsonl", "--out", "no\udcff/o.csv"],
        ["match", "subs.jsonl", "events.jsonl", "--batch", "\udcff"],
        ["index", "info", "no\udcff"],
        ["index", "check", "no\udcff"],
        ["explain", "subs.jsonl", "events.jsonl", "--event", "0", "--id", "\udcff"],
        ["replay", "\udcff"],
        ["replay", "wide", "--level", "\udcff"],
        ["spark-match", "no\udcff", "e", "--out", "o"],
        ["fly\udcff"],
    ],
)
def test_lone_surrogates_in_arguments_are_no_traceback(files, monkeypatch, arguments):
    said = io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace")  # as Python opens it
    monkeypatch.setattr(sys, "stderr", said)
    assert main(arguments) == 2
    said.flush()
    assert b"\\udcff" in said.buffer.getvalue()


def test_paths_for_spark_are_checked_before_it_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rtfilter.spark.sessions", None)  # an import of it fails
    for name in spark_match.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    index, events, missing = (str(tmp_path / name) for name in ("index", "events.jsonl", "nope.jsonl"))
    EventFilter(Schema({"price": float})).save(index)
    Path(events).write_text('{"id": 1, "price": 5}\n')
    assert main(["spark-match", index, missing, "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == f"rtfilter: error: {missing}: there is no such file or directory\n"
    table = tmp_path / "events.csv.gz"
    table.touch()
    assert main(["spark-match", index, str(table), "--out", str(tmp_path / "new")]) == 2
    assert (
        f"{table}: spark-match reads Parquet and JSON lines; rtfilter match reads CSV"
        in capsys.readouterr().err
    )
    assert main(["spark-match", index, events, "--out", index]) == 2
    assert capsys.readouterr().err == f"rtfilter: error: {index} already exists; choose another --out\n"


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "folder"])
def test_the_column_that_names_events_is_asked_for_before_spark_starts(tmp_path, capsys, monkeypatch, kind):
    monkeypatch.setitem(sys.modules, "rtfilter.spark", None)  # an import of it fails
    for name in spark_match.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    index, events, out = (str(tmp_path / name) for name in ("index", f"events.{kind}", "new"))
    EventFilter(Schema({"price": float})).save(index)
    if kind == "jsonl":
        Path(events).write_text('{"price": 5}\n\n{"tick": 1, "price": 5}\n')
    elif kind == "parquet":
        pq.write_table(pa.table({"price": [5.0], "tick": [1]}), events)
    else:
        Path(events).mkdir()
        Path(events, "_SUCCESS").touch()
        pq.write_table(pa.table({"price": [5.0], "tick": [1]}), Path(events, "part-0.parquet"))
    assert main(["spark-match", index, events, "--out", out]) == 2
    said = capsys.readouterr().err
    assert f"{events}: events have no column 'id' with their ids; name another one by --id: " in said
    assert said.replace("'", "").replace(" and", ",").endswith("price, tick\n")
    assert main(["spark-match", index, events, "--out", out, "--id", "tick"]) == 2
    assert "import of rtfilter.spark halted" in capsys.readouterr().err  # Spark would start now


def test_explain_events_with_lists(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_lines("subs.jsonl", [{"where": "tags = 'c'"}, {"where": "x = 5"}])
    write_lines("events.jsonl", [{"tags": ["a", "b"], "x": [1, 6]}, {"tags": ["b", "c"], "x": 5}])
    (tmp_path / "schema.json").write_text('{"tags": "str", "x": "float"}')
    given = ["explain", "subs.jsonl", "events.jsonl", "--schema", "schema.json"]
    assert main([*given, "--event", "1", "--id", "0"]) == 0
    assert "yes  tags = 'c': tags[1] is 'c'" in capsys.readouterr().out
    assert main(given) == 0
    assert "6 (x[1])       too high by 1" in capsys.readouterr().out
    monkeypatch.setattr("rtfilter.predicates.explanations.misses.MAX_PAIRS", 11)
    assert main(given) == 0
    assert "only the first 1 event were explained" in capsys.readouterr().err
