"""What ``make serve-demo`` shows, with few flights."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_flights_are_delivered_with_their_times(tmp_path):
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "serve_demo.py", "600"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        check=True,
    )
    assert "600 flights in " in ran.stdout
    assert " known after " in ran.stdout
