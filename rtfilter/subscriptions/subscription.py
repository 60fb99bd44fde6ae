"""A subscription as a filter shows it."""

from __future__ import annotations

from typing import Any, NamedTuple

from rtfilter.predicates.model import Predicate


class Subscription(NamedTuple):
    """A predicate, and what was added to it."""

    predicate: Predicate
    metadata: dict[str, Any] | None
    """None if the subscription was added without."""
    expires: float | None
    """The moment from which on it is gone, in seconds of the filter's clock; None if it does not expire."""
