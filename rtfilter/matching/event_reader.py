"""Reading the events of a filter: only attributes that subscriptions ask for; refused and odd ones count."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rtfilter.basics.errors import EventError
from rtfilter.basics.options import require_on_error
from rtfilter.events.mismatches import MismatchCounts
from rtfilter.events.objects import read_dict
from rtfilter.events.reading import OnBadEvent, is_text, read_events, read_usable, report
from rtfilter.events.table import EventTable
from rtfilter.matchers.port import refuse_missing
from rtfilter.subscriptions.content import Subscriptions

if TYPE_CHECKING:
    from rtfilter.events.json_text import JsonReader
    from rtfilter.watch.metrics import Metrics

QUICK: Final = frozenset((bytes, str))
"""Types of events that are read without code of the caller."""


class EventReader:
    """Reads events for the present subscriptions; threads may share it. Metrics count refused events."""

    _json: JsonReader | None = None

    def __init__(self, subscriptions: Subscriptions, metrics: Metrics | None) -> None:
        self._subscriptions, self.metrics, self.odd = subscriptions, metrics, MismatchCounts()

    def one(self, event: object) -> EventTable:
        """Read one event of a `QUICK` type while the caller holds the index: it never need be read again.

        Raises `EventError`, and `ValueError` if there is not one event.
        """
        held, json = self._subscriptions, self._json
        fields = held.schema.fields
        try:
            if not held.matcher.takes.missing:
                return require_one(self._read(event, lone=True))
            if json is None or json.fields is not fields:
                json = self._text(fields)
            return json.read_one(event, held.used.names)
        except EventError:
            self._count_refused(event)
            raise

    def lone(self, event: object) -> EventTable:
        """Read one event of any form that `Schema.read` takes; raises what `one` raises."""
        held = self._subscriptions
        if type(event) is dict and held.matcher.takes.missing:
            try:
                table = read_dict(held.schema.fields, event, held.used.names)
            except EventError:
                self._count_refused(event)
                raise
        else:
            table = require_one(self._checked(as_batch(event), lone=True))
        if table.odd:
            self.note(table)
        return table

    def many(self, events: object, whole: bool = False, on_error: OnBadEvent = "raise") -> EventTable:
        """Read a batch of any form that `Schema.read` takes; `whole`: all attributes. Raises `EventError`."""
        if isinstance(events, Mapping):
            raise EventError("a batch is a list of dicts, an array or a table; for a single event use match")
        table = self._checked(events, whole) if on_error == "raise" else self._usable(events, on_error)
        self.note(table)
        return table

    def texts(self, events: Sequence[object]) -> EventTable:
        """Read JSON texts, each of one event; the metrics do not count refused ones."""
        held = self._subscriptions
        names = held.used.names if held.matcher.takes.missing else None
        return self._text(held.schema.fields).read(events, names, lone=False)

    def note(self, table: EventTable) -> None:
        """Count and log the mismatches of a table; the caller does not hold the index: a log may use it."""
        if table.odd:
            self.odd.note(table.odd)

    def _checked(self, events: object, whole: bool = False, lone: bool = False) -> EventTable:
        try:
            return self._read(events, whole, lone)
        except EventError:
            self._count_refused(events)
            raise

    def _usable(self, events: object, on_error: OnBadEvent) -> EventTable:
        """Read a batch in which events that cannot be used match nothing; report these."""
        require_on_error(on_error)
        try:
            table, bad = read_usable(self._read, events)
        except EventError:
            self._count_refused(events)
            raise
        if self.metrics is not None:
            self.metrics.refused_events += len(bad)
        report(bad, len(table), on_error)
        return table

    def _read(self, events: object, whole: bool = False, lone: bool = False) -> EventTable:
        held = self._subscriptions
        takes, fields = held.matcher.takes, held.schema.fields
        names = held.used.names if takes.missing and not whole else None
        if is_text(events):
            table = self._text(fields).read(events, names, lone)
        else:
            table = read_events(fields, events, names)
        if not takes.missing:
            refuse_missing(held.name, table, held.schema)
        return table

    def _text(self, fields: Any) -> JsonReader:
        json = self._json  # another thread may replace it by an older or a newer one
        if json is None or json.fields is not fields:
            from rtfilter.events.json_text import JsonReader

            self._json = json = JsonReader(fields)
        return json

    def _count_refused(self, events: Any) -> None:
        if self.metrics is not None:
            self.metrics.refused_events += count_of(events)


def as_batch(event: object) -> object:
    """Return an event as a batch, if it is the row of an array."""
    return event[np.newaxis] if isinstance(event, np.ndarray) and event.ndim == 1 else event


def require_one(table: EventTable) -> EventTable:
    """Return a table of one event; raise `ValueError` for another number."""
    if len(table) != 1:
        raise ValueError(f"match takes one event, not {len(table)}; match_batch takes several")
    return table


def count_of(given: Any) -> int:
    """Return the number of events or subscriptions in unreadable input: 1 if that is not known."""
    if isinstance(given, str | bytes):
        lines = given.encode(errors="replace") if isinstance(given, str) else given
        return max(1, lines.count(b"\n{") + lines.startswith(b"{"))
    if isinstance(given, Mapping):
        return 1
    with contextlib.suppress(TypeError):
        return len(given)
    return 1
