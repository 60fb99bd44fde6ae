"""Peers that stop halfway, or never end, are closed; those that are only waiting for an answer are not."""

import asyncio
import re
import socket
import tracemalloc
from contextlib import ExitStack, nullcontext, suppress
from types import SimpleNamespace

import h11
import pytest
from starlette.requests import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from rtfilter.service import concurrency
from rtfilter.service.doors import admission, bodies, timeouts
from rtfilter.service.doors.admission import nobody
from rtfilter.service.doors.problems import SilentError
from rtfilter.service.service_errors import BusyError, TooLargeError
from service.running import running
from service.webhooks.asking import until

SILENT = 1.0
"""Seconds until a silent peer is closed: longer than a busy machine takes to send a request."""
ENDLESS = 64 * 2**20
"""Bytes that a peer sends which never ends: more than the sockets between it and the server hold."""
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
NOBODY = b"POST /filters/default/events HTTP/1.1\r\nHost: localhost\r\n"
"""Of a request that is answered 401."""
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
HEADERS = GET + b"X: "
SIZED = NOBODY + b"Content-Length: 1000000\r\n\r\n"
EXTENSION = NOBODY + CHUNKED + b"1;x="
TRAILER = NOBODY + CHUNKED + b"0\r\nX: "
SESSION = b"GET /session HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDAwMDAwMDAwMDAwMDAwMA==\r\n"
OPENED = SESSION + KEY + b"\r\n"
SESSION += CHUNKED + b"0\r\nX: "
EMPTY = b"\x80" + bytes(4)
"""The end of a frame of a client without a byte."""
PING = b"\x89" + EMPTY
HEAD = b"POST /filters/default/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YW5uOg==\r\n"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeouts, "SILENT", SILENT)
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


@pytest.mark.parametrize(
    "begun",
    [HEADERS, b"", SIZED, EXTENSION, TRAILER, SESSION],
    ids=["header", "nothing", "body", "extension", "trailer", "session"],
)
def test_who_sends_byte_by_byte_is_closed(hasty, begun):
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=0.02) as link:
        link.sendall(begun)
        closed, sent = False, 0
        with suppress(ConnectionError):
            while not closed and sent < 500:
                link.sendall(b"x" if begun else b"\n")
                sent += 1
                with suppress(TimeoutError):
                    closed = link.recv(1000) == b""
    assert sent < 500


def test_who_waits_for_an_answer_is_not(hasty, monkeypatch):
    plain = hasty.pipeline.publishing.publish

    async def slowly(*given):
        await asyncio.sleep(2.2 * SILENT)
        return await plain(*given)

    monkeypatch.setattr(hasty.pipeline.publishing, "publish", slowly)
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
        body = b"{" + b" " * 900  # so much that it is not too slow
        link.sendall(HEAD + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + body)
        answer = read(link)
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


def read(link):
    """Read one answer, which may come in parts."""
    reader, got = h11.Connection(h11.CLIENT), b""
    reader.send(h11.Request(method="GET", target="/", headers=[("Host", "localhost")]))
    reader.send(h11.EndOfMessage())
    while True:
        event = reader.next_event()
        if event is h11.NEED_DATA:
            part = link.recv(10_000)
            got += part
            reader.receive_data(part)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return got


def test_a_second_request_has_headers_of_its_own(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        for _ in range(4):
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 30_000 + b"\r\n\r\n")
            assert read(link).startswith(b"HTTP/1.1 200")


def require_closed(server, begun, unit):
    """Send something again and again: the server has to close the connection, and takes little memory."""
    data, sent = unit * (2**20 // len(unit)), 0
    tracemalloc.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
            link.sendall(begun)
            with suppress(ConnectionError):
                while sent < ENDLESS:
                    link.sendall(data)
                    sent += len(data)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    assert sent < ENDLESS / 2


@pytest.mark.parametrize(
    ("begun", "unit"),
    [
        (b"", b"\r\n"),
        (b"GET /", b"x"),
        (HEADERS, b"x"),
        (GET, b"x:y\r\n"),
        (EXTENSION, b"x"),
        (TRAILER, b"x"),
        (NOBODY + CHUNKED + b"0\r\n", b"x:y\r\n"),
        (HEAD + CHUNKED + b"0\r\n", b"x:y\r\n"),
        (SESSION, b"x"),
        (OPENED, PING),
        (OPENED + b"\x01" + EMPTY, b"\x00" + EMPTY),
    ],
    ids=[
        *("nothing", "path", "header", "headers", "extension", "trailer", "trailers", "user", "session"),
        *("pings", "continuations"),
    ],
)
def test_who_never_ends_is_closed_and_takes_no_memory(server, begun, unit):
    require_closed(server, begun, unit)


def test_requests_that_come_together_are_answered_in_order(hasty):
    ids = [b"%d" % number for number in range(500)]
    data = b"".join(GET + b"X-Request-Id: %s\r\n\r\n" % id for id in ids)
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=60) as link:
        link.sendall(data)
        got = b""
        while got.count(b"\r\n\r\n{") < len(ids):
            got += link.recv(2**20)
    assert re.findall(rb"x-request-id: (\d+)", got) == ids


