"""Reading events of any accepted form. A dict or an array needs neither pandas nor pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from rtfilter.errors import EventError
from rtfilter.events.columns import read_columns
from rtfilter.events.fields import Fields
from rtfilter.events.objects import read_dict, read_list
from rtfilter.events.table import EventTable
from rtfilter.text import listed

TEXT: Final = (bytes, str, bytearray, memoryview)
"""Types of JSON text."""
_MANY: Final = (list, tuple)


def read_events(fields: Fields, events: object, names: frozenset[str] | None = None) -> EventTable:
    """Read one event or many; with `names`, only these attributes from lists.

    See `rtfilter.events.schema.Schema.read`.
    """
    if type(events) is dict:
        return read_dict(fields, events, names)
    if isinstance(events, np.ndarray):
        return read_columns(fields, events, names)
    if isinstance(events, EventTable):
        return _own(fields, events)
    if isinstance(events, Mapping):
        return read_dict(fields, events, names)
    if is_text(events):
        from rtfilter.events.json_text import read_json

        return read_json(fields, events, names)
    if isinstance(events, _MANY):
        return read_list(fields, events, names)
    return read_columns(fields, events, names)


def is_text(events: object) -> bool:
    """Return whether events are JSON text, which `rtfilter.events.json_text` reads."""
    if isinstance(events, TEXT):
        return True
    return isinstance(events, _MANY) and len(events) > 0 and isinstance(events[0], TEXT)


def _own(fields: Fields, table: EventTable) -> EventTable:
    """Return a table of an earlier `read`. Raises `EventError` if another schema has read it."""
    if table.fields is fields or (table.fields == fields and table.fields.strict >= fields.strict):
        return table
    raise EventError(
        "the table of events was read by another schema: "
        f"{_described(table.fields)}; here it is {_described(fields)}. Read the events with this one"
    )


def _described(fields: Fields) -> str:
    strict = ", strict" if fields.strict else ""
    return f"({listed([f'{field.name}: {field.family}' for field in fields])}{strict})"
