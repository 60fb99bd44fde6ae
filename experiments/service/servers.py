"""Processes that are measured, each on the server's core, in folders of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from experiments.ports import free_port
from experiments.service.cases import Case
from experiments.service.offer import Line
from experiments.service.wires import Http, post
from experiments.timing import on_cores
from rtfilter.basics.dtypes import IntArray

PATH: Final = "/filters/default"
LOADED: Final = 1000
"""Subscriptions of a request."""
PATIENCE: Final = 180.0
"""Seconds that a server is given to start, in which it may have to compile."""


class Cores(NamedTuple):
    """The cores of the server and of the generator."""

    server: int
    generator: int


def cores() -> Cores:
    """Return the first and the last core of this process; the same one where it has no others."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(0, 0)
    free = sorted(os.sched_getaffinity(0))
    return Cores(free[0], free[-1])


def on_core(core: int) -> AbstractContextManager[None]:
    """Keep this thread, and processes that it starts, on a core in the meantime."""
    return on_cores(lambda _: {core})


class Server:
    """A process that is measured.

    Attributes
    ----------
    port : int
    tcp_port : int
        Of sessions over TCP; 0 where there are none.
    pid : int
    ids : int64 (n,)
        Of the subscriptions, in the order of the case.
    """

    def __init__(self, pid: int, port: int, tcp_port: int = 0) -> None:
        self.pid, self.port, self.tcp_port = pid, port, tcp_port
        self.ids: IntArray = np.zeros(0, np.int64)

    def worked(self) -> float:
        """Return the CPU seconds of the process and its children so far."""
        return sum(_cpu(pid) for pid in (self.pid, *_children(self.pid)))

    def memory(self) -> int:
        """Return bytes that the process holds."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _cpu(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@contextmanager
def process(
    command: Sequence[str], core: int, log: Path, environment: Mapping[str, str] = {}
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process on a core, which is ended in the end; what it says goes to a file."""
    with log.open("wb") as said, on_core(core):
        running = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def listens(port: int, running: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a process listens. Raises `OSError` where it ends, or takes too long."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(OSError):
            Line(port, Http()).close()
            return
        if running.poll() is not None:
            break
        time.sleep(0.05)
    raise OSError(f"a server does not start: {log.read_text(errors='replace')[-1000:]}")


@contextmanager
def rtfilter_serve(case: Case, core: int) -> Iterator[Server]:
    """Run ``rtfilter serve`` with the subscriptions of a case."""
    port, tcp_port = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        schema = json.dumps(case.schema.to_json())
        flags = {"data": f"{folder}/data", "port": port, "tcp-port": tcp_port, "schema": schema}
        flags["backlog-count"] = flags["backlog-bytes"] = 10**9  # nothing is dropped
        command = [sys.executable, "-m", "rtfilter", "serve"]
        command += [part for name, value in flags.items() for part in (f"--{name}", str(value))]
        log = Path(folder, "log")
        with process(command, core, log) as running:
            listens(port, running, log)
            made = Server(running.pid, port, tcp_port)
            made.ids = _subscribe(case, port)
            yield made


def _subscribe(case: Case, port: int) -> IntArray:
    """Subscribe all over HTTP, and wait until the index has them; returns their ids."""
    line = Line(port, Http())
    ids = np.zeros(len(case.boxes.low), np.int64)
    for user in range(case.users):
        rows = [json.dumps({"where": where}).encode() for where in case.conditions(user)]
        made: list[int] = []
        for first in range(0, len(rows), LOADED):
            body = b"\n".join(rows[first : first + LOADED])
            told = json.loads(
                line.ask(post(f"{PATH}/subscriptions", "application/x-ndjson", body, f"u{user}"))
            )
            made += [row["subscription"] for row in told["rows"]]
        ids[user :: case.users] = made
    line.ask(post(f"{PATH}/match", "application/json", b"{}", "u0"))  # waits for the changes before it
    line.close()
    return ids
