"""The state that the parts of a router share: its name and place, its table, and the messages to send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from rtfilter.events.schema import Schema
from rtfilter.matchers.registry import Factory
from rtfilter.overlay.broker_messages import BrokerMessage, Send
from rtfilter.overlay.broker_names import Connection, ConnectionKind, SubscriptionId, member
from rtfilter.overlay.cheapest import NetworkLoad
from rtfilter.overlay.place import BrokerPlace
from rtfilter.overlay.routing_table import NO_MATCHERS, Table
from rtfilter.overlay.strategies import strategy_of
from rtfilter.overlay.strategies.rendezvous import Rendezvous
from rtfilter.overlay.strategies.strategy import Strategy

NOWHERE: Final = BrokerPlace("", "", "", frozenset())


class Core:
    """The state that the parts of one router share.

    Attributes
    ----------
    name : str
        Name of the broker.
    incarnation : int
    types : mapping of str to Schema
    strategies : dict of int to Strategy
        Strategies by epoch: one, or two during a change of strategy.
    epoch : int
        The epoch whose strategy routes new events of clients of this broker.
    assigned : dict of str to str
        Rendezvous clusters of event types, for the strategy `Rendezvous`.
    load : NetworkLoad
        The load of this broker since it was last read.
    grace : float or None
        Seconds to wait for lost subscriptions before they are removed; None: they are removed at once, and
        nothing is acknowledged.
    longest : int
        Most bytes of a message.
    table : Table
    at : BrokerPlace
    now : float
        Time of the present call.
    out : list of Send
    counts : Counter
        Messages by kind, since the router was made.
    """

    def __init__(
        self,
        name: str,
        incarnation: int,
        types: Mapping[str, Schema],
        strategy: Strategy,
        grace: float | None,
        longest: int = 2**24,
        assigned: Mapping[str, str] | None = None,
        matchers: Mapping[str, Factory] = NO_MATCHERS,
    ) -> None:
        self.name, self.incarnation, self.types, self.grace = name, incarnation, types, grace
        self.longest = longest
        self._subscriptions = 0
        self.strategies, self.epoch = {0: strategy}, 0
        self.assigned = strategy.assigned if isinstance(strategy, Rendezvous) else dict(assigned or {})
        self.load = NetworkLoad()
        self.table = Table(types, matchers)
        self.at = NOWHERE._replace(broker=name)
        self.now = 0.0
        self.out: list[Send] = []
        self.counts: Counter[str] = Counter()

    def send(self, to: Connection, message: BrokerMessage) -> None:
        """Append a message to the outgoing ones, and count it."""
        self.counts[type(message).__name__] += 1
        self.out.append(Send(to, message))

    def new_id(self) -> SubscriptionId:
        """Return a new id for a subscription of this broker or its clients."""
        self._subscriptions += 1
        return SubscriptionId(self.name, self.incarnation, self._subscriptions)

    def note(self, events: int = 0, served: int = 0, changes: int = 0) -> None:
        """Add to the load of this broker."""
        sizes, *seen = self.load
        self.load = NetworkLoad(sizes, seen[0] + events, seen[1] + served, seen[2] + changes)

    @property
    def strategy(self) -> Strategy:
        """The strategy for new events of clients of this broker."""
        return self.strategies[self.epoch]

    @property
    def shared(self) -> bool:
        """Return whether the designated broker must know the subscriptions of other members."""
        return any(strategy.shared for strategy in self.strategies.values())

    def made(self, name: str) -> Strategy:
        """Return a new strategy by its name."""
        return strategy_of(name, self.assigned)

    def adopt(self, epoch: int, name: str, in_use: bool) -> None:
        """Add a strategy, and with `in_use` route new events by it."""
        if epoch not in self.strategies:
            self.strategies[epoch] = self.made(name)
        if in_use:
            self.epoch = epoch

    def forget_others(self) -> None:
        """Remove all strategies except the one in use."""
        self.strategies = {self.epoch: self.strategy}

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
