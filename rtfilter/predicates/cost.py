"""The cost of a predicate as a subscription, known before it is added."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes import compile_predicate, unbounded

if TYPE_CHECKING:
    from rtfilter.predicates.model import Predicate


class Cost(NamedTuple):
    """The cost of a subscription to a predicate."""

    boxes: int
    """Boxes in the index; 0 for a predicate that no event satisfies, such as ``price < 3 AND price > 5``."""
    checked: bool
    """True if the index finds candidates for it that must be verified."""
    unbounded: bool
    """True if no constraint bounds it: nearly every event must be verified.

    A filter limits such subscriptions.
    """


def cost_of(predicate: Predicate, schema: Schema) -> Cost:
    """Return the cost of a predicate that was checked against a schema; see `Predicate.cost`."""
    boxes = compile_predicate(predicate, schema)
    return Cost(len(boxes.exact), not boxes.exact.all(), bool(unbounded(boxes, schema).any()))
