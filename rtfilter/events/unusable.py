"""Batches with events that cannot be used: these are found, and the others are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.errors import EventError
from rtfilter.events.encoding import MISSING
from rtfilter.events.fields import Field
from rtfilter.events.foreign import readable_twice
from rtfilter.events.reading import TEXT, is_text
from rtfilter.events.table import Choices, EventTable, Rows
from rtfilter.text import numbered

Read = Callable[[Any], EventTable]
"""Reads a batch of any form that `rtfilter.events.schema.Schema.read` takes."""


class BadEvent(NamedTuple):
    """An event of a batch that cannot be used."""

    row: int
    """Its row in the batch, from 0."""
    event: Any
    """The event: a dict, row or text as it was passed; of a table, a table of only this event."""
    error: EventError

    @property
    def reason(self) -> str:
        """The error and its remedy, without the row."""
        return self.error.message

    @property
    def attribute(self) -> str | None:
        """The attribute that the error is about; None if there is none."""
        return self.error.attribute

    def __str__(self) -> str:
        """Return the row and the error."""
        return str(self.error)


OnBadEvent = Literal["raise", "skip"] | Callable[[BadEvent], object]


def report(bad: Sequence[BadEvent], count: int, on_error: OnBadEvent) -> None:
    """Pass the unusable ones of `count` events to a callable, or log their number."""
    if callable(on_error):
        for one in bad:
            on_error(one)
    elif bad:
        import logging  # slow to import

        logging.getLogger("rtfilter").warning(
            "%s of %s match nothing; on_error=errors.append collects all errors. The first: %s",
            f"{len(bad):,}",
            numbered(count, "event"),
            bad[0],
        )


def read_usable(read: Read, events: Any) -> tuple[EventTable, list[BadEvent]]:
    """Return the table of a batch, in which unusable events have no choice to match, and these events.

    Raises
    ------
    EventError
        The error is not about one event: text is no JSON array, or an array has a wrong shape.
    """
    events = readable_twice(events)
    bad: list[BadEvent] = []
    try:
        table = read(events)
    except EventError as error:
        if error.row is None:
            raise
        search = _Search(read, events)
        table, bad = search.table(), [search.bad[row] for row in sorted(search.bad)]
    if table.read is not None and table is not events:
        # The index is held then, so nobody is told of events that become unusable meanwhile.
        table.again = lambda _: read_usable(read, events)[0]
    return table, bad


class _Search:
    """The search for the unusable events of a batch.

    Attributes
    ----------
    bad : dict of int to BadEvent
        Those found so far, by row.
    """

    def __init__(self, read: Read, events: Any) -> None:
        if isinstance(events, TEXT):
            from rtfilter.events.json_text import parts

            events = parts(events)
        self._read, self._events = read, events
        self.bad: dict[int, BadEvent] = {}

    def table(self) -> EventTable:
        """Return the table of all events."""
        count = len(self._events)
        self._note_other_forms()
        while True:
            rows = np.array([row for row in range(count) if row not in self.bad], np.int64)
            try:
                return _spread(self._read(self._some(rows)), rows, count)
            except EventError as error:
                known = len(self.bad)
                self._halve(rows, error)
                if len(self.bad) == known:  # a reader looks at some batches closer than at others
                    self._note(int(rows[error.row or 0]), error)

    def _note_other_forms(self) -> None:
        """Note elements of a list that are of another form than the others: they could be read alone."""
        given = self._events
        if not isinstance(given, list | tuple) or all(isinstance(one, list | tuple) for one in given):
            return
        form: Any = TEXT if is_text(given) else Mapping
        one = b"{}" if form is TEXT else {}
        for row, event in enumerate(given):
            if not isinstance(event, form):
                try:
                    self._read([one, event])
                except EventError as error:
                    self._note(row, error)

    def _halve(self, rows: IntArray, error: EventError) -> None:
        """Note the unusable ones of some events; `error` is that of reading all of them."""
        if error.row is None:
            raise error
        if len(rows) == 1:
            self._note(int(rows[0]), error)
            return
        for half in np.array_split(rows, 2):
            try:
                self._read(self._some(half))
            except EventError as found:
                self._halve(half, found)

    def _note(self, row: int, error: EventError) -> None:
        error.row = row
        error.show_row()
        given = self._events
        event = given[row] if isinstance(given, list | tuple) else self._some(np.array([row]))
        self.bad[row] = BadEvent(row, event, error)

    def _some(self, rows: IntArray) -> Any:
        given = self._events
        if isinstance(given, list | tuple):
            return [given[row] for row in rows.tolist()]
        return given[rows] if isinstance(given, np.ndarray) else given.take(rows)


def _spread(table: EventTable, rows: IntArray, count: int) -> EventTable:
    """Return a table of `count` events: those of `table` in `rows`, the others without a choice."""
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    points = np.full((count, table.points.shape[1]), MISSING)
    points[rows] = table.points
    own, counts = table.choices, np.zeros(count, np.int64)
    counts[rows] = 1 if own is None else np.diff(own.offsets)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    if own is None:
        choices = Choices(table, offsets, {}, None)
    else:
        lists = {row: own.lists[place] for place, row in enumerate(rows.tolist())}
        choices = own._replace(offsets=offsets, lists=lists)
    found = EventTable(points, _Spread(table._rows, places), table.fields, choices)
    found.odd = tuple(one._replace(row=int(rows[one.row])) for one in table.odd)
    found.read = table.read
    return found


class _Spread(NamedTuple):
    """The rows of another table, among rows without a value."""

    source: Rows
    places: IntArray
    """int64 (n,): the row in the other table; -1 for a row without a value."""

    def row(self, index: int) -> dict[str, object]:
        """See `Rows`."""
        place = int(self.places[index])
        return {} if place < 0 else self.source.row(place)

    def values(self, name: str, rows: Sequence[int]) -> Sequence[object]:
        """See `Rows`."""
        places = self.places[list(rows)].tolist()
        found = iter(self.source.values(name, [place for place in places if place >= 0]))
        return [next(found) if place >= 0 else None for place in places]

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        """See `Rows`."""
        return self.source.rests(field, self.places[rows], coordinates)
