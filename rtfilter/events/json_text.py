"""Events as JSON text: one object, a line for each, or an array.

For each event, a filter reads the attributes that its subscriptions use, with a decoder for exactly these.
The decoder skips the rest, which must also be JSON. If an event does not fit the decoder, because of a value
of another type, it is read as a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np

from rtfilter.basics.errors import EventError
from rtfilter.basics.text import shown
from rtfilter.events.cells import encode_cell, encode_objects
from rtfilter.events.encoding import MISSING, string_code
from rtfilter.events.fields import Field, Fields
from rtfilter.events.json_forms import ReadValues, form_of, read_lists
from rtfilter.events.nesting import flatten, inner_paths
from rtfilter.events.objects import read_dict, read_flat, read_flat_dict, read_list
from rtfilter.events.table import EventTable, Rows

LOOKED_AT: Final = 100
"""Number of first events that a reader reads completely, to report misspelt names."""
EVERY: Final = 256
"""After these, one of this many batches is read completely, which takes some fifteen times as long."""
ALONE: Final = 1024
"""Number of events alone of which one is read completely, which takes as long as twenty others."""

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_BOM: Final = b"\xef\xbb\xbf"
_BYTES: Final = {bytes}
_DEEPEST: Final = 4
"""Most parts of a name with its own decoder, which has a field for each spelling with dots."""


def read_json(
    fields: Fields, text: Any, names: frozenset[str] | None = None, lone: bool = False
) -> EventTable:
    """Read each event as a dict; with `names`, only these attributes from lists.

    `lone` means that the text is one object. Raises `EventError`.
    """
    if lone:
        return read_dict(fields, _object(_alone(text)), names)
    return read_list(fields, [_object(part, row) for row, part in enumerate(parts(text))], names)


class JsonReader:
    """Reads JSON text for one filter; threads may share it."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._narrow: _Narrow | None = None
        self._unseen = LOOKED_AT
        self._lone = self._batches = repeat(None, 0)  # read before the next one that is read completely

    def read(self, text: Any, names: frozenset[str] | None, lone: bool) -> EventTable:
        """Read some attributes of each event, or all (None); `lone` means that the text is one object.

        Raises `EventError`.
        """
        narrow = None if names is None or self.fields.strict else self._narrow_of(names)
        if narrow is None or narrow.decoder is None:
            return self._whole(text, names, lone)
        if self._looks(lone or (type(text) is list and len(text) == 1)):
            try:
                return self._whole(text, names, lone)
            except EventError:  # perhaps about an attribute that nobody asks for: these looks refuse nothing
                self._unseen -= 1
        table = narrow.read_one(text) if lone else narrow.read_many(text)
        table.read, table.again = names, partial(self.read, text, lone=lone)
        return table

    def read_one(self, text: Any, names: frozenset[str] | None) -> EventTable:
        """Read the only event of a text as `read` does, for a caller that never wants to read it again."""
        narrow = self._narrow
        if narrow is None or narrow.names is not names or narrow.decoder is None or next(self._lone, True):
            return self.read(text, names, lone=True)
        return narrow.read_one(text)

    def _whole(self, text: Any, names: frozenset[str] | None, lone: bool) -> EventTable:
        table = read_json(self.fields, text, names, lone)
        self._unseen -= len(table)
        return table

    def _narrow_of(self, names: frozenset[str]) -> _Narrow:
        narrow = self._narrow
        if narrow is None or narrow.names is not names:
            self._narrow = narrow = _Narrow(self.fields, names)
        return narrow

    def _looks(self, alone: bool) -> bool:
        """Return whether to look at all attributes of the next event, if it comes alone, or events."""
        if self._unseen > 0:
            return True
        if next(self._lone if alone else self._batches, True):
            if alone:
                self._lone = repeat(None, ALONE - 1)
            else:
                self._batches = repeat(None, EVERY - 1)
            return True
        return False


