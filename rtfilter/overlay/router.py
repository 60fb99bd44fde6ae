"""Where subscriptions and events go: the routing half of a broker, a pure state machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from rtfilter.events.schema import Schema
from rtfilter.overlay.covering import CoveringTold, Told
from rtfilter.overlay.names import (
    CLUSTER,
    Connection,
    EventId,
    Kind,
    SubscriptionId,
    client,
    link,
    member,
)
from rtfilter.overlay.place import Place
from rtfilter.overlay.routing_messages import (
    Advertise,
    Entry,
    Event,
    Notify,
    Replica,
    Replicate,
    Subscribe,
    Subscription,
    Subscriptions,
    Unreplicate,
    Unsubscribe,
)
from rtfilter.overlay.sending import Message, Send
from rtfilter.overlay.strategies import strategy_of
from rtfilter.overlay.strategies.port import Strategy
from rtfilter.overlay.table import Table
from rtfilter.predicates.model import Predicate

PART: Final = 256
"""Most subscriptions of one message."""
SEEN: Final = 10_000
"""Most events that are remembered, so that none is forwarded twice while the tree changes."""
NOWHERE: Final = Place("", "", "", frozenset())

T = TypeVar("T")


class Router:
    """Routes for one broker.

    Every public method that can have something to say returns what to send, in order. Whatever comes from a
    cluster that is not linked, or from a broker that is no member, is dropped: both ends of a new link tell
    each other all that they want.

    A member that is not the designated broker keeps its own clients' subscriptions, and a replica of the
    designated broker's table, which it does not route by. When it becomes the designated broker, the
    replica becomes part of its table.

    Parameters
    ----------
    name : str
        Of the broker, unique in the network.
    incarnation : int
        Higher with each start of the broker.
    types : mapping of str to Schema
        The event types, the same at all brokers.
    strategy : str or Strategy
        One of `rtfilter.overlay.strategies.STRATEGIES`, the same at all brokers.
    covering : bool
        Whether neighbours are not told what others that they know cover.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        types: Mapping[str, Schema],
        strategy: str | Strategy = "hybrid",
        covering: bool = False,
    ) -> None:
        self.name, self.incarnation, self.types = name, incarnation, types
        self.strategy, self.covering = strategy_of(strategy), covering
        self.at = NOWHERE._replace(broker=name)
        self.table = Table(types)
        self.replica: dict[tuple[SubscriptionId, Connection], Entry] = {}
        self.counts: Counter[str] = Counter()
        self._subscribed = self._published = 0
        self._told: dict[str, Told] = {}
        self._learns: dict[str, frozenset[str]] = {}  # types whose subscriptions a linked cluster must know
        self._named: dict[Connection, set[SubscriptionId]] = {}  # so far, in parts of `Subscriptions`
        self._seen: dict[tuple[EventId, int, bool], None] = {}
        self._out: list[Send] = []

    # -- clients -------------------------------------------------------------------------------------

    def subscribe(
        self, client_name: str, type: str, predicate: str | Mapping[str, Any] | Predicate, now: float
    ) -> tuple[SubscriptionId, list[Send]]:
        """Take a subscription of a client.

        Raises
        ------
        ValueError, PredicateError
            The type is not known, or the predicate cannot be used; nothing is changed.
        """
        self._require(type)
        condition = Predicate.parse(predicate, self.types[type]).to_sql()
        self._subscribed += 1
        id = SubscriptionId(self.name, self.incarnation, self._subscribed)
        self._enter(Subscription(id, type, condition), client(client_name))
        return id, self._flush()

    def unsubscribe(self, id: SubscriptionId, now: float) -> list[Send]:
        """Remove a subscription of a client of this broker; an unknown one changes nothing."""
        for connection in list(self.table.connections(id)):
            if connection.kind is Kind.CLIENT:
                self._leave(id, connection)
        return self._flush()

    def leave(self, client_name: str, now: float) -> list[Send]:
        """Remove all subscriptions of a client."""
        for subscription in self.table.of(client(client_name)):
            self._leave(subscription.id, client(client_name))
        return self._flush()

    def publish(
        self,
        client_name: str,
        type: str,
        event: Mapping[str, Any],
        now: float,
        id: EventId | None = None,
        attempt: int = 1,
    ) -> tuple[EventId, list[Send]]:
        """Take an event of a client.

        Parameters
        ----------
        id : EventId, optional
            Where the client sends an event again: what this returned the first time, at whatever broker.
        attempt : int
            How often it was sent, this time included.

        Raises
        ------
        ValueError, EventError
            The type is not known, or the event cannot be read.
        """
        self._require(type)
        if id is None:
            self._published += 1
            id = EventId(self.name, self.incarnation, self._published)
        self._event(Event(id, type, dict(event), attempt), client(client_name))
        return id, self._flush()

    def _require(self, type: str) -> None:
        if type not in self.types:
            known = ", ".join(self.types) or "none"
            raise ValueError(f"unknown event type {type!r:.60}; the types of this broker are {known}")

    # -- brokers -------------------------------------------------------------------------------------

    def receive(self, message: Message, source: Connection, now: float) -> list[Send]:
        """Take a message of another broker; `source` is a link or a member."""
        take = _TAKES.get(type(message))
        if take is None:
            raise TypeError(f"routers do not take {type(message).__name__}")
        if self._knows(source):
            take(self, message, source)
        return self._flush()

    def place(self, new: Place, now: float) -> list[Send]:
        """Take a new place in the network."""
        old, self.at = self.at, new
        if new == old:
            return []
        if old.leads and not new.leads:
            self._step_down()
        took_over = new.leads and not old.leads
        if took_over:
            self._take_over()
        if new.leads:
            self._drop_lost()
            self._refresh({} if took_over else old.links)
            for broker in sorted(new.members - {self.name} - (frozenset() if took_over else old.members)):
                self._send(member(broker), Subscriptions(ask=True))
        elif new.designated and new.designated != old.designated:
            self._announce()
        return self._flush()

    def tick(self, now: float) -> list[Send]:
        """Do what is due."""
        return self._flush()

    def stats(self) -> dict[str, Any]:
        """Sizes of tables, messages sent by kind, and more, JSON-able."""
        return {
            "strategy": self.strategy.name,
            "entries": len(self.table),
            "replica": len(self.replica),
            "suppressed": sum(told.suppressed for told in self._told.values()),
            "bytes": self.table.bytes(),
            "messages": dict(self.counts),
        }

    # -- subscriptions -------------------------------------------------------------------------------

    def _enter(self, subscription: Subscription, connection: Connection) -> None:
        """Add an entry, and tell whoever must know."""
        if not self.table.add(subscription, connection):
            return
        if self.at.leads:
            for cluster, told in self._told.items():
                if subscription.type in self._learns[cluster] and connection != link(cluster):
                    self._tell(cluster, told.add(subscription))
            self._replicate(Replicate(Entry(subscription, self._seen_by_others(connection))))
        elif self.at.designated and self.strategy.shared:
            self._send(self._way_up(), Subscribe(subscription))

    def _leave(self, id: SubscriptionId, connection: Connection) -> None:
        """Remove an entry, and tell whoever knew."""
        if not self.table.remove(id, connection):
            return
        if self.at.leads:
            left = self.table.connections(id)
            for cluster, told in self._told.items():
                if all(other == link(cluster) for other in left):
                    self._tell(cluster, told.remove(id))
            self._replicate(Unreplicate(id, self._seen_by_others(connection)))
        elif self.at.designated and self.strategy.shared:
            self._send(self._way_up(), Unsubscribe(id))

    def _subscribe(self, message: Subscribe, source: Connection) -> None:
        if self.at.leads:
            if source in self._named:
                self._named[source].add(message.subscription.id)
            self._enter(message.subscription, source)

    def _unsubscribe(self, message: Unsubscribe, source: Connection) -> None:
        if self.at.leads:
            self._leave(message.id, source)

    def _subscriptions(self, message: Subscriptions, source: Connection) -> None:
        if not self.at.leads:
            if message.ask and source == member(self.at.designated):
                self._announce(ask=False)
            return
        if message.first:
            self._named[source] = set()
        named = self._named.setdefault(source, set())
        for subscription in message.subscriptions:
            named.add(subscription.id)
            self._enter(subscription, source)
        if message.last:
            del self._named[source]
            for subscription in self.table.of(source):
                if subscription.id not in named:
                    self._leave(subscription.id, source)
        if message.ask:
            if source.kind is Kind.LINK:
                self._greet(source.name)
                self._tell_all(source.name, ask=False)
            else:
                self._replicate_all()

    def _announce(self, ask: bool = True) -> None:
        """Tell the designated broker all that clients want."""
        own = [entry.subscription for entry in self.table] if self.strategy.shared else []
        for message in _subscriptions_in_parts(own, ask):
            self._send(self._way_up(), message)

    def _refresh(self, before: Mapping[str, str]) -> None:
        """Tell linked clusters what they must know now and did not, because they are new or by the strategy.

        `before` has the links that there were, and their designated brokers.
        """
        for gone in self._told.keys() - self.at.links.keys():
            del self._told[gone], self._learns[gone]
        for cluster, broker in self.at.links.items():
            types = frozenset(t for t in self.types if cluster in self.strategy.learners(self.at, t))
            new = before.get(cluster) != broker
            if new or types != self._learns.get(cluster):
                self._learns[cluster] = types
                told = CoveringTold(self.table.predicate) if self.covering else Told()
                self._told[cluster] = told
                for subscription, connection in self.table:
                    if subscription.type in types and connection != link(cluster):
                        told.add(subscription)
                if new:
                    self._greet(cluster)
                self._tell_all(cluster, ask=new)

    def _greet(self, cluster: str) -> None:
        for message in self.strategy.greeting(self.at, cluster, self.types):
            self._send(link(cluster), message)

    def _hear(self, message: Message, source: Connection) -> None:
        """Let the strategy hear what others tell it: that may change who must know subscriptions."""
        if source.kind is Kind.LINK:
            for cluster, other in self.strategy.hear(message, self.at, source.name):
                self._send(link(cluster), other)
            self._refresh(self.at.links)

    def _tell(self, cluster: str, messages: Sequence[Message]) -> None:
        for message in messages:
            self._send(link(cluster), message)

    def _tell_all(self, cluster: str, ask: bool) -> None:
        for message in _subscriptions_in_parts(list(self._told[cluster].sent()), ask):
            self._send(link(cluster), message)

    # -- the cluster ---------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """Become the designated broker: what was a replica is what to route by."""
        replica, self.replica = self.replica, {}
        for subscription, connection in replica.values():
            if connection != member(self.name):
                self.table.add(subscription, connection)
        self._replicate_all()

    def _step_down(self) -> None:
        """Become a member among others, with the subscriptions of the own clients only."""
        for subscription, connection in list(self.table):
            if connection.kind is not Kind.CLIENT:
                self.table.remove(subscription.id, connection)
        self._told, self._learns, self._named = {}, {}, {}

    def _drop_lost(self) -> None:
        """Remove the entries of links and members that are gone."""
        for connection in sorted(self.table.used()):
            if connection.kind is not Kind.CLIENT and not self._knows(connection):
                self._named.pop(connection, None)
                for subscription in self.table.of(connection):
                    self._leave(subscription.id, connection)

    def _replicate(self, message: Message) -> None:
        if self.strategy.shared and len(self.at.members) > 1:
            self._send(CLUSTER, message)

    def _replicate_all(self) -> None:
        """Tell the cluster the whole table. It goes by multicast, so that it keeps its order among others."""
        entries = [Entry(entry.subscription, self._seen_by_others(entry.connection)) for entry in self.table]
        for part, first, last in _parts(entries):
            self._replicate(Replica(tuple(part), first, last))

    def _seen_by_others(self, connection: Connection) -> Connection:
        """What a connection is to another member that takes over: clients are behind this broker."""
        return member(self.name) if connection.kind is Kind.CLIENT else connection

    def _take_replicate(self, message: Replicate, source: Connection) -> None:
        if self._is_designated(source):
            subscription, connection = message.entry
            self.replica[subscription.id, connection] = Entry(subscription, connection)

    def _take_unreplicate(self, message: Unreplicate, source: Connection) -> None:
        if self._is_designated(source):
            self.replica.pop((message.id, message.connection), None)

    def _take_replica(self, message: Replica, source: Connection) -> None:
        if self._is_designated(source):
            if message.first:
                self.replica = {}
            for subscription, connection in message.entries:
                self.replica[subscription.id, connection] = Entry(subscription, connection)

    def _is_designated(self, source: Connection) -> bool:
        return not self.at.leads and source == member(self.at.designated)

    # -- events --------------------------------------------------------------------------------------

    def _event(self, event: Event, source: Connection) -> None:
        """Send an event on, unless this attempt was here already."""
        if source.kind is Kind.CLIENT:
            event = self._setting_out(event)
        key = event.id, event.attempt, event.rising
        if key in self._seen:
            return
        self._seen[key] = None
        if len(self._seen) > SEEN:
            del self._seen[next(iter(self._seen))]
        if event.rising:
            self._rise(event)
        else:
            self._spread(event, source)

    def _setting_out(self, event: Event) -> Event:
        """An event of a client as it sets out. Raises `EventError` where it cannot be read."""
        self.types[event.type].read([event.values])
        return msgspec.structs.replace(event, rising=True) if self.strategy.rises else event

    def _rise(self, event: Event) -> None:
        """Send an event on its way to the rendezvous, or back from there to all who match."""
        if not self.at.leads:
            if self.at.designated:
                self._send(member(self.at.designated), event)
            return
        where = self.strategy.ascent(self.at, event.type)
        if where == self.at.cluster:
            self._spread(msgspec.structs.replace(event, rising=False), None)
        elif where is not None:
            self._send(link(where), event)

    def _spread(self, event: Event, source: Connection | None) -> None:
        """Send an event to all who match, and to whom the strategy wants, but not back to its source."""
        matched = self.table.match(event.type, event.values)
        for connection, ids in matched.items():
            if connection.kind is Kind.CLIENT:
                self._send(connection, Notify(event.id, event.type, event.values, tuple(ids)))
        came_from = None if source is None else source.kind
        if not self.at.leads:
            if came_from is Kind.CLIENT and (self.at.designated or self.strategy.multicast):
                self._send(self._way_up(), event)
            return
        links = {link(cluster) for cluster in self.strategy.always(self.at, event.type)}
        links |= {connection for connection in matched if connection.kind is Kind.LINK}
        for connection in sorted(links):
            if connection != source:
                self._send(connection, event)
        fellows = {connection for connection in matched if connection.kind is Kind.MEMBER}
        if not self.strategy.shared:
            fellows = {member(broker) for broker in self.at.members - {self.name}}
        if source is not None:
            fellows.discard(source)
        if not self.strategy.multicast:
            for connection in sorted(fellows):
                self._send(connection, event)
        elif fellows and (
            source is None or source.kind is not Kind.MEMBER
        ):  # from a member, the cluster has it
            self._send(CLUSTER, event)

    # -- sending -------------------------------------------------------------------------------------

    def _way_up(self) -> Connection:
        """How a member reaches the designated broker: others hear it as well, where there is multicast."""
        return CLUSTER if self.strategy.multicast else member(self.at.designated)

    def _knows(self, source: Connection) -> bool:
        if source.kind is Kind.LINK:
            return self.at.leads and source.name in self.at.links
        return source.kind is Kind.MEMBER and source.name in self.at.members and source.name != self.name

    def _send(self, to: Connection, message: Message) -> None:
        self.counts[type(message).__name__] += 1
        self._out.append(Send(to, message))

    def _flush(self) -> list[Send]:
        out, self._out = self._out, []
        return out


_TAKES: Final[Mapping[type[Message], Callable[[Router, Any, Connection], None]]] = {
    Event: Router._event,
    Subscribe: Router._subscribe,
    Unsubscribe: Router._unsubscribe,
    Subscriptions: Router._subscriptions,
    Replicate: Router._take_replicate,
    Unreplicate: Router._take_unreplicate,
    Replica: Router._take_replica,
    Advertise: Router._hear,
}


def _parts(content: Sequence[T]) -> Iterator[tuple[Sequence[T], bool, bool]]:
    """Cut content up for several messages: each part, and whether it is the first and the last one."""
    starts = range(0, max(len(content), 1), PART)
    for start in starts:
        yield content[start : start + PART], start == 0, start == starts[-1]


def _subscriptions_in_parts(content: Sequence[Subscription], ask: bool) -> Iterator[Subscriptions]:
    for part, first, last in _parts(content):
        yield Subscriptions(tuple(part), first, last, ask and last)
