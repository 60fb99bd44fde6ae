"""Reading the events of a file in batches, so that files may be larger than memory.

The row of an event, which the command line prints, counts from 0 and skips blank lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from rtfilter.basics.errors import FileError
from rtfilter.basics.text import composed, listed, shown
from rtfilter.reading import files
from rtfilter.reading.csv_cells import VALUES
from rtfilter.reading.inference import (
    SAMPLE,
    Tell,
    infer_from_arrow,
    infer_from_cells,
    infer_from_objects,
    kinds_of_cells,
)

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema
    from rtfilter.events.table import EventTable


@dataclass(frozen=True)
class EventBatch:
    """Some events of a file, in order.

    Attributes
    ----------
    events : list of dict, or pyarrow.RecordBatch
        Events in a form that `rtfilter.events.schema.Schema.read` takes.
    place : callable
        Returns the place of a row of the batch in the file, as messages name it.
    """

    events: Any
    place: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.events)

    def objects(self) -> list[dict[str, Any]]:
        """Return the events as objects. Raises `FileError` with the place of a value that no event has."""
        if isinstance(self.events, list):
            return self.events
        from rtfilter.events.foreign import arrow_rows

        with self.naming_places():
            rows = arrow_rows(self.events)
        return [{name: value for name, value in row.items() if value is not None} for row in rows]

    def one(self, row: int) -> EventBatch:
        """Return the batch of only the event in `row`."""
        only = self.events[row : row + 1] if isinstance(self.events, list) else self.events.slice(row, 1)
        return EventBatch(only, lambda _: self.place(row))

    @contextmanager
    def naming_places(self) -> Iterator[None]:
        """Raise an `EventError` about this batch as a `FileError` that names file and line."""
        from rtfilter.basics.errors import EventError

        try:
            yield
        except EventError as error:
            raise FileError(f"{self.place(error.row or 0)}: {error.message}") from None


class EventFile(Protocol):
    """A file of events, read once."""

    def infer(self) -> Schema:
        """Infer the schema from the first `SAMPLE` events, without using them up."""

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        """Yield the events in batches of at most `size`, with the attributes of the schema."""

    def whole_batches(self, schema: Schema | None, size: int) -> Iterator[EventBatch]:
        """Yield the events with all attributes of the file.

        The schema gives the types of its attributes. Types of other columns of CSV are inferred and reported.
        """


def open_events(path: str, tell: Tell) -> EventFile:
    """Open a file of events by the ending of its name.

    Parameters
    ----------
    path : str
    tell : callable
        Takes messages about inferred types of CSV.

    Raises
    ------
    OSError, FileError
        It cannot be read.
    """
    kind = files.check(path)
    if kind == "csv":
        return _Csv(path, tell)
    return _JsonLines(path) if kind == "jsonl" else _Parquet(path, tell)


class _JsonLines:
    """A file with a JSON object on each line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._records = _objects(path)

    def infer(self) -> Schema:
        head = list(islice(self._records, SAMPLE))
        self._records = chain(head, self._records)
        return infer_from_objects((event for _, event in head), self._path)

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        return self.whole_batches(schema, size)

    def whole_batches(self, schema: Schema | None, size: int) -> Iterator[EventBatch]:
        while records := list(islice(self._records, size)):
            yield _batch(self._path, records)


def _objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, value in files.json_lines(path):
        if not isinstance(value, dict):
            raise FileError(f"{files.place(path, line)}: an event is a JSON object, not {_kind(value)}")
        yield line, value


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}.get(
        type(value), "a number"
    )


def _batch(path: str, records: list[tuple[int, dict[str, Any]]]) -> EventBatch:
    return EventBatch([event for _, event in records], lambda row: files.place(path, records[row][0]))


