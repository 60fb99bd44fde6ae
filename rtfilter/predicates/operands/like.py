"""Patterns of text as in LIKE: % stands for any text, _ for one character (`docs/predicates.md`).

A pattern is a few pieces with % between them. Each piece has a fixed length, so the first place where it fits
is the best: a match is one scan of the value from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import numbered, shown
from rtfilter.events.encoding import utf8
from rtfilter.predicates.operands.text_comparison import Difference, Reason, difference

ANY: Final = 0xFF
"""The byte of % in a pattern `in_bytes`; UTF-8 has no such byte."""
EACH: Final = 0xFE
"""The byte of _, likewise."""
MAX_PARTS: Final = 64
"""Most texts with _ between them and no %: all are compared at each place of the first one."""

_ONE: Final = ""
"""The token of _; that of % is None."""
_ANY: Final = "\ufdd0"
"""The character for % in a pattern that is treated as a text; no text has it."""
_EACH: Final = "\ufdd1"
"""The same for _."""
_WILDCARDS: Final = re.compile(rb"\\(.)|[%_]", re.DOTALL)
_BYTES: Final = {b"%": bytes((ANY,)), b"_": bytes((EACH,))}
_LONG: Final = 256
"""Patterns above this length are not cached in prepared form: the cache is limited by count only."""


class _Piece(NamedTuple):
    """A piece of a pattern between two %: texts at fixed places, with any characters between them."""

    length: int
    parts: tuple[tuple[int, str], ...]

    def fits(self, value: str, place: int) -> bool:
        return all(value.startswith(text, place + offset) for offset, text in self.parts)

    def misfit(self, value: str, place: int) -> Difference | None:
        """Return the first difference of a value from the piece at `place`; None if it fits."""
        for offset, text in self.parts:
            if not value.startswith(text, place + offset):
                return difference(value, text, place + offset)
        return Difference(len(value), "", "") if len(value) < place + self.length else None

    def find(self, value: str, place: int, end: int) -> int:
        """Return the first place, from `place` on, where the piece fits before `end`; -1 for none."""
        last = end - self.length
        if not self.parts:
            return place if place <= last else -1
        offset, text = self.parts[0]
        while place <= last:
            place = value.find(text, place + offset, last + offset + len(text)) - offset
            if place < 0:
                break
            if len(self.parts) == 1 or self.fits(value, place):
                return place
            place += 1
        return -1


class _Pieces(NamedTuple):
    """A pattern cut into pieces; without % the first piece is the whole pattern."""

    first: _Piece
    middle: tuple[_Piece, ...]
    last: _Piece | None


def escaped(text: str) -> str:
    """Return the pattern of one text: with a backslash before each special character."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def canonical_like(pattern: str, escape: str = "\\") -> str:
    """Return a pattern in canonical form: escaped by backslashes; among wildcards first _, then one %.

    Raises `PredicateError`: `escape` stands before another character than %, _ and itself, or there are too
    many parts.
    """
    if "_" not in pattern and escape not in pattern and "\\" not in pattern and "%%" not in pattern:
        return pattern
    written: list[str] = []
    wildcards: list[str] = []
    for token in _tokens(pattern, escape):
        if not token:
            wildcards.append("%" if token is None else "_")
        else:
            written += _joined(wildcards)
            wildcards = []
            written.append(f"\\{token}" if token in "\\%_" else token)
    found = "".join([*written, *_joined(wildcards)])
    _pieces(found)
    return found


def simplest(pattern: str) -> tuple[str, str]:
    """Return the simplest operator and constant that mean the same as LIKE with a canonical pattern."""
    pieces = _prepared(pattern)
    text = start(pattern)
    if len(text) < pieces.first.length or pieces.middle or (pieces.last is not None and pieces.last.length):
        return "like", pattern
    return "=" if pieces.last is None else "prefix", text


def start(pattern: str) -> str:
    """Return the beginning of all values that fit a canonical pattern."""
    if pattern.startswith("%"):  # a shortcut, as for a suffix
        return ""
    parts = _prepared(pattern).first.parts
    return parts[0][1] if parts and parts[0][0] == 0 else ""


def end(pattern: str) -> str:
    """Return the end of all values that fit a canonical pattern."""
    pieces = _prepared(pattern)
    last = pieces.first if pieces.last is None else pieces.last
    place, text = last.parts[-1] if last.parts else (0, "")
    return text if place + len(text) == last.length else ""


def in_bytes(pattern: str) -> bytes:
    """Return a canonical pattern as UTF-8, with `ANY` for % and `EACH` for _."""
    return _WILDCARDS.sub(lambda found: found[1] or _BYTES[found[0]], utf8(pattern))


