"""Stage 2: bytes as events that the filter can use, before anything is stored."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from rtfilter.errors import EventError
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable

if TYPE_CHECKING:
    from rtfilter.events.oddities import Oddity
    from rtfilter.predicates.explanation import Explanation

MOST_BYTES: Final = 2**19
"""Most bytes of an event, by default."""
Hook = Callable[[dict[str, Any]], None]
"""Adds to an event, such as the time of its arrival."""
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


MOST_HINTS: Final = 20
"""Most hints about the events of one request."""


MANY: Final = 1000
"""Events from which on they are read in a thread, however short they are."""
LISTED: Final = 16
"""Events with lists that are read at once: each may stand for a thousand."""


def readable(bodies: list[bytes], whole: bool = False) -> list[Any]:
    """Return stored events as a filter reads them: text, or objects where some may have lists.

    A filter decodes of text only the attributes that subscriptions ask for. With `whole`, all are objects.
    """
    if whole or any(b"[" in body for body in bodies):
        return list(map(msgspec.json.decode, bodies))
    return bodies


def parts(events: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the first row of each part to read at once, and the row after its last; at least one part."""
    if len(events) <= LISTED or not any(map(has_list, events)):
        return [(0, len(events))]
    return _cut_up(len(events))


def _cut_up(count: int) -> list[tuple[int, int]]:
    """Cut events with lists up into such parts."""
    return [(first, min(first + LISTED, count)) for first in range(0, count, LISTED)]


def as_published(schema: Schema, event: Any) -> EventTable:
    """Read a stored event that the schema refuses: it was published before attributes were added.

    The table lacks the last attributes, as few of them as possible. Raises `EventError`.
    """
    attributes = list(schema.attributes.items())
    for count in range(len(attributes) - 1, 0, -1):
        if attributes[count][1].of is not None:  # it is read together with the attribute before it
            continue
        with suppress(EventError):
            return Schema(dict(attributes[:count])).read([event]).extended(schema.fields)
    return schema.read([event])


def has_list(value: object) -> bool:
    """Return whether an event, or a part of one, has a list: then it may take long to read."""
    return isinstance(value, list) or (isinstance(value, dict) and any(map(has_list, value.values())))


class Parsed(NamedTuple):
    """Events that the filter can use."""

    bodies: list[bytes]
    """JSON, as they are to be stored."""
    odd: Sequence[Oddity]
    """Misspelt attributes and values of another type: the events are taken, but may not be meant so."""

    @property
    def hints(self) -> list[str]:
        """The oddities as hints of an answer."""
        return hints_of(self.odd, len(self.bodies))


def hints_of(odd: Sequence[Oddity], events: int) -> list[str]:
    """Return the hints of an answer about the odd ones of `events` events."""
    return [f"event {one.row}: {one}" if events > 1 else str(one) for one in odd[:MOST_HINTS]]


def with_hints(answer: dict[str, Any], hints: list[str]) -> dict[str, Any]:
    """Return an answer with its hints, if there are any."""
    return answer | {"hints": hints} if hints else answer


def report(reasons: Explanation, odd: Sequence[Oddity]) -> list[str]:
    """Return lines that explain why a subscription matches an event or not, then hints on misspelt names."""
    hints = (f"hint: {one}" for one in odd[:MOST_HINTS] if one.misspelt)
    return [*str(reasons).splitlines(), *hints]


class Listed:
    """Events of which some have lists. Their choices would take much memory: they are read part by part.

    Parameters
    ----------
    read : callable
        Makes a table of some events.
    events : sequence of dict
    odd : sequence of Oddity
        Of all of them.
    """

    def __init__(
        self, read: Callable[[object], EventTable], events: Sequence[dict[str, Any]], odd: Sequence[Oddity]
    ) -> None:
        self._read, self._events, self.odd = read, events, odd

    def __len__(self) -> int:
        return len(self._events)

    def rows(self, rows: range) -> EventTable:
        """Return the events of consecutive rows, from 0: at most `LISTED` of them."""
        return self._read(self._events[rows.start : rows.stop])


