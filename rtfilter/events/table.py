"""A batch of events: its points, and its values by row and by attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from math import ceil, floor, inf, nextafter
from operator import ge, itemgetter, le
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.events.encoding import HIGHEST, LOWEST, MISSING, is_missing
from rtfilter.events.exact import rest_of
from rtfilter.events.spelling import Spelling

if TYPE_CHECKING:
    from rtfilter.events.elements import Choices
    from rtfilter.events.oddities import Oddity

PHRASES: Final = {"number": "a number", "str": "a string", "bool": "a boolean", "timestamp": "a timestamp"}
"""The type of an attribute in messages, by its family."""


class _Key(str):
    """A key of rows that no attribute can have."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __reduce__(self) -> str:
        return "NULL" if self is NULL else "NOW"


NULL: Final = _Key("NULL")
"""An element of a list that is null, where null is a value."""
_ABSENT: Final = object()
NOW: Final = _Key("NOW()")
"""Key of the batch's moment in rows, in microseconds since 1970."""
_LAST: Final = 8e12
_FIRST: Final = (0,)


def microseconds_at(seconds: float) -> int:
    """Return seconds since 1970 in microseconds, limited to 250,000 years."""
    return int(max(min(seconds, _LAST), -_LAST) * 1_000_000)


class Field(NamedTuple):
    """An attribute, prepared for reading its values."""

    name: str
    family: str
    """``number``, ``timestamp``, ``str`` or ``bool``."""
    read: Callable[[object], Any]
    """Converts the value of an event to a canonical one; None for another type."""
    low: float
    high: float
    """Closed ends of the domain, int or float, exactly as declared; strings ignore them."""
    sharp: bool
    """True if each end is a float64 that shares its value with no other number."""
    of: str = ""
    """Another attribute with the same values; this one is for a further type of them."""
    null: bool = False
    """True if the value is whether the other attribute is null."""

    @property
    def source(self) -> str:
        """The name that the values have in events."""
        return self.of or self.name

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return 3 if self.family == "str" else 1

    def outside(self, values: AnyArray) -> BoolArray:
        """Return whether numbers, (n,) of exact integers or float64, are outside the domain; NaN is."""
        low, high = self.low, self.high
        if values.dtype.kind == "f":
            low, high = inward(low, high)
        else:
            low, high = ceil(low), floor(high)
        found: BoolArray = ~((values >= low) & (values <= high))
        return found


