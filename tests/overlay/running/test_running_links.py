"""Connections between two that have the key, and against those who have not, or send rubbish."""

import asyncio
import socket

import msgspec
import pytest

from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.running import broker_client as clients
from rtfilter.overlay.running import broker_frames, links
from rtfilter.overlay.running.broker_frames import (
    CODE,
    LENGTH,
    PROTOCOL,
    Codec,
    Hello,
    LinkError,
    Seal,
    call,
    plain,
    read,
)
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.broker_settings import POINT
from rtfilter.overlay.running.client_messages import Goodbye
from rtfilter.overlay.running.links import LinkLimits, Switchboard

KEY = Key.new()


class Word(BrokerMessage, frozen=True, tag=True):
    text: str


class Ears:
    """Notes what it is told, in order."""

    def __init__(self):
        self.told, self.changed, self.bugs = [], asyncio.Event(), set()

    def _note(self, *what):
        self.told.append(what)
        self.changed.set()

    def linked(self, link):
        self._note("linked", link.peer.name)
        if "linked" in self.bugs:
            raise KeyError("nothing has this key")

    def lost(self, link):
        self._note("lost", link.peer.name)
        if "lost" in self.bugs:
            raise KeyError("nothing has this key")

    def broken(self, error):
        self._note("broken", str(error))

    def hear(self, link, message):
        if message.text == "wrong":
            raise ValueError("this word is wrong")
        if message.text == "bug":
            raise KeyError("nothing has this key")
        self._note(link.peer.name, message.text)

    async def until(self, *what):
        async with asyncio.timeout(120):
            while what not in self.told:
                self.changed.clear()
                await self.changed.wait()


class Site:
    """A switchboard that listens."""

    def __init__(self, name, key=KEY, limits=None, incarnation=1, address="?", **alike):
        self.name, self.ears = name, Ears()
        own = Hello(KeyRole.BROKER, name, f"C{name}", address, incarnation, **alike)
        self.board = Switchboard(own, key, self.ears, Codec(Word, Goodbye), limits)

    async def __aenter__(self):
        bound = socket.create_server(("127.0.0.1", 0))
        self.port = bound.getsockname()[1]
        await self.board.listen(bound)
        self.address = f"127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *error):
        await self.board.close("the test is over")

    def say(self, other, text):
        return self.board.send(other.name, other.address, Word(text))


def kept(site, other):
    return site.board.brokers.get(other.name)


def run(script):
    asyncio.run(asyncio.wait_for(script(), 300))


def test_messages_come_in_order_over_one_connection():
    async def script():
        async with Site("a") as a, Site("b") as b:
            for text in "xyz":
                assert a.say(b, text)
            await b.ears.until("a", "z")
            b.say(a, "back")
            await a.ears.until("b", "back")
            assert b.ears.told == [("linked", "a"), ("a", "x"), ("a", "y"), ("a", "z")]
            assert a.ears.told == [("linked", "b"), ("b", "back")]

    run(script)


