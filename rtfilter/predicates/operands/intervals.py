"""Times relative to that of the batch, and the notation of intervals (`docs/predicates.md`)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import shown
from rtfilter.events.fields import NOW, microseconds_at

LONGEST: Final = 10**18
"""Most microseconds, some 31,000 years: the sum of a time and an interval then fits int64."""
_UNITS: Final = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
}
_PART: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*", re.IGNORECASE | re.ASCII)
_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_DURATION: Final = re.compile(
    rf"([-+]?)P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
    re.ASCII,
)
"""ISO 8601 without years and months."""


class _Now(NamedTuple):
    offset: int = 0


class Now(_Now):
    """The time of the batch plus an interval: an operand of comparisons with a timestamp.

    Parameters
    ----------
    offset : int
        Microseconds after the time of the batch; negative before it.

    Raises
    ------
    PredicateError
        The offset is more than `LONGEST`, or no integer.
    """

    __slots__ = ()

    def __new__(cls, offset: int = 0) -> Now:
        """Check the offset."""
        if type(offset) is not int or abs(offset) > LONGEST:
            raise PredicateError(f"an interval has at most 10**18 microseconds; got {shown(offset)}")
        return tuple.__new__(cls, (offset,))

    def of(self, row: Mapping[str, object]) -> int:
        """Return the time in microseconds since 1970, based on that of the row's batch or of the system."""
        now = row.get(NOW)
        return (now if isinstance(now, int) else microseconds_at(time.time())) + self.offset

    def __str__(self) -> str:
        if not self.offset:
            return "NOW()"
        number, unit = _measured(abs(self.offset))
        return f"NOW() {'-' if self.offset < 0 else '+'} INTERVAL '{number} {unit}{'s' * (number != '1')}'"

    def duration(self) -> str:
        """Return the offset as an ISO 8601 duration, as ``-PT1H``."""
        number, unit = _measured(abs(self.offset))
        return f"{'-' * (self.offset < 0)}P{'T' * (unit != 'day')}{number}{unit[0].upper()}"


def _measured(offset: int) -> tuple[str, str]:
    """Return an interval in the largest unit of which it is a whole number, else in seconds."""
    for unit in ("day", "hour", "minute"):
        if offset and offset % _UNITS[unit] == 0:
            return str(offset // _UNITS[unit]), unit
    seconds, rest = divmod(offset, _UNITS["second"])
    return (f"{seconds}.{rest:06}".rstrip("0") if rest else str(seconds)), "second"


def interval(text: str) -> int:
    """Return the microseconds of an SQL interval, as ``5 minutes`` or ``1 day 12 hours``.

    Raises `PredicateError`: the text is no interval; the message shows how to write one.
    """
    parts, end = [], 0
    while end < len(text) and (found := _PART.match(text, end)):
        size = _UNITS.get(found[2].lower().removesuffix("s"))
        if size is None:
            break
        parts.append(Fraction(found[1]) * size)
        end = found.end()
    if not parts or end < len(text):
        raise PredicateError(
            f"{shown(text)} is no interval; write INTERVAL '5 minutes', with the units second, minute, hour, "
            "day and week (months and years are not all of one length)"
        )
    return _whole(sum(parts, Fraction(0)), text)


def duration(text: object) -> int:
    """Return the microseconds of an ISO 8601 duration, as ``-PT1H``. Raises as `interval`."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise PredicateError(
            f"{shown(text)} is no duration; write one as in ISO 8601, -PT1H for an hour ago or P1D for a day "
            "ahead, without years and months"
        )
    parts = [
        Fraction(number or 0) * size for number, size in zip(found.groups()[1:], _UNITS.values(), strict=True)
    ]
    return _whole(sum(parts, Fraction(0)), text) * (-1 if found[1] == "-" else 1)


def _whole(offset: Fraction, text: object) -> int:
    if offset.denominator != 1:
        raise PredicateError(f"{shown(text)} is no whole number of microseconds")
    return int(offset)
