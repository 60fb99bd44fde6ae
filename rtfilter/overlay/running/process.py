"""A broker, or the rendezvous point, as a process: sockets, a clock and a database around machines."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, closing, suppress
from typing import Any, Final

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from rtfilter.events.schema import Schema
from rtfilter.overlay.broker import Broker, Out
from rtfilter.overlay.membership import (
    RENDEZVOUS_POINT,
    AskRoot,
    Audience,
    ClaimRoot,
    Contact,
    Dispatch,
    Membership,
    RendezvousPoint,
    RenewRoot,
    Root,
)
from rtfilter.overlay.router import Router
from rtfilter.overlay.running.client_messages import Cut, Describe, Description, Known
from rtfilter.overlay.running.clients import Clients, Work
from rtfilter.overlay.running.codec import Codec
from rtfilter.overlay.running.datagrams import Datagrams, Group
from rtfilter.overlay.running.greeting import Hello
from rtfilter.overlay.running.keeping import Keeper
from rtfilter.overlay.running.keys import Key, Role
from rtfilter.overlay.running.links import Link, Switchboard
from rtfilter.overlay.running.metrics import BrokerMetrics, Delays, Snapshot, on_loop
from rtfilter.overlay.running.settings import (
    POINT,
    BrokerSettings,
    Common,
    PointSettings,
    SettingsError,
    host_and_port,
)
from rtfilter.overlay.sending import Message, Send
from rtfilter.store.brokers import BrokerStore, Memory
from rtfilter.store.database import engine
from rtfilter.store.folder import locked
from rtfilter.store.log import TakenError
from rtfilter.watch.metrics import serve

DELAYS: Final = 10_000
"""Delays that wait to be counted."""
TICKS: Final = 20
"""Ticks in the time of a heartbeat."""
_log = logging.getLogger(__name__)


class Process:
    """What both have in common.

    Parameters
    ----------
    settings : Common
    hello : Hello
        Who this is, but for its incarnation.
    key : Key
    store : BrokerStore

    Attributes
    ----------
    counts : Counter
        Messages sent, by the name of their class.
    """

    def __init__(self, settings: Common, hello: Hello, key: Key, store: BrokerStore) -> None:
        self.settings, self.store = settings, store
        own = msgspec.structs.replace(hello, incarnation=store.incarnation)
        self.codec = Codec()
        self.board = Switchboard(own, key, self, self.codec, settings.limits)
        self.keeper = Keeper(store, self._send)
        self.counts: Counter[str] = Counter()
        self._ended = asyncio.Event()

    def end(self) -> None:
        """End soon."""
        self._ended.set()

    async def run(self, bound: socket.socket, started: Callable[[], None]) -> int:
        """Run until told to end; returns the exit code.

        Parameters
        ----------
        bound : socket.socket
            Where to listen.
        started : callable
            Called when others can connect.
        """
        await self._start()
        work = [asyncio.create_task(self.keeper.run()), asyncio.create_task(self._tick())]
        await self.board.listen(bound)
        started()
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait([*work, ended], return_when=asyncio.FIRST_COMPLETED)
        failed = [one for one in work if one.done()]
        for one in (*work, ended):
            one.cancel()
        for one in failed:
            error = one.exception()
            _log.critical("the process ends: %s", getattr(error, "orig", None) or error)
        if not failed:
            with suppress(SQLAlchemyError, TakenError):
                await self.keeper.flush()
        await self.board.close("this process ends")
        return 1 if failed else 0

    def linked(self, link: Link) -> None:
        """See `Hears`."""
        raise NotImplementedError

    def lost(self, link: Link) -> None:
        """See `Hears`."""
        raise NotImplementedError

    def hear(self, link: Link, message: Message) -> None:
        """See `Hears`."""
        raise NotImplementedError

    async def _start(self) -> None:
        """Begin."""

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat / TICKS)
            self._due(_now())

    def _due(self, now: float) -> None:
        """Do what is due."""

    def _send(self, one: Out) -> None:
        raise NotImplementedError

    def _describe(self) -> Description:
        raise NotImplementedError

    def _administer(self, link: Link, message: Message) -> None:
        """Take a message of whoever administers."""
        match message:
            case Describe():
                pass
            case Cut(broker=broker, heal=True):
                self.board.refused.discard(broker)
            case Cut(broker=broker):
                self.board.refuse(broker)
            case _:
                raise ValueError(f"nobody who administers says {type(message).__name__}")
        link.send(self._describe())


class BrokerProcess(Process):
    """A broker.

    Parameters
    ----------
    settings : BrokerSettings
    types : mapping of str to Schema
    key : Key
    store : BrokerStore
    address : str
        Where others reach it.
    """

    settings: BrokerSettings

    def __init__(
        self,
        settings: BrokerSettings,
        types: Mapping[str, Schema],
        key: Key,
        store: BrokerStore,
        address: str,
    ) -> None:
        super().__init__(settings, Hello(Role.BROKER, settings.name, settings.home, address), key, store)
        self._term = int.from_bytes(store.memory() or b"", "big")
        router = Router(
            settings.name, store.incarnation, types, settings.strategy, covering=True, grace=settings.grace
        )
        self.membership = Membership(
            Contact(settings.name, settings.home, address),
            settings.times,
            store.incarnation,
            store.incarnation,
            self._term,
        )
        self.broker = Broker(router, self.membership)
        self.clients = Clients(self.broker, int(1000 * time.time()), settings.patience)
        self._links: dict[str, Link] = {}  # of clients, by name
        self._elections, self._designated = 0, ""
        self._moves, self._parent = 0, ""
        self._delays = Delays()
        self._group: Group | None = None
        if settings.group:
            datagrams = Datagrams(key, settings.home, settings.name, store.incarnation, self.codec)
            place = host_and_port(settings.group)
            self._group = Group(datagrams, self._hear_datagram, *place, settings.interface)

    async def _start(self) -> None:
        _warm()
        if self._group is not None:
            await self._group.join()
        kept = self.store.subscriptions(), self.store.publications()
        self._do(self.clients.restore(*kept, _now()))

    async def run(self, bound: socket.socket, started: Callable[[], None]) -> int:
        """See `Process.run`."""
        stop: Callable[[], None] | None = None
        if self.settings.metrics_port is not None:
            metrics = BrokerMetrics(on_loop(asyncio.get_running_loop(), self.snapshot))
            stop = serve(metrics.registry, self.settings.metrics_port, self.settings.host)
        try:
            return await super().run(bound, started)
        finally:
            if stop is not None:
                await asyncio.to_thread(stop)
            if self._group is not None:
                self._group.leave()

    # -- what comes ----------------------------------------------------------------------------------

    def linked(self, link: Link) -> None:
        """See `Hears`."""
        name = link.peer.name
        if link.peer.role is Role.CLIENT:
            former = self._links.get(name)
            self._links[name] = link
            if former is not None:
                former.end("another connection has the same name")
            self._do(self.clients.joined(name, _now()))
        elif link.peer.address:
            self._do(Work([], self.broker.linked(name, _now())))

    def lost(self, link: Link) -> None:
        """See `Hears`."""
        name = link.peer.name
        if self._links.get(name) is link:
            del self._links[name]
            self.clients.left(name, _now())
        elif link.peer.role is Role.BROKER and link.peer.address:
            self._do(Work([], self.broker.lost(name, _now())))

    def hear(self, link: Link, message: Message) -> None:
        """See `Hears`."""
        peer = link.peer
        if peer.role is Role.CLIENT:
            if self._links.get(peer.name) is link:
                self._do(self.clients.hear(peer.name, message, _now()))
        elif not peer.address:
            self._administer(link, message)
        else:
            name = RENDEZVOUS_POINT if peer.name == POINT else peer.name
            self._do(Work([], self.broker.receive(message, name, peer.cluster, _now())))

    def _hear_datagram(self, sender: str, message: Message) -> None:
        if sender not in self.board.refused:
            self._do(Work([], self.broker.receive(message, sender, self.settings.home, _now())))

    def _due(self, now: float) -> None:
        self._do(Work([], self.broker.tick(now)))
        self._do(self.clients.tick(now))

    # -- what goes -----------------------------------------------------------------------------------

    def _do(self, work: Work) -> None:
        work = self.clients.passed(work, _now())
        place = self.membership.place
        if place.designated and place.designated != self._designated:
            self._elections, self._designated = self._elections + 1, place.designated
        if place.parent and place.parent != self._parent:
            self._moves, self._parent = self._moves + 1, place.parent
        if len(self.clients.delays) > DELAYS:  # nobody asks for metrics
            self._delays.counted(self.clients.delays)
        if self.membership.term != self._term:
            self._term = self.membership.term
            work.changes.append(Memory(self._term.to_bytes(8, "big")))
        self.keeper.do(work)

    def _send(self, one: Out) -> None:
        self.counts[type(one.message).__name__] += 1
        if isinstance(one, Send):
            if one.to.name in self._links:
                self._links[one.to.name].send(one.message)
            return
        match one.to.audience:
            case Audience.BROKER:
                self.board.send(one.to.name, one.to.address, one.message)
            case Audience.RENDEZVOUS:
                self.board.send(POINT, self.settings.rendezvous, one.message)
            case Audience.CLUSTER:
                if self._group is None or not self._group.send(one.message):
                    for fellow in self._fellows():
                        self.board.send(fellow.name, fellow.address, one.message)

    def _fellows(self) -> list[Contact]:
        """All others of the cluster that are known."""
        known = self.settings.known | self.membership.contacts
        return [
            contact
            for contact in known.values()
            if contact.cluster == self.settings.home and contact.name != self.settings.name
        ]

    # -- what it is ----------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Sizes and counts of all parts, JSON-able."""
        place = self.broker.place
        return {
            "router": self.broker.router.stats(),
            "clients": self.clients.stats(),
            "sent": dict(self.counts),
            "process": {
                "term": self.membership.term,
                "links": len(self.board.brokers),
                "reached": int(place.root or bool(place.parent)),
                "elections": self._elections,
                "moves": self._moves,
                "datagrams_refused": 0 if self._group is None else self._group.refused,
            },
        }

    def snapshot(self) -> Snapshot:
        """How it is, for metrics."""
        stats = self.stats()
        return Snapshot(stats, stats.pop("sent"), self._delays.counted(self.clients.delays))

    def _describe(self) -> Description:
        place, contacts = self.membership.place, self.membership.contacts
        known = {name: Known(*contact) for name, contact in contacts.items()}
        return Description(
            Known(*self.membership.contact),
            place.designated,
            tuple(known[name] for name in sorted(place.members) if name in known),
            place.parent,
            tuple(known[name] for name in sorted(place.links.values()) if name in known),
            place.root,
            self.stats(),
            tuple(sorted(self.board.refused)),
        )


