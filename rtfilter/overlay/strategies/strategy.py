"""The decisions of a strategy: the routes of subscriptions and events in the tree of clusters.

Between clusters all brokers do the same, whatever the strategy: an event goes to each connection that has a
matching subscription, but not back to its source. A strategy decides which clusters must know
subscriptions, and where else events go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import ClassVar

from rtfilter.overlay.broker_messages import BrokerMessage
from rtfilter.overlay.place import BrokerPlace


class Strategy:
    """The base of all strategies: it sends no subscriptions, and events only where they match.

    One object serves one broker. The router uses it while the broker is the designated one of its cluster.

    Attributes
    ----------
    name : str
    multicast : bool
        True if one message reaches the whole cluster. Otherwise each interested member gets its own message.
    shared : bool
        True if a designated broker knows the subscriptions of other members of the cluster. Otherwise they
        get each event.
    rises : bool
        True if events go to one cluster first, without deliveries on the way; see `ascent`.
    stops : bool
        True if an event goes nowhere without a known matching subscription. Then a broker that has lost
        others without knowing it stops their events, so nothing is confirmed before they may be back.
    """

    name: ClassVar[str]
    multicast: ClassVar[bool] = True
    shared: ClassVar[bool] = True
    rises: ClassVar[bool] = False
    stops: ClassVar[bool] = False

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
