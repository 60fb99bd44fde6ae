"""Reading a file of subscriptions into a filter.

A file is a table with the columns of `rtfilter.subscriptions.subscription_tables`. In JSON lines, a string is
SQL, and an object has the names of columns as keys. In CSV, an empty cell is a missing one; ids are integers
if all are written as integers without leading zeros, and otherwise text. Without ids, the id is the row.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import FileError
from rtfilter.basics.text import numbered, shown
from rtfilter.cli.arguments import subscription_id
from rtfilter.cli.terminal import CommandError, counted, say
from rtfilter.reading import files
from rtfilter.reading.csv_cells import BOUNDS as BOUND_READERS
from rtfilter.reading.csv_cells import LARGE

if TYPE_CHECKING:
    from rtfilter.definition import Definition
    from rtfilter.events.schema import Schema
    from rtfilter.filter import EventFilter
    from rtfilter.subscriptions.loading import BadSubscription

_INTEGER = re.compile(r"\s*-?(0|[1-9][0-9]{0,29})\s*")

_NO_SUBSCRIPTION = (
    'a subscription is a JSON string, an SQL condition, or an object with "where" (SQL, or an event pattern '
    'as an object) or closed bounds such as "low.price" and "high.price", and optionally "id", "ttl" or '
    '"expires", and "metadata"'
)


class _FileTable(NamedTuple):
    """A table of n subscriptions, without the rows of the file that cannot be read."""

    columns: Any
    """A dict of columns, or an Arrow table."""
    at: Sequence[int]
    """Lines of the rows; for Parquet, their numbers from 0."""
    rows: Sequence[int]
    """Numbers of the rows, from 0."""


class _Refusals:
    """Rows that cannot be used: the first one ends the command, or, with `skip`, each is left out."""

    def __init__(self, path: str, skip: bool) -> None:
        self._path, self._skip = path, skip
        self.count = 0

    def place(self, at: int) -> str:
        """Return the name of a row in messages."""
        parquet = self._path.endswith(".parquet")
        return files.row_place(self._path, at) if parquet else files.place(self._path, at)

    def add(self, message: str) -> None:
        """Report a row that is left out. Raises `CommandError` without `skip`."""
        if not self._skip:
            raise CommandError(message)
        self.count += 1
        say(f"left out: {message}")


def is_index(path: str) -> bool:
    """Return whether a path is a saved index, not a file of subscriptions."""
    return os.path.isdir(path)


def open_index(path: str) -> EventFilter:
    """Open a saved index.

    Raises
    ------
    OSError, CommandError
        The index is missing or damaged.
    """
    from rtfilter.basics.errors import SnapshotError
    from rtfilter.filter import EventFilter

    os.stat(path)  # raises for a missing path, which is not a damaged index
    try:
        return EventFilter.load(path)
    except SnapshotError as error:
        raise CommandError(str(error)) from None


def build_filter(
    path: str,
    definition: Definition,
    *,
    progress: bool = False,
    only: str | None = None,
    skip: bool = False,
) -> EventFilter:
    """Read a file of subscriptions into a filter.

    Parameters
    ----------
    path : str
    definition : Definition
    progress : bool
        Show progress even if standard error is no terminal.
    only : str, optional
        Read only the subscription with this id.
    skip : bool
        Leave out subscriptions that cannot be used, and report each on standard error.

    Raises
    ------
    OSError, CommandError
        The file cannot be read, or a subscription in it is unusable; the message has the place.
    """
    from rtfilter.basics.errors import PredicateError
    from rtfilter.subscriptions.subscription_tables import read_table

    target, refusals = definition.filter(), _Refusals(path, skip)

    def refuse(bad: BadSubscription) -> None:
        refusals.add(f"{refusals.place(at[bad.row])}: {str(bad.error).removeprefix(f'row {bad.row}, ')}")

    try:
        columns, at, rows = _read_file(path, definition.schema, refusals, progress)
        table = read_table(columns, definition.schema)
        assert table is not None
        ids = table.ids if any(id is not None for id in table.ids or ()) else list(rows)
        table = table._replace(ids=ids, place=lambda row: refusals.place(at[row]))
        if only is not None:
            wanted = asked_id(only, next((type(id) for id in ids if id is not None), None))
            row = ids.index(wanted) if wanted in ids else len(ids)
            table, at = table.part(slice(row, row + 1)), at[row : row + 1]
        target.subscribe_many(table, on_error=refuse)
    except PredicateError as error:
        raise CommandError(f"{files.place(path)}: {error}") from None
    if refusals.count:
        say(f"{files.place(path)}: {numbered(refusals.count, 'subscription')} left out")
    if only is not None and not len(target):
        raise CommandError(f"{files.place(path)}: there is no subscription with the id {only}")
    return target


def asked_id(text: str, kind: type | None) -> int | str | UUID:
    """Return the id in the argument --id, if the ids of the index have this type; None for an empty index.

    Raises
    ------
    CommandError
        The text is no id of this type.
    """
    if kind is str:
        return text
    if kind is UUID:
        try:
            return UUID(text)
        except ValueError:
            raise CommandError(f"argument --id: the ids of this index are UUIDs; got {shown(text)}") from None
    try:
        return subscription_id(text)
    except ArgumentTypeError as error:
        raise CommandError(f"argument --id: {error}") from None


def _read_file(path: str, schema: Schema, refusals: _Refusals, progress: bool) -> _FileTable:
    kind = files.check(path)
    if path == files.STDIN:
        raise CommandError("subscriptions cannot be read from standard input; only events can")
    if kind == "jsonl":
        return _read_json(path, refusals, progress)
    if kind == "csv":
        return _read_csv(path, schema, refusals, progress)
    file, arrow = files.open_parquet(path), files.pyarrow(path)
    try:
        table = file.read()
    except (arrow.ArrowException, OSError) as error:
        raise files.damaged(path, error) from None
    return _FileTable(table, range(len(table)), range(len(table)))


def _read_json(path: str, refusals: _Refusals, progress: bool) -> _FileTable:
    from rtfilter.subscriptions.subscription_tables import BOUNDS, COLUMNS

    found: list[dict[str, Any]] = []
    at, rows = array("q"), array("q")
    lines = ((line, text) for line, text in files.lines(path) if not text.isspace())
    for row, (line, text) in enumerate(counted(lines, "subscriptions", progress)):
        try:
            value = files.parse_json(text, files.place(path, line))
        except FileError as error:
            refusals.add(str(error))
            continue
        value = {"where": value} if isinstance(value, str) else value
        names = value.keys() if isinstance(value, dict) else set()
        bounds = {name for name in names if name.startswith(BOUNDS)}
        if not ("where" in names or bounds) or not names <= {*COLUMNS, *bounds}:
            refusals.add(f"{refusals.place(line)}: {_NO_SUBSCRIPTION}")
            continue
        found.append(value)
        at.append(line)
        rows.append(row)
    present = dict.fromkeys(name for value in found for name in value) or ["where"]
    return _FileTable({name: [value.get(name) for value in found] for name in present}, at, rows)


class _CsvColumn(NamedTuple):
    place: int
    read: Callable[[str], Any]
    """Raises `ValueError` for text of another type."""
    family: str
    """Type of the cells, for messages."""
    cells: Any
    """A list, or a `_Cells`."""


def _read_csv(path: str, schema: Schema, refusals: _Refusals, progress: bool) -> _FileTable:
    from rtfilter.predicates.bounds.bound_columns import bounded_columns

    header, lines = files.read_csv(path)
    columns = []
    for bound in bounded_columns(header, schema):
        family = schema.attributes[bound.attribute].family
        columns.append(_CsvColumn(bound.at, BOUND_READERS[family], family, _Cells()))
    readers: dict[str, Callable[[str], Any]] = {
        "where": str,
        "id": str,
        "ttl": _number,
        "expires": _number,
        "metadata": _text,
    }
    columns += [_CsvColumn(header.index(name), readers[name], "", []) for name in readers if name in header]
    at, rows = array("q"), array("q")
    for number, (line, row) in enumerate(counted(lines, "subscriptions", progress)):
        values = []
        for column in columns:
            cell = row[column.place]
            try:
                values.append(column.read(cell) if cell or not column.family else None)
            except ValueError:
                reason = f"column {header[column.place]!r}: {shown(cell)} is not a {column.family}"
                refusals.add(f"{refusals.place(line)}: {reason}")
                break
        else:
            for column, value in zip(columns, values, strict=True):
                column.cells.append(value)
            at.append(line)
            rows.append(number)
    found = {header[one.place]: one.cells.column() if one.family else one.cells for one in columns}
    if "id" in found:
        found["id"] = _csv_ids(found["id"])
    return _FileTable(found, at, rows)


def _csv_ids(cells: list[str]) -> list[int | str | None]:
    kind = int if all(_INTEGER.fullmatch(cell) for cell in cells if cell) else str
    return [kind(cell) if cell else None for cell in cells]


def _text(cell: str) -> str | None:
    return cell or None


def _number(cell: str) -> float | str | None:
    try:
        return float(cell)
    except ValueError:
        return cell or None


class _Cells:
    """The cells of a column, most of them as float64, because objects would take four times the memory."""

    def __init__(self) -> None:
        self._values, self._empty = array("d"), bytearray()
        self._large: dict[int, int] = {}  # by place: integers that float64 cannot represent exactly

    def append(self, value: float | None) -> None:
        """Add a bound, or None."""
        if isinstance(value, int) and abs(value) >= LARGE:
            self._large[len(self._empty)] = value
            value = 0.0
        self._values.append(0.0 if value is None else value)
        self._empty.append(value is None)

    def column(self) -> AnyArray:
        """Return all cells, (n,), with empty ones masked."""
        import numpy as np

        values: AnyArray = np.frombuffer(self._values, np.float64)
        if self._large:
            values = values.astype(object)
            values[list(self._large)] = list(self._large.values())
        return np.ma.MaskedArray(values, np.frombuffer(self._empty, np.bool_))
