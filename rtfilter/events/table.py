"""A batch of events: its points, its values by row and by attribute, its lists and its mismatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.basics.text import shown
from rtfilter.events.encoding import MISSING
from rtfilter.events.fields import NOW, Field, Fields, microseconds_at

_FIRST: Final = (0,)
MOST_REST: Final = 2**63 - 1
"""Largest rest; only integers of more than 115 bits have a larger one."""

Lists = Mapping[str, Sequence[Any]]
"""Lists of an event by their paths."""


class Mismatch(NamedTuple):
    """A misspelt attribute, or values of another type, in a batch."""

    name: str
    """An attribute with a value of another type, or an unknown name."""
    misspelt: bool
    """True if the name is unknown."""
    reason: str
    row: int
    """The row of the first event with it."""
    events: int
    """The number of events with it."""
    told: bool = False
    """True if it was reported already, by code that knows the place in a file."""

    def __str__(self) -> str:
        return self.reason if self.misspelt else f"attribute {shown(self.name)} {self.reason}"


class Rows(Protocol):
    """The values of a table."""

    def row(self, index: int) -> dict[str, object]:
        """Return the present attributes of one event, by flattened name."""

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        """Return the values of one attribute in some rows; None for missing ones."""

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        """Return the rests of an attribute's numbers in some rows (see `rests`), int64 (k,)."""


def rests(whole: AnyArray, coordinates: FloatArray) -> IntArray:
    """Return the rests of numbers, int64 (n,): each number less its coordinate.

    An integer of at least 2**53 may share its float64 with neighbours. Pairs of a coordinate and a rest have
    the order of the integers.

    Parameters
    ----------
    whole : (n,), of integers or float64
        The numbers; a float64 has no rest.
    coordinates : float64 (n,)
        Their nearest finite float64.
    """
    if whole.dtype.kind == "f":
        return np.zeros(len(whole), np.int64)
    # Modulo 2**64: the float64 of a large integer of 64 bits may be 2**63 or 2**64, which overflow int64.
    folded = np.where(coordinates >= 2.0**63, coordinates - 2.0**64, coordinates)
    found: IntArray = whole.astype(np.int64) - folded.astype(np.int64)
    return found


def rest_of(number: float, coordinate: float) -> int:
    """Return the rest of one number, limited to `MOST_REST` in size."""
    if isinstance(number, float):
        return 0
    return min(max(int(number) - int(coordinate), -MOST_REST), MOST_REST)


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
    odd : tuple of Mismatch
        Misspelt attributes and values of another type; empty in a part of another table.
    read : frozenset of str or None
        Names of the attributes that were read, if some were not; None: all.
    again : callable
        Reads the same events again, with the given attributes; only if some were not read.
    """

    # Most tables have these, and one event alone is read in less than 2 us.
    choices: Choices | None = None
    now: int | None = None
    odd: tuple[Mismatch, ...] = ()
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
        """Return the `rests` of numbers and timestamps, int64 (k,).

        `coordinates`, int64 (k,), are columns of `points` with a value of the attribute's type in these rows.
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
    """Some rows of another table, among rows without a value."""

    source: Rows
    places: Sequence[int]
    """The row in the other table; -1 for a row without a value."""

    def row(self, index: int) -> dict[str, object]:
        place = self.places[index]
        return {} if place < 0 else self.source.row(place)

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        places = [self.places[row] for row in rows]
        if min(places, default=0) >= 0:
            return self.source.values(name, places)
        found = iter(self.source.values(name, [place for place in places if place >= 0]))
        return [next(found) if place >= 0 else None for place in places]

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        places = np.array([self.places[row] for row in rows.tolist()], np.int64)
        return self.source.rests(field, places, coordinates)


class ByRow(Protocol):
    """The lists of each event, by its row."""

    def __getitem__(self, row: int, /) -> Lists | None: ...


class Choices(NamedTuple):
    """The choices of n events with lists: m >= n."""

    table: EventTable
    """The table of the m choices."""
    offsets: IntArray
    """int64 (n + 1,): event i has the choices ``offsets[i]:offsets[i + 1]``, at least one."""
    lists: ByRow
    """The lists of each event; None for an event without."""
    partial: BoolArray | None
    """bool (m,): True if the choice lacks an attribute of another choice of its event; None if none does."""

    def take(self, rows: IntArray) -> Choices:
        """Return the choices of some events, int64 (k,), in this order."""
        places, offsets = ranges(self.offsets, rows)
        partial = None if self.partial is None else self.partial[places]
        return Choices(self.table.take(places), offsets, _SomeLists(self.lists, rows), partial)

    def sums(self, values: IntArray, rows: IntArray | None = None) -> IntArray:
        """Return the sums of values over the choices of each event, or of events in `rows`, int64 (k,)."""
        counts = np.diff(self.offsets)
        ends = np.cumsum(counts if rows is None else counts[rows])
        totals = np.concatenate([[0], np.cumsum(values)])
        found: IntArray = np.diff(totals[np.concatenate([[0], ends])])
        return found


class _SomeLists:
    def __init__(self, lists: ByRow, rows: IntArray) -> None:
        self._lists, self._rows = lists, rows

    def __getitem__(self, row: int) -> Lists | None:
        return self._lists[int(self._rows[row])]


def ranges(offsets: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places ``offsets[i]:offsets[i + 1]`` of some rows, joined, and their offsets."""
    counts = np.diff(offsets)[rows]
    own = np.concatenate([[0], np.cumsum(counts)])
    return np.repeat(offsets[rows] - own[:-1], counts) + np.arange(own[-1]), own