class PointProcess(Process):
    """The rendezvous point.

    Parameters
    ----------
    settings : PointSettings
    key : Key
    store : BrokerStore
    address : str
    """

    def __init__(self, settings: PointSettings, key: Key, store: BrokerStore, address: str) -> None:
        super().__init__(settings, Hello(Role.BROKER, POINT, POINT, address), key, store)
        kept = store.memory()
        root = None if kept is None else msgspec.msgpack.decode(kept, type=Root)
        self.point = RendezvousPoint(settings.times, root, _now())

    def linked(self, link: Link) -> None:
        """See `Hears`."""

    def lost(self, link: Link) -> None:
        """See `Hears`."""

    def hear(self, link: Link, message: Message) -> None:
        """See `Hears`."""
        if link.peer.role is not Role.BROKER:
            raise ValueError("the rendezvous point serves no clients; connect to a broker")
        if not link.peer.address:
            self._administer(link, message)
            return
        if not isinstance(message, AskRoot | ClaimRoot | RenewRoot):
            raise ValueError(f"nobody says {type(message).__name__} to the rendezvous point")
        before = self.point.root
        out = self.point.receive(message, link.peer.name, _now())
        changed = self.point.root != before and self.point.root is not None
        changes = [Memory(msgspec.msgpack.encode(self.point.root))] if changed else []
        self.keeper.do(Work([*changes], [*out]))

    def _send(self, one: Out) -> None:
        self.counts[type(one.message).__name__] += 1
        assert isinstance(one, Dispatch)
        self.board.send(one.to.name, one.to.address, one.message)

    def _describe(self) -> Description:
        root = self.point.root
        links = () if root is None else (Known(*root.cluster.designated),)
        return Description(Known(POINT, POINT, self.board.own.address), links=links, refused=())


