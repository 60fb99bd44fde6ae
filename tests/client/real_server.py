"""``rtfilter serve`` as a process, which may be killed and started again."""

import json
import os
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import forks
from rtfilter.service.doors.frames import ClientDirective, Reader, ServerDirective, write

HOME = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(HOME)}


class RealServer:
    """Serves ``price`` (float) and ``symbol`` (str) from a folder; `flags` are more of the command's."""

    def __init__(self, folder, *flags, scheme="ws", **variables):
        self.folder, self.port, self.tcp_port = folder, 0, 0
        self.flags, self.scheme, self.variables = flags, scheme, variables
        (folder / "ticks.json").write_text(json.dumps({"symbol": "str", "price": "float"}))
        self.start()

    def start(self):
        self.process = forks.python(
            *("-m", "rtfilter", "serve", "--data", self.folder / "data"),
            *("--schema", self.folder / "ticks.json", "--port", self.port),
            *("--tcp-port", self.tcp_port, *self.flags),
            stdout=subprocess.PIPE,
            env=ENVIRONMENT | self.variables,
        )
        while " at http" not in (line := self.process.stdout.readline()):
            assert line, "the server has ended"
        self.port = int(line.rpartition(":")[2])
        self.tcp_port = int(self.process.stdout.readline().rpartition(":")[2])
        self.url = f"{self.scheme}://localhost:{self.port}"

    def kill(self):
        self.process.kill()
        self._gone()

    def end(self):
        """End it in good order."""
        self.process.terminate()
        assert self._gone() == 0

    def _gone(self):
        code = self.process.wait(60)
        self.process.stdout.close()
        return code


@contextmanager
def serving(folder, *flags, **more):
    """A `RealServer`, which is killed in the end if it still runs."""
    server = RealServer(folder, *flags, **more)
    try:
        yield server
    finally:
        server.kill()


class Framed:
    """A peer of the door for TCP that knows frames only."""

    def __init__(self, server, context=None):
        self._socket = socket.create_connection(("localhost", server.tcp_port), timeout=60)
        if context is not None:
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        self._frames, self._heard, self._deliveries = Reader(ServerDirective), [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def say(self, directive, **more):
        """Its answer; deliveries that come before it are kept."""
        self._socket.sendall(write(ClientDirective[directive], json.dumps({**more, "tag": 1}).encode()))
        while "tag" not in (answer := self._hear()):
            self._deliveries.append(answer)
        assert answer.pop("tag") == 1
        return answer

    def delivery(self):
        """The next delivery."""
        return self._deliveries.pop(0) if self._deliveries else self._hear()

    def _hear(self):
        while not self._heard:
            data = self._socket.recv(2**16)
            assert data, "the server has closed"
            self._frames.feed(data)
            self._heard += self._frames
        frame = self._heard.pop(0)
        return {"directive": frame.directive.name, **json.loads(frame.body or b"{}")}
