"""The descriptions of a user's subscriptions, from the server."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class ServerSubscription(msgspec.Struct, frozen=True):
    """A subscription on the server."""

    id: int = msgspec.field(name="subscription")
    filter: str
    where: str | dict[str, Any]
    """An SQL condition, or an event pattern."""
    user: str = ""
    metadata: dict[str, Any] | None = None
    ttl: float | None = None
    """Its time to live, in seconds."""
    digest: float | None = None
    order: str | None = None
    since: float = 0.0
    """Unix seconds of its creation, or last replacement."""
    expires: float | None = None
    """Unix seconds of its expiry."""


class Reasons(NamedTuple):
    """The reasons why a subscription matches an event, or not; `str` returns them as text."""

    matched: bool
    report: tuple[str, ...]
    """A line for each constraint."""

    def __str__(self) -> str:
        return "\n".join(self.report)
