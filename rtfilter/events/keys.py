"""Keys: they say which events belong together, such as the events of one vehicle."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from operator import itemgetter
from typing import Any
from uuid import UUID

import numpy as np

from rtfilter.basics.errors import EventError
from rtfilter.basics.text import listed, shown
from rtfilter.events.encoding import is_missing
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable

_SOUND = frozenset((str, int, bytes, bool, tuple, UUID))
"""Types without a value that stands for a missing one."""
_LISTS = ("to_pylist", "tolist", "to_list")
"""The methods of arrays of NumPy, pandas, Arrow and Polars that return a list."""


def attribute_keys(name: str, apart: Schema | None, events: Any, table: EventTable) -> list[Any]:
    """Return the values of an attribute, one for each of n events, None if missing.

    `name` is an attribute of the schema that read the events as `table`, or another name in them; `apart` is
    then a schema with only this name. Raises `EventError` for arrays and rows, which have only the attributes
    of the schema.
    """
    if apart is None:
        return list(table.values(name))
    if isinstance(events, list | tuple):
        if all(type(event) is dict for event in events) and "." not in name:
            return [event.get(name) for event in events]
        bare = not all(isinstance(event, Mapping) for event in events)
    else:
        bare = isinstance(events, np.ndarray | EventTable)
    if bare:
        raise EventError(
            f"these events have only the attributes of the schema ({listed(table.fields.labels)}), so not "
            f"the key {name!r}: pass dicts or a table that has it, or keys=... with one key for each event",
            attribute=name,
        )
    return list(apart.read(events).values(name))


def given_keys(keys: Any, count: int) -> list[Any]:
    """Return n keys for n events. Raises `ValueError` for another number of keys."""
    if isinstance(keys, str | bytes | Mapping):
        raise TypeError(f"keys are a sequence with one key for each event, not {shown(keys)}")
    way = next((name for name in _LISTS if hasattr(keys, name)), None)
    found: Any = list(keys) if way is None else getattr(keys, way)()
    if not isinstance(found, list) or len(found) != count:
        number = len(found) if isinstance(found, list) else "no list of keys"
        raise ValueError(f"{number} keys for {count} events: pass one key for each event")
    return found


def last_rows(keys: list[Any], name: str | None) -> dict[Hashable, int]:
    """Return the distinct keys of a batch with the row of the last event of each, rows ascending.

    Raises `EventError` for a key that is missing (None, NaN, NaT, NA), or has no hash.
    """
    try:
        rows = dict(zip(keys, range(len(keys)), strict=True))
    except TypeError:
        raise _unusable(keys, name) from None
    if not _SOUND.issuperset(map(type, rows)) and any(map(_is_none, rows)):
        raise _unusable(keys, name)
    # The order of a dict is that of the first occurrence of each key.
    return rows if len(rows) == len(keys) else dict(sorted(rows.items(), key=itemgetter(1)))


def _is_none(key: object) -> bool:
    return is_missing(key) or bool(key != key)


def _unusable(keys: Iterable[object], name: str | None) -> EventError:
    """Return the error of the first key that cannot be used."""
    what = "the key" if name is None else f"the key {name!r}"
    for row, key in enumerate(keys):
        try:
            hash(key)
        except TypeError:
            reason = (
                f"{what} is the {type(key).__name__} {shown(key)}, which has no hash: use text or a number"
            )
        else:
            if not _is_none(key):
                continue
            reason = f"{what} is missing; leave out events that cannot be told apart"
        return EventError(reason, row=row, attribute=name)
    return EventError(f"{what} cannot be used")


def to_text(keys: list[Hashable]) -> bytes:
    """Return keys as JSON: text, numbers, booleans, UUIDs, and tuples of these; `TypeError` for others."""
    return json.dumps(keys, default=_as_json).encode()


def _as_json(key: object) -> object:
    if isinstance(key, UUID):
        return {"uuid": key.hex}
    if isinstance(key, np.integer | np.floating | np.bool_):
        return key.item()
    raise TypeError(
        f"keys that are saved are text, numbers, UUIDs or tuples of these, not the {type(key).__name__} "
        f"{shown(key)}; pickle the tracker instead"
    )


def from_text(text: bytes) -> list[Hashable]:
    """Return the keys of `to_text`. Raises `ValueError` or `LookupError` for another text."""
    keys = json.loads(text, object_hook=lambda found: UUID(hex=found["uuid"]))
    if not isinstance(keys, list):
        raise ValueError("the keys are no list")
    return [_hashable(key) for key in keys]


def _hashable(key: Any) -> Hashable:
    """Return a key from JSON, with lists turned back into tuples."""
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
