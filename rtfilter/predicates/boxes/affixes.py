"""Long beginnings and ends that patterns ask for, as numbers, by which a hash table finds their boxes.

A box knows six bytes of a text from either end, and many paths and hosts share these. So a box of a pattern
with a longer beginning or end tells its kind, length and checksum by the low end of the coordinate
`identity`: no text lies below 0 there, so the box has the same texts as before.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple
from zlib import crc32

from rtfilter.events.encoding import STRING_BYTES, utf8
from rtfilter.predicates.operands.like import end as like_end
from rtfilter.predicates.operands.like import start as like_start
from rtfilter.predicates.operands.text_comparison import fold

BEGINNING, END = 0, 1
LONGEST: Final = 255
"""Bytes of an affix that count; the others are left out."""


LOWEST_END: Final = -(2.0**41)
"""No `Affix.end` is lower, but that of none."""
LOWEST_OF_BEGINNINGS: Final = -(2.0**40)
"""No `Affix.end` of a beginning is lower; those of ends are."""


class Affix(NamedTuple):
    """A beginning or an end, in bytes of the text without case. The longer one is the larger one."""

    length: int
    """At most `LONGEST`; 0 for none."""
    kind: int
    """`BEGINNING`, or `END`, of which the bytes are taken from the last to the first."""
    checksum: int
    """CRC-32 of the bytes."""

    @property
    def end(self) -> float:
        """The number that stands for it, at most -1; -inf for none."""
        if not self.length:
            return -inf
        return -float((self.kind << 8 | self.length) << 32 | self.checksum)


NO_AFFIX: Final = Affix(0, BEGINNING, 0)


def affix_of(operator: str, constant: str) -> Affix:
    """Return the longer one of beginning and end that a constraint asks for; none of few bytes.

    Parameters
    ----------
    operator : str
        ``prefix``, ``like``, ``like ignore case`` or ``ignore case``.
    constant : str
        Canonical: folded where the operator ignores case.
    """
    beginning, end = (utf8(text) for text in _AFFIXES[operator](constant))
    if max(len(beginning), len(end)) <= STRING_BYTES:
        return NO_AFFIX
    kind, data = (BEGINNING, beginning) if len(beginning) > len(end) else (END, end[::-1])
    data = data[:LONGEST]
    return Affix(len(data), kind, crc32(data))


_AFFIXES: Final[dict[str, Callable[[str], tuple[str, str]]]] = {
    "prefix": lambda text: (fold(text), ""),
    "like": lambda pattern: (fold(like_start(pattern)), fold(like_end(pattern))),
    "like ignore case": lambda pattern: (like_start(pattern), like_end(pattern)),
    "ignore case": lambda folded: ("", folded),
}
"""The folded beginning and end of all texts that satisfy an operator."""
