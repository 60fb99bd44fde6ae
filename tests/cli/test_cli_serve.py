"""What ``rtfilter serve`` hands to the server."""

import pytest

from rtfilter import Schema
from rtfilter.cli import FAILED, main
from rtfilter.definition import Definition
from rtfilter.service import server

TEXT = '{"symbol": "str", "price": "float"}'


@pytest.fixture
def served(monkeypatch):
    """Definitions that a server was started with."""
    found = []
    monkeypatch.setattr(server, "serve", lambda settings, schema: found.append(schema) or 0)
    return found


def test_a_schema_is_given_as_a_file_as_json_or_not_at_all(served, tmp_path):
    file = tmp_path / "schema.json"
    file.write_text(TEXT)
    for given in (
        ["--schema", str(file)],
        ["--schema", TEXT],
        ["--schema", '[{"name": "x", "type": "int"}]'],
        ["--schema", '{"schema": {"x": "int"}, "matcher": "counting"}', "--strict"],
        [],
    ):
        assert main(["serve", "--data", str(tmp_path), *given]) == 0
    named, x = Definition(Schema({"symbol": str, "price": float})), Schema({"x": int})
    strict = Schema({"x": int}, strict=True)
    assert served == [named, named, Definition(x), Definition(strict, "counting"), None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"price": "flot"}', "--schema: attribute 'price': the type 'flot' is unknown"),
        ('{"price": "float"', "--schema: not JSON"),
        ('{"schema": {"x": "int"}, "matcher": "tree"}', "--schema: unknown matcher 'tree'; choose one of"),
        ('{"price": "float", "price": "int"}', "--schema: 'price' occurs twice"),
        ("missing.json", "missing.json: No such file"),
    ],
)
def test_a_schema_that_does_not_do_is_told(served, tmp_path, capsys, text, said):
    assert main(["serve", "--data", str(tmp_path), "--schema", text]) == FAILED
    assert said in capsys.readouterr().err
    assert served == []
