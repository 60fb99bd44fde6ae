"""What ``make serve-demo`` shows, with few flights."""

import subprocess
from pathlib import Path

import pytest

import forks

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_flights_are_delivered_with_their_times(tmp_path):
    program = forks.starting_forks(ROOT / "scripts" / "serve_demo.py", tmp_path)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ran = forks.python(program, "600", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, **pipes)
    out, said = ran.communicate(timeout=120)
    assert ran.returncode == 0, said
    assert "600 flights in " in out
    assert " known after " in out
