"""Stage 2: bytes as events that the filter can use, before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def one(self, body: bytes) -> bytes:
        """Return an event as it is to be stored. Raises `EventError`."""
        event = _decoded(body, None)
        return self._checked([event], [body], lone=True)[0]

    def lines(self, body: bytes) -> list[bytes]:
        """Return the events of JSON lines without empty ones: all, or `EventError` that tells the row."""
        lines = [line for line in body.split(b"\n") if line.strip()]
        return self._checked([_decoded(line, row) for row, line in enumerate(lines)], lines)

    def objects(self, events: Sequence[Any]) -> list[bytes]:
        """Return events that are decoded already: all, or `EventError` that tells the row."""
        for row, event in enumerate(events):
            _require_object(event, row)
        return self._checked(events, None)

    def object(self, event: Any) -> bytes:
        """Return one that is decoded already. Raises `EventError`."""
        _require_object(event, None)
        return self._checked([event], None, lone=True)[0]

    def _checked(
        self, events: Sequence[dict[str, Any]], bodies: Sequence[bytes] | None, lone: bool = False
    ) -> list[bytes]:
        if self._hook is not None:
            for event in events:
                self._hook(event)
            bodies = None
        try:
            if events:
                self._schema.read(events)
        except EventError as error:
            if lone:
                error.row = None
                error.show_row()
            raise
        return [msgspec.json.encode(event) for event in events] if bodies is None else list(bodies)


def _decoded(body: bytes, row: int | None) -> dict[str, Any]:
    try:
        event = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventError(f"this is not JSON: {error}", row=row) from None
    _require_object(event, row)
    return event  # type: ignore[no-any-return]


def _require_object(event: object, row: int | None) -> None:
    if not isinstance(event, dict):
        raise EventError("an event is a JSON object", row=row)
