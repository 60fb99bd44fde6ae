"""The server as a process, and a small client."""

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from websockets.exceptions import WebSocketException

import forks
from service.kills.knowledge import FaultError
from service.kills.links import over_websocket

GONE = (OSError, http.client.HTTPException, WebSocketException, EOFError)
"""What a client sees of a server that is killed."""
PATIENCE = 60
"""Seconds that an answer may take."""
STARTED = Path(__file__).with_name("started.py")


class GoneError(Exception):
    """The server was killed, or told to end."""


class BusyError(Exception):
    """The server said: try again."""


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
    flags : sequence, optional
        More of ``rtfilter serve``.
    started : Path, optional
        What is run.
    new : bool
        Whether a new Python runs it, and no fork, which has imported all modules already.
    patient : bool
        Whether it may say that it is to be asked again: then `BusyError` is raised, and no fault.
    variables
        More of the environment.

    Attributes
    ----------
    port, tcp_port : int or None
        Where it listens; None where it was killed before.
    """

    def __init__(
        self,
        folder,
        url=None,
        delay=None,
        kill_at=None,
        fault=None,
        *,
        flags=(),
        started=STARTED,
        new=False,
        patient=False,
        **variables,
    ):
        schema = folder / "given.json"
        schema.write_text('{"price": "float", "serial": "int"}')
        given = ["--data", folder / "data", "--port", 0, "--redeliver", 0.4, "--backlog-count", 10**6]
        given += [*([] if url is None else ["--database", url]), *(flags or ["--schema", schema])]
        more = {"KILL_AT": kill_at, "FAULT": fault, "PYTHONPATH": forks.PATH} | variables
        self.patient = patient
        self.errors = (folder / "errors.txt").open("a")
        self.process = (forks.new if new else forks.python)(
            *(started, "serve", *given),
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=os.environ | {name: value for name, value in more.items() if value is not None},
        )
        self.killed, self.ended, self._timer = False, False, None
        if delay is not None and delay < 0:
            self.kill_after(-delay)
        line = re.search(r" at http://127.0.0.1:(\d+)", self.process.stdout.readline())
        self.port = int(line[1]) if line else None
        try:
            if self.port is None and not self.is_killed():
                raise FaultError("the server does not start; see errors.txt")
        except FaultError:
            self.end()
            raise
        self.tcp_port = None
        if self.port is not None and "--tcp-port" in given:
            line = self.process.stdout.readline()
            self.tcp_port = int(line.rpartition(":")[2]) if line else None
        if delay is not None and delay >= 0:
            self.kill_after(delay)

    def kill_after(self, seconds):
        """Kill it so many seconds from now."""
        self._timer = threading.Timer(seconds, self.kill)
        self._timer.start()

    def kill(self):
        self.killed = True
        self.process.send_signal(signal.SIGKILL)

    def stop(self):
        """Tell it to end in good order."""
        self.ended = True
        self.process.send_signal(signal.SIGTERM)

    def is_killed(self):
        """Whether it is gone, or soon will be; `FaultError` where it ended by itself."""
        try:
            code = self.process.wait(PATIENCE if self.ended else 30)
        except subprocess.TimeoutExpired:
            return False
        if code != -signal.SIGKILL and not (self.ended and code == 0):
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
        if answer.status == 503 and self.patient and 503 not in allowed:
            if int(answer.headers["retry-after"]) < 1:
                raise FaultError(f"{method} {path} is to be asked again, but not when: {found!r}")
            raise BusyError(json.loads(found)["detail"])
        if answer.status == 503 and self.ended and 503 not in allowed:
            raise self.reason(ConnectionError(found))
        if answer.status >= 300 and answer.status not in allowed:
            raise FaultError(f"{method} {path} is answered with {answer.status}: {found!r}")
        return answer.status, json.loads(found) if found else None

    def reason(self, error):
        """Why a client got no answer, as an exception."""
        if isinstance(error, TimeoutError):
            return FaultError(f"no answer for {PATIENCE} s")
        return GoneError() if self.is_killed() else FaultError(f"the server lives, but: {error!r}")

    def session(self, user, take, link=over_websocket, port=None):
        return Session(self, user, take, link, port)


class Session:
    """A session over a link of `links`; `take` is given each message that is no answer."""

    def __init__(self, server, user, take, link=over_websocket, port=None):
        self._server, self._take, self._links = server, take, ExitStack()
        try:
            self._socket = self._links.enter_context(link(port or server.port))
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
            if message["kind"] == "busy" and self._server.patient:
                raise BusyError(message["error"])
            if message["kind"] == "busy" and self._server.ended:
                raise self._server.reason(ConnectionError(message["error"]))
            raise FaultError(f"{directive} {more} is answered with {message}")
        return message

    def listen(self, seconds, most=None):
        """Take what comes: until nothing does for so many seconds, or so many at most; returns how many."""
        count = 0
        try:
            while count != most:
                message = json.loads(self._socket.recv(timeout=seconds))
                if self._server.ended and message.get("kind") == "busy":
                    continue  # it says that it ends, and then does
                self._take(message)
                count += 1
        except TimeoutError:
            pass
        except GONE as error:
            raise self._server.reason(error) from error
        return count

    def close(self):
        with suppress(*GONE):
            self._links.close()
