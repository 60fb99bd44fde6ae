"""The router of subscriptions: the routing half of a broker, a pure state machine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from rtfilter.events.schema import Schema
from rtfilter.overlay.broker_names import (
    BrokerMessage,
    BrokerPlace,
    Connection,
    ConnectionKind,
    Send,
    SubscriptionId,
    client,
    member,
)
from rtfilter.overlay.core import LOST, Core, Uncertainty
from rtfilter.overlay.routing_messages import (
    Advertise,
    Answer,
    Confirm,
    Replica,
    Replicate,
    RouterEntry,
    RouterSubscribe,
    RouterSubscription,
    RouterSubscriptions,
    RouterUnsubscribe,
    Unreplicate,
    Wave,
)
from rtfilter.overlay.spreading import Spreading
from rtfilter.overlay.strategies import Strategy
from rtfilter.overlay.switching import Switched, Switching
from rtfilter.predicates.predicate import Predicate


class Router:
    """The router of one broker.

    Public methods return the messages to send, in order. Messages from a cluster without a link, or from a
    broker that is no member, are dropped: both ends of a new link send each other all their subscriptions.

    A member that is not the designated broker has its own clients' subscriptions, and a replica of the
    designated broker's table, which it does not use for routing. When it becomes the designated broker, the
    replica becomes part of its table.

    With `grace`, clients get a message when all necessary brokers know a subscription.

    Parameters
    ----------
    name : str
        Name of the broker, unique in the network.
    incarnation : int
        Increases with each start of the broker.
    types : mapping of str to Schema
        The event types, the same at all brokers.
    strategy : str or Strategy
        One of `rtfilter.overlay.strategies.STRATEGIES`, the same at all brokers.
    covering : bool
        True if neighbours do not get subscriptions that a known one covers.
    grace : float, optional
        Seconds to wait for lost subscriptions before they are removed. By default they are removed at once,
        and nothing is confirmed.
    slack : float, optional
        Largest empty share of a box that is sent instead of many near ones; see `MergingForwarding`.
    longest : int
        Most bytes of a message; a longer one is sent in parts.
    assigned : mapping of str to str, optional
        The rendezvous clusters of `Rendezvous`, unless `strategy` is such an object.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        types: Mapping[str, Schema],
        strategy: str | Strategy = "hybrid",
        covering: bool = False,
        grace: float | None = None,
        slack: float | None = None,
        longest: int = 2**24,
        assigned: Mapping[str, str] | None = None,
    ) -> None:
        if slack is not None and not 0 <= slack < 1:
            raise ValueError(f"slack is a share of a box, from 0 to below 1, not {slack!r}")
        self.name = name
        core = self._core = Core(name, incarnation, types, strategy, grace, longest, assigned)
        self.table = core.table
        self._uncertainty = Uncertainty(core)
        spreading = self._spreading = Spreading(core, self._uncertainty, covering, slack)
        switching = self._switching = Switching(core, spreading)
        self._parts: dict[type[BrokerMessage], Callable[[Any, Connection], None]] = {
            RouterSubscribe: spreading.take_subscribe,
            RouterUnsubscribe: spreading.take_unsubscribe,
            RouterSubscriptions: spreading.take_subscriptions,
            Confirm: spreading.take_confirm,
            Replicate: spreading.take_replica,
            Unreplicate: spreading.take_replica,
            Replica: spreading.take_replica,
            Advertise: spreading.hear,
            Wave: switching.take,
            Answer: switching.hear,
        }

    @property
    def at(self) -> BrokerPlace:
        """The place of the broker in the network."""
        return self._core.at

    @property
    def replica(self) -> Mapping[tuple[SubscriptionId, Connection], RouterEntry]:
        """At a member: the designated broker's table, as this broker would have it in that role."""
        return self._spreading.replica

    @property
    def strategy(self) -> Strategy:
        """The strategy in use."""
        return self._core.strategy

    @property
    def strategies(self) -> Collection[Strategy]:
        """The strategies in use: two during a change."""
        return self._core.strategies.values()

    @property
    def switched(self) -> Switched:
        """The progress of a change of strategy. Store it for `resume` when its `wave` changes."""
        return self._switching.switched

    def resume(self, former: Switched) -> None:
        """Continue a change of strategy of a former incarnation, if this one soon becomes the root."""
        self._switching.former = former

    # -- clients -------------------------------------------------------------------------------------

    def subscribe(
        self,
        client_name: str,
        type: str,
        predicate: str | Mapping[str, Any] | Predicate,
        now: float,
        id: SubscriptionId | None = None,
    ) -> tuple[SubscriptionId, list[Send]]:
        """Add a subscription of a client; return its id and the messages to send.

        A given `id` belongs to this predicate for ever, also after a restart; by default there is a new one.

        Raises
        ------
        ValueError, PredicateError
            The type is unknown, or the predicate cannot be used; nothing is changed.
        """
        condition = Predicate.parse(predicate, self.table.schema(type)).to_sql()
        self.table.read(type, condition)
        self._core.now = now
        id = id or self._core.new_id()
        self._spreading.enter(RouterSubscription(id, type, condition), client(client_name))
        return id, self._flush()

    def unsubscribe(self, id: SubscriptionId, now: float) -> list[Send]:
        """Remove a subscription of a client of this broker; an unknown one changes nothing."""
        self._core.now = now
        for connection in list(self.table.connections(id)):
            if connection.kind is ConnectionKind.CLIENT:
                self._spreading.leave(id, connection)
        return self._flush()

    # -- brokers -------------------------------------------------------------------------------------

    def receive(self, message: BrokerMessage, source: Connection, now: float) -> list[Send]:
        """Process a message of another broker; `source` is a link or a member.

        Raises
        ------
        TypeError
            Routers do not send each other such a message.
        ValueError, PredicateError
            It names an unknown event type, or has a condition that cannot be read.
        """
        part = self._parts.get(type(message))
        if part is None:
            raise TypeError(f"routers do not take {type(message).__name__} from each other")
        self._core.now = now
        if self._core.knows(source):
            part(message, source)
        return self._flush()

    def place(self, new: BrokerPlace, now: float) -> list[Send]:
        """Set a new place in the network; return the messages to send."""
        core, spreading = self._core, self._spreading
        old, core.at, core.now = core.at, new, now
        if new == old:
            return []
        if old.leads and not new.leads:
            spreading.step_down()
        if new.leads:
            self._lead(old)
        elif new.designated and new.designated != old.designated:
            spreading.announce()
        spreading.confirm_all()
        self._switching.moved(old)
        return self._flush()

    def _lead(self, old: BrokerPlace) -> None:
        """Apply a new place as the designated broker."""
        core, spreading = self._core, self._spreading
        new, took_over = core.at, not old.leads
        links, members = ({}, frozenset()) if took_over else (old.links, old.members)
        lost = links.keys() - new.links or members - new.members
        if took_over or (new.root and not old.root) or (lost and not core.shared):
            self._doubt()
        if took_over:
            spreading.take_over()
        spreading.forget_links()
        spreading.moved(took_over)
        fresh = [member(broker) for broker in sorted(new.members - members - {core.name})]
        spreading.refresh(links)
        for connection in fresh:
            core.send(connection, RouterSubscriptions(ask=True))

    def _doubt(self) -> None:
        """Note that entries may be missing, because of a new place."""
        self._uncertainty.doubt()

    def tick(self, now: float) -> list[Send]:
        """Remove subscriptions whose grace is over, and confirm others."""
        self._core.now = now
        for id in self._uncertainty.expired():
            self._spreading.leave(id, LOST)
        self._spreading.tick()
        return self._flush()

    def switch(self, strategy: str, now: float) -> list[Send]:
        """Change the strategy of the whole network; see `rtfilter.overlay.switching`.

        Raises `ValueError` if it is unknown, this is not the root, or another change is not complete.
        """
        self._core.now = now
        self._switching.switch(strategy)
        return self._flush()

    def require_switch(self, strategy: str) -> None:
        """Raise `ValueError` where `switch` would."""
        self._switching.require(strategy)

    def extend(self, types: Mapping[str, Schema]) -> None:
        """Take further event types, or other attributes of known ones."""
        self._core.types = {**self._core.types, **types}
        self.table.extend(types)

    def is_known_everywhere(self, id: SubscriptionId) -> bool:
        """Return whether all brokers that must know a subscription have confirmed it; True if it is gone."""
        return self._spreading.is_known_everywhere(id)

    @property
    def announced(self) -> int:
        """Number of times that this broker, as a member, has sent all its subscriptions anew."""
        return self._spreading.announced

    def _flush(self) -> list[Send]:
        out, self._core.out = self._core.out, []
        return out