def is_like(value: str, pattern: str) -> bool:
    """Return whether a value fits a canonical pattern."""
    first, middle, last = _prepared(pattern)
    if last is None:
        return len(value) == first.length and first.fits(value, 0)
    place, end = first.length, len(value) - last.length
    if place > end or not first.fits(value, 0) or not last.fits(value, end):
        return False
    for piece in middle:
        place = piece.find(value, place, end)
        if place < 0:
            return False
        place += piece.length
    return True


def with_stars(pattern: str) -> str | None:
    """Return a canonical pattern in the notation of event patterns, with * for %; None if it has a _."""
    tokens = list(_tokens(pattern, "\\"))
    if _ONE in tokens:
        return None
    return "".join("*" if token is None else f"\\{token}" if token in "*\\" else token for token in tokens)


def is_wider(wide: str, pattern: str) -> bool:
    """Return whether all texts that fit a canonical pattern certainly fit a wide one.

    The wildcards of the pattern are treated as characters that only wildcards match. False may mean unknown.
    """
    tokens = list(_tokens(pattern, "\\"))
    texts = {token for token in _tokens(wide, "\\") if token}
    if _ANY in texts or _EACH in texts or (None in tokens and _ONE in _tokens(wide, "\\")):
        return False
    return is_like("".join(_ANY if token is None else token or _EACH for token in tokens), wide)


def sample(pattern: str, filler: str = "", letter: str = "_") -> str:
    """Return a value that fits a canonical pattern: `filler` for each %, and `letter` for each _."""
    return "".join(filler if token is None else token or letter for token in _tokens(pattern, "\\"))


def why_unlike(found: str, pattern: str) -> Reason:
    """Return the reason why a value does not fit a canonical pattern, as a phrase; empty if it fits.

    `agrees` is the number of characters, from the first on, that agree with the pattern.
    """
    first, middle, last = _prepared(pattern)
    differs = first.misfit(found, 0)
    if differs is not None:
        return Reason(f"does not begin like {_shown(first)}: {differs}", None, differs.place)
    place = first.length
    if last is None:
        rest = found[place:]
        said = f"goes on after character {place}, with {shown(rest)}" if rest else ""
        return Reason(said, None, place)
    missing = place + sum(piece.length for piece in middle) + last.length - len(found)
    if missing > 0:
        return Reason(f"too short by {numbered(missing, 'character')}", None, place)
    end = len(found) - last.length
    differs = last.misfit(found, end)
    if differs is not None:
        return Reason(f"does not end like {_shown(last)}: {differs}", None, place)
    for piece in middle:
        at = piece.find(found, place, end)
        if at < 0:
            after = f" after character {place}" if place else ""
            before = f" before character {end + 1}" if last.length else ""
            return Reason(
                f"lacks {_shown(piece)}{after}{' and' * bool(after and before)}{before}", None, place
            )
        place = at + piece.length
    return Reason("", None, place)


def _tokens(pattern: str, escape: str) -> Iterator[str | None]:
    """Yield the characters of a pattern, `_ONE` and None."""
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            char = next(chars, "")
            if char not in ("%", "_", escape):
                raise PredicateError(f"in LIKE, {escape} must be followed by %, _ or {escape}")
            yield char
        else:
            yield None if char == "%" else _ONE if char == "_" else char


def _joined(wildcards: list[str]) -> list[str]:
    """Return adjacent wildcards in canonical order."""
    return ["_" * wildcards.count("_"), "%" if "%" in wildcards else ""]


def _pieces(pattern: str) -> _Pieces:
    found: list[_Piece] = []
    parts: list[tuple[int, list[str]]] = []
    length, follows = 0, False  # follows: a character belongs to the part before it
    for token in _tokens(pattern, "\\"):
        if token is None:
            found.append(_piece(length, parts))
            length, follows, parts = 0, False, []
            continue
        if token == _ONE:
            follows = False
        elif follows:
            parts[-1][1].append(token)
        else:
            parts.append((length, [token]))
            follows = True
        length += 1
    last = _piece(length, parts)
    return _Pieces(last, (), None) if not found else _Pieces(found[0], tuple(found[1:]), last)


def _piece(length: int, parts: list[tuple[int, list[str]]]) -> _Piece:
    if len(parts) > MAX_PARTS:
        raise PredicateError(f"a LIKE pattern has at most {MAX_PARTS} texts between _ without a % among them")
    return _Piece(length, tuple((offset, "".join(chars)) for offset, chars in parts))


def _shown(piece: _Piece) -> str:
    """Return a piece as messages show it, with _ for any character."""
    chars = ["_"] * piece.length
    for offset, text in piece.parts:
        chars[offset : offset + len(text)] = text
    return shown("".join(chars))


_cached_pieces = lru_cache(maxsize=1024)(_pieces)  # each is asked for several times in a row


def _prepared(pattern: str) -> _Pieces:
    return _cached_pieces(pattern) if len(pattern) <= _LONG else _pieces(pattern)
