"""Connections to others that have the key: one to each, made for the first message.

The machines know no connections. Messages without a connection are lost, as on any network, and so are those
on their way when a connection ends; `Switchboard` reports both ends of a connection to the machines.
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
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from rtfilter.basics.errors import RTFilterError
from rtfilter.basics.sockets import host_and_port, keep_alive
from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.running.broker_frames import (
    CODE,
    MOST_BYTES,
    Codec,
    Greeted,
    Hello,
    LinkError,
    LostError,
    answer,
    call,
    encoded,
    read,
)
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.client_messages import Goodbye

AGAIN: Final = 0.5
"""Seconds after a failed call, or a lost connection, until the next call to the same broker."""
PARTING: Final = 1.0
"""Seconds for the other side to read the reason for the end of a connection."""
UNANSWERED: Final = 1000
"""Most messages that wait during a call."""
STRANGERS: Final = 100
"""Most connections whose peer has not yet proved its name."""
BROKERS: Final = 1000
"""Most links to brokers; further ones are refused."""
REPEATED: Final = 600.0
"""Seconds after which the same state of a peer is logged again."""
CALLS: Final = 100
"""Most calls at once; messages that need more are lost."""
OWN_ERROR: Final = "an error of this broker; see its log"
"""The reason for the end of a connection after an error of this broker."""
_log = logging.getLogger(__name__)


class Notices:
    """The last logged state of each peer: a state that repeats is logged when it changes, and then rarely."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[str, float]] = {}

    def news(self, of: str, what: str) -> bool:
        """Return whether to log a state of `of`, and record it as logged."""
        former, at = self._said.get(of, ("", -inf))
        now = time.monotonic()
        if former == what and now < at + REPEATED:
            return False
        self._said.pop(of, None)
        self._said[of] = what, now
        if len(self._said) > BROKERS:
            del self._said[next(iter(self._said))]
        return True

    def over(self, of: str) -> None:
        """Remove the state of `of`, so that the next one is logged."""
        self._said.pop(of, None)


class LinkLimits(NamedTuple):
    """The limits of a connection."""

    message: int = MOST_BYTES
    """Most bytes of a received message."""
    waiting: int = 16 * 2**20
    """Most bytes that wait for the other side to read them; above, it is dropped."""
    takes_within: float = 10.0
    """Seconds in which the other side must accept some of the waiting bytes; otherwise it counts as gone."""


class BrokerLink:
    """A connection after a successful greeting.

    Attributes
    ----------
    peer : Hello
    dialled : bool
        True if this side has called.
    why : str
        Reason for its end; empty before.
    final, refused : bool
        See `Goodbye`: what the other side has said at the end.
    """

    def __init__(
        self,
        reader: StreamReader,
        writer: StreamWriter,
        greeted: Greeted,
        codec: Codec,
        limits: LinkLimits,
        dialled: bool,
    ) -> None:
        self.peer, self.dialled, self.why = greeted.peer, dialled, ""
        self.final = self.refused = False
        self._reader, self._writer, self._codec, self._limits = reader, writer, codec, limits
        self._sends, self._receives = greeted.sends, greeted.receives
        keep_alive(writer.get_extra_info("socket"), limits.takes_within)

    @property
    def where(self) -> str:
        """The address of the other side."""
        host, port, *_ = self._writer.get_extra_info("peername") or ("somewhere", 0)
        return f"{host}:{port}"

    async def next(self) -> BrokerMessage:
        """Read the next message. Raises `LinkError`."""
        frame = await read(self._reader, CODE + self._limits.message, CODE)
        return self._codec.decoded(self._receives.opened(frame))

    def send(self, message: BrokerMessage) -> bool:
        """Send a message, without waiting; return whether the link is still open."""
        if self.why:
            return False
        transport = self._writer.transport
        try:
            data = encoded(message)
        except Exception:  # otherwise the other side would never get it
            _log.exception("a message to %s cannot be written", self.peer.name)
            self.end(OWN_ERROR)
            return False
        transport.write(self._sends.closed(data))
        waiting = transport.get_write_buffer_size()
        if waiting > self._limits.waiting:
            self.why = f"it does not take what it is sent: {waiting} bytes wait"
            transport.abort()
        return not self.why

    async def run(self, hear: Callable[[BrokerLink, BrokerMessage], None]) -> None:
        """Read messages and pass them to `hear`, until the link ends; `why` then has the reason."""
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
        except (RTFilterError, ValueError) as error:  # wrong content of a message; the machine reports it
            _log.warning("a connection of %s is closed: %s", self.peer.name, error)
            self.end(str(error))
        except Exception:
            _log.exception("a connection of %s is closed after an error of this broker", self.peer.name)
            self.end(OWN_ERROR)
        finally:
            await self._close()

    def end(self, why: str, final: bool = False, refused: bool = False) -> None:
        """Send the reason, and close the link; see `Goodbye` for `final` and `refused`."""
        if not self.why:
            self.send(Goodbye(why, final, refused))
            self.why = self.why or why
            transport = self._writer.transport
            with suppress(OSError, RuntimeError):  # it is closed already
                transport.write_eof()
            asyncio.get_running_loop().call_later(PARTING, transport.abort)

    async def close(self, why: str) -> None:
        """End the link, and wait until the other side has read all."""
        self.end(why)
        await self._close()

    async def _close(self) -> None:
        """Close after the other side has read all: an immediate close could discard unread data."""
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

    def linked(self, link: BrokerLink) -> None:
        """Handle a new link."""

    def lost(self, link: BrokerLink) -> None:
        """Handle the end of a link."""

    def hear(self, link: BrokerLink, message: BrokerMessage) -> None:
        """Process a message of a link. An error about it ends the link."""

    def broken(self, error: Exception) -> None:
        """Handle an error of the program that no link has caused."""


