"""Objects and lists inside events: their paths, joined with dots."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from rtfilter.basics.errors import EventError
from rtfilter.basics.text import composed

MAX_NESTING: Final = 64
"""Deepest nesting of objects in one event, and of lists."""
ATOMS: Final[frozenset[type]] = frozenset((int, float, str, bool, type(None)))
"""Types without a value that is an object or a list."""
LISTS: Final = (list, tuple, np.ndarray)
"""Types whose values may be lists; see `is_list`."""


def is_list(value: object) -> bool:
    """Return whether a value is a list, a tuple or an array, which stands for each of its elements."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


@lru_cache(maxsize=1024)
def inner_paths(names: frozenset[str]) -> frozenset[str]:
    """Return all paths that contain some of the names: for ``a.b.c`` these are ``a`` and ``a.b``."""
    parts = (name.split(".") for name in names)
    return frozenset(".".join(own[:end]) for own in parts for end in range(1, len(own)))


def flatten(
    event: Mapping[Any, object], names: frozenset[str], row: int = 0, prefix: str = ""
) -> tuple[dict[str, object], dict[str, Any] | None]:
    """Return the values of `event` whose path, joined with dots, is one of `names`, and its lists.

    Lists by path are those at one of `names`, which are values as well, and those above some names; None if
    there are no lists.

    `prefix` is the path of `event` with a dot at its end, if it is inside another one. Raises `EventError`,
    with the row, if one name has two values, as in ``{"a.b": 1, "a": {"b": 2}}``, or objects are nested
    deeper than `MAX_NESTING`.
    """
    flat: dict[str, object] = {}
    lists: dict[str, Any] | None = None
    stack: list[tuple[str, Mapping[Any, object], int]] = [(prefix, event, 1)]
    while stack:
        prefix, node, depth = stack.pop()
        if depth > MAX_NESTING:
            raise too_deep(row)
        for key, value in node.items():
            if type(value) not in ATOMS:
                if isinstance(value, Mapping):
                    stack.append((f"{prefix}{key}.", value, depth + 1))
                    continue
                if is_list(value) and isinstance(key, str):
                    name = prefix + key
                    if name in names or name in inner_paths(names):
                        if lists is None:
                            lists = {}
                        if name in lists:
                            raise twice(name, row)
                        lists[name] = value
            if isinstance(key, str):
                name = prefix + key
                if name in names:
                    if name in flat:
                        raise twice(name, row)
                    flat[name] = value
    return flat, lists


def with_composed_names(
    event: Mapping[Any, object], names: frozenset[str], row: int = 0, prefix: str = "", depth: int = 1
) -> Mapping[Any, object]:
    """Return an event in which the known names, and the paths to them, are in Unicode's form NFC.

    It is the same object if all of them are. See `flatten` for parameters and errors.
    """
    if depth > MAX_NESTING:
        raise too_deep(row)
    paths = inner_paths(names)
    if not paths and event.keys() <= names:
        return event
    changed: dict[Any, object] = {}
    for key, value in event.items():
        if not isinstance(key, str):
            continue
        name = prefix + composed(key)
        found = value
        if name in paths and type(value) not in ATOMS:
            found = _with_composed_names(value, names, row, f"{name}.", depth + 1)
        elif name not in names:
            continue
        if found is not value or name != prefix + key:
            if name != prefix + key and name.removeprefix(prefix) in event:
                raise EventError.about(name, "occurs twice, in two spellings of Unicode", row)
            changed[key] = found
    if not changed:
        return event
    return {composed(key) if key in changed else key: changed.get(key, value) for key, value in event.items()}


def _with_composed_names(value: Any, names: frozenset[str], row: int, prefix: str, depth: int) -> Any:
    if isinstance(value, Mapping):
        return with_composed_names(value, names, row, prefix, depth)
    if not is_list(value):
        return value
    if depth > MAX_NESTING:
        raise too_deep(row)
    found = [_with_composed_names(one, names, row, prefix, depth + 1) for one in value]
    return found if any(one is not other for one, other in zip(found, value, strict=True)) else value


def too_deep(row: int) -> EventError:
    """Return the error of an event that is nested too deep."""
    return EventError(f"objects or lists are nested deeper than {MAX_NESTING} levels", row=row)


def twice(name: str, row: int) -> EventError:
    """Return the error about a name with two values."""
    return EventError.about(name, "occurs twice, nested and with dots", row)
