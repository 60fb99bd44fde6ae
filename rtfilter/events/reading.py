"""Reading events of any accepted form. Neither pandas nor pyarrow is imported for a dict or an array."""

from __future__ import annotations

from collections.abc import Mapping

from rtfilter.events.columns import read_table
from rtfilter.events.objects import read_event, read_events
from rtfilter.events.table import EventTable, Field


def read(fields: tuple[Field, ...], events: object) -> EventTable:
    """Read one event or many; see `rtfilter.events.schema.Schema.read`."""
    if type(events) is dict or isinstance(events, Mapping):
        return read_event(fields, events)
    if isinstance(events, list | tuple):
        return read_events(fields, events)
    return read_table(fields, events)
