"""Filters over booleans as vectors of 0, 1 and ``*``, and events as vectors of 0 and 1 (Mohapatra et al.).

A cell of a vector has a bit for each state of an attribute that the filter accepts. In the paper a cell is 0,
1 or ``*``, and an event has 0 or 1. Here an event may also lack the attribute, or have a value of another
type: these are further states; a 0 and a 1 refuse them and a ``*`` accepts them. So all operators of booleans
have a cell. A 1 of the paper, by which the event must not be 0 there, is a cell that refuses `ZERO`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import FlatEvent
from rtfilter.matchers.port import Takes
from rtfilter.predicates.model.constraints import OPERATORS_OF, PRESENCE, Constraint, Filter

ZERO: Final = 1
"""The state of an attribute that is false."""
ONE: Final = 2
"""The state of an attribute that is true."""
ABSENT: Final = 4
"""The state of an attribute that an event lacks."""
ALIEN: Final = 8
"""The state of an attribute that has a value of another type."""
STATES: Final = (ZERO, ONE, ABSENT, ALIEN)
STAR: Final = ZERO | ONE | ABSENT | ALIEN
"""The cell that accepts every state."""

TAKES: Final = Takes(
    operators=frozenset(OPERATORS_OF["bool"]) | PRESENCE, families=frozenset(("bool",)), boxes=False
)
"""The predicates that matchers of vectors take: all operators of booleans; events may lack attributes."""

_SAMPLES: Final = {ZERO: False, ONE: True, ABSENT: None, ALIEN: ""}


class Vectors:
    """Makes vectors, bytes (k,), over the k boolean attributes of a schema, in its order."""

    def __init__(self, schema: Schema) -> None:
        self.names = tuple(name for name, one in schema.attributes.items() if one.family == "bool")
        self._places = {name: place for place, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def of_filter(self, filter: Filter) -> bytes | None:
        """Return the cells of a filter of constraints; None if no event satisfies it."""
        cells = bytearray([STAR]) * len(self.names)
        for test in filter.constraints:
            assert isinstance(test, Constraint)  # the port refuses comparisons
            cells[self._places[test.attribute]] &= _cell(test.operator, test.value)
        return None if 0 in cells else bytes(cells)

    def of_event(self, event: FlatEvent) -> bytes:
        """Return the state of each attribute."""
        values, row = event.values, event.row
        states = bytearray(len(self.names))
        for place, name in enumerate(self.names):
            value = values.get(name)
            if value is None:
                states[place] = ALIEN if name in row else ABSENT
            else:
                states[place] = ONE if value else ZERO
        return bytes(states)


@cache
def _cell(operator: str, value: Any) -> int:
    """Return the states that satisfy a constraint of a boolean."""
    test = Constraint("", operator, value)
    return sum(state for state, sample in _SAMPLES.items() if test.accepts(sample))


def refused(cells: bytes, state: int) -> int:
    """Return how many cells refuse a state: for `ZERO` the number of ones, for `ONE` that of zeros."""
    return sum(not cell & state for cell in cells)
