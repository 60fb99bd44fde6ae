"""What a predicate costs as a subscription, told before it is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes import compile_predicate, unbounded

if TYPE_CHECKING:
    from rtfilter.predicates.model import Predicate


class Cost(NamedTuple):
    """What a subscription to a predicate costs."""

    boxes: int
    """Boxes in the index; 0 for a predicate that no event satisfies, such as ``price < 3 AND price > 5``."""
    checked: bool
    """Whether some hits of the index are only candidates, which an exact check decides."""
    unbounded: bool
    """Whether nothing bounds it, so that nearly every event is checked; a filter has a limit on those."""


def cost_of(predicate: Predicate, schema: Schema) -> Cost:
    """Return the cost of a predicate that was checked against a schema; see `Predicate.cost`."""
    boxes = compile_predicate(predicate, schema)
    return Cost(len(boxes.exact), not boxes.exact.all(), bool(unbounded(boxes, schema).any()))
