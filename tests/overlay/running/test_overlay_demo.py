"""What ``make overlay-demo`` shows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_every_alert_arrives_though_a_link_is_cut_and_two_roots_are_killed(tmp_path):
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "overlay_demo.py", "pictures"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "every alert has arrived, once" in ran.stdout
    assert {one.name for one in (tmp_path / "pictures").iterdir()} == {
        "overlay-before.png",
        "overlay-after.png",
    }
