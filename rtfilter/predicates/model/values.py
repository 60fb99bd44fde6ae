"""Exact sets of values: the values that constraints accept, intersections and differences.

The values of a type lie in order in a `ValueOrder`. A set of them is a list of spans that contain their low
end but not their high end. Spans represent open and closed ends, because every value has a next one: for a
number the next float64, from 2**53 on the next integer, for a text the text followed by a NUL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import nextafter
from typing import Any, Final, NamedTuple

from rtfilter.events.encoding import EXACT, HIGHEST, LOWEST


class _Top:
    """A value above all other values."""

    __slots__ = ()

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True


TOP: Final = _Top()
"""The end of a span without an upper end."""

Spans = tuple[tuple[Any, Any], ...]
"""Ascending and separate spans, each from a value up to another one, without it."""


class ValueOrder(NamedTuple):
    """All values of a type, in order."""

    first: Any
    end: Any
    """The first value behind the line."""
    after: Callable[[Any], Any]
    """Returns the next value of a value on the line."""
    before: Callable[[Any], Any] | None = None
    """Returns the previous value; a text has none."""

    @property
    def all(self) -> Spans:
        """All values."""
        return ((self.first, self.end),)

    def points(self, values: Iterable[Any]) -> Spans:
        """Return the set of some values, in any order."""
        found: list[tuple[Any, Any]] = []
        for value in sorted(values):
            if not self.first <= value < self.end:
                continue
            end = self.after(value)
            if found and found[-1][1] >= value:
                found[-1] = found[-1][0], end
            else:
                found.append((value, end))
        return tuple(found)

    def accepted(self, operator: str, value: Any) -> Spans:
        """Return the values in a relation, such as ``<=``, to a value."""
        if operator in ("=", "<>"):
            points = self.points((value,))
            return points if operator == "=" else self.without(points)
        behind = self.after(value) if operator in (">", "<=") else value
        return common(((self.first, behind) if operator[0] == "<" else (behind, self.end),), self.all)

    def without(self, spans: Spans) -> Spans:
        """Return the set of all other values."""
        return left_of(self.all, spans)

    def near_end(self, span: tuple[Any, Any]) -> Any:
        """Return the last value of a span, for texts one of the last."""
        low, end = span
        if self.before is not None:
            return self.before(end)
        start = chr(0x10FFFF) if end is TOP else end[:-1] + chr(max(ord(end[-1]) - 1, 0)) + chr(0x10FFFF)
        return next((text for text in (start, low + chr(0x10FFFF)) if low <= text < end), low)

    def is_point(self, span: tuple[Any, Any]) -> bool:
        """Return whether a span is a single value."""
        return bool(self.after(span[0]) == span[1])


class Values(NamedTuple):
    """The possible values of an attribute."""

    spans: Spans
    """Values of the attribute's type."""
    alien: bool = False
    """True if a value of another type is possible."""
    missing: bool = False
    """True if a missing value is possible."""

    @property
    def some(self) -> bool:
        """True if any value is possible."""
        return bool(self.spans) or self.alien or self.missing

    def common(self, other: Values) -> Values:
        """Return the intersection with another set."""
        spans = common(self.spans, other.spans)
        return Values(spans, self.alien and other.alien, self.missing and other.missing)

    def less(self, other: Values) -> Values:
        """Return the difference from another set."""
        spans = left_of(self.spans, other.spans)
        return Values(spans, self.alien and not other.alien, self.missing and not other.missing)


def common(one: Spans, two: Spans) -> Spans:
    """Return the intersection of two sets."""
    found: list[tuple[Any, Any]] = []
    i = j = 0
    while i < len(one) and j < len(two):
        low, end = max(one[i][0], two[j][0]), min(one[i][1], two[j][1])
        if low < end:
            found.append((low, end))
        if one[i][1] < two[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def left_of(spans: Spans, without: Sequence[tuple[Any, Any]]) -> Spans:
    """Return the difference of two sets; the second one may have spans that overlap."""
    found: list[tuple[Any, Any]] = []
    at = 0
    for low, end in spans:
        while at < len(without) and without[at][1] <= low:
            at += 1
        place = at
        while place < len(without) and without[place][0] < end:
            if low < without[place][0]:
                found.append((low, without[place][0]))
            low = max(low, without[place][1])
            place += 1
        if low < end:
            found.append((low, end))
    return tuple(found)


def next_number(value: int | float) -> int | float:
    """Return the next number: events have integers and float64."""
    return nextafter(value, TOP_NUMBER) + 0.0 if -EXACT < value < EXACT else int(value) + 1


def next_text(text: str) -> str:
    """Return the next text."""
    return text + "\0"


def behind(start: str) -> Any:
    """Return the first text above all texts with a beginning."""
    kept = start.rstrip("\U0010ffff")
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else TOP


TOP_NUMBER: Final = float("inf")
LINES: Final[dict[str, ValueOrder]] = {
    "number": ValueOrder(LOWEST, int(HIGHEST) + 1, next_number, lambda value: -next_number(-value)),
    "timestamp": ValueOrder(1 - 2**63, 2**63, lambda moment: int(moment) + 1, lambda moment: int(moment) - 1),
    "bool": ValueOrder(False, 2, lambda value: int(value) + 1, lambda value: int(value) - 1),
    "str": ValueOrder("", TOP, next_text),
}
"""The values of each family of attributes."""
