"""Ids of the command line that are text, and rows that are left out."""

import csv
import io
import json
import random
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtfilter import EventFilter, Schema
from rtfilter.cli import main

SCHEMA = {"price": "float", "symbol": "str"}
GIVEN = ["--schema", "schema.json"]
LIMITS = {"rule-17": 3, "a, b": 10, 'say "x"': 6, "007": 8, "7": 1, "ü\n": 5, " x": 7}
"""Subscriptions with text ids: prices below a limit."""


@pytest.fixture(autouse=True)
def events(tmp_path, monkeypatch):
    """A schema and events, in a temporary directory."""
    monkeypatch.chdir(tmp_path)
    Path("schema.json").write_text(json.dumps(SCHEMA))
    draw = random.Random(3)
    prices = [draw.randrange(12) for _ in range(23)]
    Path("events.jsonl").write_text("".join(json.dumps({"price": price}) + "\n" for price in prices))
    return prices


def write_subscriptions(form):
    """Write the subscriptions in a form; returns the path."""
    ids, limits = list(LIMITS), list(LIMITS.values())
    path = f"s.{form.split()[-1]}"
    if form == "jsonl":
        lines = [json.dumps({"id": id, "where": f"price < {limit}"}) for id, limit in LIMITS.items()]
        Path(path).write_text("\n".join(lines))
    elif form == "csv":
        write_csv(path, [["id", "where"], *([id, f"price < {limit}"] for id, limit in LIMITS.items())])
    elif form == "bounds csv":
        write_csv(path, [["id", "high.price"], *([id, limit - 0.5] for id, limit in LIMITS.items())])
    elif form == "bounds parquet":
        pq.write_table(pa.table({"id": ids, "high.price": [limit - 0.5 for limit in limits]}), path)
    else:
        pq.write_table(pa.table({"id": ids, "where": [f"price < {limit}" for limit in limits]}), path)
    return path


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def expected(prices):
    return [(row, id) for row, price in enumerate(prices) for id in sorted(LIMITS) if price < LIMITS[id]]


def csv_pairs(text):
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    assert header == ["event", "subscription"]
    return [(int(event), id) for event, id in rows]


def fails(capsys, *arguments):
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("rtfilter: error: ")


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "bounds csv", "bounds parquet"])
def test_match_gives_the_text_ids_of_files(events, capsys, form):
    path = write_subscriptions(form)
    assert main(["match", path, "events.jsonl", *GIVEN, "--batch", "10"]) == 0
    assert csv_pairs(capsys.readouterr().out) == expected(events)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_outputs_have_text_ids(events, ending):
    out = f"pairs.{ending}"
    assert main(["match", write_subscriptions("jsonl"), "events.jsonl", *GIVEN, "--out", out]) == 0
    if ending == "csv":
        found = csv_pairs(Path(out).read_bytes().decode())
    elif ending == "jsonl":
        lines = map(json.loads, Path(out).read_text().splitlines())
        found = [(line["event"], line["subscription"]) for line in lines]
    else:
        table = pq.read_table(out)
        assert table.schema.types == [pa.int64(), pa.string()]
        found = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert found == expected(events)


def test_outputs_without_matches_have_the_type_of_the_ids():
    Path("s.jsonl").write_text('{"id": "a", "where": "price > 99"}\n')
    assert main(["match", "s.jsonl", "events.jsonl", *GIVEN, "--out", "o.parquet"]) == 0
    table = pq.read_table("o.parquet")
    assert (table.num_rows, table.schema.types) == (0, [pa.int64(), pa.string()])