def test_both_call_at_once_and_keep_one_connection():
    async def script():
        for _ in range(5):
            async with Site("a") as a, Site("b") as b:
                a.say(b, "x"), b.say(a, "y")
                async with asyncio.timeout(120):
                    while not kept(a, b) or not kept(b, a) or kept(b, a).dialled:
                        await asyncio.sleep(0.01)
                a.ears.told.clear(), b.ears.told.clear()
                a.say(b, "last"), b.say(a, "last")
                await a.ears.until("b", "last")
                await b.ears.until("a", "last")
                assert kept(a, b).dialled
                assert not kept(b, a).dialled

    run(script)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ({"strategy": "hybrid"}, {"strategy": "rendezvous"}, "has --strategy"),
        ({"types": "1"}, {"types": "2"}, "have different event types"),
        ({"assigned": "1"}, {}, "have different --rendezvous-for; all"),
        ({"message": 1}, {"message": 2}, "has --message 2, a --message 1"),
        ({"grace": 15.0}, {"grace": 5.0}, "has --grace 5.0, a --grace 15.0"),
        ({"heartbeat": 1.0}, {"heartbeat": 0.5}, "has --heartbeat 0.5"),
        ({"missed": 3}, {"missed": 2}, "has --missed 2"),
    ],
)
def test_brokers_that_are_not_alike_do_not_link(caplog, ours, theirs, why):
    ours, theirs = ({"strategy": "hybrid", **one} for one in (ours, theirs))

    async def script():
        async with Site("a", **ours) as a, Site("b", **theirs) as b, Site("point") as point:
            a.say(b, "x")
            while caplog.text.count("all brokers need the same") < 2:  # both say so
                await asyncio.sleep(0.01)
            assert why in caplog.text
            assert not kept(a, b)
            assert not kept(b, a)
            for one in (a, b):  # which routes nothing
                one.say(point, "x")
                await point.ears.until(one.name, "x")

    run(script)


def test_the_name_of_a_broker_that_is_linked_is_taken(caplog):
    async def script():
        async with Site("a") as a:
            async with Site("b", address="here:1") as b, Site("b", incarnation=9, address="there:2") as other:
                b.say(a, "x")
                await a.ears.until("b", "x")
                other.say(a, "stolen")
                while "b is linked from here:1 already, and now it calls from there:2" not in caplog.text:
                    await asyncio.sleep(0.01)
                b.say(a, "y")
                await a.ears.until("b", "y")
            async with Site("b", incarnation=3, address="there:2") as moved:  # when the former is gone
                await a.ears.until("lost", "b")
                moved.say(a, "z")
                await a.ears.until("b", "z")

    run(script)


def test_who_is_refused_says_why_once_and_that_it_is_linked_when_it_is(monkeypatch, caplog):
    monkeypatch.setattr(links, "AGAIN", 0.01)
    monkeypatch.setattr(links, "PARTING", 0.2)
    caplog.set_level("INFO")

    async def script():
        async with Site("a") as a, Site("b", incarnation=9, address="there:2") as other:
            async with Site("b", address="here:1") as b:
                b.say(a, "x")
                await a.ears.until("b", "x")
                caplog.clear()
                while other.ears.told.count(("lost", "a")) < 4:
                    other.say(a, "stolen")
                    await asyncio.sleep(0.01)
            said.extend(one.message for one in caplog.records if "a" in one.message.split())
            await a.ears.until("lost", "b")
            caplog.clear()
            while "linked to a of Ca" not in caplog.text:
                other.say(a, "mine")
                await asyncio.sleep(0.01)
            await a.ears.until("b", "mine")

    said = []
    run(script)
    (reason,) = [one for one in said if "cannot reach a at 127.0.0.1:" in one]
    assert "b is linked from here:1 already, and now it calls from there:2; names are unique" in reason
    assert said.count("linked to a of Ca") == 1


def test_whoever_starts_again_takes_the_place_of_its_former_connection():
    async def script():
        async with Site("a") as a:
            async with Site("b", incarnation=1) as former, Site("b", incarnation=2) as later:
                former.say(a, "former")
                await a.ears.until("b", "former")
                later.say(a, "later")
                await a.ears.until("b", "later")
                await former.ears.until("lost", "a")
                assert a.board.brokers["b"].peer.incarnation == 2
            lost = [what for what, _ in a.ears.told if what in ("linked", "lost")]
            assert lost[:3] == ["linked", "lost", "linked"]

    run(script)


@pytest.mark.parametrize("key", [Key.new(), KEY.of(KeyRole.CLIENT)], ids=["another", "of a client"])
def test_without_the_key_there_is_no_link_whoever_calls(key):
    async def script():
        async with Site("a") as a, Site("b", key) as b:
            a.say(b, "x"), b.say(a, "y")
            await asyncio.sleep(0.2)
            assert a.ears.told == b.ears.told == []

    run(script)


