"""The rendezvous point: it knows which cluster is the root, and takes another one when that has failed.

After Xue and Feng 2005, where the first child of a failed root that arrives becomes the root, and two that
arrive at once are left open. Here a claim names the root that has failed, and is granted only if that is
still the root and has been silent: compare and swap. All later claims are told the new root.
"""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.overlay.membership.contacts import (
    TO_RENDEZVOUS,
    Contact,
    Dispatch,
    Neighbour,
    require_honest,
    to_broker,
)
from rtfilter.overlay.membership.settings import DEFAULT, Settings
from rtfilter.overlay.names import Whole
from rtfilter.overlay.sending import Message


class Root(NamedTuple):
    """The root as it is registered: all that a rendezvous point has to keep over a restart.

    Attributes
    ----------
    cluster : Neighbour
        The root cluster.
    term : int
        One higher with each take-over, from 1.
    """

    cluster: Neighbour
    term: Whole


class AskRoot(Message, frozen=True):
    """A request for the root."""

    contact: Contact


class ClaimRoot(Message, frozen=True):
    """A cluster wants to be the root, in place of one that has failed, or the first."""

    cluster: Neighbour
    failed: str
    """The cluster that has failed; empty: there was none."""
    term: Whole
    """Of the root that has failed, as registered; 0: there was none."""


class RenewRoot(Message, frozen=True):
    """The root cluster says that it lives."""

    root: Root


class RootIs(Message, frozen=True):
    """The answer to all of these; but a root that is still registered gets none."""

    root: Root | None


def ask(contact: Contact) -> list[Dispatch]:
    """Ask who is the root."""
    return [Dispatch(TO_RENDEZVOUS, AskRoot(contact))]


class RendezvousPoint:
    """A machine of its own, beside all brokers, at an address that all know.

    Parameters
    ----------
    settings : Settings
    root : Root, optional
        As kept by an earlier one, see `root`.
    now : float
        When it starts, in seconds. The root kept gets this time as its last sign of life.
    """

    def __init__(self, settings: Settings = DEFAULT, root: Root | None = None, now: float = 0.0) -> None:
        self.root = root
        """The root, None before there is one. Keep it in a database before what `receive` returns is sent."""
        self._settings = settings
        self._heard = now

    def receive(self, message: AskRoot | ClaimRoot | RenewRoot, source: str, now: float) -> list[Dispatch]:
        """Answer a broker.

        Parameters
        ----------
        message : AskRoot, ClaimRoot or RenewRoot
        source : str
            The broker's name; its address is in the message.
        now : float
            In seconds, monotonic.

        Raises
        ------
        ValueError
            See `require`; nothing is changed.
        """
        self.require(message)
        if isinstance(message, AskRoot):
            return self._answer(message.contact)
        if isinstance(message, RenewRoot):
            return self._renew(message.root, now)
        return self._claim(message, now)

    def require(self, message: AskRoot | ClaimRoot | RenewRoot) -> None:
        """Refuse a term that no elections have led to. Raises `ValueError`."""
        known = 0 if self.root is None else self.root.term
        if isinstance(message, RenewRoot):
            require_honest(message.root.cluster.cluster, message.root.term, known)
        elif isinstance(message, ClaimRoot):
            require_honest(message.cluster.cluster, message.term, known)

    def _answer(self, contact: Contact) -> list[Dispatch]:
        return [Dispatch(to_broker(contact), RootIs(self.root))]

    def _renew(self, root: Root, now: float) -> list[Dispatch]:
        known = self.root
        if known is None or (root.cluster.cluster == known.cluster.cluster and root.term >= known.term):
            self.root = root
            self._heard = now
            return []
        return self._answer(root.cluster.designated)

    def _claim(self, claim: ClaimRoot, now: float) -> list[Dispatch]:
        known = self.root
        compared = ("", 0) if known is None else (known.cluster.cluster, known.term)
        silent = known is None or now >= self._heard + self._settings.silence
        if silent and compared == (claim.failed, claim.term):
            self.root = Root(claim.cluster, claim.term + 1)
            self._heard = now
        return self._answer(claim.cluster.designated)
