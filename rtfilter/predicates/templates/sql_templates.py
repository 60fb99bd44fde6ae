"""Templates of SQL conditions: a text is cut at its constants; see `condition_templates.py`."""

from __future__ import annotations

import re
from math import inf
from typing import Final

from rtfilter.events.encoding import Timestamp
from rtfilter.events.schema import Schema
from rtfilter.predicates.language.sql import MAX_LENGTH, parse_sql
from rtfilter.predicates.templates.condition_templates import Cut, Mark, Marked, mark_of, moment, number_of

_TEXT: Final = r"'(?:[^']|'')*+'"
_NUMBER: Final = r"(?<![\w.])(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.])"
_CONSTANT: Final = re.compile(f"({_TEXT}|{_NUMBER})")
"""Constants, if no name is in double quotes; numbers in other forms are no constants of a template."""
_CONSTANT_OR_NAME: Final = re.compile(f'("(?:[^"]|"")*+"|{_TEXT}|{_NUMBER})')
_LIKE: Final = re.compile(r"\blike[\s(]*$", re.IGNORECASE)
_LONGEST: Final = 300
"""Most characters of a number that is certainly within float64, or infinite."""


def cut(source: str) -> Cut | None:
    """Cut a condition at its constants; return None if it has no template."""
    if "--" in source or "/*" in source or len(source) > MAX_LENGTH:
        return None
    named = '"' in source
    pieces = _without_names(_CONSTANT_OR_NAME.split(source)) if named else _CONSTANT.split(source)
    constants = pieces[1::2]
    if "'" in source:
        return Cut((*pieces[::2], *[constant[0] == "'" for constant in constants]), constants)
    return Cut(tuple(pieces[::2]), constants)


def _without_names(pieces: list[str]) -> list[str]:
    """Join pieces in double quotes with their neighbours: they are names and no constants."""
    found = pieces[:1]
    for constant, following in zip(pieces[1::2], pieces[2::2], strict=True):
        if constant[0] == '"':
            found[-1] += constant + following
        else:
            found += [constant, following]
    return found


def marked(source: str, schema: Schema, year: int) -> Marked:
    """Parse a condition that has a template, with marks instead of its constants; each year has other marks.

    Raises
    ------
    PredicateError
        The text is no condition, or its constants cannot be marks.
    """
    condition = cut(source)
    assert condition is not None
    literals = [piece for piece in condition.key if isinstance(piece, str)]
    pieces, marks = [literals[0]], []
    for at, constant in enumerate(condition.constants):
        if constant[0] != "'":
            mark = Mark(str(number_of(year, at)), (_number, _minus))
        elif _LIKE.search(literals[at]):
            mark = Mark(f"'{mark_of(year, at)}%'", (_start,))
        else:
            mark = Mark(f"'{mark_of(year, at)}'", (_text, _moment))
        marks.append(mark)
        pieces += [mark.constant, literals[at + 1]]
    return Marked(marks, parse_sql("".join(pieces), schema))


# -- constants, as the parser reads them; None if it must read the condition ---------------------------------


def _number(text: str) -> int | float | None:
    if text.isdigit():
        return int(text) if len(text) < _LONGEST else None
    value = float(text)
    return value if value < inf else None


def _minus(text: str) -> int | float | None:
    value = _number(text)
    return None if value is None else -value


def _text(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _start(text: str) -> str | None:
    start = text[1:-2]
    if text[-2] != "%" or "%" in start or "_" in start or "\\" in start:
        return None
    return start.replace("''", "'")


def _moment(text: str) -> Timestamp | None:
    return moment(_text(text))
