"""A subscription as a filter shows it."""

from __future__ import annotations

from typing import Any, NamedTuple

from rtfilter.predicates.predicate import Predicate


class Subscription(NamedTuple):
    """A predicate, with its metadata and expiry."""

    predicate: Predicate
    metadata: dict[str, Any] | None
    """None if the subscription has no metadata."""
    expires: float | None
    """The time at which it expires, in seconds of the filter's clock; None if it does not expire."""
