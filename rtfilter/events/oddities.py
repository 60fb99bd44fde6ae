"""Oddities of events, which no subscription can match: misspelt attributes, and values of another type.

They are errors only in a strict schema. But a subscriber may wait for such an event, so they are
reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rtfilter.dtypes import BoolArray, IntArray
from rtfilter.errors import EventError
from rtfilter.events.encoding import ALIEN, MISSING, is_missing
from rtfilter.events.fields import PHRASES, Field, Fields
from rtfilter.events.moments import why_no_moment
from rtfilter.events.nesting import ATOMS, is_list
from rtfilter.events.spelling import unknown
from rtfilter.events.table import EventTable, Oddity
from rtfilter.text import shown

_Found = Mapping[str, Sequence[int]]
"""Rows of events, ascending, by a name in the events that the schema does not have."""


def look_at_objects(table: EventTable, events: Sequence[Mapping[Any, object]]) -> EventTable:
    """Add to a table the oddities of its events; `events` are the original events with all their names.

    Raises
    ------
    EventError
        Something is odd, and the schema is strict.
    """
    return _look(table, lambda: _unsettled(table, events))


def look_at_columns(
    table: EventTable, names: Iterable[str], inside: Sequence[Mapping[str, object]] = ()
) -> EventTable:
    """Add to a table the oddities of columns, as `look_at_objects` does.

    `names` are those of columns and of fields in struct columns; `inside` are objects in cells, by row.
    """
    settled, rows = table.fields.spelling.settled, range(len(table))

    def unsettled() -> _Found:
        found = dict(_unsettled(table, inside)) if inside else {}
        return found | {name: rows for name in names if name not in settled and rows}

    return _look(table, unsettled)


def look_at_header(fields: Fields, names: Sequence[str]) -> Iterator[str]:
    """Yield a hint for each misspelt name in the header, before any event is read.

    Raises
    ------
    EventError
        A name is unknown, and the schema is strict.
    """
    for name in names:
        if name in fields.spelling.settled:
            continue
        if fields.strict:
            raise EventError(unknown(name, fields.labels), attribute=name)
        meant = fields.spelling.meant(name)
        if meant is not None and not any(one == meant or one.startswith(f"{meant}.") for one in names):
            yield f"unknown attribute {shown(name)}; did you mean {meant!r}?"


def _look(table: EventTable, unsettled: Callable[[], _Found]) -> EventTable:
    searched, fields = table.searched, table.fields
    odd: list[Oddity] = []
    lacking, alien = _has(searched, MISSING), _has(searched, ALIEN)
    names = unsettled() if lacking or fields.strict else {}
    if not names and not alien:
        return table
    firsts = None if table.choices is None else table.choices.offsets[:-1]
    coordinates = searched.points[:, fields.starts]
    if fields.strict:
        if names:  # the first name is enough for the error
            name, rows = min(names.items(), key=lambda one: one[1][0])
            odd.append(Oddity(name, True, unknown(name, fields.labels), rows[0], len(rows)))
    else:
        odd += _misspelt(table, names, _of_events(coordinates != MISSING, firsts))
    if alien:
        cells = _of_no_type(fields, coordinates == ALIEN)
        own = _of_events(cells, firsts)
        for at in np.flatnonzero(cells.any(axis=0)).tolist():
            value = searched.values(fields.names[at], [int(np.argmax(cells[:, at]))])[0]
            odd.append(_ill_typed(fields, fields[at], value, own[:, at]))
    if odd and fields.strict:
        worst = min(odd, key=lambda one: one.row)
        raise EventError(str(worst), row=worst.row, attribute=worst.name, reason=worst.reason)
    table.odd = tuple(odd)
    return table


def _of_no_type(fields: Fields, cells: BoolArray) -> BoolArray:
    """Return which values have none of the types of an attribute; those of further types count with it."""
    for at, field in enumerate(fields):
        if field.of:
            if not field.null:
                cells[:, fields.names.index(field.of)] &= cells[:, at]
            cells[:, at] = False
    return cells


def _has(table: EventTable, coordinate: float) -> bool:
    points = table.points
    return coordinate in points[0].tolist() if len(points) == 1 else bool((points == coordinate).any())


def _of_events(choices: BoolArray, firsts: IntArray | None) -> BoolArray:
    """Return whether a flag is set for some choice of each event."""
    return choices if firsts is None else np.logical_or.reduceat(choices, firsts, axis=0)


def _unsettled(table: EventTable, events: Sequence[Mapping[Any, object]]) -> _Found:
    spelling = table.fields.spelling
    found: dict[str, list[int]] = {}
    for row, event in enumerate(events):
        if not spelling.settles(event):
            for name in dict.fromkeys(_strange(event, table.fields, "")):
                found.setdefault(name, []).append(row)
    return found


def _strange(event: Mapping[Any, Any], fields: Fields, prefix: str) -> list[str]:
    """Return the unsettled names of an event, joined with dots for attributes of inner objects."""
    found: list[str] = []
    spelling, strict = fields.spelling, fields.strict
    for key, value in event.items():
        path = f"{prefix}{key}" if prefix else key
        if path not in spelling.settled:
            found.append(path)
        elif value is not None and (strict or (path in spelling.inner and type(value) not in ATOMS)):
            found += _below(path, value, fields)
    return found


def _below(path: str, value: Any, fields: Fields) -> list[str]:
    """Return the unsettled names below an attribute, or below an object that contains attributes."""
    if is_list(value):
        return [name for element in value for name in _below(path, element, fields)]
    holds = path in fields.spelling.inner
    if type(value) is dict or isinstance(value, Mapping):
        if holds:
            return _strange(value, fields, f"{path}.")
        return [f"{path}.{key}" for key in value] if fields.strict else []
    return [path] if fields.strict and holds and path not in fields.known and not is_missing(value) else []


def _misspelt(table: EventTable, found: _Found, present: BoolArray) -> Iterator[Oddity]:
    """Yield the names that are a misspelt attribute, if the event lacks that attribute."""
    for name, rows in found.items():
        meant = table.fields.spelling.meant(name) if isinstance(name, str) else None
        if meant is not None:
            below = f"{meant}."
            columns = [
                at for at, one in enumerate(table.fields.names) if one == meant or one.startswith(below)
            ]
            lacking = np.asarray(rows)[~present[np.ix_(rows, columns)].any(axis=1)]
            if len(lacking):
                reason = f"unknown attribute {shown(name)}; did you mean {meant!r}?"
                yield Oddity(name, True, reason, int(lacking[0]), len(lacking))


def _ill_typed(fields: Fields, field: Field, value: object, events: BoolArray) -> Oddity:
    why = f": {why_no_moment(value)}" if field.family == "timestamp" and isinstance(value, str) else ""
    phrases = [PHRASES[one.family] for one in fields if one.source == field.name and not one.null]
    reason = f"is {' or '.join(phrases)}, and {shown(value)} is none{why}"
    return Oddity(field.name, False, reason, int(np.argmax(events)), int(events.sum()))
