"""Predicates, filters and constraints, each stored once, and their relations (Novák 2013).

A predicate has several filters and a filter belongs to several predicates; filters and constraints are
related in the same way. A stored object is used while an object that it belongs to exists: the reference
counts are the lengths of ``predicates`` and ``filters``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from rtfilter.predicates.model.constraints import Constraint, Filter, Test

INDEXED: Final = frozenset(("=", "in", "<", "<=", ">", ">=", "prefix"))
"""Operators of constraints that are found by looking up an event's value."""


class Condition(NamedTuple):
    """A constraint in the form in which it is looked up.

    A ``>=`` and a ``<=`` of one attribute are a ``range``, with the pair of both ends. A constraint that
    cannot be looked up has the operator ``other``, no attribute, and itself as the value.
    """

    attribute: str
    operator: str
    value: Any


def conditions_of(filter: Filter) -> tuple[Condition, ...]:
    """Return the distinct conditions whose conjunction is a filter."""
    found = dict.fromkeys(_condition(test) for test in filter.constraints)
    ends: dict[str, tuple[list[Any], list[Any]]] = {}
    for one in found:
        if one.operator in (">=", "<="):
            ends.setdefault(one.attribute, ([], []))[one.operator == "<="].append(one.value)
    for attribute, (lows, highs) in ends.items():
        if lows and highs:  # the others follow from the closest two
            for operator, values in ((">=", lows), ("<=", highs)):
                for value in values:
                    del found[Condition(attribute, operator, value)]
            found[Condition(attribute, "range", (max(lows), min(highs)))] = None
    return tuple(found)


def _condition(test: Test) -> Condition:
    if isinstance(test, Constraint) and test.operator in INDEXED:
        return Condition(*test)
    return Condition("", "other", test)


class StoredConstraint:
    """A condition, and the filters that it belongs to."""

    __slots__ = ("condition", "filters", "key", "number", "place")

    def __init__(self, key: Hashable, condition: Condition, number: int) -> None:
        self.key, self.condition, self.number = key, condition, number
        self.place = (condition.value, number)
        """Its sort key by value, which is unique."""
        self.filters: dict[StoredFilter, None] = {}


class StoredFilter:
    """A conjunction of constraints, and the predicates that it belongs to.

    `number` is unique among stored filters; numbers of removed filters are used again. `needed` is the number
    of constraints that must be satisfied, `counted` the key in a map of counters, `count` the counter, if
    counters are stored in filters.
    """

    __slots__ = ("constraints", "count", "counted", "key", "needed", "number", "predicates")

    def __init__(self, key: Hashable, number: int, needed: int, counted: Hashable) -> None:
        self.key, self.number, self.needed, self.counted = key, number, needed, counted
        self.count = 0
        self.constraints: list[StoredConstraint] = []
        self.predicates: dict[StoredPredicate, None] = {}


class StoredPredicate:
    """A disjunction of filters, and the subscriptions that have it."""

    __slots__ = ("filters", "key", "subscriptions")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.filters: dict[Hashable, StoredFilter] = {}
        self.subscriptions: dict[int, None] = {}


class Indexes(Protocol):
    """The indexes in which constraints are looked up."""

    def add(self, constraint: StoredConstraint) -> None:
        """Add a constraint that is not there."""

    def remove(self, constraint: StoredConstraint) -> None:
        """Remove a constraint, as far as it is there."""


