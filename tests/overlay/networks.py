"""Routers in a network without sockets: a tree of clusters, and messages that arrive in a random order.

Messages from one broker to another arrive in the order in which they were sent; otherwise any may be next.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from experiments.simulation.event_messages import Event, EventId, Notify
from experiments.simulation.event_router import EventRouter
from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import (
    BrokerMessage,
    BrokerPlace,
    Connection,
    ConnectionKind,
    Send,
    SubscriptionId,
    member,
)
from rtfilter.overlay.broker_names import link as link_to

TYPES = {"trade": Schema({"x": float, "y": float}), "alarm": Schema({"x": float})}


class Tree:
    """Who is where: clusters, the parent of each, and its members, the first of them designated.

    Parameters
    ----------
    parents : mapping of str to str
        The cluster above each; empty for the root, and later for those that are cut off.
    members : mapping of str to tuple of str, optional
        By default each cluster is a broker of its own name.
    """

    def __init__(
        self, parents: Mapping[str, str], members: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.parents = dict(parents)
        self.root = next(cluster for cluster, parent in parents.items() if not parent)
        self.members = {c: (members or {}).get(c, (c,)) for c in parents}

    @classmethod
    def random(cls, rng: random.Random, clusters: int, most_members: int = 1) -> Tree:
        """A random tree, of clusters of at least one broker."""
        names = [f"c{i}" for i in range(clusters)]
        rng.shuffle(names)
        parents = {name: rng.choice(names[:i]) if i else "" for i, name in enumerate(names)}
        members = {name: tuple(f"{name}.{i}" for i in range(rng.randint(1, most_members))) for name in names}
        return cls(parents, members if most_members > 1 else None)

    @property
    def brokers(self) -> list[str]:
        """All brokers."""
        return [broker for members in self.members.values() for broker in members]

    def neighbours(self, cluster: str) -> list[str]:
        """The clusters next to one."""
        parent = self.parents[cluster]
        return [c for c, above in self.parents.items() if above == cluster] + ([parent] if parent else [])

    def place(self, broker: str) -> BrokerPlace:
        """The place of a broker."""
        cluster = next(c for c, members in self.members.items() if broker in members)
        members = self.members[cluster]
        parent = self.parents[cluster]
        leads = broker == members[0]
        links = {c: self.members[c][0] for c in sorted(self.neighbours(cluster))} if leads else {}
        return BrokerPlace(
            cluster, broker, members[0], frozenset(members), parent, links, cluster == self.root
        )

    def path(self, one: str, two: str) -> list[str]:
        """The clusters on the way from one to another, with both ends."""
        above = self._to_root(one)
        below = self._to_root(two)
        while len(above) > 1 and len(below) > 1 and above[-2] == below[-2]:
            above.pop()
            below.pop()
        return above + below[-2::-1]

    def _to_root(self, cluster: str) -> list[str]:
        way = [cluster]
        while self.parents[way[-1]]:
            way.append(self.parents[way[-1]])
        return way

    def below(self, cluster: str) -> set[str]:
        """The clusters of a subtree."""
        return {other for other in self.parents if cluster in self._to_root(other)}

    def edges(self, clusters: set[str]) -> set[frozenset[str]]:
        """The links of the smallest subtree with some clusters."""
        first = min(clusters)
        ways = [self.path(first, other) for other in clusters]
        return {frozenset(pair) for way in ways for pair in pairwise(way)}


class Network:
    """Routers in a tree.

    Parameters
    ----------
    tree : Tree
    make : callable
        From the name of a broker to its router; by default one with the strategy `strategy`.
    strategy : str
    seed : int
        Of the order in which messages arrive.

    Attributes
    ----------
    routers : dict of str to Router
    received : dict of str to list
        What each client was notified of: events by id, as often as they came.
    told : dict of str to list of BrokerMessage
        Whatever else clients were sent.
    broken : set of frozenset
        Pairs of brokers between whom nothing gets through.
    counts : Counter
        Messages between brokers by kind; a multicast is one.
    now : float
        The time, in seconds. It passes by `step` with each message that arrives.
    """

    def __init__(
        self,
        tree: Tree,
        strategy: str = "hybrid",
        seed: int = 0,
        make: Callable[[str], EventRouter] | None = None,
        step: float = 0.001,
    ) -> None:
        self.tree, self.now, self.step = tree, 0.0, step
        self._make = make or (lambda name: EventRouter(name, 1, TYPES, strategy))
        self._rng = random.Random(seed)
        self.routers: dict[str, EventRouter] = {}
        self.received: dict[str, list[EventId]] = {}
        self.told: dict[str, list[BrokerMessage]] = {}
        self.counts: Counter[str] = Counter()
        self.broken: set[frozenset[str]] = set()
        self.route: list[tuple[str, str]] = []
        self._clusters = {b: c for c, members in tree.members.items() for b in members}
        self._queues: dict[tuple[str, str], deque[BrokerMessage]] = {}
        for broker in tree.brokers:
            self.routers[broker] = self._make(broker)
        self.settle()

    def settle(self) -> None:
        """Tell each broker its place in the tree, and let all messages arrive."""
        for broker in self.tree.brokers:
            self.move(broker, self.tree.place(broker))
        self.run()

    def move(self, broker: str, place: BrokerPlace) -> None:
        """Tell one broker its place."""
        self.take(broker, self.routers[broker].place(place, self.now))

    # -- clients, each named broker/number -----------------------------------------------------------

    def subscribe(self, name: str, type: str, condition: str) -> SubscriptionId:
        """Subscribe a client, whose broker is before the slash of its name."""
        broker = name.partition("/")[0]
        self.received.setdefault(name, [])
        id, sends = self.routers[broker].subscribe(name, type, condition, self.now)
        self.take(broker, sends)
        return id

    def unsubscribe(self, id: SubscriptionId) -> None:
        """Unsubscribe at the broker that took it."""
        self.take(id.origin, self.routers[id.origin].unsubscribe(id, self.now))

    def publish(
        self, broker: str, type: str, values: dict[str, Any], id: EventId | None = None, attempt: int = 1
    ) -> EventId:
        """Publish at a broker."""
        id, sends = self.routers[broker].publish(f"{broker}/p", type, values, self.now, id, attempt)
        self.take(broker, sends)
        return id

    # -- messages ------------------------------------------------------------------------------------

    def take(self, broker: str, sends: list[Send]) -> None:
        """Put what a broker sends on its way."""
        place = self.routers[broker].at
        for to, message in sends:
            kind = type(message).__name__
            if to.kind is ConnectionKind.CLIENT:
                if isinstance(message, Notify):
                    self.received.setdefault(to.name, []).append(message.id)
                    self.route.append((broker, to.name))
                else:
                    self.told.setdefault(to.name, []).append(message)
                continue
            self.counts[kind] += 1
            receivers = [to.name]
            if to.kind is ConnectionKind.LINK:
                receivers = [place.links[to.name]]
            elif to.kind is ConnectionKind.CLUSTER:
                receivers = sorted(self.cluster_of(broker) - {broker})
            for receiver in receivers:
                if isinstance(message, Event):
                    self.route.append((broker, receiver))
                if self.passes(broker, receiver):
                    self._queues.setdefault((broker, receiver), deque()).append(message)

    def cluster_of(self, broker: str) -> set[str]:
        """All brokers that hear its multicasts, itself among them."""
        return next({*members} for members in self.tree.members.values() if broker in members)

    def lose(self, broker: str) -> None:
        """Let a broker die, with all that is under way from and to it."""
        del self.routers[broker]
        for pair in list(self._queues):
            if broker in pair:
                del self._queues[pair]

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether a message gets through."""
        return receiver in self.routers and frozenset((sender, receiver)) not in self.broken

    def sever(self, one: str, other: str) -> None:
        """Break the connection of two brokers, with all that is under way between them."""
        self.broken.add(frozenset((one, other)))
        self._queues.pop((one, other), None)
        self._queues.pop((other, one), None)

    def wait(self, seconds: float) -> None:
        """Let time pass, and all brokers do what is due."""
        self.now += seconds
        for broker, router in self.routers.items():
            self.take(broker, router.tick(self.now))
        self.run()

    def run(self, most: int = -1) -> bool:
        """Let messages arrive until there are none, or `most` have; whether there are none."""
        while self._queues and most:
            pair = self._rng.choice(sorted(self._queues))
            message = self._queues[pair].popleft()
            if not self._queues[pair]:
                del self._queues[pair]
            self.arrive(*pair, message)
            most -= 1
        return not self._queues

    def arrive(self, sender: str, receiver: str, message: BrokerMessage) -> None:
        """Hand a message to its receiver, who knows the sender as a member or by its cluster."""
        self.now += self.step
        router = self.routers.get(receiver)
        if router is None:
            return
        if sender not in (*router.at.members, *router.at.links.values()):
            return  # as a broker that was the designated one of a linked cluster, and has not heard yet
        cluster = self._clusters[sender]
        fellow = cluster == self._clusters[receiver]
        source = member(sender) if fellow else link_to(cluster)
        self.take(receiver, router.receive(message, source, self.now))

    def replica_of(self, broker: str) -> set[tuple[SubscriptionId, Connection]]:
        """What other members hold in case that they must take over from a broker."""
        return {
            (subscription.id, member(broker) if connection.kind is ConnectionKind.CLIENT else connection)
            for subscription, connection in self.tables()[broker]
        }

    # -- what to hold it against ---------------------------------------------------------------------

    def tables(self) -> dict[str, set[tuple[Any, ...]]]:
        """The entries of each broker."""
        return {
            name: {(entry.subscription, entry.connection) for entry in router.table}
            for name, router in self.routers.items()
        }
