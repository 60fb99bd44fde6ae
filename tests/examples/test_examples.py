"""Every example runs, as it would be run by hand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import spark_cases

HOME = Path(__file__).parents[2]
#: Of each example, its arguments and a line that it prints.
SAYS = {
    "web_alerts.py": ([], """b'{"alert": {"symbol": "ACME", "price": 9.5}, "subscription": 0}\\n'"""),
    "vehicles_in_zones.py": ([], "van 7 has left the depot after 3 reports"),
    "rules_from_database.py": ([], "then [3, 4]"),
    "replay_with_plot.py": (["replay.png"], "picture in replay.png"),
    "spark_job.py": (["."], "4,950 matches in "),
    "own_matcher.py": ([], "matches [0 1]"),
}
MARKS = {"spark_job.py": [*spark_cases.marks, pytest.mark.slow]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in SAYS])
def test_it_runs(name, tmp_path):
    arguments, line = SAYS[name]
    ran = subprocess.run(
        [sys.executable, "-W", "error", HOME / "examples" / name, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert any(said.startswith(line) for said in ran.stdout.splitlines()), ran.stdout


def test_all_are_run_and_short():
    files = {path.name: path.read_text(encoding="utf-8") for path in (HOME / "examples").glob("*.py")}
    assert files.keys() == SAYS.keys()
    for name, text in files.items():
        assert 20 <= len([line for line in text.splitlines() if line.strip()]) <= 60, name
