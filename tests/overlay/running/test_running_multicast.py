"""Multicast within a cluster, and links that are cut, in network namespaces that the test makes itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MAKE = ["unshare", "--net", "--mount", "--fork", "--kill-child"]
"""Namespaces that end with their first process."""


def why_not():
    """Why namespaces cannot be made here; empty where they can."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "needs unshare and ip: on Debian, apt-get install util-linux iproute2"
    script = (
        "mount -t tmpfs tmpfs /run && ip netns add a && ip link add b type bridge && ip netns exec a true"
    )
    tried = subprocess.run([*MAKE, "sh", "-c", script], capture_output=True, text=True)
    return f"may not make network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.mark.slow
def test_a_cluster_speaks_by_multicast_and_a_cut_link_is_gone_round():
    reason = why_not()
    if reason:
        pytest.skip(reason)
    script = 'mount -t tmpfs tmpfs /run && exec "$0" "$@"'
    paths = [str(HERE.parents[2]), str(HERE)]
    ran = subprocess.run(
        [*MAKE, "sh", "-c", script, sys.executable, str(HERE / "in_namespaces.py")],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told == {"members": 3, "moved": True, "ann": [1.0, 2.0, 3.0], "cyd": [1.0, 2.0, 3.0]}
