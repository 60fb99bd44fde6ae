"""Reading events: a dict or a list of dicts, nested or flat, into an `EventTable`.

NumPy arrays and columns of pandas and Arrow are read in `rtfilter.columns`; which reader applies is
decided by the name of the type's module, so that neither library is imported for a dict or an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rtfilter.encoding import ALIEN, HIGHEST, LOWEST, MISSING, FloatArray, is_missing, string_code
from rtfilter.errors import EventError

MAX_NESTING = 64
"""Deepest nesting of objects in one event."""
_ATOMS = frozenset((int, float, str, bool, type(None)))
_NUMBERS = frozenset((int, float))
_STRINGS = frozenset((str,))


class Field(NamedTuple):
    """One attribute, laid out for reading its values."""

    name: str
    family: str
    """``number``, ``timestamp``, ``str`` or ``bool``."""
    read: Callable[[object], Any]
    """Event value to canonical value; None for another type."""
    low: float
    high: float
    """Domain of the coordinate, closed; strings ignore it."""

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return 2 if self.family == "str" else 1


class EventTable:
    """A batch of n events as points, and as rows for exact evaluation.

    Rows of dicts refer to the caller's dicts, which must not change while the table is in use.

    Attributes
    ----------
    points : float64 (n, D), C-contiguous
        Coordinates; `MISSING` and `ALIEN` mark absent and ill-typed values.
    """

    __slots__ = ("_row", "points")

    def __init__(self, points: FloatArray, row: Callable[[int], dict[str, object]]) -> None:
        self.points = points
        self._row = row

    def __len__(self) -> int:
        return len(self.points)

    def rows(self, rows: range) -> EventTable:
        """The events in consecutive rows, as a table of their own."""
        return EventTable(self.points[rows.start : rows.stop], lambda index: self._row(rows[index]))

    def row(self, index: int) -> dict[str, object]:
        """Return the present attributes of event `index`, 0 <= index < n, by flattened name."""
        return self._row(index)


def read_events(fields: tuple[Field, ...], events: object) -> EventTable:
    """Read events of any accepted form; see `rtfilter.schema.Schema.read`."""
    if type(events) is dict or isinstance(events, Mapping):
        return _read_one(fields, events)
    if isinstance(events, list | tuple):
        return _read_many(fields, events)
    # Loaded here: dicts do not need it, and it knows of libraries that may not be installed.
    from rtfilter import columns

    return columns.read(fields, events)


def flatten(event: Mapping[Any, object], names: frozenset[str], row: int = 0) -> dict[str, object]:
    """Return the values of `event` whose path, joined with dots, is one of `names` (M-10).

    Raises
    ------
    EventError
        One name has two values (M-1), as in ``{"a.b": 1, "a": {"b": 2}}``, or objects are nested deeper
        than `MAX_NESTING`.
    """
    flat: dict[str, object] = {}
    for name, value in _leaves(event, row):
        if name in names:
            if name in flat:
                raise EventError(f"event {row}: attribute {name!r} occurs twice, nested and with dots")
            flat[name] = value
    return flat


def _leaves(event: Mapping[Any, object], row: int) -> Iterator[tuple[str, object]]:
    stack: list[tuple[str, Mapping[Any, object], int]] = [("", event, 1)]
    while stack:
        prefix, node, depth = stack.pop()
        if depth > MAX_NESTING:
            raise EventError(f"event {row}: objects are nested deeper than {MAX_NESTING} levels")
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


def _present(fields: tuple[Field, ...], event: Mapping[Any, object]) -> dict[str, object]:
    found = ((field.name, event.get(field.name)) for field in fields)
    return {name: value for name, value in found if not is_missing(value)}


def _read_one(fields: tuple[Field, ...], event: Mapping[Any, object]) -> EventTable:
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
    return EventTable(points, lambda index: _present(fields, event))


def _read_many(fields: tuple[Field, ...], events: Sequence[Any]) -> EventTable:
    for kind in set(map(type, events)):
        if kind is not dict and not issubclass(kind, Mapping):
            row = next(row for row, event in enumerate(events) if type(event) is kind)
            raise EventError(f"event {row} is of type {kind.__name__}; expected a mapping of names to values")
    names = _flat_names(fields)
    if names is not None:
        events = [flatten(event, names, row) for row, event in enumerate(events)]
    parts = [encode_objects(field, [event.get(field.name) for event in events]) for field in fields]
    return EventTable(assemble(parts, len(events)), lambda index: _present(fields, events[index]))


def assemble(parts: Sequence[FloatArray], count: int) -> FloatArray:
    """Join encoded columns, each (n,) or (n, 2), into points (n, D)."""
    points = np.empty((count, sum(1 if part.ndim == 1 else 2 for part in parts)), np.float64)
    at = 0
    for part in parts:
        width = 1 if part.ndim == 1 else 2
        points[:, at : at + width] = part.reshape(count, width)
        at += width
    points += 0.0  # -0.0 and 0.0 become the same coordinate
    return points


def encode_objects(field: Field, values: list[Any]) -> FloatArray:
    """Encode Python objects; (n,) float64, for strings (n, 2).

    Raises
    ------
    EventError
        A value that `encode_cell` refuses.
    """
    kinds = set(map(type, values))
    if field.family == "number" and kinds <= _NUMBERS and values:
        try:
            coordinates = np.fromiter(values, np.float64, len(values))
        except OverflowError:
            pass
        else:
            # NaN makes both comparisons false, infinity lies outside every domain.
            if coordinates.min() >= field.low and coordinates.max() <= field.high:
                return coordinates
    elif field.family == "str" and kinds <= _STRINGS:
        return np.array([string_code(value) for value in values], np.float64).reshape(len(values), 2)
    cells = [encode_cell(field, value, row) for row, value in enumerate(values)]
    encoded = np.array(cells, np.float64).reshape(len(values), field.width)
    return encoded if field.width == 2 else encoded[:, 0]


def encode_cell(field: Field, value: Any, row: int) -> tuple[float, ...]:
    """Encode one value of any type.

    Raises
    ------
    EventError
        NaN, infinity, a number beyond float64, or a value outside the domain.
    """
    if is_missing(value):
        return (MISSING,) * field.width
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise refusal(field, row, value)
    canonical = field.read(value)
    if canonical is None:
        return (ALIEN,) * field.width
    if field.family == "str":
        return string_code(canonical)
    if not field.low <= canonical <= field.high:
        raise refusal(field, row, value)
    return (float(canonical),)


def refusal(field: Field, row: int, value: Any) -> EventError:
    """Say why `value` is no coordinate."""
    where = f"event {row}: attribute {field.name!r}"
    if isinstance(value, float | np.floating) and math.isnan(value):
        return EventError(
            f"{where} is NaN; where it is unknown, leave it out: no key or None in a dict, "
            "null in JSON, a masked cell in an array, or pass the pandas DataFrame itself"
        )
    canonical = field.read(value)
    if canonical is None or not math.isfinite(_float(canonical)):
        return EventError(f"{where} is infinite or beyond float64; leave it out or clip it")
    return EventError(f"{where} is {value}, outside its domain [{_end(field.low)}, {_end(field.high)}]")


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _end(value: float) -> str:
    return {LOWEST: "-inf", HIGHEST: "inf"}.get(value, f"{value:g}")
