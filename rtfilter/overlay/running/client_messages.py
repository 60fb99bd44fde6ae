"""The messages between clients and brokers, and from administrators."""

from __future__ import annotations

from typing import Any

import msgspec

from rtfilter.overlay.broker_names import BrokerMessage, EventId
from rtfilter.overlay.forwarding import WaitReason
from rtfilter.overlay.membership import Contact


class Goodbye(BrokerMessage, frozen=True):
    """The last message on a connection."""

    reason: str
    final: bool = False
    """True if the other side must not reconnect by itself."""
    refused: bool = False
    """True if the connection was refused from the start."""


class Welcome(BrokerMessage, frozen=True):
    """The broker's first message to an accepted client; otherwise it sends the reason for its refusal."""


class Want(BrokerMessage, frozen=True):
    """A request of a client to subscribe, or its repetition."""

    key: str
    """The client's name of the subscription; a new one replaces an earlier one with the same key."""
    type: str
    condition: str
    """The SQL condition for the events."""


class Wanted(BrokerMessage, frozen=True):
    """The confirmation that events published from now on are delivered for a subscription."""

    key: str


class Drop(BrokerMessage, frozen=True):
    """A request of a client to remove a subscription."""

    key: str


class Leave(BrokerMessage, frozen=True):
    """The end of a client with all its subscriptions; acknowledgements need not wait for it."""


class ClientPublish(BrokerMessage, frozen=True):
    """A publication of an event by a client, or its repetition."""

    id: EventId
    """Id from the client, the same at each attempt and at each broker."""
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
    """The answer to `AskSchema`: the schema as JSON, empty for an unknown type."""

    type: str
    schema: list[dict[str, Any]] | dict[str, Any]
    reason: str = ""
    """The reason why there is none."""


class Ask(BrokerMessage, frozen=True):
    """A client's question why an event of its own is not acknowledged."""

    id: EventId


class Waits(BrokerMessage, frozen=True):
    """The answer to `Ask`."""

    id: EventId
    holds: tuple[WaitReason, ...] = ()
    """Empty if the broker knows no reason: the event is sent again soon, or has arrived."""


class ClientDeliver(BrokerMessage, frozen=True):
    """An event for a client. The id is the same at each repetition."""

    id: EventId
    type: str
    values: dict[str, Any]
    keys: tuple[str, ...]
    """Matching subscriptions of the client."""


class Have(BrokerMessage, frozen=True):
    """A client's acknowledgement of a delivery."""

    id: EventId


class Refused(BrokerMessage, frozen=True):
    """A refusal of a request."""

    key: str
    """Key of the subscription; empty for an event."""
    reason: str
    id: EventId | None = None
    later: bool = False
    """True if the same request may be accepted later."""


class Describe(BrokerMessage, frozen=True):
    """A request of an administrator for the description of a broker."""


class Description(BrokerMessage, frozen=True):
    """The description of a broker. The rendezvous point lists only the members of the root, as links.

    While no member of the root is linked to it, it also lists all brokers that are.
    """

    itself: Contact
    designated: str = ""
    """The designated broker of the cluster."""
    members: tuple[Contact, ...] = ()
    """Members of the cluster."""
    parent: str = ""
    """The cluster above."""
    links: tuple[Contact, ...] = ()
    """The brokers that it is linked to."""
    root: bool = False
    stats: dict[str, Any] = msgspec.field(default_factory=dict)
    """Sizes and counts."""
    refused: tuple[str, ...] = ()
    """Brokers with which an administrator has stopped contact."""


class LinkCut(BrokerMessage, frozen=True):
    """An order of an administrator to stop or resume contact with a broker; answered by `Description`."""

    broker: str
    heal: bool = False


class Switch(BrokerMessage, frozen=True):
    """An order of an administrator to the root to change the strategy; answered as `LinkCut`."""

    strategy: str
