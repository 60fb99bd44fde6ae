"""Hybrid routing: events go up to the root, down to matching clusters, and by multicast within a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from rtfilter.overlay.place import BrokerPlace
from rtfilter.overlay.strategies.strategy import Strategy


class Hybrid(Strategy):
    """The routing of Xue and Feng 2005, for which a broker needs to know only its neighbours.

    A broker knows the subscriptions of its subtree. Events always go up to the root, and down where they
    match; within a cluster one multicast serves all members.
    """

    name: ClassVar[str] = "hybrid"

    def learners(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return the parent."""
        return _parent(place)

    def always(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return the parent."""
        return _parent(place)


def _parent(place: BrokerPlace) -> Collection[str]:
    return (place.parent,) if place.parent in place.links else ()
