"""The messages of routers to each other, with plain fields, which are sent unchanged."""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.overlay.broker_names import BrokerMessage, Connection, SubscriptionId, Whole


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


class Answer(RoutingMessage, frozen=True):
    """The message that all brokers below have received a wave."""

    number: Whole


class Advertise(RoutingMessage, frozen=True):
    """An announcement that the way to a type's rendezvous cluster goes through the sender, or is lost."""

    type: str
    number: Whole
    """Even from the rendezvous cluster, which increases it after each loss; odd for a lost way."""
