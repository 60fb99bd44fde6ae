"""The door for TCP, with sockets on the loopback."""

import asyncio
import json
import logging
import socket
from contextlib import asynccontextmanager, suppress

import pytest
from served import ANN, events, publish, served, subscribe

from rtfilter.basics.session_states import TABLE, Directive, State
from rtfilter.service.conversation import Conversation
from rtfilter.service.doors import tcp
from rtfilter.service.doors.admission import Strangers
from rtfilter.service.doors.frames import ClientDirective, Reader, ServerDirective, write
from rtfilter.service.doors.tcp import Timeouts, _Peer, listen
from rtfilter.service.doors.timeouts import STRANGE
from service.running import running

QUICK = Timeouts(connect=60.0, write=60.0, end=1.0)


class Client:
    """A client that knows frames only."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.frames, self.heard = Reader(ServerDirective), []

    async def hear(self):
        """The next message; None at the end."""
        while not self.heard:
            data = await self.reader.read(2**16)
            if not data:
                return None
            self.frames.feed(data)
            self.heard += self.frames
        frame = self.heard.pop(0)
        return {"directive": frame.directive.name, **json.loads(frame.body or b"{}")}

    async def say(self, directive, **more):
        """Its answer; what came before it is dropped."""
        body = json.dumps({**more, "tag": 1}).encode()
        self.writer.write(write(ClientDirective[directive], body))
        while "tag" not in (answer := await self.hear()):
            pass
        del answer["tag"]
        return answer

    async def close(self):
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


@asynccontextmanager
async def door(pipeline, timeouts=QUICK, **more):
    """Gives what opens connections to the door, and the conversations of them."""
    conversations, clients = [], []

    def make():
        conversations.append(Conversation(pipeline))
        return conversations[-1]

    bound = socket.create_server(("127.0.0.1", 0))
    async with listen(make, bound, Strangers(), timeouts=timeouts, **more):

        async def connect(user=None):
            client = Client(*await asyncio.open_connection(*bound.getsockname()))
            clients.append(client)
            if user is not None:
                assert (await client.say("CONNECT", user=user))["directive"] == "CONNECTED"
            return client

        try:
            yield connect, conversations
        finally:
            for client in clients:
                await client.close()


def through(path, script, **more):
    """Run a script with a pipeline, what connects to its door, and the conversations."""

    async def run(pipeline):
        async with door(pipeline, **more) as (connect, conversations):
            await script(pipeline, connect, conversations)

    served(path, run)


async def brought_to(state, client):
    """Bring a new connection to a state."""
    if state is not State.PRE_CONNECTED:
        await client.say("CONNECT", user="ann")
    if state is State.RECEIVING:
        await client.say("READY")
    if state is State.DISCONNECTED:
        await client.say("DISCONNECT")


OPEN = [state for state in State if state is not State.DISCONNECTED]


def test_a_peer_may_send_little_before_it_says_who_it_is(tmp_path):
    async def script(pipeline, connect, conversations):
        for sent in (write(ClientDirective.READY) * 101, write(ClientDirective.READY, b" " * STRANGE) + b"x"):
            client = await connect()
            client.writer.write(sent)
            while (answer := await client.hear()) is not None:
                last = answer
            assert (last["kind"], conversations[-1].state) == ("too-large", State.DISCONNECTED)
        client = await connect("ann")
        client.writer.write(write(ClientDirective.STOP) * 101)
        assert (await client.say("READY"))["directive"] == "ACK"

    through(tmp_path, script)


def test_every_directive_in_every_state(tmp_path):
    async def script(pipeline, connect, conversations):
        for state in OPEN:
            for directive in {*Directive} - {Directive.SITE}:  # which a server alone refuses
                id = await subscribe(pipeline, "price > 1")
                client = await connect()
                await brought_to(state, client)
                assert conversations[-1].state is state
                told = {
                    Directive.CONNECT: {"user": "ann"},
                    Directive.SUBSCRIBE: {"where": "price > 0"},
                    Directive.ACK: {"upto": 0},
                    Directive.CREDIT: {"more": 1},
                    Directive.PUBLISH: {"event": {"price": 1}},
                    Directive.MATCH: {"event": {"price": 1}},
                    Directive.REPLACE: {"where": "price > 2", "subscription": id},
                    Directive.EXPLAIN: {"event": {"price": 1}, "subscription": id},
                    Directive.UNSUBSCRIBE: {"subscription": id},
                }.get(directive, {})
                answer = await client.say(directive, **told)
                if directive in TABLE[state]:
                    wanted = "CONNECTED" if directive is Directive.CONNECT else "ACK"
                    assert answer["directive"] == wanted, (state, directive)
                    assert conversations[-1].state is TABLE[state][directive]
                else:
                    assert (answer["directive"], answer["kind"]) == ("ERROR", "directive")
                    assert f"{directive} is not allowed in {state}; allowed: " in answer["error"]
                    assert conversations[-1].state is state
                await client.close()

    through(tmp_path, script)


def test_after_disconnect_the_connection_ends_and_hears_no_more(tmp_path):
    async def script(pipeline, connect, conversations):
        client = await connect("ann")
        client.writer.write(
            write(ClientDirective.DISCONNECT) + write(ClientDirective.PUBLISH, b'{"event": {"price": 1}}')
        )
        assert await client.hear() == {"directive": "ACK"}
        assert await client.hear() is None
        assert conversations[0].state is State.DISCONNECTED

    through(tmp_path, script)


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("rudely", [False, True])
def test_a_lost_connection_keeps_subscriptions_and_backlog(tmp_path, state, rudely):
    async def script(pipeline, connect, conversations):
        first = await connect("ann")
        id = (await first.say("SUBSCRIBE", where="price > 0"))["subscription"]
        (before,) = await publish(pipeline, 1)
        client = await connect()
        await brought_to(state, client)
        client.writer.write(b"\0\0")  # in the middle of a frame
        if rudely:
            client.writer.transport.abort()
        await client.close()
        while conversations[-1].state is not State.DISCONNECTED:
            await asyncio.sleep(0.001)
        (after,) = await publish(pipeline, 2)
        again = await connect("ann")
        assert (await again.say("GET"))["pending"] == 2
        found = [await again.hear(), await again.hear()]
        assert [(one["position"], one["subscriptions"]) for one in found] == [(before, [id]), (after, [id])]

    through(tmp_path, script)


def test_only_who_receives_gets_events_and_get_brings_the_backlog_until_it_is_acknowledged(tmp_path):
    async def script(pipeline, connect, conversations):
        client, other = await connect("ann"), await connect("bob")
        await client.say("SUBSCRIBE", where="price > 0")
        await other.say("SUBSCRIBE", where="price > 0")
        await client.say("READY")
        places = await publish(pipeline, 1, 2)
        assert [(await client.hear())["position"] for _ in places] == places
        assert await other.say("GET") == {"directive": "ACK", "pending": 2}  # and nothing before it
        assert [(await other.hear())["position"] for _ in places] == places
        assert (await client.say("STOP"))["directive"] == "ACK"
        await client.say("ACK", upto=1)
        await client.close()
        for times in (1, 2):
            client = await connect("ann")
            assert (await client.say("GET"))["pending"] == 1
            event = await client.hear()
            assert (event["position"], event["redelivered"]) == (places[1], times)
            if times == 1:
                await client.close()
        await client.say("ACK", upto=event["number"])
        assert pipeline.deliveries.pending(ANN) == []

    through(tmp_path, script)


def test_frames_may_come_in_pieces_or_together(tmp_path):
    async def script(pipeline, connect, conversations):
        client = await connect()
        said = (
            write(ClientDirective.CONNECT, b'{"user": "ann"}')
            + write(ClientDirective.READY)
            + write(ClientDirective.STOP, b"{}")
        )
        for place in range(len(said)):
            client.writer.write(said[place : place + 1])
            await asyncio.sleep(0)
        client.writer.write(said[20:])  # READY and STOP in one
        answers = [(await client.hear())["directive"] for _ in range(5)]
        assert answers == ["CONNECTED", "ACK", "ACK", "ACK", "ACK"]

    through(tmp_path, script)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ((101).to_bytes(4, "big") + bytes(1_000_000), "a frame of 101 bytes: 1 to 100 are allowed"),
        (bytes(4), "a frame of 0 bytes"),
        (b"\0\0\0\1\x63", "99 is no directive; there are 1 CONNECT"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes: 1 to 100 are allowed"),
    ],
    ids=["long", "empty", "unknown", "http"],
)
def test_what_is_no_frame_is_answered_and_ends_the_connection(tmp_path, data, error):
    async def script(pipeline, connect, conversations):
        client = await connect("ann")
        client.writer.write(write(ClientDirective.READY) + data)
        assert (await client.hear())["directive"] == "ACK"
        told = await client.hear()
        assert (told["directive"], told["kind"]) == ("ERROR", "frame")
        assert error in told["error"]
        assert await client.hear() is None

    through(tmp_path, script, most_bytes=100)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"directive": "READY"}', "leave"),
        (b"[]", "JSON object"),
        (b"{", "not JSON"),
        (b'{"\x82": 1}', "not JSON"),
    ],
)
def test_a_wrong_body_is_answered_and_the_connection_stays(tmp_path, body, error):
    async def script(pipeline, connect, conversations):
        client = await connect("ann")
        client.writer.write(write(ClientDirective.READY, body))
        told = await client.hear()
        assert told["directive"] == "ERROR"
        assert error in told["error"]
        assert conversations[0].state is State.CONNECTED
        assert (await client.say("READY"))["directive"] == "ACK"

    through(tmp_path, script)


def test_who_says_nothing_is_closed_and_who_connected_stays(tmp_path):
    async def script(pipeline, connect, conversations):
        there, silent = await connect("ann"), await connect()
        silent.writer.write(b"\0\0")
        told = await silent.hear()
        assert (told["kind"], told["error"]) == ("unauthenticated", "no CONNECT within 1 seconds")
        assert await silent.hear() is None
        assert (await there.say("READY"))["directive"] == "ACK"

    through(tmp_path, script, timeouts=QUICK._replace(connect=1.0))


def test_the_clock_stops_while_the_server_looks_up_who_connects(tmp_path, monkeypatch):
    async def script(pipeline, connect, conversations):
        plain, asked, may = pipeline.users.password, asyncio.Event(), asyncio.Event()

        async def slowly(*given):
            asked.set()
            await may.wait()
            return await plain(*given)

        monkeypatch.setattr(pipeline.users, "password", slowly)
        client = await connect()
        saying = asyncio.create_task(client.say("CONNECT", user="ann"))
        await asked.wait()
        silent = await connect()
        assert (await silent.hear())["kind"] == "unauthenticated"  # so that time has passed for both
        may.set()
        assert (await saying)["directive"] == "CONNECTED"
        assert (await client.say("READY"))["directive"] == "ACK"

    through(tmp_path, script, timeouts=QUICK._replace(connect=1.0))


def test_who_only_says_what_is_refused_is_closed(tmp_path):
    async def script(pipeline, connect, conversations):
        client = await connect()
        heard = [await client.say("READY")]
        while heard[-1] is not None and len(heard) < 500:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    heard.append(await client.hear())
                continue
            client.writer.write(write(ClientDirective.READY, b""))
        assert heard[-1] is None
        assert heard[-2]["error"] == "no CONNECT within 1 seconds"

    through(tmp_path, script, timeouts=QUICK._replace(connect=1.0))


@pytest.mark.slow
def test_who_takes_no_bytes_is_closed_and_holds_up_nobody(tmp_path):
    async def script(pipeline, connect, conversations):
        slow, quick = await connect("ann"), await connect("bob")
        for client in (slow, quick):
            await client.say("SUBSCRIBE", where="price > 0")
            await client.say("READY")
        places = await pipeline.publishing.publish(
            ANN._replace(roles=frozenset({"admin"})), "default", big(pipeline, 30)
        )
        assert [(await quick.hear())["position"] for _ in places] == places
        while conversations[0].state is not State.DISCONNECTED:
            await asyncio.sleep(0.01)
        assert [one.position for one in pipeline.deliveries.pending(ANN)] == places
        assert conversations[1].state is State.RECEIVING

    through(tmp_path, script, timeouts=QUICK._replace(write=1.0))


def big(pipeline, count):
    """Events of half a megabyte, nearly the longest."""
    return events(pipeline, *range(1, count + 1), symbol="x" * (2**19 - 100))


def test_who_asks_and_takes_no_answers_is_not_listened_to(tmp_path):
    async def script(pipeline, connect, conversations):
        client = await connect("ann")
        body = b'{"tag": "%s"}' % (b"x" * 900)
        asked = 15_000
        client.writer.write(write(ClientDirective.STOP, body) * asked)
        for _ in range(100):
            await asyncio.sleep(0.001)
            assert conversations[0].outbox.qsize() <= 200
        for _ in range(asked):
            assert (await client.hear())["directive"] == "ERROR"

    through(tmp_path, script)


def test_many_connections_at_once(tmp_path):
    async def script(pipeline, connect, conversations):
        clients = await asyncio.gather(*(connect(f"user{k}") for k in range(100)))
        await asyncio.gather(*(one.say("SUBSCRIBE", where=f"price = {k}") for k, one in enumerate(clients)))
        await asyncio.gather(*(one.say("READY") for one in clients))
        await publish(pipeline, *range(100))
        found = await asyncio.gather(*(one.hear() for one in clients))
        assert [one["event"]["price"] for one in found] == list(range(100))

    through(tmp_path, script)


def test_at_the_end_all_are_closed_in_order(tmp_path):
    async def until_closed(client):
        heard = []
        while (message := await client.hear()) is not None:
            heard.append(message)
        await client.close()
        return heard

    async def script(pipeline):
        bound = socket.create_server(("127.0.0.1", 0))
        async with listen(lambda: Conversation(pipeline), bound, Strangers(), timeouts=QUICK):
            clients = [Client(*await asyncio.open_connection(*bound.getsockname())) for _ in range(2)]
            for directive, told in (("CONNECT", {"user": "ann"}), ("SUBSCRIBE", {"where": "price > 0"})):
                await clients[0].say(directive, **told)
            await clients[0].say("READY")
            (place,) = await publish(pipeline, 1)
            waiting = [asyncio.create_task(until_closed(client)) for client in clients]
        heard = await asyncio.gather(*waiting)
        assert [[one["position"] for one in each] for each in heard] == [[place], []]
        assert not pipeline.deliver.receives("ann")

    served(tmp_path, script)


def test_who_may_not_stay_is_closed(tmp_path):
    async def script(pipeline, connect, conversations):
        ann, bob = await connect("ann"), await connect("bob")
        conversations[0].expel()
        assert (await ann.hear())["kind"] == "unauthenticated"
        assert await ann.hear() is None
        assert (await bob.say("READY"))["directive"] == "ACK"

    through(tmp_path, script)


def test_an_error_of_the_server_ends_the_connection_and_is_logged(tmp_path, caplog):
    async def script(pipeline, connect, conversations):
        client = await connect("ann")

        async def broken(message):
            raise RuntimeError("broken")

        conversations[0].hear = broken
        client.writer.write(write(ClientDirective.READY))
        assert await client.hear() is None

    with caplog.at_level(logging.ERROR):
        through(tmp_path, script)
    assert "broken" in caplog.text


def test_who_does_not_close_at_the_end_is_no_error(tmp_path, caplog):
    async def script(pipeline):
        timeouts = QUICK._replace(end=0.01)
        bound = socket.create_server(("127.0.0.1", 0))
        async with listen(lambda: Conversation(pipeline), bound, Strangers(), timeouts=timeouts):
            client = Client(*await asyncio.open_connection(*bound.getsockname()))
            await client.say("CONNECT", user="ann")
        await client.close()

    served(tmp_path, script)
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_who_is_gone_before_the_connection_is_closed_is_no_error(tmp_path, monkeypatch, caplog):
    async def gone(peer):
        peer._writer.transport.abort()

    monkeypatch.setattr(_Peer, "_write", gone)
    with running(tmp_path, tcp_port=0) as server:  # on the loop that servers have
        address = ("127.0.0.1", server.opened.tcp_port)
        with socket.create_connection(address, timeout=60) as link, suppress(ConnectionResetError):
            assert link.recv(1) == b""
        server.run(asyncio.sleep(0))
    assert "Unhandled" not in caplog.text


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such option")
def test_the_system_gives_up_a_peer_that_takes_nothing(tmp_path):
    async def script(pipeline, connect, conversations):
        asked = []
        with pytest.MonkeyPatch.context() as patch:
            plain = tcp.keep_alive
            patch.setattr(tcp, "keep_alive", lambda link, within: (plain(link, within), asked.append(link)))
            await connect("ann")
        (link,) = asked
        assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1000 * QUICK.write

    through(tmp_path, script)