class _Narrow:
    """A reader of some attributes; `decoder` is None if these need the whole event."""

    def __init__(self, fields: Fields, names: frozenset[str]) -> None:
        self.names, self._all = names, fields
        self.decoder: msgspec.json.Decoder[Any] | None = None
        sources = fields.sources(names)
        if (
            fields.spelled
            or not sources.isdisjoint(inner_paths(sources))
            or any(name.count(".") >= _DEEPEST for name in sources)
        ):
            return
        own = [field for field in fields if field.name in names]
        self._mixed = any(field.of or field.name in fields.nullable for field in own)
        several = {field.of for field in fields.further}  # a value may be of any type
        self._form = form_of(list(fields), sources)
        self.decoder = msgspec.json.Decoder(self._form.kind)
        self._decode = self.decoder.decode
        self._array = msgspec.json.Decoder(list[self._form.kind])  # type: ignore[name-defined]
        paths = dict(self._form.paths())
        self._getters: dict[str, Callable[[Any], Any]] = {
            field.name: _getter(field, attrgetter(paths[field.source]), fields.nullable) for field in own
        }
        self._plan = [
            (
                *(self._getters[one.name], "" if one.source in several else one.family),
                *(fields.places[one.name], one.low, one.high, one),
            )
            for one in own
        ]
        self._own = [(one, self._getters[one.name]) for one in own]
        self._blank = np.full((1, sum(field.width for field in fields)), MISSING)
        self._free: list[_OneEvent] = []

    def read_one(self, text: Any) -> EventTable:
        """Read the only event of a text."""
        data = text if type(text) is bytes else _alone(text)
        try:
            if not data.isascii():
                data.decode()
            event = self._decode(data)
        except _UNREADABLE:
            return read_dict(self._all, _object(_alone(text)), self.names)
        try:
            table = self._free.pop()
        except IndexError:
            table = _OneEvent(self)
        point, table.event = table.point, event
        try:
            for get, family, place, low, high, field in self._plan:
                value = get(event)
                if value is None:
                    for at in range(place, place + field.width):
                        point[at] = MISSING
                elif family == "str":
                    point[place], point[place + 1], point[place + 2] = string_code(value)
                elif family == "number" and low <= value <= high:
                    point[place] = value + 0.0  # -0.0 and 0.0 become the same coordinate
                elif type(value) is list:
                    return self._one_by_one([event])
                else:
                    for at, coordinate in enumerate(encode_cell(field, value, 0), place):
                        point[at] = coordinate + 0.0
        except (AttributeError, TypeError):  # the value is a list
            return self._with_lists([event])
        return table

    def read_many(self, text: Any) -> EventTable:
        """Read a batch."""
        try:
            events = self._decoded(text)
        except _UNREADABLE:
            return self._one_by_one([self._either(part, row) for row, part in enumerate(parts(text))])
        return self._table(events)

    def _table(self, events: Sequence[Any]) -> EventTable:
        points = np.repeat(self._blank, len(events), axis=0)
        values: dict[str, Sequence[object]] = {}
        for get, _, place, _, _, field in self._plan:
            try:
                column = values[field.name] = list(map(get, events))
            except AttributeError:  # a list contains the attribute
                return self._with_lists(events)
            kinds = set(map(type, column))
            if list in kinds:
                return self._one_by_one(events)
            own = encode_objects(field, column, kinds).reshape(len(events), field.width)
            points[:, place : place + field.width] = own
        points += 0.0
        return EventTable(points, ReadValues(values), self._all)

    def _with_lists(self, events: Sequence[Any]) -> EventTable:
        """Return the table of events that fit the decoder, of which some have lists of objects."""
        if not self._mixed:
            table = read_lists(events, self._form, self._own, self._blank, self._all)
            if table is not None:
                return table
        return self._one_by_one(events)

    def _decoded(self, text: Any) -> list[Any]:
        if isinstance(text, list | tuple):
            if set(map(type, text)) != _BYTES or not all(map(bytes.isascii, text)):
                text = [_bytes(part, row) for row, part in enumerate(text)]
                _require_utf8(b"\n".join(text))
            return list(map(self._decode, text))
        data = _bytes(text)
        _require_utf8(data)
        if data.lstrip().startswith(b"["):
            return self._array.decode(data)
        return list(map(self._decode, _lines(data)))

    def _either(self, data: bytes, row: int) -> Any:
        """Read one event as a struct or, if it does not fit, as a dict."""
        try:
            _require_utf8(data)
            return self.decoder.decode(data)  # type: ignore[union-attr]
        except _UNREADABLE:
            return _object(data, row)

    def _one_by_one(self, events: Sequence[Any]) -> EventTable:
        """Return the table of events of which some have lists, or are dicts."""
        flat: list[dict[str, object]] = []
        given: list[dict[str, Any]] = []
        lists: dict[int, dict[str, Any]] = {}
        for row, event in enumerate(events):
            own: dict[str, Any] | None
            if type(event) is dict:
                given.append(event)
                values, own = flatten(event, self._all.known, row)
            else:
                given.append({})
                values, own = {}, {}
                self._form.flatten(event, values, own)
            flat.append(values)
            if own:
                lists[row] = own
        if len(events) == 1:
            return read_flat_dict(self._all, flat[0], given[0], lists.get(0), self.names)
        return read_flat(self._all, flat, given, lists, self.names)


