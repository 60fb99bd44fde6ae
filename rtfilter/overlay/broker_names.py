"""The values that the machines share: names and connections of brokers, their place, and messages."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import msgspec

Whole = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A number in a message, small enough for databases; one more still fits a message."""


class SubscriptionId(NamedTuple):
    """The id of a subscription, unique in the network."""

    origin: str
    """The broker whose client subscribed."""
    incarnation: Whole
    """Incarnation of that broker; each start has a higher one."""
    number: Whole
    """Number within that incarnation, from 1."""


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


class BrokerMessage(msgspec.Struct, frozen=True, tag=True, tag_field="message", gc=False, omit_defaults=True):
    """The base of all messages between brokers, clients and the rendezvous point; each kind is a subclass."""


class Send(NamedTuple):
    """An outgoing message of a router; the machines have no sockets of their own."""

    to: Connection
    message: BrokerMessage


class BrokerPlace(NamedTuple):
    """The place of a broker in the network: everything that routing knows about it, as one immutable value.

    Attributes
    ----------
    cluster, broker : str
        The names of its cluster and of the broker itself. A broker alone is a cluster of one.
    designated : str
        The designated broker of the cluster; empty while none is known.
    members : frozenset of str
        All live brokers of the cluster that are known, including itself.
    parent : str
        The cluster above; empty at the root, and while none is known.
    links : mapping of str to str
        The neighbouring clusters in the tree, including the parent, with their designated brokers. Only the
        designated broker has links.
    root : bool
        True if this cluster is the root. A cluster without a parent that is not the root is cut off.
    """

    cluster: str
    broker: str
    designated: str
    members: frozenset[str]
    parent: str = ""
    links: Mapping[str, str] = {}  # never written to
    root: bool = False

    @property
    def leads(self) -> bool:
        """True if the broker is the designated one."""
        return self.designated == self.broker

    @property
    def neighbours(self) -> frozenset[str]:
        """The brokers that this one exchanges messages with."""
        names = {*self.links.values(), *self.members} if self.leads else {self.designated}
        return frozenset(names - {"", self.broker})
