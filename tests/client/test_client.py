"""The client with asyncio, against a server that loses connections."""

import asyncio
import gc
import random
import sys

import pytest
from fake_server import LOSSES, FakeServer, RefusalError

from lengths import long_but
from rtfilter.basics.session_states import Directive
from rtfilter.client import (
    ClientError,
    ClosedError,
    ProtocolError,
    RefusedError,
    UnreachableError,
    connect,
)
from rtfilter.client import (
    session as module,
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "FIRST", 0.002)
    monkeypatch.setattr(module, "MOST", 0.01)
    monkeypatch.setattr(module, "SOON", 0.001)


def run(script, server=None, **options):
    """Run it with a server and a connected client; returns the server."""
    server = server or FakeServer()

    async def main():
        given = {"patience": 60, **options}
        async with asyncio.timeout(60), server.running(), connect(server.url, user="ann", **given) as client:
            await script(server, client)

    asyncio.run(main())
    return server


async def take(client, count):
    """The first deliveries, the last of which is acknowledged too."""
    found = []
    async for delivery in client:
        found.append(delivery)
        if len(found) == count:
            await delivery.acknowledge()
            return found


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def prices(deliveries):
    return [delivery.event["price"] for delivery in deliveries]


def test_subscribe_publish_iterate():
    async def script(server, client):
        id = await client.subscribe("price > 5")
        assert await client.publish({"price": 7}) == [1]
        assert await client.publish([{"price": 3}, {"price": 8}]) == [2, 3]
        first, second = await take(client, 2)
        assert (first.event, first.position, first.subscriptions) == ({"price": 7}, 1, (id,))
        assert (first.filter, first.response, first.redelivered, first.ended) == ("default", 0.001, 0, None)
        assert second.events[0].at == 1.5
        assert (client.user, client.roles) == ("ann", ("subscriber",))

    server = run(script)
    assert server.pending("ann") == {}
    assert server.heard[-2:] == ["STOP", "DISCONNECT"]


def test_subscriptions_may_come_and_go_while_deliveries_come():
    async def script(server, client):
        first = await client.subscribe("price > 5")
        deliveries = aiter(client)
        await server.publish(6)
        assert (await anext(deliveries)).event["price"] == 6
        changes = asyncio.gather(client.subscribe("price > 7"), client.unsubscribe(first))
        server.store([{"price": 10}])  # between STOP and READY
        assert await changes == [2, True]
        await server.publish(8)
        assert prices([await anext(deliveries), await anext(deliveries)]) == [10, 8]
        with pytest.raises(RefusedError) as told:
            await client.subscribe("nonsense")
        assert told.value.kind == "predicate"
        await server.publish(9)
        assert (await anext(deliveries)).event["price"] == 9

    run(script)


def test_the_last_delivery_before_a_break_comes_again():
    async def script(server, client):
        await client.subscribe("price > 0")
        await server.publish(1, 2)
        async for delivery in client:
            if delivery.event["price"] == 2:
                break

    assert list(run(script).pending("ann")) == [2]


def test_manual_acknowledgement_in_any_order():
    async def script(server, client):
        await client.subscribe("price > 0")
        await server.publish(1, 2, 3)
        deliveries = aiter(client)
        one, two, three = [await anext(deliveries) for _ in range(3)]
        await three.acknowledge()
        await two.acknowledge()
        await until(lambda: list(server.pending("ann")) == [1])
        await one.acknowledge()
        await until(lambda: not server.pending("ann"))

    run(script, acknowledge="manual")


def test_who_leaves_with_one_open_delivery_has_acknowledged_the_others():
    async def script(server, client):
        await client.subscribe("price > 0")
        await server.publish(1, 2, 3)
        deliveries = aiter(client)
        _, two, three = [await anext(deliveries) for _ in range(3)]
        for one in (two, three):
            await one.acknowledge()
        assert await client.disconnect()
        assert list(server.pending("ann")) == [1]

    run(script, acknowledge="manual")


@pytest.mark.parametrize("window", [1, 2, 7])
def test_no_more_than_the_window_waits(window):
    async def script(server, client):
        await client.subscribe("price > 0")
        await client.session.begin()
        await server.publish(*range(1, 31))
        await until(lambda: len(client.session.ledger) == window)
        await asyncio.sleep(0.005)
        assert server.delivered == len(client.session.ledger) == window
        found = []
        async for delivery in client:
            found.append(delivery)
            await asyncio.sleep(0)
            assert len(client.session.ledger) <= window
            assert server.sessions[0].credit <= window
            if len(found) == 30:
                break
        assert prices(found) == list(range(1, 31))

    run(script, window=window)


