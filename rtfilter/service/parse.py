"""Stage 2: bytes as events that the filter can use, before anything is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rtfilter.errors import EventError
from rtfilter.events.schema import Schema

Hook = Callable[[dict[str, Any]], None]
"""Adds to an event, such as the time of its arrival."""


class Parse:
    """Reads events, and refuses those that could not be matched.

    Parameters
    ----------
    schema : Schema
    hook : callable, optional
        Is called with each event before it is checked; what it adds is stored.
    """

    def __init__(self, schema: Schema, hook: Hook | None = None) -> None:
        self._schema, self._hook = schema, hook

    def one(self, body: bytes, row: int | None = None) -> bytes:
        """Return an event as it is to be stored. Raises `EventError`."""
        try:
            event = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise EventError(f"this is not JSON: {error}", row=row) from None
        if not isinstance(event, dict):
            raise EventError("an event is a JSON object", row=row)
        if self._hook is not None:
            self._hook(event)
        try:
            self._schema.read([event])
        except EventError as error:
            error.row = row
            error.show_row()
            raise
        return msgspec.json.encode(event)

    def lines(self, body: bytes) -> list[bytes]:
        """Return the events of JSON lines without empty ones: all, or `EventError` that tells the row."""
        lines = [line for line in body.split(b"\n") if line.strip()]
        return [self.one(line, row) for row, line in enumerate(lines)]
