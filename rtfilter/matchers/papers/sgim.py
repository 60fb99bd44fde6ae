"""SGIM, statistical group index matching: an event skips whole groups of subscriptions (Mohapatra et al.).

The paper has the idea but no rules; the rules here are ours. A few selective attributes are chosen, and the
range of the constants of each is cut into 1 + log2 n classes of equal width (Sturges). A filter's group is
the first and the last class that it accepts, of each chosen attribute. An event is in one class of each. If
that class lies outside a group's classes, the group is skipped; strictly inside, the filter's bounds
certainly hold; in the first or last class they are evaluated. The other constraints of a filter are evaluated
up to the first that does not hold, each distinct constraint once an event.
"""

from __future__ import annotations

from math import ceil, inf, log2
from typing import Any, Final, NamedTuple

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.predicates.model.constraints import Constraint, Filter, Test

FIRST: Final = 8
"""Subscriptions from which groups are made."""
BOUNDS: Final = frozenset(("=", "<", "<=", ">", ">=", "in"))
"""Operators that bound an attribute."""
RANGES: Final = frozenset(("<", "<=", ">", ">="))
"""The operators among these that hold in all inner classes."""

Key = tuple[tuple[int, int] | None, ...]
"""The key of a group: first and last class of each chosen attribute; None if the filter does not bound it."""
Entry = tuple[int, Filter]


class Classes(NamedTuple):
    """Classes of equal width of one attribute; the first and the last also take the values outside."""

    attribute: str
    low: float
    width: float
    number: int

    def of(self, value: Any) -> int:
        """Return the class of a value, 0..number - 1. A greater value never has a lower class."""
        place = (float(value) - self.low) / self.width
        return int(min(max(place, 0.0), self.number - 1.0))

    def bounds(self, filter: Filter) -> tuple[int, int] | None:
        """Return the first and last class that a filter accepts; -1 or `number` for an open side."""
        low, high = _ends(filter, self.attribute)
        if low == -inf and high == inf:
            return None
        return -1 if low == -inf else self.of(low), self.number if high == inf else self.of(high)


class SgimMatcher(EventwiseMatcher):
    """Groups by classes of a few attributes; tries every group, and the subscriptions of those that remain.

    So work grows with the number of subscriptions, and falls with the number of skipped ones. It takes all
    predicates; groups are made by bounds of numbers and timestamps, and by booleans.

    Parameters
    ----------
    schema : Schema
    attributes : int
        Most attributes that groups are made by, at least 1. More attributes skip more subscriptions, but make
        more groups to try.

    Notes
    -----
    Visits are tried groups, and constraints of subscriptions in the groups that remain, also if their result
    is known already.
    """

    unit = "groups and constraints"

    def __init__(self, schema: Schema, *, attributes: int = 2) -> None:
        super().__init__(schema)
        if attributes < 1:
            raise ValueError(f"attributes must be at least 1; got {attributes}")
        self.options = {"attributes": attributes}
        self._ordinal = [name for name, one in schema.attributes.items() if one.family != "str"]
        self._most = attributes
        self._groups = _Groups((), 0)

    def _insert(self, id: int, filter: Filter) -> None:
        """Add a filter to its group; make new groups if the number of subscriptions has doubled."""
        self._groups.add((id, filter))
        count = len(self._known)
        if count >= FIRST and count >= 2 * self._groups.made_for:
            self._regroup()

    def _delete(self, id: int, filter: Filter) -> None:
        """Remove a filter, and its group if that becomes empty; make new groups if few are left."""
        self._groups.discard((id, filter))
        if 4 * len(self._known) < self._groups.made_for:
            self._regroup()

    def _regroup(self) -> None:
        """Choose attributes and classes again, build new groups, and then replace the old ones."""
        entries = [entry for group in self._groups.groups.values() for entry in group]
        made = _Groups(self._chosen(entries), len(self._known))
        for entry in entries:
            made.add(entry)
        self._groups = made

    def _chosen(self, entries: list[Entry]) -> tuple[Classes, ...]:
        """Return the bounded attributes whose bounds leave the fewest classes to filters."""
        count = 1 + ceil(log2(len(entries))) if entries else 1
        rated = list[tuple[int, int, Classes]]()
        for name in self._ordinal:
            ends = [_ends(filter, name) for _, filter in entries]
            constants = [float(end) for pair in ends for end in pair if abs(end) != inf]
            if not constants:
                continue
            low, high = min(constants), max(constants)
            width = (high / count - low / count) or 1.0
            classes = Classes(name, low, width, count)
            left = sum(_left(classes, filter) for _, filter in entries)
            rated.append((left, len(rated), classes))
        return tuple(classes for _, _, classes in sorted(rated)[: self._most])

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        own = self._groups
        places = [
            None if event.values.get(one.attribute) is None else one.of(event.values[one.attribute])
            for one in own.classes
        ]
        found: set[int] = set()
        known: dict[Test, bool] = {}
        touched = len(own.groups)
        for key, group in own.groups.items():
            certain = _certain(key, places, own.classes)
            if certain is None:
                continue
            for id, filter in group:
                for test in filter.constraints:
                    touched += 1
                    if type(test) is Constraint and test.attribute in certain and test.operator in RANGES:
                        continue
                    holds = known.get(test)
                    if holds is None:
                        holds = known[test] = event.satisfies(test)
                    if not holds:
                        break
                else:
                    found.add(id)
        return found, touched

    def details(self) -> dict[str, Any]:
        """Return the number of groups, and the attributes and number of classes that they are made by."""
        classes = self._groups.classes
        return {
            "groups": len(self._groups.groups),
            "grouped_by": [one.attribute for one in classes],
            "classes": classes[0].number if classes else 1,
        }


