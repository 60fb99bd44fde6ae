"""What ``make overlay-demo`` shows, in short phases."""

import subprocess
from pathlib import Path

import pytest

import forks

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_every_alert_arrives_though_a_link_is_cut_and_sites_are_killed(tmp_path):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    program = forks.starting_forks(ROOT / "scripts" / "overlay_demo.py", tmp_path)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ran = forks.python(program, "pictures", "1", cwd=tmp_path, env=env, **pipes)
    out, said = ran.communicate(timeout=900)
    assert ran.returncode == 0, out + said
    assert "every alert has arrived at every site, once" in out
    assert (tmp_path / "pictures" / "overlay.png").exists()
