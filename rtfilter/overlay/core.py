"""What the parts of a router share: who and where it is, its table, and what it wants sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from rtfilter.events.schema import Schema
from rtfilter.overlay.names import CLUSTER, Connection, Kind, member
from rtfilter.overlay.place import Place
from rtfilter.overlay.sending import Message, Send
from rtfilter.overlay.strategies.port import Strategy
from rtfilter.overlay.table import Table

NOWHERE: Final = Place("", "", "", frozenset())


class Core:
    """Shared by the parts of one router.

    Attributes
    ----------
    name : str
        Of the broker.
    types : mapping of str to Schema
    strategy : Strategy
    grace : float or None
        Seconds that what was lost is waited for, before it is forgotten; None: none are, and nothing is
        acknowledged.
    table : Table
    at : Place
    now : float
        When the call that is being served came.
    out : list of Send
    counts : Counter
        Messages by kind, since the router was made.
    """

    def __init__(
        self, name: str, types: Mapping[str, Schema], strategy: Strategy, grace: float | None
    ) -> None:
        self.name, self.types, self.strategy, self.grace = name, types, strategy, grace
        self.table = Table(types)
        self.at = NOWHERE._replace(broker=name)
        self.now = 0.0
        self.out: list[Send] = []
        self.counts: Counter[str] = Counter()

    def send(self, to: Connection, message: Message) -> None:
        """Put a message on its way."""
        self.counts[type(message).__name__] += 1
        self.out.append(Send(to, message))

    @property
    def way_up(self) -> Connection:
        """How a member reaches the designated broker: others hear it as well, where there is multicast."""
        return CLUSTER if self.strategy.multicast else member(self.at.designated)

    @property
    def fellows(self) -> frozenset[Connection]:
        """The other members."""
        return frozenset(member(broker) for broker in self.at.members if broker != self.name)

    def is_whole(self, type: str) -> bool:
        """Whether a designated broker is not cut off from the network, as far as events of a type go."""
        ways, place = self.strategy, self.at
        reached = place.root or place.parent in place.links
        return reached and (not ways.rises or ways.ascent(place, type) is not None)

    def knows(self, connection: Connection) -> bool:
        """Whether a connection is to a linked cluster or another member."""
        if connection.kind is Kind.LINK:
            return self.at.leads and connection.name in self.at.links
        return connection in self.fellows
