"""The place where a text differs from the wanted one, for explanations. Characters count from 1."""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.text import shown


class Difference(NamedTuple):
    """The first difference of a value from a text; ``str()`` makes a phrase of it."""

    place: int
    """Characters of the value before it."""
    found: str
    """The character there; empty where the value has ended, or all of it where the text has ended."""
    wanted: str
    """The character of the text; all that is left of it where the value has ended, or nothing."""

    def __str__(self) -> str:
        if not self.wanted:
            what = "ends" if not self.found else "goes on"
            rest = f", with {shown(self.found)}" if self.found else ""
            return f"{what} after character {self.place}{rest}"
        if not self.found:
            return f"lacks {shown(self.wanted)}" + (f" after character {self.place}" if self.place else "")
        return f"character {self.place + 1} is {shown(self.found)}, not {shown(self.wanted)}"


def difference(value: str, text: str, place: int = 0) -> Difference:
    """Return where a value, from `place` on, first differs from a text that it does not begin with.

    The value may go on after the text; then this is the difference.
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
