"""Reading events of any accepted form. Neither pandas nor pyarrow is imported for a dict or an array."""

from __future__ import annotations

from collections.abc import Mapping

from rtfilter.errors import EventError
from rtfilter.events.columns import read_columns
from rtfilter.events.objects import read_dict, read_list
from rtfilter.events.table import EventTable, Fields
from rtfilter.text import listed


def read_events(fields: Fields, events: object) -> EventTable:
    """Read one event or many; see `rtfilter.events.schema.Schema.read`."""
    if type(events) is dict or isinstance(events, Mapping):
        return read_dict(fields, events)
    if isinstance(events, list | tuple):
        return read_list(fields, events)
    if isinstance(events, EventTable):
        return _own(fields, events)
    return read_columns(fields, events)


def _own(fields: Fields, table: EventTable) -> EventTable:
    """Return a table that was read already. Raises `EventError` where that was for other attributes."""
    if table.fields is fields or (table.fields == fields and table.fields.strict >= fields.strict):
        return table
    raise EventError(
        "the table of events was read by another schema: "
        f"{_described(table.fields)}; here it is {_described(fields)}. Read the events with this one"
    )


def _described(fields: Fields) -> str:
    strict = ", strict" if fields.strict else ""
    return f"({listed([f'{field.name}: {field.family}' for field in fields])}{strict})"
