"""A broker as a process: sockets, a clock and a database around its machines."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np

from rtfilter.basics.errors import RTFilterError
from rtfilter.events.schema import Schema
from rtfilter.matchers.registry import Factory
from rtfilter.overlay.broker_machine import Broker, Out
from rtfilter.overlay.broker_names import BrokerMessage, BrokerPlace, Send
from rtfilter.overlay.membership import Contact, Membership
from rtfilter.overlay.membership.contacts import RENDEZVOUS_POINT, Audience
from rtfilter.overlay.router import Router
from rtfilter.overlay.running.broker_frames import Hello
from rtfilter.overlay.running.broker_keys import Key, KeyRole
from rtfilter.overlay.running.broker_metrics import BrokerMetrics, Snapshot, on_loop
from rtfilter.overlay.running.broker_settings import POINT, BrokerSettings, BrokerSettingsError, host_and_port
from rtfilter.overlay.running.client_messages import Describe, Description, Goodbye, Switch, Welcome
from rtfilter.overlay.running.clients import Clients
from rtfilter.overlay.running.datagrams import Datagrams, MulticastGroup
from rtfilter.overlay.running.links import OWN_ERROR, BrokerLink
from rtfilter.overlay.running.process import Job, Process, now
from rtfilter.overlay.running.publications import ClientWork
from rtfilter.overlay.switching import Switched
from rtfilter.store.broker_store import BrokerMemory, BrokerStore
from rtfilter.watch.metrics import SECONDS, Histogram, serve

DELAYS: Final = 10_000
"""Most delays that wait for the next scrape of metrics."""
_log = logging.getLogger(__name__)


class BrokerProcess(Process):
    """A broker as a process, at an address for other processes."""

    settings: BrokerSettings

    def __init__(
        self,
        settings: BrokerSettings,
        types: Mapping[str, Schema],
        key: Key,
        store: BrokerStore,
        address: str,
        matchers: Mapping[str, Factory] | None = None,
    ) -> None:
        hello = Hello(
            KeyRole.BROKER,
            settings.name,
            settings.home,
            address,
            strategy=settings.strategy,
            types=_digest({name: schema.to_json() for name, schema in types.items()}),
            assigned=_digest(settings.assigned) if settings.assigned else "",
            message=settings.message,
            grace=settings.grace,
            heartbeat=settings.heartbeat,
            missed=settings.missed,
        )
        super().__init__(settings, hello, key, store)
        memory = store.memory() or bytes(8)
        self._term = int.from_bytes(memory[:8], "big")
        router = Router(
            settings.name,
            store.incarnation,
            types,
            settings.strategy,
            covering=True,
            grace=settings.grace,
            choose_every=settings.choose_every,
            slack=settings.slack,
            longest=settings.message,
            assigned=settings.assigned,
            matchers=matchers,
        )
        if memory[8:]:
            router.resume(msgspec.msgpack.decode(memory[8:], type=Switched))
        self._wave = router.switched.wave
        self.membership = Membership(
            Contact(settings.name, settings.home, address),
            settings.times,
            store.incarnation,
            store.incarnation,
            self._term,
        )
        self.broker = Broker(router, self.membership)
        self.clients = Clients(self.broker, int(1000 * time.time()), settings.client_limits)
        self._links: dict[str, BrokerLink] = {}  # links to clients, by name
        self.counts: Counter[str] = Counter()  # sent messages by kind
        self._elections, self._designated = 0, ""
        self._moves, self._parent = 0, ""
        self._logged = "", ""  # the root and the cluster above
        self._strategy = router.strategy.name  # as last logged
        self._delays = Histogram(SECONDS)  # from publications to their acknowledgements
        self._group: MulticastGroup | None = None
        if settings.group:
            datagrams = Datagrams(key, settings.home, settings.name, store.incarnation, self.codec)
            place = host_and_port(settings.group)
            self._group = MulticastGroup(datagrams, self._hear_datagram, *place, settings.interface)

    async def _start(self) -> None:
        if self._group is not None:
            try:
                await self._group.join()
            except OSError as error:
                group, interface = self.settings.group, self.settings.interface
                raise BrokerSettingsError(
                    f"--group {group} cannot be joined by --interface {interface}: "
                    f"{error.strerror or error}; give an address of this machine with multicast, or --peer"
                ) from None
        kept = self.store.subscriptions(), self.store.publications()
        self.membership.election.stored_term = self._term
        self._do(self.clients.restore(*kept, now()))

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

    # -- incoming ------------------------------------------------------------------------------------

    def linked(self, link: BrokerLink) -> None:
        name = link.peer.name
        if link.peer.role is KeyRole.CLIENT:
            if not self._takes(link):
                return
            self._links[name] = link
            link.send(Welcome())
            self._do(self.clients.joined(name, link.peer.incarnation, now()))
        elif link.peer.is_broker:
            self._do(ClientWork([], self.broker.linked(name, now())))

    def _takes(self, link: BrokerLink) -> bool:
        """Return whether to accept a client's connection; end an earlier connection of the same name.

        Of two programs with one name, the later one keeps it, and the other one does not reconnect: otherwise
        they would take it from each other for ever.
        """
        name = link.peer.name
        former = self._links.get(name)
        if former is None:
            if self.clients.has_room(name):
                return True
            most = self.clients.limits.clients
            link.end(f"this broker has {most:,} clients, as many as it takes; connect to another one")
            return False
        if former.peer.incarnation == link.peer.incarnation:
            former.end("another connection takes its place")
            return True
        if link.peer.again:
            _log.warning("%s at %s is refused: the name is that of %s now", name, link.where, former.where)
            link.end(f"another program, at {former.where}, is connected as {name}; take another name", True)
            return False
        _log.warning("%s at %s ends: %s has connected by the same name", name, former.where, link.where)
        former.end(f"another program, at {link.where}, has connected as {name}; take another name", True)
        return True

    def lost(self, link: BrokerLink) -> None:
        name = link.peer.name
        if self._links.get(name) is link:
            del self._links[name]
            self.clients.left(name, now())
        elif link.peer.is_broker:
            self._do(ClientWork([], self.broker.lost(name, now())))

    def hear(self, link: BrokerLink, message: BrokerMessage) -> None:
        peer = link.peer
        if peer.role is KeyRole.CLIENT:
            if self._links.get(peer.name) is link:
                self._do(self.clients.hear(peer.name, message, now()))
        elif not peer.is_broker:
            self._administer(link, message)
        else:
            name = RENDEZVOUS_POINT if peer.name == POINT else peer.name
            self._do(ClientWork([], self.broker.receive(message, name, peer.cluster, now())))

    def _administer(self, link: BrokerLink, message: BrokerMessage) -> None:
        if isinstance(message, Switch):
            _log.info("the strategy of the network is to be %.60s", message.strategy)
            self._do(ClientWork([], self.broker.switch(message.strategy, now())))
            message = Describe()
        super()._administer(link, message)

    def _hear_datagram(self, sender: str, message: BrokerMessage) -> None:
        if sender in self.board.refused:
            return
        try:
            self._do(ClientWork([], self.broker.receive(message, sender, self.settings.home, now())))
        except (RTFilterError, ValueError):
            raise
        except Exception:
            _log.exception("a datagram of %s is dropped after an error of this broker", sender)
            self.board.drop(sender, OWN_ERROR)

    def _due(self, now: float) -> None:
        self._do(ClientWork([], self.broker.tick(now)))
        self._do(self.clients.tick(now))

    # -- outgoing ------------------------------------------------------------------------------------

    def _do(self, work: ClientWork) -> None:
        work = self.clients.passed(work, now())
        place = self.membership.place
        if place.designated and place.designated != self._designated:
            self._elections, self._designated = self._elections + 1, place.designated
        if place.parent and place.parent != self._parent:
            self._moves, self._parent = self._moves + 1, place.parent
        self._log_changes(place)
        if len(self.clients.publications.delays) > DELAYS:  # no scrape reads them
            self._count_delays()
        switched = self.broker.router.switched
        if self.membership.term != self._term or switched.wave is not self._wave:
            self._term, self._wave = self.membership.term, switched.wave
            kept = partial(self._term_kept, self._term)
            more = msgspec.msgpack.encode(switched) if switched.wave.number else b""
            self.keeper.keep(Job([BrokerMemory(self._term.to_bytes(8, "big") + more)], kept))
        if work.changes:
            self.keeper.keep(Job(work.changes))
        for asked in work.asked:
            kept, refused = partial(self._then, asked.kept), partial(self._then, asked.refused)
            self.keeper.keep(Job([asked.change], kept, refused))
        for one in work.out:
            self._send(one)

    def _log_changes(self, place: BrokerPlace) -> None:
        """Log the strategy for new events, the root, and the cluster above, if they have changed."""
        former, self._strategy = self._strategy, self.broker.router.strategy.name
        if self._strategy != former:
            _log.info("events are routed by %s now; before, they were by %s", self._strategy, former)
        root, cluster = self.membership.root, place.cluster
        state = (root, place.parent) if place.root or place.parent else ("", "")
        if state == self._logged or (place.parent and not root):  # the root becomes known soon
            return
        self._logged = state
        if place.root:
            _log.info(
                "cluster %s is the root of the tree now; its designated broker is %s",
                cluster,
                place.designated,
            )
        elif root:
            _log.info(
                "the root of the tree is cluster %s; above cluster %s is %s", root, cluster, place.parent
            )
        else:
            _log.info("cluster %s has no place in the tree, and looks for one", cluster)

    def _term_kept(self, term: int) -> None:
        self.membership.election.stored_term = term

    def _then(self, what: Callable[[float], ClientWork]) -> None:
        self._do(what(now()))

    def _send(self, one: Out) -> None:
        self.counts[type(one.message).__name__] += 1
        if isinstance(one, Send):
            link = self._links.get(one.to.name)
            if link is not None and isinstance(one.message, Goodbye):
                link.end(one.message.reason)
            elif link is not None:
                link.send(one.message)
            return
        match one.to.audience:
            case Audience.BROKER:
                self.board.send(one.to.name, one.to.address, one.message)
            case Audience.RENDEZVOUS:
                self.board.send(POINT, self.settings.rendezvous, one.message)
            case Audience.CLUSTER:
                if self._group is None or not self._group.send(one.message):
                    for other in (self.settings.known | self.membership.contacts).values():
                        if other.cluster == self.settings.home and other.name != self.settings.name:
                            self.board.send(other.name, other.address, one.message)

    # -- description ---------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return sizes and counts of all parts, JSON-able."""
        place = self.broker.place
        return {
            "router": self.broker.router.stats(),
            "clients": self.clients.stats(),
            "sent": dict(self.counts),
            "process": {
                "term": self.membership.term,
                "links": len(self.board.brokers),
                "keeping": int(not self.keeper.failing),
                "reached": int(place.root or bool(place.parent)),
                "elections": self._elections,
                "moves": self._moves,
                "datagrams_refused": 0 if self._group is None else self._group.refused,
            },
        }

    def snapshot(self) -> Snapshot:
        """Return the state of the broker for metrics."""
        self._count_delays()
        return self.stats(), self._delays

    def _count_delays(self) -> None:
        self._delays.add(np.array(self.clients.publications.delays))
        self.clients.publications.delays.clear()

    def _describe(self) -> Description:
        place, known = self.membership.place, self.membership.contacts
        return Description(
            self.membership.contact,
            place.designated,
            tuple(known[name] for name in sorted(place.members) if name in known),
            place.parent,
            tuple(known[name] for name in sorted(place.links.values()) if name in known),
            place.root,
            self.stats(),
            tuple(sorted(self.board.refused)),
        )


def _digest(told: Mapping[str, Any]) -> str:
    """Return a digest of a mapping, whatever its order."""
    text = json.dumps(told, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
