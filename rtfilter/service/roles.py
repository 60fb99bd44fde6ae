"""The identity of a user, and the roles that it has."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from rtfilter.service.service_errors import NotAllowedError


class Role(StrEnum):
    """A permission of a user. Several add up."""

    PUBLISHER = "publisher"
    """Publish events, and read back their own."""
    SUBSCRIBER = "subscriber"
    """Have subscriptions and deliveries, and ask for what matches."""
    SITE = "site"
    """Be another site of the network: get the events that its subscribers ask for."""
    ADMIN = "admin"
    """Everything, and filters, users, other users' subscriptions, statistics of the server."""


ALL: Final = frozenset(Role)


class Identity(NamedTuple):
    """The identity of a user.

    Attributes
    ----------
    user : str
    roles : frozenset of Role
    """

    user: str
    roles: frozenset[Role] = ALL

    def require(self, role: Role) -> None:
        """Raise `NotAllowedError` unless the user has this role, or is an admin."""
        if role not in self.roles and Role.ADMIN not in self.roles:
            raise NotAllowedError(f"user {self.user!r} may not: the role {role} is needed")
