"""The client without asyncio, and the one with futures."""

import asyncio
import errno
import os
import signal
import subprocess
import threading
import time
from itertools import islice

import pytest
from fake_server import RefusalError, served

import forks
from rtfilter.client import (
    ClientError,
    ClosedError,
    RefusedError,
    UnreachableError,
    connect_plain,
    get_client,
)
from rtfilter.client import session as module
from rtfilter.client.plain import Background


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "FIRST", 0.002)


@pytest.fixture
def _interruptible():
    """Take interrupts, which a shell has background programs ignore."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def threads():
    return [one for one in threading.enumerate() if one.name.startswith("rtfilter")]


def some(client, count):
    """The next deliveries; those before the last are acknowledged."""
    return list(islice(client.deliveries(timeout=60), count))


def test_subscribe_publish_iterate():
    with served() as server:
        with connect_plain(server.url, user="ann") as client:
            id = client.subscribe("price > 5")
            assert client.publish([{"price": 7}, {"price": 8}]) == [1, 2]
            found = some(client, 2)
            assert [one.event["price"] for one in found] == [7, 8]
            found[-1].acknowledge()
            assert client.unsubscribe(id)
            assert (client.user, client.roles) == ("ann", ("subscriber",))
        assert server.pending("ann") == {}
        with pytest.raises(ClosedError):
            client.publish({"price": 7})
        assert list(map(len, [threads()])) == [1]  # the server's


def test_manual_acknowledgement_and_a_lost_connection():
    with served() as server, connect_plain(server.url, user="ann", acknowledge="manual") as client:
        client.subscribe("price > 5")
        client.publish([{"price": 7}, {"price": 8}])
        first, second = some(client, 2)

        async def lose():
            server.lose_all()

        server.call(lose())
        (again, _) = some(client, 2)
        assert (again.position, again.redelivered > 0) == (first.position, True)
        second.acknowledge()
        first.acknowledge()
        client.disconnect()
        assert server.pending("ann") == {}


def test_who_cannot_connect_is_told_and_leaves_no_thread():
    before = len(threads())
    with pytest.raises(UnreachableError):
        connect_plain("ws://127.0.0.1:9", user="ann")
    with pytest.raises(UnreachableError):
        get_client("ann", "secret", "ws://127.0.0.1:9")
    assert len(threads()) == before


def test_another_thread_may_stop_the_loop():
    with served() as server, connect_plain(server.url, user="ann") as client:
        threading.Timer(0.02, client.stop).start()
        assert list(client) == []


PROGRAM = """
import sys
import rtfilter.client
try:
    with rtfilter.client.connect_plain(sys.argv[1], user="ann") as client:
        client.subscribe("price > 0")
        print("ready", flush=True)
        for delivery in client:
            print(delivery.event["price"], flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_interrupts_end_it_at_once(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    with served() as server:
        program = forks.python(tmp_path / "program.py", server.url, stdout=subprocess.PIPE)
        with program:
            assert program.stdout.readline() == "ready\n"
            server.call(server.publish(5))
            assert program.stdout.readline() == "5\n"
            program.send_signal(signal.SIGINT)
            assert program.stdout.read() == "interrupted\n"
            assert program.wait(60) == 0
        assert server.heard[-1] == "DISCONNECT"


def interrupted_at(seconds, url):
    """Interrupt this thread's client after so long."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    found = []
    try:
        timer.start()
        with connect_plain(url, user="ann", window=2) as client:
            while True:
                client.subscribe("price > 1000")
                found += [one.position for one in client.deliveries(timeout=0.001)]
    finally:
        timer.cancel()


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals")
def test_interrupts_at_any_moment_leave_nothing_behind():
    with served() as server:
        server.subscriptions[1] = "ann", 0
        before = len(threads())
        for turn in range(12):
            server.call(server.publish(*range(1, 5)))
            with pytest.raises(KeyboardInterrupt):
                interrupted_at(turn * 0.002, server.url)
            end = time.monotonic() + 60
            while len(threads()) > before and time.monotonic() < end:
                time.sleep(0.005)
            assert len(threads()) == before
        with connect_plain(server.url, user="ann") as client:
            end = time.monotonic() + 60
            while server.pending("ann") and time.monotonic() < end:
                list(client.deliveries(timeout=0.05))
        assert server.pending("ann") == {}


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_while_the_loop_is_made_leaves_none_open(monkeypatch):
    made, new = [], asyncio.new_event_loop

    def interrupted():
        made.append(new())
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        return made[0]

    monkeypatch.setattr(asyncio, "new_event_loop", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            Background()
        assert made[0].is_closed()
    finally:
        made[0].close()
    assert threads() == []


def test_no_thread_is_left_where_no_loop_can_be_made(monkeypatch):
    def full():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", full)
    with pytest.raises(OSError, match="Too many open files"):
        Background()
    assert threads() == []


# -- futures -----------------------------------------------------------------------------------------------


def test_operations_return_futures_and_events_go_to_the_handler():
    with served() as server:
        client = get_client("ann", "secret", server.url)
        got, errors, there = [], [], threading.Event()

        def take(delivery):
            got.append(delivery.event["price"])
            if got == [6]:
                got.append("failed")
                raise ValueError("once")
            if got[-1] == 9:
                there.set()

        with pytest.raises(ClientError, match="call set_event_received_handler before ready"):
            client.ready()
        with pytest.raises(ClientError, match="call set_event_received_handler before get"):
            client.get()
        client.set_event_received_handler(take)
        client.set_server_response_exception_handler(errors.append)
        id = client.subscribe("price > 5").result(60)
        assert id == 1
        assert client.get().result(60) is True
        assert client.ready().result(60) is True
        server.call(server.publish(6, 7))
        assert client.stop_sending().result(60) is True
        server.call(server.publish(8))
        assert client.ready().result(60) is True
        server.call(server.publish(9))
        assert there.wait(60)
        assert got == [6, "failed", 7, 8, 9]
        assert list(map(str, errors)) == ["once"]
        refused = client.subscribe("nonsense")
        assert isinstance(refused.exception(60), RefusedError)
        assert client.unsubscribe(id).result(60) is True
        assert client.disconnect().result(60) is True
        assert [str(one) for one in errors[1:]] == ["this is no condition"]
        assert set(server.pending("ann")) == {1}  # the first failed
        assert isinstance(client.subscribe("price > 5").exception(60), ClosedError)
        assert isinstance(client.disconnect().exception(60), ClosedError)
        assert [type(one) for one in errors[2:]] == [ClosedError, ClosedError]


def test_the_end_of_the_connection_is_told_to_the_handler_of_errors():
    with served() as server:
        client = get_client("ann", "secret", server.url)
        told = threading.Event()
        client.set_event_received_handler(print)
        client.set_server_response_exception_handler(lambda error: told.set())
        client.ready().result(60)
        server.refuse["CONNECT"] = RefusalError("unauthenticated", "no")

        async def lose():
            server.lose_all()

        server.call(lose())
        assert told.wait(60)
        client.disconnect()
