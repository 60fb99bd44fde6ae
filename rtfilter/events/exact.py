"""Exact whole numbers: the difference between an integer and its float64 coordinate.

An integer of at least 2**53 may share its float64 with neighbours. Its *rest*, the integer less that float64,
makes it exact again: pairs of a coordinate and a rest have the order of the integers.
"""

from __future__ import annotations

from math import gcd
from typing import Final, NamedTuple

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, FloatArray, IntArray

MOST_REST: Final = 2**63 - 1
"""Largest rest; only integers of more than 115 bits have a larger one."""
_MOST: Final = 2**63 - 1
_DAY: Final = 86_400_000_000
_UNITS: Final = {
    "W": (7 * _DAY, 1), "D": (_DAY, 1), "h": (_DAY // 24, 1), "m": (60_000_000, 1), "s": (1_000_000, 1),
    "ms": (1000, 1), "us": (1, 1), "ns": (1, 10**3), "ps": (1, 10**6), "fs": (1, 10**9), "as": (1, 10**12),
}  # fmt: skip
"""Microseconds of a unit of datetime64, as a fraction."""
_CALENDAR: Final = {"Y": 300_000, "M": 12 * 300_000}
"""Units without a fixed length, with counts that are certainly outside int64 microseconds."""


def rests(whole: AnyArray, coordinates: FloatArray) -> IntArray:
    """Return the rests of numbers, int64 (n,).

    Parameters
    ----------
    whole : (n,), of integers or float64
        The numbers; a float64 has no rest.
    coordinates : float64 (n,)
        Their nearest finite float64.
    """
    if whole.dtype.kind == "f":
        return np.zeros(len(whole), np.int64)
    # Modulo 2**64: the float64 of a large integer of 64 bits may be 2**63 or 2**64, which overflow int64.
    folded = np.where(coordinates >= 2.0**63, coordinates - 2.0**64, coordinates)
    found: IntArray = whole.astype(np.int64) - folded.astype(np.int64)
    return found


def rest_of(number: float, coordinate: float) -> int:
    """Return the rest of one number, limited to `MOST_REST` in size."""
    if isinstance(number, float):
        return 0
    return min(max(int(number) - int(coordinate), -MOST_REST), MOST_REST)


class Instants(NamedTuple):
    """Moments (n,) in whole microseconds since 1970-01-01T00:00:00Z."""

    microseconds: IntArray
    """The moments, rounded down; 0 for NaT and moments out of range."""
    cut: BoolArray
    """True if rounding down changed the value."""
    missing: BoolArray
    """True for NaT."""
    beyond: BoolArray
    """True if the moment is outside int64 microseconds."""


def instants(values: AnyArray) -> Instants:
    """Return datetime64 values of any unit, (n,), in microseconds."""
    counts, missing = values.astype(np.int64), np.isnat(values)
    unit, step = np.datetime_data(values.dtype)
    beyond = np.zeros(len(values), np.bool_)
    if unit in _CALENDAR:
        beyond = _beyond(counts, _CALENDAR[unit] // step) & ~missing
        days = np.where(beyond | missing, np.zeros(1, values.dtype), values).astype("datetime64[D]")
        counts, unit, step = days.astype(np.int64), "D", 1
    # A datetime64 without a unit can only be NaT.
    many, parts = _UNITS.get(unit, (1, 1))
    common = gcd(many * step, parts)
    many, parts = many * step // common, parts // common
    whole, left = (counts, np.zeros_like(counts)) if parts == 1 else np.divmod(counts, parts)
    beyond |= _beyond(whole, _MOST // many - (parts > 1)) & ~missing
    found = np.where(beyond | missing, 0, whole) * many
    if parts > 1:
        left = np.where(beyond | missing, 0, left) * many
        found, left = found + left // parts, left % parts
    return Instants(found, left > 0, missing, beyond)


def microseconds_of(value: np.datetime64) -> int | None:
    """Return one datetime64 in microseconds; None for NaT and moments out of range."""
    if np.isnat(value):
        return None
    unit, step = np.datetime_data(value.dtype)
    count = int(value.astype(np.int64))
    if unit in _CALENDAR:
        if abs(count) > _CALENDAR[unit] // step:
            return None
        unit, step, count = "D", 1, int(value.astype("datetime64[D]").astype(np.int64))
    many, parts = _UNITS[unit]
    found = count * step * many // parts
    return found if abs(found) <= _MOST else None


def _beyond(counts: IntArray, most: int) -> BoolArray:
    found: BoolArray = (counts > most) | (counts < -most)
    return found
