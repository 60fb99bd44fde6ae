"""Stage 1: the identity of a client."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from rtfilter.service.roles import ALL, Identity, Role
from rtfilter.service.service_errors import NotAuthenticatedError

ADMIN: Final = "admin"
MOST: Final = 200
"""Most characters of a name."""


def require_still(users: Authenticate, who: Identity) -> None:
    """Raise `NotAuthenticatedError` if a user may not stay: another one may have the name by now."""
    if not users.still(who):
        raise no_longer()


def no_longer() -> NotAuthenticatedError:
    """Return the error for a user who may not stay."""
    return NotAuthenticatedError("your password, token or roles are no longer valid; connect again")


class Authenticate(Protocol):
    """The interface of users for doors and the pipeline; `rtfilter.service.access` has the real one."""

    most_subscriptions: int
    """Most subscriptions of one user."""

    @property
    def open(self) -> bool:
        """True if there are no users: every name is taken without a check."""

    async def password(self, user: str, password: str, address: str = "") -> Identity:
        """Return the identity of a user at an address. Raises `NotAuthenticatedError`."""

    async def token(self, token: str) -> Identity:
        """Return the identity of a user, by a token. Raises `NotAuthenticatedError`."""

    def admit(self, who: Identity, events: int) -> None:
        """Count events that a user publishes now. Raises `TooManyError` above the user's rate."""

    @property
    def gone(self) -> Collection[str]:
        """Users that were removed, whose subscriptions and deliveries are still to be removed."""

    async def forgotten(self, user: str) -> None:
        """Record that nothing is left of a removed user. Raises `BusyError` if that cannot be written."""

    def connect(self, who: Identity) -> AbstractContextManager[None]:
        """Count a connection while it is open. Raises `TooManyError` above the user's limit."""

    def still(self, who: Identity) -> bool:
        """Return whether a user may stay connected."""

    def roles(self, user: str) -> frozenset[Role]:
        """Return the present roles of a user; none if there is no such user."""


class Open:
    """An `Authenticate` that accepts every name: for a server that only this machine can reach.

    The user ``admin`` has all roles, any other user all but that of an admin.
    """

    most_subscriptions = 10_000_000
    open = True
    gone: Collection[str] = ()

    async def password(self, user: str, password: str, address: str = "") -> Identity:
        return Identity(_name(user), self.roles(user))

    async def token(self, token: str) -> Identity:
        raise NotAuthenticatedError("this server has no users, and so no tokens; give a user name")

    def admit(self, who: Identity, events: int) -> None:
        """See `Authenticate`."""

    async def forgotten(self, user: str) -> None:
        """See `Authenticate`."""

    def connect(self, who: Identity) -> AbstractContextManager[None]:
        return nullcontext()

    def still(self, who: Identity) -> bool:
        return True

    def roles(self, user: str) -> frozenset[Role]:
        return ALL if user == ADMIN else ALL - {Role.ADMIN}


def _name(user: str) -> str:
    if not user or len(user) > MOST or not user.isprintable():
        raise NotAuthenticatedError(f"give a user name of 1 to {MOST} printable characters")
    return user
