"""Hash look-ups: each filter waits under one of its equalities (access predicates, Fabret et al.).

An event looks up its values, one look-up per attribute that any filter waits under, and tries the filters it
finds. Filters without an equality are tried by every event. Nothing is compiled to boxes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from rtfilter.dtypes import BoolArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Takes
from rtfilter.predicates.model import Constraint, Filter, Predicate, Test
from rtfilter.results import Hits


class _Waiting(NamedTuple):
    """A filter, and what else it asks once its equality holds."""

    id: int
    rest: Filter


class _Place(NamedTuple):
    """Where a filter waits: under a value of an attribute, or, without one, under None and None."""

    attribute: str | None
    value: Any


class HashesMatcher:
    """Matches by hash look-ups; ahead where nearly all filters have an equality that few events satisfy."""

    takes = Takes(boxes=False, comparisons=True)
    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._read = {field.name: field.read for field in schema.fields}
        self._waiting: dict[str | None, dict[Any, list[_Waiting]]] = {}  # by attribute, then by value
        self._places: dict[int, list[_Place]] = {}  # of each id; in the order of its filters
        self._predicates: dict[int, Predicate] = {}
        self._updates = 0

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        for id, predicate in zip(filters.ids.tolist(), filters.predicates(), strict=True):
            self._predicates[id] = predicate
            self._places[id] = []
        for id, predicate in zip(filters.ids.tolist(), filters.predicates(), strict=True):
            for conjunction in predicate.filters:
                self._wait(id, conjunction)

    def _wait(self, id: int, conjunction: Filter) -> None:
        """Let a filter wait under the equality with the fewest values, or under none."""
        best = min(conjunction.constraints, key=_choices, default=None)
        if not isinstance(best, Constraint) or _choices(best) == _MANY:
            places = [_Place(None, None)]
            best = None
        else:
            values = best.value if best.operator == "in" else (best.value,)
            places = [_Place(best.attribute, value) for value in values]
        rest = Filter(tuple(test for test in conjunction.constraints if test is not best))
        for place in places:
            self._places[id].append(place)
            under = self._waiting.setdefault(place.attribute, {})
            under.setdefault(place.value, []).append(_Waiting(id, rest))
            self._updates += 1

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        known = np.zeros(len(ids), np.bool_)
        for row, id in enumerate(ids.tolist()):
            known[row] = id in self._predicates
            for place in self._places.get(id, ()):
                self._leave(id, place)
            # Last: if this is interrupted, it can be done again.
            self._places.pop(id, None)
            self._predicates.pop(id, None)
        return known

    def _leave(self, id: int, place: _Place) -> None:
        under = self._waiting.get(place.attribute, {})
        before = under.get(place.value, [])
        left = [one for one in before if one.id != id]
        self._updates += len(before) - len(left)
        if left:
            under[place.value] = left
            return
        under.pop(place.value, None)
        if not under:
            self._waiting.pop(place.attribute, None)

    def match(self, events: EventTable, *, first_only: bool = False) -> Hits:
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
        """Filters that matching each event will try."""
        return np.array([len(candidates) for candidates in self._candidates(events)], np.int64)

    def _candidates(self, events: EventTable) -> list[list[_Waiting]]:
        """The filters that each event has to try."""
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

    def ids(self) -> IntArray:
        """See `Matcher`."""
        return np.sort(np.fromiter(self._predicates, np.int64, len(self._predicates)))

    def __len__(self) -> int:
        return len(self._predicates)

    def __contains__(self, id: int) -> bool:
        return id in self._predicates

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """The predicates of some ids, or of all."""
        names = list(self._predicates if ids is None else ids)
        predicates = [self._predicates[id] for id in names]
        return Filters.of_predicates(self._schema, predicates, np.array(names, np.int64))

    @property
    def updates(self) -> int:
        """Filters added and removed; one with a set counts for each of its values."""
        return self._updates

    def stats(self) -> dict[str, Any]:
        """Filters and look-ups; memory is not known."""
        return {
            "filters": sum(len(own) for under in self._waiting.values() for own in under.values()),
            "without_equality": len(self._waiting.get(None, {}).get(None, ())),
            "dimensions": self._schema.dimensions,
            "height": 1,
            "updates": self._updates,
            "bytes": 0,
            "unit": "filters",
        }


_MANY = 1 << 60


def _choices(test: Test) -> int:
    """Values that satisfy a test, as far as it can be looked up."""
    if not isinstance(test, Constraint):
        return _MANY
    if test.operator == "=":
        return 1
    return len(test.value) if test.operator == "in" else _MANY