def test_a_terminal_that_lacks_a_letter_shows_it_escaped(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr("sys.stdout", output)
    Path("s.jsonl").write_text('{"id": "ü", "where": "price < 99"}\n')
    assert main(["match", "s.jsonl", "events.jsonl", *GIVEN]) == 0
    assert output.buffer.getvalue().startswith(b"event,subscription\n0,\\xfc\n")


def test_a_saved_index_keeps_text_ids(events, capsys):
    path = write_subscriptions("csv")
    assert main(["index", "build", path, *GIVEN, "--out", "index"]) == 0
    assert EventFilter.load("index").ids().dtype == object
    assert main(["index", "check", "index"]) == 0
    capsys.readouterr()
    assert main(["match", "index", "events.jsonl"]) == 0
    assert csv_pairs(capsys.readouterr().out) == expected(events)


def test_uuids_of_an_index_are_written_and_asked_for_as_text(events, capsys):
    draw = random.Random(1)
    ids = [uuid.UUID(int=draw.getrandbits(128)) for _ in range(5)]
    filter = EventFilter(Schema({"price": float}))
    filter.subscribe_many([f"price < {limit}" for limit in range(2, 7)], ids=ids)
    filter.save("index")
    assert main(["match", "index", "events.jsonl"]) == 0
    limits = sorted((str(id), limit) for limit, id in enumerate(ids, 2))
    assert csv_pairs(capsys.readouterr().out) == [
        (row, id) for row, price in enumerate(events) for id, limit in limits if price < limit
    ]
    given = ["explain", "index", "events.jsonl", "--event", "0", "--id"]
    assert main([*given, str(ids[0]).upper()]) == 0
    assert f"and subscription {ids[0]}: price < 2" in capsys.readouterr().out
    assert fails(capsys, *given, "7") == "argument --id: the ids of this index are UUIDs; got '7'\n"


def test_uuids_of_arrow_are_ids(events, capsys):
    ids = [uuid.UUID(int=5), uuid.UUID(int=4)]
    column = pa.array([id.bytes for id in ids], pa.binary(16)).cast(pa.uuid())
    pq.write_table(pa.table({"id": column, "where": ["price < 99"] * 2}), "s.parquet")
    assert main(["match", "s.parquet", "events.jsonl", *GIVEN]) == 0
    found = csv_pairs(capsys.readouterr().out)
    assert found == [(row, str(uuid.UUID(int=i))) for row in range(len(events)) for i in (4, 5)]
    assert main(["explain", "s.parquet", "events.jsonl", *GIVEN, "--event", "0", "--id", str(ids[1])]) == 0
    assert f"and subscription {ids[1]}: price < 99" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["jsonl", "bounds csv", "index"])
@pytest.mark.parametrize("id", ["007", 'say "x"'])
def test_explain_finds_a_text_id(events, capsys, form, id):
    given = GIVEN
    if form == "index":
        main(["index", "build", write_subscriptions("csv"), *GIVEN, "--out", "index"])
        path, given = "index", []
    else:
        path = write_subscriptions(form)
    capsys.readouterr()
    assert main(["explain", path, "events.jsonl", *given, "--event", "0", "--id", id]) == 0
    assert capsys.readouterr().out.startswith(f"event 0 (events.jsonl:1) and subscription {id}: price <")
    assert main(["explain", path, "events.jsonl", *given, "--id", id]) == 0
    matches = sum(price < LIMITS[id] for price in events)
    assert capsys.readouterr().out.startswith(f"{matches} of {len(events)} pairs match")
    assert "there is no subscription with the id 70\n" in fails(
        capsys, "explain", path, "events.jsonl", *given, "--event", "0", "--id", "70"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 3, "where": "TRUE"}', "the id 3 is an integer, that of s.jsonl:1 is text; use one type"),
        ('{"id": "a", "where": "TRUE"}', "the id 'a' is taken already, see s.jsonl:1"),
        ('{"id": 1.5, "where": "TRUE"}', "an id is an integer, text or a UUID, not 1.5"),
        ('{"id": true, "where": "TRUE"}', "an id is an integer, text or a UUID, not True"),
        ('{"id": "\\ud800", "where": "TRUE"}', "an id has the character '\\ud800', which UTF-8 cannot hold"),
        ('{"where": "TRUE"}', "this subscription has no id; give each one"),
    ],
)
def test_ids_that_cannot_be_used(capsys, line, message):
    Path("s.jsonl").write_text('{"id": "a", "where": "TRUE"}\n' + line)
    assert fails(capsys, "match", "s.jsonl", "events.jsonl", *GIVEN).startswith(f"s.jsonl:2: {message}")


# -- rows that are left out ----------------------------------------------------------------------------

BAD = {
    2: ("price <", "not JSON: Expecting value at column 1"),
    3: ('{"id": "b", "where": "prise < 1"}', "unknown attribute 'prise'; did you mean 'price'?"),
    4: ('{"id": "a", "where": "TRUE"}', "the id 'a' is taken already, see s.jsonl:1"),
    6: ('{"id": "d", "where": "TRUE", "ttl": -1}', ""),
    7: ('{"id": "e", "where": "price < 1", "to": 1}', "a subscription is a JSON string"),
    8: ('{"id": "f", "where": "price <"}', "not an SQL condition"),
    9: ('{"id": "g", "where": {"prise": [1]}}', "unknown attribute 'prise'"),
}


