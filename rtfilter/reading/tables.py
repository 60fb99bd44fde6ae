"""Batches of a file as tables of a schema, with reports of misspelt names and values of another type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rtfilter.errors import FileError
from rtfilter.reading import files
from rtfilter.text import composed

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


def check_names(schema: Schema, header: Iterable[str], path: str, tell: Tell) -> None:
    """Report misspelt names of columns; readers use only the columns of the schema.

    Raises
    ------
    FileError
        A column is unknown, and the schema is strict.
    """
    from rtfilter.errors import EventError
    from rtfilter.events.oddities import look_at_header

    try:
        for hint in look_at_header(schema.fields, [composed(name) for name in header]):
            tell(f"{files.place(path)}: {hint}")
    except EventError as error:
        raise FileError(f"{files.place(path)}: {error.message}") from None
