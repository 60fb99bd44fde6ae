"""The names of brokers, subscriptions and events in messages between brokers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from msgspec import Meta

Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A number in a message, small enough for databases; one more still fits a message."""


class SubscriptionId(NamedTuple):
    """The id of a subscription, unique in the network.

    Attributes
    ----------
    origin : str
        The broker whose client subscribed.
    incarnation : int
        Incarnation of that broker; each start has a higher one.
    number : int
        Number within that incarnation, from 1.
    """

    origin: str
    incarnation: Whole
    number: Whole


class EventId(NamedTuple):
    """The id of an event, unique in the network and the same at each attempt, so receivers detect repeats.

    Attributes
    ----------
    origin : str
        The broker whose client published it.
    incarnation, number : int
        See `SubscriptionId`.
    """

    origin: str
    incarnation: Whole
    number: Whole


class ConnectionKind(StrEnum):
    """The kinds of connections, by their other end."""

    CLIENT = "client"
    """A publisher or subscriber of this broker."""
    LINK = "link"
    """Another cluster, by its name: its present designated broker."""
    MEMBER = "member"
    """Another broker of the own cluster."""
    CLUSTER = "cluster"
    """All other members of the own cluster, by multicast."""


class Connection(NamedTuple):
    """The source or the destination of a message."""

    kind: ConnectionKind
    name: str = ""


CLUSTER: Final = Connection(ConnectionKind.CLUSTER)


def client(name: str) -> Connection:
    """Return the connection of a local client."""
    return Connection(ConnectionKind.CLIENT, name)


def link(cluster: str) -> Connection:
    """Return the connection to another cluster."""
    return Connection(ConnectionKind.LINK, cluster)


def member(broker: str) -> Connection:
    """Return the connection to one broker of the own cluster."""
    return Connection(ConnectionKind.MEMBER, broker)
