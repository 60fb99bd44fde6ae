"""Connections to others that have the key: one to each, made when something is to be sent.

The machines know no connections. What is sent while there is none is lost, as on any network, and so is what
was on its way when one ends; `Switchboard` tells of both, and the machines do what follows.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from rtfilter.errors import RTFilterError
from rtfilter.overlay.running.codec import Codec, encoded
from rtfilter.overlay.running.frames import CODE, MOST_BYTES, LinkError, LostError, read
from rtfilter.overlay.running.greeting import Greeted, Hello, answer, call
from rtfilter.overlay.running.keys import Key, Role
from rtfilter.overlay.running.notices import Notices
from rtfilter.overlay.sending import Message
from rtfilter.sockets import host_and_port, keep_alive

AGAIN: Final = 0.5
"""Seconds after a call in vain, or a lost connection, until the next call to the same one."""
PARTING: Final = 1.0
"""Seconds that the other side has to read why a connection ends."""
UNANSWERED: Final = 1000
"""Most messages that wait for a call to be answered."""
STRANGERS: Final = 100
"""Most connections that have not yet proved who they are."""
BROKERS: Final = 1000
"""Most links to brokers; further ones are refused."""
CALLS: Final = 100
"""Most calls at once; what others would be for is lost."""
OWN_ERROR: Final = "an error of this broker, which its log tells"
"""The reason for the end of a connection after an error of this broker."""
_log = logging.getLogger(__name__)


class Goodbye(Message, frozen=True):
    """The last message on a connection.

    Attributes
    ----------
    reason : str
    final : bool
        Whether the other side is not to come back by itself.
    refused : bool
        Whether the connection was not taken in the first place.
    """

    reason: str
    final: bool = False
    refused: bool = False


class Limits(NamedTuple):
    """The limits of a connection.

    Attributes
    ----------
    message : int
        Most bytes of a message that comes.
    waiting : int
        Most bytes that wait for the other side to take them; with more it is dropped.
    takes_within : float
        Seconds in which the other side has to take something of what waits for it, or it is gone.
    """

    message: int = MOST_BYTES
    waiting: int = 16 * 2**20
    takes_within: float = 10.0


class Link:
    """A connection, once both sides have proved who they are.

    Attributes
    ----------
    peer : Hello
    dialled : bool
        Whether it was called from here.
    why : str
        Why it has ended; empty before.
    final : bool
        Whether the other side has said that this one is not to come back by itself.
    refused : bool
        Whether the other side has said that it does not take the connection.
    heard, sent : int
        Messages.
    """

    def __init__(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        greeted: Greeted,
        codec: Codec,
        limits: Limits,
        dialled: bool,
    ) -> None:
        self.peer, self.dialled, self.why, self.final = greeted.peer, dialled, "", False
        self.refused = False
        self.heard = self.sent = 0
        self._reader, self._writer, self._codec, self._limits = reader, writer, codec, limits
        self._sends, self._receives = greeted.sends, greeted.receives
        keep_alive(writer.get_extra_info("socket"), limits.takes_within)

    @property
    def where(self) -> str:
        """The address of the other side."""
        host, port, *_ = self._writer.get_extra_info("peername") or ("somewhere", 0)
        return f"{host}:{port}"

    async def next(self) -> Message:
        """Read the next message. Raises `LinkError`."""
        frame = await read(self._reader, CODE + self._limits.message, CODE)
        message = self._codec.decoded(self._receives.opened(frame))
        self.heard += 1
        return message

    def send(self, message: Message) -> bool:
        """Send a message, without waiting; returns whether the link goes on."""
        if self.why:
            return False
        transport = self._writer.transport
        try:
            data = encoded(message)
        except Exception:  # the other side would lack it for ever
            _log.exception("a message to %s cannot be written", self.peer.name)
            self.end(OWN_ERROR)
            return False
        transport.write(self._sends.closed(data))
        self.sent += 1
        waiting = transport.get_write_buffer_size()
        if waiting > self._limits.waiting:
            self.why = f"it does not take what it is sent: {waiting} bytes wait"
            transport.abort()
        return not self.why

    async def run(self, hear: Callable[[Link, Message], None]) -> None:
        """Hear what comes, until it ends; `why` says why."""
        try:
            while not self.why:
                message = await self.next()
                if isinstance(message, Goodbye):
                    self.final, self.refused = message.final, message.refused
                    raise LostError(f"the other side says: {message.reason[:500]}")
                if not self.why:
                    hear(self, message)
        except LostError as error:
            self.why = self.why or str(error)
        except (RTFilterError, ValueError) as error:  # of the message: the machine says what is wrong with it
            _log.warning("a connection of %s is closed: %s", self.peer.name, error)
            self.end(str(error))
        except Exception:
            _log.exception("a connection of %s is closed after an error of this broker", self.peer.name)
            self.end(OWN_ERROR)
        finally:
            await self._close()

    def end(self, why: str, final: bool = False, refused: bool = False) -> None:
        """Say why, and close it; `final` and `refused` as of `Goodbye`."""
        if not self.why:
            self.send(Goodbye(why, final, refused))
            self.why = self.why or why
            transport = self._writer.transport
            with suppress(OSError, RuntimeError):  # it is closed already
                transport.write_eof()
            asyncio.get_running_loop().call_later(PARTING, transport.abort)

    async def _close(self) -> None:
        """Let the other side read to the end: closed at once, it might lose it to what it still sends."""
        try:
            if not self._writer.transport.is_closing():
                async with asyncio.timeout(PARTING):
                    while await self._reader.read(2**16):
                        pass
        except (OSError, TimeoutError):
            pass
        finally:
            self._writer.transport.abort()


class Hears(Protocol):
    """The receiver of a link's events."""

    def linked(self, link: Link) -> None:
        """There is one."""

    def lost(self, link: Link) -> None:
        """It has ended."""

    def hear(self, link: Link, message: Message) -> None:
        """It brings a message. What is wrong with it is raised, and ends the link."""

    def broken(self, error: Exception) -> None:
        """There was an error of the program that no link is to blame for."""


