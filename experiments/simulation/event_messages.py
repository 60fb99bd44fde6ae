"""The messages of event routers, besides those of `rtfilter.overlay.routing_messages`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rtfilter.overlay.broker_names import BrokerMessage, SubscriptionId, Whole
from rtfilter.overlay.codec import Codec
from rtfilter.overlay.routing_messages import Answer, RoutingMessage


class EventId(NamedTuple):
    """The id of an event, unique in the network and the same at each attempt, so receivers detect repeats."""

    origin: str
    incarnation: Whole
    number: Whole


class Event(RoutingMessage, frozen=True):
    """An event between brokers."""

    id: EventId
    type: str
    values: dict[str, Any]
    attempt: Whole = 1
    """Number of times that its publisher has sent it, from 1."""
    rising: bool = False
    """True if it is on its way up to a rendezvous cluster, without deliveries on the way."""
    epoch: Whole = 0
    """Number of the strategy that routes it; see `rtfilter.overlay.switching`."""


class Notify(BrokerMessage, frozen=True):
    """An event for a client. The id is the same at each attempt: a client that has the event drops it."""

    id: EventId
    type: str
    values: dict[str, Any]
    subscriptions: tuple[SubscriptionId, ...]
    """Matching subscriptions of the client."""


class Acknowledge(RoutingMessage, frozen=True):
    """The message that all receivers from this broker have an event. Its publisher gets it, too."""

    id: EventId
    attempt: Whole = 1
    rising: bool = False
    own: bool = False
    """True if it is from a member that answers for its own clients only."""


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

    def plus(self, others: Iterable[NetworkLoad]) -> NetworkLoad:
        """Return the sum of all counts, with the sizes of this one."""
        sums = map(sum, zip(*(load[1:] for load in (self, *others)), strict=True))
        return NetworkLoad(self.sizes, *sums)

    @classmethod
    def of(cls, own: NetworkLoad, below: Iterable[NetworkLoad]) -> NetworkLoad:
        """Return the load of a cluster and all parts below it; the sizes in `own` do not count."""
        parts = list(below)
        size = 1 + sum(part.clusters for part in parts)
        return own.plus(parts)._replace(sizes=(*(one for part in parts for one in part.sizes), size))


class LoadAnswer(Answer, frozen=True):
    """An answer to a wave, with the load of all brokers below."""

    load: NetworkLoad


def codec() -> Codec:
    """Return a decoder of all messages between brokers that route events."""
    return Codec(*Codec().kinds, Event, Acknowledge, LoadAnswer)
