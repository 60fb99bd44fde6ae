"""The messages between clients and brokers, and from administrators."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rtfilter.overlay.holding import Hold
from rtfilter.overlay.names import EventId
from rtfilter.overlay.sending import Message


class Welcome(Message, frozen=True):
    """A broker takes a client: the first that it says to it, unless it says why not."""


class Want(Message, frozen=True):
    """A client subscribes, or says again that it has.

    Attributes
    ----------
    key : str
        What the client calls the subscription; another one of the same key takes its place.
    type, condition : str
        The event type, and what its events must satisfy, in SQL.
    """

    key: str
    type: str
    condition: str


class Wanted(Message, frozen=True):
    """Events that are published from now on are delivered for a subscription."""

    key: str


class Drop(Message, frozen=True):
    """A client does not want what it wanted."""

    key: str


class Leave(Message, frozen=True):
    """A client ends, and with it all that it wanted; nobody is to wait for it."""


class Publish(Message, frozen=True):
    """A client publishes an event, or does so again.

    Attributes
    ----------
    id : EventId
        Given by the client, the same each time and at each broker.
    type : str
    values : dict
        Attributes and their values.
    """

    id: EventId
    type: str
    values: dict[str, Any]


class Stored(Message, frozen=True):
    """An event survives the broker's process: the broker sends it until it has arrived."""

    id: EventId


class Hint(Message, frozen=True):
    """A hint that an accepted event may contain a mistake. The broker sends each hint once."""

    text: str


class Arrived(Message, frozen=True):
    """All who want an event have it."""

    id: EventId


class AskSchema(Message, frozen=True):
    """A client asks what attributes the events of a type have."""

    type: str


class HasSchema(Message, frozen=True):
    """The answer.

    Attributes
    ----------
    type : str
    schema : list of dict, or dict
        As of `Schema.to_json`; empty where there is no such type.
    reason : str
        Why there is none.
    """

    type: str
    schema: list[dict[str, Any]] | dict[str, Any]
    reason: str = ""


class Ask(Message, frozen=True):
    """A client asks what an event of its own waits for, that is not acknowledged."""

    id: EventId


class Waits(Message, frozen=True):
    """The answer.

    Attributes
    ----------
    id : EventId
    holds : tuple of Hold
        Empty where it waits for nobody that the broker knows, and is sent again soon, or has arrived.
    """

    id: EventId
    holds: tuple[Hold, ...] = ()


class Deliver(Message, frozen=True):
    """An event for a client.

    Attributes
    ----------
    id : EventId
        The same where it comes again.
    type : str
    values : dict
    keys : tuple of str
        The client's subscriptions that match.
    """

    id: EventId
    type: str
    values: dict[str, Any]
    keys: tuple[str, ...]


class Have(Message, frozen=True):
    """A client has an event, and needs it no more."""

    id: EventId


class Refused(Message, frozen=True):
    """A refusal of a request.

    Attributes
    ----------
    key : str
        Of the subscription; empty where it was an event.
    reason : str
    id : EventId or None
    later : bool
        Whether the same may be taken later.
    """

    key: str
    reason: str
    id: EventId | None = None
    later: bool = False


class Describe(Message, frozen=True):
    """A request of an administrator for the description of a broker."""


class Known(NamedTuple):
    """A broker that another one knows.

    Attributes
    ----------
    name, cluster, address : str
    """

    name: str
    cluster: str
    address: str


class Description(Message, frozen=True):
    """The description of a broker. The rendezvous point lists only the members of the root, as links.

    While none of those is linked to it, it tells of all brokers that are, too.

    Attributes
    ----------
    itself : Known
    designated : str
        The broker that stands for the cluster.
    members : tuple of Known
        Of the cluster.
    parent : str
        The cluster above.
    links : tuple of Known
        The brokers that it is linked to.
    root : bool
    stats : dict
        Sizes and counts.
    refused : tuple of str
        Brokers that it was told not to talk to.
    """

    itself: Known
    designated: str = ""
    members: tuple[Known, ...] = ()
    parent: str = ""
    links: tuple[Known, ...] = ()
    root: bool = False
    stats: dict[str, Any] = msgspec.field(default_factory=dict)
    refused: tuple[str, ...] = ()


class Cut(Message, frozen=True):
    """An order of an administrator to stop or resume contact with another broker; answered by `Description`.

    Attributes
    ----------
    broker : str
    heal : bool
    """

    broker: str
    heal: bool = False


class Switch(Message, frozen=True):
    """An order of an administrator to the root to change the strategy of the network; answered as `Cut`."""

    strategy: str
