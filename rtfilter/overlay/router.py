"""The router of subscriptions and events: the routing half of a broker, a pure state machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.registry import Factory
from rtfilter.overlay.acknowledging import Acknowledging
from rtfilter.overlay.core import Core
from rtfilter.overlay.forwarding import Forwarding
from rtfilter.overlay.holding import Hold, Holding
from rtfilter.overlay.names import Connection, EventId, Kind, SubscriptionId, client, link, member
from rtfilter.overlay.place import Place
from rtfilter.overlay.routing_messages import (
    Acknowledge,
    Advertise,
    Answer,
    Confirm,
    Entry,
    Event,
    Replica,
    Replicate,
    Subscribe,
    Subscription,
    Subscriptions,
    Unreplicate,
    Unsubscribe,
    Wave,
)
from rtfilter.overlay.sending import Message, Send
from rtfilter.overlay.spreading import Spreading
from rtfilter.overlay.strategies import strategy_of
from rtfilter.overlay.strategies.port import Strategy
from rtfilter.overlay.switching import Switched, Switching
from rtfilter.overlay.table import NO_MATCHERS, Table
from rtfilter.overlay.uncertainty import LOST, Uncertainty
from rtfilter.predicates.model import Predicate


class Router:
    """Routes for one broker.

    Every public method that can have something to say returns what to send, in order. Whatever comes from a
    cluster that is not linked, or from a broker that is no member, is dropped: both ends of a new link tell
    each other all that they want.

    A member that is not the designated broker keeps its own clients' subscriptions, and a replica of the
    designated broker's table, which it does not route by. When it becomes the designated broker, the
    replica becomes part of its table.

    With `grace`, clients are told when a subscription is known wherever it must be, and when an event is with
    all who must have it. An event that was acknowledged has reached all whose subscriptions were confirmed
    before it was published, if failures heal and messages arrive within that time. One that was not must be
    sent again, under its id and as another attempt.

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
    grace : float, optional
        Seconds that what was lost is waited for. By default it is forgotten at once, and nothing is confirmed
        or acknowledged.
    choose_every : float, optional
        Seconds between measurements, after each of which the root chooses the strategy that costs least. By
        default it stays as it is, unless `switch` is called.
    slack : float, optional
        With it neighbours are told one box for many near ones, of which at most this share is empty; see
        `rtfilter.overlay.merging`. That is beyond `covering`.
    longest : int
        Most bytes of a message: what is longer goes in parts.
    assigned : mapping of str to str, optional
        The rendezvous cluster of an event type, for whenever the strategy is `Rendezvous`, the same at all
        brokers. If `strategy` is an object of that, it has them itself.
    matchers : mapping of str to Factory, optional
        What finds the subscriptions of an event, by event type, as of `EventFilter`. Each takes all
        subscriptions, and brokers may have others than each other. What covers a subscription is found in an
        index of its own, which they do not change.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        types: Mapping[str, Schema],
        strategy: str | Strategy = "hybrid",
        covering: bool = False,
        grace: float | None = None,
        choose_every: float | None = None,
        slack: float | None = None,
        longest: int = 2**24,
        assigned: Mapping[str, str] | None = None,
        matchers: Mapping[str, Factory] = NO_MATCHERS,
    ) -> None:
        if slack is not None and not 0 <= slack < 1:
            raise ValueError(f"slack is a share of a box, from 0 to below 1, not {slack!r}")
        self.name, self.incarnation = name, incarnation
        made = strategy_of(strategy, assigned)
        self._core = Core(name, incarnation, types, made, grace, longest, assigned, matchers)
        self._uncertainty = Uncertainty(self._core)
        self._spreading = Spreading(self._core, self._uncertainty, covering, slack)
        self._acknowledging = Acknowledging(self._core)
        self._forwarding = Forwarding(self._core, self._uncertainty, self._acknowledging)
        self._holding = Holding(self._core, self._uncertainty, self._acknowledging)
        self._switching = Switching(self._core, self._spreading, choose_every)
        self._published = 0

    @property
    def at(self) -> Place:
        """The place of the broker in the network."""
        return self._core.at

    @property
    def types(self) -> Mapping[str, Schema]:
        """The event types."""
        return self._core.types

    @property
    def table(self) -> Table:
        """The routing table."""
        return self._core.table

    @property
    def replica(self) -> Mapping[tuple[SubscriptionId, Connection], Entry]:
        """At a member: the designated broker's table, as this broker would have it in its place."""
        return self._spreading.replica

    @property
    def switched(self) -> Switched:
        """The progress of a change of strategy. Store it for `resume` whenever its `wave` changes."""
        return self._switching.switched

    def resume(self, former: Switched) -> None:
        """Go on where a former incarnation was, if this one is the root before it is anything else."""
        self._switching.former = former

    @property
    def strategy(self) -> Strategy:
        """The strategy in use."""
        return self._core.strategy

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
        condition = self.require_condition(type, predicate)
        self._core.now = now
        id = self._core.new_id()
        self._spreading.enter(Subscription(id, type, condition), client(client_name))
        return id, self._flush()

    def unsubscribe(self, id: SubscriptionId, now: float) -> list[Send]:
        """Remove a subscription of a client of this broker; an unknown one changes nothing."""
        self._core.now = now
        for connection in list(self.table.connections(id)):
            if connection.kind is Kind.CLIENT:
                self._spreading.leave(id, connection)
        return self._flush()

    def leave(self, client_name: str, now: float) -> list[Send]:
        """Remove all subscriptions of a client."""
        self._core.now = now
        for subscription in self.table.of(client(client_name)):
            self._spreading.leave(subscription.id, client(client_name))
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
        self.require_event(type, event)
        self._core.now = now
        if id is None:
            self._published += 1
            id = EventId(self.name, self.incarnation, self._published)
        sent = Event(id, type, dict(event), attempt, self.strategy.rises, self._core.epoch)
        self._forwarding.take(sent, client(client_name))
        return id, self._flush()

    def holds(self, event: Event, since: float, now: float) -> list[Hold]:
        """Return what an attempt of a client's event, published `since`, waits for; see `Holding`."""
        self._core.now = now
        return self._holding.of(event, since)

    def require_condition(self, type: str, predicate: str | Mapping[str, Any] | Predicate) -> str:
        """A condition in SQL, if it can be subscribed to. Raises as `subscribe`."""
        self._require(type)
        condition = Predicate.parse(predicate, self._core.types[type]).to_sql()
        self._core.table.conditions[type].read(condition)
        return condition

    def require_event(self, type: str, event: Mapping[str, Any]) -> EventTable:
        """An event as its type reads it, if it can be published. Raises as `publish`."""
        self._require(type)
        return self._core.types[type].read([event])

    def schema(self, type: str) -> Schema:
        """The schema of an event type. Raises `ValueError` where there is none."""
        self._require(type)
        return self._core.types[type]

    def _require(self, type: str) -> None:
        if type not in self._core.types:
            known = ", ".join(self._core.types) or "none"
            raise ValueError(f"unknown event type {type!r:.60}; the types of this broker are {known}")

    # -- brokers -------------------------------------------------------------------------------------

    def receive(self, message: Message, source: Connection, now: float) -> list[Send]:
        """Take a message of another broker; `source` is a link or a member.

        Raises
        ------
        TypeError
            It is none that routers send to each other.
        ValueError, PredicateError, EventError
            It names an unknown event type, or has a condition or an event that cannot be read.
        """
        part = _TAKES.get(type(message))
        if part is None:
            raise TypeError(f"routers do not take {type(message).__name__} from each other")
        self._core.now = now
        if self._core.knows(source):
            part(self)(message, source)
        return self._flush()

    def place(self, new: Place, now: float) -> list[Send]:
        """Take a new place in the network."""
        core, spreading = self._core, self._spreading
        old, core.at, core.now = core.at, new, now
        if new == old:
            return []
        if old.leads and not new.leads:
            spreading.step_down()
            self._uncertainty.unheard.clear()
        if new.leads:
            self._lead(old)
        elif new.designated and new.designated != old.designated:
            spreading.announce()
        spreading.confirm_all()
        self._switching.moved(old)
        return self._flush()

    def _lead(self, old: Place) -> None:
        """Act on a new place at a designated broker."""
        core, spreading, uncertainty = self._core, self._spreading, self._uncertainty
        new, took_over = core.at, not old.leads
        links, members = ({}, frozenset()) if took_over else (old.links, old.members)
        lost = links.keys() - new.links or members - new.members
        if took_over or (new.root and not old.root) or (lost and not core.shared):
            uncertainty.doubt()
        if took_over:
            spreading.take_over()
        spreading.forget_links()
        spreading.moved(took_over)
        fresh = [member(broker) for broker in sorted(new.members - members - {core.name})]
        uncertainty.unheard.update(fresh)
        uncertainty.unheard.update(link(c) for c, broker in new.links.items() if links.get(c) != broker)
        uncertainty.unheard = {connection for connection in uncertainty.unheard if core.knows(connection)}
        spreading.refresh(links)
        for connection in fresh:
            core.send(connection, Subscriptions(ask=True))

    def tick(self, now: float) -> list[Send]:
        """Do what is due: forget what was waited for long enough, and confirm what can be."""
        self._core.now = now
        for id in self._uncertainty.due():
            self._spreading.leave(id, LOST)
        self._spreading.confirm_all()
        self._switching.tick()
        return self._flush()

    def switch(self, strategy: str, now: float) -> list[Send]:
        """Change the strategy of the whole network; see `rtfilter.overlay.switching`.

        Raises `ValueError` where it is not known, this is not the root, or another change is not done.
        """
        self._core.now = now
        self._switching.switch(strategy)
        return self._flush()

    def stats(self) -> dict[str, Any]:
        """Sizes of tables, messages sent by kind, and more, JSON-able."""
        return {
            "strategy": self.strategy.name,
            "entries": len(self.table),
            "replica": len(self.replica),
            "suppressed": self._spreading.suppressed,
            "in_suspense": len(self._uncertainty),
            "unconfirmed": self._spreading.unconfirmed,
            "bytes": self.table.bytes(),
            "messages": dict(self._core.counts),
        }

    def _flush(self) -> list[Send]:
        out, self._core.out = self._core.out, []
        return out


_TAKES: Final[Mapping[type[Message], Callable[[Router], Callable[[Any, Connection], None]]]] = {
    Event: lambda router: router._forwarding.take,
    Acknowledge: lambda router: router._acknowledging.hear,
    Subscribe: lambda router: router._spreading.take_subscribe,
    Unsubscribe: lambda router: router._spreading.take_unsubscribe,
    Subscriptions: lambda router: router._spreading.take_subscriptions,
    Confirm: lambda router: router._spreading.take_confirm,
    Replicate: lambda router: router._spreading.take_replicate,
    Unreplicate: lambda router: router._spreading.take_unreplicate,
    Replica: lambda router: router._spreading.take_replica,
    Advertise: lambda router: router._spreading.hear,
    Wave: lambda router: router._switching.take,
    Answer: lambda router: router._switching.hear,
}
