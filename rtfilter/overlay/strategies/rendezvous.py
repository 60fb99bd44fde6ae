"""Rendezvous clusters: for each event type one, where subscriptions and events meet."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import ClassVar

from rtfilter.overlay.place import Place
from rtfilter.overlay.routing_messages import Advertise
from rtfilter.overlay.sending import Message
from rtfilter.overlay.strategies.port import Strategy


class Rendezvous(Strategy):
    """Bittner's rendezvous nodes: events rise to the rendezvous cluster of their type, then descend.

    An event serves nobody on its way up, and goes back over the same links where it matches, so it takes as
    many links as the way up has, and those of the smallest subtree with the rendezvous cluster and all who
    match. Which link leads there, neighbours tell each other.

    Parameters
    ----------
    assigned : mapping of str to str
        The rendezvous cluster of an event type, the same at all brokers; see `by_hash`. For other types it is
        the root.

    Attributes
    ----------
    assigned : dict of str to str
    """

    name: ClassVar[str] = "rendezvous"
    rises: ClassVar[bool] = True

    def __init__(self, assigned: Mapping[str, str] | None = None) -> None:
        self.assigned = dict(assigned or {})
        self._hops: dict[str, str] = {}  # the link that leads to the rendezvous cluster of a type

    def learners(self, place: Place, type: str) -> Collection[str]:
        """The next cluster on the way to the rendezvous."""
        where = self.ascent(place, type)
        return () if where is None or where == place.cluster else (where,)

    def ascent(self, place: Place, type: str) -> str | None:
        """The next cluster on the way to the rendezvous, or the own one."""
        if self.assigned.get(type, place.cluster if place.root else None) == place.cluster:
            return place.cluster
        hop = self._hops.get(type)
        return hop if hop in place.links else None

    def greeting(self, place: Place, cluster: str, types: Iterable[str]) -> list[Message]:
        """The types whose rendezvous is here, or farther away."""
        return [Advertise(type) for type in types if self.ascent(place, type) not in (None, cluster)]

    def hear(self, message: Message, place: Place, cluster: str) -> list[tuple[str, Message]]:
        """Learn the next cluster on the way, and pass that on where it is new."""
        if not isinstance(message, Advertise) or self.ascent(place, message.type) in (place.cluster, cluster):
            return []
        self._hops[message.type] = cluster
        return [(other, message) for other in place.links if other != cluster]


def by_hash(types: Iterable[str], clusters: Collection[str]) -> dict[str, str]:
    """A rendezvous cluster for each type, by the highest hash of both; of others little changes with one."""
    return {type: max(clusters, key=lambda cluster: _hash(type, cluster)) for type in types}


def _hash(type: str, cluster: str) -> bytes:
    return hashlib.blake2b(f"{type}\0{cluster}".encode(), digest_size=8).digest()
