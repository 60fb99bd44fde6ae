"""The page of the service: its commands, asked of a server; its tables, held against the code."""

import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import forks
import postgresql
from rtfilter.predicates.boxes.compiling import MAX_UNBOUNDED
from rtfilter.service import hosted, owners, writing
from rtfilter.service.doors import admission, bodies, door, streamed, timeouts, websocket
from rtfilter.service.service_errors import KINDS
from rtfilter.service.settings import Settings
from rtfilter.store import user_store
from service.doors.test_rights import TABLE

HOME = Path(__file__).parents[2]
PAGE = (HOME / "docs" / "service.md").read_text(encoding="utf-8")
SHORT = {
    r'("(?:at|response)": ?)[\d.e-]+': r"\1N",
    r'"connection":"[0-9a-f-]+"': '"connection":"N"',
    r"[\d,]+ a second": "N a second",
    r'"request":"[0-9a-f]+"': '"request":"ID"',
    r"\d{4}-\d\d-\d\d": "DAY",
    r"--data \S+/alerts ": "--data /home/me/alerts ",
}
"""What is another one each time."""


class Shown(NamedTuple):
    """A command of the page, and the lines below it."""

    command: str
    lines: list[str]


def shown(postgresql=False):
    """The commands with a database of PostgreSQL, or all others, in their order."""
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        if ("postgresql" in block) != postgresql:
            continue
        for command, lines in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:[^$].*\n)*)", block, re.MULTILINE):
            if not command.startswith(("pip ", "openssl ", "export ")):
                yield Shown(command, lines.splitlines())


class Reader:
    """Follows the page in a folder, with other ports."""

    def __init__(self, folder, ports, **more):
        self.folder, self._ports, self._server = folder, ports, None
        programs = folder / "programs"
        programs.mkdir()
        forks.executable(programs)
        forks.executable(programs, "rtfilter", "-m rtfilter")
        (folder / ".curlrc").write_text("silent\nshow-error\n")
        bare = {name: value for name, value in os.environ.items() if not name.startswith("RTFILTER_")}
        self._own = bare | {
            "PATH": f"{programs}:{bare['PATH']}",
            "PYTHONPATH": str(HOME),
            "CURL_HOME": str(folder),
            "RTFILTER_PORT": ports["8080"],
            "RTFILTER_URL": f"ws://127.0.0.1:{ports['8080']}",
            **more,
        }

    def here(self, text):
        """What the page says, with the ports of this test."""
        return re.sub("8080|8443", lambda port: self._ports[port[0]], text)

    def start(self, command):
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}" if "|" not in command else command],
            cwd=self.folder,
            env=self._own,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def serve(self, one):
        """Start a server in place of the one before; what it says while it starts."""
        self.end()
        self._server = self.start(self.here(one.command))
        said = []
        while len(said) < len(one.lines):
            line = self._server.stdout.readline()
            assert line, said
            if not line.startswith("{"):  # of the log, where kernels are compiled
                said.append(line.rstrip("\n"))
        return said

    def end(self):
        if self._server is not None:
            self._server.terminate()
            self._server.communicate(timeout=120)

    def ask(self, one):
        """Run a command to its end; what it says."""
        patience = time.monotonic() + 120
        while True:
            asked = self.start(self.here(one.command))
            said, _ = asked.communicate("a password of ann's\n", timeout=120)
            early = '"deliveries":[]' in said and '"deliveries":[]' not in one.lines[0]
            if not early or time.monotonic() > patience:
                return said.splitlines()

    def talk(self, one):
        """Hold a session by hand; returns both sides."""
        hand = self.start(self.here(one.command))
        said = []
        for line in one.lines:
            if line.startswith("> "):
                hand.stdin.write(line.removeprefix("> ") + "\n")
                hand.stdin.flush()
                said.append(line)
                continue
            while not (heard := re.search(r"(< .*|Connected.*)", hand.stdout.readline())):
                assert hand.poll() is None, said
            said.append(heard[1])
        hand.communicate(timeout=120)
        return said


def alike(lines):
    """Without what is another one each time."""
    text = "\n".join(line.rstrip() for line in lines if not line.startswith(("password of", "once more")))
    for pattern, short in SHORT.items():
        text = re.sub(pattern, short, text)
    return text


def free():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return str(one.getsockname()[1])


@contextmanager
def reading(folder, **more):
    reader = Reader(folder, {"8080": free(), "8443": free()}, **more)
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (folder / "alert.py").write_text(reader.here(program))
    for user in ("ann", "bob"):
        (folder / f"{user}.password").write_text(f"a password of {user}'s\n")
    try:
        yield reader
    finally:
        reader.end()


def follow(reader, commands):
    """Do what the page says; it has to answer as the page shows."""
    for one in commands:
        if one.command.startswith("rtfilter serve"):
            said = reader.serve(one)
        elif "-m websockets" in one.command:
            said = reader.talk(one)
        else:
            said = reader.ask(one)
        assert alike(said) == alike(map(reader.here, one.lines)), one.command


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("openssl")), reason="no curl or openssl")
def test_a_stranger_gets_what_the_page_shows(tmp_path):
    (certificate,) = re.findall(r"^\$ (openssl (?:.*\\\n)*.*)", PAGE, re.MULTILINE)
    subprocess.run(["bash", "-c", certificate], cwd=tmp_path, check=True, capture_output=True)
    with reading(tmp_path) as reader:
        follow(reader, shown())