def test_stop_ends_the_loop_after_what_is_here():
    async def script(server, client):
        await client.subscribe("price > 0")
        await client.session.begin()
        await server.publish(1, 2)
        found = []
        async for delivery in client:
            found.append(delivery)
            if len(found) == 1:
                await client.stop()
                await server.publish(3)
        assert prices(found) == [1, 2]
        assert prices(await take(client, 1)) == [3]

    run(script)


def test_a_loop_that_begins_while_another_task_stops_goes_on():
    async def script(server, client):
        await client.subscribe("price > 0")
        await client.session.begin()
        ask, begun = client.session.request, asyncio.Event()

        async def request(directive, **fields):
            found = await ask(directive, **fields)
            if directive is Directive.STOP:  # its answer comes last
                await begun.wait()
            return found

        client.session.request = request
        stopping = asyncio.ensure_future(client.stop())
        await asyncio.sleep(0)
        await client.session.begin()
        begun.set()
        await stopping
        await server.publish(1)
        assert prices(await take(client, 1)) == [1]

    run(script)


@pytest.mark.parametrize("step", ["get", "ready"])
def test_a_disconnect_while_a_loop_begins_ends_it(step):
    async def script(server, client):
        plain = getattr(client.session, step)

        async def disconnected():
            await client.disconnect()
            return await plain()

        setattr(client.session, step, disconnected)
        assert await take(client, 1) is None

    run(script)


@pytest.mark.parametrize("lost", [False, True])
def test_who_is_cancelled_at_any_moment_of_an_end_is_cancelled(lost):
    """Who leaves, or who has lost the connection and would make a new one."""

    async def script(server, client):
        cancelled = []
        for turns in range(40):
            async with connect(server.url, user="bob") as other:
                await other.subscribe("price > 0")
                if lost:
                    work = other.session._keeper
                    other.session._link._socket.transport.abort()
                else:
                    work = asyncio.create_task(other.disconnect())
                for _ in range(turns):
                    await asyncio.sleep(0)
                if work.cancel():
                    await asyncio.wait([work], timeout=1)
                    cancelled.append(work.cancelled())
        assert len(cancelled) > 3
        assert all(cancelled)

    run(script)
    gc.collect()  # warns of connections that are still open


def test_disconnect_ends_the_loop():
    async def script(server, client):
        asyncio.get_running_loop().call_later(0.01, lambda: asyncio.ensure_future(client.disconnect()))
        assert await take(client, 1) is None
        with pytest.raises(ClosedError):
            await client.subscribe("price > 0")
        with pytest.raises(ClosedError):
            await client.publish({"price": 1})
        assert await client.disconnect() is False

    run(script)


def test_who_leaves_a_server_that_has_gone_leaves_quietly(caplog):
    async def script(server, client):
        await client.session.begin()
        asyncio.get_running_loop().call_soon(server.lose_all)
        assert await client.disconnect() is False

    run(script)
    gc.collect()
    assert not caplog.records


def test_get_alone_brings_the_backlog_and_nothing_new():
    async def script(server, client):
        await client.subscribe("price > 0")
        await server.publish(1, 2)
        assert await client.get() == 2
        await server.publish(3)
        assert [(await client.receive()).event["price"] for _ in range(2)] == [1, 2]
        await asyncio.sleep(0.01)
        assert not len(client.session.ledger)

    run(script)


def test_who_is_cancelled_loses_nothing():
    async def script(server, client):
        await client.subscribe("price > 0")
        deliveries = aiter(client)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(deliveries), 0.003)
        await server.publish(1)
        assert (await anext(deliveries)).event["price"] == 1
        publishing = asyncio.ensure_future(client.publish({"price": 2}))
        await asyncio.sleep(0)
        publishing.cancel()
        assert (await anext(deliveries)).event["price"] == 2

    run(script)


# -- lost connections --------------------------------------------------------------------------------------


