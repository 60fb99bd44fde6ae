"""Reading events of any accepted form, also of batches in which some events cannot be used.

A dict or an array needs neither pandas nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.basics.errors import EventError
from rtfilter.basics.text import listed, numbered
from rtfilter.events.columns import read_columns
from rtfilter.events.encoding import MISSING
from rtfilter.events.fields import Fields
from rtfilter.events.foreign import readable_twice
from rtfilter.events.objects import read_dict, read_list
from rtfilter.events.table import Choices, EventTable, SomeRows

TEXT: Final = (bytes, str, bytearray, memoryview)
"""Types of JSON text."""
_MANY: Final = (list, tuple)
Read = Callable[[Any], EventTable]
"""Reads a batch of any form that `rtfilter.events.schema.Schema.read` takes."""


def read_events(fields: Fields, events: object, names: frozenset[str] | None = None) -> EventTable:
    """Read one event or many; with `names`, only these attributes from lists.

    See `rtfilter.events.schema.Schema.read`.
    """
    if type(events) is dict:
        return read_dict(fields, events, names)
    if isinstance(events, np.ndarray):
        return read_columns(fields, events, names)
    if isinstance(events, EventTable):
        return _own(fields, events)
    if isinstance(events, Mapping):
        return read_dict(fields, events, names)
    if is_text(events):
        from rtfilter.events.json_text import read_json

        return read_json(fields, events, names)
    if isinstance(events, _MANY):
        return read_list(fields, events, names)
    return read_columns(fields, events, names)


def is_text(events: object) -> bool:
    """Return whether events are JSON text, which `rtfilter.events.json_text` reads."""
    if isinstance(events, TEXT):
        return True
    return isinstance(events, _MANY) and len(events) > 0 and isinstance(events[0], TEXT)


def _own(fields: Fields, table: EventTable) -> EventTable:
    """Return a table of an earlier `read`. Raises `EventError` if another schema has read it."""
    if table.fields is fields or (table.fields == fields and table.fields.strict >= fields.strict):
        return table
    raise EventError(
        "the table of events was read by another schema: "
        f"{_described(table.fields)}; here it is {_described(fields)}. Read the events with this one"
    )


def _described(fields: Fields) -> str:
    strict = ", strict" if fields.strict else ""
    return f"({listed([f'{field.name}: {field.family}' for field in fields])}{strict})"


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
            "%s of %s cannot be used; on_error=errors.append collects all errors. The first: %s",
            f"{len(bad):,}",
            numbered(count, "event"),
            bad[0],
        )


def read_usable(read: Read, events: Any) -> tuple[EventTable, list[BadEvent]]:
    """Return the table of a batch, in which unusable events have no choice to match, and these events.

    Raises `EventError` if it is not about one event: text is no JSON array, or an array has a wrong shape.
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
    """The search for the unusable events of a batch; `bad` has those found so far, by row."""

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
    found = EventTable(points, SomeRows(table._rows, places.tolist()), table.fields, choices)
    found.odd = tuple(one._replace(row=int(rows[one.row])) for one in table.odd)
    found.read = table.read
    return found
