"""The contacts of brokers and clusters, and the recipients of membership messages."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from rtfilter.overlay.broker_names import BrokerMessage, Whole


class Contact(NamedTuple):
    """A broker, with its address.

    Attributes
    ----------
    name : str
        Unique among all brokers. The *highest* broker has the greatest name in Python's order of text.
    cluster : str
        The cluster that it is a member of.
    address : str
        Its address to listen on. Machines do not interpret it.
    """

    name: str
    cluster: str
    address: str = ""


class Neighbour(NamedTuple):
    """A cluster, as other clusters see it.

    Attributes
    ----------
    cluster : str
    designated : Contact
        Its designated broker.
    members : tuple of Contact
        All its members, including the designated broker.
    term : int
        Term of the designated broker's election.
    """

    cluster: str
    designated: Contact
    members: tuple[Contact, ...]
    term: Whole = 0


class Standing(NamedTuple):
    """The neighbours and path of a cluster in the tree. Its designated broker sends them to all members.

    Attributes
    ----------
    parent : Neighbour or None
        None at the root, and while the cluster has lost its parent.
    children : tuple of Neighbour
        Sorted by name.
    path : tuple of str
        The clusters from the root to this one, both included; empty while the way to the root is unknown.
    root_term : int
        Term under which the cluster is registered as the root; 0: it is not the root.
    """

    parent: Neighbour | None = None
    children: tuple[Neighbour, ...] = ()
    path: tuple[str, ...] = ()
    root_term: Whole = 0

    @property
    def root(self) -> bool:
        """True if the cluster is the root."""
        return self.root_term > 0


LEAP: Final = 2**32
"""Most by which a received term may be above the known one. With an election each second, an honest network
needs 136 years for it. Without a limit, one message could use up all numbers, and no cluster could ever
elect a designated broker, or become the root, again."""


def require_honest(what: str, term: int, known: int) -> None:
    """Raise `ValueError` for a term that no elections can have reached."""
    if term > known + LEAP:
        raise ValueError(
            f"the term {term} of {what} is refused: no elections can have reached it from {known}"
        )


AHEAD: Final = 86_400
"""Most by which an incarnation may be above the own one plus the time since then. Incarnations are the time
of a start in seconds, or smaller, so this is a day of difference between clocks. Without a limit, one message
could make others take a member for an earlier start of itself, for ever."""


def most_incarnation(own: int, seconds: float) -> int:
    """Return the highest credible incarnation of another broker.

    Parameters
    ----------
    own : int
        The own incarnation.
    seconds : float
        Seconds since the own incarnation began.
    """
    return own + int(seconds) + AHEAD


def require_possible(name: str, incarnation: int, most: int) -> None:
    """Raise `ValueError` for an incarnation that no start can have had."""
    if incarnation > most:
        raise ValueError(
            f"the incarnation {incarnation} of {name} is refused: it is a day ahead of the clock here; set "
            "both clocks right, and restart the broker whose clock was wrong, with an empty --data if ahead"
        )


class Audience(StrEnum):
    """The kinds of recipients."""

    BROKER = "broker"
    """A single broker of any cluster, linked or not."""
    CLUSTER = "cluster"
    """All other members of the own cluster, by multicast: it may be lost, doubled, or late."""
    RENDEZVOUS = "rendezvous"
    """The rendezvous point."""
    ROUTER = "router"
    """The router of the same broker: for a cluster multicast that is complete and in order, or `Missed`."""


class Recipient(NamedTuple):
    """The recipient of a membership message.

    Attributes
    ----------
    audience : Audience
    name : str
        The broker; for `ROUTER`, the member of the cluster that sent the multicast.
    address : str
        Address of the broker.
    """

    audience: Audience
    name: str = ""
    address: str = ""


class Dispatch(NamedTuple):
    """An outgoing message of membership."""

    to: Recipient
    message: BrokerMessage


TO_CLUSTER: Final = Recipient(Audience.CLUSTER)
TO_RENDEZVOUS: Final = Recipient(Audience.RENDEZVOUS)
RENDEZVOUS_POINT: Final = ""
"""The source of messages from the rendezvous point; no broker can have this name."""


def to_broker(contact: Contact) -> Recipient:
    """Return the recipient for a single broker, from its contact."""
    return Recipient(Audience.BROKER, contact.name, contact.address)


def to_router(sender: str) -> Recipient:
    """Return the own router as recipient of a member's multicast."""
    return Recipient(Audience.ROUTER, sender)