def test_both_sides_say_that_their_keys_differ_and_what_to_do(caplog):
    key = Key.new()

    async def script():
        async with Site("a") as a, Site("b", key) as b:
            a.say(b, "x")
            while caplog.text.count("another key") < 2:
                await asyncio.sleep(0.01)

    run(script)
    calls, called = sorted(one.message for one in caplog.records)
    assert calls.endswith("'b' has another key than a; give both the same --key FILE")
    assert called.endswith("'a' has another key than b; give both the same --key FILE")
    assert not [one for one in (KEY, key) if one.secret.hex() in caplog.text]


def test_a_client_of_another_key_and_its_broker_say_so(caplog):
    async def script():
        async with Site("a") as a:
            with pytest.raises(LinkError, match=rf"{a.address}: 'a' has another key than ann; make that of"):
                await clients.joined(
                    a.address,
                    Hello(KeyRole.CLIENT, "ann"),
                    Key.new().of(KeyRole.CLIENT),
                    Codec(Word, Goodbye),
                )
            while "'ann' has another key than a; make that of the client" not in caplog.text:
                await asyncio.sleep(0.01)

    run(script)


def test_a_client_gets_in_with_the_lesser_key_and_is_no_broker():
    async def script():
        async with Site("a") as a:
            reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
            lesser = KEY.of(KeyRole.CLIENT)
            greeted = await call(reader, writer, Hello(KeyRole.CLIENT, "ann", address="?"), lesser)
            assert greeted.peer.name == "a"
            await a.ears.until("linked", "ann")
            assert not a.board.brokers
            assert len(a.board.others) == 1
            writer.close()
            await a.ears.until("lost", "ann")

    run(script)


def test_nobody_else_at_an_address_is_taken_for_who_was_called():
    async def script():
        async with Site("a") as a, Site("b") as b:
            a.board.send("c", b.address, Word("for c"))
            await asyncio.sleep(0.1)
            assert a.ears.told == []
            assert ("a", "for c") not in b.ears.told

    run(script)


