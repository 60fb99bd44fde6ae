"""Sessions over WebSocket: how they begin and end."""

import asyncio
import json
import threading
import time
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rtfilter.service.doors import websocket
from rtfilter.service.doors.bodies import RequestLimits


def link(server, **more):
    return connect(f"ws://127.0.0.1:{server.port}/session", max_size=None, close_timeout=0.5, **more)


def say(socket, directive, binary=False, **more):
    text = json.dumps({"directive": directive, **more})
    socket.send(text.encode() if binary else text)
    return json.loads(socket.recv(timeout=60))


def closed(socket):
    """Code and reason with which the server closes."""
    try:
        while True:
            socket.recv(timeout=60)
    except ConnectionClosed as caught:
        return caught.rcvd and (caught.rcvd.code, caught.rcvd.reason)


@pytest.mark.parametrize("binary", [False, True])
def test_a_session_takes_text_and_bytes_and_ends_when_told(server, binary):
    with link(server) as socket:
        assert say(socket, "CONNECT", binary, user="ws")["directive"] == "CONNECTED"
        id = say(socket, "SUBSCRIBE", binary, where="symbol = 'ws'")["subscription"]
        say(socket, "READY", binary)
        server.ask("POST", "/filters/default/events", {"symbol": "ws"})
        event = json.loads(socket.recv(timeout=60))
        assert (event["subscriptions"], event["event"]) == ([id], {"symbol": "ws"})
        assert say(socket, "STOP", binary)["directive"] == "ACK"
        assert say(socket, "UNSUBSCRIBE", binary, subscription=id)["directive"] == "ACK"
        assert say(socket, "DISCONNECT", binary)["directive"] == "ACK"
        assert closed(socket) == (1000, "")


def test_who_does_not_connect_is_sent_away(server, monkeypatch):
    monkeypatch.setattr(websocket, "CONNECT_WITHIN", 0.05)
    with link(server) as socket:
        assert closed(socket)[0] == websocket.POLICY
    monkeypatch.setattr(websocket, "CONNECT_WITHIN", 1.0)  # a busy machine connects within it
    with link(server) as socket:
        say(socket, "CONNECT", user="ws")
        time.sleep(1.1)
        assert say(socket, "STOP")["directive"] == "ERROR"


def test_the_clock_stops_while_the_server_looks_up_who_connects(server, monkeypatch):
    monkeypatch.setattr(websocket, "CONNECT_WITHIN", 1.0)
    plain, asked, may = server.pipeline.users.password, threading.Event(), asyncio.Event()

    async def slowly(*given):
        asked.set()
        await may.wait()
        return await plain(*given)

    async def let():
        may.set()

    monkeypatch.setattr(server.pipeline.users, "password", slowly)
    with link(server) as socket:
        socket.send('{"directive": "CONNECT", "user": "ws"}')
        assert asked.wait(60)
        with link(server) as silent:
            assert closed(silent)[0] == websocket.POLICY  # so that time has passed for both
        server.run(let())
        assert json.loads(socket.recv(timeout=60))["directive"] == "CONNECTED"
        assert say(socket, "READY")["directive"] == "ACK"


def test_a_session_that_came_while_the_server_ended_is_no_error(server):
    async def cancelled():
        ended = asyncio.get_running_loop().create_future()
        app = SimpleNamespace(pipeline=server.pipeline, limits=RequestLimits(1, 64))
        socket = SimpleNamespace(app=app, client=None, scope={}, accept=AsyncMock(), receive=lambda: ended)
        task = asyncio.create_task(websocket.session(socket))
        while not socket.accept.called:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert server.run(cancelled()) is None


def test_a_message_that_is_too_long_ends_the_session(server):
    with link(server) as socket:
        socket.send("x" * 1_000_001)
        assert closed(socket)[0] == 1009


@pytest.mark.slow
def test_a_peer_that_takes_nothing_is_let_go_and_what_it_did_not_take_waits(server, monkeypatch):
    monkeypatch.setattr(websocket, "SEND_WITHIN", 0.2)
    with link(server, max_queue=1) as socket:
        say(socket, "CONNECT", user="slow")
        say(socket, "SUBSCRIBE", where="symbol = 'slow'")
        say(socket, "READY")
        server.ask("POST", "/filters/default/events", {"symbol": "slow", "more": "x" * 90_000})
        for _ in range(10):
            lines = b'{"symbol": "slow", "more": "%s"}\n' % (b"x" * 9_000) * 10
            server.ask("POST", "/filters/default/events", lines, kind="application/x-ndjson")
        for _ in range(100):
            lines = b'{"symbol": "slow", "more": "%s"}\n' % (b"x" * 90_000)
            server.ask("POST", "/filters/default/events", lines, kind="application/x-ndjson")
        deadline = time.monotonic() + 60
        while server.run(receivers(server, "slow")) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.run(receivers(server, "slow")) is False
    assert server.ask("GET", "/statistics", user="slow").body["pending"] == 201


async def receivers(server, user):
    return server.pipeline.deliver.receives(user)


def test_a_page_of_another_host_may_not_open_a_session(server):
    with pytest.raises(InvalidStatus) as refused:
        link(server, origin="http://example.org")
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body)["type"] == "/problems/origin"
    with link(server, origin=f"http://127.0.0.1:{server.port}") as socket:
        assert say(socket, "CONNECT", user="page")["directive"] == "CONNECTED"
