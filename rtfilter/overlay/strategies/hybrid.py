"""Hybrid routing: all goes up to the root, events go down by match, and through clusters by multicast."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from rtfilter.overlay.place import Place
from rtfilter.overlay.strategies.port import Strategy


class Hybrid(Strategy):
    """Routing of Xue and Feng 2005, which one neighbour's knowledge is enough for.

    A broker knows the subscriptions of its subtree. Events always go up to the root, and down where they
    match; within a cluster one multicast serves all members.
    """

    name: ClassVar[str] = "hybrid"

    def learners(self, place: Place, type: str) -> Collection[str]:
        """The parent."""
        return _parent(place)

    def always(self, place: Place, type: str) -> Collection[str]:
        """The parent."""
        return _parent(place)


def _parent(place: Place) -> Collection[str]:
    return (place.parent,) if place.parent in place.links else ()
