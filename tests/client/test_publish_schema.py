"""``rtfilter publish`` reads a file by the schema of the server."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from real_server import RealServer

from rtfilter.cli import FAILED, main
from rtfilter.client import connect_plain

ORDERS = [{"zip": "00501", "x": "1e3", "ok": "true", "other": "7"}, {"zip": "94107", "x": "2", "ok": "0"}]
"""Cells of CSV."""
MET = {"zip = '94107'": 1, "zip = '00501' AND x = 1000 AND ok = TRUE": 1, "ok = FALSE": 1}


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    types = {"zip": "str", "x": "float", "ok": "bool"}
    server = RealServer(tmp_path_factory.mktemp("orders"), "--schema", json.dumps(types))
    yield server
    server.kill()


def csv(path, rows):
    header = list(rows[0])
    lines = [header, *([row.get(name, "") for name in header] for row in rows)]
    path.write_text("".join(",".join(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("--schema", "FILE")], ids=["asked", "given"])
def test_the_schema_decides_what_a_cell_is(orders, tmp_path, capsys, given):
    path, schema = csv(tmp_path / "orders.csv", ORDERS), tmp_path / "schema.json"
    schema.write_text('{"zip": "str", "x": "float", "ok": "bool"}')
    given = [str(schema) if one == "FILE" else one for one in given]
    with connect_plain(orders.url, user="ann") as client:

        def publish():
            assert main(["publish", path, "--user", "ann", "--url", orders.url, *given]) == 0

        if given:
            publish()
        else:
            ids = [client.subscribe(where) for where in MET]
            publish()
            found = []
            for delivery in client.deliveries(timeout=5):
                found += [(event.subscriptions, event.body) for event in delivery.events]
                if len(found) == 2:
                    break
            assert sorted(id for some, _ in found for id in some) == sorted(ids)
            assert {"zip": "00501", "x": 1000.0, "ok": True, "other": 7} in [body for _, body in found]
    said = capsys.readouterr().err
    assert said.count('{"other": "int"}') == 1  # the filter does not know it


@pytest.mark.slow
def test_nothing_is_said_of_a_text_that_the_schema_has(orders, tmp_path, capsys):
    path = csv(
        tmp_path / "orders.csv", [{"zip": "none" if k == 3 else str(k), "other": "7"} for k in range(30)]
    )
    assert main(["publish", path, "--user", "ann", "--url", orders.url]) == 0
    said = capsys.readouterr().err
    assert '{"other": "int"}' in said
    assert "makes text" not in said


@pytest.mark.slow
def test_a_cell_of_another_type_is_refused(orders, tmp_path, capsys):
    path = csv(tmp_path / "orders.csv", [{"zip": "1", "x": "1"}, {"zip": "2", "x": "much"}])
    assert main(["publish", path, "--user", "ann", "--url", orders.url]) == FAILED
    assert f"{path}:3: column 'x': 'much' is not a number; leave the cell empty" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_values_of_another_type_are_told_once(orders, tmp_path, capsys, form):
    path = tmp_path / f"orders.{form}"
    match form:
        case "jsonl":
            path.write_text('{"zip": "1"}\n{"zip": 94107}\n{"zip": 94108}\n')
        case "parquet":
            pq.write_table(pa.table({"zip": [None, 94107, 94108]}), path)
    assert main(["publish", str(path), "--user", "ann", "--url", orders.url]) == 0
    place = f"{path}: row 1" if form == "parquet" else f"{path}:2"
    assert capsys.readouterr().err.count(f"{place}: attribute 'zip' is a string, and 94107 is none") == 1


@pytest.mark.slow
def test_a_table_of_something_else_is_not_published(orders, tmp_path, capsys):
    path = csv(tmp_path / "orders.csv", [{"plz;preis": "94107;1"}])
    assert main(["publish", path, "--user", "ann", "--url", orders.url]) == FAILED
    said = capsys.readouterr().err
    assert "none of its columns (plz, preis) is an attribute of the schema (zip, x, ok)" in said
    assert main(["publish", path, "--user", "ann", "--url", "ws://127.0.0.1:9"]) == FAILED
    assert "the schema cannot be read from http://127.0.0.1:9/filters/default" in capsys.readouterr().err
    assert main(["publish", path, "--user", "ann", "--url", orders.url, "--filter", "none"]) == FAILED
    assert "there is no filter 'none'" in capsys.readouterr().err
