"""The words of SQL conditions: keywords, names, constants, symbols (normative text: `docs/predicates.md`)."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, NoReturn

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import composed
from rtfilter.predicates.operands.expressions import RESERVED, WORD
from rtfilter.predicates.operands.text_operators import FUNCTIONS

SUPPORTED: Final = (
    "supported are =, <>, <, <=, >, >=, + - * /, BETWEEN, IN, LIKE, IS NULL, AND, OR, NOT, TRUE, FALSE, "
    f"ANY, ALL, NONE, LOWER, UPPER, {', '.join(FUNCTIONS)}, NOW, DISTANCE_KM"
)

Kind = Literal["keyword", "name", "number", "text", "symbol", "end"]

_WORDS: Final = re.compile(
    rf"""
    \s* (?:
      (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<number> 0[xX][0-9a-fA-F]+ [lL]? | [0-9]+ [lL]
                | (?: [0-9]+\.?[0-9]* | \.[0-9]+ ) (?: [eE][-+]?[0-9]+ )? [dDfF]? )
    | (?P<text>   ' (?: [^'] | '' )*+ ' )
    | (?P<quoted> " (?: [^"] | "" )*+ " )
    | (?P<name>   {WORD} )
    | (?P<symbol> <> | != | <= | >= | == | [=<>(),.+*-] | /(?!\*) )
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_OCTAL: Final = re.compile(r"0[0-9]+[lL]?")
_SAME: Final = {"!=": "<>", "==": "="}
_REFUSED: Final = {
    ";": "expected one condition, without semicolons",
    "!": "! is not supported; write NOT",
    "|": "| and || are not supported",
    "%": "% is not supported; arithmetic has + - * /",
    **dict.fromkeys("?@$", "a placeholder is not supported; write the constant itself"),
    **dict.fromkeys("'\"", "not an SQL condition: this quote is not closed"),
}
"""The error messages for characters that begin no word."""


def number_of(text: str) -> int | float:
    """Return the number of a word of the kind ``number``; infinite beyond float64."""
    if text[:2] in ("0x", "0X"):
        return int(text[2:].rstrip("lL"), 16)
    text = text.rstrip("lL")
    try:
        return int(text)
    except ValueError:  # not of this form, or too many digits for an int
        return float(text.rstrip("dDfF"))


class Word(NamedTuple):
    """A word of a condition."""

    kind: Kind
    text: str
    """A keyword in capitals, a string or a name without its quotes, or any other word as written."""
    start: int
    """Offset of its first character."""
    quoted: bool = False
    """True if a name is in double quotes."""


def words_of(source: str) -> list[Word]:
    """Return the words of a condition, without blanks and comments; the last one has the kind ``end``.

    Raises `PredicateError`: the text has characters that form no word; the message shows the place.
    """
    words: list[Word] = []
    following, end, match, new = 0, len(source.rstrip()), _WORDS.match, tuple.__new__  # faster than Word()
    while following < end:
        found = match(source, following)
        if found is None:
            _refuse(source, end - len(source[following:end].lstrip()))
        kind = found.lastgroup
        at, following = found.span(found.lastgroup or 0)
        text = source[at:following]
        if kind == "comment":
            continue
        if kind == "name":
            reserved = text.upper() in RESERVED and not (words and words[-1].text == ".")
            word = ("keyword", text.upper(), at, False) if reserved else ("name", composed(text), at, False)
        elif kind == "symbol":
            word = ("symbol", _SAME.get(text, text), at, False)
        elif kind == "number":
            _require_number(source, at, text)
            word = ("number", text, at, False)
        elif kind == "text":
            word = ("text", text[1:-1].replace("''", "'"), at, False)
        else:
            word = ("name", composed(text[1:-1].replace('""', '"')), at, True)
        words.append(new(Word, word))
    words.append(Word("end", "", words[-1].start if words else 0))
    return words


def _require_number(source: str, at: int, text: str) -> None:
    """Raise `PredicateError` for text that only begins as a number, or that can be read in two ways."""
    following = source[at + len(text) : at + len(text) + 1]
    if following == "." or following == "_" or following.isalnum():
        raise PredicateError("not an SQL condition: this is no number", source, at)
    if text[0] == "0" and _OCTAL.fullmatch(text):
        raise PredicateError(
            f"{text[:20]} is octal in JMS, and decimal in SQL; write it without the leading 0", source, at
        )


def _refuse(source: str, at: int) -> NoReturn:
    if source.startswith("/*", at):
        message = "not an SQL condition: this comment is not closed"
    else:
        message = _REFUSED.get(source[at], f"{source[at]!r} is not supported")
    raise PredicateError(f"{message}; {SUPPORTED}", source, at)
