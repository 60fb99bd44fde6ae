"""The routes of events that all subscribers want, asked of real routers.

If all events are alike, what a broker does with one depends on nothing but from where it came. So each router
is asked once for each connection from which events come to it, and all events follow the answers. That this
gives the messages and times of a network in which each message is really routed is a test.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from experiments.simulation.event_messages import Event, EventId, Notify
from experiments.simulation.event_router import EventRouter
from experiments.simulation.network import Network, SimulatedCosts, parcel
from experiments.simulation.topology import LAN, Topology
from rtfilter.events.schema import Schema
from rtfilter.index.kernels.jit import kernel
from rtfilter.overlay.broker_names import Connection, ConnectionKind, Send, client

TYPE = "quote"
SCHEMA = Schema({"price": int})
ALL = "price >= 0"
"""The condition of all subscribers."""
EVENT = {"price": 1}
"""The event of all publishers: a single kind, as in the paper."""
PUBLISHER = client("publisher")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Routes(NamedTuple):
    """The actions for an event in each state: at a broker, from a connection.

    Each *act* of a state takes time of the broker: it serves a client, or sends a message, which arrives in
    one or more states of others.

    Attributes
    ----------
    broker : (states,) int array
    acts : (states + 1,) int array
        First act of each state.
    arrivals : (acts + 1,) int array
        First arrival of each act. An act without any is a delivery to a client.
    links : (acts,) int array
        Number of links that the message of each act crosses, see `crossed`; 0 to a client.
    state : (arrivals,) int array
    seconds : (arrivals,) float array
        Seconds that the message is on its way.
    starts : (publishers,) int array
        The state in which the event of each publisher begins.
    """

    broker: Ints
    acts: Ints
    arrivals: Ints
    links: Ints
    state: Ints
    seconds: Floats
    starts: Ints

    def first(self, publishers: int) -> Routes:
        """Return the routes of the first publishers alone."""
        return self._replace(starts=self.starts[:publishers])


def crossed(topology: Topology) -> dict[tuple[str, str], int]:
    """Return the number of network links between two clusters that are linked in the tree.

    Within a cluster, whose members and itself stand at one router, a message or a multicast crosses one link,
    that of the local network. A tree without a network of routers has one link between linked clusters.
    """
    found = {(cluster, cluster): 1 for cluster in topology.clusters}
    for child, parent in topology.parents.items():
        hops = 1
        if topology.routers is not None:
            ends = topology.sites[child], topology.sites[parent]
            hops = len(nx.dijkstra_path(topology.routers, *ends)) - 1
        found[child, parent] = found[parent, child] = hops
    return found


class Routers:
    """Routers of a fixed tree that speak to each other at once, one message after the other.

    Parameters
    ----------
    topology : Topology
    strategy : str
        Strategy of the routers.

    Attributes
    ----------
    crossed : dict of (str, str) to int
        See `crossed`.
    sent : Counter
        Messages so far by kind, without the events of `routes`. A multicast counts once.
    """

    def __init__(self, topology: Topology, strategy: str) -> None:
        self.topology = topology
        self.crossed = crossed(topology)
        self.places = {broker: topology.place(broker) for broker in topology.brokers}
        self.routers = {
            broker: EventRouter(broker, 1, {TYPE: SCHEMA}, strategy) for broker in topology.brokers
        }
        self.sent: Counter[str] = Counter()
        for broker, router in self.routers.items():
            router.place(self.places[broker], 0.0)  # a new router has nothing to send
        self._asked = 0

    def subscribe(self, brokers: Iterable[str], first: int = 0) -> None:
        """Subscribe a client at each of some brokers; clients are numbered."""
        for number, broker in enumerate(brokers, first):
            _, sends = self.routers[broker].subscribe(f"s{number}", TYPE, ALL, 0.0)
            self._settle(broker, sends)

    def _settle(self, broker: str, sends: Sequence[Send]) -> None:
        waiting = deque((broker, send) for send in sends)
        while waiting:
            sender, (to, message) = waiting.popleft()
            self.sent[type(message).__name__] += 1
            for receiver, source in parcel(self.places[sender], to).receivers.items():
                more = self.routers[receiver].receive(message, source, 0.0)
                waiting.extend((receiver, send) for send in more)

    def routes(self, publishers: Sequence[str]) -> Routes:
        """Ask the routers where events of some brokers' clients go."""
        states: dict[tuple[str, Connection], int] = {}
        order: list[tuple[str, Connection]] = []

        def number(broker: str, source: Connection) -> int:
            key = broker, source
            if key not in states:
                states[key] = len(order)
                order.append(key)
            return states[key]

        starts = [number(broker, PUBLISHER) for broker in publishers]
        acts, arrivals, targets, seconds, links = [0], [0], list[int](), list[float](), list[int]()
        for broker, source in order:  # grows meanwhile
            for to, _ in self._ask(broker, source):
                links.append(0 if to.kind is ConnectionKind.CLIENT else self._links(broker, to))
                if to.kind is not ConnectionKind.CLIENT:
                    for receiver, seen in parcel(self.places[broker], to).receivers.items():
                        targets.append(number(receiver, seen))
                        seconds.append(self._seconds(broker, receiver))
                arrivals.append(len(targets))
            acts.append(len(arrivals) - 1)
        brokers = {broker: at for at, broker in enumerate(self.topology.brokers)}
        return Routes(
            np.array([brokers[broker] for broker, _ in order]), np.array(acts), np.array(arrivals),
            np.array(links, np.int64),
            np.array(targets, np.int64), np.array(seconds, np.float64), np.array(starts),
        )  # fmt: skip

    def _ask(self, broker: str, source: Connection) -> list[Send]:
        """Return the messages of a broker for an event from a connection."""
        router = self.routers[broker]
        self._asked += 1
        id = EventId("asked", 1, self._asked)
        if source.kind is ConnectionKind.CLIENT:
            return router.publish(source.name, TYPE, EVENT, 0.0, id)[1]
        return router.receive(Event(id, TYPE, EVENT), source, 0.0)

    def _links(self, sender: str, to: Connection) -> int:
        here = self.topology.cluster_of[sender]
        return self.crossed[here, to.name if to.kind is ConnectionKind.LINK else here]

    def _seconds(self, sender: str, receiver: str) -> float:
        one, other = self.topology.cluster_of[sender], self.topology.cluster_of[receiver]
        return LAN if one == other else self.topology.latencies[one, other]