def run(
    settings: BrokerSettings | PointSettings,
    types: Mapping[str, Schema],
    started: Callable[[str], None],
) -> int:
    """Run a process until a signal tells to end; returns the exit code.

    Parameters
    ----------
    settings : BrokerSettings or PointSettings
    types : mapping of str to Schema
        Of a broker.
    started : callable
        Gets the address when others can connect.

    Raises
    ------
    RTFilterError, OSError, sqlalchemy.exc.SQLAlchemyError
    """
    return asyncio.run(_run(settings, types, started))


async def _run(
    settings: BrokerSettings | PointSettings, types: Mapping[str, Schema], started: Callable[[str], None]
) -> int:
    key = Key.read(settings.key)
    if key.of(Role.BROKER) is None:
        raise SettingsError(f"{settings.key} holds the key of {key.role}s; this needs that of the network")
    async with AsyncExitStack() as stack:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        stack.enter_context(locked(settings.data))
        bound = stack.enter_context(closing(_bound(settings.host, settings.port)))
        address = f"{_shown(settings.host)}:{bound.getsockname()[1]}"
        database = engine(settings.url)
        stack.callback(database.dispose)
        process: Process
        if isinstance(settings, BrokerSettings):
            address = settings.address or address
            process = BrokerProcess(settings, types, key, BrokerStore(database, settings.name), address)
        else:
            process = PointProcess(settings, key, BrokerStore(database, POINT), address)
        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, process.end)
        return await process.run(bound, lambda: started(address))


def _warm() -> None:
    """Load the kernels, or compile them, before others rely on this broker: it would be silent meanwhile."""
    router = Router("warm", 1, {"": Schema({"x": float, "s": str})})
    ids = [router.subscribe("", "", f"x > {low} AND s = 'a'", 0.0)[0] for low in range(3)]
    for _ in range(2):
        router.publish("", "", {"x": 1.5, "s": "a"}, 0.0)
        for id in ids:
            router.unsubscribe(id, 0.0)
        router.subscribe("", "", "x > 1", 0.0)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return made
