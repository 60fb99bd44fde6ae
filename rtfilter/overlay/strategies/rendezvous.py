"""Rendezvous clusters: for each event type, the cluster where subscriptions and events meet."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar, NamedTuple

from rtfilter.overlay.broker_messages import BrokerMessage
from rtfilter.overlay.place import BrokerPlace
from rtfilter.overlay.routing_messages import Advertise
from rtfilter.overlay.strategies.strategy import Strategy


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
        The rendezvous cluster of event types, the same at all brokers; see `by_hash`. For other types it is
        the root.

    Attributes
    ----------
    assigned : dict of str to str
    """

    name: ClassVar[str] = "rendezvous"
    rises: ClassVar[bool] = True

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


def by_hash(types: Iterable[str], clusters: Collection[str]) -> dict[str, str]:
    """Return a rendezvous cluster for each type, by the highest hash; a new cluster changes few."""
    return {type: max(clusters, key=lambda cluster: _hash(type, cluster)) for type in types}


def _hash(type: str, cluster: str) -> bytes:
    return hashlib.blake2b(f"{type}\0{cluster}".encode(), digest_size=8).digest()
