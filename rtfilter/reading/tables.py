"""Batches of a file as tables of a schema, with reports of misspelt names and values of another type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema
    from rtfilter.events.table import EventTable
    from rtfilter.reading.events import EventBatch
    from rtfilter.reading.inference import Tell


class Tables:
    """Reads batches. Reports the first misspelt name and the first value of another type of each attribute.

    Parameters
    ----------
    schema : Schema
        If it is strict, both are errors instead.
    tell : callable
        Takes the messages.
    """

    def __init__(self, schema: Schema, tell: Tell) -> None:
        self.schema, self._tell = schema, tell
        self._told: set[tuple[str, bool]] = set()

    def read(self, batch: EventBatch) -> EventTable:
        """Read a batch. Raises `FileError` that names the place of an event that cannot be read."""
        with batch.naming_places():
            table = self.schema.read(batch.events)
        for one in table.odd:
            if (one.name, one.misspelt) not in self._told:
                self._told.add((one.name, one.misspelt))
                self._tell(f"{batch.place(one.row)}: {one} (later ones are not reported)")
        table.odd = tuple(one._replace(told=True) for one in table.odd)
        return table
