"""Comparison of texts: without case, and the reasons why they differ. Characters count from 1.

Case is ignored by Unicode's default caseless matching (The Unicode Standard, 3.13.5). Two texts are equal
except for case if `fold`, which is ``str.casefold``, returns the same for both: ``STRASSE`` equals
``straße``. Neither a locale nor normalization matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Final, NamedTuple

from rtfilter.basics.text import shown
from rtfilter.events.encoding import string, utf8

MOST_STARTS: Final = 8
"""Most beginnings that `starts` returns."""

_FOLDED_TO_ASCII: Final = (
    "\u0130\u00df\u1e9e\u01f0\u1e96\u1e97\u1e98\u1e99\u1e9a\u017f\u212a"
    "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06"
)
"""The characters outside ASCII whose fold begins inside it."""
_UNFOLDED: Final[dict[str, list[tuple[str, str]]]] = {}
"""The characters whose fold begins with an ASCII letter, each with its fold, by that letter."""
for _char in ascii_letters + _FOLDED_TO_ASCII:
    _UNFOLDED.setdefault(_char.casefold()[0], []).append((_char, _char.casefold()))


def fold(text: str) -> str:
    """Return the text without differences of case; a second fold changes nothing."""
    return text.casefold()


def starts(folded: str, enough: int) -> list[str]:
    """Return the possible beginnings of texts whose fold begins with `folded`.

    Parameters
    ----------
    folded : str
        A result of `fold`.
    enough : int
        Number of characters that suffice.

    Returns
    -------
    list of str
        At most `MOST_STARTS`; every such text begins with one of them. They end at the first character
        outside ASCII, because most of these have more than one other form.
    """
    found = [("", 0)]  # a beginning, and how much of `folded` it covers
    for _ in range(enough):
        longer: list[tuple[str, int]] = []
        for text, at in found:
            char = folded[at : at + 1]
            if not char or not char.isascii():
                longer.append((text, at))
                continue
            rest = folded[at:]
            for form, whole in _UNFOLDED.get(char, [(char, char)]):
                if rest.startswith(whole) or whole.startswith(rest):
                    longer.append((text + form, at + len(whole)))
        if len(longer) > MOST_STARTS:
            break
        found = longer
    return [text for text, _ in found]


def encoded(values: Sequence[object], folded: bool) -> tuple[list[int], bytes]:
    """Return the size of each text as UTF-8, -1 where a value is none, and all texts in a row.

    `folded` asks for the texts without differences of case.
    """
    try:
        whole = "".join(values)  # type: ignore[arg-type]
        if whole.isascii():
            return list(map(str.__len__, values)), (fold(whole) if folded else whole).encode()  # type: ignore[arg-type]
    except TypeError:  # some have no text, or UUIDs
        pass
    parts = [encoded_one(value, folded) for value in values]
    return [-1 if part is None else len(part) for part in parts], b"".join(filter(None, parts))


def encoded_one(value: object, folded: bool) -> bytes | None:
    """Return a text as UTF-8, without differences of case if `folded`; None if the value is none."""
    text = string(value)
    return None if text is None else utf8(fold(text) if folded else text)


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