class Parse:
    """Reads events, and refuses those that could not be matched.

    Parameters
    ----------
    schema : Schema
    hook : callable, optional
        Called with each event before it is checked; its additions are stored.
    most : int
        Most bytes of a stored event.
    """

    def __init__(self, schema: Schema, hook: Hook | None = None, most: int = MOST_BYTES) -> None:
        self._schema, self._hook, self._most = schema, hook, most

    # -- to be stored ----------------------------------------------------------------------------------------

    def one(self, body: bytes) -> Parsed:
        """Return the event of a JSON text. Raises `EventError`."""
        event = _event(body)
        return self._parsed(self._read([event], lone=True), [event], [body], lone=True)

    def lines(self, body: bytes) -> Parsed:
        """Return the events of JSON lines, without empty ones. Raises `EventError` with the row."""
        lines = _lines(body)
        events = _events(lines)
        return self._parsed(self._read(events), events, lines)

    def objects(self, events: Sequence[Any]) -> Parsed:
        """Return events that are decoded already. Raises `EventError` with the row."""
        return self._parsed(self.rows(events), events)

    def object(self, event: Any) -> Parsed:
        """Return an event that is decoded already. Raises `EventError`."""
        return self._parsed(self.row(event), [event], lone=True)

    # -- to be matched only ----------------------------------------------------------------------------------

    def table_of_one(self, body: bytes) -> EventTable | Listed:
        """Return the event of a JSON text as a table. Raises as `one` does."""
        return self._read([_event(body)], lone=True)

    def table_of_lines(self, body: bytes) -> EventTable | Listed:
        """Return the events of JSON lines as a table. Raises as `lines` does."""
        return self._read(_events(_lines(body)))

    def rows(self, events: Sequence[Any]) -> EventTable | Listed:
        """Return events that are decoded already as a table. Raises as `objects` does."""
        for row, event in enumerate(events):
            _require_object(event, row)
        return self._read(events)

    def row(self, event: Any) -> EventTable | Listed:
        """Return an event that is decoded already as a table. Raises as `object` does."""
        _require_object(event, None)
        return self._read([event], lone=True)

    def columns(self, table: Any) -> EventTable | None:
        """Return the events of a `pyarrow.Table` without objects in between, or None if `rows` is needed."""
        known = self._schema.fields.known
        flat = self._schema.fields.paths is None and len(set(table.column_names)) == table.num_columns
        if self._hook is not None or not flat or known.isdisjoint(table.column_names):
            return None
        if not all(
            name not in known or _is_plain(table.schema.field(name).type) for name in table.column_names
        ):
            return None
        return self._schema.read(table)

    # --------------------------------------------------------------------------------------------------------

    def _read(self, events: Sequence[dict[str, Any]], lone: bool = False) -> EventTable | Listed:
        if self._hook is not None:
            for event in events:
                self._hook(event)
        try:
            return self._listed(events) if any(map(has_list, events)) else self._schema.read(events)
        except EventError as error:
            if lone:
                error.row = None
                error.show_row()
            raise

    def _listed(self, events: Sequence[dict[str, Any]]) -> Listed:
        odd: dict[str, Oddity] = {}
        for first, after in _cut_up(len(events)):
            try:
                found = self._schema.read(events[first:after]).odd
            except EventError as error:
                if error.row is not None:
                    error.row += first
                    error.show_row()
                raise
            for one in found:
                known = odd.get(one.name, one._replace(row=first + one.row, events=0))
                odd[one.name] = known._replace(events=known.events + one.events)
        return Listed(self._schema.read, events, tuple(odd.values()))

    def _parsed(
        self,
        table: EventTable | Listed,
        events: Sequence[Any],
        bodies: list[bytes] | None = None,
        lone: bool = False,
    ) -> Parsed:
        if bodies is None or self._hook is not None:
            bodies = list(map(_encode, events))
        sizes = list(map(len, bodies))
        if max(sizes, default=0) > self._most:
            row = next(row for row, size in enumerate(sizes) if size > self._most)
            raise EventError(
                f"an event has at most {self._most} bytes as JSON, and this one has {sizes[row]}; "
                "keep elsewhere what is large, and put its address into the event",
                row=None if lone else row,
            )
        return Parsed(bodies, table.odd)


def _is_plain(kind: Any) -> bool:
    """Return whether a column of an Arrow type is read as its objects would be, and faster."""
    types = sys.modules["pyarrow"].types  # its caller has imported it
    plain = types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string
    return any(is_one(kind) for is_one in plain)


def _lines(body: bytes) -> list[bytes]:
    return [line for line in body.split(b"\n") if line.strip()]


def _events(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    try:
        return list(map(_decode, lines))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [_event(line, row) for row, line in enumerate(lines)]


def _event(body: bytes, row: int | None = None) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"this is not JSON: {error}", row=row) from None
    _require_object(event, row)
    return event  # type: ignore[no-any-return]


def _require_object(event: object, row: int | None) -> None:
    if not isinstance(event, dict):
        raise EventError("an event is a JSON object", row=row)
