"""Commands tell misspelt names and values of another type by their place, and refuse them with --strict."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtfilter import EventFilter
from rtfilter.cli import main

SCHEMA = '{"price": "float", "symbol": "str"}'


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "subs.jsonl").write_text('"price < 10"\n"symbol = \'A\'"\n')
    lines = [{"price": 5}, {"prise": 5, "symbol": "A"}, {"price": "9.5"}, {"price": "8"}, {"prise": 1}]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (tmp_path / "events.csv").write_text("prise,symbol\n5,A\n")
    pq.write_table(pa.table({"Price": [5.0], "symbol": ["A"], "note": ["x"]}), "events.parquet")


HINTS = {
    "events.jsonl": [
        "events.jsonl:2: unknown attribute 'prise'; did you mean 'price'?",
        "events.jsonl:3: attribute 'price' is a number, and '9.5' is none",
    ],
    "events.csv": ["events.csv: unknown attribute 'prise'; did you mean 'price'?"],
    "events.parquet": ["events.parquet: unknown attribute 'Price'; did you mean 'price'?"],
}


@pytest.mark.parametrize("name", HINTS)
@pytest.mark.parametrize("command", ["match", "explain", "replay"])
def test_each_is_told_once_with_its_place(command, name, capsys):
    more = ["--bursts", "1"] if command == "replay" else []
    assert main([command, "subs.jsonl", name, "--schema", SCHEMA, *more]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if name in line]
    assert len(told) == len(HINTS[name]), told
    for line, hint in zip(told, HINTS[name], strict=True):
        assert line.removeprefix("rtfilter: ").startswith(hint)


def test_match_counts_them(capsys):
    assert main(["match", "subs.jsonl", "events.jsonl", "--schema", SCHEMA]) == 0
    told = capsys.readouterr().err
    assert "the events had 2 misspelt names and 2 values of another type than their attribute" in told
    assert "event 1:" not in told  # the place says more than the log of the filter


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("events.jsonl", "events.jsonl:2: unknown attribute 'prise'; did you mean 'price'?"),
        ("events.csv", "events.csv: unknown attribute 'prise'; did you mean 'price'?"),
        ("events.parquet", "events.parquet: unknown attribute 'Price'; did you mean 'price'?"),
    ],
)
@pytest.mark.parametrize("saved", [False, True])
def test_strict_refuses_them(name, said, saved, capsys):
    given, schema = "subs.jsonl", ["--schema", SCHEMA]
    if saved:
        given, schema = "index", []
        assert main(["index", "build", "subs.jsonl", "--schema", SCHEMA, "--out", "index"]) == 0
    for command in ("match", "explain"):
        assert main([command, given, name, *schema, "--strict"]) == 2
        assert said in capsys.readouterr().err


def test_a_strict_schema_and_an_index_of_it_refuse_them(capsys):
    strict = json.dumps({"strict": True, "attributes": json.loads(SCHEMA)})
    assert main(["match", "subs.jsonl", "events.jsonl", "--schema", strict]) == 2
    assert main(["index", "build", "subs.jsonl", "--schema", SCHEMA, "--strict", "--out", "index"]) == 0
    assert EventFilter.load("index").schema.strict
    capsys.readouterr()
    assert main(["match", "index", "events.jsonl"]) == 2
    assert "events.jsonl:2: unknown attribute 'prise'" in capsys.readouterr().err


def test_serve_needs_a_schema_for_strict(capsys):
    assert main(["serve", "--strict"]) == 2
    assert "give --schema, too" in capsys.readouterr().err
