"""Filters as in Bittner (2004): profiles, which ask for some values of each attribute, or ignore it.

A profile asks for a set of values of an attribute, given by the ends of its spans. The ends of all profiles
cut the values of an attribute into intervals, and all values of one interval satisfy the same profiles. Two
more *places* are for events without the attribute, and for values of another type. Intervals of an `int`
attribute contain integers, as in the paper. An event with another number there tries every predicate.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import ceil
from typing import Any, Final, NamedTuple

from rtfilter.events.encoding import is_missing
from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.predicates.covers.sets import Space, asks_for_aspects
from rtfilter.predicates.model.constraints import Filter, Test
from rtfilter.predicates.model.values import ValueOrder, Values
from rtfilter.predicates.predicate import Predicate

MISSING: Final = 0
"""The place of events without the attribute: for profiles that ignore it, and for ``is null``."""
ALIEN: Final = 1
"""The place of values of another type: for profiles that ignore the attribute, and for ``exists``."""
FIRST: Final = 2
"""The place of the lowest interval; the others follow."""


def bounds_of(values: Values, line: ValueOrder) -> set[Any]:
    """Return the bounds inside a line: the starts of the spans of a set, and the first values behind them.

    The paper cuts at the last value before each end, and its intervals are open below and closed above. A
    text has a next text but no previous one, so here intervals are closed below and open above. No bound lies
    above the last interval, so infinity needs no value.
    """
    lows = {low for low, _ in values.spans if low > line.first}
    return lows | {end for _, end in values.spans if end < line.end}


def whole(values: Values) -> Values:
    """Return only the integers of a set of numbers; neighbours such as 3 and 4 are one span."""
    spans: list[tuple[int, int]] = []
    for low, end in ((ceil(low), ceil(end)) for low, end in values.spans):
        if spans and spans[-1][1] >= low:
            spans[-1] = spans[-1][0], end
        elif low < end:
            spans.append((low, end))
    return values._replace(spans=tuple(spans))


def places_in(values: Values, bounds: Sequence[Any]) -> Iterator[range]:
    """Yield the places of a set of values, among intervals that all bounds of the set cut."""
    if values.missing:
        yield range(MISSING, MISSING + 1)
    if values.alien:
        yield range(ALIEN, ALIEN + 1)
    for low, end in values.spans:
        yield range(FIRST + bisect_right(bounds, low), FIRST + bisect_left(bounds, end) + 1)


def place_of(event: FlatEvent, name: str, bounds: Sequence[Any]) -> int:
    """Return the place of an event's value of an attribute."""
    value = event.values.get(name)
    if value is not None:
        return FIRST + bisect_right(bounds, value)
    return MISSING if is_missing(event.row.get(name)) else ALIEN


def halvings(bounds: Sequence[Any]) -> int:
    """Return the most comparisons that a look-up among bounds takes."""
    return len(bounds).bit_length()


class Profile(NamedTuple):
    """A filter that some event satisfies."""

    number: int
    """No other profile has it; numbers of removed profiles are used again."""
    id: int
    """The subscription."""
    wanted: Mapping[str, Values]
    """The wanted values of each attribute that it does not ignore."""
    rest: tuple[Test, ...]
    """The constraints that values of single attributes do not decide: patterns, comparisons and others."""


class Profiles:
    """All profiles, by number and by subscription. An interrupted change can be repeated."""

    def __init__(self, schema: Schema) -> None:
        self._space = Space(schema, ())
        self.whole = frozenset(name for name, one in schema.attributes.items() if one.type is int)
        """The attributes whose intervals contain integers."""
        self._of: dict[int, list[Profile]] = {}
        self.numbered: dict[int, Profile] = {}
        self._free: list[int] = []  # a heap of lower numbers that are not used; some may be in use again

    @property
    def size(self) -> int:
        """An upper limit of all numbers: at most the most profiles at once since there were none."""
        return len(self.numbered) + len(self._free)

    def line(self, attribute: str) -> ValueOrder:
        """Return the values of an attribute, in order."""
        line = self._space.line(attribute)
        if attribute in self.whole:
            return line._replace(first=ceil(line.first), end=ceil(line.end))
        return line

    def of(self, id: int) -> Sequence[Profile]:
        """Return the profiles of a subscription."""
        return self._of.get(id, ())

    def add(self, id: int, filter: Filter) -> Profile | None:
        """Number a filter of a subscription; None for a filter that no event satisfies, or no integer."""
        cells = self._space.cells(Predicate((filter,)))
        if not cells:
            return None
        wanted = {
            name: whole(values) if name in self.whole else values
            for name, values in cells[0].items()
            if isinstance(name, str)
        }
        if not all(values.some for values in wanted.values()):
            return None
        rest = tuple(dict.fromkeys(one for one in filter.constraints if _is_rest(one)))
        while self._free and self._free[0] in self.numbered:
            heappop(self._free)
        profile = Profile(self._free[0] if self._free else len(self.numbered), id, wanted, rest)
        self._of.setdefault(id, []).append(profile)  # first, so that it is found after an interrupt
        self.numbered[profile.number] = profile
        if self._free:
            heappop(self._free)
        return profile

    def forget(self, profile: Profile) -> None:
        """Free the number of a profile."""
        if self.numbered.get(profile.number) is profile:
            heappush(self._free, profile.number)
            del self.numbered[profile.number]

    def drop(self, id: int) -> None:
        """Remove a subscription without profiles."""
        self._of.pop(id, None)
        if not self.numbered:
            self._free.clear()


def _is_rest(test: Test) -> bool:
    return asks_for_aspects(Predicate((Filter((test,)),)))


class ProfileMatcher(EventwiseMatcher):
    """Numbers the filters; a subclass finds the numbers of those that an event's values satisfy.

    Constraints that intervals do not decide are tried on the profiles that are found.
    """

    unit = "steps"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._profiles = Profiles(schema)

    @abstractmethod
    def _search(self, event: FlatEvent) -> tuple[set[int], int]:
        """Return as `_find`, for an event whose values of `int` attributes are integers."""

    @abstractmethod
    def _put(self, profile: Profile) -> None:
        """Add a profile. After an interrupt, `_take` follows."""

    @abstractmethod
    def _take(self, profile: Profile) -> None:
        """Remove a profile, as far as it is there."""

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        if all(value % 1 == 0 for name, value in event.values.items() if name in self._profiles.whole):
            return self._search(event)
        known = self._known
        return {id for id, one in known.items() if one.satisfied_by(event.row)}, len(known)

    def _insert(self, id: int, filter: Filter) -> None:
        profile = self._profiles.add(id, filter)
        if profile is not None:
            self._put(profile)

    def _delete(self, id: int, filter: Filter) -> None:
        """Remove all filters of the subscription, at its first one."""
        for profile in self._profiles.of(id):
            self._take(profile)
            self._profiles.forget(profile)
        self._profiles.drop(id)

    def _answer(self, numbers: Iterable[int], event: FlatEvent) -> set[int]:
        """Return the subscriptions of the given profiles whose other constraints an event satisfies."""
        known = self._profiles.numbered
        return {
            profile.id
            for profile in map(known.__getitem__, numbers)
            if not profile.rest or all(map(event.satisfies, profile.rest))
        }
