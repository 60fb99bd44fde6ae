"""Reading events of any accepted form. Neither pandas nor pyarrow is imported for a dict or an array."""

from __future__ import annotations

from collections.abc import Mapping

from rtfilter.events.columns import read_columns
from rtfilter.events.objects import read_dict, read_dicts
from rtfilter.events.table import EventTable, Field


def read_events(fields: tuple[Field, ...], events: object) -> EventTable:
    """Read one event or many; see `rtfilter.events.schema.Schema.read`."""
    if type(events) is dict or isinstance(events, Mapping):
        return read_dict(fields, events)
    if isinstance(events, list | tuple):
        return read_dicts(fields, events)
    return read_columns(fields, events)
