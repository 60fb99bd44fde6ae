"""A Spark cluster on this machine: a master and workers, which talk over the loopback address."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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


INTERVAL = 0.5
"""Seconds between two looks."""


class Use(NamedTuple):
    """The largest numbers of bytes that were seen."""

    together: int
    """Of all processes together; a page that n of them share counts 1/n for each."""
    largest: int
    """Of one process, with the pages that it shares."""
    name: str
    """Name of that process."""


class Watch:
    """Context manager that watches all processes that this process started, directly or not.

    `use` holds the largest numbers so far. They are 0 on systems without /proc.

    Parameters
    ----------
    root : callable
        Returns the id of the process whose descendants are watched, by default this one.
    """

    def __init__(self, root: Callable[[], int] = os.getpid) -> None:
        self.use = Use(0, 0, "")
        self._root, self._end = root, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        """Read the numbers once."""
        together, largest, name = self.use
        total = 0
        for pid in descendants(self._root()):
            with suppress(OSError):  # the process has ended
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in text.splitlines()[1:]}
                total += sizes["Pss:"]
                if sizes["Rss:"] > largest:
                    largest, name = sizes["Rss:"], Path(f"/proc/{pid}/comm").read_text().strip()
        self.use = Use(max(together, total), largest, name)


def descendants(root: int) -> list[int]:
    """Return ids of the processes that a process started, directly or not; without itself."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            after_name = entry.read_text().rpartition(")")[2].split()
            children.setdefault(int(after_name[1]), []).append(int(entry.parent.name))
    found: list[int] = []
    pending = [root]
    while pending:
        own = children.get(pending.pop(), [])
        found += own
        pending += own
    return found


def processor_seconds(root: int) -> float:
    """Return the processor time of a process and all that it started and that still run; 0 without /proc."""
    ticks = 0
    for pid in [root, *descendants(root)]:
        with suppress(OSError):  # the process has ended
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(after_name[11]) + int(after_name[12])
    return ticks / os.sysconf("SC_CLK_TCK")
