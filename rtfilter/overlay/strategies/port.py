"""The decisions of a strategy: the routes of subscriptions and events in the tree of clusters.

Between clusters all brokers do the same, whatever the strategy: an event goes to each connection that has a
matching subscription, but not back to where it came from. A strategy says who must know subscriptions, and
where else events go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from rtfilter.overlay.place import Place
from rtfilter.overlay.sending import Message


class Strategy:
    """The base of all: tells nobody, and sends nothing that does not match.

    One object serves one broker. It is asked while that is the designated one of its cluster.

    Attributes
    ----------
    name : str
    multicast : bool
        Whether one message reaches all of a cluster. Otherwise each interested member gets its own.
    shared : bool
        Whether a designated broker knows the subscriptions of other members of the cluster. Otherwise they
        get each event.
    rises : bool
        Whether events go to one cluster first, with nobody served on the way; see `ascent`.
    stops : bool
        Whether an event goes nowhere where no subscription is known that it matches. A broker that is out of
        touch and does not know it then stops what others want, so nothing is confirmed before it may be back.
    """

    name: ClassVar[str]
    multicast: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    rises: ClassVar[bool] = False
    stops: ClassVar[bool] = False

    def learners(self, place: Place, type: str) -> Collection[str]:
        """The linked clusters that must know the subscriptions to an event type."""
        return ()

    def always(self, place: Place, type: str) -> Collection[str]:
        """The linked clusters that each event of a type goes to."""
        return ()

    def ascent(self, place: Place, type: str) -> str | None:
        """Return the cluster that events rise to, linked or the own one, before they go to all matches.

        None: it is not known.
        """
        return None

    def greeting(self, place: Place, cluster: str, types: Iterable[str]) -> list[Message]:
        """Return the messages to a cluster that is newly linked, or that asks."""
        return []

    def moved(self, place: Place, anew: bool) -> list[tuple[str, Message]]:
        """Take a new place; what other clusters must be told.

        `anew` where another broker was the designated one until now.
        """
        return []

    def hear(self, message: Message, place: Place, cluster: str) -> list[tuple[str, Message]]:
        """Take a message of the strategy from a linked cluster; what other clusters must be told."""
        return []
