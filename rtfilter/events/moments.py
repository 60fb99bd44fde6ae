"""Timestamps as text and as datetime64. `docs/predicates.md` has a table of the accepted forms of text."""

from __future__ import annotations

import re
from datetime import datetime
from math import gcd
from typing import Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, IntArray

EXAMPLE: Final = "2024-05-31T12:00:00Z"
_DATE: Final = r"[0-9]{4}(?:-?[0-9]{2}-?[0-9]{2}|-?W[0-9]{2}(?:-?[0-9])?)"
_FORM: Final = re.compile(rf"{_DATE}(?:[Tt ](?!24).*)?", re.ASCII | re.DOTALL)
"""The accepted form; Python also reads other separators and, by version, an hour of 24."""
_REASONS: Final = tuple(
    (re.compile(form, re.ASCII), reason)
    for form, reason in (
        (r"\s.*|.*\s", "it has blanks around it"),
        (
            rf"{_DATE}[Tt ]([0-9]{{2}}:[0-9]{{2}}:|[0-9]{{4}})60.*",
            "it is a leap second, which no timestamp has",
        ),
        (rf"{_DATE}[Tt ]24.*", "its hour is 24; write 00:00:00 of the next day"),
        (r"[0-9]{4}-[0-9]{3}([Tt ].*)?", "it is an ordinal date; write year, month and day"),
        (r"[0-9]{4}(-[0-9]{2})?", "it has no day"),
        (r"[-+]?[0-9]{7,}([.,][0-9]*)?", "it is a number"),
        (rf"{_DATE}([Zz]|[-+][0-9]{{2}}:?[0-9]{{2}})", "it has an offset and no time"),
    )
)
"""Forms that look like a timestamp, each with its mistake; the first one that fits counts."""
_SEPARATED: Final = re.compile(rf"{_DATE}[^Tt ][0-9].*", re.ASCII | re.DOTALL)
_TOLD: Final = re.compile(r"(year|month|day|hour|minute|second|Invalid week|Invalid day)\b")
"""The parts of Python's error messages that are useful to users."""
_MOST: Final = 2**63 - 1
_DAY: Final = 86_400_000_000
_UNITS: Final = {
    "W": (7 * _DAY, 1), "D": (_DAY, 1), "h": (_DAY // 24, 1), "m": (60_000_000, 1), "s": (1_000_000, 1),
    "ms": (1000, 1), "us": (1, 1), "ns": (1, 10**3), "ps": (1, 10**6), "fs": (1, 10**9), "as": (1, 10**12),
}  # fmt: skip
"""Microseconds of a unit of datetime64, as a fraction."""
_CALENDAR: Final = {"Y": 300_000, "M": 12 * 300_000}
"""Units without a fixed length, with counts that are certainly outside int64 microseconds."""


def read_moment(text: str) -> datetime | None:
    """Return the date or time in a text, of the years 1 to 9999; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        if not text.endswith("z"):
            return None
        return read_moment(text[:-1] + "Z")
    # Most texts look like the example.
    if text[4:5] == "-" == text[7:8] and text[10:11] in "Tt " and text[11:13] != "24":
        return found
    return found if _FORM.fullmatch(text) else None


def why_no_moment(text: str) -> str:
    """Return why a text is no timestamp, as a phrase."""
    for form, reason in _REASONS:
        if form.fullmatch(text):
            return reason
    try:
        datetime.fromisoformat(text.removesuffix("z"))
    except ValueError as error:
        if _TOLD.match(str(error)):
            return f"{str(error)[0].lower()}{str(error)[1:]}"
    if _SEPARATED.fullmatch(text):
        return "between date and time is T, t or a blank"
    return f"it is not like {EXAMPLE}"


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
