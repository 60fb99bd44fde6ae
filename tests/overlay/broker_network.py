"""Whole brokers in simulated time: each finds its cluster, its parent and its routes by itself.

Two brokers have a connection from the first message between them. It ends when one of them crashes, or a cut
separates them: messages on their way are lost, and both brokers are notified.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any

import simpy

from experiments.simulation.event_messages import Acknowledge, EventId
from experiments.simulation.event_router import EventBroker, EventRouter
from experiments.simulation.network import Network, Parcel, SimulatedDelivery, Station
from experiments.simulation.topology import Topology
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_machine import Broker
from rtfilter.overlay.broker_names import BrokerMessage, Send
from rtfilter.overlay.membership import Contact, Membership, MembershipSettings, RendezvousPoint
from rtfilter.overlay.membership.contacts import DEFAULT, RENDEZVOUS_POINT, Audience
from rtfilter.overlay.routing_messages import Confirm

NOTICE = 1.0
"""Most seconds until both ends of a connection notice a cut."""


class BrokerNetwork(Network):
    """Brokers, and a rendezvous point that never fails.

    Only clusters, members and latencies of the topology are used: the brokers make the tree.

    Parameters
    ----------
    topology : Topology
    types : mapping of str to Schema
    settings : MembershipSettings, optional
        Settings of the membership of all brokers.
    router : callable, optional
        Makes the router of a broker from its name, its incarnation and the types.
    seed : int
        Seed of all random numbers.
    **others
        See `Network`.

    Attributes
    ----------
    confirmed : dict of str to float
        Time of each client's confirmation, by the client's name.
    acknowledged : dict of EventId to float
        Time of each event's first acknowledgement.
    """

    def __init__(
        self, topology: Topology, types: Mapping[str, Schema], settings: MembershipSettings = DEFAULT,
        router: Callable[[str, int, Mapping[str, Schema]], EventRouter] = EventRouter, seed: int = 0,
        **others: Any,
    ) -> None:  # fmt: skip
        self.types, self.settings, self._router = types, settings, router
        self._up: dict[frozenset[str], int] = {}
        self._broken: set[frozenset[str]] = set()
        self._opened = 0
        self._terms: dict[str, int] = {}
        self._chance = Random(f"brokers {seed}")
        self._numbers = 0
        self.confirmed: dict[str, float] = {}
        self.acknowledged: dict[EventId, float] = {}
        others.setdefault("interval", settings.heartbeat / 8)
        super().__init__(topology, self._made, seed=seed, **others)
        self.hear = self._hear

    def _names(self) -> list[str]:
        return [RENDEZVOUS_POINT, *self.topology.brokers]

    def _made(self, name: str, incarnation: int) -> Any:
        if name == RENDEZVOUS_POINT:
            return _Point(self.settings)
        router = self._router(name, incarnation, self.types)
        contact = Contact(name, self.cluster_of(name), name)
        seed, term = self._chance.randrange(2**32), self._terms.get(name, 0)
        return EventBroker(router, Membership(contact, self.settings, seed, incarnation, term))

    def cluster_of(self, name: str) -> str:
        """See `Network`; the rendezvous point is at the first cluster."""
        return self.topology.cluster_of[name] if name else self.topology.root

    # -- clients -------------------------------------------------------------------------------------

    def subscribe(self, at: float, broker: str, client: str, type: str, condition: str) -> None:
        """Make a client subscribe at a moment."""
        self.ask(at, broker, lambda own, now: own.subscribe(client, type, condition, now)[1])

    def publish(
        self, at: float, broker: str, client: str, type: str, event: Mapping[str, Any], attempt: int = 1,
        id: EventId | None = None,
    ) -> EventId:  # fmt: skip
        """Make a client publish at a moment; return the event's id, under which it may be published again."""
        self._numbers += id is None
        known = id or EventId(client, 1, self._numbers)
        self.ask(at, broker, lambda own, now: own.publish(client, type, event, now, known, attempt))
        return known

    def publish_surely(
        self, at: float, brokers: Sequence[str], client: str, type: str, event: Mapping[str, Any],
        again: float,
    ) -> EventId:  # fmt: skip
        """Make a client publish, at several brokers in rotation, until the event is acknowledged."""
        self._numbers += 1
        id = EventId(client, 1, self._numbers)

        def attempts() -> Generator[simpy.Event, Any, None]:
            yield self.env.timeout(at - self.env.now)
            for attempt in count(1):
                if id in self.acknowledged:
                    return
                broker = brokers[(attempt - 1) % len(brokers)]
                self.publish(self.env.now, broker, client, type, event, attempt, id)
                yield self.env.timeout(again)

        self.env.process(attempts())
        return id

    def _hear(self, delivery: SimulatedDelivery) -> None:
        message = delivery.message
        if isinstance(message, Acknowledge):
            self.acknowledged.setdefault(message.id, delivery.at)
        elif isinstance(message, Confirm):
            self.confirmed[delivery.client] = delivery.at
        else:
            self.deliveries.append(delivery)

    # -- how it works --------------------------------------------------------------------------------

    def _parcel(self, sender: Station, to: Any) -> Parcel:
        seen = sender.name, self.cluster_of(sender.name) if sender.name else ""
        if to.audience is Audience.CLUSTER:
            own = self.topology.members[self.cluster_of(sender.name)]
            others = [broker for broker in own if broker != sender.name]
            return Parcel(dict.fromkeys(others, seen), self.cluster_of(sender.name), many=True)
        name = RENDEZVOUS_POINT if to.audience is Audience.RENDEZVOUS else to.name
        return Parcel({name: seen}, name)

    def _take(self, message: BrokerMessage, source: Any, machine: Any, now: float) -> Iterable[Send]:
        taken: Iterable[Send] = machine.receive(message, *source, now)
        return taken

    def _transmit(
        self, sender: str, receiver: str, message: BrokerMessage, source: Any, many: bool = False
    ) -> None:
        if isinstance(self.machine(sender), Broker):
            self._terms[sender] = self.machine(sender).membership.term
        if many or RENDEZVOUS_POINT in (sender, receiver):
            super()._transmit(sender, receiver, message, source, many)
        elif (pair := frozenset((sender, receiver))) in self._up:
            opened = self._up[pair]
            self._later(
                self.latency(sender, receiver), partial(self._arrive, pair, opened, receiver, message, source)
            )
        elif pair in self._broken or self.machine(receiver) is None:
            self.lost[type(message).__name__] += 1
        else:
            self._open(pair)
            self._transmit(sender, receiver, message, source)

    def _arrive(
        self, pair: frozenset[str], opened: int, receiver: str, message: BrokerMessage, source: Any
    ) -> None:
        if self._up.get(pair) == opened:
            self._put(self.stations[receiver], partial(self._take, message, source))
        else:
            self.lost[type(message).__name__] += 1

    def _open(self, pair: frozenset[str]) -> None:
        self._opened += 1
        self._up[pair] = self._opened
        one, other = sorted(pair)
        self._put(self.stations[one], partial(_linked, other))
        self._put(self.stations[other], partial(_linked, one))

    def _close(self, pair: frozenset[str], notice: float) -> None:
        """End a connection; its ends are notified later, and open no other one before."""
        self._up.pop(pair)
        self._broken.add(pair)

        def hear() -> None:
            self._broken.discard(pair)
            one, other = sorted(pair)
            self._put(self.stations[one], partial(_lost, other))
            self._put(self.stations[other], partial(_lost, one))

        self._later(notice, hear)

    def crash(self, broker: str) -> None:
        """See `Network`; all of its connections end."""
        super().crash(broker)
        for pair in [pair for pair in self._up if broker in pair]:
            self._close(pair, 0.0)

    def cut(self, clusters: frozenset[str]) -> None:
        """See `Network`; connections across the cut end."""
        super().cut(clusters)
        for pair in [pair for pair in self._up if self._apart(*pair)]:
            self._close(pair, self._chance.uniform(0, NOTICE))


class _Point:
    """The rendezvous point in a simulated network."""

    def __init__(self, settings: MembershipSettings) -> None:
        self.point = RendezvousPoint(settings)

    def receive(self, message: Any, source: str, cluster: str, now: float) -> list[Any]:
        del cluster
        return list(self.point.receive(message, source, now))

    def tick(self, now: float) -> list[Any]:
        del now
        return []


def _linked(other: str, broker: Broker, now: float) -> list[Any]:
    return broker.linked(other, now)


def _lost(other: str, broker: Broker, now: float) -> list[Any]:
    return broker.lost(other, now)
