"""The messages of routers to each other and to clients, with plain fields that go over a wire as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

from rtfilter.overlay.choosing import Load
from rtfilter.overlay.names import Connection, EventId, SubscriptionId, Whole
from rtfilter.overlay.sending import Message


class Subscription(NamedTuple):
    """A subscription as brokers know it.

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


class Entry(NamedTuple):
    """A row of a routing table: events that satisfy the subscription go to the connection."""

    subscription: Subscription
    connection: Connection


class Subscribe(Message, frozen=True):
    """A broker wants what satisfies a subscription. To say so again changes nothing."""

    subscription: Subscription


class Unsubscribe(Message, frozen=True):
    """It no longer does."""

    id: SubscriptionId


class Subscriptions(Message, frozen=True):
    """All that a broker wants of another one, in one or more parts: whatever is not among it is not wanted.

    Attributes
    ----------
    subscriptions : tuple of Subscription
    first, last : bool
        Whether this part begins, and ends, all of it.
    ask : bool
        Whether the other one shall answer with all that it wants.
    certain : bool
        Whether what is not among it is not wanted any longer. Otherwise it may have been lost.
    """

    subscriptions: tuple[Subscription, ...] = ()
    first: bool = True
    last: bool = True
    ask: bool = False
    certain: bool = False


class Replicate(Message, frozen=True):
    """The designated broker has a new entry, which others of the cluster note in case they must take over."""

    entry: Entry


class Unreplicate(Message, frozen=True):
    """It has that entry no longer."""

    id: SubscriptionId
    connection: Connection


class Replica(Message, frozen=True):
    """All entries of the designated broker, in one or more parts; see `Subscriptions`."""

    entries: tuple[Entry, ...] = ()
    first: bool = True
    last: bool = True


class Event(Message, frozen=True):
    """An event between brokers.

    Attributes
    ----------
    id : EventId
    type : str
    values : dict
        Attributes and their values.
    attempt : int
        How often its publisher has sent it, from 1.
    rising : bool
        On its way to a rendezvous broker, with nobody served on the way.
    epoch : int
        Number of the strategy that routes it; see `rtfilter.overlay.switching`.
    """

    id: EventId
    type: str
    values: dict[str, Any]
    attempt: Whole = 1
    rising: bool = False
    epoch: Whole = 0


class Notify(Message, frozen=True):
    """An event for a client.

    Attributes
    ----------
    id : EventId
        The same each time the publisher sends it: a client that has it drops it.
    subscriptions : tuple of SubscriptionId
        Those of the client that match.
    """

    id: EventId
    type: str
    values: dict[str, Any]
    subscriptions: tuple[SubscriptionId, ...]


class Acknowledge(Message, frozen=True):
    """All whom a broker sent an event to have it. A client that published it is told the same.

    Attributes
    ----------
    own : bool
        From a member that has served its own clients, and answers for nobody else.
    """

    id: EventId
    attempt: Whole = 1
    rising: bool = False
    own: bool = False


class Confirm(Message, frozen=True):
    """A subscription is known wherever it must be. A client that subscribed is told the same."""

    id: SubscriptionId


class Wave(Message, frozen=True):
    """A message from the root to all brokers; see `rtfilter.overlay.switching`.

    Attributes
    ----------
    number : int
        Higher with each wave.
    epoch : int
        Of the strategy that is in use, or comes to be.
    strategy : str
        Its name.
    stage : int
        One of `rtfilter.overlay.switching.Stage`.
    """

    number: Whole
    epoch: Whole
    strategy: str
    stage: Whole = 0


class Answer(Message, frozen=True):
    """All below have heard a wave."""

    number: Whole
    load: Load


class Advertise(Message, frozen=True):
    """The rendezvous cluster of an event type is the one that says so, or lies behind it; or the way is lost.

    Attributes
    ----------
    type : str
    number : int
        Even from the rendezvous cluster, which has a higher one after each loss; odd of a way that is lost.
    """

    type: str
    number: Whole
