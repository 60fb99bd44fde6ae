"""The choice of the cheapest strategy: a stateless rule over measured loads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rtfilter.overlay.names import Whole

MATCH: Final = 0.25
"""The cost to match an event against others' subscriptions, as a share of the cost to send a message."""
MARGIN: Final = 0.1
"""Share of its cost that another strategy must save before it is chosen."""


class Load(NamedTuple):
    """The load of a part of the network over some time.

    Attributes
    ----------
    sizes : tuple of int
        For each link below, and for the part itself, the number of clusters under it.
    events : int
        Events that clients have published.
    served : int
        Clusters that events had to reach, over all events: how selective subscriptions are, all in all.
    changes : int
        Subscriptions that came and went.
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
    def of(cls, own: Load, below: Iterable[Load]) -> Load:
        """The load of a cluster and all parts below it; of `own`, the sizes do not count."""
        parts = list(below)
        size = 1 + sum(part.clusters for part in parts)
        return cls(
            (*(one for part in parts for one in part.sizes), size),
            own.events + sum(part.events for part in parts),
            own.served + sum(part.served for part in parts),
            own.changes + sum(part.changes for part in parts),
        )


def costs(load: Load) -> Mapping[str, float]:
    """The cost of each event by strategy, in messages between clusters.

    The messages are those of Bittner's strategies in the tree at hand: all links; the smallest subtree with
    the publisher and all who match; or the way to the root and the smallest subtree with it. Each cluster
    is taken to publish as much as any other, and to want an event with the same probability. To that comes
    `MATCH` wherever an event is matched against others' subscriptions, which event forwarding has none of,
    and for each event its share of the messages that spread subscriptions.

    Parameters
    ----------
    load : Load
        Of the whole network, with at least one event.
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


def choose(load: Load, current: str) -> str:
    """The strategy to use: the cheapest, if it saves at least `MARGIN` of what the current one costs."""
    if not load.events:
        return current
    found = costs(load)
    best = min(found, key=lambda name: found[name])
    if current in found and found[best] > (1 - MARGIN) * found[current]:
        return current
    return best
