"""The requests of doors to the pipeline, and its answers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.definition import Definition
from rtfilter.events.schema import Schema

MOST_OF_A_PAGE: Final = 1000
BYTES_OF_ID: Final = 20
"""Most bytes of a position or an id in a list."""
BESIDE: Final = 320
"""Bytes of a delivery as JSON beside its event and its ids, at most."""


class FilterInfo(NamedTuple):
    """A filter: a named schema, that is a type of events, and how they are matched."""

    name: str
    definition: Definition
    key: str | None = None
    """The attribute that tells whose event it is, such as a truck or a symbol; see `Wish.order`."""
    since: int = 0
    """Entries of the log before this position belong to another filter that had the name."""

    @property
    def schema(self) -> Schema:
        """The schema of the events."""
        return self.definition.schema


class Wish(NamedTuple):
    """A requested subscription."""

    where: Any
    """An SQL condition, or an event pattern as a dict."""
    metadata: dict[str, Any] | None = None
    ttl: float | None = None
    """Seconds after which it expires."""
    digest: float | None = None
    """Its deliveries are sent together, every so many seconds; those that another subscription of the user
    matches as well are sent at once."""
    order: str | None = None
    """With "key", events of one key are sent in published order: the filter must have a key."""


class StoredSubscription(NamedTuple):
    """An existing subscription; times are in seconds since 1970."""

    id: int
    filter: str
    user: str
    wish: Wish
    since: float
    """Time of its making, or last replacement."""
    expires: float | None


def shown(one: StoredSubscription) -> dict[str, Any]:
    """Return a subscription as a JSON object."""
    named = {"subscription": one.id, "filter": one.filter, "user": one.user}
    return {**named, **one.wish._asdict(), "since": one.since, "expires": one.expires}


class StoredEvent(NamedTuple):
    """An event of the log; `at` is when it arrived, in seconds since 1970."""

    position: int
    at: float
    user: str
    body: bytes


class Page(NamedTuple):
    """Stored events; `next` is the position to continue after, or None if there are no more."""

    events: list[StoredEvent]
    next: int | None


class UserDelivery(msgspec.Struct, frozen=True, gc=False):
    """An event for a user, with all of the user's subscriptions that match it; or the end of one of them."""

    position: int
    """In the log, of the event or of the change."""
    subscriptions: tuple[int, ...]
    body: bytes
    """The event as JSON."""
    filter: str = ""
    at: float = 0.0
    """Arrival of the event, in seconds since 1970."""
    response: float | None = None
    """Seconds from its arrival at the server until its matches were known; None after a restart."""
    ended: str | None = None
    """Reason for the end of ``subscriptions[0]``; then there is no event."""
    key: int | None = None
    """Events of one key of one filter have the same; None where the order of the event is not asked for."""
    source: str | None = None
    """The origin of the event, where its receiver is another site; see `rtfilter.service.origins`."""

    @property
    def size(self) -> int:
        """Bytes of it as JSON, about, and not less."""
        return len(self.body) + BESIDE + BYTES_OF_ID * len(self.subscriptions)


def fitting(sizes: Iterable[int], most: int) -> int:
    """Return how many of the first sizes add up to at most `most`, at least 1."""
    return max(1, sum(size <= most for size in accumulate(sizes)))


class Sending(NamedTuple):
    """The data that is sent beside a delivery."""

    before: int
    """Number of earlier sendings of the delivery."""
    dropped: int = 0
    """Number of the user's dropped deliveries that are not reported yet."""

    @property
    def lost(self) -> dict[str, int]:
        """The field of JSON, only if some were dropped."""
        return {"dropped": self.dropped} if self.dropped else {}


def pulled(one: UserDelivery, sending: Sending) -> dict[str, Any]:
    """Return a delivery as a JSON object, for a pull or a webhook."""
    if one.ended is not None:
        ended = {"position": one.position, "ended": one.subscriptions[0], "reason": one.ended, "at": one.at}
        return {**ended, **sending.lost}
    return {
        "position": one.position,
        "subscriptions": one.subscriptions,
        "filter": one.filter,
        "event": msgspec.Raw(one.body),
        "at": one.at,
        "response": one.response,
        "redelivered": sending.before,
        **sending.lost,
    }
