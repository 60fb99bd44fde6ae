"""The server as a process, and a small client."""

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from service.kills.knowledge import FaultError

GONE = (OSError, http.client.HTTPException, WebSocketException, EOFError)
"""What a client sees of a server that is killed."""
PATIENCE = 20
"""Seconds that an answer may take."""
_TESTS = Path(__file__).parents[2]


class GoneError(Exception):
    """The server was killed."""


class Server:
    """The server as a process.

    Parameters
    ----------
    folder : Path
    url : str, optional
        Of the database.
    delay : float, optional
        Seconds after which it is killed; negative: so many after its start, even if it is not ready.
    kill_at, fault : str, optional
        See `started`.
    """

    def __init__(self, folder, url=None, delay=None, kill_at=None, fault=None):
        schema = folder / "given.json"
        schema.write_text('{"price": "float", "serial": "int"}')
        flags = ["--data", folder / "data", "--schema", schema, "--port", 0, "--redeliver", 0.4]
        flags += ["--backlog-count", 10**6, *([] if url is None else ["--database", url])]
        more = {"KILL_AT": kill_at, "FAULT": fault, "PYTHONPATH": f"{_TESTS}{os.pathsep}{_TESTS.parent}"}
        self.errors = (folder / "errors.txt").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-P", Path(__file__).with_name("started.py"), "serve", *map(str, flags)],
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | {name: value for name, value in more.items() if value is not None},
        )
        self.killed, self._timer = False, None
        if delay is not None and delay < 0:
            self._later(-delay)
        line = self.process.stdout.readline()
        self.port = int(line.rpartition(":")[2]) if " at http://127.0.0.1:" in line else None
        if self.port is None and not self.is_killed():
            raise FaultError("the server does not start; see errors.txt")
        if delay is not None and delay >= 0:
            self._later(delay)

    def _later(self, seconds):
        self._timer = threading.Timer(seconds, self.kill)
        self._timer.start()

    def kill(self):
        self.killed = True
        self.process.send_signal(signal.SIGKILL)

    def is_killed(self):
        """Whether it is gone, or soon will be; `FaultError` where it ended by itself."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return False
        if code != -signal.SIGKILL:
            raise FaultError(f"the server ended by itself, with {code}; see errors.txt")
        return True

    def end(self):
        """Kill it, if it is not dead yet; returns whether it has killed itself."""
        if self._timer:
            self._timer.cancel()
        itself = not self.killed and self.process.poll() is not None
        self.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        return itself

    def ask(self, method, path, user, body=None, allowed=(), **headers):
        """Status and JSON of an answer; `FaultError` where it is neither a success nor allowed."""
        try:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                token = base64.b64encode(f"{user}:".encode()).decode()
                names = {name.replace("_", "-"): value for name, value in headers.items()}
                link.request(method, path, body, {"Authorization": f"Basic {token}", **names})
                answer = link.getresponse()
                found = answer.read()
            finally:
                link.close()
        except GONE as error:
            raise self.reason(error) from error
        if answer.status >= 300 and answer.status not in allowed:
            raise FaultError(f"{method} {path} is answered with {answer.status}: {found!r}")
        return answer.status, json.loads(found) if found else None

    def reason(self, error):
        """Why a client got no answer, as an exception."""
        if isinstance(error, TimeoutError):
            return FaultError(f"no answer for {PATIENCE} s")
        return GoneError() if self.is_killed() else FaultError(f"the server lives, but: {error!r}")

    def session(self, user, take):
        return Session(self, user, take)


class Session:
    """A session over WebSocket; `take` is given each message that is no answer."""

    def __init__(self, server, user, take):
        self._server, self._take, self._links = server, take, ExitStack()
        try:
            link = connect(
                f"ws://127.0.0.1:{server.port}/session", max_size=None, close_timeout=0.1, compression=None
            )
            self._socket = self._links.enter_context(link)
        except GONE as error:
            raise server.reason(error) from error
        self.say("CONNECT", user=user)

    def say(self, directive, /, allowed=(), **more):
        """Say it, and take what comes until the answer."""
        try:
            self._socket.send(json.dumps({"directive": directive, **more}))
            while (message := json.loads(self._socket.recv(timeout=PATIENCE)))["directive"] not in (
                "ACK",
                "CONNECTED",
                "ERROR",
            ):
                self._take(message)
        except GONE as error:
            raise self._server.reason(error) from error
        if message["directive"] == "ERROR" and message["kind"] not in allowed:
            raise FaultError(f"{directive} {more} is answered with {message}")
        return message

    def listen(self, seconds):
        """Take what comes within so many seconds."""
        try:
            while True:
                self._take(json.loads(self._socket.recv(timeout=seconds)))
        except TimeoutError:
            return
        except GONE as error:
            raise self._server.reason(error) from error

    def close(self):
        with suppress(*GONE):
            self._links.close()
