"""A server that is told to end first sends what it has accepted."""

import json
import signal
import socket
import subprocess
from contextlib import ExitStack, closing
from urllib.request import urlopen

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import forks
from lengths import long_but
from rtfilter.service import pipeline as module
from rtfilter.service.doors.frames import ClientDirective, Reader, ServerDirective, write
from service.running import running

pytestmark = pytest.mark.slow
MANY = 3000
LINES = b'{"price": 1}\n' * MANY


class OverWebSocket:
    """A session as its peer sees it; None is its end."""

    def __init__(self, opened):
        self._link = ExitStack()
        url = f"ws://127.0.0.1:{opened.port}/session"
        self._socket = self._link.enter_context(connect(url, close_timeout=1))
        self.code = None

    def say(self, **told):
        self._socket.send(json.dumps(told))

    def hear(self):
        try:
            return json.loads(self._socket.recv(timeout=60))
        except ConnectionClosed as closed:
            self.code = closed.rcvd.code
            return None

    def close(self):
        self._link.close()


class OverTCP:
    code = 1012  # it has none

    def __init__(self, opened):
        self._socket = socket.create_connection(("127.0.0.1", opened.tcp_port), timeout=60)
        self._frames, self._heard = Reader(ServerDirective), []

    def say(self, directive, **told):
        self._socket.sendall(write(ClientDirective[directive], json.dumps(told).encode()))

    def hear(self):
        while not self._heard:
            data = self._socket.recv(2**16)
            if not data:
                return None
            self._frames.feed(data)
            self._heard += self._frames
        one = self._heard.pop(0)
        return {"directive": one.directive.name, **json.loads(one.body or b"{}")}

    def close(self):
        self._socket.close()


def ending(server):
    """Have it end as a signal would."""
    server._loop.call_soon_threadsafe(server.opened.end)


@pytest.mark.parametrize("session", [OverWebSocket, OverTCP])
def test_what_was_accepted_reaches_who_is_ready_before_the_connection_closes(tmp_path, session):
    with running(tmp_path, tcp_port=0) as server, closing(session(server.opened)) as peer:
        peer.say(directive="CONNECT", user="ann")
        peer.say(directive="SUBSCRIBE", where="price > 0")
        peer.say(directive="READY")
        assert [peer.hear()["directive"] for _ in range(3)] == ["CONNECTED", "ACK", "ACK"]
        kind = "application/x-ndjson"
        answer = server.ask("POST", "/filters/default/events", LINES, user="carl", kind=kind)
        ending(server)
        heard = list(iter(peer.hear, None))
        assert [one["position"] for one in heard[:-1]] == answer.body["positions"]
        assert (heard[-1]["directive"], heard[-1]["kind"]) == ("ERROR", "busy")
        assert peer.code == 1012


def test_while_it_stops_events_are_refused_and_nobody_is_sent_here(tmp_path):
    with running(tmp_path) as server, closing(OverWebSocket(server.opened)) as peer:
        peer.say(directive="CONNECT", user="ann")
        assert peer.hear()["directive"] == "CONNECTED"
        server.pipeline.publishing.stopping = True
        ready = server.ask("GET", "/readyz")
        assert (ready.status, ready.body) == (503, {"status": "stopping"})
        assert server.ask("GET", "/healthz").status == 200
        refused = server.ask("POST", "/filters/default/events", {"price": 1})
        assert (refused.status, refused.body["type"]) == (503, "/problems/busy")
        assert int(refused.headers["retry-after"]) > 0
        peer.say(directive="PUBLISH", event={"price": 1})
        assert peer.hear()["kind"] == "busy"
        with closing(OverWebSocket(server.opened)) as late:
            late.say(directive="CONNECT", user="bob")
            assert late.hear()["retry_after"] > 0


class Stuck:
    """A session whose peer takes nothing."""

    who, owed = None, 5

    def __init__(self):
        self.told = []

    def refuse(self, error):
        self.told.append(error.kind)

    def expel(self):
        pass


def test_a_peer_that_takes_nothing_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("rtfilter.service.upkeep.STUCK", 0.05)
    with running(tmp_path, drain=600) as server:
        stuck = Stuck()
        server.pipeline.presence.sessions.add(stuck)
    assert stuck.told == ["busy"]


def test_it_ends_though_not_all_can_be_matched_in_time(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module.Pipeline, "settled", lambda self, position: self.died())  # which is never
    with running(tmp_path, drain=0.05):
        pass
    assert "not all was sent within 0.05 seconds" in caplog.text


STAYS = """
import asyncio, sys
from rtfilter.cli import main
from rtfilter.service.pipeline import Pipeline

async def drain(self):
    print("draining", flush=True)
    await asyncio.Event().wait()

Pipeline.drain = drain
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", long_but([signal.SIGTERM, signal.SIGINT], (signal.SIGINT,)))
def test_a_second_signal_does_not_wait(tmp_path, number):
    command = ["serve", "--data", tmp_path / "data", "--port", "0", "--drain", "600"]
    program = tmp_path / "stays.py"
    program.write_text(STAYS)
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with forks.python(program, *command, **quiet) as server:
        port = server.stdout.readline().strip().rpartition(":")[2]
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60):  # from now on it takes signals
            server.send_signal(signal.SIGTERM)
        while server.stdout.readline() != "draining\n":
            assert server.poll() is None
        server.send_signal(number)
        assert server.wait(60) == -number
