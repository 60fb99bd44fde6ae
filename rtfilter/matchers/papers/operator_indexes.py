"""Indexes of constraints: by attribute, then by operator, as Novák (2013) lays them out.

The thesis also has the type of the value between the two. Here the schema gives each attribute one type. Each
index returns, for a value, collections of the constraints that it satisfies. Changes may be interrupted;
`remove` removes whatever part is there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from math import inf
from operator import attrgetter
from typing import Any, Final, Protocol, TypeAlias

from rtfilter.matchers.papers.eventwise import FlatEvent
from rtfilter.matchers.papers.interval_tree import IntervalTree
from rtfilter.matchers.papers.relations import StoredConstraint
from rtfilter.matchers.papers.ternary_search_tree import TernarySearchTree

Collections: TypeAlias = list[Collection[StoredConstraint]]
_Same: TypeAlias = dict[StoredConstraint, None]  # equal constraints: several if they are not shared


class OperatorIndex(Protocol):
    """The constraints of one attribute with one operator."""

    def add(self, constraint: StoredConstraint) -> None:
        """Add a constraint that is not there."""

    def remove(self, constraint: StoredConstraint) -> None:
        """Remove a constraint, as far as it is there."""

    def satisfied(self, value: Any) -> Collections:
        """Return the constraints that a value satisfies, each once."""

    def __bool__(self) -> bool:
        """Return whether there are any constraints."""


class EqualityIndex:
    """``=`` and ``in``: a hash table with an entry for each member; an event's value finds at most one."""

    def __init__(self) -> None:
        self._under: dict[Any, _Same] = {}

    def __bool__(self) -> bool:
        return bool(self._under)

    def add(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        for value in _members(constraint):
            self._under.setdefault(value, {})[constraint] = None

    def remove(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        for value in _members(constraint):
            same = self._under.get(value, {})
            same.pop(constraint, None)
            if not same:
                self._under.pop(value, None)

    def satisfied(self, value: Any) -> Collections:
        """See `OperatorIndex`."""
        same = self._under.get(value)
        return [] if same is None else [same]


def _members(constraint: StoredConstraint) -> Collection[Any]:
    value = constraint.condition.value
    return value if constraint.condition.operator == "in" else (value,)


_PLACE: Final = attrgetter("place")
_AFTER: Final[Mapping[str, bool]] = {"<": True, "<=": True, ">": False, ">=": False}
"""True for an operator whose satisfied constants lie after the value."""
_EQUAL: Final = frozenset(("<=", ">="))


class OrderedIndex:
    """The constraints of ``<``, ``<=``, ``>`` or ``>=``, sorted by constant; a value satisfies one end.

    With n constraints, a change costs O(log n) comparisons and moves up to n pointers in one block; a look-up
    costs O(log n) comparisons and a copy of the pointers to the satisfied constraints.
    """

    def __init__(self, operator: str) -> None:
        self._after, self._equal = _AFTER[operator], operator in _EQUAL
        self._sorted: list[StoredConstraint] = []

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def add(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        self._sorted.insert(bisect_left(self._sorted, constraint.place, key=_PLACE), constraint)

    def remove(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        at = bisect_left(self._sorted, constraint.place, key=_PLACE)
        if self._sorted[at : at + 1] == [constraint]:
            del self._sorted[at]

    def satisfied(self, value: Any) -> Collections:
        """See `OperatorIndex`."""
        past = self._after != self._equal  # True if constants equal to the value lie before the cut
        cut = bisect_right(self._sorted, (value, inf if past else -inf), key=_PLACE)
        found = self._sorted[cut:] if self._after else self._sorted[:cut]
        return [found] if found else []


class PrefixIndex:
    """``prefix``: a ternary search tree, which returns all stored prefixes of a value."""

    def __init__(self) -> None:
        self._tree = TernarySearchTree[_Same]()

    def __bool__(self) -> bool:
        return bool(self._tree)

    def add(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        same = self._tree.get(constraint.condition.value)
        if same is None:
            self._tree.put(constraint.condition.value, {constraint: None})
        else:
            same[constraint] = None

    def remove(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        same = self._tree.get(constraint.condition.value) or {}
        same.pop(constraint, None)
        if not same:
            self._tree.delete(constraint.condition.value)

    def satisfied(self, value: Any) -> Collections:
        """See `OperatorIndex`."""
        return list(self._tree.prefixes_of(value))


class RangeIndex:
    """``range``: an interval tree, with both ends inclusive."""

    def __init__(self) -> None:
        self._tree = IntervalTree[StoredConstraint]()

    def __bool__(self) -> bool:
        return bool(self._tree)

    def add(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        low, high = constraint.condition.value
        self._tree.add(low, high, constraint.number, constraint)

    def remove(self, constraint: StoredConstraint) -> None:
        """See `OperatorIndex`."""
        self._tree.remove(constraint.condition.value[0], constraint.number)

    def satisfied(self, value: Any) -> Collections:
        """See `OperatorIndex`."""
        found = self._tree.holding(value)
        return [found] if found else []


class ConstraintIndex:
    """All constraints, by attribute and operator; constraints that cannot be looked up are tried."""

    def __init__(self) -> None:
        self._attributes: dict[str, dict[str, OperatorIndex]] = {}
        self._tried: _Same = {}

    def __bool__(self) -> bool:
        return bool(self._attributes or self._tried)

    @property
    def tried(self) -> int:
        """Number of constraints that each event tries."""
        return len(self._tried)

    def add(self, constraint: StoredConstraint) -> None:
        """Add a constraint that is not there."""
        attribute, operator, _ = constraint.condition
        if operator == "other":
            self._tried[constraint] = None
            return
        operators = self._attributes.setdefault(attribute, {})
        index = operators.get(_kind(operator))
        if index is None:
            index = operators[_kind(operator)] = _made(operator)
        index.add(constraint)

    def remove(self, constraint: StoredConstraint) -> None:
        """Remove a constraint, as far as it is there, and its index if that becomes empty."""
        attribute, operator, _ = constraint.condition
        self._tried.pop(constraint, None)
        operators = self._attributes.get(attribute, {})
        index = operators.get(_kind(operator))
        if index is not None:
            index.remove(constraint)
            if not index:
                operators.pop(_kind(operator))
        if not operators:
            self._attributes.pop(attribute, None)

    def satisfied(self, event: FlatEvent) -> Collections:
        """Return the constraints that an event satisfies, each once. An absent attribute satisfies none."""
        found: Collections = []
        for attribute, operators in self._attributes.items():
            value = event.values.get(attribute)
            if value is not None:
                for index in operators.values():
                    found += index.satisfied(value)
        if self._tried:
            found.append([one for one in self._tried if one.condition.value.matches(event.row)])
        return found


def _kind(operator: str) -> str:
    return "=" if operator == "in" else operator


def _made(operator: str) -> OperatorIndex:
    """Return an empty index for an operator."""
    if operator in _AFTER:
        return OrderedIndex(operator)
    if operator == "prefix":
        return PrefixIndex()
    return RangeIndex() if operator == "range" else EqualityIndex()
