"""A batch of events: its points, and its values by row and by attribute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from math import ceil, floor, inf, nextafter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.events.encoding import HIGHEST, LOWEST, MISSING
from rtfilter.events.exact import rest_of
from rtfilter.events.spelling import Spelling

if TYPE_CHECKING:
    from rtfilter.events.elements import Choices
    from rtfilter.events.oddities import Oddity

PHRASES: Final = {"number": "a number", "str": "a string", "bool": "a boolean", "timestamp": "a timestamp"}
"""The phrase for an attribute in messages, by its family."""


class _Key(str):
    """A key of rows that no attribute has, whatever its name."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __reduce__(self) -> str:
        return "NOW"


NOW: Final = _Key("NOW()")
"""In rows of a batch, besides its attributes: its moment, in microseconds since 1970."""
_LAST: Final = 8e12


def microseconds_at(seconds: float) -> int:
    """Return seconds since 1970 in microseconds; those beyond 250,000 years are as far."""
    return int(max(min(seconds, _LAST), -_LAST) * 1_000_000)


class Field(NamedTuple):
    """An attribute, laid out for reading its values."""

    name: str
    family: str
    """``number``, ``timestamp``, ``str`` or ``bool``."""
    read: Callable[[object], Any]
    """Event value to canonical value; None for another type."""
    low: float
    high: float
    """Closed ends of the domain, int or float, exactly as declared; strings ignore them."""
    sharp: bool
    """True if each end is a float64 that shares its value with no other number."""

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return 3 if self.family == "str" else 1

    def outside(self, values: AnyArray) -> BoolArray:
        """Return whether numbers, (n,) of exact integers or float64, lie outside; NaN does."""
        low, high = self.low, self.high
        if values.dtype.kind == "f":
            low, high = inward(low, high)
        else:
            low, high = ceil(low), floor(high)
        found: BoolArray = ~((values >= low) & (values <= high))
        return found


class Fields(tuple[Field, ...]):
    """The attributes of a schema, and what is known of all of them before any event is read."""

    strict = False
    """True if events with unknown names, or with values of another type, are refused."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(field.name for field in self)

    @cached_property
    def known(self) -> frozenset[str]:
        """The names, without order."""
        return frozenset(self.names)

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
        return Spelling(self.names)

    @cached_property
    def paths(self) -> frozenset[str] | None:
        """The names, where an event must be flattened for them; else None."""
        return self.known if any("." in name for name in self.names) else None

    @cached_property
    def spelled(self) -> bool:
        """True if some names are not ASCII, so that events may spell them otherwise: see `composed`."""
        return not all(name.isascii() for name in self.names)

    @cached_property
    def take(self) -> Callable[[Any], tuple[Any, ...]] | None:
        """A function that takes all values out of a flat dict at once; None if there is none."""
        return itemgetter(*self.names) if len(self) > 1 and self.paths is None else None

    @cached_property
    def family(self) -> str | None:
        """The family of all attributes, if it is one."""
        return self[0].family if len({field.family for field in self}) == 1 else None

    @cached_property
    def numbers(self) -> bool:
        """True if all are numbers, with domains whose ends are plain float64."""
        return self.family == "number" and all(field.sharp for field in self)

    @cached_property
    def bounded(self) -> tuple[tuple[int, Field], ...]:
        """Place and attribute of those with a domain."""
        return tuple(
            (place, field) for place, field in enumerate(self) if field.low > LOWEST or field.high < HIGHEST
        )


def inward(low: float, high: float) -> tuple[float, float]:
    """Return the least and the greatest float64 of a closed range of numbers, whose ends may be integers."""
    a, b = float(low), float(high)
    return a if a >= low else nextafter(a, inf), b if b <= high else nextafter(b, -inf)


class Rows(Protocol):
    """The values of a table."""

    def row(self, index: int) -> dict[str, object]:
        """The present attributes of one event, by flattened name."""

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        """The values of one attribute in some rows; None where missing."""

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        """The rests of an attribute's numbers in some rows (`rtfilter.events.exact`), int64 (k,)."""


def rests_one_by_one(
    values: Callable[[int], object], field: Field, rows: IntArray, coordinates: FloatArray
) -> IntArray:
    """Return `Rows.rests` of values that are Python objects; `values` gives that of a row."""
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
        What is matched instead where events have several elements to choose from; `points` then hold lists
        for values of another type.
    now : int or None
        The moment of the batch, in microseconds since 1970, which rows have as `NOW`.
    odd : tuple of Oddity
        Misspelt attributes and values of another type; none in a table that was cut from another one.
    read : frozenset of str or None
        Names of the attributes that were read, where others were left out; None: all of them.
    again : callable
        Reads the same events once more, for the attributes that it is given; only where some were left out.
    """

    __slots__ = ("_rows", "again", "choices", "fields", "now", "odd", "points", "read")

    again: Callable[[frozenset[str]], EventTable]

    def __init__(
        self,
        points: FloatArray,
        rows: Rows,
        fields: Fields,
        choices: Choices | None = None,
        now: int | None = None,
    ) -> None:
        self.points = points
        self.now = now
        self.fields = fields
        self.choices = choices
        self.odd: tuple[Oddity, ...] = ()
        self.read: frozenset[str] | None = None
        self._rows = rows

    def __len__(self) -> int:
        return len(self.points)

    def rows(self, rows: range) -> EventTable:
        """Return the events in consecutive rows, from 0, as another table."""
        choices = None if self.choices is None else self.choices.take(np.arange(rows.start, rows.stop))
        return EventTable(
            self.points[rows.start : rows.stop], SomeRows(self._rows, rows), self.fields, choices, self.now
        )

    def extended(self, fields: Fields) -> EventTable:
        """Return the same events with further attributes, behind those that they have: they lack these."""
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
        """The points to search: these events or, where some have lists, their choices."""
        if self.choices is None:
            return self
        table = self.choices.table
        return (
            table if self.now is None else EventTable(table.points, table._rows, table.fields, None, self.now)
        )

    def row(self, index: int) -> dict[str, object]:
        """Return the present attributes of event `index`, 0 <= index < n, by flattened name.

        A list at the place of an attribute is its value, where there are `choices`.
        """
        row = self._rows.row(index)
        if self.now is not None:
            row[NOW] = self.now
        return row

    def values(self, attribute: str, rows: Sequence[int] | None = None) -> Sequence[object]:
        """Return the values of an attribute in some rows or all, as they were given; None where missing."""
        return self._rows.values(attribute, range(len(self)) if rows is None else rows)

    def rests(self, rows: IntArray, coordinates: IntArray) -> IntArray:
        """Return what float64 leaves out of numbers and timestamps, int64 (k,): see `rtfilter.events.exact`.

        Parameters
        ----------
        rows : int64 (k,)
        coordinates : int64 (k,)
            Columns of `points`, which have a value of the attribute's type there.
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