class Relations:
    """All stored objects, by content.

    Changes may be interrupted. Then `detach` follows, as often as needed, before anything else changes.

    With `share`, equal predicates, filters and constraints are stored once; else each subscription has its
    own, and each filter its own constraints. With `content`, `StoredFilter.counted` is the content of the
    filter, which Python hashes once; else its number.
    """

    def __init__(self, indexes: Indexes, share: bool, content: bool) -> None:
        self._indexes, self._share, self._content = indexes, share, content
        self.subscribed: dict[int, StoredPredicate] = {}
        self.predicates: dict[Hashable, StoredPredicate] = {}
        self.filters: dict[Hashable, StoredFilter] = {}
        self.constraints: dict[Hashable, StoredConstraint] = {}
        self.always: dict[StoredFilter, None] = {}
        """Filters without constraints: no counter ever counts for them."""
        self._free: set[int] = set()  # unused numbers below those of the stored filters
        self._numbers = count()

    @property
    def size(self) -> int:
        """An upper limit of all numbers of filters: at most the most filters at once since it was empty."""
        return len(self.filters) + len(self._free)

    def attach(self, id: int, filters: tuple[Filter, ...], filter: Filter) -> None:
        """Store a filter of a subscription, and relate the two."""
        predicate = self._predicate(id, filters)
        conditions = conditions_of(filter)
        key = self._filter_key(id, conditions)
        if key in predicate.filters:
            return
        stored = self.filters.get(key)
        if stored is None:
            number = next(iter(self._free), len(self.filters))
            stored = StoredFilter(key, number, len(conditions), key if self._content else number)
        predicate.filters[key] = stored  # first, so that it is found after an interrupt
        stored.predicates[predicate] = None
        if self.filters.setdefault(key, stored) is stored and len(stored.constraints) < stored.needed:
            self._fill(stored, conditions)
        self._free.discard(stored.number)
        if not stored.needed:
            self.always[stored] = None

    def _predicate(self, id: int, filters: tuple[Filter, ...]) -> StoredPredicate:
        """Return the predicate of a subscription; the first of its filters stores it."""
        found = self.subscribed.get(id)
        if found is None:
            key: Hashable = id
            if self._share:
                key = frozenset(self._filter_key(id, conditions_of(one)) for one in filters)
            found = self.predicates.get(key)
            if found is None:
                found = StoredPredicate(key)
            self.subscribed[id] = found
            self.predicates[key] = found
        found.subscriptions[id] = None
        return found

    def _fill(self, stored: StoredFilter, conditions: tuple[Condition, ...]) -> None:
        """Relate a new filter to its constraints."""
        for condition in conditions:
            key: Hashable = condition if self._share else (stored.key, condition)
            constraint = self.constraints.get(key)
            known = constraint is not None
            if constraint is None:
                constraint = StoredConstraint(key, condition, next(self._numbers))
            stored.constraints.append(constraint)
            constraint.filters[stored] = None
            if not known:
                self.constraints[key] = constraint
                self._indexes.add(constraint)

    def _filter_key(self, id: int, conditions: tuple[Condition, ...]) -> Hashable:
        key = frozenset(conditions)
        return key if self._share else (id, key)

    def detach(self, id: int) -> None:
        """Remove all objects that only one subscription needs."""
        predicate = self.subscribed.get(id)
        if predicate is None:
            return
        predicate.subscriptions.pop(id, None)
        if not predicate.subscriptions:
            for stored in predicate.filters.values():
                stored.predicates.pop(predicate, None)
                if not stored.predicates:
                    self._drop(stored)
            self.predicates.pop(predicate.key, None)
        self.subscribed.pop(id, None)
        if not self.filters:
            self._free.clear()

    def _drop(self, stored: StoredFilter) -> None:
        """Remove a filter, and the constraints that no other filter has."""
        self.always.pop(stored, None)
        for constraint in stored.constraints:
            constraint.filters.pop(stored, None)
            if not constraint.filters:
                self._indexes.remove(constraint)
                self.constraints.pop(constraint.key, None)
        if self.filters.get(stored.key) is stored:
            self._free.add(stored.number)
            self.filters.pop(stored.key)

    def found(self, satisfied: Iterable[StoredFilter]) -> set[int]:
        """Return the subscriptions of all predicates of satisfied filters."""
        predicates = {predicate for stored in satisfied for predicate in stored.predicates}
        return {id for predicate in predicates for id in predicate.subscriptions}
