"""The client with a server that says rubbish: there is an error, or another connection, and no hang."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from rtfilter.cli import FAILED, main
from rtfilter.client import ProtocolError, UnreachableError, connect, link
from rtfilter.client import session as module

CONNECTED = {"directive": "CONNECTED", "connection": "c", "user": "ann", "roles": ["subscriber"]}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "FIRST", 0.002)
    monkeypatch.setattr(module, "MOST", 0.01)
    monkeypatch.setattr(module, "SOON", 0.001)


def event(number, **more):
    told = {"number": number, "position": 11, "subscriptions": [1], "event": {"price": 1}}
    return json.dumps({"directive": "EVENT", **told, **more})


@asynccontextmanager
async def saying(after_ready, instead_of_connected=None, times=1):
    """A server that says something after READY, on its first connections; what it hears is in the list."""
    heard, connections = [], []

    async def say(socket):
        connections.append(socket)
        try:
            async for text in socket:
                message = json.loads(text)
                heard.append(message)
                tag = message["tag"]
                if message["directive"] == "CONNECT" and instead_of_connected is not None:
                    await socket.send(instead_of_connected)
                elif message["directive"] == "CONNECT":
                    await socket.send(json.dumps(CONNECTED | {"tag": tag}))
                else:
                    await socket.send(json.dumps({"directive": "ACK", "tag": tag, "pending": 0}))
                if message["directive"] == "READY" and len(connections) <= times:
                    await after_ready(socket)
                elif message["directive"] == "READY":
                    await socket.send(event(1))
        except ConnectionClosed:
            pass

    async with serve(say, "127.0.0.1", 0, close_timeout=0.1) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


def listened(after_ready, patience=60.0, times=1):
    """What a client gets, and what the server hears."""

    async def main():
        async with (
            asyncio.timeout(60),
            saying(after_ready, times=times) as (url, heard),
            connect(url, user="ann", patience=patience) as client,
        ):
            async for delivery in client:
                await delivery.acknowledge()
                return delivery.position, heard

    return asyncio.run(main())


def sends(*messages):
    async def send(socket):
        for message in messages:
            await socket.send(message)

    return send


@pytest.mark.parametrize(
    "answer",
    [
        "nonsense",
        b"\x00\xff",
        "[]",
        '{"directive": "CONNECTED"}',
        json.dumps(CONNECTED | {"tag": 7}),
        json.dumps(CONNECTED | {"tag": 0, "user": 5}),
        '{"directive": "ACK", "tag": 0}',
        '{"directive": "SURPRISE", "tag": 0}',
        event(1),
    ],
)
def test_what_comes_instead_of_connected_is_told(answer):
    async def main():
        async with asyncio.timeout(60), saying(None, answer) as (url, _):
            with pytest.raises(ProtocolError, match="the server"):
                await connect(url, user="ann").open()

    asyncio.run(main())


@pytest.mark.parametrize(
    "messages",
    [
        ["nonsense"],
        ['{"directive": "SURPRISE"}'],
        ['{"directive": "ACK", "tag": 1000}'],
        ['{"directive": "ERROR", "error": "nonsense", "kind": "json"}'],
        [event("one")],
        [event(0)],
        [event(2)],
        [event(-1)],
        [event(10**30)],
        [event(1, position=None)],
    ],
    ids=str,
)
def test_what_is_not_understood_ends_the_client(messages):
    with pytest.raises(ProtocolError, match="the server"):
        listened(sends(*messages))


@pytest.mark.parametrize("second", [1, 3])
def test_numbers_that_go_back_or_leap_acknowledge_nothing(second):
    async def slowly(socket):
        await socket.send(event(1))
        await asyncio.sleep(0.02)
        await socket.send(event(second))

    async def main():
        async with (
            asyncio.timeout(60),
            saying(slowly) as (url, heard),
            connect(url, user="ann", acknowledge="manual") as client,
        ):
            await client.session.begin()
            held = await client.receive()
            with pytest.raises(ProtocolError, match=f"delivery {second} after 1"):
                await client.receive()
            await held.acknowledge()
            return [message["directive"] for message in heard]

    assert "ACK" not in asyncio.run(main())


def test_a_message_that_is_too_large_is_told_and_not_asked_for_again(monkeypatch):
    monkeypatch.setattr(link, "MOST_BYTES", 1000)
    with pytest.raises(ProtocolError, match="message too big"):
        listened(sends(event(1, event={"text": "x" * 1000})), times=100)


def test_text_that_is_no_text_is_told():
    async def send(socket):
        await socket.send(b"\xff\xfe", text=True)

    with pytest.raises(ProtocolError, match="invalid frame payload data"):
        listened(send)


@pytest.mark.parametrize("part", [b"\x81", b"\x81\x05ab", b""])
def test_a_connection_that_ends_in_the_middle_is_made_again(part):
    async def break_off(socket):
        socket.transport.write(part)
        socket.transport.close()

    position, heard = listened(break_off)
    assert position == 11
    assert [message["directive"] for message in heard].count("CONNECT") == 2


def test_what_is_no_frame_is_told():
    async def send(socket):
        socket.transport.write(b"HTTP/1.1 200 OK\r\n\r\n" + 100 * b"x")

    with pytest.raises(ProtocolError, match="protocol error"):
        listened(send)


def test_connections_that_are_lost_at_once_are_given_up():
    async def leave(socket):
        await socket.close()

    with pytest.raises(UnreachableError, match="lost again and again"):
        listened(leave, patience=0.05, times=10**6)


def test_an_answer_without_all_positions_is_told():
    async def main():
        async with asyncio.timeout(60), saying(None) as (url, _), connect(url, user="ann") as client:
            with pytest.raises(ProtocolError, match="lacks"):
                await client.publish({"price": 1})
            with pytest.raises(ProtocolError, match="lacks"):
                await client.subscribe("price > 1")

    asyncio.run(main())


def test_a_message_of_a_server_does_not_drive_the_terminal(capsys):
    told = {"directive": "ERROR", "tag": 0, "kind": "busy", "error": "no\x1b[2J\x9b2J\r\nroom"}

    async def main_():
        async with saying(None, json.dumps(told)) as (url, _):
            return await asyncio.to_thread(main, ["listen", "--user", "ann", "--url", url])

    assert asyncio.run(main_()) == FAILED
    assert capsys.readouterr().err == "rtfilter: error: no?[2J?2J?\nroom\n"