class _OneEvent(EventTable):
    """The table of one struct. Event after event uses it: to make an array takes longer than to fill it."""

    event: Any = None
    point: Any = None

    def __init__(self, reader: _Narrow) -> None:
        self.points, self.fields, self._reader = reader._blank.copy(), reader._all, reader
        self.point = memoryview(self.points[0])  # it writes a number in half of the time of the array

    @property
    def _rows(self) -> Rows:  # type: ignore[override]
        return ReadValues({name: (get(self.event),) for name, get in self._reader._getters.items()})

    def value(self, attribute: str) -> object:
        """See `EventTable`."""
        get = self._reader._getters.get(attribute)
        return None if get is None else get(self.event)

    def free(self) -> None:
        """See `EventTable`."""
        if self.read is None:  # no other table needs it to read the event again
            self._reader._free.append(self)


def _getter(field: Field, get: Callable[[Any], Any], nullable: frozenset[str]) -> Callable[[Any], Any]:
    """Return a function that returns an attribute's value, or list, of an event that `get` reads from it."""
    if field.source not in nullable:
        return get

    def found(event: Any) -> Any:
        value = get(event)
        if value is msgspec.UNSET:
            return None
        return value is None if field.null and type(value) is not list else value

    return found


def _bytes(text: Any, row: int | None = None) -> bytes:
    if isinstance(text, str):
        data = text.encode("utf-8", "surrogatepass")
    elif isinstance(text, bytes | bytearray | memoryview):
        data = bytes(text)
    else:
        raise EventError(
            f"is of type {type(text).__name__}, where others are JSON text; pass text, or dicts", row=row
        )
    return data[3:] if data[:3] == _BOM else data


def _alone(text: Any) -> bytes:
    if isinstance(text, list | tuple):
        if len(text) != 1:
            raise EventError(f"match takes one event, not {len(text)}; match_batch takes several")
        return _bytes(text[0], 0)
    return _bytes(text)


def parts(text: Any) -> list[bytes]:
    """Return the text of each event as bytes."""
    if isinstance(text, list | tuple):
        return [_bytes(part, row) for row, part in enumerate(text)]
    data = _bytes(text)
    if not data.lstrip().startswith(b"["):
        return [data] if _is_one(data) else _lines(data)
    try:
        _require_utf8(data)
        return list(map(bytes, msgspec.json.decode(data, type=list[msgspec.Raw])))
    except _UNREADABLE as error:
        raise EventError(f"this is no JSON array: {error}") from None


def _lines(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.strip()]


def _is_one(data: bytes) -> bool:
    """Return whether a text is one JSON value, possibly of several lines."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except _UNREADABLE:
        return False
    return True


def _require_utf8(data: bytes) -> None:
    """Raise `UnicodeDecodeError` for invalid text: a decoder does not check text that it skips."""
    if not data.isascii():
        data.decode()


def _object(text: Any, row: int | None = None) -> dict[str, Any]:
    """Read one event. Raises `EventError`."""
    try:
        event = msgspec.json.decode(text)
    except _UNREADABLE as error:
        raise EventError(f"this is not JSON: {error}", row=row) from None
    if not isinstance(event, dict):
        raise EventError(f"an event is a JSON object, not {shown(event)}", row=row)
    return event
