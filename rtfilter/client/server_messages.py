"""The messages of the server, as typed values."""

from __future__ import annotations

from typing import Any

import msgspec

from rtfilter.client.server_subscriptions import ServerSubscription


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
