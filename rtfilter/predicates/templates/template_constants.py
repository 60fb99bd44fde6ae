"""Conditions cut at their constants, and constants that occur nowhere else, which stand for any constant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import HIGHEST, LOWEST, Timestamp, microseconds
from rtfilter.events.schema import Schema
from rtfilter.predicates.language.pattern import IGNORING, ORDERS, parse_pattern, text_test
from rtfilter.predicates.language.sql import MAX_LENGTH, parse_sql
from rtfilter.predicates.model.combine import MAX_DEPTH, Filters
from rtfilter.predicates.model.constraints import Constraint
from rtfilter.predicates.operands.like import escaped
from rtfilter.predicates.operands.text_comparison import fold
from rtfilter.predicates.operands.text_operators import MATCHERS
from rtfilter.predicates.predicate import Source

Key = tuple[object, ...]
"""The common part of all conditions of one template."""
Read = Callable[[Any], Any]
"""Returns the value of a written constant in the predicate.

None means that the condition has to be parsed.
"""
_MOST: Final = 4096
"""Most parts of the key of a pattern: mappings in memory may share parts, and then be huge."""
_LONGEST: Final = 300
"""Most characters of a number that is certainly within float64, or infinite."""


class Cut(NamedTuple):
    """A condition, cut at its constants."""

    key: Key
    constants: Sequence[Any]
    """The constants as they are written."""


class Mark(NamedTuple):
    """A constant that occurs nowhere else."""

    constant: Any
    """The constant as it is written."""
    readers: Sequence[Read]
    """The functions that may read a constant at its place."""


def cut(source: Source) -> Cut | None:
    """Cut a condition at its constants; return None if it has no template."""
    if type(source) is str:
        return _cut_sql(source)
    key: list[object] = []
    constants: list[Any] = []
    if type(source) is not dict or not _cut_pattern(source, key, constants, 1):
        return None
    return Cut(tuple(key), constants)


def marked(source: Any, schema: Schema, year: int) -> tuple[list[Mark], Filters]:
    """Parse a condition with marks instead of its constants; each year has other marks.

    Raises `PredicateError`: the condition is wrong, or its constants cannot be marks.
    """
    marks: list[Mark] = []
    if type(source) is str:
        return marks, parse_sql(_marked_sql(source, year, marks), schema)
    return marks, parse_pattern(_marked_pattern(source, "", year, marks), schema)


def _mark_of(year: int, at: int) -> str:
    """Return text that stands for the constant of a place; it is a time and text."""
    return f"{year}-01-02T03:04:05.{at:06}"


def _number_of(year: int, at: int) -> int:
    return year * 1_000_000_007 + at * 7_368_787


def _moment(text: str) -> Timestamp | None:
    found = microseconds(text)
    return None if found is None or abs(found) >= 2**63 else Timestamp(found)


# -- SQL: constants in quotes, and numbers -------------------------------------------------------------------

_TEXT: Final = r"'(?:[^']|'')*+'"
_NUMBER: Final = r"(?<![\w.])(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?(?![\w.])"
_CONSTANT: Final = re.compile(f"({_TEXT}|{_NUMBER})")
"""Constants, if no name is in double quotes; numbers in other forms are no constants of a template."""
_CONSTANT_OR_NAME: Final = re.compile(f'("(?:[^"]|"")*+"|{_TEXT}|{_NUMBER})')
_LIKE: Final = re.compile(r"\blike[\s(]*$", re.IGNORECASE)


def _cut_sql(source: str) -> Cut | None:
    if "--" in source or "/*" in source or len(source) > MAX_LENGTH:
        return None
    pieces = _pieces(source)
    constants = pieces[1::2]
    if "'" in source:
        return Cut((*pieces[::2], *[constant[0] == "'" for constant in constants]), constants)
    return Cut(tuple(pieces[::2]), constants)


def _pieces(source: str) -> list[str]:
    """Return the constants of a condition, and the text before, between and after them."""
    if '"' not in source:
        return _CONSTANT.split(source)
    pieces = _CONSTANT_OR_NAME.split(source)
    found = pieces[:1]
    for constant, following in zip(pieces[1::2], pieces[2::2], strict=True):
        if constant[0] == '"':
            found[-1] += constant + following
        else:
            found += [constant, following]
    return found


def _marked_sql(source: str, year: int, marks: list[Mark]) -> str:
    pieces = _pieces(source)
    for at, constant in enumerate(pieces[1::2]):
        if constant[0] != "'":
            mark = Mark(str(_number_of(year, at)), (_number, _minus))
        elif _LIKE.search(pieces[2 * at]):
            mark = Mark(f"'{_mark_of(year, at)}%'", (_start,))
        else:
            mark = Mark(f"'{_mark_of(year, at)}'", (_unquoted, _unquoted_moment))
        marks.append(mark)
        pieces[2 * at + 1] = mark.constant
    return "".join(pieces)


def _number(text: str) -> int | float | None:
    if text.isdigit():
        return int(text) if len(text) < _LONGEST else None
    value = float(text)
    return value if value < inf else None


def _minus(text: str) -> int | float | None:
    value = _number(text)
    return None if value is None else -value


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _unquoted_moment(text: str) -> Timestamp | None:
    return _moment(_unquoted(text))


def _start(text: str) -> str | None:
    start = text[1:-2]
    if text[-2] != "%" or "%" in start or "_" in start or "\\" in start:
        return None
    return start.replace("''", "'")


# -- patterns: all text and numbers but names, and operators of `numeric` ------------------------------------

# Parts of a key beside names and operators. They are integers, because attributes may have any name.
_MAPPING, _LIST, _END, _TEXT_PART, _NUMBER_PART = range(5)


def _cut_pattern(value: Any, key: list[object], constants: list[Any], depth: int) -> bool:
    """Append a part of a pattern to a key, and its constants to the list; return whether that is possible."""
    kind = type(value)
    if kind is str and value not in ORDERS:
        key.append(_TEXT_PART)
        constants.append(value)
    elif kind is float or kind is int:
        key.append(_NUMBER_PART)
        constants.append(value)
    elif kind is dict or kind is list:
        if depth > 2 * MAX_DEPTH or len(key) > _MOST:
            return False
        key.append(_MAPPING if kind is dict else _LIST)
        for name in value:
            inner = name
            if kind is dict:
                if type(name) is not str:
                    return False
                key.append(name)
                inner = value[name]
            if not _cut_pattern(inner, key, constants, depth + 1):
                return False
        key.append(_END)
    elif kind is str:
        key.append(value)
    elif kind is bool or value is None:
        key.append((value,))
    else:
        return False
    return True


def _marked_pattern(value: Any, matcher: str, year: int, marks: list[Mark]) -> Any:
    """Return a part of a pattern with marks for its constants; `matcher` is the name of the part."""
    kind, at = type(value), len(marks)
    if kind is dict:
        return {name: _marked_pattern(inner, name, year, marks) for name, inner in value.items()}
    if kind is list:
        return [_marked_pattern(inner, matcher, year, marks) for inner in value]
    if kind is float or kind is int:
        marks.append(Mark(_number_of(year, at), (_finite,)))
    elif kind is str and value not in ORDERS:
        text = _MARKS.get(matcher, _mark_of)(year, at)
        marks.append(Mark(text, (*_TEXT_READERS, *_FORMED.get(matcher, ()))))
    else:
        return value
    return marks[-1].constant


_MARKS: Final[dict[str, Callable[[int, int], str]]] = {  # not canonical, and with a capital
    "cidr": lambda year, at: f"{year}:{at:x}:A::1/64",
    "wildcard": lambda year, at: f"{_mark_of(year, at)}*x",
    "shellstyle": lambda year, at: f"{_mark_of(year, at)}*x",
}


def _finite(value: float) -> float | None:
    return value if LOWEST <= value <= HIGHEST else None


def _formed(matcher: str) -> Read:
    """Return the reader of a matcher's text; it returns None if the text has another operator than usual."""

    def read(text: str) -> str | None:
        try:
            wanted, value = text_test(matcher, text)
            _, operator, constant = Constraint("", wanted, value)
        except PredicateError:
            return None
        return str(constant) if operator == wanted else None

    return read


_FORMED: Final[Mapping[str, Sequence[Read]]] = {
    **{matcher: (_formed(matcher),) for matcher in ("wildcard", "shellstyle", *MATCHERS)},
    IGNORING: (fold,),
}
"""The readers of matchers that change their text."""


def _end(text: str) -> str | None:
    return f"%{escaped(text)}" if text else None


def _caseless_start(text: str) -> str:
    return fold(f"{escaped(text)}%")


def _caseless_end(text: str) -> str | None:
    return fold(f"%{escaped(text)}") if text else None


_TEXT_READERS: Final = (str, _moment, _end, _caseless_start, _caseless_end)