@pytest.mark.slow
@pytest.mark.needs("postgresql")
def test_the_same_with_postgresql(tmp_path):
    with postgresql.server() as dsn:
        place = dict(part.split("=") for part in dsn.split())
        url = f"postgresql+psycopg://{place['user']}@/{place['dbname']}?host={place['host']}"
        with reading(tmp_path, RTFILTER_DATABASE=url) as reader:
            follow(reader, shown(postgresql=True))
            assert reader.ask(Shown("rtfilter users --data alerts list", []))[0].startswith("ann  admin")
        assert not (tmp_path / "alerts" / "log.sqlite").exists()


def rows(heading):
    """Cells of the first table below a heading, without its head."""
    text = PAGE[PAGE.index(f"## {heading}\n") :]
    (table, *_) = re.findall(r"^(?:\|.*\n)+", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]


def told(value):
    """A default, as the page says it."""
    if value is None:
        return "none"
    if value is False:
        return "no"
    if type(value) is int and value >= 2**20 and value % 2**20 == 0:
        return f"{value // 2**20} MiB"
    if type(value) is int and value > 9999:
        return f"{value:,}"
    if type(value) is float:
        days = value / 86_400
        return f"{value:g} seconds" if days < 1 else "1 day" if days == 1 else f"{days:g} days"
    return str(value)


def test_the_table_of_limits_has_all_settings_with_their_defaults():
    known = {
        f"`--{field.name.replace('_', '-')}`": told(field.default)
        for field in msgspec.structs.fields(Settings)
        if field.name not in ("data", "port", "database")
    }
    known |= {"`--data`": "needed", "`--port`": "8080", "`--database`": "SQLite"}
    assert {flag: default for flag, default, _ in rows("Limits")} == known


def test_the_limits_that_are_fixed_are_those_of_the_code():
    text = PAGE[PAGE.index("These limits are fixed:") :]
    found = dict(re.findall(r"^\| (.*?) \| ([\d,]+)", text, re.MULTILINE))
    assert {name: int(value.replace(",", "")) for name, value in found.items()} == {
        "KiB of a session before CONNECT": timeouts.STRANGE // 2**10,
        "frames of a session before CONNECT": timeouts.STRANGE_FRAMES,
        "unauthenticated connections of one address, or of one /64 network of IPv6": admission.MOST_STRANGERS,
        "connections of a user over HTTP; further ones count as unauthenticated": admission.MOST_OF_A_USER,
        "answers over HTTP to a user at the same time; others wait": streamed.MOST_ANSWERS,
        "events or subscriptions in a request": bodies.MOST_EVENTS,
        "JSON that is no event: a filter, a subscription, a question": bodies.MOST_DOCUMENT // 2**20,
        "a page of an answer": door.MOST_OF_A_PAGE,
        "headers of a request, with trailers": timeouts.MOST_HEADERS // 1024,
        "headers of a request, by count": timeouts.MOST_LINES,
        "`metadata` of a subscription, as JSON": owners.MOST_METADATA,
        "an idempotency key": writing.MOST_KEY,
        "a user's name": user_store.MOST_NAME,
        "filters": hosted.MOST_FILTERS,
        "unbounded subscriptions of a filter, unless `max_unbounded` says another number": MAX_UNBOUNDED,
        "seconds of a TLS handshake": admission.HANDSHAKE,
        "seconds to send CONNECT, without the server's check of the user": websocket.CONNECT_WITHIN,
        "seconds without progress, in sending a message or in reading an answer": bodies.SILENT,
    }
    assert f"one second more for each {bodies.SLOWEST:,} bytes" in text


def test_the_table_of_paths_has_all_of_them_and_who_may():
    shown = {(method, path.strip("`")): who for method, path, _, who in rows("Over HTTP")}
    known = {}
    for method, path, _, (nobody, _, owner, other, publisher) in TABLE:
        if "?" in path or path == "/nothing":
            continue
        name = re.sub("/filters/(default|more|none)", "/filters/{filter}", path).replace("OWN", "{id}")
        name = name.replace("/sites/none", "/sites/{site}")
        if nobody == 200:
            who = "anyone"
        elif owner == publisher == 403:
            who = "admin"
        elif owner == 403:
            who = "publisher"
        elif name == "/subscriptions/{id}":
            assert other == 404
            who = "its user"
        else:
            who = "subscriber" if publisher == 403 else "every user"
        known[method, name] = who
    assert {place: who.partition(";")[0] for place, who in shown.items()} == known


def test_the_page_has_all_errors_of_http():
    shown = re.findall(r"^\| (\d{3}) \| `([\w-]+)` \|", PAGE, re.MULTILINE)
    assert {kind: int(status) for status, kind in shown} == {
        kind: status for kind, (status, _) in KINDS.items() if kind not in ("directive", "frame")
    }
