"""A lean counting, in place of Siena, which is not to be had here and is never meant by this name.

Siena's matching table counts as the thesis's Counting does, with leaner structures and without unsubscribing
(Novák 2013). So does this: sorted constants and numbers of filters in flat lists, and a counter for each
filter in one more. It takes ``<`` alone, which is what the benchmark has.
"""

from __future__ import annotations

from bisect import bisect_right

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.port import Takes
from rtfilter.predicates.model.constraints import Constraint, Filter


class LeanCounting(EventwiseMatcher):
    """Counts in flat lists."""

    takes = Takes(operators=frozenset(("<",)), families=frozenset(("number",)), boxes=False)
    unit = "increments"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._constants: dict[str, list[float]] = {field.name: [] for field in schema.fields}
        self._filters: dict[str, list[int]] = {field.name: [] for field in schema.fields}
        self._needed: list[int] = []
        self._ids: list[int] = []

    def _insert(self, id: int, filter: Filter) -> None:
        number = len(self._needed)
        for constraint in filter.constraints:
            assert isinstance(constraint, Constraint)
            constants = self._constants[constraint.attribute]
            place = bisect_right(constants, constraint.value)
            constants.insert(place, constraint.value)
            self._filters[constraint.attribute].insert(place, number)
        self._needed.append(len(filter.constraints))
        self._ids.append(id)

    def _delete(self, id: int, filter: Filter) -> None:
        """Raise `NotImplementedError`: the original cannot delete, either."""
        raise NotImplementedError("the lean counting cannot unsubscribe: make a new one")

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        """Return the matches, and their increments as operations."""
        counts = [0] * len(self._needed)
        needed, ids = self._needed, self._ids
        found: set[int] = set()
        increments = 0
        for name, value in event.values.items():
            satisfied = self._filters[name][bisect_right(self._constants[name], value) :]
            increments += len(satisfied)
            for number in satisfied:
                counts[number] = reached = counts[number] + 1
                if reached == needed[number]:
                    found.add(ids[number])
        return found, increments