class Fields(tuple[Field, ...]):
    """The attributes of a schema, with everything that reading needs to know in advance."""

    strict = False
    """True if events with unknown names, or with values of another type, are refused."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(field.name for field in self)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names, in order, without those for further types."""
        return tuple(field.name for field in self if not field.of)

    @cached_property
    def known(self) -> frozenset[str]:
        """The names that events have."""
        return frozenset(self.labels)

    @cached_property
    def further(self) -> tuple[Field, ...]:
        """The attributes for further types of others."""
        return tuple(field for field in self if field.of)

    @cached_property
    def nullable(self) -> frozenset[str]:
        """The names for which null is a value."""
        return frozenset(field.of for field in self.further if field.null)

    def sources(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names in events of some attributes."""
        sources = {field.name: field.of for field in self.further}
        return frozenset(sources.get(name, name) for name in names)

    def completed(self, event: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a flat event, or a choice of elements, with the values of attributes for further types."""
        found = dict(event)
        for field in self.further:
            value = event.get(field.of, _ABSENT)
            if value is NULL:
                value = found[field.of] = None
            if value is _ABSENT or isinstance(value, Mapping):
                found.pop(field.name, None)
            else:
                found[field.name] = is_missing(value) if field.null else value
        return found

    @cached_property
    def places(self) -> dict[str, int]:
        """The first coordinate of each attribute, by name."""
        starts = accumulate((field.width for field in self), initial=0)
        return dict(zip(self.names, starts, strict=False))

    @cached_property
    def starts(self) -> IntArray:
        """The first coordinate of each attribute, int64 (number of attributes,)."""
        return np.array([*self.places.values()], np.int64)

    @cached_property
    def spelling(self) -> Spelling:
        """The detector of misspelt names in events."""
        return Spelling(self.labels)

    @cached_property
    def paths(self) -> frozenset[str] | None:
        """The names, if an event must be flattened for them; else None."""
        return self.known if any("." in name for name in self.known) else None

    @cached_property
    def spelled(self) -> bool:
        """True if some names are not ASCII, so that events may spell them differently: see `composed`."""
        return not all(name.isascii() for name in self.names)

    @cached_property
    def take(self) -> Callable[[Any], tuple[Any, ...]] | None:
        """A function that returns all values of a flat dict at once; None if it is not possible."""
        return itemgetter(*self.names) if len(self) > 1 and self.paths is None and not self.further else None

    @cached_property
    def family(self) -> str | None:
        """The family of all attributes, if they have the same one; else None."""
        return self[0].family if len({field.family for field in self}) == 1 else None

    @cached_property
    def numbers(self) -> bool:
        """True if all attributes are numbers, and the ends of all domains are plain float64."""
        return self.family == "number" and all(field.sharp for field in self)

    @cached_property
    def bounded(self) -> tuple[tuple[int, Field], ...]:
        """Place and attribute of each one with a domain."""
        return tuple(
            (place, field) for place, field in enumerate(self) if field.low > LOWEST or field.high < HIGHEST
        )

    @cached_property
    def _domains(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return tuple(field.low for field in self), tuple(field.high for field in self)

    @cached_property
    def inward(self) -> FloatArray:
        """The least and the greatest float64 of each domain, float64 (2, number of attributes)."""
        return np.array([inward(field.low, field.high) for field in self]).T

    def contain(self, values: Sequence[float]) -> bool:
        """Return whether numbers, one of each attribute, are in their domains; NaN and infinity are not."""
        low, high = self._domains
        return all(map(le, low, values)) and all(map(ge, high, values))


def inward(low: float, high: float) -> tuple[float, float]:
    """Return the least and the greatest float64 in a closed range of numbers, whose ends may be integers."""
    a, b = float(low), float(high)
    return a if a >= low else nextafter(a, inf), b if b <= high else nextafter(b, -inf)


class Rows(Protocol):
    """The values of a table."""

    def row(self, index: int) -> dict[str, object]:
        """Return the present attributes of one event, by flattened name."""

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        """Return the values of one attribute in some rows; None for missing ones."""

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        """Return the rests of an attribute's numbers in some rows (`rtfilter.events.exact`), int64 (k,)."""


def rests_one_by_one(
    values: Callable[[int], object], field: Field, rows: IntArray, coordinates: FloatArray
) -> IntArray:
    """Return `Rows.rests` of Python objects; `values` returns the object of a row."""
    pairs = zip(rows.tolist(), coordinates.tolist(), strict=True)
    return np.array([rest_of(field.read(values(row)), at) for row, at in pairs], np.int64)


class EventTable:
    """A batch of n events as points, and as values for exact evaluation.

    Dicts are not copied: the caller must not change them while the table is in use.

    Attributes
    ----------
    points : float64 (n, D), C-contiguous
        Coordinates; `MISSING` and `ALIEN` mark absent and ill-typed values.
    fields : Fields
        The attributes of the schema that read it.
    choices : Choices or None
        The choices to match instead, if events have lists; `points` then have lists as values of another
        type.
    now : int or None
        The moment of the batch, in microseconds since 1970; rows have it as `NOW`.
    odd : tuple of Oddity
        Misspelt attributes and values of another type; empty in a part of another table.
    read : frozenset of str or None
        Names of the attributes that were read, if some were not; None: all.
    again : callable
        Reads the same events again, with the given attributes; only if some were not read.
    """

    # Most tables have these, and one event alone is read in less than 2 us.
    choices: Choices | None = None
    now: int | None = None
    odd: tuple[Oddity, ...] = ()
    read: frozenset[str] | None = None
    again: Callable[[frozenset[str]], EventTable]

    def __init__(
        self,
        points: FloatArray,
        rows: Rows,
        fields: Fields,
        choices: Choices | None = None,
        now: int | None = None,
    ) -> None:
        self.points, self._rows, self.fields = points, rows, fields
        if choices is not None:
            self.choices = choices
        if now is not None:
            self.now = now

    def __len__(self) -> int:
        return len(self.points)

    @property
    def point(self) -> Sequence[float]:
        """The coordinates of the first event."""
        point: list[float] = self.points[0].tolist()
        return point

    def free(self) -> None:
        """End the use of the table: its memory may be used for another event."""

    def rows(self, rows: range) -> EventTable:
        """Return the events in consecutive rows, from 0, as another table."""
        choices = None if self.choices is None else self.choices.take(np.arange(rows.start, rows.stop))
        return EventTable(
            self.points[rows.start : rows.stop], SomeRows(self._rows, rows), self.fields, choices, self.now
        )

    def extended(self, fields: Fields) -> EventTable:
        """Return the same events with further attributes, after the present ones; the events lack them."""
        width = sum(field.width for field in fields)
        points = np.full((len(self), width), MISSING)
        points[:, : self.points.shape[1]] = self.points
        choices = self.choices
        if choices is not None:
            choices = choices._replace(table=choices.table.extended(fields))
        return EventTable(points, self._rows, fields, choices, self.now)

    def at(self, now: float) -> EventTable:
        """Return the same events as a batch of a moment, in seconds since 1970."""
        return EventTable(self.points, self._rows, self.fields, self.choices, microseconds_at(now))

    def take(self, rows: IntArray) -> EventTable:
        """Return the events in these rows, int64 (k,), in this order, as another table."""
        choices = None if self.choices is None else self.choices.take(rows)
        return EventTable(
            self.points[rows], SomeRows(self._rows, rows.tolist()), self.fields, choices, self.now
        )

    @property
    def searched(self) -> EventTable:
        """The points to search: these events or, if some have lists, their choices."""
        if self.choices is None:
            return self
        table = self.choices.table
        return (
            table if self.now is None else EventTable(table.points, table._rows, table.fields, None, self.now)
        )

    def row(self, index: int) -> dict[str, object]:
        """Return the present attributes of event `index`, 0 <= index < n, by flattened name.

        The value of an attribute with a list is the list, if there are `choices`.
        """
        row = self._rows.row(index)
        if self.now is not None:
            row[NOW] = self.now
        return row

    def values(self, attribute: str, rows: Sequence[int] | None = None) -> Sequence[object]:
        """Return the original values of an attribute in some rows, or all; None for missing ones."""
        return self._rows.values(attribute, range(len(self)) if rows is None else rows)

    def value(self, attribute: str) -> object:
        """Return the original value of an attribute of the first event; None if it is missing."""
        return self._rows.values(attribute, _FIRST)[0]

    def rests(self, rows: IntArray, coordinates: IntArray) -> IntArray:
        """Return the rests of numbers and timestamps, int64 (k,): see `rtfilter.events.exact`.

        Parameters
        ----------
        rows : int64 (k,)
        coordinates : int64 (k,)
            Columns of `points` that have a value of the attribute's type in these rows.
        """
        found = np.empty(len(rows), np.int64)
        for field in self.fields:
            start = self.fields.places[field.name]
            own = np.flatnonzero(coordinates == start)
            if len(own):
                places = rows[own]
                found[own] = self._rows.rests(field, places, self.points[places, start])
        return found


class SomeRows(NamedTuple):
    """Some rows of another table."""

    source: Rows
    places: Sequence[int]

    def row(self, index: int) -> dict[str, object]:
        """See `Rows`."""
        return self.source.row(self.places[index])

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        """See `Rows`."""
        return self.source.values(name, [self.places[row] for row in rows])

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        """See `Rows`."""
        places = np.array([self.places[row] for row in rows.tolist()], np.int64)
        return self.source.rests(field, places, coordinates)