class Switchboard:
    """All connections of one broker or rendezvous point, whose greeting is `own`.

    Attributes
    ----------
    brokers : dict of str to BrokerLink
        Links to brokers, by their names.
    others : set of BrokerLink
        Links to clients and administrators.
    refused : set of str
        Names of brokers with which an administrator has stopped contact.
    """

    def __init__(
        self, own: Hello, key: Key, hears: Hears, codec: Codec, limits: LinkLimits | None = None
    ) -> None:
        self.own, self._key, self._hears, self._codec = own, key, hears, codec
        self._limits = limits or LinkLimits()
        self.brokers: dict[str, BrokerLink] = {}
        self.others: set[BrokerLink] = set()
        self.refused: set[str] = set()
        self._calls: dict[str, list[BrokerMessage]] = {}  # messages that wait for the answer to a call
        self._not_before: dict[str, float] = {}
        self._refusing: set[str] = set()  # names of brokers that refused the last connection
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[StreamWriter, str] = {}  # their hosts, the oldest first
        self._notices = Notices()  # in the log
        self._server: asyncio.Server | None = None

    async def listen(self, bound: socket.socket) -> None:
        """Accept connections."""
        self._server = await asyncio.start_server(self._accept, sock=bound)

    def send(self, name: str, address: str, message: BrokerMessage) -> bool:
        """Send a message to a broker; without a connection, call its address first.

        Returns False if the message is lost already. True does not promise that it arrives.
        """
        found = self.brokers.get(name)
        if found is not None:
            return found.send(message)
        if name in self._calls:
            room = len(self._calls[name]) < UNANSWERED
            if room:
                self._calls[name].append(message)
            return room
        resting = time.monotonic() < self._not_before.get(name, 0.0)
        if len(self._calls) >= CALLS or name in self.refused or resting or not address:
            return False
        self._calls[name] = [message]
        self._start(self._call(name, address))
        return True

    def refuse(self, name: str) -> None:
        """Stop contact with a broker."""
        self.refused.add(name)
        if name in self.brokers:
            self._drop(self.brokers[name], "an administrator of this broker has stopped contact")

    def drop(self, name: str, why: str) -> None:
        """End the connection to a broker, if there is one; the next may be made at once."""
        if name in self.brokers:
            self._drop(self.brokers[name], why)

    async def close(self, why: str) -> None:
        """End all connections."""
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
            link = BrokerLink(reader, writer, greeted, self._codec, self._limits, dialled=True)
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
        except Exception as error:
            if isinstance(error, LinkError | OSError):
                self._tell_refused(writer, error)
            else:
                _log.exception("a connection from %s is refused", writer.get_extra_info("peername"))
            writer.close()
            return
        finally:
            self._strangers.pop(writer, None)
            self._tasks.discard(task)
        link = BrokerLink(reader, writer, greeted, self._codec, self._limits, dialled=False)
        try:
            self._admit(greeted.peer)
        except LinkError as error:
            self._tell_refused(writer, error)
            link.end(str(error), refused=True)  # the other side cannot know it otherwise
            self._start(link.run(self._hears.hear))
        else:
            self._start(self._run(link, []))

    def _tell_refused(self, writer: StreamWriter, error: Exception) -> None:
        where = (writer.get_extra_info("peername") or ("somewhere",))[0]
        if self._notices.news(f"{where} {error}", ""):
            _log.warning("connections from %s are refused: %s", where, error)

    def _make_room(self) -> None:
        """Close a connection without a proven name: the oldest of the host with the most of them."""
        most, count = Counter(self._strangers.values()).most_common(1)[0]
        writer = next(one for one, where in self._strangers.items() if where == most)
        del self._strangers[writer]
        writer.transport.abort()
        if self._notices.news("", most):
            text = "%d connections have not said who they are, %d from %s; the oldest of those is closed"
            _log.warning(text, STRANGERS, count, most)

    def _admit(self, peer: Hello) -> None:
        """Raise `LinkError` with the reason why a peer that has the key may not be linked."""
        if peer.name in self.refused:
            raise LinkError(f"an administrator of this broker has stopped contact with {peer.name}")
        if not peer.is_broker:
            return
        if peer.name == self.own.name:
            raise LinkError(f"{peer.address} has the name of this broker, {peer.name}; names are unique")
        self._require_alike(peer)
        former = self.brokers.get(peer.name)
        if former is not None and former.peer.address != peer.address:
            raise LinkError(
                f"{peer.name} is linked from {former.peer.address} already, and now it calls from "
                f"{peer.address}; names are unique in a network, so one of the two needs another --name"
            )
        if former is None and len(self.brokers) >= BROKERS:
            raise LinkError(f"this broker is linked to {BROKERS} brokers, which is its limit")

    def _require_alike(self, peer: Hello) -> None:
        """Raise `LinkError` for a broker with another strategy, other event types, sizes or times.

        Its publications would be lost, could never arrive, or would be acknowledged too soon.
        """
        if not (peer.strategy and self.own.strategy):
            return
        them, us = peer.name, self.own.name
        for name in ("types", "assigned", "strategy", "message", "grace", "heartbeat", "missed"):
            theirs, ours = (getattr(one, name) for one in (peer, self.own))
            if theirs != ours:
                flag = {"types": "event types (--schema)", "assigned": "--rendezvous-for"}.get(name)
                differ = f"{them} has --{name} {theirs}, {us} --{name} {ours}"  # the others are digests
                both = f"{them} and {us} have different {flag}" if flag else differ
                raise LinkError(f"{both}; all brokers need the same")

    async def _run(self, link: BrokerLink, waiting: list[BrokerMessage]) -> None:
        peer = link.peer
        if not peer.is_broker:
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
            if link.dialled and peer.name in self._refusing:  # if it still refuses, that follows soon
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

    def _stands(self, link: BrokerLink) -> None:
        """Log that there is a link, if it still exists."""
        name = link.peer.name
        if self.brokers.get(name) is link:
            _log.info("linked to %s of %s", name, link.peer.cluster)
            self._notices.over(name)
            self._refusing.discard(name)

    def _prefers(self, link: BrokerLink) -> bool:
        """Return whether to accept a new link to a broker.

        If both have called each other, both keep the call of the lower name. A peer that calls again has lost
        the former connection, even if this side does not know yet.
        """
        former = self.brokers.get(link.peer.name)
        if former is None or link.peer.incarnation != former.peer.incarnation:
            return former is None or link.peer.incarnation > former.peer.incarnation
        return link.dialled == former.dialled or (self.own.name < link.peer.name) == link.dialled

    def _rest(self, name: str) -> None:
        """Make no calls to a broker for a moment."""
        now = time.monotonic()
        if len(self._not_before) >= BROKERS:
            self._not_before = {one: until for one, until in self._not_before.items() if until > now}
        self._not_before[name] = now + AGAIN

    def _drop(self, link: BrokerLink, why: str) -> None:
        link.end(why)
        self._gone(link)

    def _gone(self, link: BrokerLink) -> None:
        if link in self.others:
            self.others.discard(link)
        elif self.brokers.get(link.peer.name) is link:
            del self.brokers[link.peer.name]
            self._rest(link.peer.name)
            if link.refused:
                self._refusing.add(link.peer.name)
                self._not_reached(link.peer.name, link.where, link.why)
            elif link.peer.name not in self._refusing:
                _log.info("the link to %s has ended: %s", link.peer.name, link.why)
        else:
            return
        try:
            self._hears.lost(link)
        except Exception as error:
            self._hears.broken(error)