@pytest.mark.slow
def test_who_asks_and_reads_no_answer_is_closed_and_takes_no_memory(hasty):
    require_closed(hasty, b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


def asked(server, data):
    """The first line of the answer to one request, and all of it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(data)
        got = read(link)
    return got.partition(b"\r\n")[0], got


def test_a_body_may_have_as_many_chunks_as_bytes(server):
    event = b'{"symbol": "%s"}' % (b"x" * 20_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in event)
    head = HEAD + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert asked(server, head + chunks + b"0\r\n\r\n")[0] == b"HTTP/1.1 202 Accepted"


def test_trailers_are_no_headers(server):
    sent = NOBODY + CHUNKED.removesuffix(b"1\r\n{\r\n")
    whole = sent + b"0\r\nAuthorization: Basic YW5uOg==\r\nX-Request-Id: mine\r\n\r\n"
    first, got = asked(server, whole)
    assert first == b"HTTP/1.1 401 Unauthorized"
    assert b"mine" not in got


def test_a_request_has_so_many_headers(server):
    most = GET + b"x:y\r\n" * (timeouts.MOST_LINES - 1)
    assert asked(server, most + b"\r\n")[0] == b"HTTP/1.1 200 OK"
    first, got = asked(server, most + b"x:y\r\n\r\n")
    assert first == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert b"at most 256 headers" in got


class Ahead(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead = 0.0

    def time(self):
        return super().time() + self.ahead


@pytest.mark.parametrize(("size", "kept"), [(50_000, 9), (1, 1)])
def test_a_body_has_a_least_rate(size, kept):
    """Each part comes a second before the peer would be silent."""
    sent = 0

    async def receive():
        nonlocal sent
        asyncio.get_running_loop().ahead += bodies.SILENT - 1
        for _ in range(3):
            await asyncio.sleep(0)  # so that a timer that is due ends it here
        sent += 1
        return {"type": "http.request", "body": b"x" * size, "more_body": sent < 9}

    request = Request({"type": "http", "headers": [], "method": "POST"}, receive)
    slow = pytest.raises(SilentError, match="slower than 1024 bytes a second") if kept < 9 else nullcontext()
    with asyncio.Runner(loop_factory=Ahead) as runner, slow:
        assert len(runner.run(bodies.whole(request, 10**6))) == 9 * size
    assert sent == kept


@pytest.mark.parametrize(
    ("kind", "body", "beside"),
    [
        (bodies.JSON, b'{"price": 1}', False),
        (bodies.JSON, b'{"more": "%s"}' % (b"x" * 60_000), False),
        (bodies.JSON, b'{"more": "%s"}' % (b"x" * 66_000), True),
        (bodies.LINES[0], b'{"price": 1}\n' * 900, False),
        (bodies.LINES[0], b"{}\n" * 1_000, True),
        (bodies.JSON, b'{"price": [1, 2]}', True),
        (bodies.ARROW, b"\xff", True),
    ],
)
def test_bodies_that_take_long_are_read_beside_the_loop(kind, body, beside):
    assert bodies.takes_long(kind, body) == beside


def test_the_parts_of_a_body_are_limited_together():
    taken = 0

    async def receive():
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 400, "more_body": taken < 9}

    request = Request({"type": "http", "headers": [], "method": "POST"}, receive)
    with pytest.raises(TooLargeError, match="a body has at most 1000 bytes"):
        asyncio.run(bodies.whole(request, 1000))
    assert taken == 3


@pytest.mark.parametrize("state", [State.CLOSING, State.CLOSED])
def test_a_session_that_its_peer_has_begun_to_end_ends_with_the_server(state):
    session = object.__new__(timeouts.Sessions)
    session.handshake_complete, session.close_sent = True, False
    session.ping_timer = session.pong_timer = None
    session.queue, closed = asyncio.Queue(), []
    session.conn = ServerProtocol(state=state)
    session.transport = SimpleNamespace(close=lambda: closed.append(True))
    session.shutdown()
    assert closed == [True]


@pytest.mark.parametrize(
    "sent",
    [
        OPENED[:-2] + b"X: " + b"x" * 9_000 + b"\r\n\r\n",
        OPENED[:-2] + b"x:y\r\n" * 140 + b"\r\n",
        OPENED[:-2].replace(b"GET", b"POST") + b"Content-Length: 1\r\n\r\nx",
    ],
    ids=["long", "many", "body"],
)
def test_an_upgrade_that_cannot_be_read_is_answered_and_closed(server, sent):
    first, _ = asked(server, sent)
    assert b" 4" in first[:13]
    until(lambda: server.pipeline.measures.connections["http"] == 0)


def test_a_peer_of_an_address_with_many_strangers_is_closed(server, monkeypatch):
    monkeypatch.setattr(admission, "MOST_STRANGERS", 3)
    until(lambda: server.pipeline.measures.connections["http"] == 0)
    with ExitStack() as links:

        def link():
            return links.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))

        silent = [link() for _ in range(2)]
        until(lambda: server.pipeline.measures.connections["http"] == 2)
        known = link()
        known.sendall(b"GET /statistics HTTP/1.1" + HEAD.partition(b" HTTP/1.1")[2] + b"\r\n")
        assert read(known).startswith(b"HTTP/1.1 200")
        silent.append(link())  # the one that is known does not count
        until(lambda: server.pipeline.measures.connections["http"] == 4)
        with suppress(ConnectionResetError):
            assert link().recv(100) == b""


def test_connections_of_one_user_are_counted_and_more_of_them_are_strangers(server, monkeypatch):
    monkeypatch.setattr(admission, "MOST_OF_A_USER", 2)
    monkeypatch.setattr(admission, "MOST_STRANGERS", 3)
    open = server.pipeline.measures.connections
    until(lambda: open["http"] == 0)
    asked = b"GET /statistics HTTP/1.1" + HEAD.partition(b" HTTP/1.1")[2] + b"\r\n"
    with ExitStack() as links:

        def come(asked):
            link = links.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in range(2):
                link.sendall(asked)
                assert read(link).startswith(b"HTTP/1.1 200")
            return link

        come(asked.replace(b"YW5uOg==", b"Ym9iOg=="))  # of another user
        ann = [come(asked) for _ in range(5)]
        one_more = links.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        with suppress(ConnectionError):
            assert one_more.recv(100) == b""
        ann.pop().close()
        ann.pop(0).close()
        until(lambda: open["http"] == 4)
        for _ in range(2):
            come(asked)


def test_frames_wait_while_nobody_takes_their_answers(server):
    """A peer that sends pings and reads no pong, when it is known who it is."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
        link.sendall(OPENED)
        assert link.recv(10_000).startswith(b"HTTP/1.1 101")
        said = b'{"directive":"CONNECT","user":"ann"}'
        link.sendall(b"\x81" + bytes([128 + len(said)]) + bytes(4) + said)
        until(lambda: any(one.who and one.who.user == "ann" for one in server.pipeline.presence.sessions))
        link.settimeout(0.5)
        sent = 0
        tracemalloc.start()
        try:
            with suppress(TimeoutError, ConnectionError):
                while sent < ENDLESS:
                    sent += link.send(PING * 100_000)
            assert tracemalloc.get_traced_memory()[1] < 2**23
        finally:
            tracemalloc.stop()
    assert sent < ENDLESS


def test_a_peer_that_sends_much_is_parsed_in_turns(server, monkeypatch):
    """Between two pieces others come, also where there are many connections."""
    monkeypatch.setattr(concurrency, "TURN", 0.0)
    joined = []
    plain = concurrency.Rounds.join
    monkeypatch.setattr(concurrency.Rounds, "join", lambda *given: joined.append(1) or plain(*given))
    body = b'{"symbol": "%s"}' % (b"x" * 90_000)
    answer = server.ask("POST", "/filters/default/events", body, kind="application/json")
    assert answer.status == 202
    assert len(joined) > 90_000 // timeouts.PIECE / 2


def test_requests_that_come_together_begin_at_turns(server, monkeypatch):
    """So many connections with many requests each are no more work in a round than one request."""
    running, most = [], []
    plain = concurrency.Rounds._next

    def noted(self):
        running.clear()
        plain(self)

    begin = timeouts.HttpToolsProtocol._start_asgi_task
    monkeypatch.setattr(concurrency.Rounds, "_next", noted)
    monkeypatch.setattr(
        timeouts.HttpToolsProtocol,
        "_start_asgi_task",
        lambda *given: running.append(1) or most.append(len(running)) or begin(*given),
    )
    asked = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5
    with ExitStack() as links:
        for _ in range(5):
            link = links.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            link.sendall(asked)
        until(lambda: len(most) == 25)
    assert max(most) == 1


def frame(first, data):
    """A short frame of a client, whose first byte is given."""
    return bytes([first, 128 + len(data)]) + bytes(4) + data


@pytest.mark.parametrize("kind", [1, 2], ids=["text", "binary"])
def test_fragments_are_joined_as_they_come(server, monkeypatch, kind):
    """Of a message with fragments without end, no more is held than its bytes."""
    held = []
    plain = timeouts.Sessions.handle_cont

    def noted(self, event):
        plain(self, event)
        held.append((len(self.frames), sum(map(len, self.frames))))

    monkeypatch.setattr(timeouts.Sessions, "handle_cont", noted)
    said = b'{"directive": "LIST", "tag": "\xc3\xa4"}'
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(OPENED)
        assert link.recv(10_000).startswith(b"HTTP/1.1 101")
        link.sendall(frame(129, b'{"directive": "CONNECT", "user": "ann"}'))
        assert b"CONNECTED" in link.recv(10_000)
        bytewise = b"".join(frame(0, b"") * 20 + frame(0, said[at : at + 1]) for at in range(len(said)))
        link.sendall(frame(kind, b"") + bytewise + frame(128, b""))
        assert b'"tag":"\xc3\xa4"' in link.recv(10_000)
    assert len(held) == 21 * len(said) + 1
    assert max(count for count, _ in held) == 1
    assert max(size for _, size in held) == len(said)


async def cut(peer):
    peer.transport.abort()


def test_requests_that_wait_go_with_their_connection(server, monkeypatch):
    begun, lost = [], []
    monkeypatch.setattr(timeouts.HttpToolsProtocol, "_start_asgi_task", lambda *given: begun.append(given))
    plain = timeouts.Http.connection_lost
    monkeypatch.setattr(timeouts.Http, "connection_lost", lambda *given: lost.append(plain(*given)))

    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5)
        until(lambda: begun)
        peer = begun[0][0]
        until(lambda: len(peer.pipeline) == 4)
        cycle, _ = peer.pipeline[0]
        server.run(cut(peer))
    until(lambda: lost)
    assert not peer.pipeline
    assert cycle.on_response is nobody
    assert peer._timer.cancelled()


