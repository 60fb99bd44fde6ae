"""Rows that cannot be used: an error that names the row by its id, or left out and reported."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from pyspark.errors import PySparkException

from rtfilter import EventError, PredicateError, RTFilterError, Schema, SnapshotError
from rtfilter.basics.dtypes import BoolArray
from rtfilter.basics.errors import FileError
from rtfilter.basics.text import shown
from rtfilter.events.cells import encode_cell
from rtfilter.events.fields import Field
from rtfilter.events.foreign import arrow_values
from rtfilter.events.moments import instants
from rtfilter.events.reading import read_usable
from rtfilter.events.table import EventTable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: The treatment of an event that cannot be used.
OnError = Literal["raise", "skip"]
#: Rows that the log names, of a task or of a micro-batch.
NAMED = 10


def unread(events: DataFrame) -> str | None:
    """Return the column in which Spark keeps the text of records that it cannot read; None without one."""
    name = str(events.sparkSession.conf.get("spark.sql.columnNameOfCorruptRecord"))
    texts = events.columns.count(name) == 1 and events.schema[name].dataType.typeName() == "string"
    return name if texts else None


def checked(on_error: OnError) -> OnError:
    """Return `on_error`. Raises `ValueError` unless it is "raise" or "skip"."""
    if on_error in ("raise", "skip"):
        return on_error
    raise ValueError(f'on_error is "raise" or "skip", not {on_error!r}')


@dataclass
class LeftOut:
    """Rows that were left out.

    Attributes
    ----------
    count : int
    named : list of str
        The first rows, each with its id and the reason.
    """

    count: int = 0
    named: list[str] = field(default_factory=list)

    def add(self, other: LeftOut) -> None:
        """Add the rows of another one."""
        self.count += other.count
        self.named += other.named[: NAMED - len(self.named)]

    def tell(self) -> None:
        """Warn in the log of each named row, and of the number of all others."""
        log = logging.getLogger("rtfilter")
        for one in self.named:
            log.warning("left out: %s", one)
        if self.count > len(self.named):
            log.warning("left out: %s more", f"{self.count - len(self.named):,}")


@dataclass(frozen=True)
class TaskEventReader:
    """Reads the events of a task.

    Attributes
    ----------
    schema : Schema
    names : list of str
        The columns that are attributes.
    id : str
        The column that names an event.
    on_error : OnError
        "raise": an `EventError` names the event. "skip": the event is left out.
    unread : str, optional
        The column with the text of an event that Spark could not read, and null for all others.
    """

    schema: Schema
    names: list[str]
    id: str
    on_error: OnError = "raise"
    unread: str | None = None

    def read(
        self, events: pa.RecordBatch | pa.Table, left_out: LeftOut | None = None
    ) -> tuple[pa.RecordBatch | pa.Table, EventTable]:
        """Return the events that can be used, and their table.

        Others are added to `left_out`. Raises `EventError`.
        """
        import pyarrow as pa

        if self.unread is not None and len(events) > events.column(self.unread).null_count:
            events = self._readable(events, LeftOut() if left_out is None else left_out)
        try:
            return events, self.schema.read(events.select(self.names))
        except EventError as error:
            if self.on_error == "raise" or error.row is None:
                row = error.row
                raise (
                    error
                    if row is None
                    else EventError(
                        f"event {self._name(events, row)}: {error.message}",
                        attribute=error.attribute,
                        reason=error.reason,
                    )
                ) from None
        given = LeftOut() if left_out is None else left_out
        usable = self._inside(events, given)
        keep = np.ones(len(usable), np.bool_)
        keep[self._note_bad(usable, given)] = False
        found = usable.filter(pa.array(keep))
        return found, self.schema.read(found.select(self.names))

    def _readable(self, events: pa.RecordBatch | pa.Table, left_out: LeftOut) -> pa.RecordBatch | pa.Table:
        """Return the events that Spark could read. Others are added to `left_out`. Raises `EventError`."""
        texts = events.column(self.unread)
        for row in np.flatnonzero(texts.is_valid()).tolist():
            reason = f"event {self._name(events, row)}: Spark cannot read it: {shown(texts[row].as_py())}"
            if self.on_error == "raise":
                raise EventError(reason)
            left_out.add(LeftOut(1, [reason]))
        return events.filter(texts.is_null())

    def _name(self, events: pa.RecordBatch | pa.Table, row: int) -> str:
        return shown(events.column(self.id)[row].as_py())

    def _note_bad(self, events: pa.RecordBatch | pa.Table, left_out: LeftOut) -> list[int]:
        """Add the events that cannot be used to `left_out`, and return their rows."""
        _, bad = read_usable(self.schema.read, events.select(self.names))
        for one in bad:
            left_out.add(LeftOut(1, [f"event {self._name(events, one.row)}: {one.reason}"]))
        return [one.row for one in bad]

    def _inside(self, events: pa.RecordBatch | pa.Table, left_out: LeftOut) -> pa.RecordBatch | pa.Table:
        """Remove the bad rows that a check of whole columns finds: they may be many."""
        import pyarrow as pa

        table = events.select(self.names)
        table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        while any(map(pa.types.is_struct, table.schema.types)):
            table = table.flatten()
        bad = np.zeros(len(events), np.bool_)
        for one in self.schema.fields:
            at = table.schema.get_field_index(one.name)
            if at >= 0:
                bad |= _refused(one, table.column(at))
        rows = np.flatnonzero(bad)
        for row in rows[: max(NAMED - len(left_out.named), 0)].tolist():
            self._note_bad(events.slice(row, 1), left_out)
            left_out.count -= 1
        left_out.count += len(rows)
        return events.filter(pa.array(~bad))


def _refused(field: Field, column: pa.ChunkedArray) -> BoolArray:
    """Return a mask of values that are no values of an attribute, bool (n,), as far as this check sees."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    if field.family == "number" and (types.is_integer(kind) or types.is_floating(kind)):
        values, missing = arrow_values(column)
        return field.outside(values) & ~missing
    if field.family == "timestamp" and (types.is_timestamp(kind) or types.is_date(kind)):
        values, missing = arrow_values(column)
        moments, _, _, alien = instants(values)
        return field.outside(moments) & ~missing & ~alien
    try:
        coded = column.combine_chunks().dictionary_encode()
    except pa.ArrowNotImplementedError:
        return np.zeros(len(column), np.bool_)
    refused = np.zeros(len(coded.dictionary) + 1, np.bool_)  # the last is a missing one
    for place, value in enumerate(coded.dictionary.to_pylist()):
        try:
            encode_cell(field, value, 0)
        except EventError:
            refused[place] = True
    found: BoolArray = refused[coded.indices.fill_null(-1).to_numpy()]
    return found


_CLASSES: dict[str, type[RTFilterError]] = {
    "EventError": EventError,
    "FileError": FileError,
    "PredicateError": PredicateError,
    "SnapshotError": SnapshotError,
}
_OWN = re.compile(
    r"^rtfilter\.basics\.errors\.(\w+): (.*?)(?=\n+(?:\tat |\s*SQLSTATE|\s*$|\S))", re.MULTILINE | re.DOTALL
)
"""The last line of a trace of Python. Indented lines follow that show a place in a condition."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the error of rtfilter that a task has raised, instead of Spark's error."""
    try:
        yield
    except PySparkException as error:
        found = own_error(str(error))
        if found is None:
            raise
        raise found from None


def own_error(text: str) -> RTFilterError | None:
    """Return the error of rtfilter in the text of an error of Spark, or None."""
    found = [(name, message) for name, message in _OWN.findall(text + "\n") if name in _CLASSES]
    if not found:
        return None
    name, message = found[-1]
    first, *place = message.split("\n")
    if name == "PredicateError" and len(place) == 2:  # the condition, and a caret below it
        return PredicateError(first, place[0].strip(), place[1].index("^") - _indent(place[0]))
    return _CLASSES[name](message)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
