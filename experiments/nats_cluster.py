"""NATS servers with JetStream in a folder, for experiments, demos and tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from experiments.ports import free_port

PROGRAM: Final = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
"""The path of the program, or None. Debian's is not in the PATH of every user."""
PATIENCE: Final = 60.0
"""Most seconds until a server has begun."""


class Cluster:
    """Servers that know each other, on free ports of the loopback address.

    Attributes
    ----------
    urls : list of str
        Of each server.
    running : list of Popen or None
        The process of each server; None while it is stopped.
    """

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.folder = folder
        self._ports = [free_port() for _ in range(count)]
        self._routes = [free_port() for _ in range(count)]
        self.urls = [f"nats://127.0.0.1:{port}" for port in self._ports]
        self.running: list[subprocess.Popen[bytes] | None] = [None] * count

    def start(self, which: int | None = None) -> None:
        """Start one server, or all, with what they have stored; wait until they accept connections."""
        chosen = range(len(self.urls)) if which is None else [which]
        for number in chosen:
            with open(self.folder / f"{number}.log", "ab") as log:
                command = [str(PROGRAM), "-c", str(self._configure(number))]
                self.running[number] = subprocess.Popen(command, stdout=log, stderr=log)
        for number in chosen:
            self._wait(number)

    def _configure(self, number: int) -> Path:
        port, store = self._ports[number], self.folder / f"store-{number}"
        lines = [
            f"server_name: server-{number}",
            f"listen: 127.0.0.1:{port}",
            f'jetstream {{ store_dir: "{store}" }}',
        ]
        if len(self.urls) > 1:
            routes = ", ".join(f"nats://127.0.0.1:{route}" for route in self._routes)
            own = self._routes[number]
            lines.append(f"cluster {{ name: local, listen: 127.0.0.1:{own}, routes: [{routes}] }}")
        path = self.folder / f"{number}.conf"
        path.write_text("\n".join(lines))
        return path

    def _wait(self, number: int) -> None:
        until = monotonic() + PATIENCE
        while b"Server is ready" not in (self.folder / f"{number}.log").read_bytes():
            process = self.running[number]
            if process is None or process.poll() is not None or monotonic() > until:
                log = (self.folder / f"{number}.log").read_text()
                raise OSError(f"nats-server did not start: {log[-500:]}")
            sleep(0.02)

    def kill(self, which: int) -> None:
        """Kill a server; `start` starts it again with what it has stored."""
        process = self.running[which]
        if process is not None:
            process.kill()
            process.wait()
            self.running[which] = None
            (self.folder / f"{which}.log").unlink()

    def pause(self, which: Sequence[int], resume: bool = False) -> None:
        """Let servers stand still, or go on."""
        for number in which:
            process = self.running[number]
            if process is not None:
                process.send_signal(signal.SIGCONT if resume else signal.SIGSTOP)

    def stop(self) -> None:
        """Kill all servers."""
        for number in range(len(self.urls)):
            with suppress(OSError):
                self.kill(number)


@contextmanager
def cluster(count: int = 3) -> Iterator[Cluster]:
    """Yield servers that run, and remove them with all that they have stored."""
    folder = Path(tempfile.mkdtemp(prefix="nats-"))
    made = Cluster(folder, count)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
