"""Long messages and bodies of many peers are read one in each round of the event loop, or beside it."""

import asyncio
import json
import socket
from contextlib import ExitStack
from importlib import import_module

import pytest

from rtfilter.service import rounds
from rtfilter.service.doors import bodies
from rtfilter.service.doors.frames import Asked, write
from service.running import running
from service.webhooks.asking import until

EVENT = {"price": 1.0, "more": "x" * 5_000}
HEAD = b"POST /filters/default/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOg==\r\n"
SESSION = (
    b"GET /session HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDAwMDAwMDAwMDAwMDAwMA==\r\n\r\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("served"), tcp_port=0) as found:
        yield found


def frame(text):
    """A message of a session over WebSocket."""
    return b"\x81\xfe" + len(text).to_bytes(2, "big") + bytes(4) + text


def told(directive, **more):
    return json.dumps({"directive": directive, **more}).encode()


def ask(link, sent):
    """Send something, and read the beginning of its answer."""
    link.sendall(sent)
    return link.recv(10_000)


@pytest.mark.parametrize(
    ("door", "work"),
    [
        ("http", "rtfilter.service.doors.bodies._events"),
        ("websocket", "rtfilter.service.messages.read"),
        ("tcp", "rtfilter.service.doors.tcp.message_of"),
    ],
)
def test_long_messages_that_end_together_are_read_one_in_a_round(server, monkeypatch, door, work):
    done, most, begun = [], [], []
    path, _, name = work.rpartition(".")
    module = import_module(path)
    plain, following, whole = getattr(module, name), rounds.Rounds._next, bodies.whole

    def noted(*given):
        done.append(1)
        most.append(len(done))
        return plain(*given)

    def next_round(self):
        done.clear()
        following(self)

    def entered(*given):
        begun.append(given)
        return whole(*given)

    with ExitStack() as links:
        port = server.opened.tcp_port if door == "tcp" else server.port
        peers = [
            links.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(9)
        ]
        body = json.dumps(EVENT).encode()
        if door == "http":
            monkeypatch.setattr(bodies, "whole", entered)
            sent = HEAD + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        elif door == "websocket":
            sent = frame(told("PUBLISH", event=EVENT))
        else:
            sent = write(Asked.PUBLISH, json.dumps({"event": EVENT}).encode())
        for peer in peers:
            if door == "websocket":
                assert b"101" in ask(peer, SESSION)
                assert b"CONNECTED" in ask(peer, frame(told("CONNECT", user="ann").ljust(200)))
            elif door == "tcp":
                assert b"roles" in ask(peer, write(Asked.CONNECT, b'{"user": "ann"}'))
            peer.sendall(sent[:-1])
        until(lambda: door != "http" or len(begun) == len(peers))
        monkeypatch.setattr(module, name, noted)
        monkeypatch.setattr(rounds.Rounds, "_next", next_round)

        async def end():
            for peer in peers:
                peer.send(sent[-1:])

        server.run(end())
        until(lambda: len(most) == len(peers))
        for peer in peers:
            assert peer.recv(1000)
    assert max(most) <= 2  # the last one comes when no other waits


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ({"event": EVENT}, []),
        ({"events": [{}] * 900}, []),
        ({"events": [{}] * 1_000}, ["objects"]),
        ({"event": {"more": "x" * 70_000}}, ["_message_of", "object"]),
        ({"events": [{f"x{number}": {} for number in range(9_000)}]}, ["_message_of", "objects"]),
    ],
)
def test_long_messages_are_read_beside_the_loop(server, monkeypatch, text, beside):
    works, to_thread = [], asyncio.to_thread

    def noted(work, *given):
        works.append(work.__name__)
        return to_thread(work, *given)

    with socket.create_connection(("127.0.0.1", server.opened.tcp_port), timeout=60) as link:
        assert b"roles" in ask(link, write(Asked.CONNECT, b'{"user": "ann"}'))
        monkeypatch.setattr(asyncio, "to_thread", noted)
        assert b"positions" in ask(link, write(Asked.PUBLISH, json.dumps(text).encode()))
    assert [one for one in works if one in ("_message_of", "object", "objects")] == beside


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("/acknowledgements", {"positions": [1]}, "decoded"),
        ("/filters/default/subscriptions", {"where": "price > 1"}, "_wish"),
        ("/filters/default/explain", {"subscription": 1, "event": {}}, "require_json"),
    ],
)
def test_long_documents_are_read_beside_the_loop(server, monkeypatch, path, body, read, long):
    works, to_thread = [], asyncio.to_thread

    def noted(work, *given):
        works.append(work.__name__)
        return to_thread(work, *given)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    sent = json.dumps(body).encode().ljust(70_000 * long)
    assert server.ask("POST", path, sent, kind="application/json").status in (201, 204, 404)
    assert (read in works) == long
