"""The messages between clients and brokers, and from administrators."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from rtfilter.overlay.broker_names import BrokerMessage, EventId
from rtfilter.overlay.forwarding import WaitReason


class Welcome(BrokerMessage, frozen=True):
    """The broker's first message to an accepted client; otherwise it sends the reason for its refusal."""


class Want(BrokerMessage, frozen=True):
    """A request of a client to subscribe, or its repetition.

    Attributes
    ----------
    key : str
        The client's name of the subscription; a new one replaces an earlier one with the same key.
    type, condition : str
        The event type, and the SQL condition for its events.
    """

    key: str
    type: str
    condition: str


class Wanted(BrokerMessage, frozen=True):
    """The confirmation that events published from now on are delivered for a subscription."""

    key: str


class Drop(BrokerMessage, frozen=True):
    """A request of a client to remove a subscription."""

    key: str


class Leave(BrokerMessage, frozen=True):
    """The end of a client with all its subscriptions; acknowledgements need not wait for it."""


class ClientPublish(BrokerMessage, frozen=True):
    """A publication of an event by a client, or its repetition.

    Attributes
    ----------
    id : EventId
        Id from the client, the same at each attempt and at each broker.
    type : str
    values : dict
        Attributes and their values.
    """

    id: EventId
    type: str
    values: dict[str, Any]


class Stored(BrokerMessage, frozen=True):
    """The message that the broker has stored an event, and sends it until it has arrived."""

    id: EventId


class Hint(BrokerMessage, frozen=True):
    """A hint that an accepted event may contain a mistake. The broker sends each hint once."""

    text: str


class EventArrived(BrokerMessage, frozen=True):
    """The message that all receivers have an event."""

    id: EventId


class AskSchema(BrokerMessage, frozen=True):
    """A client's question for the attributes of an event type."""

    type: str


class HasSchema(BrokerMessage, frozen=True):
    """The answer to `AskSchema`.

    Attributes
    ----------
    type : str
    schema : list of dict, or dict
        As from `Schema.to_json`; empty for an unknown type.
    reason : str
        The reason why there is none.
    """

    type: str
    schema: list[dict[str, Any]] | dict[str, Any]
    reason: str = ""


class Ask(BrokerMessage, frozen=True):
    """A client's question why an event of its own is not acknowledged."""

    id: EventId


class Waits(BrokerMessage, frozen=True):
    """The answer to `Ask`.

    Attributes
    ----------
    id : EventId
    holds : tuple of WaitReason
        Empty if the broker knows no reason: the event is sent again soon, or has arrived.
    """

    id: EventId
    holds: tuple[WaitReason, ...] = ()


class ClientDeliver(BrokerMessage, frozen=True):
    """An event for a client.

    Attributes
    ----------
    id : EventId
        The same at each repetition.
    type : str
    values : dict
    keys : tuple of str
        Matching subscriptions of the client.
    """

    id: EventId
    type: str
    values: dict[str, Any]
    keys: tuple[str, ...]


class Have(BrokerMessage, frozen=True):
    """A client's acknowledgement of a delivery."""

    id: EventId


class Refused(BrokerMessage, frozen=True):
    """A refusal of a request.

    Attributes
    ----------
    key : str
        Key of the subscription; empty for an event.
    reason : str
    id : EventId or None
    later : bool
        True if the same request may be accepted later.
    """

    key: str
    reason: str
    id: EventId | None = None
    later: bool = False


class Describe(BrokerMessage, frozen=True):
    """A request of an administrator for the description of a broker."""


class KnownBroker(NamedTuple):
    """A broker that another one knows.

    Attributes
    ----------
    name, cluster, address : str
    """

    name: str
    cluster: str
    address: str


class Description(BrokerMessage, frozen=True):
    """The description of a broker. The rendezvous point lists only the members of the root, as links.

    While no member of the root is linked to it, it also lists all brokers that are.

    Attributes
    ----------
    itself : KnownBroker
    designated : str
        The designated broker of the cluster.
    members : tuple of KnownBroker
        Members of the cluster.
    parent : str
        The cluster above.
    links : tuple of KnownBroker
        The brokers that it is linked to.
    root : bool
    stats : dict
        Sizes and counts.
    refused : tuple of str
        Brokers with which an administrator has stopped contact.
    """

    itself: KnownBroker
    designated: str = ""
    members: tuple[KnownBroker, ...] = ()
    parent: str = ""
    links: tuple[KnownBroker, ...] = ()
    root: bool = False
    stats: dict[str, Any] = msgspec.field(default_factory=dict)
    refused: tuple[str, ...] = ()


class LinkCut(BrokerMessage, frozen=True):
    """An order of an administrator to stop or resume contact with another broker; answered by `Description`.

    Attributes
    ----------
    broker : str
    heal : bool
    """

    broker: str
    heal: bool = False


class Switch(BrokerMessage, frozen=True):
    """An order of an administrator to the root to change the strategy; answered as `LinkCut`."""

    strategy: str
