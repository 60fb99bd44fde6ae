"""The contacts of brokers and clusters, and the recipients of membership messages."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from rtfilter.overlay.names import Whole
from rtfilter.overlay.sending import Message


class Contact(NamedTuple):
    """A broker, and how to reach it.

    Attributes
    ----------
    name : str
        Unique among all brokers; the *highest* one is the greatest by Python's order of texts.
    cluster : str
        Whose member it is.
    address : str
        Where it listens. Machines do not look into it.
    """

    name: str
    cluster: str
    address: str = ""


class Neighbour(NamedTuple):
    """A cluster as others see it.

    Attributes
    ----------
    cluster : str
    designated : Contact
        Who stands for it.
    members : tuple of Contact
        All of it, the designated broker among them.
    term : int
        Of the designated broker's election.
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
        None at the root, and while the cluster is cut off.
    children : tuple of Neighbour
        Sorted by name.
    path : tuple of str
        The clusters from the root to this one, both included; empty while the way to the root is not known.
    root_term : int
        Under which the cluster is registered as the root; 0: it is not the root.
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
"""By which a term that is heard of may be above the one that is known: no honest network comes so far, which
would take 136 years at an election each second. Were any taken, one message could use up all numbers, and no
cluster could ever elect again, or become the root."""


def require_honest(what: str, term: int, known: int) -> None:
    """Refuse a term that no elections have led to. Raises `ValueError`."""
    if term > known + LEAP:
        raise ValueError(
            f"the term {term} of {what} is refused: known is {known}, and no elections lead so far"
        )


AHEAD: Final = 86_400
"""By which an incarnation may be above what the own one and the time since then allow. Incarnations are the
time of a start in seconds, or smaller, so this is a day, by which clocks may differ. Were any taken, one
message could have a member be taken for a former one of itself, for ever."""


def most_incarnation(own: int, seconds: float) -> int:
    """The highest incarnation that is believed of another broker.

    Parameters
    ----------
    own : int
        The own incarnation.
    seconds : float
        Since it began.
    """
    return own + int(seconds) + AHEAD


def require_possible(name: str, incarnation: int, most: int) -> None:
    """Refuse an incarnation that no start has led to. Raises `ValueError`."""
    if incarnation > most:
        raise ValueError(
            f"the incarnation {incarnation} of {name} is refused: it is a day ahead of the clock here; set "
            "both clocks right, and start again whose was wrong, with an empty --data if it was ahead"
        )


class Audience(StrEnum):
    """The kinds of recipients."""

    BROKER = "broker"
    """A single broker of any cluster, linked or not."""
    CLUSTER = "cluster"
    """All others of the own cluster, by multicast: it may be lost, come twice, or late."""
    RENDEZVOUS = "rendezvous"
    """The rendezvous point."""
    ROUTER = "router"
    """The router of the same broker: a cluster multicast that has arrived whole and in order, or `Missed`."""


class Recipient(NamedTuple):
    """The recipient of a membership message.

    Attributes
    ----------
    audience : Audience
    name : str
        The broker; of `ROUTER`, the member of the cluster that it came from.
    address : str
        Of the broker.
    """

    audience: Audience
    name: str = ""
    address: str = ""


class Dispatch(NamedTuple):
    """A message of membership on its way out."""

    to: Recipient
    message: Message


TO_CLUSTER: Final = Recipient(Audience.CLUSTER)
TO_RENDEZVOUS: Final = Recipient(Audience.RENDEZVOUS)
RENDEZVOUS_POINT: Final = ""
"""The source of what the rendezvous point sends: no broker is called so."""


def to_broker(contact: Contact) -> Recipient:
    """Return the recipient for a single broker, from its contact."""
    return Recipient(Audience.BROKER, contact.name, contact.address)


def to_router(sender: str) -> Recipient:
    """The own router, for what a member has multicast."""
    return Recipient(Audience.ROUTER, sender)
