"""The examples in the help of the commands: they are understood, and they work when pasted."""

import gzip
import os
import re
import shlex
import shutil
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forks
import rtfilter
from rtfilter.cli import COMMANDS, _parser, main

HELPS = [
    [],
    *([command] for command in COMMANDS),
    *(["index", action] for action in ("build", "info", "check")),
]
CHEAP = "--subscriptions 100 --bursts 3 --insert 2 --delete 2"
OTHERS_PORTS = {
    *(
        3000,
        4040,
        4317,
        4318,
        5000,
        5432,
        5672,
        6379,
        7077,
        8000,
        8080,
        8081,
        8086,
        8443,
        8888,
        9000,
        9042,
        9092,
    ),
    *range(9090, 10_000),  # what Prometheus and its exporters share out among themselves
}


def examples(capsys, command):
    """The commands of the examples of a help, without the shell around them."""
    assert main([*command, "--help"]) == 0
    lines = capsys.readouterr().out.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if re.match(r"  (?! )(rtfilter |.*\| rtfilter )", line)]


def words(line):
    """The arguments of each call of rtfilter in a line."""
    calls = re.split(r"&&|\|", line.partition(" > ")[0])
    return [shlex.split(call)[1:] for call in calls if call.split()[0] == "rtfilter"]


@pytest.mark.parametrize("command", HELPS, ids=" ".join)
def test_every_help_has_examples_that_are_understood(capsys, command):
    lines = examples(capsys, command)
    found = [given for line in lines for given in words(line)]
    assert any(given[: len(command)] == command for given in found)
    for given in found:
        if "COMMAND" not in given:
            _parser().parse_args(given)
    for line in lines:  # no example takes a port of another program
        own = re.sub(r"spark://host:7077", "", line)  # Spark's own
        assert not OTHERS_PORTS & {int(number) for number in re.findall(r"\b\d{4,5}\b", own)}, line


@pytest.mark.slow
def test_the_examples_work_when_pasted(capsys, monkeypatch, tmp_path):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    program = forks.executable(tmp_path / "bin", "rtfilter", "-m rtfilter")
    path = f"{program.parent}:{os.environ['PATH']}"
    lines = [line for command in HELPS for line in examples(capsys, command) if "COMMAND" not in line]
    for line in dict.fromkeys(lines):
        if "hdfs:" in line or "spark-match" in line:
            continue  # needs a cluster, or Java: the tests of Spark have it
        if re.match(r"rtfilter (serve|map|subscribe|subscriptions|publish|listen|nats)", line):
            continue  # needs a server or NATS: the tests of these have it
        runnable = line if shutil.which("jq") else line.replace(" | jq .height", "")
        runnable += f" {CHEAP}" if line.startswith("rtfilter replay") else ""
        if not set(runnable) & set("|&<>*$"):  # a shell, and a process, would only take time
            assert main(shlex.split(runnable)[1:]) == 0, runnable
            continue
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", runnable],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    made = {"pairs.csv", "pairs.parquet", "alerts-index", "monitoring", "replay.png", "replay.json"}
    assert made <= set(os.listdir(tmp_path))


def write_files(folder):
    """The files that the examples name."""
    (folder / "ann.password").write_text("correct horse\n")
    conditions = '{"id": 7, "where": "price < 10"}\n{"id": 8, "where": "symbol LIKE \'AC%\'"}\n'
    for name in ("alerts.jsonl", "subscriptions.jsonl"):
        (folder / name).write_text(conditions)
    rows = [{"symbol": "ACME", "price": 5.0 + i} for i in range(10)]
    lines = "".join(f'{{"symbol": "{row["symbol"]}", "price": {row["price"]}}}\n' for row in rows)
    for name in ("ticks.jsonl", "events.jsonl"):
        (folder / name).write_text(lines)
    (folder / "ticks.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (folder / "ticks.csv").write_text("symbol,price\n" + "".join(f"ACME,{row['price']}\n" for row in rows))
    (folder / "ticks.json").write_text('{"symbol": "str", "price": "float"}')
    pq.write_table(pa.Table.from_pylist(rows), folder / "events.parquet")
    schema = rtfilter.Schema({"symbol": str, "price": float})
    index = rtfilter.EventFilter(schema)
    index.subscribe("price < 10", id=7)
    for name in ("saved-index", "alerts-index"):
        index.save(folder / name)