class Switchboard:
    """All connections of one broker or rendezvous point.

    Parameters
    ----------
    own : Hello
        Who this is.
    key : Key
    hears : Hears
    codec : Codec
    limits : Limits

    Attributes
    ----------
    brokers : dict of str to Link
        Those to brokers, by their names.
    others : set of Link
        Those to clients, and to who administers.
    refused : set of str
        Names of brokers that this one does not talk to.
    """

    def __init__(
        self, own: Hello, key: Key, hears: Hears, codec: Codec, limits: Limits | None = None
    ) -> None:
        self.own, self._key, self._hears, self._codec = own, key, hears, codec
        self._limits = limits or Limits()
        self.brokers: dict[str, Link] = {}
        self.others: set[Link] = set()
        self.refused: set[str] = set()
        self._calls: dict[str, list[Message]] = {}  # messages that wait for a call to be answered
        self._not_before: dict[str, float] = {}
        self._refusing: set[str] = set()  # names of brokers that refused the last connection
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[StreamWriter, str] = {}  # from where, the oldest first
        self._notices = Notices()  # in the log
        self._server: asyncio.Server | None = None

    async def listen(self, bound: socket.socket) -> None:
        """Take connections."""
        self._server = await asyncio.start_server(self._accept, sock=bound)

    def send(self, name: str, address: str, message: Message) -> bool:
        """Send a message to a broker, by a call to its address where there is no connection yet.

        Returns False where it is lost already. True does not promise that it arrives.
        """
        found = self.brokers.get(name)
        if found is not None:
            return found.send(message)
        if name in self._calls:
            if len(self._calls[name]) >= UNANSWERED:
                return False
            self._calls[name].append(message)
            return True
        if len(self._calls) >= CALLS:
            return False
        if name in self.refused or time.monotonic() < self._not_before.get(name, 0.0) or not address:
            return False
        self._calls[name] = [message]
        self._start(self._call(name, address))
        return True

    def refuse(self, name: str) -> None:
        """Talk to a broker no more."""
        self.refused.add(name)
        if name in self.brokers:
            self._drop(self.brokers[name], "refused by who administers this broker")

    def drop(self, name: str, why: str) -> None:
        """End the connection to a broker, if there is one; the next may be made at once."""
        if name in self.brokers:
            self._drop(self.brokers[name], why)

    async def close(self, why: str) -> None:
        """End all."""
        if self._server is not None:
            self._server.close()
        for one in (*self.brokers.values(), *self.others):
            one.end(why)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=1.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, name: str, address: str) -> None:
        writer, link = None, None
        try:
            async with asyncio.timeout(5.0):
                reader, writer = await asyncio.open_connection(*host_and_port(address))
            greeted = await call(reader, writer, self.own, self._key)
            if greeted.peer.name != name:
                raise LinkError(f"{address} is {greeted.peer.name}, not {name}")
            self._require_alike(greeted.peer)
            link = Link(reader, writer, greeted, self._codec, self._limits, dialled=True)
        except (LinkError, OSError, TimeoutError, ValueError) as error:
            self._not_reached(name, address, str(error))
        finally:
            waiting = self._calls.pop(name)
            if link is None:
                self._rest(name)
                if writer is not None:
                    writer.close()
        if link is not None:
            await self._run(link, waiting)

    def _not_reached(self, name: str, address: str, why: str) -> None:
        if self._notices.news(name, why):
            _log.warning("cannot reach %s at %s, and goes on trying: %s", name, address, why)

    async def _accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        if len(self._strangers) >= STRANGERS:
            self._make_room()
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._strangers[writer] = str((writer.get_extra_info("peername") or ("somewhere",))[0])
        try:
            greeted = await answer(reader, writer, self.own, self._key)
        except (LinkError, OSError) as error:
            self._tell_refused(writer, error)
            writer.close()
            return
        except Exception:
            _log.exception("a connection from %s is refused", writer.get_extra_info("peername"))
            writer.close()
            return
        finally:
            self._strangers.pop(writer, None)
            self._tasks.discard(task)
        link = Link(reader, writer, greeted, self._codec, self._limits, dialled=False)
        try:
            self._admit(greeted.peer)
        except LinkError as error:
            self._tell_refused(writer, error)
            link.end(str(error), refused=True)  # the other side cannot know it by itself
            self._start(link.run(self._hears.hear))
        else:
            self._start(self._run(link, []))

    def _tell_refused(self, writer: StreamWriter, error: Exception) -> None:
        where = (writer.get_extra_info("peername") or ("somewhere",))[0]
        if self._notices.news(f"{where} {error}", ""):
            _log.warning("connections from %s are refused: %s", where, error)

    def _make_room(self) -> None:
        """Close a connection that has not yet proved who it is: the oldest from where most of them are."""
        most, count = Counter(self._strangers.values()).most_common(1)[0]
        writer = next(one for one, where in self._strangers.items() if where == most)
        del self._strangers[writer]
        writer.transport.abort()
        if self._notices.news("", most):
            text = "%d connections have not said who they are, %d from %s; the oldest of those is closed"
            _log.warning(text, STRANGERS, count, most)

    def _admit(self, peer: Hello) -> None:
        """Raises `LinkError` with the reason where one who has the key may not be linked all the same."""
        if peer.name in self.refused:
            raise LinkError(f"{peer.name} is refused by who administers this broker")
        if peer.name == self.own.name and peer.role is Role.BROKER and peer.address:
            raise LinkError(f"{peer.address} has the name of this broker, {peer.name}; names are unique")
        if peer.role is not Role.BROKER or not peer.address:
            return
        self._require_alike(peer)
        former = self.brokers.get(peer.name)
        if former is not None and former.peer.address != peer.address:
            raise LinkError(
                f"{peer.name} is linked from {former.peer.address} already, and now it calls from "
                f"{peer.address}; names are unique in a network, so one of the two needs another --name"
            )
        if former is None and len(self.brokers) >= BROKERS:
            raise LinkError(f"this broker is linked to {BROKERS} brokers, as many as it takes")

    def _require_alike(self, peer: Hello) -> None:
        """Refuse a broker that routes otherwise, knows other events, or takes or waits for more or less.

        What it publishes would be lost, or could never arrive, or would be acknowledged too soon.
        """
        if not (peer.strategy and self.own.strategy):
            return
        both = f"{peer.name} and {self.own.name}"
        if peer.types != self.own.types:
            raise LinkError(f"{both} have different event types (--schema); all brokers need the same")
        if peer.assigned != self.own.assigned:
            raise LinkError(f"{both} have different --rendezvous-for; all brokers need the same")
        for name in ("strategy", "message", "grace", "heartbeat", "missed"):
            theirs, ours = (getattr(one, name) for one in (peer, self.own))
            if theirs != ours:
                raise LinkError(
                    f"{peer.name} has --{name} {theirs}, {self.own.name} --{name} {ours}; "
                    "all brokers need the same"
                )

    async def _run(self, link: Link, waiting: list[Message]) -> None:
        peer = link.peer
        if peer.role is not Role.BROKER or not peer.address:  # without an address it is no broker
            self.others.add(link)
        elif not self._prefers(link):
            for message in waiting:
                self.brokers[peer.name].send(message)
            link.end("there is another connection already")
            await link.run(self._hears.hear)
            return
        else:
            if peer.name in self.brokers:
                self._drop(self.brokers[peer.name], "another connection takes its place")
            self.brokers[peer.name] = link
            if link.dialled and peer.name in self._refusing:  # and says so soon, if it still does
                asyncio.get_running_loop().call_later(PARTING, self._stands, link)
            else:
                self._stands(link)
        for message in waiting:
            link.send(message)
        try:
            self._hears.linked(link)
        except Exception:
            _log.exception("a connection of %s is closed after an error of this broker", peer.name)
            link.end(OWN_ERROR)
        try:
            await link.run(self._hears.hear)
        finally:
            link.why = link.why or "this broker ends"
            self._gone(link)

    def _stands(self, link: Link) -> None:
        """Have the log say that there is a link, if there still is."""
        name = link.peer.name
        if self.brokers.get(name) is link:
            _log.info("linked to %s of %s", name, link.peer.cluster)
            self._notices.over(name)
            self._refusing.discard(name)

    def _prefers(self, link: Link) -> bool:
        """Return whether to accept a new link to a broker.

        Where both have called each other, both keep the call of the lower name. Who calls again has lost the
        former connection, though this side may not know yet.
        """
        former = self.brokers.get(link.peer.name)
        if former is None or link.peer.incarnation != former.peer.incarnation:
            return former is None or link.peer.incarnation > former.peer.incarnation
        return link.dialled == former.dialled or (self.own.name < link.peer.name) == link.dialled

    def _rest(self, name: str) -> None:
        """Call nobody of this name for a moment."""
        now = time.monotonic()
        if len(self._not_before) >= BROKERS:
            self._not_before = {one: until for one, until in self._not_before.items() if until > now}
        self._not_before[name] = now + AGAIN

    def _drop(self, link: Link, why: str) -> None:
        link.end(why)
        self._gone(link)

    def _gone(self, link: Link) -> None:
        if link in self.others:
            self.others.discard(link)
        elif self.brokers.get(link.peer.name) is link:
            del self.brokers[link.peer.name]
            self._rest(link.peer.name)
            if link.refused:
                self._refusing.add(link.peer.name)
                self._not_reached(link.peer.name, link.where, link.why)
            elif link.peer.name not in self._refusing:
                _log.info("no more linked to %s: %s", link.peer.name, link.why)
        else:
            return
        try:
            self._hears.lost(link)
        except Exception as error:
            self._hears.broken(error)