async def joined(site, role=KeyRole.BROKER, name="z"):
    """A connection that has greeted, as bytes go over it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    greeted = await call(reader, writer, Hello(role, name, address="nowhere:1"), KEY)
    await site.ears.until("linked", name)
    return reader, writer, greeted


async def goodbye(reader, seal):
    frame = await asyncio.wait_for(read(reader, 10_000), 5)
    return msgspec.msgpack.decode(seal.opened(frame), type=Goodbye).reason


def sealed(text):
    return lambda seal: seal.closed(text)


RUBBISH = {
    "not MessagePack": (sealed(b"\xc1\xc1"), "no message"),
    "no kind": (sealed(msgspec.msgpack.encode({"text": "x"})), "no message"),
    "unknown kind": (sealed(msgspec.msgpack.encode({"message": "Sword", "text": "x"})), "no message"),
    "wrong type": (sealed(msgspec.msgpack.encode({"message": "Word", "text": 1})), "no message"),
    "deep": (sealed(b"\x91" * 100_000), "no message"),
    "empty": (sealed(b""), "no message"),
    "wrong word": (sealed(msgspec.msgpack.encode(Word("wrong"))), "this word is wrong"),
    "bug": (sealed(msgspec.msgpack.encode(Word("bug"))), "an error of this broker"),
    "too long": (lambda seal: (2**30).to_bytes(4, "big") + b"x" * 2_000_000, "1073741824 bytes"),
    "too short": (lambda seal: plain(b"x"), "1 bytes"),
    "no code": (lambda seal: plain(b"x" * (CODE + 3)), "does not have the key"),
    "code of another": (lambda seal: Seal(b"t" * 32).closed(b"x"), "does not have the key"),
}


@pytest.mark.parametrize(("rubbish", "reason"), RUBBISH.values(), ids=RUBBISH)
def test_rubbish_ends_its_link_with_a_reason_and_no_other(rubbish, reason):
    async def script():
        async with Site("a") as a, Site("b") as b:
            b.say(a, "before")
            await a.ears.until("b", "before")
            reader, writer, greeted = await joined(a)
            writer.write(rubbish(greeted.sends))
            assert reason in await goodbye(reader, greeted.receives)
            writer.close()
            await a.ears.until("lost", "z")
            b.say(a, "after")
            await a.ears.until("b", "after")
            assert ("lost", "b") not in a.ears.told

    run(script)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        plain(b"\xc1"),
        plain(b"x" * 5000),
        plain(msgspec.msgpack.encode(Hello(KeyRole.BROKER, "z", nonce=b"short", protocol=PROTOCOL))),
        plain(msgspec.msgpack.encode(Hello(KeyRole.BROKER, "z\0", nonce=b"n" * 16, protocol=PROTOCOL))),
        plain(msgspec.msgpack.encode(Hello(KeyRole.BROKER, "z", nonce=b"n" * 16, protocol=1))),
        plain(msgspec.msgpack.encode(Hello(KeyRole.BROKER, "z", nonce=b"n" * 16, protocol=PROTOCOL)))
        + plain(b"x" * 32),
    ],
    ids=["HTTP", "rubbish", "long", "no nonce", "no name", "version", "no code"],
)
def test_strangers_are_shown_out(said):
    async def script():
        async with Site("a") as a:
            reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
            writer.write(said)
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
            assert a.ears.told == []
            async with Site("b") as b:
                b.say(a, "still there")
                await a.ears.until("b", "still there")

    run(script)


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL + 1])
def test_who_speaks_another_version_is_told_so_and_what_to_do(caplog, protocol):
    """Whoever calls; what a program of another version understands is who it speaks to, and its version."""
    said = broker_frames.said(Hello(KeyRole.BROKER, "z", address="?"), protocol)

    async def answers(reader, writer):
        await read(reader, 1000)
        writer.write(plain(said))
        await reader.read()
        writer.close()

    async def script():
        async with Site("a") as a:
            reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
            writer.write(plain(said))
            answer = msgspec.msgpack.decode(await asyncio.wait_for(read(reader, 1000), 120))
            assert (answer["name"], answer.get("protocol")) == ("a", PROTOCOL)
            writer.close()
            server = await asyncio.start_server(answers, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            assert a.board.send("z", f"127.0.0.1:{port}", Word("x"))
            while caplog.text.count("install the same rtree-filter at both") < 2:
                await asyncio.sleep(0.01)
            server.close()
            await asyncio.sleep(0.05)

    run(script)
    why = f"'z' speaks version {protocol} of the protocol, and a version {PROTOCOL}; install the same"
    assert all(why in one.message for one in caplog.records)


def test_who_is_shown_out_without_a_word_says_that_versions_may_differ():
    async def closes(reader, writer):
        await read(reader, 1000)
        writer.close()

    async def script():
        server = await asyncio.start_server(closes, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(
            LinkError, match=f"{address}: .* of an older version .* install the same rtree-filter"
        ):
            await clients.joined(address, Hello(KeyRole.CLIENT, "ann"), KEY, Codec(Word, Goodbye))
        server.close()

    run(script)


def test_an_error_when_a_link_is_made_ends_it_and_no_other(caplog):
    async def script():
        async with Site("a") as a, Site("b") as b:
            b.say(a, "before")
            await a.ears.until("b", "before")
            a.ears.bugs.add("linked")
            reader, writer, greeted = await joined(a)
            assert await goodbye(reader, greeted.receives) == links.OWN_ERROR
            writer.close()
            await a.ears.until("lost", "z")
            b.say(a, "after")
            await a.ears.until("b", "after")

    run(script)
    assert "nothing has this key" in caplog.text


def test_an_error_when_a_link_has_ended_is_told():
    async def script():
        async with Site("a") as a:
            a.ears.bugs.add("lost")
            _, writer, _ = await joined(a)
            writer.close()
            await a.ears.until("broken", "'nothing has this key'")

    run(script)


def test_who_would_lack_a_message_that_cannot_be_written_is_let_go():
    async def script():
        async with Site("a") as a:
            reader, writer, greeted = await joined(a)
            assert not a.board.brokers["z"].send(Word(object()))
            assert await goodbye(reader, greeted.receives) == links.OWN_ERROR
            writer.close()

    run(script)


def test_a_recorded_greeting_is_good_for_nothing():
    async def script():
        async with Site("a") as a:
            reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
            said, write = [], writer.write
            writer.write = lambda data: said.append(data) or write(data)
            await call(reader, writer, Hello(KeyRole.BROKER, "z", address="?"), KEY)
            await a.ears.until("linked", "z")
            a.ears.told.clear()
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
            writer.writelines(said)
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
            assert ("linked", "z") not in a.ears.told

    run(script)


def test_silence_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(broker_frames, "WITHIN", 0.1)

    async def script():
        async with Site("a") as a:
            reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    run(script)


def test_so_many_strangers_and_no_more_but_nobody_is_shut_out(monkeypatch, caplog):
    monkeypatch.setattr(links, "STRANGERS", 2)

    async def script():
        async with Site("a") as a, Site("b") as b:
            held = [await asyncio.open_connection("127.0.0.1", a.port) for _ in range(5)]
            await asyncio.sleep(0.05)
            ended = [reader for reader, _ in held if reader.at_eof() or reader.exception()]
            assert ended == [reader for reader, _ in held[:3]]  # the oldest
            b.say(a, "x")
            await a.ears.until("b", "x")
            for _, writer in held:
                writer.close()

    run(script)
    said = [one.message for one in caplog.records if "have not said who they are" in one.message]
    assert said == [
        "2 connections have not said who they are, 2 from 127.0.0.1; the oldest of those is closed"
    ]


def test_so_many_brokers_are_linked_and_no_more(monkeypatch, caplog):
    monkeypatch.setattr(links, "BROKERS", 1)

    async def script():
        async with Site("a") as a, Site("b") as b, Site("c") as c:
            b.say(a, "x")
            await a.ears.until("b", "x")
            c.say(a, "x")
            while "which is its limit" not in caplog.text:
                await asyncio.sleep(0.01)
            assert set(a.board.brokers) == {"b"}

    run(script)


def test_so_many_calls_at_once_and_no_more(monkeypatch):
    monkeypatch.setattr(links, "CALLS", 3)

    async def script():
        async with Site("a") as a, Site("b") as b:
            asked = [a.board.send(f"nobody {number}", b.address, Word("x")) for number in range(5)]
            assert asked == [True] * 3 + [False] * 2
            while not a.say(b, "x"):
                await asyncio.sleep(0.01)
            await b.ears.until("a", "x")

    run(script)


def test_names_of_old_calls_are_forgotten(monkeypatch):
    monkeypatch.setattr(links, "BROKERS", 10)
    monkeypatch.setattr(links, "AGAIN", 0.0)

    async def script():
        async with Site("a") as a:
            for number in range(50):
                a.board._rest(f"nobody {number}")
            assert len(a.board._not_before) <= 10

    run(script)


def test_who_takes_nothing_is_dropped_rather_than_memory_used():
    async def script():
        async with Site("a", limits=LinkLimits(waiting=200_000)) as a, Site("b") as b:
            a.say(b, "x")
            await b.ears.until("a", "x")
            (link,) = a.board.brokers.values()
            b.board.brokers["a"]._reader._transport.pause_reading()
            for _ in range(10_000):
                if not a.say(b, "x" * 10_000):
                    break
            assert "bytes wait" in link.why
            await a.ears.until("lost", "b")
            assert a.board.brokers == {}

    run(script)


def test_who_is_refused_is_let_go_and_not_let_in():
    async def script():
        async with Site("a") as a, Site("b") as b:
            a.say(b, "x")
            await b.ears.until("a", "x")
            a.board.refuse("b")
            await b.ears.until("lost", "a")
            assert not a.say(b, "y")
            b.board._not_before.clear()
            b.say(a, "y")
            await asyncio.sleep(0.1)
            assert ("b", "y") not in a.ears.told
            a.board.refused.clear()
            b.board._not_before.clear()
            b.say(a, "again")
            await a.ears.until("b", "again")

    run(script)


def test_calls_in_vain_are_not_made_at_once_again(monkeypatch):
    monkeypatch.setattr(links, "AGAIN", 0.1)

    async def script():
        async with Site("a") as a:
            async with Site("b") as gone:
                pass
            assert a.say(gone, "x")
            await asyncio.sleep(0.05)
            assert not a.say(gone, "y")
            await asyncio.sleep(0.1)
            assert a.say(gone, "z")

    run(script)


def test_the_log_says_once_that_one_cannot_be_reached_and_again_where_that_changes(monkeypatch, caplog):
    monkeypatch.setattr(links, "AGAIN", 0.01)

    async def script():
        async with Site("a") as a:
            async with Site("b") as b:
                pass
            async with Site("c", Key.new()) as c:
                for where in (b, c):
                    for _ in range(5):
                        while not a.board.send("b", where.address, Word("x")):
                            await asyncio.sleep(0.01)
                        while "b" in a.board._calls:
                            await asyncio.sleep(0.01)

    run(script)
    said = [one.message for one in caplog.records]
    assert len([one for one in said if "cannot reach b" in one and "has another key" not in one]) == 1
    assert len([one for one in said if "cannot reach b" in one]) == 2
    assert len([one for one in said if "connections from 127.0.0.1 are refused" in one]) <= 1


def test_the_first_state_is_logged_right_after_the_machine_has_started(monkeypatch):
    monkeypatch.setattr(links.time, "monotonic", lambda: 1.0)
    said = links.Notices()
    assert said.news("a2", "")
    assert not said.news("a2", "")


def test_the_same_is_said_again_after_a_while_or_when_it_was_over(monkeypatch):
    said = links.Notices()
    assert [said.news("a", "away"), said.news("a", "away"), said.news("b", "away")] == [True, False, True]
    said.over("a")
    assert said.news("a", "away")
    monkeypatch.setattr(links, "REPEATED", 0.0)
    assert said.news("a", "away")
    for number in range(links.BROKERS + 10):
        said.news(f"c{number}", "away")
    assert len(said._said) <= links.BROKERS


def test_the_other_side_is_told_why_at_the_end():
    async def script():
        async with Site("b") as b:
            async with Site("a") as a:
                a.say(b, "x")
                await b.ears.until("a", "x")
                (link,) = b.board.brokers.values()
            await b.ears.until("lost", "a")
            assert "the test is over" in link.why

    run(script)


def test_a_frame_is_bound_to_its_direction():
    async def script():
        async with Site("a") as a:
            reader, writer, greeted = await joined(a)
            a.board.brokers["z"].send(Word("reflected"))
            frame = await read(reader, 1000)
            writer.write(len(frame).to_bytes(LENGTH, "big") + frame)
            with pytest.raises(LinkError, match="key"):
                greeted.sends.opened(frame)
            greeted.receives.opened(frame)
            assert "does not have the key" in await goodbye(reader, greeted.receives)
            writer.close()

    run(script)


def test_a_client_is_told_that_the_rendezvous_point_serves_none():
    async def script():
        async with Site(POINT) as point:
            with pytest.raises(LinkError, match="name a broker"):
                await clients.joined(point.address, Hello(KeyRole.CLIENT, "ann"), KEY, Codec(Word, Goodbye))

    run(script)
