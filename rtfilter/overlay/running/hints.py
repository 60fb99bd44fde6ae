"""Hints for who publishes: attributes that the type of an event does not have, and values of another type.

Neither is an error, as with any filter: such an event is taken. But nobody may get it who is meant to.
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
"""Most clients of whom it is remembered what they were told."""


class Hints:
    """Gives each hint once to each client, as long as it is remembered."""

    def __init__(self) -> None:
        self._told: dict[str, set[tuple[str, str, bool]]] = {}

    def of(
        self, client: str, type: str, schema: Schema, event: Mapping[str, Any], table: EventTable
    ) -> Iterator[str]:
        """The hints for an event of a client that it was not given.

        Parameters
        ----------
        client, type : str
        schema : Schema
            Of the type.
        event : mapping
        table : EventTable
            The event as the schema has read it.
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
