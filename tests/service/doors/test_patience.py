"""Peers that stop halfway are closed; those that are only waiting for an answer are not."""

import asyncio
import socket
from contextlib import ExitStack, suppress

import pytest

from rtfilter.service.doors import bodies, patience
from service.running import running
from service.webhooks.asking import until

SILENT = 1.0
"""Seconds until a silent peer is closed: longer than a busy machine takes to send a request."""
HEAD = b"POST /filters/default/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOg==\r\n"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "SILENT", SILENT)
        with running(tmp_path_factory.mktemp("hasty")) as server:
            yield server


def test_who_stops_halfway_is_closed(hasty):
    body = HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with ExitStack() as links:
        halves = []
        for sent in (b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: loc", body):
            link = links.enter_context(socket.create_connection(("127.0.0.1", hasty.port), timeout=60))
            link.sendall(sent)
            halves.append((sent, link))
        for sent, link in halves:
            with suppress(ConnectionResetError):
                assert link.recv(100) == b"", sent


def test_who_sends_headers_byte_by_byte_is_closed(hasty):
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=0.02) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        closed, sent = False, 0
        with suppress(ConnectionError):
            while not closed and sent < 500:
                link.sendall(b"x")
                sent += 1
                with suppress(TimeoutError):
                    closed = link.recv(100) == b""
    assert sent < 500


def test_who_waits_for_an_answer_is_not(hasty, monkeypatch):
    plain = hasty.pipeline.publish

    async def slowly(*given):
        await asyncio.sleep(2.2 * SILENT)
        return await plain(*given)

    monkeypatch.setattr(hasty.pipeline, "publish", slowly)
    assert hasty.ask("POST", "/filters/default/events", {"price": 1}).status == 202


def test_who_takes_no_answer_is_closed(hasty):
    lines = b'{"symbol": "%s"}\n' % (b"x" * 9_000) * 500
    answer = hasty.ask("POST", "/filters/default/events", lines, kind="application/x-ndjson")
    assert answer.status == 202
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
        open = hasty.pipeline.measures.connections
        until(lambda: open["http"] == 0)
        link.connect(("127.0.0.1", hasty.port))
        until(lambda: open["http"] == 1)
        link.settimeout(60)
        path = b"/filters/default/events?limit=1000"
        link.sendall(b"GET " + path + HEAD.removeprefix(b"POST /filters/default/events") + b"\r\n")
        until(lambda: open["http"] == 0)
        got = 0
        with suppress(ConnectionResetError):
            while part := link.recv(2**20):
                got += len(part)
    assert got < len(lines)


def test_a_body_that_stops_is_told_so(server, monkeypatch):
    monkeypatch.setattr(bodies, "SILENT", 0.05)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        answer = link.recv(10_000)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"nothing more of the body came" in answer


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (b"no HTTP at all\r\n\r\n", 400, b"/problems/malformed"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400, b"/problems/malformed"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 600_000, 431, b"/problems/too-large"),
        (b"GET /" + b"x" * 600_000, 431, b"/problems/too-large"),
    ],
)
def test_what_is_no_request_is_told_so_and_closed(server, sent, status, said):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        with suppress(ConnectionResetError, BrokenPipeError):
            link.sendall(sent)
        got = b""
        with suppress(ConnectionResetError):
            while part := link.recv(10_000):
                got += part
    if got or status == 400:  # what is not taken in resets the connection, with the answer
        assert got.startswith(b"HTTP/1.1 %d " % status)
        assert b"application/problem+json" in got
        assert said in got


def test_a_second_request_has_headers_of_its_own(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        for _ in range(4):
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 30_000 + b"\r\n\r\n")
            assert link.recv(10_000).startswith(b"HTTP/1.1 200")
