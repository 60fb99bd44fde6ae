"""Reading a file of subscriptions into a filter.

JSON lines hold conditions: a JSON string is SQL, an object has "where" (SQL) or "pattern" (an event pattern)
and optionally "id". Tables hold conditions in the column ``where``, or closed bounds in the columns
``low.<attribute>`` and ``high.<attribute>``, where an empty cell is no bound; and optionally ids in ``id``.
Without ids, the id of a subscription is its row, from 0. See `rtfilter.cli.subscription_rows` for ids, times
to live and metadata.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rtfilter.cli.file_bounds import FileBounds, find_columns, read_arrow_bounds, read_csv_bounds
from rtfilter.cli.subscription_rows import (
    LABELS,
    NO_LABELS,
    Cells,
    FileLabels,
    FileRows,
    Id,
    Ids,
    arrow_labels,
    asked_id,
    csv_labels,
    id_column,
)
from rtfilter.cli.terminal import CommandError, counted, say
from rtfilter.errors import FileError
from rtfilter.reading import files
from rtfilter.text import numbered

if TYPE_CHECKING:
    from rtfilter.definition import Definition
    from rtfilter.events.schema import Schema
    from rtfilter.filter import EventFilter
    from rtfilter.subscriptions.loading import BadSubscription


class FileSubscription(NamedTuple):
    """A condition in a file of subscriptions."""

    at: int
    """Its line, or row of a Parquet file."""
    source: Any = None
    """SQL or an event pattern; None if the row cannot be used, which was reported."""
    id: object = None
    labels: Cells = NO_LABELS


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
    from rtfilter.errors import SnapshotError
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
        Leave out conditions that cannot be used, and report each on standard error.

    Raises
    ------
    OSError, CommandError
        The file cannot be read, or a subscription in it is unusable; the message has the place.
    """
    target = definition.filter()
    rows = FileRows(path, skip)
    found = _read_file(path, definition.schema, rows)
    if isinstance(found, FileBounds):
        if skip:
            raise CommandError(
                f"{files.place(path)}: --on-error skip is for conditions; of bounds all are added, or none"
            )
        _subscribe_bounds(path, target, found, only)
    else:
        _subscribe_conditions(target, list(counted(found, "subscriptions", progress)), rows, only)
    if rows.refused:
        say(f"{files.place(path)}: {numbered(rows.refused, 'subscription')} left out")
    if only is not None and not len(target):
        raise CommandError(f"{files.place(path)}: there is no subscription with the id {only}")
    return target


def _read_file(path: str, schema: Schema, rows: FileRows) -> FileBounds | Iterator[FileSubscription]:
    kind = files.check(path)
    if path == files.STDIN:
        raise CommandError("subscriptions cannot be read from standard input; only events can")
    if kind == "jsonl":
        return _json_conditions(path, rows)
    if kind == "csv":
        header, lines = files.read_csv(path)
        columns = find_columns(path, header, schema)
        if columns:
            return read_csv_bounds(path, header, lines, columns, schema)
        return _csv_conditions(header, lines)
    file = files.open_parquet(path)
    arrow = files.pyarrow(path)
    try:
        table = file.read()
    except (arrow.ArrowException, OSError) as error:
        raise files.damaged(path, error) from None
    columns = find_columns(path, table.column_names, schema)
    if columns:
        return read_arrow_bounds(path, table, columns, schema)
    return _arrow_conditions(table, rows)


def _json_conditions(path: str, rows: FileRows) -> Iterator[FileSubscription]:
    for line, text in files.lines(path):
        if text.isspace():
            continue
        try:
            yield _json_condition(line, files.parse_json(text, files.place(path, line)))
        except FileError as error:
            rows.tell(str(error))
            yield FileSubscription(line)
        except ValueError as error:
            rows.refuse(line, error)
            yield FileSubscription(line)


