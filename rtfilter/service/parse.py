"""Stage 2: bytes as events that the filter can use, before anything is stored; and the depth of JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from rtfilter.basics.errors import EventError
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable, Mismatch
from rtfilter.predicates.explanations.explanation import Explanation
from rtfilter.service.service_errors import NotJSONError

MOST_BYTES: Final = 2**19
"""Most bytes of an event, by default."""
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
MOST_HINTS: Final = 20
"""Most hints about the events of one request."""
MANY: Final = 1000
"""Events from which on they are read in a thread, however short they are."""
LISTED: Final = 16
"""Events with lists that are read at once: each may stand for a thousand."""
_OTHERS: Final = bytes(set(range(256)) - set(b"{[]}"))
_NEITHER: Final = bytes(set(range(256)) - set(b'{[]}"'))
_FLAT: Final = 3
"""Times that the innermost brackets are removed by `_is_flat`."""
_STEP: Final = np.zeros(256, np.int8)
_STEP[list(b"{[")], _STEP[list(b"]}")] = 1, -1


def require_shallow(body: bytes, most: int) -> None:
    """Refuse JSON that nests deeper than `most`. Raises `NotJSONError`."""
    if _brackets(body) > most and not _is_flat(body, most) and _depth(body) > most:
        raise NotJSONError(f"objects and arrays may nest {most} deep at most")


def require_shallow_lines(body: bytes, most: int) -> None:
    """Refuse JSON lines of which one nests deeper than `most`. Raises `NotJSONError`."""
    starts = body.count(b"\n{")
    if _brackets(body) - starts < most:  # even if all that begin no line were in one
        return
    for line in body.split(b"\n"):
        require_shallow(line, most)


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _is_flat(text: bytes, most: int) -> bool:
    """Return whether brackets clearly do not nest deeper, such as those of a list of events."""
    if b"\\" in text:
        return False
    left = text.translate(None, delete=_NEITHER).replace(b'""', b"")  # all strings without brackets
    for _ in range(min(_FLAT, most // 2)):
        left = left.replace(b"{}", b"").replace(b"[]", b"")  # the innermost level, or two
    return not left


def _depth(text: bytes) -> int:
    """Return the depth of brackets outside of strings. There may be millions: no loop looks at each."""
    outside = b"".join(text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    signs = np.frombuffer(outside.translate(None, delete=_OTHERS), np.uint8)
    return int(_STEP[signs].cumsum(dtype=np.int32).max(initial=0))


def parts(bodies: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return the first row of each part to match at once, and the row after its last; at least one part.

    The bodies are of stored events. A bracket may be of a list.
    """
    if len(bodies) <= LISTED or not any(b"[" in body for body in bodies):
        return [(0, len(bodies))]
    return _cut_up(len(bodies))


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

    table: EventTable | Listed
    bodies: Sequence[bytes]
    """JSON, as they are to be stored; empty where they are to be matched only."""

    @property
    def hints(self) -> list[str]:
        """Misspelt attributes and values of another type: the events are taken, but may not be meant so."""
        several = len(self.table) > 1
        return [f"event {one.row}: {one}" if several else str(one) for one in self.table.odd[:MOST_HINTS]]


def with_hints(answer: dict[str, Any], hints: list[str]) -> dict[str, Any]:
    """Return an answer with its hints, if there are any."""
    return answer | {"hints": hints} if hints else answer


def report(reasons: Explanation, event: Parsed) -> list[str]:
    """Return lines that explain why a subscription matches an event or not, then hints on misspelt names."""
    hints = (f"hint: {one}" for one in event.table.odd[:MOST_HINTS] if one.misspelt)
    return [*str(reasons).splitlines(), *hints]


class Listed:
    """Events of which some have lists. Their choices would take much memory: they are read part by part.

    Parameters
    ----------
    read : callable
        Makes a table of some events.
    events : sequence of dict
    odd : sequence of Mismatch
        Of all of them.
    """

    def __init__(
        self, read: Callable[[object], EventTable], events: Sequence[dict[str, Any]], odd: Sequence[Mismatch]
    ) -> None:
        self._read, self._events, self.odd = read, events, odd

    def __len__(self) -> int:
        return len(self._events)

    def rows(self, rows: range) -> EventTable:
        """Return the events of consecutive rows, from 0: at most `LISTED` of them."""
        return self._read(self._events[rows.start : rows.stop])


class Parse:
    """Reads events, and refuses those that could not be matched.

    Each method returns the events to be stored, or with `stored=False` to be matched only.

    Parameters
    ----------
    schema : Schema
    most : int
        Most bytes of a stored event.
    """

    def __init__(self, schema: Schema, most: int = MOST_BYTES) -> None:
        self._schema, self._most = schema, most

    def one(self, body: bytes, stored: bool = True) -> Parsed:
        """Return the event of a JSON text. Raises `EventError`."""
        return self._parsed([_event(body)], [body], stored, lone=True)

    def lines(self, body: bytes, stored: bool = True) -> Parsed:
        """Return the events of JSON lines, without empty ones. Raises `EventError` with the row."""
        lines = [line for line in body.split(b"\n") if line.strip()]
        return self._parsed(_events(lines), lines, stored)

    def objects(
        self,
        events: Sequence[Any],
        bodies: list[bytes] | None = None,
        stored: bool = True,
        lone: bool = False,
    ) -> Parsed:
        """Return events that are decoded already. Raises `EventError` with the row, unless it is a lone one.

        Without `bodies`, their JSON is made.
        """
        for row, event in enumerate(events):
            _require_object(event, None if lone else row)
        return self._parsed(events, bodies, stored, lone)

    def columns(self, table: Any) -> Parsed | None:
        """Return the events of a `pyarrow.Table`, to be matched only, or None if `objects` is needed."""
        known = self._schema.fields.known
        flat = self._schema.fields.paths is None and len(set(table.column_names)) == table.num_columns
        if not flat or known.isdisjoint(table.column_names):
            return None
        if not all(
            name not in known or _is_plain(table.schema.field(name).type) for name in table.column_names
        ):
            return None
        return Parsed(self._schema.read(table), ())

    def _parsed(
        self, events: Sequence[dict[str, Any]], bodies: list[bytes] | None, stored: bool, lone: bool = False
    ) -> Parsed:
        try:
            if (bodies is None or any(b"[" in body for body in bodies)) and any(map(has_list, events)):
                table: EventTable | Listed = self._listed(events)
            else:
                table = self._schema.read(events[0] if lone else events)
        except EventError as error:
            if lone:
                error.row = None
                error.show_row()
            raise
        if not stored:
            return Parsed(table, ())
        bodies = list(map(_encode, events)) if bodies is None else bodies
        for row, size in enumerate(map(len, bodies)):
            if size > self._most:
                raise EventError(
                    f"an event has at most {self._most} bytes as JSON, and this one has {size}; "
                    "keep elsewhere what is large, and put its address into the event",
                    row=None if lone else row,
                )
        return Parsed(table, bodies)

    def _listed(self, events: Sequence[dict[str, Any]]) -> Listed:
        odd: dict[str, Mismatch] = {}
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


def _is_plain(kind: Any) -> bool:
    """Return whether a column of an Arrow type is read as its objects would be, and faster."""
    types = sys.modules["pyarrow"].types  # its caller has imported it
    plain = types.is_boolean, types.is_integer, types.is_floating, types.is_string, types.is_large_string
    return any(is_one(kind) for is_one in plain)


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
