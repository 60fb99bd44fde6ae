"""The common part of the papers' matchers that store predicates, and the baseline for all matchers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import BoolArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Takes
from rtfilter.matchers.rows import IdMatcher
from rtfilter.predicates.model.constraints import COMPARE, Constraint, Filter, Test
from rtfilter.predicates.predicate import Predicate


class FlatEvent(NamedTuple):
    """An event."""

    row: Mapping[str, object]
    """The flattened event as it arrived, for `Predicate.satisfied_by`."""
    values: dict[str, Any]
    """Canonical value of each attribute that has one of its type, by flattened name."""

    def satisfies(self, test: Test) -> bool:
        """Return whether it satisfies a constraint that its schema has checked."""
        if type(test) is Constraint:
            compare = COMPARE.get(test.operator)
            if compare is not None:
                value = self.values.get(test.attribute)
                return value is not None and compare(value, test.value)
        return test.matches(self.row)


class PredicateMatcher(IdMatcher[Predicate]):
    """Stores the predicates of all subscriptions. A subclass stores and finds their filters."""

    takes = Takes(boxes=False, comparisons=True)

    @abstractmethod
    def _insert(self, id: int, filter: Filter) -> None:
        """Insert a filter of a subscription. After an interrupt, `_delete` follows."""

    @abstractmethod
    def _delete(self, id: int, filter: Filter) -> None:
        """Remove a filter, as far as it is there; the call may be repeated after an interrupt.

        Filters of a subscription are passed in the order of their insertion, equal ones several times.
        """

    @abstractmethod
    def match(self, events: EventTable) -> Hits:
        """See `Matcher`."""

    def workload(self, events: EventTable) -> IntArray:
        """Return 1 for each event, 0 without subscriptions: there is no estimate."""
        return np.full(len(events), int(bool(self._known)), np.int64)

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        for id, predicate in zip(filters.ids.tolist(), filters.predicates(), strict=True):
            self._known[id] = predicate  # first, so that `remove` knows it after an interrupt
            for conjunction in predicate.filters:
                self._insert(id, conjunction)
                self._updates += 1

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        known = np.zeros(len(ids), np.bool_)
        for row, id in enumerate(ids.tolist()):
            predicate = self._known.get(id)
            if predicate is None:
                continue
            known[row] = True
            for conjunction in predicate.filters:
                self._delete(id, conjunction)
                self._updates += 1
            self._known.pop(id)  # last: an interrupted removal can be repeated
        return known

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """Return the predicates of some ids, or of all."""
        names = list(self._known if ids is None else ids)
        predicates = [self._known[id] for id in names]
        return Filters.of_predicates(self._schema, predicates, np.array(names, np.int64))

    def stats(self) -> dict[str, Any]:
        """Return the number of filters, and the details; the memory is not known."""
        filters = sum(len(one.filters) for one in self._known.values())
        return self._stats(0, filters=filters) | self.details()

    def details(self) -> dict[str, Any]:
        """Return details of its structure, JSON-able."""
        return {}


class EventwiseMatcher(PredicateMatcher):
    """Matches events one by one."""

    @abstractmethod
    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        """Return the subscriptions that an event matches, and the number of operations."""

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`."""
        offsets, operations = np.zeros(len(events) + 1, np.int64), np.zeros(len(events), np.int64)
        ids: list[int] = []
        for row, event in enumerate(self._events(events)):
            found, operations[row] = self._find(event)
            ids += found
            offsets[row + 1] = len(ids)
        return Hits(offsets, np.array(ids, np.int64), None, operations)

    def _events(self, events: EventTable) -> Iterable[FlatEvent]:
        columns = [(field.name, field.read, events.values(field.name)) for field in events.fields]
        for row in range(len(events)):
            values = {}
            for name, read, given in columns:
                value = None if given[row] is None else read(given[row])
                if value is not None:
                    values[name] = value
            yield FlatEvent(events.row(row), values)


class NaiveMatcher(EventwiseMatcher):
    """Tests every subscription up to the first constraint of each filter that does not hold."""

    unit = "constraints"

    def _insert(self, id: int, filter: Filter) -> None: ...  # the predicates are its only data

    def _delete(self, id: int, filter: Filter) -> None: ...

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        found, evaluated = set(), 0
        for id, predicate in self._known.items():
            for conjunction in predicate.filters:
                for constraint in conjunction.constraints:
                    evaluated += 1
                    if not event.satisfies(constraint):
                        break
                else:
                    found.add(id)
                    break
        return found, evaluated
