"""The messages of routers to each other and to clients, with plain fields, which are sent unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rtfilter.overlay.broker_names import BrokerMessage, Connection, EventId, SubscriptionId, Whole


class RoutingMessage(BrokerMessage, frozen=True):
    """The base of the messages that routers send each other."""


class RouterSubscription(NamedTuple):
    """A subscription, as brokers exchange it: an SQL condition over the schema of an event type."""

    id: SubscriptionId
    type: str
    condition: str


class RouterEntry(NamedTuple):
    """A row of a routing table: events that satisfy the subscription go to the connection."""

    subscription: RouterSubscription
    connection: Connection


class RouterSubscribe(RoutingMessage, frozen=True):
    """A request for the events that satisfy a subscription. A repeated one changes nothing."""

    subscription: RouterSubscription


class RouterUnsubscribe(RoutingMessage, frozen=True):
    """The end of a request for events."""

    id: SubscriptionId


class RouterSubscriptions(RoutingMessage, frozen=True):
    """All requests of a broker to another one, in one or more parts: absent subscriptions are not wanted."""

    subscriptions: tuple[RouterSubscription, ...] = ()
    first: bool = True
    last: bool = True
    ask: bool = False
    """True if the receiver must answer with all its requests."""
    certain: bool = False
    """True if absent subscriptions are certainly not wanted. Otherwise they may have been lost."""


class Replicate(RoutingMessage, frozen=True):
    """A new entry of the designated broker, for other members of the cluster in case they take over."""

    entry: RouterEntry


class Unreplicate(RoutingMessage, frozen=True):
    """The removal of an entry of the designated broker."""

    id: SubscriptionId
    connection: Connection


class Replica(RoutingMessage, frozen=True):
    """All entries of the designated broker, in one or more parts; see `RouterSubscriptions`."""

    entries: tuple[RouterEntry, ...] = ()
    first: bool = True
    last: bool = True


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


class Confirm(RoutingMessage, frozen=True):
    """The message that all necessary brokers know a subscription. The client that subscribed gets it, too."""

    id: SubscriptionId


class Wave(RoutingMessage, frozen=True):
    """A message from the root to all brokers; see `rtfilter.overlay.switching`."""

    number: Whole
    """Increases with each wave."""
    epoch: Whole
    """Epoch of the strategy that is in use, or will be."""
    strategy: str
    stage: Whole = 0
    """A `rtfilter.overlay.switching.Stage`."""


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


class Answer(RoutingMessage, frozen=True):
    """The message that all brokers below have received a wave."""

    number: Whole
    load: NetworkLoad


class Advertise(RoutingMessage, frozen=True):
    """An announcement that the way to a type's rendezvous cluster goes through the sender, or is lost."""

    type: str
    number: Whole
    """Even from the rendezvous cluster, which increases it after each loss; odd for a lost way."""
