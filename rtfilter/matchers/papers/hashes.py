"""Hash look-ups: each filter is stored under one of its equalities (access predicates, Fabret et al.).

An event looks up its values, one look-up per attribute with stored filters, and tries the filters that it
finds. Filters without an equality are tried by every event. Nothing is compiled to boxes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.papers.eventwise import PredicateMatcher
from rtfilter.predicates.model.constraints import Constraint, Filter, Test


class _Waiting(NamedTuple):
    """A filter, and the constraints to check once its equality holds."""

    id: int
    rest: Filter


class HashesMatcher(PredicateMatcher):
    """Matches by hash look-ups; best if nearly all filters have an equality that few events satisfy."""

    unit = "filters"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._read = {field.name: field.read for field in schema.fields}
        self._waiting: dict[str | None, dict[Any, list[_Waiting]]] = {}  # by attribute, then by value

    def _insert(self, id: int, filter: Filter) -> None:
        """Store a filter under the equality with the fewest values, or under none."""
        best = _best(filter)
        rest = Filter(tuple(test for test in filter.constraints if test is not best))
        for attribute, value in _places(best):
            under = self._waiting.setdefault(attribute, {})
            under.setdefault(value, []).append(_Waiting(id, rest))

    def _delete(self, id: int, filter: Filter) -> None:
        for attribute, value in _places(_best(filter)):
            under = self._waiting.get(attribute, {})
            left = [one for one in under.get(value, ()) if one.id != id]
            if left:
                under[value] = left
                continue
            under.pop(value, None)
            if not under:
                self._waiting.pop(attribute, None)

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`; visits are filters tried."""
        tried = np.zeros(len(events), np.int64)
        offsets = np.zeros(len(events) + 1, np.int64)
        ids: list[int] = []
        for row, candidates in enumerate(self._candidates(events)):
            event = events.row(row) if candidates else {}
            found = {one.id for one in candidates if one.rest.matches(event)}
            tried[row] = len(candidates)
            ids += found
            offsets[row + 1] = len(ids)
        return Hits(offsets, np.array(ids, np.int64), None, tried)

    def workload(self, events: EventTable) -> IntArray:
        """Return how many filters matching will try for each event, int64 (n,)."""
        return np.array([len(candidates) for candidates in self._candidates(events)], np.int64)

    def _candidates(self, events: EventTable) -> list[list[_Waiting]]:
        """Return the filters that each event has to try."""
        everywhere = self._waiting.get(None, {}).get(None, ())
        found = [list(everywhere) for _ in range(len(events))]
        for attribute, under in self._waiting.items():
            if attribute is None:
                continue
            read = self._read[attribute]
            for own, value in zip(found, events.values(attribute), strict=True):
                canonical = None if value is None else read(value)
                if canonical is not None:
                    own += under.get(canonical, ())
        return found

    def details(self) -> dict[str, Any]:
        """Return the numbers of stored entries, and of filters that every event tries."""
        return {
            "waiting": sum(len(own) for under in self._waiting.values() for own in under.values()),
            "without_equality": len(self._waiting.get(None, {}).get(None, ())),
        }


_MANY = 1 << 60


def _choices(test: Test) -> int:
    """Return how many values satisfy a constraint, as far as they can be looked up."""
    if not isinstance(test, Constraint):
        return _MANY
    if test.operator == "=":
        return 1
    return len(test.value) if test.operator == "in" else _MANY


def _best(filter: Filter) -> Constraint | None:
    """Return the equality with the fewest values, None if there is none."""
    best = min(filter.constraints, key=_choices, default=None)
    return best if isinstance(best, Constraint) and _choices(best) < _MANY else None


def _places(best: Constraint | None) -> list[tuple[str | None, Any]]:
    """Return attributes and values under which a conjunction is stored: None and None without an equality."""
    if best is None:
        return [(None, None)]
    values = best.value if best.operator == "in" else (best.value,)
    return [(best.attribute, value) for value in values]
