"""A batch of events: its points, and its values by row and by attribute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from rtfilter.dtypes import FloatArray, IntArray


class Field(NamedTuple):
    """One attribute, laid out for reading its values."""

    name: str
    family: str
    """``number``, ``timestamp``, ``str`` or ``bool``."""
    read: Callable[[object], Any]
    """Event value to canonical value; None for another type."""
    low: float
    high: float
    """Closed ends of the coordinate's domain; strings ignore them."""

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return 2 if self.family == "str" else 1


class Rows(Protocol):
    """The values of a table."""

    def row(self, index: int) -> dict[str, object]:
        """The present attributes of one event, by flattened name."""

    def values(self, name: str) -> Sequence[object]:
        """The values of one attribute, an event each; None where missing."""


class EventTable:
    """A batch of n events as points, and as values for exact evaluation.

    Dicts are not copied: the caller must not change them while the table is in use.

    Attributes
    ----------
    points : float64 (n, D), C-contiguous
        Coordinates; `MISSING` and `ALIEN` mark absent and ill-typed values.
    """

    __slots__ = ("_rows", "points")

    def __init__(self, points: FloatArray, rows: Rows) -> None:
        self.points = points
        self._rows = rows

    def __len__(self) -> int:
        return len(self.points)

    def rows(self, rows: range) -> EventTable:
        """Return the events in consecutive rows, from 0, as another table."""
        return EventTable(self.points[rows.start : rows.stop], _Chosen(self._rows, rows))

    def take(self, rows: IntArray) -> EventTable:
        """Return the events in these rows, int64 (k,), in this order, as another table."""
        return EventTable(self.points[rows], _Chosen(self._rows, rows.tolist()))

    def row(self, index: int) -> dict[str, object]:
        """Return the present attributes of event `index`, 0 <= index < n, by flattened name."""
        return self._rows.row(index)

    def values(self, attribute: str) -> Sequence[object]:
        """Return the n values of an attribute, as they were given; None where missing."""
        return self._rows.values(attribute)


class _Chosen(NamedTuple):
    """Some rows of another table."""

    source: Rows
    places: Sequence[int]

    def row(self, index: int) -> dict[str, object]:
        return self.source.row(self.places[index])

    def values(self, name: str) -> Sequence[object]:
        values = self.source.values(name)
        return [values[place] for place in self.places]
