"""The state that the parts of a router share, and what of it is uncertain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
from rtfilter.overlay.routing_table import Table
from rtfilter.overlay.strategies import Rendezvous, Strategy, strategy_of

LOST: Final = Connection(ConnectionKind.LINK, "")
"""In a table, the connection of uncertain subscriptions, whose place is unknown."""


class Core:
    """The state that the parts of one router share; for the parameters see `Router`."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        types: Mapping[str, Schema],
        strategy: str | Strategy,
        grace: float | None,
        longest: int,
        assigned: Mapping[str, str] | None,
    ) -> None:
        self.name, self.incarnation, self.types = name, incarnation, types
        self.grace, self.longest = grace, longest
        self._subscriptions = 0
        made = strategy_of(strategy, assigned)
        self.strategies = {0: made}  # by epoch: one, or two during a change of strategy
        self.epoch = 0  # that of new events of clients of this broker
        self.assigned = made.assigned if isinstance(made, Rendezvous) else dict(assigned or {})
        self.table = Table(types)
        self.at = BrokerPlace("", name, "", frozenset())
        self.now = 0.0  # the time of the present call
        self.out: list[Send] = []

    def send(self, to: Connection, message: BrokerMessage) -> None:
        """Append a message to the outgoing ones."""
        self.out.append(Send(to, message))

    def new_id(self) -> SubscriptionId:
        """Return a new id for a subscription of this broker or its clients."""
        self._subscriptions += 1
        return SubscriptionId(self.name, self.incarnation, self._subscriptions)

    @property
    def strategy(self) -> Strategy:
        """The strategy for new events of clients of this broker."""
        return self.strategies[self.epoch]

    @property
    def shared(self) -> bool:
        """True if the designated broker must know the subscriptions of other members."""
        return any(strategy.shared for strategy in self.strategies.values())

    @property
    def designated(self) -> Connection:
        """The designated broker of the cluster, seen by another member."""
        return member(self.at.designated)

    @property
    def fellows(self) -> frozenset[Connection]:
        """The other members."""
        return frozenset(member(broker) for broker in self.at.members if broker != self.name)

    def is_whole(self, type: str) -> bool:
        """Return whether a designated broker is connected to the network, for events of a type."""
        place = self.at
        risen = (one.ascent(place, type) for one in self.strategies.values() if one.rises)
        return (place.root or place.parent in place.links) and None not in risen

    def knows(self, connection: Connection) -> bool:
        """Return whether a connection is to a linked cluster or to another member."""
        if connection.kind is ConnectionKind.LINK:
            return self.at.leads and connection.name in self.at.links
        return connection in self.fellows


class Uncertainty:
    """Records what may be missing, so that no subscription is confirmed too early.

    A subscription whose connection was lost stays in the table for `Core.grace` seconds, with the connection
    `LOST`, or until it comes back from the same connection. If it comes from another one, it stays uncertain,
    because that message may be older than the loss.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._until: dict[SubscriptionId, dict[Connection, float]] = {}
        self._withheld_until = float("-inf")

    def keep(self, id: SubscriptionId, connection: Connection) -> None:
        """Mark a subscription whose connection was lost as uncertain from now on."""
        assert self._core.grace is not None
        self._until.setdefault(id, {})[connection] = self._core.now + self._core.grace

    def settle(self, id: SubscriptionId, connection: Connection) -> bool:
        """Note that a subscription came back from a connection; return whether it is certain again."""
        lost = self._until.get(id, {})
        if lost.pop(connection, None) is None or lost:
            return False
        del self._until[id]
        return True

    def forget(self, id: SubscriptionId) -> None:
        """Remove a subscription that is certainly gone, or that another broker has now."""
        self._until.pop(id, None)

    def expired(self) -> list[SubscriptionId]:
        """Return the subscriptions whose grace is over."""
        now = self._core.now
        return [id for id, lost in self._until.items() if max(lost.values()) <= now]

    def doubt(self) -> None:
        """Confirm nothing for the grace: a former broker may not know yet that it has lost this place."""
        if self._core.grace is not None:
            self._withheld_until = self._core.now + self._core.grace

    def part(self) -> None:
        """Note that a linked cluster is gone; if events could stop there, confirm nothing for the grace."""
        if self._core.grace is not None and any(one.stops for one in self._core.strategies.values()):
            self._withheld_until = self._core.now + self._core.grace

    def may_confirm(self, type: str) -> bool:
        """Return whether all brokers that must know the subscriptions to a type can be reached."""
        return self._core.now >= self._withheld_until and self._core.is_whole(type)

    def __len__(self) -> int:
        return len(self._until)
