"""Encoding single values as coordinates, and refusing values that have none."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from rtfilter.basics.dtypes import FloatArray
from rtfilter.basics.errors import EventError
from rtfilter.basics.text import cut
from rtfilter.events.encoding import (
    ALIEN,
    HIGHEST,
    LOWEST,
    MISSING,
    Timestamp,
    is_missing,
    is_scalar,
    string_code,
    string_codes,
)
from rtfilter.events.fields import Field
from rtfilter.events.nesting import LISTS

_NUMBERS = frozenset((int, float))
_STRINGS = frozenset((str,))
_NONE = type(None)
_KNOWN = (str, int, float, np.number, np.bool_, Decimal, date, np.datetime64, UUID, *LISTS)
"""Types of values; a value of another type than the attribute satisfies nothing."""
_NONE_HAS = "which no event has; leave it out, or convert it"
"""The end of the error message for all other types."""


_NAN = (
    "is NaN; where it is unknown, leave it out: no key or None in a dict, null in JSON, "
    "a masked cell in an array, or pass the pandas DataFrame itself"
)
_INFINITE = "is infinite or beyond float64; leave it out or clip it"


def assemble(parts: Sequence[FloatArray], count: int) -> FloatArray:
    """Join encoded columns, each float64 (n,) or (n, width), into points, float64 (n, D); n is `count`."""
    widths = [1 if part.ndim == 1 else part.shape[1] for part in parts]
    points = np.empty((count, sum(widths)), np.float64)
    at = 0
    for part, width in zip(parts, widths, strict=True):
        points[:, at : at + width] = part.reshape(count, width)
        at += width
    points += 0.0  # -0.0 and 0.0 become the same coordinate
    return points


def encode_objects(field: Field, values: Sequence[Any], kinds: Set[type] | None = None) -> FloatArray:
    """Encode n Python objects; return float64 (n,), for strings (n, 3). Raises `EventError` as `encode_cell`.

    `kinds` are their types, if they are known.
    """
    if kinds is None:
        kinds = set(map(type, values))
    if _NONE in kinds:
        there = [row for row, value in enumerate(values) if value is not None]
        if not there:
            return np.full((len(values), field.width) if field.width > 1 else len(values), MISSING)
        some = _encode_plain(field, [values[row] for row in there], kinds - {_NONE})
        if some is not None:
            found = np.full((len(values), field.width), MISSING)
            found[there] = some.reshape(len(there), field.width)
            return found if field.width > 1 else found[:, 0]
    else:
        plain = _encode_plain(field, values, kinds)
        if plain is not None:
            return plain
    cells = [encode_cell(field, value, row) for row, value in enumerate(values)]
    encoded = np.array(cells, np.float64).reshape(len(values), field.width)
    return encoded if field.width > 1 else encoded[:, 0]


def _encode_plain(field: Field, values: Sequence[Any], kinds: Set[type]) -> FloatArray | None:
    """Encode n numbers, or n strings, of these types; return None for others, and if one may be refused."""
    if field.family == "number" and kinds <= _NUMBERS and values and field.sharp:
        try:
            coordinates = np.fromiter(values, np.float64, len(values))
        except OverflowError:
            return None
        # NaN makes both comparisons false, infinity lies outside every domain.
        inside = coordinates.min() >= field.low and coordinates.max() <= field.high
        return coordinates if inside else None
    if field.family == "str" and kinds <= _STRINGS:
        return string_codes(values)
    return None


def encode_cell(field: Field, value: Any, row: int) -> tuple[float, ...]:
    """Encode one value of any type, in a row of events; return one coordinate, for a string three.

    Raises `EventError` for a value that is NaN, infinite, beyond float64, outside the domain, or of a type
    that no event has.
    """
    if is_missing(value):
        return (MISSING,) * field.width
    if is_scalar(value):
        return encode_cell(field, value[()], row)
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise refusal(field, row, value)
    canonical = field.read(value)
    if canonical is None:
        require_usable(field.name, value, row)
        return (ALIEN,) * field.width
    if field.family == "str":
        return string_code(canonical)
    if not field.low <= canonical <= field.high:
        raise refusal(field, row, value)
    return (float(canonical),)


def require_usable(name: str, value: Any, row: int | None = None) -> None:
    """Raise `EventError` for NaN, infinity, and values of types that no event has."""
    if is_scalar(value):
        value = value[()]
    if isinstance(value, Decimal) and not value.is_finite():
        value = math.nan if value.is_nan() else math.inf
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        raise EventError.about(name, _NAN if math.isnan(value) else _INFINITE, row)
    if not isinstance(value, _KNOWN) or isinstance(value, np.timedelta64):  # NumPy takes it for an integer
        raise EventError.about(name, f"is of the type {type(value).__name__}, {_NONE_HAS}", row)


def meaningless(name: str, kind: object) -> EventError:
    """Return the error of a column whose type no event has."""
    return EventError.about(name, f"is a column of the type {kind}, {_NONE_HAS}")


def refusal(field: Field, row: int, value: Any) -> EventError:
    """Return the error that says why `value` has no coordinate."""
    if isinstance(value, float | np.floating) and math.isnan(value):
        reason = _NAN
    else:
        canonical = field.read(value)
        if canonical is None or not math.isfinite(_float(canonical)):
            reason = _INFINITE
        else:
            domain = f"[{_end(field, field.low)}, {_end(field, field.high)}]"
            reason = f"is {cut(str(value))}, outside its domain {domain}"
    return EventError.about(field.name, reason, row)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _end(field: Field, value: float) -> str:
    if field.family == "timestamp" and isinstance(value, int):
        return str(Timestamp(value))
    return {LOWEST: "-inf", HIGHEST: "inf"}.get(value, repr(value).removesuffix(".0"))