async def everything(server, client):
    """Each operation; all that is known in the end is checked."""
    one = await client.subscribe("price > 5")
    two = await client.subscribe("price > 8")
    assert await client.publish([{"price": 6}, {"price": 1}], key="mine") == [1, 2]
    first = await take(client, 1)
    assert prices(first) == [6]
    assert await client.publish([{"price": 6}, {"price": 1}], key="mine") == [1, 2]
    three = await client.subscribe("price > 0")
    assert await client.unsubscribe(two)
    assert await client.publish({"price": 9}) == [3]
    assert prices(await take(client, 1)) == [9]
    assert await client.stop()
    await client.ready()
    assert await client.unsubscribe(three)
    assert server.log == [{"price": 6}, {"price": 1}, {"price": 9}]
    assert server.subscriptions == {one: ("ann", 5)}


async def all_is_acknowledged(server, client):
    await until(lambda: not server.pending("ann"))


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_a_connection_lost_at_any_directive_is_not_noticed(loss):
    async def script(server, client):
        await everything(server, client)
        await all_is_acknowledged(server, client)

    count = len(run(script).heard)
    assert count > 15
    for place in range(1, count - 2):
        server = FakeServer()
        server.lose = {place: loss}
        run(script, server)
        assert server.connections >= 2 or place == len(server.heard) - 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but(range(6), (0, 1)))
def test_connections_lost_again_and_again(seed):
    chance = random.Random(seed)
    server = FakeServer()
    server.lose = {chance.randrange(1, 400): chance.choice(LOSSES) for _ in range(60)}
    server.lose_deliveries = {chance.randrange(1, 200) for _ in range(30)}

    async def script(server, client):
        id = await client.subscribe("price > 0")
        acknowledged, held, found = set(), [], set()

        async def publish():
            for price in range(1, 41):
                await client.publish({"price": price})
                if price % 10 == 0:
                    await client.unsubscribe(await client.subscribe("price > 1000"))

        async def pause():
            for _ in range(8):
                await asyncio.sleep(chance.random() / 100)
                await client.stop()
                await asyncio.sleep(chance.random() / 100)
                await client.ready()

        async def listen():
            while found != set(range(1, 41)):
                await take_some()

        async def take_some():
            async for delivery in client:
                price = delivery.event["price"]
                assert delivery.position not in acknowledged
                assert delivery.subscriptions == (id,)
                if price in found:
                    assert delivery.redelivered
                found.add(price)
                held.append(delivery)
                if len(held) > 3 or chance.random() < 0.7:
                    one = held.pop(chance.randrange(len(held)))
                    acknowledged.add(one.position)
                    await one.acknowledge()
                if found == set(range(1, 41)):
                    break
            for one in held:
                await one.acknowledge()

        await asyncio.gather(publish(), listen(), pause())
        await all_is_acknowledged(server, client)
        assert [event["price"] for event in server.log] == list(range(1, 41))
        assert len(server.subscriptions) == 1

    run(script, server, acknowledge="manual", window=5)
    assert server.connections > 3


def test_a_server_that_is_started_again_is_found():
    server = FakeServer()

    async def main():
        async with server.running():
            client = await connect(server.url, user="ann", patience=60).open()
            await client.subscribe("price > 0")
            deliveries = aiter(client)
            waiting = asyncio.ensure_future(anext(deliveries))
            await asyncio.sleep(0.01)
            server.lose_all()
        publishing = asyncio.ensure_future(client.publish({"price": 1}))
        await asyncio.sleep(0.02)
        async with server.running(server.port):
            assert await publishing == [1]
            assert (await waiting).event == {"price": 1}
            await client.disconnect()

    asyncio.run(main())


def test_who_is_not_given_its_server_back_gives_up():
    server = FakeServer()

    async def main():
        async with server.running():
            client = await connect(server.url, user="ann", patience=0.05).open()
            waiting = asyncio.ensure_future(anext(aiter(client)))
            await asyncio.sleep(0.01)
            server.lose_all()
        with pytest.raises(UnreachableError, match=r"none could be made within 0\.05 s"):
            await client.publish({"price": 1})
        with pytest.raises(UnreachableError):
            await waiting
        assert await client.disconnect() is False

    asyncio.run(main())


def test_who_cannot_connect_is_told_why():
    async def main():
        with pytest.raises(UnreachableError, match="is the server started"):
            await connect("ws://127.0.0.1:9", user="ann").open()
        async with FakeServer().running() as server:
            with pytest.raises(RefusedError) as told:
                await connect(server.url, user="ann", password="wrong").open()
            assert told.value.kind == "unauthenticated"
            assert "wrong" not in repr(connect(server.url, user="ann", password="wrong").session.addresses)
            assert server.connections == 1

    asyncio.run(main())


