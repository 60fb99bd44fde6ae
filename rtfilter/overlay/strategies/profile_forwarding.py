"""Profile forwarding: every broker knows every subscription, and events go only where they match."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from rtfilter.overlay.place import BrokerPlace
from rtfilter.overlay.strategies.strategy import Strategy


class ProfileForwarding(Strategy):
    """Bittner's forwarding of profiles, which filters as close to publishers as possible.

    An event takes exactly the links of the smallest subtree with its publisher and all matching clusters.
    Tables are large: without covering each broker has each subscription.
    """

    name: ClassVar[str] = "profile_forwarding"
    stops: ClassVar[bool] = True

    def learners(self, place: BrokerPlace, type: str) -> Collection[str]:
        """Return all neighbours."""
        return place.links
