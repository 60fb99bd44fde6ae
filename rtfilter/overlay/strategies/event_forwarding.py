"""Event forwarding: every broker gets every event, and subscriptions stay where they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from rtfilter.overlay.place import BrokerPlace
from rtfilter.overlay.strategies.strategy import Strategy


class EventForwarding(Strategy):
    """Bittner's forwarding of events, which filters as close to subscribers as possible.

    Each event takes all links, and each subscription is stored once. In a cluster of several brokers each
    event is multicast, too.
    """

    name: ClassVar[str] = "event_forwarding"
    shared: ClassVar[bool] = False

    def always(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return all neighbours."""
        return place.links
