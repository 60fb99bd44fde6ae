"""Reading events of a file in batches, so that files may be larger than memory.

The row of an event, which the command line prints, counts from 0 and skips blank lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from rtfilter.cli import files
from rtfilter.cli.cells import VALUES
from rtfilter.cli.schemas import SAMPLE, infer_from_arrow, infer_from_cells, infer_from_objects
from rtfilter.cli.terminal import CommandError
from rtfilter.text import listed, shown

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema


@dataclass(frozen=True)
class EventBatch:
    """Some events of a file, in order.

    Attributes
    ----------
    events : list of dict, or pyarrow.RecordBatch
        What `rtfilter.events.schema.Schema.read` takes.
    place : callable
        Where in the file a row of the batch is, as messages name it.
    """

    events: Any
    place: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.events)

    def one(self, row: int) -> EventBatch:
        """Return the batch of only the event in `row`."""
        only = self.events[row : row + 1] if isinstance(self.events, list) else self.events.slice(row, 1)
        return EventBatch(only, lambda _: self.place(row))

    @contextmanager
    def naming_places(self) -> Iterator[None]:
        """Raise an `EventError` about this batch as a `CommandError` that names file and line."""
        from rtfilter.errors import EventError

        try:
            yield
        except EventError as error:
            raise CommandError(f"{self.place(error.row or 0)}: {error.message}") from None


class EventFile(Protocol):
    """A file of events, read once."""

    def infer(self) -> Schema:
        """Infer the schema from the first `SAMPLE` events, without using them up."""

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        """Yield the events in batches of at most `size`."""


def open_events(path: str) -> EventFile:
    """Open a file of events by its name's ending.

    Raises
    ------
    OSError, CommandError
        It cannot be read.
    """
    readers: dict[str, Callable[[str], EventFile]] = {"jsonl": _JsonLines, "csv": _Csv, "parquet": _Parquet}
    return readers[files.check(path)](path)


class _JsonLines:
    """One JSON object a line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._records = _objects(path)

    def infer(self) -> Schema:
        head = list(islice(self._records, SAMPLE))
        self._records = chain(head, self._records)
        return infer_from_objects((event for _, event in head), self._path)

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        while records := list(islice(self._records, size)):
            yield _batch(self._path, records)


def _objects(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, value in files.json_lines(path):
        if not isinstance(value, dict):
            raise CommandError(f"{files.place(path, line)}: an event is a JSON object, not {_kind(value)}")
        yield line, value


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}.get(
        type(value), "a number"
    )


def _batch(path: str, records: list[tuple[int, dict[str, Any]]]) -> EventBatch:
    return EventBatch([event for _, event in records], lambda row: files.place(path, records[row][0]))


class _Csv:
    """A header, then one event a row; an empty cell is a missing attribute."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._header, self._rows = files.read_csv(path)

    def infer(self) -> Schema:
        head = list(islice(self._rows, SAMPLE))
        self._rows = chain(head, self._rows)
        return infer_from_cells(self._header, head, self._path)

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        _check_columns(schema, self._header, self._path)
        columns = [
            (at, name, VALUES[schema.attributes[name].kind])
            for at, name in enumerate(self._header)
            if name in schema.attributes
        ]
        while rows := list(islice(self._rows, size)):
            try:
                records = [
                    (line, {name: convert(row[at]) for at, name, convert in columns if row[at]})
                    for line, row in rows
                ]
            except ValueError:
                raise self._refusal(schema, columns, rows) from None
            yield _batch(self._path, records)

    def _refusal(
        self,
        schema: Schema,
        columns: list[tuple[int, str, Callable[[str], object]]],
        rows: list[tuple[int, list[str]]],
    ) -> CommandError:
        """Return the error about the first cell that is of another type than its attribute."""
        from rtfilter.events.table import PHRASES

        for line, row in rows:
            for at, name, convert in columns:
                try:
                    if row[at]:
                        convert(row[at])
                except ValueError:
                    phrase = PHRASES[schema.attributes[name].family]
                    return CommandError(
                        f"{files.place(self._path, line)}: column {name!r}: {shown(row[at])} is not "
                        f"{phrase}; leave the cell empty if the value is missing, or let the type be str"
                    )
        raise AssertionError("every cell is of its type")


class _Parquet:
    """Columns by name; null is a missing attribute."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = files.open_parquet(path)

    def infer(self) -> Schema:
        return infer_from_arrow(self._file.schema_arrow, self._path)

    def batches(self, schema: Schema, size: int) -> Iterator[EventBatch]:
        names = self._file.schema_arrow.names
        wanted = set(schema.names) | {name.split(".")[0] for name in schema.names}
        columns = [name for name in names if name in wanted]
        if not columns:
            _check_columns(schema, names, self._path)
        start = 0
        arrow = files.pyarrow(self._path)
        try:
            for events in self._file.iter_batches(batch_size=size, columns=columns):
                yield EventBatch(events, partial(_row_place, self._path, start))
                start += len(events)
        except (arrow.ArrowException, OSError) as error:
            raise files.damaged(self._path, error) from None


def _row_place(path: str, start: int, row: int) -> str:
    return files.row_place(path, start + row)


def _check_columns(schema: Schema, header: list[str], path: str) -> None:
    """Refuse a table without any of the attributes: the separator or the schema is wrong."""
    if not schema.attributes.keys() & set(header):
        raise CommandError(
            f"{files.place(path)}: none of its columns ({listed(header)}) is an attribute of the schema "
            f"({listed(schema.names)})"
        )
