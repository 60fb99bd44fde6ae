"""Peers that stop halfway are closed; those that are only waiting for an answer are not."""

import asyncio
import socket
import time
from contextlib import suppress

import pytest

from rtfilter.service.doors import bodies, patience
from service.running import running

HEAD = b"POST /filters/default/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOg==\r\n"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "SILENT", 0.1)
        with running(tmp_path_factory.mktemp("hasty")) as server:
            yield server


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HT",
        b"GET /healthz HTTP/1.1\r\nHost: loc",
        HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    ],
)
def test_who_stops_halfway_is_closed(hasty, sent):
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=10) as link:
        link.sendall(sent)
        with suppress(ConnectionResetError):
            assert link.recv(100) == b""


def test_who_waits_for_an_answer_is_not(hasty, monkeypatch):
    plain = hasty.pipeline.publish

    async def slowly(*given):
        await asyncio.sleep(0.5)
        return await plain(*given)

    monkeypatch.setattr(hasty.pipeline, "publish", slowly)
    assert hasty.ask("POST", "/filters/default/events", {"price": 1}).status == 202


def test_who_takes_no_answer_is_closed(hasty):
    lines = b'{"symbol": "%s"}\n' % (b"x" * 9_000) * 500
    answer = hasty.ask("POST", "/filters/default/events", lines, kind="application/x-ndjson")
    assert answer.status == 202
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
        link.connect(("127.0.0.1", hasty.port))
        link.settimeout(10)
        path = b"/filters/default/events?limit=1000"
        link.sendall(b"GET " + path + HEAD.removeprefix(b"POST /filters/default/events") + b"\r\n")
        time.sleep(0.5)
        got = 0
        with suppress(ConnectionResetError):
            while part := link.recv(2**20):
                got += len(part)
    assert got < len(lines)


def test_a_body_that_stops_is_told_so(server, monkeypatch):
    monkeypatch.setattr(bodies, "SILENT", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        answer = link.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"nothing more of the body came" in answer
