"""Hints for publishers: attributes that an event type does not have, and values of another type.

Neither is an error, as in any filter: such an event is accepted. But it may reach none of its subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rtfilter.events.schema import Schema
from rtfilter.events.spelling import unknown
from rtfilter.events.table import EventTable

MOST: Final = 20
"""Most hints for one client."""
CLIENTS: Final = 10_000
"""Most clients whose hints are remembered."""


class Hints:
    """Yields each hint once to each client, while the client is remembered."""

    def __init__(self) -> None:
        self._told: dict[str, set[tuple[str, str, bool]]] = {}

    def of(
        self, client: str, type: str, schema: Schema, event: Mapping[str, Any], table: EventTable
    ) -> Iterator[str]:
        """Yield the hints for an event that its client has not had yet.

        Parameters
        ----------
        client, type : str
        schema : Schema
            Schema of the type.
        event : mapping
        table : EventTable
            The event as read by the schema.
        """
        inner = {name.partition(".")[0] for name in schema.names}
        for name in event:
            if (
                name not in schema.attributes
                and name not in inner
                and self._is_new(client, type, name, False)
            ):
                hint = unknown(name, schema.names)
                yield f"{type}: {hint} (it is delivered, but no subscription can ask for it)"
        for one in table.odd:
            if not one.misspelt and self._is_new(client, type, one.name, True):
                yield f"{type}: {one}. It satisfies nothing but IS NOT NULL"

    def _is_new(self, client: str, *what: Any) -> bool:
        told = self._told.setdefault(client, set())
        if what in told or len(told) >= MOST:
            return False
        told.add(what)
        if len(self._told) > CLIENTS:
            del self._told[next(iter(self._told))]
        return True