class _Csv:
    """A header, then one event a row; an empty cell is a missing attribute."""

    def __init__(self, path: str, tell: Tell) -> None:
        self._path, self._tell = path, tell
        self._header, self._rows = files.read_csv(path)

    def infer(self) -> Schema:
        return infer_from_cells(self._header, self._head(), self._path, self._tell)

    def _head(self) -> list[tuple[int, list[str]]]:
        head = list(islice(self._rows, SAMPLE))
        self._rows = chain(head, self._rows)
        return head

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        _check_columns(schema, self._header, self._path, self._tell)
        return self._of_kinds({name: one.kind for name, one in schema.attributes.items()}, size)

    def whole_batches(self, schema: Schema | None, size: int) -> Iterator[EventBatch]:
        kinds = {name: one.kind for name, one in schema.attributes.items()} if schema is not None else {}
        if schema is not None:
            _check_columns(schema, self._header, self._path, self._tell)
        places = [at for at, name in enumerate(self._header) if name not in kinds]
        if places:
            lacking = [self._header[at] for at in places]
            cells = [(line, [row[at] for at in places]) for line, row in self._head()]
            inferred = dict.fromkeys(lacking, "str") | kinds_of_cells(lacking, cells, self._path, self._tell)
            given = json.dumps(inferred)
            self._tell(f"types inferred from the events; to correct them, give a schema:\n{given}")
            kinds |= inferred
        return self._of_kinds(kinds, size)

    def _of_kinds(self, kinds: Mapping[str, str], size: int) -> Iterator[EventBatch]:
        columns = [(at, name, VALUES[kinds[name]]) for at, name in enumerate(self._header) if name in kinds]
        while rows := list(islice(self._rows, size)):
            try:
                records = [
                    (line, {name: convert(row[at]) for at, name, convert in columns if row[at]})
                    for line, row in rows
                ]
            except ValueError:
                raise self._refusal(kinds, columns, rows) from None
            yield _batch(self._path, records)

    def _refusal(
        self,
        kinds: Mapping[str, str],
        columns: list[tuple[int, str, Callable[[str], object]]],
        rows: list[tuple[int, list[str]]],
    ) -> FileError:
        """Return the error about the first cell that is of another type than its attribute."""
        from rtfilter.events.fields import PHRASES
        from rtfilter.events.schema import Attribute

        for line, row in rows:
            for at, name, convert in columns:
                try:
                    if row[at]:
                        convert(row[at])
                except ValueError:
                    phrase = PHRASES[Attribute(kinds[name]).family]
                    return FileError(
                        f"{files.place(self._path, line)}: column {name!r}: {shown(row[at])} is not "
                        f"{phrase}; leave the cell empty if the value is missing, or let the type be str"
                    )
        raise AssertionError("every cell is of its type")


class _Parquet:
    """Columns by name; null is a missing attribute."""

    def __init__(self, path: str, tell: Tell) -> None:
        self._path, self._tell = path, tell
        self._file = files.open_parquet(path)

    def infer(self) -> Schema:
        return infer_from_arrow(self._file.schema_arrow, self._path)

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        names = self._file.schema_arrow.names
        wanted = set(schema.names) | {name.split(".")[0] for name in schema.names}
        columns = [name for name in names if composed(name) in wanted]
        _check_columns(schema, names, self._path, self._tell)
        return self._of_columns(columns, size)

    def whole_batches(self, schema: Schema | None, size: int) -> Iterator[EventBatch]:
        names = self._file.schema_arrow.names
        if schema is not None:
            _check_columns(schema, names, self._path, self._tell)
        return self._of_columns(names, size)

    def _of_columns(self, columns: list[str], size: int) -> Iterator[EventBatch]:
        start = 0
        arrow = files.pyarrow(self._path)
        fields = [self._file.schema_arrow.field(name) for name in columns]
        _require_meaning([one for one in fields if not arrow.types.is_struct(one.type)], self._path)
        try:
            for events in self._file.iter_batches(batch_size=size, columns=columns):
                yield EventBatch(events, partial(_row_place, self._path, start))
                start += len(events)
        except (arrow.ArrowException, OSError) as error:
            raise files.damaged(self._path, error) from None


def _require_meaning(columns: list[Any], path: str) -> None:
    from rtfilter.basics.errors import EventError
    from rtfilter.events.foreign import require_meaning

    try:
        require_meaning(columns)
    except EventError as error:
        raise FileError(f"{files.place(path)}: {error.message}") from None


def _row_place(path: str, start: int, row: int) -> str:
    return files.row_place(path, start + row)


def _check_columns(schema: Schema, header: list[str], path: str, tell: Tell) -> None:
    """Report misspelt names. Refuse a table without any attribute: its separator or the schema is wrong."""
    # A dotted attribute may lie in a column of structs.
    known = schema.attributes.keys() | {name.partition(".")[0] for name in schema.names}
    if not known & set(map(composed, header)):
        raise FileError(
            f"{files.place(path)}: none of its columns ({listed(header)}) is an attribute of the schema "
            f"({listed(schema.names)})"
        )
    _check_names(schema, header, path, tell)


def _check_names(schema: Schema, header: Iterable[str], path: str, tell: Tell) -> None:
    """Report misspelt names of columns; readers use only the columns of the schema.

    Raises
    ------
    FileError
        A column is unknown, and the schema is strict.
    """
    from rtfilter.basics.errors import EventError
    from rtfilter.events.mismatches import check_header

    try:
        for hint in check_header(schema.fields, [composed(name) for name in header]):
            tell(f"{files.place(path)}: {hint}")
    except EventError as error:
        raise FileError(f"{files.place(path)}: {error.message}") from None


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
