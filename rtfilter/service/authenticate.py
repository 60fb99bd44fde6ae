"""Stage 1: who asks."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from rtfilter.service.errors import NotAuthenticatedError
from rtfilter.service.roles import ALL, Identity, Role

ADMIN: Final = "admin"
MOST: Final = 200
"""Most characters of a name."""


class Authenticate(Protocol):
    """The interface of users for doors and the pipeline; `rtfilter.service.access` has the real one."""

    most_subscriptions: int
    """Of one user."""

    @property
    def open(self) -> bool:
        """True if there are no users: every name is taken without a check."""

    async def password(self, user: str, password: str, address: str = "") -> Identity:
        """Return the identity of a user at an address. Raises `NotAuthenticatedError`."""

    async def token(self, token: str) -> Identity:
        """The same, by a token."""

    def admit(self, who: Identity, events: int) -> None:
        """Let a user publish so many events now; otherwise `TooManyError`."""

    @property
    def gone(self) -> Collection[str]:
        """Users that were removed, whose subscriptions and deliveries are still to be removed."""

    async def forgotten(self, user: str) -> None:
        """Nothing is left of such a user; `BusyError` where that cannot be noted."""

    def connect(self, who: Identity) -> AbstractContextManager[None]:
        """Count a connection while it is open; `TooManyError` where there are too many."""

    def still(self, who: Identity) -> bool:
        """Return whether a user may stay connected."""

    def roles(self, user: str) -> frozenset[Role]:
        """Return the present roles of a user; none if there is no such user."""


class Open:
    """Take everyone for who they say they are: for a server that only this machine can reach.

    The user ``admin`` has all roles, everyone else all but that of an admin.
    """

    most_subscriptions = 10_000_000
    open = True
    gone: Collection[str] = ()

    async def password(self, user: str, password: str, address: str = "") -> Identity:
        """As of `Authenticate`."""
        return Identity(_name(user), self.roles(user))

    async def token(self, token: str) -> Identity:
        """As of `Authenticate`."""
        raise NotAuthenticatedError("this server has no users and so no tokens; say a user name")

    def admit(self, who: Identity, events: int) -> None:
        """As of `Authenticate`."""

    async def forgotten(self, user: str) -> None:
        """As of `Authenticate`."""

    def connect(self, who: Identity) -> AbstractContextManager[None]:
        """As of `Authenticate`."""
        return nullcontext()

    def still(self, who: Identity) -> bool:
        """As of `Authenticate`."""
        return True

    def roles(self, user: str) -> frozenset[Role]:
        """As of `Authenticate`."""
        return ALL if user == ADMIN else ALL - {Role.ADMIN}


def _name(user: str) -> str:
    if not user or len(user) > MOST or not user.isprintable():
        raise NotAuthenticatedError(f"give a user name of 1 to {MOST} printable characters")
    return user
