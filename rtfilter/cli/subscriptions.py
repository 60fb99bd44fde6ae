"""Reading a file of subscriptions into a filter.

JSON lines hold conditions: a JSON string is SQL, an object has "where" (SQL) or "pattern" (an event pattern)
and optionally "id". Tables hold conditions in the column ``where``, or closed bounds in the columns
``low.<attribute>`` and ``high.<attribute>``, where an empty cell is no bound; and optionally ids in ``id``.
Without ids, a subscription's id is its row, from 0. Times to live and metadata: `rtfilter.cli.labels`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from rtfilter.cli import files
from rtfilter.cli.bounds import Bounds, find_columns, read_arrow_bounds, read_csv_bounds
from rtfilter.cli.cells import id_of
from rtfilter.cli.labels import NAMES, NONE, Cells, Labels, of_arrow, of_csv
from rtfilter.cli.terminal import CommandError, counted
from rtfilter.text import shown

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema
    from rtfilter.filter import EventFilter
    from rtfilter.predicates.model import Predicate


class Condition(NamedTuple):
    """A subscription in a file, given as a condition."""

    at: int
    """Its line, or row of a Parquet file."""
    source: Any
    """SQL or an event pattern."""
    id: object
    labels: Cells = NONE


def is_index(path: str) -> bool:
    """Whether subscriptions are a saved index rather than a file."""
    return os.path.isdir(path)


def open_index(path: str) -> EventFilter:
    """Open a saved index.

    Raises
    ------
    OSError, CommandError
        It is missing or damaged.
    """
    from rtfilter.errors import SnapshotError
    from rtfilter.filter import EventFilter

    os.stat(path)  # a missing path is not a damaged index
    try:
        return EventFilter.load(path)
    except SnapshotError as error:
        raise CommandError(str(error)) from None


def build_filter(
    path: str,
    schema: Schema,
    *,
    capacity: tuple[int, int] | None = None,
    progress: bool = False,
    only: int | None = None,
) -> EventFilter:
    """Read a file of subscriptions into a filter.

    Parameters
    ----------
    path : str
    schema : Schema
    capacity : (int, int), optional
        See `EventFilter`.
    progress : bool
        Show progress even where standard error is no terminal.
    only : int, optional
        Read only the subscription with this id.

    Raises
    ------
    OSError, CommandError
        The file cannot be read, or a subscription in it is unusable; with its place.
    """
    from rtfilter.filter import EventFilter
    from rtfilter.index.tree import DEFAULT_CAPACITY

    try:
        target = EventFilter(schema, capacity or DEFAULT_CAPACITY, max_unbounded=None)
    except ValueError as error:
        raise CommandError(str(error)) from None
    found = _read_file(path, schema)
    if isinstance(found, Bounds):
        _subscribe_bounds(path, target, found, only)
    else:
        _subscribe_conditions(path, target, counted(found, "subscriptions", progress), only)
    if only is not None and not len(target):
        raise CommandError(f"{files.place(path)}: there is no subscription with the id {only}")
    return target


def _read_file(path: str, schema: Schema) -> Bounds | Iterator[Condition]:
    kind = files.check(path)
    if path == files.STDIN:
        raise CommandError("subscriptions cannot be read from standard input; only events can")
    if kind == "jsonl":
        return _json_conditions(path)
    if kind == "csv":
        header, rows = files.read_csv(path)
        columns = find_columns(path, header, schema)
        if columns:
            return read_csv_bounds(path, header, rows, columns, schema)
        return _csv_conditions(path, header, rows)
    file = files.open_parquet(path)
    arrow = files.pyarrow(path)
    try:
        table = file.read()
    except (arrow.ArrowException, OSError) as error:
        raise files.damaged(path, error) from None
    columns = find_columns(path, table.column_names, schema)
    if columns:
        return read_arrow_bounds(path, table, columns, schema)
    return _arrow_conditions(path, table)


def _place(path: str, at: int) -> str:
    return files.row_place(path, at) if path.endswith(".parquet") else files.place(path, at)


def _json_conditions(path: str) -> Iterator[Condition]:
    for line, value in files.json_lines(path):
        if isinstance(value, str):
            yield Condition(line, value, None)
            continue
        where = files.place(path, line)
        keys = set(value) if isinstance(value, dict) else set()
        if keys - {"id", *NAMES} not in ({"where"}, {"pattern"}):
            raise CommandError(
                f"{where}: a subscription is a JSON string (an SQL condition) or an object with "
                '"where" (SQL) or "pattern" (an event pattern), and optionally "id", "ttl" and "metadata"'
            )
        if not isinstance(value.get("where", ""), str):
            raise CommandError(f'{where}: "where" must be a string, an SQL condition')
        if not isinstance(value.get("pattern", {}), dict):
            raise CommandError(f'{where}: "pattern" must be an object, an event pattern')
        if isinstance(value.get("metadata"), str):
            raise CommandError(f'{where}: "metadata" must be an object')
        labels = (value.get("ttl"), value.get("metadata")) if keys & set(NAMES) else NONE
        yield Condition(line, value.get("where", value.get("pattern")), value.get("id"), labels)


def _csv_conditions(path: str, header: list[str], rows: Any) -> Iterator[Condition]:
    where, id = header.index("where"), header.index("id") if "id" in header else None
    labels_of = of_csv(header)
    for line, row in rows:
        yield Condition(line, row[where], None if id is None else id_of(row[id]), labels_of(row))


def _arrow_conditions(path: str, table: Any) -> Iterator[Condition]:
    sources = table.column("where").to_pylist()
    ids = table.column("id").to_pylist() if "id" in table.column_names else [None] * len(sources)
    for row, (source, id, labels) in enumerate(zip(sources, ids, of_arrow(table), strict=True)):
        if not isinstance(source, str):
            raise CommandError(f"{files.row_place(path, row)}: the column where must hold SQL conditions")
        yield Condition(row, source, id, labels)


class _Ids:
    """The ids of the subscriptions of a file: either all have one, or none."""

    def __init__(self, place: Callable[[int], str]) -> None:
        self._place = place
        self._seen: dict[int, int] = {}
        self._given: bool | None = None
        self._count = 0

    def take(self, at: int, id: object) -> int:
        """Return the id of the next subscription."""
        if self._given is None:
            self._given = id is not None
        if self._given != (id is not None):
            odd = "no id, but others have one" if self._given else "an id, but others have none"
            raise CommandError(f"{self._place(at)}: {odd}; give every subscription an id or none")
        row = self._count
        self._count += 1
        if id is None:
            return row
        if type(id) is not int or not 0 <= id < 2**63 - 1:
            raise CommandError(f"{self._place(at)}: an id is an integer from 0 to 2**63 - 2; got {shown(id)}")
        first = self._seen.setdefault(id, at)
        if self._count > len(self._seen):
            raise CommandError(f"{self._place(at)}: the id {id} is taken already, see {self._place(first)}")
        return id


def _subscribe_conditions(path: str, target: EventFilter, conditions: Any, only: int | None) -> None:
    from rtfilter.errors import PredicateError
    from rtfilter.predicates.parse import parse

    ids, labels = _Ids(lambda at: _place(path, at)), Labels(lambda at: _place(path, at))
    names: list[int] = []
    places: list[int] = []
    predicates: list[Predicate] = []
    for at, source, given, cells in conditions:
        id = ids.take(at, given)
        if only is not None and id != only:
            continue
        try:
            predicates.append(parse(source, target.schema))
        except PredicateError as error:
            raise CommandError(f"{_place(path, at)}: {error}") from None
        labels.take(at, cells)
        names.append(id)
        places.append(at)
    try:
        target.subscribe_many(predicates, ids=names, **labels.options())
    except PredicateError as error:
        if error.row is None:
            raise
        raise CommandError(f"{_place(path, places[error.row])}: {error.message}") from None


def _subscribe_bounds(path: str, target: EventFilter, bounds: Bounds, only: int | None) -> None:
    import numpy as np

    from rtfilter.errors import PredicateError

    ids = _Ids(lambda at: _place(path, at))
    names = np.array([ids.take(*pair) for pair in zip(bounds.at, bounds.ids, strict=True)], np.int64)
    keep = np.arange(len(names)) if only is None else np.flatnonzero(names == only)
    low, high = ({name: column[keep] for name, column in side.items()} for side in (bounds.low, bounds.high))
    labels = Labels(lambda at: _place(path, at))
    if bounds.labels is not None:
        for row in keep.tolist():
            labels.take(bounds.at[row], bounds.labels[row])
    try:
        target.subscribe_many(low, high, ids=names[keep], **labels.options())
    except PredicateError as error:
        if error.row is None:
            raise CommandError(f"{files.place(path)}: {error}") from None
        at = np.asarray(bounds.at)[keep][error.row]
        raise CommandError(f"{_place(path, int(at))}: {error.message}") from None
