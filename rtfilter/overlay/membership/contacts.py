"""The contacts of brokers and clusters, the recipients of membership messages, and the common settings."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from rtfilter.overlay.broker_names import BrokerMessage, Whole


class Contact(NamedTuple):
    """A broker, with its address."""

    name: str
    """Unique among all brokers. The *highest* broker has the greatest name in Python's order of text."""
    cluster: str
    address: str = ""
    """Its address to listen on. Machines do not interpret it."""


class Neighbour(NamedTuple):
    """A cluster, as other clusters see it."""

    cluster: str
    designated: Contact
    members: tuple[Contact, ...]
    """All its members, including the designated broker."""
    term: Whole = 0
    """Term of the designated broker's election."""


class Standing(NamedTuple):
    """The neighbours and path of a cluster in the tree. Its designated broker sends them to all members."""

    parent: Neighbour | None = None
    """None at the root, and while the cluster has lost its parent."""
    children: tuple[Neighbour, ...] = ()
    """Sorted by name."""
    path: tuple[str, ...] = ()
    """The clusters from the root to this one, both included; empty while the way to the root is unknown."""
    root_term: Whole = 0
    """Term under which the cluster is registered as the root; 0: it is not the root."""

    @property
    def root(self) -> bool:
        """True if the cluster is the root."""
        return self.root_term > 0

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        """The children, then the parent if there is one."""
        return (*self.children, self.parent) if self.parent else self.children


class MembershipSettings(NamedTuple):
    """The settings that all brokers of a network should share. Times are in seconds.

    Attributes
    ----------
    heartbeat : float
        Seconds between two heartbeats (T). A message should need less than a quarter of it.
    missed : int
        Number of missed heartbeats after which a broker counts as dead: after 3T, as the others suggest.
    retries : int
        Number of probes of each member of a silent cluster.
    children : int
        Most child clusters of a cluster (in the paper: its degree). Members of the own cluster, and the
        parent, do not count.
    repairs : int
        Number of last multicasts that a broker stores, to send them again.
    longest_wait : float
        Longest wait between two attempts to join, in heartbeats.
    """

    heartbeat: float = 1.0
    missed: int = 3
    retries: int = 3
    children: int = 8
    repairs: int = 1024
    longest_wait: float = 8.0

    @property
    def silence(self) -> float:
        """The longest silence of a live broker, in seconds."""
        return self.missed * self.heartbeat

    @property
    def answer(self) -> float:
        """The time to wait for an answer, in seconds."""
        return self.heartbeat / 2

    def time_out(self, chance: Random) -> float:
        """Return a time-out: 3T and up to T/4 more, so that not all members act at once."""
        return self.silence + chance.uniform(0, self.heartbeat / 4)


DEFAULT: Final = MembershipSettings()


LEAP: Final = 2**32
"""Most by which a received term may be above the known one. With an election each second, an honest network
needs 136 years for it. Without a limit, one message could use up all numbers, and no cluster could ever
elect a designated broker, or become the root, again."""
AHEAD: Final = 86_400
"""Most by which an incarnation may be above the own one plus the time since then. Incarnations are the time
of a start in seconds, or smaller, so this is a day of difference between clocks. Without a limit, one message
could make others take a member for an earlier start of itself, for ever."""


def require_honest(what: str, term: int, known: int) -> None:
    """Raise `ValueError` for a term that no elections can have reached."""
    if term > known + LEAP:
        raise ValueError(
            f"the term {term} of {what} is refused: no elections can have reached it from {known}"
        )


def most_incarnation(own: int, seconds: float) -> int:
    """Return the highest credible incarnation of another broker, `seconds` after the own one began."""
    return own + int(seconds) + AHEAD


def require_possible(name: str, incarnation: int, most: int) -> None:
    """Raise `ValueError` for an incarnation that no start can have had."""
    if incarnation > most:
        raise ValueError(
            f"the incarnation {incarnation} of {name} is refused: it is a day ahead of the clock here; set "
            "both clocks right, and restart the broker whose clock was wrong, with an empty --data if ahead"
        )


class MembershipMessage(BrokerMessage, frozen=True):
    """The base of all messages between memberships, or to and from the rendezvous point."""


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
    """The recipient of a membership message."""

    audience: Audience
    name: str = ""
    """The broker; for `ROUTER`, the member of the cluster that sent the multicast."""
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
