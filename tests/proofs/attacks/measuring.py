"""A server as a process, an attacker as another one, and a second client that measures its answers."""

import base64
import http.client
import json
import multiprocessing
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

SCHEMA = {"price": "float", "symbol": "str"}
PATIENCE = 60.0
"""Seconds that a second client waits for an answer."""
CALM = 3.0
"""Seconds without more memory after which a server is at rest: what searches need is loaded beside."""
LATER = 30.0
"""Seconds after the attack in which memory is given back."""
KEPT, PART = 64, 0.1
"""MB above those at rest that may stay, and the part of the peak that may stay beside."""


class Target:
    """What an attacker knows of the server.

    Attributes
    ----------
    port, tcp_port : int
    data : Path
        Its folder.
    """

    def __init__(self, port, tcp_port, data):
        self.port, self.tcp_port, self.data = port, tcp_port, data

    def link(self, port=None):
        """A connection, from another address than that of the second client."""
        there = "127.0.0.1", port or self.port
        return socket.create_connection(there, timeout=PATIENCE, source_address=("127.0.0.2", 0))

    def head(self, method, path, user="eve", **headers):
        """A request without a body, as bytes."""
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {basic(user)}"]
        lines += (f"{name.replace('_', '-')}: {value}" for name, value in headers.items())
        return "\r\n".join([*lines, "\r\n"]).encode()

    def ask(self, method, path, body=None, user="eve", kind="application/json", **headers):
        """Status and body of an answer."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        try:
            given = {"Authorization": basic(user), "Content-Type": kind, **headers}
            link.request(method, path, body, given)
            answer = link.getresponse()
            return answer.status, answer.read()
        finally:
            link.close()

    def lines(self, path, rows, user="eve"):
        """Send JSON lines, which the server has to take."""
        body = b"\n".join(json.dumps(row).encode() for row in rows)
        status, answer = self.ask("POST", path, body, user, "application/x-ndjson")
        assert status < 300, answer[:500]
        return json.loads(answer)


def basic(user):
    """The header of a user, who may be given with a password."""
    given = user if ":" in user else f"{user}:"
    return "Basic " + base64.b64encode(given.encode()).decode()


def measured(attack):
    """Attack a new server.

    Returns
    -------
    dict
        Seconds of the slowest answer of a second client; MB above rest, the most, and those when so few stay
        as may, or `LATER` has passed; and how many seconds after the attack that was.
    """
    prepare = getattr(attack, "prepare", None)
    asked = getattr(attack, "asked", ("GET", "/statistics"))
    second = getattr(attack, "second", "second")
    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "given.json"
        schema.write_text(json.dumps(SCHEMA))
        data = Path(folder) / "data"
        for one in getattr(attack, "accounts", ()):
            add_user(data, *one)
        flags = ["--data", data, "--schema", schema, "--port", 0, "--tcp-port", 0, "--log-level", "error"]
        flags += getattr(attack, "flags", ())
        command = [sys.executable, "-m", "rtfilter", "serve", *map(str, flags)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                target = Target(*_ports(server), data)
                if prepare is not None:
                    prepare(target)
                _once(target, asked, second)
                return _under(attack, target, server.pid, asked, second)
            finally:
                server.send_signal(signal.SIGKILL)


def add_user(data, name, role):
    """Add a user, whose password is the name."""
    data.mkdir(exist_ok=True)
    users("add", data, name, "--role", role, text=f"{name}-password\n")


def users(what, data, *given, text=""):
    """Run `rtfilter users`, with a text as its input."""
    command = [sys.executable, "-m", "rtfilter", "users", "--data", str(data), what, *given]
    subprocess.run(command, input=text, text=True, check=True, capture_output=True)


def _ports(server):
    """Where it says that it listens."""
    found = []
    while len(found) < 2:
        line = server.stdout.readline()
        assert line, "the server has ended"
        found += map(int, re.findall(r"127\.0\.0\.1:(\d+)", line))
    return found


def _once(target, asked, user):
    """Seconds until one good answer, over connections of their own; `PATIENCE` where there is none."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        with suppress(OSError, http.client.HTTPException):
            link = http.client.HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE)
            try:
                link.request(*asked, headers={"Authorization": basic(user)})
                answer = link.getresponse()
                answer.read()
                if answer.status == 200:
                    return time.monotonic() - begun
            finally:
                link.close()
        time.sleep(0.01)
    return PATIENCE


def _under(attack, target, pid, asked, second):
    rest = _at_rest(pid)
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the most from now on
    attacker = multiprocessing.get_context("spawn").Process(target=attack, args=(target,))
    attacker.start()
    slowest = 0.0
    try:
        while attacker.is_alive():
            slowest = max(slowest, _once(target, asked, second))
            time.sleep(0.02)
    finally:
        attacker.kill()
        attacker.join()
    assert attacker.exitcode == 0, f"the attacker ended with {attacker.exitcode}"
    begun, passed, most, left = time.monotonic(), 0.0, 0.0, 0.0
    while passed < CALM or (left > KEPT + PART * most and passed < LATER):
        slowest = max(slowest, _once(target, asked, second))
        time.sleep(0.2)
        passed = time.monotonic() - begun
        most, left = (_memory(pid, name) - rest for name in ("VmHWM", "VmRSS"))
    return {
        "slowest answer, s": round(slowest, 2),
        "memory above rest, MB": round(most),
        "afterwards, MB": round(left),
        "afterwards, s": round(passed, 1),
    }


def _at_rest(pid):
    """MB of a process that has loaded what it needs for what was prepared."""
    before, now = 0.0, _memory(pid, "VmRSS")
    while now > before + 1:
        time.sleep(CALM)
        before, now = now, _memory(pid, "VmRSS")
    return now


def _memory(pid, name):
    """MB of a process."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024
