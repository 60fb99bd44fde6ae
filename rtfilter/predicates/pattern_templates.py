"""Templates of event patterns: a mapping is cut at its constants; see `rtfilter.predicates.templates`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import HIGHEST, LOWEST
from rtfilter.events.schema import Schema
from rtfilter.predicates.combine import MAX_DEPTH
from rtfilter.predicates.constraints import Constraint
from rtfilter.predicates.letters import fold
from rtfilter.predicates.like import escaped
from rtfilter.predicates.pattern import IGNORING, parse_pattern, text_test
from rtfilter.predicates.templates import Cut, Mark, Marked, Read, mark_of, moment, number_of

MOST: Final = 4096
"""Most parts of the key of a template: mappings in memory may share parts, and then are huge."""

# What a key has besides names and operators. Integers, since attributes may have any name.
_MAPPING, _LIST, _END, _TRUE, _FALSE, _NULL = range(6)
_TEXT, _NUMBER = 6, 7
_MATCHED: Final = {
    name: 8 + at for at, name in enumerate(("prefix", "suffix", "wildcard", "shellstyle", IGNORING, "cidr"))
}
_CASELESS: Final = {"prefix": 14, "suffix": 15}
_LITERALS: Final = {True: _TRUE, False: _FALSE, None: _NULL}


class _OtherError(Exception):
    """The pattern has no template."""


def cut(pattern: Mapping[str, Any]) -> Cut | None:
    """Cut a pattern at its constants; None where it has no template."""
    found = _Cut()
    try:
        found.mapping(pattern, 1)
    except _OtherError:
        return None
    return Cut(tuple(found.key), found.constants)


class _Cut:
    """The key and the constants of a pattern so far."""

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.constants: list[Any] = []

    def take(self, kind: int, values: Any, at: Any) -> None:
        """Note a constant, which is `values[at]`."""
        self.key.append(kind)
        self.constants.append(values[at])

    def mapping(self, pattern: Any, depth: int) -> None:
        key = self.key
        if type(pattern) is not dict or depth > MAX_DEPTH or len(key) > MOST:
            raise _OtherError
        key.append(_MAPPING)
        for name, value in pattern.items():
            if type(name) is not str:
                raise _OtherError
            key.append(name)
            if type(value) is not list:
                self.mapping(value, depth + 1)
            elif name != "$or":
                self.alternatives(value)
            else:
                for choice in value:
                    self.mapping(choice, depth + 1)
        key.append(_END)

    def alternatives(self, values: list[Any]) -> None:
        self.key.append(_LIST)
        for at, value in enumerate(values):
            if type(value) is dict:
                self.matcher(value)
            else:
                self.constant(values, at)
        self.key.append(_END)

    def constant(self, values: Any, at: Any) -> None:
        value = values[at]
        kind = type(value)
        if kind is str:
            self.take(_TEXT, values, at)
        elif kind is float or kind is int:
            self.take(_NUMBER, values, at)
        elif kind is bool or value is None:
            self.key.append(_LITERALS[value])
        else:
            raise _OtherError

    def matcher(self, matcher: dict[Any, Any]) -> None:
        if len(matcher) != 1:
            raise _OtherError
        ((name, argument),) = matcher.items()
        if name in _MATCHED:
            self.text(matcher, name)
            return
        self.key.append(name)
        if name == "numeric" and type(argument) is list:
            for at in range(len(argument)):
                if at % 2:
                    self.constant(argument, at)
                elif type(argument[at]) is str:
                    self.key.append(argument[at])
                else:
                    raise _OtherError
            self.key.append(_END)
        elif name == "anything-but" and type(argument) is list:
            self.alternatives(argument)
        elif name == "anything-but" and type(argument) is dict:
            self.matcher(argument)
        elif name in ("anything-but", "exactly", "exists"):
            self.constant(matcher, name)
        else:
            raise _OtherError

    def text(self, matcher: dict[Any, Any], name: str) -> None:
        argument = matcher[name]
        if type(argument) is str:
            self.take(_MATCHED[name], matcher, name)
        elif type(argument) is list and all(type(text) is str for text in argument):
            self.key.append(_LIST)
            for at in range(len(argument)):
                self.take(_MATCHED[name], argument, at)
            self.key.append(_END)
        elif type(argument) is dict and name in _CASELESS and list(argument) == [IGNORING]:
            if type(argument[IGNORING]) is not str:
                raise _OtherError
            self.take(_CASELESS[name], argument, IGNORING)
        else:
            raise _OtherError


class _Marking(_Cut):
    """Puts marks in the place of the constants of a pattern."""

    def __init__(self, year: int) -> None:
        super().__init__()
        self.year = year
        self.marks: list[Mark] = []

    def take(self, kind: int, values: Any, at: Any) -> None:
        """Replace a constant."""
        place = len(self.marks)
        mark: Any = number_of(self.year, place) if kind == _NUMBER else mark_of(self.year, place)
        if kind in _STARRED:
            mark += "*x"
        elif kind == _MATCHED["cidr"]:
            mark = f"10.{place >> 8}.{place & 255}.{self.year & 255}/32"
        self.marks.append(Mark(mark, _READERS[kind]))
        values[at] = mark


def marked(pattern: Mapping[str, Any], schema: Schema, year: int) -> Marked:
    """Parse a pattern that has a template, with marks in the place of its constants; others for each year.

    Raises
    ------
    PredicateError
        Not a pattern, or none with such constants.
    """
    copied = _copy(pattern)
    marking = _Marking(year)
    marking.mapping(copied, 1)
    return Marked(marking.marks, parse_pattern(copied, schema))


def _copy(value: Any) -> Any:
    """Return a pattern of which no part is shared."""
    if isinstance(value, dict):
        return {name: _copy(inner) for name, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value


# -- constants, as the parser reads them; None where it has to look ------------------------------------------


def _number(value: float) -> float | None:
    return value if LOWEST <= value <= HIGHEST else None


def _text(text: str) -> str:
    return text


def _end(text: str) -> str | None:
    return f"%{escaped(text)}" if text else None


def _caseless_start(text: str) -> str:
    return fold(f"{escaped(text)}%")


def _caseless_end(text: str) -> str | None:
    return fold(f"%{escaped(text)}") if text else None


def _formed(matcher: str) -> Read:
    """Return what reads the text of a matcher whose operator depends on the text: its usual one, or None."""

    def read(text: str) -> str | None:
        try:
            wanted, value = text_test(matcher, text, "")
            _, operator, constant = Constraint("", wanted, value)
        except PredicateError:
            return None
        return str(constant) if operator == wanted else None

    return read


_STARRED: Final = (_MATCHED["wildcard"], _MATCHED["shellstyle"])
_READERS: Final[dict[int, tuple[Read, ...]]] = {
    _TEXT: (_text, moment),
    _NUMBER: (_number,),
    _MATCHED["prefix"]: (_text,),
    _MATCHED["suffix"]: (_end,),
    _MATCHED["wildcard"]: (_formed("wildcard"),),
    _MATCHED["shellstyle"]: (_formed("shellstyle"),),
    _MATCHED[IGNORING]: (fold,),
    _MATCHED["cidr"]: (_formed("cidr"),),
    _CASELESS["prefix"]: (_caseless_start,),
    _CASELESS["suffix"]: (_caseless_end,),
}
