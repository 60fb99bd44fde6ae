"""What ``make scale-demo`` shows, with short phases."""

import subprocess
from pathlib import Path

import pytest

import forks

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("nats")
def test_no_match_is_lost_when_a_worker_is_killed(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [ROOT / "scripts" / "scale_demo.py", tmp_path, "2"]
    out, said = forks.python(*command, cwd=tmp_path, **pipes).communicate(timeout=240)
    assert " 0 lost, 0 twice" in out, said
    assert "one of them killed" in out
    assert (tmp_path / "scale.png").stat().st_size > 5000
