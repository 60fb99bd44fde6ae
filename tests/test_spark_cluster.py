"""Matching on a real cluster: a master and two workers, each in a process of its own, on this machine."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyspark
import pytest

import spark_cases
from rtfilter import EventFilter, Schema

pytestmark = [*spark_cases.marks, pytest.mark.slow]
HOME = Path(pyspark.__file__).parent


@pytest.fixture
def cluster(tmp_path):
    """URL of a master with two workers of one core, and the environment of its processes."""
    (tmp_path / "tmp").mkdir()
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "TMPDIR": str(tmp_path / "tmp"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    own = ["--host", "127.0.0.1", "--webui-port", "0"]
    worker = [
        f"{deploy}.worker.Worker",
        *own,
        "--cores",
        "1",
        "--memory",
        "512m",
        "--work-dir",
        tmp_path / "work",
    ]
    commands = [[f"{deploy}.master.Master", *own, "--port", str(port)], [*worker, url], [*worker, url]]
    with open(tmp_path / "log", "w") as log:
        processes = [
            subprocess.Popen(
                [HOME / "bin" / "spark-class", *command], env=environment, stdout=log, stderr=log
            )
            for command in commands
        ]
        try:
            deadline = time.monotonic() + 60
            while (tmp_path / "log").read_text().count("Successfully registered with master") < 2:
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.1)
            yield url, environment
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


def test_a_killed_executor_loses_nothing_and_the_index_is_sent_once(cluster, tmp_path):
    url, environment = cluster
    low = np.random.default_rng(2).random((5000, 3))
    filter = EventFilter(Schema(dict.fromkeys("xyz", float)))
    filter.subscribe_many(low, low + 0.02)
    filter.save(tmp_path / "index")
    driver = [sys.executable, Path(__file__).parent / "cluster_driver.py", url, tmp_path / "index"]
    run = subprocess.run(driver, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.stdout.splitlines()[-3:] == ["killed True", "pairs True", "homes 1"], run.stderr[-8000:]