class Played(NamedTuple):
    """The totals of a simulation.

    Attributes
    ----------
    messages, cost, receipts : int
        Messages between brokers, the links that they crossed, all together, and what clients got.
    delay : float
        Seconds from publishing to a receipt, all together.
    last : float
        Time of the last receipt.
    """

    messages: int
    cost: int
    receipts: int
    delay: float
    last: float


def play(routes: Routes, times: Floats, message: float, delivery: float = 0.0) -> Played:
    """Publish one event of each publisher at its time, and follow all.

    Parameters
    ----------
    routes : Routes
    times : (publishers,) float array
        Seconds.
    message, delivery : float
        Seconds for which a broker is busy with a message to others, and to a client.
    """
    fixed = (
        routes.broker,
        routes.acts,
        routes.arrivals,
        routes.links,
        routes.state,
        routes.seconds,
        routes.starts,
    )
    return Played(*_play(*fixed, times, message, delivery))


@kernel
def _play(
    broker: Ints, acts: Ints, arrivals: Ints, links: Ints, state: Ints, seconds: Floats, starts: Ints,
    times: Floats, message: float, delivery: float,
) -> tuple[int, int, int, float, float]:  # fmt: skip
    free = [0.0] * (broker.max() + 1)
    heap = [(times[event], event, starts[event], event) for event in range(len(times))]
    heap.sort()
    order = len(heap)
    messages, cost, receipts, delay, last = 0, 0, 0, 0.0, 0.0
    while heap:
        now, _, here, event = heappop(heap)
        own = broker[here]
        now = max(now, free[own])
        for act in range(acts[here], acts[here + 1]):
            if arrivals[act] == arrivals[act + 1]:
                now += delivery
                receipts += 1
                delay += now - times[event]
                last = max(last, now)
            else:
                now += message
                messages += 1
                cost += links[act]
                for arrival in range(arrivals[act], arrivals[act + 1]):
                    heappush(heap, (now + seconds[arrival], order, state[arrival], event))
                    order += 1
        free[own] = now
    return messages, cost, receipts, delay, last


QUIET = 1000.0
"""Seconds in which all subscriptions have gone wherever they go."""


def whole(
    topology: Topology, strategy: str, subscribers: Sequence[str], publishers: Sequence[str], times: Floats,
    message: float, delivery: float,
) -> Played:  # fmt: skip
    """Subscribe clients of some brokers, publish by others, and return the totals; see `queueing.play`."""

    def made(name: str, incarnation: int) -> EventRouter:
        router = EventRouter(name, incarnation, {TYPE: SCHEMA}, strategy)
        router.place(topology.place(name), 0.0)
        return router

    network = Network(topology, made)
    for number, broker in enumerate(subscribers):
        network.ask(0.0, broker, partial(_subscribe, f"s{number}"))
    network.run()
    network.env.run(QUIET)
    network.costs = SimulatedCosts(message, delivery)
    network.messages.clear()
    published: dict[EventId, float] = {}

    def publish(at: float, router: EventRouter, now: float) -> list[Send]:
        id, sends = router.publish("publisher", TYPE, EVENT, now)
        published[id] = at
        return sends

    for broker, at in zip(publishers, times.tolist(), strict=True):
        network.ask(QUIET + at, broker, partial(publish, QUIET + at))
    network.run()
    told = [(each.at, each.message) for each in network.deliveries]
    delays = [at - published[event.id] for at, event in told if isinstance(event, Notify)]
    between = crossed(topology)
    cost = sum(
        count * between[topology.cluster_of[sender], topology.cluster_of.get(line, line)]
        for (_, sender, line), count in network.messages.items()
    )
    last = max(at for at, _ in told) - QUIET
    return Played(network.sent("Event"), cost, len(delays), sum(delays), last)


def _subscribe(client: str, router: EventRouter, now: float) -> list[Send]:
    return router.subscribe(client, TYPE, ALL, now)[1]
