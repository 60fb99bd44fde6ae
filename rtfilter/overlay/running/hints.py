"""Hints for who publishes: attributes that the type of an event does not have, and values of another type.

Neither is an error, as with any filter: such an event is taken. But nobody may get it who is meant to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import ALIEN
from rtfilter.events.schema import Schema
from rtfilter.events.table import PHRASES, EventTable
from rtfilter.text import shown

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
                yield f"{type}: {_unknown(schema, name)} It is delivered, but no subscription can ask for it"
        if table.choices is not None:  # whose elements may be of the type
            return
        point = table.points[0].tolist()
        for name, attribute in schema.attributes.items():
            alien = point[schema.offsets[name]] == ALIEN
            if alien and self._is_new(client, type, name, True):
                value = f" {shown(event[name])}" if name in event else ""
                what = f"attribute {shown(name)} is {PHRASES[attribute.family]}, and the value{value} is not"
                yield f"{type}: {what}. It satisfies nothing but IS NOT NULL"

    def _is_new(self, client: str, *what: Any) -> bool:
        told = self._told.setdefault(client, set())
        if what in told or len(told) >= MOST:
            return False
        told.add(what)
        if len(self._told) > CLIENTS:
            del self._told[next(iter(self._told))]
        return True


def _unknown(schema: Schema, name: str) -> str:
    try:
        schema.attribute(name)
    except PredicateError as error:
        return str(error) if str(error).endswith("?") else f"{error}."
    raise AssertionError(f"{name} is known")
