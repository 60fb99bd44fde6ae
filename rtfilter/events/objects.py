"""Reading events from dicts, nested or flat, and from rows of values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.basics.errors import EventError
from rtfilter.events.cells import assemble, encode_cell, encode_objects
from rtfilter.events.elements import with_choices
from rtfilter.events.encoding import ALIEN, MISSING, is_missing, string_code
from rtfilter.events.fields import Field, Fields
from rtfilter.events.mismatches import check_objects
from rtfilter.events.nesting import ATOMS, LISTS, flatten, is_list, with_composed_names
from rtfilter.events.table import EventTable, rests_one_by_one

_PLAIN = frozenset((int, float))
_FORMS = (
    "expected a mapping of names to values; a list holds mappings, or nothing but lists or tuples of values "
    "in the order of the schema; an array has shape (n, number of attributes)"
)
"""The error message for a list of other values."""


class _Dicts:
    """Events in their original form, flattened if names have dots."""

    __slots__ = ("events", "fields")

    def __init__(self, fields: Fields, events: Sequence[Mapping[Any, object]]) -> None:
        self.fields = fields
        self.events = events

    def row(self, index: int) -> dict[str, object]:
        event = self.events[index]
        found = ((field.name, event.get(field.name)) for field in self.fields)
        return {name: value for name, value in found if not is_missing(value)}

    def values(self, name: str, rows: Sequence[int]) -> list[object]:
        found = (self.events[row].get(name) for row in rows)
        return [None if is_missing(value) else value for value in found]

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        def value(row: int) -> object:
            return self.events[row].get(field.name)

        return rests_one_by_one(value, field, rows, coordinates)


def read_dict(fields: Fields, event: Mapping[Any, object], names: frozenset[str] | None = None) -> EventTable:
    """Read one event; with `names`, only these attributes from its lists.

    Raises `EventError` as `rtfilter.events.schema.Schema.read`.
    """
    lists: dict[str, Any] | None = None
    if fields.spelled and not (fields.paths is None and fields.known.issuperset(event)):
        event = with_composed_names(event, fields.known)
    given = event
    if fields.paths is not None:
        event, lists = flatten(event, fields.paths)
    table = read_flat_dict(fields, event, given, lists, names)
    if table.read is not None:
        table.again = partial(read_dict, fields, given)
    return table


def read_flat_dict(
    fields: Fields,
    event: Mapping[Any, Any],
    given: Mapping[Any, object],
    lists: dict[str, Any] | None,
    names: frozenset[str] | None,
) -> EventTable:
    """Read a flat event with its lists; `given` is the original event with all its names."""
    if fields.further:
        event = fields.completed(event)
    points = _plain_numbers(fields, event) if fields.numbers and type(event) is dict else None
    plain = points is not None
    if points is None:
        found: dict[str, Any] = {}
        point = _point(fields, event, found)
        plain = ALIEN not in point and (MISSING not in point or fields.spelling.settles(event))
        points = np.array((point,), np.float64)
        points += 0.0  # -0.0 and 0.0 become the same coordinate
        lists = lists or found
    table = EventTable(points, _Dicts(fields, (event,)), fields)
    if lists:
        table = with_choices(table, {0: lists}, None if fields.strict else names)
    return table if plain and not fields.strict else check_objects(table, (given,))


def _plain_numbers(fields: Fields, event: dict[Any, Any]) -> FloatArray | None:
    """Return the point of an event of floats and integers, float64 (1, D); None if anything is special."""
    if fields.take is None:
        return None
    try:
        values = fields.take(event)
    except KeyError:
        return None
    if not (_PLAIN.issuperset(map(type, values)) and fields.contain(values)):
        return None
    points = np.array((values,), np.float64)
    if 0 in values:
        points += 0.0  # -0.0 and 0.0 become the same coordinate
    return points


def _point(fields: Fields, event: Mapping[Any, Any], lists: dict[str, Any]) -> list[float]:
    """Return the point of an event, and put the lists among its values into `lists`."""
    point: list[float] = []
    for field in fields:
        name, family, _, low, high, _, of, _ = field
        value: Any = event.get(name)
        kind = type(value)
        if family == "number" and (kind is float or kind is int) and low <= value <= high:
            point.append(value)
        elif family == "str" and kind is str:
            point += string_code(value)
        elif family == "bool" and kind is bool:
            point.append(value)
        else:
            point += encode_cell(field, value, 0)
            if kind not in ATOMS and not of and is_list(value):
                lists[name] = value
    return point


def read_list(fields: Fields, events: Sequence[Any], names: frozenset[str] | None = None) -> EventTable:
    """Read n events, dicts or rows; see `read_dict`."""
    kinds = set(map(type, events))
    if kinds and all(issubclass(kind, list | tuple) for kind in kinds):
        events, kinds = _named(fields, events), {dict}
    for kind in kinds:
        if kind is not dict and not issubclass(kind, Mapping):
            row = next(row for row, event in enumerate(events) if type(event) is kind)
            raise EventError(f"this is of type {kind.__name__}; {_FORMS}", row=row)
    lists: dict[int, dict[str, Any]] = {}
    if fields.spelled and not (fields.paths is None and all(map(fields.known.issuperset, events))):
        events = [with_composed_names(event, fields.known, row) for row, event in enumerate(events)]
    given = events
    if fields.paths is not None:
        nested, events = events, []
        for row, event in enumerate(nested):
            values, own = flatten(event, fields.paths, row)
            events.append(values)
            if own is not None:
                lists[row] = own
    table = read_flat(fields, events, given, lists, names)
    if table.read is not None:
        table.again = partial(read_list, fields, given)
    return table


def read_flat(
    fields: Fields,
    events: Sequence[Mapping[Any, Any]],
    given: Sequence[Mapping[Any, object]],
    lists: dict[int, dict[str, Any]],
    names: frozenset[str] | None,
) -> EventTable:
    """Read n flat events with the lists of each; `given` are the original events with all their names."""
    if fields.further:
        events = list(map(fields.completed, events))
    kinds = set(map(type, events))
    rows: list[tuple[Any, ...]] | None = None
    if fields.take is not None and kinds == {dict}:
        with contextlib.suppress(KeyError):  # an attribute is missing
            rows = list(map(fields.take, events))
    points = _plain_rows(fields, rows) if rows is not None and fields.numbers else None
    plain = points is not None
    if points is None:
        columns: Iterable[Sequence[Any]]
        if rows is None:
            columns = ([event.get(name) for event in events] for name in fields.names)
        else:
            columns = zip(*rows, strict=True)
        parts = []
        for field, column in zip(fields, columns, strict=True):
            kinds = set(map(type, column))
            parts.append(encode_objects(field, column, kinds))
            if field.of or fields.paths is not None or kinds <= ATOMS:
                continue
            if any(issubclass(kind, LISTS) for kind in kinds):
                for row, value in enumerate(column):
                    if is_list(value):
                        lists.setdefault(row, {})[field.name] = value
        points = assemble(parts, len(events))
    table = EventTable(points, _Dicts(fields, events), fields)
    if lists:
        table = with_choices(table, lists, None if fields.strict else names)
    return table if plain and not fields.strict else check_objects(table, given)


def _named(fields: Fields, rows: Sequence[Sequence[object]]) -> list[dict[str, object]]:
    names, count = fields.labels, len(fields.labels)
    for place, row in enumerate(rows):
        if len(row) != count:
            message = f"this row has {len(row)} values; expected {count}: {', '.join(names)}"
            raise EventError(message, row=place)
    return [dict(zip(names, row, strict=True)) for row in rows]


def _plain_rows(fields: Fields, rows: list[tuple[Any, ...]]) -> FloatArray | None:
    """Return the points of events of float64 and integers, float64 (n, D); None if anything is special."""
    values = list(chain.from_iterable(rows))
    if not _PLAIN.issuperset(map(type, values)):
        return None
    try:
        points = np.fromiter(values, np.float64, len(values)).reshape(len(rows), len(fields))
    except OverflowError:
        return None
    low, high = fields.inward
    # NaN makes both comparisons false, infinity lies outside every domain.
    if not ((points.min(axis=0) >= low).all() and (points.max(axis=0) <= high).all()):
        return None
    points += 0.0  # -0.0 and 0.0 become the same coordinate
    return points
