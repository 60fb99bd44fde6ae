"""Long messages and bodies of many peers are read one in each round of the event loop, or beside it."""

import asyncio
import json
import socket
from contextlib import ExitStack
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest

from rtfilter.service import concurrency
from rtfilter.service.concurrency import Threads
from rtfilter.service.doors import bodies
from rtfilter.service.doors.frames import ClientDirective, write
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


def read_beside(monkeypatch):
    """The names of what is read in threads from here on."""
    works, plain = [], Threads.run_for

    def noted(self, user, work, *given):
        works.append(getattr(work, "__name__", ""))
        return plain(self, user, work, *given)

    monkeypatch.setattr(Threads, "run_for", noted)
    return works


def told(directive, **more):
    return json.dumps({"directive": directive, **more}).encode()


def ask(link, sent):
    """Send something, and read the beginning of its answer."""
    link.sendall(sent)
    return link.recv(10_000)


def connect(door, link):
    """Let the server know a user."""
    if door == "http":
        assert b"200 OK" in ask(
            link, b"GET /statistics" + HEAD.removeprefix(b"POST /filters/default/events") + b"\r\n"
        )
    elif door == "websocket":
        assert b"101" in ask(link, SESSION)
        assert b"CONNECTED" in ask(link, frame(told("CONNECT", user="ann").ljust(200)))
    else:
        assert b"roles" in ask(link, write(ClientDirective.CONNECT, b'{"user": "ann"}'))


def counted(monkeypatch, work):
    """Count the calls of a function in each round of the turns; the counts after each call."""
    path, _, name = work.rpartition(".")
    owner = resolve_name(path)
    plain, following, done, most = getattr(owner, name), concurrency.Rounds._next, [], []

    def noted(*given):
        done.append(1)
        most.append(len(done))
        return plain(*given)

    def next_round(self):
        done.clear()
        following(self)

    monkeypatch.setattr(owner, name, noted)
    monkeypatch.setattr(concurrency.Rounds, "_next", next_round)
    return most


async def send(peers, data):
    """Send the same for all; on the loop of the server, so that it arrives in one round."""
    for peer in peers:
        peer.send(data)


@pytest.mark.parametrize(
    ("door", "work"),
    [
        ("http", "rtfilter.service.doors.bodies._events"),
        ("websocket", "rtfilter.service.messages.read"),
        ("tcp", "rtfilter.service.doors.tcp.message_of"),
    ],
)
def test_long_messages_that_end_together_are_read_one_in_a_round(server, monkeypatch, door, work):
    begun, whole = [], bodies.whole

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
            sent = write(ClientDirective.PUBLISH, json.dumps({"event": EVENT}).encode())
        for peer in peers:
            connect(door, peer)
            peer.sendall(sent[:-1])
        until(lambda: door != "http" or len(begun) == len(peers))
        most = counted(monkeypatch, work)
        server.run(send(peers, sent[-1:]))
        until(lambda: len(most) == len(peers))
        for peer in peers:
            assert peer.recv(1000)
    assert max(most) <= 2  # the last one comes when no other waits


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ({"event": EVENT}, []),
        ({"events": [{}] * 900}, []),
        ({"events": [{}] * 1_000}, ["_parsed"]),
        ({"event": {"more": "x" * 70_000}}, ["_message_of", "_parsed"]),
        ({"events": [{f"x{number}": {} for number in range(9_000)}]}, ["_message_of", "_parsed"]),
    ],
)
def test_long_messages_are_read_beside_the_loop(server, monkeypatch, text, beside):
    works = read_beside(monkeypatch)
    with socket.create_connection(("127.0.0.1", server.opened.tcp_port), timeout=60) as link:
        connect("tcp", link)
        assert b"positions" in ask(link, write(ClientDirective.PUBLISH, json.dumps(text).encode()))
    assert [one for one in works if one in ("_message_of", "_parsed")] == beside


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "read"),
    [
        ("/acknowledgements", {"positions": [1]}, "document"),
        ("/filters/default/subscriptions", {"where": "price > 1"}, "_wish"),
        ("/filters/default/explain", {"subscription": 1, "event": {}}, "document"),
    ],
)
def test_long_documents_are_read_beside_the_loop(server, monkeypatch, path, body, read, long):
    works = read_beside(monkeypatch)
    sent = json.dumps(body).encode().ljust(70_000 * long)
    assert server.ask("POST", path, sent, kind="application/json").status in (201, 204, 404)
    assert (read in works) == long


@pytest.mark.parametrize(
    ("door", "work", "count"),
    [
        ("http", "rtfilter.service.doors.timeouts.HttpToolsProtocol.data_received", 4),
        ("websocket", "rtfilter.service.doors.timeouts.WebSocketsSansIOProtocol.data_received", 5),
        ("tcp", "rtfilter.service.doors.tcp.message_of", 5),
    ],
)
def test_much_that_comes_at_once_is_parsed_one_peer_in_a_round(server, monkeypatch, door, work, count):
    monkeypatch.setattr(concurrency, "TURN", 1e9)
    size = 9_000
    data = {
        "http": HEAD
        + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size
        + b"{}".ljust(size),
        "websocket": b"\x89\x80\x00\x00\x00\x00" * (size // 6),
        "tcp": write(ClientDirective.STOP, b" " * 600) * 5,
    }[door]
    with ExitStack() as links:
        port = server.opened.tcp_port if door == "tcp" else server.port
        peers = [
            links.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(9)
        ]
        for peer in peers:
            connect(door, peer)
        most = counted(monkeypatch, work)
        server.run(send(peers, data))
        until(lambda: len(most) >= count * len(peers))
        for peer in peers:
            assert peer.recv(1000)
    assert max(most) <= 2 * count


def test_bodies_from_all_addresses_of_an_ipv6_network_take_turns_together():
    joined = []
    rounds = SimpleNamespace(wait=lambda address: asyncio.sleep(0, joined.append(address)))
    site = SimpleNamespace(pipeline=SimpleNamespace(rounds=rounds))
    for host in ("2001:db8::1", "2001:db8::2", "192.0.2.1"):
        call = bodies.Call({"type": "http", "headers": [], "client": (host, 1), "app": site}, None)
        assert asyncio.run(call.worked(len, b"{}")) == 2
    assert joined == ["20010db800000000"] * 2 + ["192.0.2.1"]
