"""Letters that differ in case only, by Unicode's default caseless matching (The Unicode Standard, 3.13.5).

Two texts are equal except for case if `fold`, which is ``str.casefold``, returns the same for both:
``STRASSE`` equals ``straße``. Neither a locale nor normalization matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters
from typing import Final

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