def test_of_several_servers_the_present_one_is_found():
    async def main():
        async with FakeServer().running() as server:
            urls = f"ws://127.0.0.1:9, {server.url}"
            async with connect(urls, user="ann") as client:
                await client.publish({"price": 1})
            with pytest.raises(RefusedError) as told:
                await connect(urls, user="ann", password="wrong").open()
            assert told.value.kind == "unauthenticated"
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9/.*127\.0\.0\.1:8/"):
            await connect("ws://127.0.0.1:9,ws://127.0.0.1:8", user="ann").open()
        with pytest.raises(ClientError, match="is not the URL of a server"):
            connect("ws://127.0.0.1:9,", user="ann")

    asyncio.run(main())


def test_a_silent_server_is_given_up(monkeypatch):
    # Long enough for a busy machine to shake hands: asyncio leaves open what it accepts as the loop ends.
    monkeypatch.setattr("rtfilter.client.link.OPENING", 0.5)

    async def main():
        async with FakeServer().running() as server:
            server.silent = True
            with pytest.raises(UnreachableError, match=r"does not answer within 0\.5 s"):
                await connect(server.url, user="ann").open()

    asyncio.run(main())


def test_another_program_is_told():
    async def talk(reader, writer):
        writer.write(b"220 smtp\r\n")
        writer.close()

    async def main():
        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            with pytest.raises(UnreachableError, match=r"speak HTTP.*with TLS it is wss://"):
                await connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", user="ann").open()

    asyncio.run(main())


def test_credentials_that_became_wrong_are_not_tried_again():
    async def script(server, client):
        server.refuse["CONNECT"] = RefusalError("unauthenticated", "wrong name, password or token")
        server.lose_all()
        with pytest.raises(RefusedError, match="wrong name"):
            await client.publish({"price": 1})

    assert run(script).connections == 2


def test_a_busy_server_is_asked_again():
    async def script(server, client):
        for directive in ("CONNECT", "READY", "ACK"):
            server.refuse[directive] = RefusalError("busy", "too much waits", retry_after=0.001)
        server.lose_all()
        await client.subscribe("price > 0")
        with pytest.raises(RefusedError, match="too much waits"):
            await client.session.begin()
        await server.publish(1)
        assert prices(await take(client, 1)) == [1]
        await until(lambda: not server.pending("ann"))

    assert run(script).connections == 4


def test_who_has_to_prove_anew_who_they_are_does_so():
    async def script(server, client):
        await client.subscribe("price > 0")
        deliveries = aiter(client)
        await server.publish(1)
        assert (await anext(deliveries)).event["price"] == 1
        error = "your password, token or roles are no longer valid; connect again"
        await server.sessions[0].say(directive="ERROR", kind="unauthenticated", error=error)
        await until(lambda: server.connections == 2)
        await server.publish(2)
        assert prices([await anext(deliveries)]) == [2]
        server.refuse["CONNECT"] = RefusalError("unauthenticated", "wrong name, password or token")
        await server.sessions[0].say(directive="ERROR", kind="unauthenticated", error=error)
        with pytest.raises(RefusedError, match="wrong name"):
            await anext(deliveries)

    run(script)


def test_a_server_that_ends_is_come_back_to():
    async def script(server, client):
        await client.subscribe("price > 0")
        deliveries = aiter(client)
        await server.publish(1)
        assert (await anext(deliveries)).event["price"] == 1
        told = {"kind": "busy", "error": "the server is stopping; try again", "retry_after": 1.0}
        await server.sessions[0].say(directive="ERROR", **told)
        await until(lambda: server.connections == 2)
        await server.publish(2)
        assert prices([await anext(deliveries)]) == [2]

    run(script)


def test_who_may_not_receive_is_told_in_the_loop():
    async def script(server, client):
        server.refuse["GET"] = RefusalError("forbidden", "a subscriber may")
        with pytest.raises(RefusedError, match="a subscriber may"):
            await take(client, 1)
        assert await client.publish({"price": 1}) == [1]

    run(script)


def test_what_is_refused_later_ends_the_client():
    async def script(server, client):
        await client.session.begin()
        server.refuse["READY"] = RefusalError("forbidden", "a subscriber may")
        server.lose_all()
        with pytest.raises(RefusedError, match="a subscriber may"):
            await take(client, 1)

    run(script)


