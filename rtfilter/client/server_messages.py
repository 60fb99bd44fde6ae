"""The messages of the server, and the subscriptions and reasons in them, as typed values."""

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


class _Message(msgspec.Struct, tag_field="directive", frozen=True):
    """A JSON object whose ``directive`` is its type. Unknown fields are ignored."""


class Connected(_Message, tag="CONNECTED", frozen=True):
    """The answer to CONNECT."""

    connection: str
    user: str = ""
    roles: tuple[str, ...] = ()
    tag: int | None = None


class Confirmation(_Message, tag="ACK", frozen=True):
    """The confirmation of any other directive; the directive decides which fields it has."""

    tag: int | None = None
    subscription: int | None = None
    positions: list[int] | None = None
    pending: int | None = None
    expires: float | None = None
    subscriptions: list[ServerSubscription] | None = None
    next: int | None = None
    matches: list[list[int]] | None = None
    matched: bool | None = None
    report: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


class Error(_Message, tag="ERROR", frozen=True):
    """The refusal of a request, with the reason."""

    error: str
    kind: str = "refused"
    tag: int | None = None
    retry_after: float | None = None
    row: int | None = None


class EventDelivery(_Message, tag="EVENT", frozen=True):
    """A delivery of one event."""

    number: int
    position: int
    subscriptions: tuple[int, ...]
    event: dict[str, Any]
    filter: str = "default"
    at: float = 0.0
    response: float | None = None
    redelivered: int = 0
    dropped: int = 0

    @property
    def events(self) -> tuple[EventDelivery]:
        """The only event, as those of a digest."""
        return (self,)


class DigestEvent(msgspec.Struct, frozen=True):
    """An event of a digest."""

    position: int
    event: dict[str, Any]
    at: float = 0.0
    subscriptions: tuple[int, ...] = ()


class Digest(_Message, tag="DIGEST", frozen=True):
    """A delivery of all events of a period."""

    number: int
    subscriptions: tuple[int, ...]
    events: tuple[DigestEvent, ...]
    filter: str = "default"
    redelivered: int = 0
    dropped: int = 0


class Ended(_Message, tag="ENDED", frozen=True):
    """The notice that a subscription has ended."""

    number: int
    position: int
    subscription: int
    reason: str
    filter: str = ""
    redelivered: int = 0
    dropped: int = 0


Arrival = EventDelivery | Digest | Ended
"""A numbered message, which the client acknowledges."""
Message = Connected | Confirmation | Error | EventDelivery | Digest | Ended
