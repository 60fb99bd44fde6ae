"""Files of events, as a program reads them."""

import gzip
import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rtfilter import EventFilter, FileError, RTFilterError, Schema, infer_schema, read_events
from rtfilter.cli import main

TEXT = "id,price,code,ok,at\n1,9.5,007,true,2024-05-31\n2,,008,FALSE,2024-06-01T12:00:00Z\n"
TYPES = {"id": "int", "price": "float", "code": "str", "ok": "bool", "at": "timestamp"}
EVENTS = [
    {"id": 1, "price": 9.5, "code": "007", "ok": True, "at": "2024-05-31"},
    {"id": 2, "code": "008", "ok": False, "at": "2024-06-01T12:00:00Z"},
]


@pytest.fixture
def events(tmp_path):
    """A file of the events, by the ending of its name."""

    def write(ending):
        path = tmp_path / f"events{ending}"
        if ending == ".parquet":
            pq.write_table(pa.Table.from_pylist(EVENTS), path)
            return path
        text = TEXT if ".csv" in ending else "".join(json.dumps(event) + "\n" for event in EVENTS)
        path.write_bytes(gzip.compress(text.encode()) if ending.endswith(".gz") else text.encode())
        return path

    return write


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".jsonl", ".parquet"])
def test_events_have_the_types_of_the_schema(events, ending):
    path = events(ending)
    schema = Schema({**TYPES, **({"at": "str"} if ending == ".parquet" else {})})
    assert infer_schema(path) == schema
    assert list(read_events(str(path), schema)) == EVENTS
    assert list(read_events(path)) == EVENTS


def test_a_program_finds_what_the_command_finds(events, tmp_path, capsys):
    path, conditions = events(".csv"), ["price < 10", "code = '008'", "at > '2024-06-01'"]
    filter = EventFilter(infer_schema(path))
    filter.subscribe_many(conditions)
    found = filter.match_batch(list(read_events(path, filter.schema))).pairs().T.tolist()
    (tmp_path / "rules.jsonl").write_text("".join(json.dumps(one) + "\n" for one in conditions))
    assert main(["match", str(tmp_path / "rules.jsonl"), str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert found == [[int(cell) for cell in line.split(",")] for line in lines] == [[0, 0], [1, 1], [1, 2]]


def test_what_cannot_be_read_is_told_with_its_line(events, tmp_path):
    path = events(".csv")
    rows = read_events(path, Schema({"code": bool}))
    with pytest.raises(FileError, match=r"events\.csv:2: column 'code': '007' is not a boolean; leave"):
        next(rows)
    assert issubclass(FileError, RTFilterError)
    with pytest.raises(FileError, match=r"none of its columns \(id, price, code, ok, at\) is an attribute"):
        read_events(path, Schema({"x": float}))
    with pytest.raises(FileNotFoundError):
        read_events(tmp_path / "nothing.csv")
    with pytest.raises(FileError, match=r"the name must end in \.jsonl, \.csv or \.parquet"):
        infer_schema(__file__)


def test_the_log_tells_of_a_word_in_a_column_of_numbers(tmp_path, caplog):
    path = tmp_path / "odd.csv"
    path.write_text("x\n" + "1\n" * 20 + "none\n")
    with caplog.at_level(logging.WARNING, "rtfilter"):
        assert infer_schema(path) == Schema({"x": str})
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}:22: column 'x': 'none' makes text of a column in which 20 of 21 cells are numbers; "
        "empty this cell, or give a schema"
    ]
