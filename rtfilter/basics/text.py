"""Text for messages about input: values, names, and a place in a text."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from unicodedata import normalize

_VALUE = 60
"""Longest value, in characters."""
_NAMES = 8
"""Most names of a list."""
_LINE = 100
"""Longest piece of a source line, in characters."""
_DIGITS = 40
"""Most digits of an integer."""


def cut(text: str) -> str:
    """Return the beginning of a text that is too long for a message; dots stand for the rest."""
    return text if len(text) <= _VALUE else text[: _VALUE - 3] + "..."


def shown(value: object) -> str:
    """Return ``repr`` of a value, cut to fit a message."""
    if isinstance(value, int) and abs(value) > 10**_DIGITS:
        return f"<more than {_DIGITS} digits>"  # its repr is slow, and an error beyond 4300 digits
    try:
        return cut(repr(value[:_VALUE] if isinstance(value, str) else value))
    except (ValueError, RecursionError):  # a huge integer inside, or deeply nested lists
        return f"<{type(value).__name__}>"


def plain(value: float, digits: int, separator: str = "") -> str:
    """Return a number with about `digits` significant digits, without an exponent in the usual range.

    Parameters
    ----------
    value : float
    digits : int
        Significant digits after which decimals are cut; the whole part is never cut.
    separator : str
        Text between thousands.
    """
    if not 1e-6 <= abs(value) < 1e21:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - floor(log10(abs(value))))
    text = f"{value:,.{decimals}f}".replace(",", separator)
    return text.rstrip("0").rstrip(".") if "." in text else text


def composed(name: str) -> str:
    """Return the name of an attribute in Unicode's form NFC: "é" may be one character, or two."""
    return name if name.isascii() else normalize("NFC", name)


def listed(names: Sequence[str]) -> str:
    """Return names joined with commas; dots stand for all after the first few."""
    return ", ".join(names[:_NAMES]) + (", ..." if len(names) > _NAMES else "")


def numbered(count: int, noun: str) -> str:
    """Return a count with its noun, such as ``1 match`` or ``2,000 matches``."""
    plural = noun + ("es" if noun.endswith(("ch", "x")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def placed(message: str) -> tuple[str, str]:
    """Return the place of a wrong value, such as ``schema.a``, and what is wrong, of msgspec's message."""
    what, _, place = message.partition(" - at `$")
    return place.removesuffix("`").removeprefix("."), what


def printable(text: str) -> str:
    """Replace characters that move the caret, control the terminal, or cannot be encoded."""
    return "".join(char if char.isprintable() else "?" for char in text)


def caret(source: str, position: int) -> str:
    """Return the line of `source` around `position`, 0-based, with a caret below it."""
    position = min(max(position, 0), len(source))
    start = source.rfind("\n", 0, position) + 1
    end = source.find("\n", position)
    end = len(source) if end < 0 else end
    left = max(start, position - _LINE // 2)
    right = min(end, left + _LINE)
    head = "..." if left > start else ""
    tail = "..." if right < end else ""
    line = printable(source[left:right].replace("\t", " "))
    return f"    {head}{line}{tail}\n    {' ' * (len(head) + position - left)}^"