def _json_condition(line: int, value: Any) -> FileSubscription:
    if isinstance(value, str):
        return FileSubscription(line, value)
    keys = set(value) if isinstance(value, dict) else set()
    if keys - {"id", *LABELS} not in ({"where"}, {"pattern"}):
        raise ValueError(
            "a subscription is a JSON string (an SQL condition) or an object with "
            '"where" (SQL) or "pattern" (an event pattern), and optionally "id", "ttl" and "metadata"'
        )
    if not isinstance(value.get("where", ""), str):
        raise ValueError('"where" must be a string, an SQL condition')
    if not isinstance(value.get("pattern", {}), dict):
        raise ValueError('"pattern" must be an object, an event pattern')
    if isinstance(value.get("metadata"), str):
        raise ValueError('"metadata" must be an object')
    labels = (value.get("ttl"), value.get("metadata")) if keys & set(LABELS) else NO_LABELS
    return FileSubscription(line, value.get("where", value.get("pattern")), value.get("id"), labels)


def _csv_conditions(header: list[str], lines: Any) -> Iterator[FileSubscription]:
    where, id = header.index("where"), header.index("id") if "id" in header else None
    labels_of = csv_labels(header)
    found = list(lines)
    cells = [""] * len(found) if id is None else [row[id] for _, row in found]
    for (line, row), given in zip(found, id_column(cells), strict=True):
        yield FileSubscription(line, row[where], given, labels_of(row))


def _arrow_conditions(table: Any, rows: FileRows) -> Iterator[FileSubscription]:
    sources = table.column("where").to_pylist()
    ids = table.column("id").to_pylist() if "id" in table.column_names else [None] * len(sources)
    for row, (source, id, labels) in enumerate(zip(sources, ids, arrow_labels(table), strict=True)):
        if not isinstance(source, str):
            rows.refuse(row, "the column where must hold SQL conditions")
            yield FileSubscription(row)
        else:
            yield FileSubscription(row, source, id, labels)


def _subscribe_conditions(
    target: EventFilter, conditions: Sequence[FileSubscription], rows: FileRows, only: str | None
) -> None:
    ids, labels = Ids(rows), FileLabels()
    taken: list[tuple[Id, FileSubscription]] = []
    for row, condition in enumerate(conditions):
        if condition.source is not None:
            id = ids.take(row, condition.at, condition.id)
            if id is not None:
                taken.append((id, condition))
    if only is not None:
        wanted = _wanted(only, [id for id, _ in taken])
        taken = [(id, condition) for id, condition in taken if id == wanted]
    usable = []
    for id, condition in taken:
        try:
            labels.take(condition.labels)
        except (TypeError, ValueError) as error:
            rows.refuse(condition.at, error)
        else:
            usable.append((id, condition))

    def refuse(bad: BadSubscription) -> None:
        rows.refuse(usable[bad.row][1].at, str(bad.error).removeprefix(f"row {bad.row}, "))

    sources = [condition.source for _, condition in usable]
    target.subscribe_many(sources, ids=[id for id, _ in usable], on_error=refuse, **labels.options())


def _wanted(only: str, ids: Sequence[Id]) -> object:
    return asked_id(only, type(ids[0]) if ids else None)


def _subscribe_bounds(path: str, target: EventFilter, bounds: FileBounds, only: str | None) -> None:
    import numpy as np

    from rtfilter.errors import PredicateError

    rows, labels = FileRows(path), FileLabels()
    ids = Ids(rows)
    taken = [ids.take(row, *pair) for row, pair in enumerate(zip(bounds.at, bounds.ids, strict=True))]
    names = [id for id in taken if id is not None]
    keep = np.arange(len(names))
    if only is not None:
        wanted = _wanted(only, names)
        keep = np.array([row for row, id in enumerate(names) if id == wanted], np.int64)
    low, high = ({name: column[keep] for name, column in side.items()} for side in (bounds.low, bounds.high))
    if bounds.labels is not None:
        for row in keep.tolist():
            try:
                labels.take(bounds.labels[row])
            except (TypeError, ValueError) as error:
                rows.refuse(bounds.at[row], error)
    chosen: Any = [names[row] for row in keep.tolist()]
    try:
        target.subscribe_boxes(low, high, ids=chosen, **labels.options())
    except PredicateError as error:
        if error.row is None:
            raise CommandError(f"{files.place(path)}: {error}") from None
        at = np.asarray(bounds.at)[keep][error.row]
        raise CommandError(f"{rows.place(int(at))}: {error.message}") from None
