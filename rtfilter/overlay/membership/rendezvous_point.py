"""The rendezvous point: it knows the root cluster, and accepts another one when the root has failed.

After Xue and Feng 2005, where the first child of a failed root that arrives becomes the root, without a rule
for simultaneous arrivals. Here a claim names the failed root, and is granted only if that cluster is still
the root and has been silent: compare and swap. The answer to all later claims is the new root.
"""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.overlay.broker_names import Whole
from rtfilter.overlay.membership.contacts import (
    DEFAULT,
    TO_RENDEZVOUS,
    Contact,
    Dispatch,
    MembershipMessage,
    MembershipSettings,
    Neighbour,
    require_honest,
    to_broker,
)


class Root(NamedTuple):
    """The registered root: the whole state that a rendezvous point stores."""

    cluster: Neighbour
    term: Whole
    """Increases by one with each take-over, from 1."""


class AskRoot(MembershipMessage, frozen=True):
    """A request for the root."""

    contact: Contact


class ClaimRoot(MembershipMessage, frozen=True):
    """A claim to be the root, in place of a failed one, or as the first."""

    cluster: Neighbour
    failed: str
    """The failed cluster; empty: there was none."""
    term: Whole
    """Registered term of the failed root; 0: there was none."""


class RenewRoot(MembershipMessage, frozen=True):
    """The root cluster's sign of life."""

    root: Root


class RootIs(MembershipMessage, frozen=True):
    """The answer to all of these messages, except to the registered root."""

    root: Root | None


def ask(contact: Contact) -> list[Dispatch]:
    """Return the request for the root."""
    return [Dispatch(TO_RENDEZVOUS, AskRoot(contact))]


class RendezvousPoint:
    """The machine of the rendezvous point, which is no broker; all brokers know its address.

    Parameters
    ----------
    settings : MembershipSettings
    root : Root, optional
        The stored root of an earlier process, see `root`.
    now : float
        Start time in seconds. The stored root gets this time as its last sign of life.
    """

    def __init__(
        self, settings: MembershipSettings = DEFAULT, root: Root | None = None, now: float = 0.0
    ) -> None:
        self.root = root
        """The root, None before there is one. Store it before you send what `receive` returns."""
        self._settings = settings
        self._heard = now

    def receive(self, message: AskRoot | ClaimRoot | RenewRoot, source: str, now: float) -> list[Dispatch]:
        """Answer a broker, whose address is in the message. Raises as `require`; then nothing is changed."""
        self.require(message)
        if isinstance(message, AskRoot):
            return self._answer(message.contact)
        if isinstance(message, RenewRoot):
            return self._renew(message.root, now)
        return self._claim(message, now)

    def require(self, message: AskRoot | ClaimRoot | RenewRoot) -> None:
        """Raise `ValueError` for a term that no elections can have reached."""
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
