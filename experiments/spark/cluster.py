"""A Spark cluster on this machine: a master and workers, which talk over the loopback address."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from experiments.ports import free_port

PATIENCE = 300.0
"""Seconds in which all workers must have started."""


class Cluster(NamedTuple):
    """A running cluster."""

    url: str
    environment: dict[str, str]
    """Environment variables of a driver that uses the cluster."""


@contextmanager
def cluster(folder: Path, *, workers: int = 2, memory: str = "512m") -> Iterator[Cluster]:
    """Start a master and workers of one core each, and stop them at the end. Their files are in a folder.

    Raises
    ------
    RuntimeError
        They did not start; the message has their log.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    (folder / "tmp").mkdir(parents=True)
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "TMPDIR": str(folder / "tmp"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    own = ["--host", "127.0.0.1", "--webui-port", "0"]
    work = ["--cores", "1", "--memory", memory, "--work-dir", str(folder / "work"), url]
    commands = [["master.Master", *own, "--port", str(port)], *[["worker.Worker", *own, *work]] * workers]
    log_path = folder / "log"
    with open(log_path, "w") as log:
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for command in commands:
                call = [
                    str(home / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{command[0]}",
                    *command[1:],
                ]
                processes.append(subprocess.Popen(call, env=environment, stdout=log, stderr=log))
            deadline = monotonic() + PATIENCE
            while log_path.read_text().count("Successfully registered with master") < workers:
                if monotonic() > deadline:
                    raise RuntimeError(f"the cluster did not start: {log_path.read_text()}")
                sleep(0.1)
            yield Cluster(url, environment)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
