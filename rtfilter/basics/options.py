"""Objects described by a name with options, such as ``{"name": "filter-nodes", "bit_lists": 0.1}``.

Matchers and controllers are such objects. Options are the parameters with a type that JSON has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from rtfilter.basics.text import shown

Named = str | Mapping[str, Any]
"""A name, or an object with ``name`` and options."""
_WORDS: Final = {bool: "true or false", int: "an integer", float: "a number", str: "text", NoneType: "null"}


def require_on_error(given: object) -> None:
    """Raise `ValueError` unless a value is valid for `on_error`."""
    if not (callable(given) or given in ("raise", "skip")):
        raise ValueError(f'on_error is "raise", "skip" or a function such as bad.append; got {shown(given)}')


def whole(named: Named | None) -> Mapping[str, Any] | None:
    """Return a name as an object with ``name`` and options."""
    return {"name": named} if isinstance(named, str) else named


def split(what: str, given: object, known: Iterable[str]) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of a `Named`.

    Parameters
    ----------
    what : str
        The kind of object, such as "matcher", for messages.
    given : object
    known : iterable of str
        All names.

    Raises
    ------
    ValueError
        The value is no `Named`, or the name is unknown.
    """
    options = dict(given) if isinstance(given, Mapping) else {"name": given}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ValueError(
            f'a {what} is a name, or an object with a "name" and options beside it; got {shown(given)}'
        )
    if name not in (names := list(known)):
        raise ValueError(f"unknown {what} {shown(name)}; choose one of {', '.join(names)}")
    return name, options


def require(who: str, make: Callable[..., object], options: Mapping[str, Any]) -> None:
    """Check the names and types of options.

    Parameters
    ----------
    who : str
        The owner of the options, such as "the matcher 'rtree'", for messages.
    make : callable
        Function with the options as keyword parameters.
    options : mapping of str to value

    Raises
    ------
    ValueError
        An option is unknown, missing, or of another type than its parameter.
    """
    parameters = signature(make, eval_str=True).parameters
    known = {name: one for name, one in parameters.items() if _phrase(one.annotation) is not None}
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"{who} has no option {shown(name)}; it has {', '.join(known) or 'none'}")
        hint = known[name].annotation
        if not _fits(value, hint):
            raise ValueError(f"the option {name} of {who} is {_phrase(hint)}, not {shown(value)}")
    missing = [name for name, one in known.items() if one.default is one.empty and name not in options]
    if missing:
        raise ValueError(f"{who} needs the option {missing[0]}: {_phrase(known[missing[0]].annotation)}")


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value of JSON is of a type that `_phrase` knows."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin in (tuple, Sequence):
        if not isinstance(value, list | tuple):
            return False
        kinds = inner if origin is tuple else inner * len(value)
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if hint is float:
        return type(value) is int or (type(value) is float and isfinite(value))
    return type(value) is hint


def _phrase(hint: Any) -> str | None:
    """Return the name of a type in messages; None if JSON has no such values."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(json.dumps(one) for one in inner)
    parts = [_phrase(one) for one in inner]
    if origin in (Union, UnionType) and None not in parts:
        return ", or ".join(filter(None, parts))
    if origin is tuple and None not in parts:
        return f"a list of {len(parts)}: " + ", ".join(filter(None, parts))
    if origin is Sequence and None not in parts:
        return f"a list, and each of it {parts[0]}"
    return _WORDS.get(hint) if origin is None and isinstance(hint, type) else None
