"""The names of brokers, subscriptions and events in messages between brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number in a message: what a database takes, and one more is still a number on the wire."""


class SubscriptionId(NamedTuple):
    """A subscription, everywhere.

    Attributes
    ----------
    origin : str
        The broker that took it from a client.
    incarnation : int
        Of that broker; each start has a higher one.
    number : int
        Of that incarnation, from 1.
    """

    origin: str
    incarnation: Whole
    number: Whole


class EventId(NamedTuple):
    """An event, everywhere: the same for each time that it is sent, so receivers know what they have.

    Attributes
    ----------
    origin : str
        The broker that took it from a client.
    incarnation, number : int
        See `SubscriptionId`.
    """

    origin: str
    incarnation: Whole
    number: Whole


class Kind(StrEnum):
    """The kinds of connections, by their other end."""

    CLIENT = "client"
    """A publisher or subscriber of this broker."""
    LINK = "link"
    """Another cluster, by its name: whoever is its designated broker at the time."""
    MEMBER = "member"
    """Another broker of the own cluster."""
    CLUSTER = "cluster"
    """All others of the own cluster, by multicast."""


class Connection(NamedTuple):
    """The source or the destination of a message."""

    kind: Kind
    name: str = ""


CLUSTER: Final = Connection(Kind.CLUSTER)


def client(name: str) -> Connection:
    """The connection of a local client."""
    return Connection(Kind.CLIENT, name)


def link(cluster: str) -> Connection:
    """The connection to another cluster."""
    return Connection(Kind.LINK, cluster)


def member(broker: str) -> Connection:
    """The connection to one broker of the own cluster."""
    return Connection(Kind.MEMBER, broker)
