"""Mismatches of events and schema: misspelt attributes, and values of another type.

No subscription can match these. They are errors only in a strict schema. But a subscriber may wait for such
an event, so they are reported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from rtfilter.basics.dtypes import BoolArray, IntArray
from rtfilter.basics.errors import EventError
from rtfilter.basics.text import shown
from rtfilter.events.encoding import ALIEN, MISSING, is_missing
from rtfilter.events.fields import PHRASES, Field, Fields
from rtfilter.events.moments import why_no_moment
from rtfilter.events.nesting import ATOMS, is_list
from rtfilter.events.spelling import unknown
from rtfilter.events.table import EventTable, Mismatch

LOGGER: Final = "rtfilter.events"
"""The logger of the hints."""
_MOST: Final = 100
"""Most hints of one filter: a publisher may send ever new names."""
_Found = Mapping[str, Sequence[int]]
"""Rows of events, ascending, by a name in the events that the schema does not have."""


def check_objects(table: EventTable, events: Sequence[Mapping[Any, object]]) -> EventTable:
    """Add to a table the mismatches of its events; `events` are the original events with all their names.

    Raises `EventError` for the first one if the schema is strict.
    """
    return _check(table, lambda: _unsettled(table, events))


def check_columns(
    table: EventTable, names: Iterable[str], inside: Sequence[Mapping[str, object]] = ()
) -> EventTable:
    """Add to a table the mismatches of columns, as `check_objects` does.

    `names` are those of columns and of fields in struct columns; `inside` are objects in cells, by row.
    """
    settled, rows = table.fields.spelling.settled, range(len(table))

    def unsettled() -> _Found:
        found = dict(_unsettled(table, inside)) if inside else {}
        return found | {name: rows for name in names if name not in settled and rows}

    return _check(table, unsettled)


def check_header(fields: Fields, names: Sequence[str]) -> Iterator[str]:
    """Yield a hint for each misspelt name in the header, before any event is read.

    Raises `EventError` for an unknown name if the schema is strict.
    """
    for name in names:
        if name in fields.spelling.settled:
            continue
        if fields.strict:
            raise EventError(unknown(name, fields.labels), attribute=name)
        meant = fields.spelling.meant(name)
        if meant is not None and not any(one == meant or one.startswith(f"{meant}.") for one in names):
            yield f"unknown attribute {shown(name)}; did you mean {meant!r}?"


def _check(table: EventTable, unsettled: Callable[[], _Found]) -> EventTable:
    searched, fields = table.searched, table.fields
    odd: list[Mismatch] = []
    lacking, alien = _has(searched, MISSING), _has(searched, ALIEN)
    names = unsettled() if lacking or fields.strict else {}
    if not names and not alien:
        return table
    firsts = None if table.choices is None else table.choices.offsets[:-1]
    coordinates = searched.points[:, fields.starts]
    if fields.strict:
        if names:  # the first name is enough for the error
            name, rows = min(names.items(), key=lambda one: one[1][0])
            odd.append(Mismatch(name, True, unknown(name, fields.labels), rows[0], len(rows)))
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


def _misspelt(table: EventTable, found: _Found, present: BoolArray) -> Iterator[Mismatch]:
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
                yield Mismatch(name, True, reason, int(lacking[0]), len(lacking))


def _ill_typed(fields: Fields, field: Field, value: object, events: BoolArray) -> Mismatch:
    why = f": {why_no_moment(value)}" if field.family == "timestamp" and isinstance(value, str) else ""
    phrases = [PHRASES[one.family] for one in fields if one.source == field.name and not one.null]
    reason = f"is {' or '.join(phrases)}, and {shown(value)} is none{why}"
    return Mismatch(field.name, False, reason, int(np.argmax(events)), int(events.sum()))


class MismatchCounts:
    """Counts mismatches in the events of a filter, and logs the first one of each name.

    Attributes
    ----------
    misspelt : int
        Names in events that look like an attribute which the event lacks.
    ill_typed : int
        Values of another type than their attribute, at most one for each attribute of an event.
    """

    def __init__(self) -> None:
        self.misspelt = self.ill_typed = 0
        self._logged: set[tuple[str, bool]] = set()
        self._lock = threading.RLock()  # reentrant, because a signal handler may match

    def note(self, found: Sequence[Mismatch]) -> None:
        """Count the mismatches of a batch, and log new ones."""
        misspelt = sum(one.events for one in found if one.misspelt)
        ill_typed = sum(one.events for one in found if not one.misspelt)
        with self._lock:
            self.misspelt += misspelt
            self.ill_typed += ill_typed
            new = [one for one in found if not one.told and (one.name, one.misspelt) not in self._logged]
            new = new[: _MOST - len(self._logged)]
            self._logged.update((one.name, one.misspelt) for one in new)
        if new:
            import logging  # slow to import

            for one in new:
                logging.getLogger(LOGGER).warning(
                    "event %d: %s (logged once; stats() counts them)",
                    one.row,
                    one,
                )
