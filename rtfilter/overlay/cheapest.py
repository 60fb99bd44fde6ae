"""The choice of the cheapest strategy: a stateless rule over measured loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rtfilter.overlay.broker_names import Whole

MATCH: Final = 0.25
"""The cost of matching an event against others' subscriptions, as a share of the cost of a message."""
MARGIN: Final = 0.1
"""Share of the current cost that another strategy must save to be chosen."""


class NetworkLoad(NamedTuple):
    """The load of a part of the network during some time.

    Attributes
    ----------
    sizes : tuple of int
        For each link below, and for the part itself, the number of clusters under it.
    events : int
        Number of events that clients have published.
    served : int
        Sum over all events of the clusters that they had to reach: how selective subscriptions are.
    changes : int
        Number of subscriptions that were added or removed.
    """

    sizes: tuple[Whole, ...] = ()
    events: Whole = 0
    served: Whole = 0
    changes: Whole = 0

    @property
    def clusters(self) -> int:
        """Clusters of the part."""
        return self.sizes[-1] if self.sizes else 0

    @classmethod
    def of(cls, own: NetworkLoad, below: Iterable[NetworkLoad]) -> NetworkLoad:
        """Return the load of a cluster and all parts below it; the sizes in `own` do not count."""
        parts = list(below)
        size = 1 + sum(part.clusters for part in parts)
        return cls(
            (*(one for part in parts for one in part.sizes), size),
            own.events + sum(part.events for part in parts),
            own.served + sum(part.served for part in parts),
            own.changes + sum(part.changes for part in parts),
        )


def costs(load: NetworkLoad) -> Mapping[str, float]:
    """Return the cost of an event by strategy, in messages between clusters.

    The messages are those of Bittner's strategies in the present tree: all links; the smallest subtree with
    the publisher and all matching clusters; or the way to the root and the smallest subtree with it. The
    estimate assumes that all clusters publish equally, and want an event with the same probability. Two costs
    are added: `MATCH` at each cluster that matches the event against others' subscriptions (none with event
    forwarding), and the event's share of the messages that spread subscriptions.

    Parameters
    ----------
    load : NetworkLoad
        The load of the whole network, with at least one event.
    """
    total = load.clusters
    unserved = 1 - min(load.served / load.events / total, 1)
    below = load.sizes[:-1]
    up = sum(size / total for size in below)
    reached = sum(1 - unserved**size for size in below)
    returned = sum(size / total * (1 - unserved**size) for size in below)
    left = sum(size / total * (1 - unserved ** (total - size)) for size in below)
    either = left + reached - returned
    changes = load.changes / load.events
    rooted = up + reached + MATCH * (up + reached + 1) + changes * up
    return {
        "event_forwarding": float(total - 1),
        "profile_forwarding": either + MATCH * (either + 1) + changes * (total - 1),
        "rendezvous": rooted,
        "hybrid": rooted - returned,
    }


def choose(load: NetworkLoad, current: str) -> str:
    """Return the cheapest strategy if it saves `MARGIN` of the current cost, else the current one."""
    if not load.events:
        return current
    found = costs(load)
    best = min(found, key=lambda name: found[name])
    if current in found and found[best] > (1 - MARGIN) * found[current]:
        return current
    return best
