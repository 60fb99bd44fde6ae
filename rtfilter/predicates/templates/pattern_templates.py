"""Templates of event patterns: a mapping is cut at its constants; see `condition_templates.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import HIGHEST, LOWEST
from rtfilter.events.schema import Schema
from rtfilter.predicates.language.pattern import IGNORING, parse_pattern, text_test
from rtfilter.predicates.model.combine import MAX_DEPTH
from rtfilter.predicates.model.constraints import Constraint
from rtfilter.predicates.operands.letters import fold
from rtfilter.predicates.operands.like import escaped
from rtfilter.predicates.templates.condition_templates import (
    Cut,
    Mark,
    Marked,
    Read,
    mark_of,
    moment,
    number_of,
)

MOST: Final = 4096
"""Most parts of the key of a template: mappings in memory may share parts, and then be huge."""

# Parts of a key beside names and operators. They are integers, because attributes may have any name.
_MAPPING, _LIST, _END, _TRUE, _FALSE, _NULL = range(6)
_TEXT, _NUMBER = 6, 7
_MATCHED: Final = {
    name: 8 + at for at, name in enumerate(("prefix", "suffix", "wildcard", "shellstyle", IGNORING, "cidr"))
}
_KINDS: Final = {str: _TEXT, int: _NUMBER, float: _NUMBER}
_CASELESS: Final = {"prefix": 14, "suffix": 15}
_LITERALS: Final = {True: _TRUE, False: _FALSE, None: _NULL}


class _OtherError(Exception):
    """Raised for a pattern without a template."""


def cut(pattern: Mapping[str, Any]) -> Cut | None:
    """Cut a pattern at its constants; return None if it has no template."""
    key: list[Any] = []
    constants: list[Any] = []
    try:
        _mapping(pattern, key, constants, 1)
    except _OtherError:
        return None
    return Cut(tuple(key), constants)


def _mapping(pattern: Any, key: list[Any], constants: list[Any], depth: int) -> None:
    """Append a mapping to a key, and its constants to the list."""
    if type(pattern) is not dict or depth > MAX_DEPTH or len(key) > MOST:
        raise _OtherError
    key.append(_MAPPING)
    for name, value in pattern.items():
        if type(name) is not str:
            raise _OtherError
        key.append(name)
        if type(value) is not list:
            _mapping(value, key, constants, depth + 1)
        elif name != "$or":
            _alternatives(value, key, constants)
        else:
            key.append(_LIST)
            for choice in value:
                _mapping(choice, key, constants, depth + 1)
            key.append(_END)
    key.append(_END)


def _alternatives(values: list[Any], key: list[Any], constants: list[Any]) -> None:
    key.append(_LIST)
    for value in values:
        kind = _KINDS.get(type(value))
        if kind is not None:
            key.append(kind)
            constants.append(value)
        elif type(value) is dict:
            _matcher(value, key, constants)
        else:
            key.append(_literal(value))
    key.append(_END)


def _matcher(matcher: dict[Any, Any], key: list[Any], constants: list[Any]) -> None:
    if len(matcher) != 1:
        raise _OtherError
    ((name, argument),) = matcher.items()
    if name == "numeric" and type(argument) is list and not len(argument) % 2:
        key.append(name)
        for operator, value in zip(argument[::2], argument[1::2], strict=True):
            if type(operator) is not str or type(value) not in _KINDS:
                raise _OtherError
            key += operator, _KINDS[type(value)]
            constants.append(value)
        key.append(_END)
    elif name in _MATCHED:
        _text_matcher(name, argument, key, constants)
    elif name == "anything-but" and type(argument) is list:
        key.append(name)
        _alternatives(argument, key, constants)
    elif name == "anything-but" and type(argument) is dict:
        key.append(name)
        _matcher(argument, key, constants)
    elif name in ("anything-but", "exactly", "exists"):
        key.append(name)
        kind = _KINDS.get(type(argument))
        if kind is None:
            key.append(_literal(argument))
        else:
            key.append(kind)
            constants.append(argument)
    else:
        raise _OtherError


def _text_matcher(name: str, argument: Any, key: list[Any], constants: list[Any]) -> None:
    kind, texts = _MATCHED[name], argument
    if type(argument) is dict and name in _CASELESS and list(argument) == [IGNORING]:
        kind, texts = _CASELESS[name], argument[IGNORING]
    if type(texts) is str:
        key.append(kind)
        constants.append(texts)
    elif type(texts) is list and texts is argument and all(type(text) is str for text in texts):
        key += [_LIST, *[kind] * len(texts), _END]
        constants += texts
    else:
        raise _OtherError


def _literal(value: Any) -> int:
    """Return the mark of a value that is part of a template and no constant of its conditions."""
    if type(value) is not bool and value is not None:
        raise _OtherError
    return _LITERALS[value]


def marked(pattern: Mapping[str, Any], schema: Schema, year: int) -> Marked:
    """Parse a pattern that has a template, with marks instead of its constants; each year has other marks.

    Raises
    ------
    PredicateError
        The mapping is no pattern, or its constants cannot be marks.
    """
    found = cut(pattern)
    assert found is not None
    kinds = [part for part in found.key if isinstance(part, int) and part in _READERS]
    marks = [Mark(_mark(kind, year, at), _READERS[kind]) for at, kind in enumerate(kinds)]
    left = [(one, mark.constant) for one, mark in zip(found.constants, marks, strict=True)]
    return Marked(marks, parse_pattern(_with_marks(pattern, left[::-1]), schema))


def _mark(kind: int, year: int, at: int) -> Any:
    if kind == _NUMBER:
        return number_of(year, at)
    if kind == _MATCHED["cidr"]:
        return f"10.{at >> 8}.{at & 255}.{year & 255}/32"
    return mark_of(year, at) + "*x" * (kind in _STARRED)


def _with_marks(value: Any, left: list[tuple[Any, Any]]) -> Any:
    """Return a pattern with marks instead of its constants.

    `left` has the remaining marks, the next one last.
    """
    if type(value) is dict:
        return {name: _with_marks(inner, left) for name, inner in value.items()}
    if type(value) is list:
        return [_with_marks(inner, left) for inner in value]
    return left.pop()[1] if left and value is left[-1][0] else value


# -- constants, as the parser reads them; None if it must read the condition ---------------------------------


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
    """Return the reader of a matcher's text; it returns None if the text has another operator than usual."""

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