def test_few_requests_that_come_at_once_wait_as_objects(server, monkeypatch):
    monkeypatch.setattr(timeouts.HttpToolsProtocol, "_start_asgi_task", lambda *given: begun.append(given))
    begun = []

    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60)
        until(lambda: begun)
        peer = begun[0][0]
        until(lambda: peer.pipeline)
        waiting = 1 + len(peer.pipeline)
        server.run(cut(peer))
    assert waiting <= timeouts.HEADS // 36


def test_a_body_that_waits_for_room_is_not_read(server):
    head = HEAD + b"Content-Type: application/x-ndjson\r\n"
    with ExitStack() as links:
        first, second = (
            links.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            for _ in range(2)
        )
        first.sendall(head + b"Expect: 100-continue\r\n" + CHUNKED)
        assert first.recv(12) == b"HTTP/1.1 100"  # it has the room
        second.sendall(head + CHUNKED)
        second.settimeout(0.5)
        sent = 0
        with suppress(TimeoutError, ConnectionError):
            while sent < ENDLESS:
                sent += second.send(b"8000\r\n" + b"\n" * 2**15 + b"\r\n")
    assert sent < ENDLESS


def test_bodies_of_one_user_have_room_in_order(monkeypatch):
    async def run():
        rooms = bodies.Rooms(10)
        leave = await rooms.enter("ann", 8)
        (await rooms.enter("bob", 20))()
        waiting = [asyncio.create_task(rooms.enter("ann", size)) for size in (5, 2, 4)]
        for _ in range(3):
            await asyncio.sleep(0)
        before = [one.done() for one in waiting]
        waiting[1].cancel()
        leave()
        (await waiting[0])()
        (await waiting[2])()
        monkeypatch.setattr(bodies, "ROOM_WITHIN", 0.0)
        leave = await rooms.enter("ann", 10)
        with pytest.raises(BusyError):
            await rooms.enter("ann", 1)
        leave()
        leave = await rooms.enter("ann", 10)
        return before

    assert asyncio.run(run()) == [False, False, False]


def test_an_answered_body_leaves_its_room(server, monkeypatch):
    """Also one that is refused: a body without a length needs all of it."""
    for body in (b"{}", b"{", b"x" * 100_001, b'{"price": 1}'):
        server.ask("POST", "/filters/default/events", body, kind="application/json")
    server.ask("POST", "/filters/default/subscriptions", {"where": "price > 100"})
    monkeypatch.setattr(bodies, "ROOM_WITHIN", 0.01)
    head = HEAD + b"Content-Type: application/json\r\n"
    assert asked(server, head + CHUNKED + b"1\r\n}\r\n0\r\n\r\n")[0] == b"HTTP/1.1 202 Accepted"
