"""Reasons why a value fails, as the first place where a text differs. Characters count from 1."""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.text import shown


class Reason(NamedTuple):
    """The reason why a value does not satisfy a constraint."""

    phrase: str
    """The amount by which it fails, such as ``too high by 2.5``."""
    distance: float | None = None
    """For numbers and timestamps: the distance, in seconds for timestamps."""
    agrees: int | None = None
    """For text: the number of its first characters that agree; for an address: of its first bits."""


class Difference(NamedTuple):
    """The first difference of a value from a text; ``str()`` returns it as a phrase."""

    place: int
    """Number of characters of the value before it."""
    found: str
    """The character of the value; empty if the value has ended, or its rest if the text has ended."""
    wanted: str
    """The character of the text; its rest if the value has ended, empty if the text has."""

    def __str__(self) -> str:
        if not self.wanted:
            what = "ends" if not self.found else "goes on"
            rest = f", with {shown(self.found)}" if self.found else ""
            return f"{what} after character {self.place}{rest}"
        if not self.found:
            return f"lacks {shown(self.wanted)}" + (f" after character {self.place}" if self.place else "")
        return f"character {self.place + 1} is {shown(self.found)}, not {shown(self.wanted)}"


def difference(value: str, text: str, place: int = 0) -> Difference:
    """Return the first difference of a value, from `place` on, and a text that it does not begin with.

    A value that continues after the text differs there.
    """
    common = 0
    while value[place + common : place + common + 1] == text[common : common + 1] != "":
        common += 1
    at = place + common
    if common == len(text):
        return Difference(at, value[at:], "")
    if at >= len(value):
        return Difference(len(value), "", text[common:])
    return Difference(at, value[at], text[common])


def why_unequal(found: str, constant: str) -> Reason:
    """Return the reason why a text is not equal to another one."""
    differs = difference(found, constant)
    return Reason(str(differs), None, differs.place)
