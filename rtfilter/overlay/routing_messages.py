"""The messages of routers to each other and to clients, with plain fields, which are sent unchanged."""

from __future__ import annotations

from typing import Any, NamedTuple

from rtfilter.overlay.broker_messages import BrokerMessage
from rtfilter.overlay.broker_names import Connection, EventId, SubscriptionId, Whole
from rtfilter.overlay.cheapest import NetworkLoad


class RouterSubscription(NamedTuple):
    """A subscription, as brokers exchange it.

    Attributes
    ----------
    id : SubscriptionId
    type : str
        The name of the event type.
    condition : str
        An SQL condition over the schema of the type.
    """

    id: SubscriptionId
    type: str
    condition: str


class RouterEntry(NamedTuple):
    """A row of a routing table: events that satisfy the subscription go to the connection."""

    subscription: RouterSubscription
    connection: Connection


class RouterSubscribe(BrokerMessage, frozen=True):
    """A request for the events that satisfy a subscription. A repeated one changes nothing."""

    subscription: RouterSubscription


class RouterUnsubscribe(BrokerMessage, frozen=True):
    """The end of a request for events."""

    id: SubscriptionId


class RouterSubscriptions(BrokerMessage, frozen=True):
    """All requests of a broker to another one, in one or more parts: absent subscriptions are not wanted.

    Attributes
    ----------
    subscriptions : tuple of RouterSubscription
    first, last : bool
        True if this part is the first, and the last one.
    ask : bool
        True if the receiver must answer with all its requests.
    certain : bool
        True if absent subscriptions are certainly not wanted. Otherwise they may have been lost.
    """

    subscriptions: tuple[RouterSubscription, ...] = ()
    first: bool = True
    last: bool = True
    ask: bool = False
    certain: bool = False


class Replicate(BrokerMessage, frozen=True):
    """A new entry of the designated broker, for other members of the cluster in case they take over."""

    entry: RouterEntry


class Unreplicate(BrokerMessage, frozen=True):
    """The removal of an entry of the designated broker."""

    id: SubscriptionId
    connection: Connection


class Replica(BrokerMessage, frozen=True):
    """All entries of the designated broker, in one or more parts; see `RouterSubscriptions`."""

    entries: tuple[RouterEntry, ...] = ()
    first: bool = True
    last: bool = True


class Event(BrokerMessage, frozen=True):
    """An event between brokers.

    Attributes
    ----------
    id : EventId
    type : str
    values : dict
        Attributes and their values.
    attempt : int
        Number of times that its publisher has sent it, from 1.
    rising : bool
        True if it is on its way up to a rendezvous cluster, without deliveries on the way.
    epoch : int
        Number of the strategy that routes it; see `rtfilter.overlay.switching`.
    """

    id: EventId
    type: str
    values: dict[str, Any]
    attempt: Whole = 1
    rising: bool = False
    epoch: Whole = 0


class Notify(BrokerMessage, frozen=True):
    """An event for a client.

    Attributes
    ----------
    id : EventId
        The same at each attempt of the publisher: a client that has the event drops it.
    subscriptions : tuple of SubscriptionId
        Matching subscriptions of the client.
    """

    id: EventId
    type: str
    values: dict[str, Any]
    subscriptions: tuple[SubscriptionId, ...]


class Acknowledge(BrokerMessage, frozen=True):
    """The message that all receivers from this broker have an event. Its publisher gets it, too.

    Attributes
    ----------
    own : bool
        True if it is from a member that answers for its own clients only.
    """

    id: EventId
    attempt: Whole = 1
    rising: bool = False
    own: bool = False


class Confirm(BrokerMessage, frozen=True):
    """The message that all necessary brokers know a subscription. The client that subscribed gets it, too."""

    id: SubscriptionId


class Wave(BrokerMessage, frozen=True):
    """A message from the root to all brokers; see `rtfilter.overlay.switching`.

    Attributes
    ----------
    number : int
        Increases with each wave.
    epoch : int
        Epoch of the strategy that is in use, or will be.
    strategy : str
        Its name.
    stage : int
        One of `rtfilter.overlay.switching.Stage`.
    """

    number: Whole
    epoch: Whole
    strategy: str
    stage: Whole = 0


class Answer(BrokerMessage, frozen=True):
    """The message that all brokers below have received a wave."""

    number: Whole
    load: NetworkLoad


class Advertise(BrokerMessage, frozen=True):
    """An announcement that the way to a type's rendezvous cluster goes through the sender, or is lost.

    Attributes
    ----------
    type : str
    number : int
        Even from the rendezvous cluster, which increases it after each loss; odd for a lost way.
    """

    type: str
    number: Whole