@pytest.mark.parametrize("operation", ["publish", "match"])
def test_a_message_that_is_too_large_is_not_sent_for_ever(operation):
    async def script(server, client):
        with pytest.raises(RefusedError) as told:
            await getattr(client, operation)([{"price": 1, "text": "x" * 20_000}])
        assert told.value.kind == "too-large"
        assert await client.publish({"price": 1}) == [1]

    run(script)


def test_what_loses_every_connection_is_given_up(monkeypatch):
    server, lost, plain = FakeServer(), [], module.monotonic
    # After the third loss there is no patience left, however busy the machine.
    monkeypatch.setattr(module, "monotonic", lambda: plain() + (100 if len(lost) > 2 else 0))

    async def losing(server, client):
        session = type(server.sessions[0])
        act = session.act

        def lose(self, name, message):
            if name == "PUBLISH":
                lost.append(message)
                self.lose()
            return act(self, name, message)

        session.act = lose
        try:
            with pytest.raises(UnreachableError, match="was lost 3 times before the answer"):
                await client.publish({"price": 1})
        finally:
            session.act = act

    run(losing, server)


def test_a_server_of_another_kind_is_told():
    async def script(server, client):
        asyncio.get_running_loop().call_soon(
            lambda: asyncio.ensure_future(server.sessions[0].say(directive="NEWS"))
        )
        with pytest.raises(ProtocolError, match="NEWS"):
            await take(client, 1)

    run(script)


def test_what_is_sent_again_while_the_program_works_on_it_is_not_handed_out_again():
    async def script(server, client):
        await client.subscribe("price > 0")
        await server.publish(1, 2)
        deliveries = aiter(client)
        await anext(deliveries)
        await server.resend()
        await asyncio.sleep(0.01)
        found = [await anext(deliveries)]
        await found[0].acknowledge()
        await until(lambda: not server.pending("ann"))
        assert prices(found) == [2]
        assert not len(client.session.ledger)

    run(script)


@pytest.mark.parametrize(
    "options",
    [
        {"url": "127.0.0.1:8080", "user": "ann"},
        {"url": "ftp://127.0.0.1", "user": "ann"},
        {"url": "ws://ann:secret@127.0.0.1", "user": "ann"},
        {"url": "ws://127.0.0.1:99999", "user": "ann"},
        {"url": "ws://127.0.0.1"},
        {"url": "ws://127.0.0.1", "user": "ann", "token": "t"},
        {"url": "ws://a..b", "user": "ann"},
        {"url": "ws://host\x00", "user": "ann"},
        {"url": "ws://" + 70 * "a", "user": "ann"},
        {"url": "ws://127.0.0.1/\ud800", "user": "ann"},
        {"url": "ws://127.0.0.1", "user": "\ud800"},
        {"url": "ws://127.0.0.1", "user": "ann", "password": "\ud800"},
        {"url": "ws://127.0.0.1", "token": "\ud800"},
        {"url": "ws://127.0.0.1", "user": "ann", "window": 0},
        {"url": "ws://127.0.0.1", "user": "ann", "acknowledge": "never"},
    ],
)
def test_arguments_that_cannot_be_used(options):
    with pytest.raises(ClientError):
        connect(**options)


def test_a_redirect_is_told_and_not_followed():
    async def main():
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: wss://example.org/session\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(UnreachableError, match=r"the session is at .wss://example\.org/session."):
                await connect(f"ws://127.0.0.1:{port}", user="ann").open()

    asyncio.run(main())


def test_a_proxy_that_needs_another_package_is_told(monkeypatch):
    monkeypatch.setenv("socks_proxy", "socks5://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "python_socks", None)
    monkeypatch.setitem(sys.modules, "python_socks.async_", None)
    with pytest.raises(UnreachableError, match=r"behind a proxy: .*no_proxy"):
        asyncio.run(connect("ws://example.org", user="ann").open())


def test_urls():
    assert (
        connect("http://localhost:8080/", user="a").session.addresses[0].url == "ws://localhost:8080/session"
    )
    assert connect("wss://host/of/it", token="t").session.addresses[0].url == "wss://host/of/it"


def test_delays_grow_to_a_bound():
    monkey = [module._delay(tries) for tries in (0, 3, 50)]
    assert monkey[0] <= 0.002
    assert 0.005 <= monkey[1] <= monkey[2] * 2
    assert monkey[2] <= 0.01
    assert len({module._delay(3) for _ in range(9)}) > 1  # or all clients would come back at once