class _Groups:
    """Filters by the classes that they accept. Empty groups are dropped."""

    def __init__(self, classes: tuple[Classes, ...], made_for: int) -> None:
        self.classes, self.made_for = classes, made_for
        self.groups: dict[Key, dict[Entry, None]] = {}

    def add(self, entry: Entry) -> None:
        """Add an entry, if it is not there."""
        self.groups.setdefault(self._key(entry[1]), {})[entry] = None

    def discard(self, entry: Entry) -> None:
        """Remove an entry, if it is there."""
        key = self._key(entry[1])
        group = self.groups.get(key)
        if group is not None:
            group.pop(entry, None)
            if not group:
                del self.groups[key]

    def _key(self, filter: Filter) -> Key:
        return tuple(one.bounds(filter) for one in self.classes)


def _certain(key: Key, places: list[int | None], classes: tuple[Classes, ...]) -> set[str] | None:
    """Return the attributes whose bounds certainly hold for a whole group; None if one certainly does not."""
    certain = set()
    for bounds, place, one in zip(key, places, classes, strict=True):
        if bounds is None:
            continue
        if place is None or not bounds[0] <= place <= bounds[1]:
            return None
        if bounds[0] < place < bounds[1]:
            certain.add(one.attribute)
    return certain


def _ends(filter: Filter, attribute: str) -> tuple[Any, Any]:
    """Return the closed hull of the values that a filter may accept; it may accept fewer."""
    low, high = -inf, inf
    for test in filter.constraints:
        if not isinstance(test, Constraint) or test.attribute != attribute or test.operator not in BOUNDS:
            continue
        operator, value = test.operator, test.value
        if operator == "in":
            if value:
                low, high = max(low, min(value)), min(high, max(value))
            continue
        if operator in ("=", ">", ">="):
            low = max(low, value)
        if operator in ("=", "<", "<="):
            high = min(high, value)
    return low, high


def _left(classes: Classes, filter: Filter) -> int:
    """Return how many classes a conjunction accepts."""
    bounds = classes.bounds(filter)
    if bounds is None:
        return classes.number
    return max(0, min(bounds[1], classes.number - 1) - max(bounds[0], 0) + 1)