def test_every_bad_row_is_told_and_the_others_are_taken(events, capsys):
    good = {1: '{"id": "a", "where": "price < 5"}', 5: '{"id": "c", "where": "price < 3"}'}
    lines = good | {line: text for line, (text, _) in BAD.items()}
    Path("s.jsonl").write_text("\n".join(lines[line] for line in sorted(lines)))
    assert main(["match", "s.jsonl", "events.jsonl", *GIVEN, "--on-error", "skip"]) == 0
    captured = capsys.readouterr()
    limits = {"a": 5, "c": 3}
    assert csv_pairs(captured.out) == [
        (row, id) for row, price in enumerate(events) for id in "ac" if price < limits[id]
    ]
    for line, (_, reason) in BAD.items():
        assert captured.err.count(f"rtfilter: left out: s.jsonl:{line}: {reason}") == 1
    assert captured.err.count("left out: ") == len(BAD)
    assert f"rtfilter: s.jsonl: {len(BAD)} subscriptions left out\n" in captured.err
    command = ["index", "build", "s.jsonl", *GIVEN, "--out", "index"]
    assert "s.jsonl:2: not JSON" in fails(capsys, *command)
    assert main([*command, "--on-error", "skip"]) == 0
    assert EventFilter.load("index").ids().tolist() == ["a", "c"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_keep_their_numbers_where_others_are_left_out(events, capsys, ending):
    path, where = f"s.{ending}", ["price < 4", "price <", "price < 6"]
    if ending == "csv":
        write_csv(path, [["where"], *([one] for one in where)])
    else:
        pq.write_table(pa.table({"where": where}), path)
    assert main(["match", path, "events.jsonl", *GIVEN, "--on-error", "skip"]) == 0
    captured = capsys.readouterr()
    limits = {"0": 4, "2": 6}
    assert csv_pairs(captured.out) == [
        (row, id) for row, price in enumerate(events) for id in limits if price < limits[id]
    ]
    place = "s.csv:3: " if ending == "csv" else "s.parquet: row 1: "
    assert f"left out: {place}not an SQL condition" in captured.err


BAD_BOUNDS = {
    "csv": "low.price,high.price,ttl\n,3.5,\n5,4,\nx,4,\n,8,-1\n,5.5,99\n",
    "parquet": {
        "high.price": [3.5, 4, 5, 8, 5.5],
        "low.price": [None, 5, 6, None, None],
        "ttl": [None, 99, 99, -1, 99],
    },
}


@pytest.mark.parametrize("ending", BAD_BOUNDS)
def test_bad_bounds_are_left_out(events, capsys, ending):
    if ending == "csv":
        Path("s.csv").write_text(BAD_BOUNDS["csv"])
    else:
        pq.write_table(pa.table(BAD_BOUNDS["parquet"]), "s.parquet")
    assert main(["match", f"s.{ending}", "events.jsonl", *GIVEN, "--on-error", "skip"]) == 0
    captured = capsys.readouterr()
    limits = {"0": 4, "4": 6}
    assert csv_pairs(captured.out) == [
        (row, id) for row, price in enumerate(events) for id in limits if price < limits[id]
    ]
    places = [f"s.csv:{row + 2}" if ending == "csv" else f"s.parquet: row {row}" for row in range(5)]
    assert f"left out: {places[1]}: attribute 'price': low above high in [5.0, 4.0]\n" in captured.err
    if ending == "csv":
        assert f"left out: {places[2]}: column 'low.price': 'x' is not a number\n" in captured.err
    assert f"left out: {places[3]}: a time to live is finite and above 0, not -1" in captured.err
    assert f"rtfilter: s.{ending}: 3 subscriptions left out\n" in captured.err


@pytest.mark.parametrize("form", ["jsonl", "csv", "bounds csv"])
def test_only_parquet_needs_pyarrow(events, capsys, form, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["match", write_subscriptions(form), "events.jsonl", *GIVEN]) == 0
    assert csv_pairs(capsys.readouterr().out) == expected(events)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_subscriptions_expire_at_a_moment(form):
    moments = ["2500-01-01T00:00:00Z", 16725225600, None]
    rows = [{"where": f"price < {n}", "expires": moment} for n, moment in enumerate(moments)]
    if form == "jsonl":
        Path("s.jsonl").write_text("\n".join(map(json.dumps, rows)))
    elif form == "csv":
        write_csv("s.csv", [["where", "expires"], *(row.values() for row in rows)])
    else:
        at = datetime(2500, 1, 1, tzinfo=UTC)
        columns = {"where": [row["where"] for row in rows], "expires": [at, at, None]}
        pq.write_table(pa.table(columns), "s.parquet")
    assert main(["index", "build", f"s.{form}", *GIVEN, "--out", "index"]) == 0
    index = EventFilter.load("index")
    assert [index[id].expires for id in range(3)] == [16725225600, 16725225600, None]


def test_ids_of_csv_with_leading_zeros_are_text(tmp_path, capsys):
    rules, events = tmp_path / "rules.csv", tmp_path / "events.jsonl"
    rules.write_text("id,where\n00501,x > 1\n501,x > 2\n")
    events.write_text('{"x": 3}\n')
    assert main(["match", str(rules), str(events)]) == 0
    assert capsys.readouterr().out == "event,subscription\n0,00501\n0,501\n"
