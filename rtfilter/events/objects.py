"""Reading events from dicts, nested or flat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.errors import EventError
from rtfilter.events.cells import assemble, encode_cell, encode_objects
from rtfilter.events.encoding import is_missing, string_code
from rtfilter.events.table import EventTable, Field, rests_one_by_one

MAX_NESTING = 64
"""Deepest nesting of objects in one event."""
_ATOMS = frozenset((int, float, str, bool, type(None)))


def flatten(event: Mapping[Any, object], names: frozenset[str], row: int = 0) -> dict[str, object]:
    """Return the values of `event` whose path, joined with dots, is one of `names`.

    Raises
    ------
    EventError
        One name has two values, as in ``{"a.b": 1, "a": {"b": 2}}``, or objects are nested deeper
        than `MAX_NESTING`.
    """
    flat: dict[str, object] = {}
    for name, value in _leaves(event, row):
        if name in names:
            if name in flat:
                raise EventError.about(name, "occurs twice, nested and with dots", row)
            flat[name] = value
    return flat


def _leaves(event: Mapping[Any, object], row: int) -> Iterator[tuple[str, object]]:
    stack: list[tuple[str, Mapping[Any, object], int]] = [("", event, 1)]
    while stack:
        prefix, node, depth = stack.pop()
        if depth > MAX_NESTING:
            raise EventError(f"objects are nested deeper than {MAX_NESTING} levels", row=row)
        for key, value in node.items():
            if type(value) not in _ATOMS and isinstance(value, Mapping):
                stack.append((f"{prefix}{key}.", value, depth + 1))
            elif isinstance(key, str):
                yield prefix + key, value


def _flat_names(fields: tuple[Field, ...]) -> frozenset[str] | None:
    """Return the names when an event must be flattened for them, else None."""
    if any("." in field.name for field in fields):
        return frozenset(field.name for field in fields)
    return None


class _Dicts:
    """Events as the caller gave them, flattened where names have dots."""

    __slots__ = ("events", "fields")

    def __init__(self, fields: tuple[Field, ...], events: Sequence[Mapping[Any, object]]) -> None:
        self.fields = fields
        self.events = events

    def row(self, index: int) -> dict[str, object]:
        event = self.events[index]
        found = ((field.name, event.get(field.name)) for field in self.fields)
        return {name: value for name, value in found if not is_missing(value)}

    def values(self, name: str) -> list[object]:
        found = (event.get(name) for event in self.events)
        return [None if is_missing(value) else value for value in found]

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        def value(row: int) -> object:
            return self.events[row].get(field.name)

        return rests_one_by_one(value, field, rows, coordinates)


def read_dict(fields: tuple[Field, ...], event: Mapping[Any, object]) -> EventTable:
    """Read one event. Raises `EventError` as `rtfilter.events.schema.Schema.read`."""
    names = _flat_names(fields)
    if names is not None:
        event = flatten(event, names)
    point: list[float] = []
    for field in fields:
        value: Any = event.get(field.name)
        kind = type(value)
        if field.family == "number" and (kind is float or kind is int) and field.low <= value <= field.high:
            point.append(value)
        elif field.family == "str" and kind is str:
            point += string_code(value)
        else:
            point += encode_cell(field, value, 0)
    points = np.array((point,), np.float64)
    points += 0.0  # -0.0 and 0.0 become the same coordinate
    return EventTable(points, _Dicts(fields, (event,)), fields)


def read_dicts(fields: tuple[Field, ...], events: Sequence[Any]) -> EventTable:
    """Read n events. Raises `EventError` as `rtfilter.events.schema.Schema.read`."""
    for kind in set(map(type, events)):
        if kind is not dict and not issubclass(kind, Mapping):
            row = next(row for row, event in enumerate(events) if type(event) is kind)
            reason = f"is of type {kind.__name__}; expected a mapping of names to values"
            error = EventError(f"event {row} {reason}", reason=reason)
            error.row = row
            raise error
    names = _flat_names(fields)
    if names is not None:
        events = [flatten(event, names, row) for row, event in enumerate(events)]
    parts = [encode_objects(field, [event.get(field.name) for event in events]) for field in fields]
    return EventTable(assemble(parts, len(events)), _Dicts(fields, events), fields)
