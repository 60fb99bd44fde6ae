"""Timestamps as text: the accepted form, and the reasons for refusals. `docs/predicates.md` has a table."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

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
