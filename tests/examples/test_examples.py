"""Every example runs, as it would be run by hand."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import forks
import postgresql

pytestmark = pytest.mark.slow

HOME = Path(__file__).parents[2]
#: Of each example, its arguments and a line that it prints.
SAYS = {
    "web_alerts.py": ([], """b'{"alert": {"symbol": "ACME", "price": 9.5}, "subscription": 0}\\n'"""),
    "vehicles_in_zones.py": ([], "van 7 has left the depot after 3 reports"),
    "rules_from_database.py": ([], "then [3, 4]"),
    "replay_with_plot.py": (["replay.png"], "picture in replay.png"),
    "own_matcher.py": ([], "matches [0 1]"),
    "own_pipeline.py": ([], "to bob: s2 is at 1.5"),
    "topics.py": ([], "sports/football/results -> all sports, football, results of all sports"),
}
#: Examples with a test of their own.
OTHERS = {"load_rules.py", "load_rules_data.py", "spark_job.py"}
START = """
import runpy, sys, warnings
warnings.simplefilter("error")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("name", SAYS)
def test_it_runs(name, tmp_path):
    arguments, line = SAYS[name]
    said = run(name, arguments, tmp_path)
    assert any(each.startswith(line) for each in said), said


def test_the_replay_takes_files(tmp_path):
    (tmp_path / "subscriptions.jsonl").write_text(
        '{"id": 3, "where": "price < 10"}\n{"where": {"price": [5]}}\n'
    )
    (tmp_path / "events.jsonl").write_text('{"price": 9.5}\n{"price": 50}\n')
    said = run("replay_with_plot.py", ["replay.png", "subscriptions.jsonl", "events.jsonl"], tmp_path)
    assert any(line.startswith("subscriptions.jsonl: 2 subscriptions,") for line in said)
    assert said[-1] == "picture in replay.png"


def run(name, arguments, folder):
    """Run an example, where a warning is an error; the lines that it prints."""
    (folder / "start.py").write_text(START)
    command = [folder / "start.py", HOME / "examples" / name, *arguments]
    ran = forks.python(*command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, said = ran.communicate(timeout=600)
    assert ran.returncode == 0, said
    return out.splitlines()


def test_the_job_of_spark_runs_in_the_session_that_there_is(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(spark.sparkContext, "setLogLevel", lambda level: None)
    example = runpy.run_path(str(HOME / "examples" / "spark_job.py"))
    example["main"](tmp_path)
    assert "4,950 matches in " in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.needs("java")
def test_the_job_of_spark_runs_by_itself(tmp_path):
    path = os.pathsep.join([str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-W", "error", HOME / "examples" / "spark_job.py", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("4,950 matches in ")


@pytest.mark.slow
@pytest.mark.needs("postgresql")
def test_rules_are_loaded_from_a_database_and_from_files(tmp_path):
    pytest.importorskip("psycopg")
    with postgresql.server() as dsn:
        run("load_rules_data.py", [dsn, "patterns", "5000"], tmp_path)
        said = run("load_rules.py", [dsn, "patterns"], tmp_path)
    assert said[:3] == [
        "4,850 rules from the database",
        "970 patterns from files",
        "180 cannot be used, such as",
    ]
    assert said[3].startswith("row 17, id 'rule-00017': ")
    assert any(line.startswith("row 983, id 'patterns-9.json:83': ") for line in said)


def test_all_are_run_and_short():
    files = {path.name: path.read_text(encoding="utf-8") for path in (HOME / "examples").glob("*.py")}
    assert files.keys() == SAYS.keys() | OTHERS
    for name, text in files.items():
        assert 20 <= len([line for line in text.splitlines() if line.strip()]) <= 60, name
