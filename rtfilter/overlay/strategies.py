"""The strategies of routing: the routes of subscriptions and events in the tree of clusters.

Between clusters all brokers do the same, whatever the strategy: an event goes to each connection that has a
matching subscription, but not back to its source. A strategy decides which clusters must know
subscriptions, and where else events go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, Final, NamedTuple

from rtfilter.overlay.broker_names import BrokerMessage, BrokerPlace
from rtfilter.overlay.routing_messages import Advertise


class Strategy:
    """The base of all strategies: it sends no subscriptions, and events only where they match.

    One object serves one broker. The router uses it while the broker is the designated one of its cluster.
    """

    name: ClassVar[str]
    multicast: ClassVar[bool] = True
    """True if one message reaches the whole cluster. Otherwise each interested member gets its own."""
    shared: ClassVar[bool] = True
    """True if a designated broker knows the subscriptions of other members of the cluster. Otherwise they
    get each event."""
    rises: ClassVar[bool] = False
    """True if events go to one cluster first, without deliveries on the way; see `ascent`."""
    stops: ClassVar[bool] = False
    """True if an event goes nowhere without a known matching subscription. Then a broker that has lost others
    without knowing it stops their events, so nothing is confirmed before they may be back."""

    def learners(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return the linked clusters that must know the subscriptions to an event type."""
        return ()

    def always(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return the linked clusters that get each event of a type."""
        return ()

    def ascent(self, place: BrokerPlace, type: str) -> str | None:
        """Return the cluster that events rise to, linked or the own one, before they go to all matches.

        None: it is unknown.
        """
        return None

    def greeting(self, place: BrokerPlace, cluster: str, types: Iterable[str]) -> list[BrokerMessage]:
        """Return the messages to a cluster that is newly linked, or that asks."""
        return []

    def moved(self, place: BrokerPlace, anew: bool) -> list[tuple[str, BrokerMessage]]:
        """Apply a new place; return messages for other clusters.

        `anew` is True if another broker was the designated one before.
        """
        return []

    def hear(
        self, message: BrokerMessage, place: BrokerPlace, cluster: str
    ) -> list[tuple[str, BrokerMessage]]:
        """Process a message of the strategy from a linked cluster; return messages for other clusters."""
        return []


class ProfileForwarding(Strategy):
    """Bittner's forwarding of profiles: all brokers know all subscriptions, events go only where they match.

    An event takes exactly the links of the smallest subtree with its publisher and all matching clusters.
    Tables are large: without covering each broker has each subscription.
    """

    name = "profile_forwarding"
    stops = True

    def learners(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return all neighbours."""
        return place.links


class EventForwarding(Strategy):
    """Bittner's forwarding of events: each event takes all links, and each subscription is stored once.

    In a cluster of several brokers each event is multicast, too.
    """

    name = "event_forwarding"
    shared = False

    def always(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return all neighbours."""
        return place.links


class Hybrid(Strategy):
    """The routing of Xue and Feng 2005, for which a broker needs to know only its neighbours.

    A broker knows the subscriptions of its subtree. Events always go up to the root, and down where they
    match; within a cluster one multicast serves all members.
    """

    name = "hybrid"

    def learners(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return the parent."""
        return (place.parent,) if place.parent in place.links else ()

    always = learners


class Hierarchical(Hybrid):
    """The baseline of Xue and Feng 2005: a designated broker sends to each interested member separately."""

    name = "hierarchical"
    multicast = False


class _Way(NamedTuple):
    """The way to a rendezvous cluster: its number, 0 if none is known; and the next cluster, unless lost."""

    number: int = 0
    hop: str = ""
    broker: str = ""


class Rendezvous(Strategy):
    """Bittner's rendezvous nodes: events rise to the rendezvous cluster of their type, then descend.

    An event is not delivered on its way up, and goes back over the same links where it matches. So it takes
    the links of the way up, and those of the smallest subtree with the rendezvous cluster and all matching
    ones.

    The way to the root is up. Neighbours announce to each other the link to an assigned cluster, with a
    number as in DSDV routing (Perkins and Bhagwat 1994), so that old information does not replace new. The
    cluster itself assigns even numbers. A broker that loses the next broker of a way announces the following
    odd number; when the cluster receives that, it announces the next even one.

    Parameters
    ----------
    assigned : mapping of str to str
        The rendezvous cluster of event types, the same at all brokers. For other types it is the root.
    """

    name = "rendezvous"
    rises = True

    def __init__(self, assigned: Mapping[str, str] | None = None) -> None:
        self.assigned = dict(assigned or {})
        self._ways: dict[str, _Way] = {}  # to assigned clusters, by type

    def learners(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return the next cluster on the way to the rendezvous."""
        where = self.ascent(place, type)
        return () if where is None or where == place.cluster else (where,)

    def ascent(self, place: BrokerPlace, type: str) -> str | None:
        """Return the next cluster on the way to the rendezvous, or the own one."""
        if type not in self.assigned:
            hop = place.cluster if place.root else place.parent
        else:
            hop = place.cluster if self._is_here(place, type) else self._way(place, type).hop
        return hop if hop == place.cluster or hop in place.links else None

    def greeting(self, place: BrokerPlace, cluster: str, types: Iterable[str]) -> list[BrokerMessage]:
        """Return announcements of all known ways, and of the lost ones."""
        ways = {type: self._way(place, type) for type in types if type in self.assigned}
        return [
            Advertise(type, way.number) for type, way in ways.items() if way.number and way.hop != cluster
        ]

    def hear(
        self, message: BrokerMessage, place: BrokerPlace, cluster: str
    ) -> list[tuple[str, BrokerMessage]]:
        """Store an announced way, or its loss, and pass on what is new."""
        if not isinstance(message, Advertise) or message.type not in self.assigned:
            return []
        type, number, lost = message.type, message.number, message.number % 2
        if number <= self._way(place, type).number:
            return []
        if self._is_here(place, type):
            return self._take(type, _Way(number + 1), place, "") if lost else []
        way = _Way(number) if lost else _Way(number, cluster, place.links[cluster])
        return self._take(type, way, place, cluster)

    def moved(self, place: BrokerPlace, anew: bool) -> list[tuple[str, BrokerMessage]]:
        """Announce the ways that are lost, because their next broker is another one."""
        if anew:
            self._ways.clear()
        ways = list(self._ways.items())
        lost = [(type, way) for type, way in ways if way.hop and place.links.get(way.hop) != way.broker]
        return [one for type, way in lost for one in self._take(type, _Way(way.number + 1), place, "")]

    def _is_here(self, place: BrokerPlace, type: str) -> bool:
        return self.assigned[type] == place.cluster

    def _way(self, place: BrokerPlace, type: str) -> _Way:
        return self._ways.get(type, _Way(2 if self._is_here(place, type) else 0))

    def _take(self, type: str, way: _Way, place: BrokerPlace, source: str) -> list[tuple[str, BrokerMessage]]:
        """Store a way, and return its announcement to other clusters."""
        self._ways[type] = way
        return [(other, Advertise(type, way.number)) for other in place.links if other != source]


STRATEGIES: Final[dict[str, type[Strategy]]] = {
    strategy.name: strategy
    for strategy in (ProfileForwarding, EventForwarding, Rendezvous, Hybrid, Hierarchical)
}
"""Each strategy by its name."""


def strategy_of(given: str | Strategy, assigned: Mapping[str, str] | None = None) -> Strategy:
    """Return the strategy of a name, or the given object itself. Raises `ValueError` for an unknown name.

    `assigned` are the rendezvous clusters for `Rendezvous`.
    """
    if isinstance(given, Strategy):
        return given
    if given not in STRATEGIES:
        raise ValueError(f"unknown strategy {given!r:.60}; choose one of {', '.join(STRATEGIES)}")
    return Rendezvous(assigned) if given == Rendezvous.name else STRATEGIES[given]()
