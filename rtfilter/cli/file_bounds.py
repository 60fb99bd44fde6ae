"""Reading subscriptions from files of bounds, CSV and Parquet."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rtfilter.cli.subscription_rows import LABELS, Cells, arrow_labels, csv_labels, id_column
from rtfilter.cli.terminal import CommandError
from rtfilter.dtypes import AnyArray
from rtfilter.reading import files
from rtfilter.reading.csv_cells import BOUNDS, LARGE
from rtfilter.text import shown

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema
    from rtfilter.predicates.bound_columns import BoundColumn, Columns


class FileBounds(NamedTuple):
    """n subscriptions over the attributes of a schema."""

    at: Sequence[int]
    """Line of each subscription, or its row in a Parquet file."""
    low: Columns
    """Closed low ends (n,) by attribute, masked if there is no bound."""
    high: Columns
    """Closed high ends."""
    ids: Sequence[object]
    """Id of each, None if not given."""
    labels: Sequence[Cells] | None
    """Time to live and metadata of each; None if the file has no such columns."""


def find_columns(path: str, header: Sequence[str], schema: Schema) -> list[BoundColumn]:
    """Return the columns of bounds; none if the table has conditions in a column ``where``.

    Raises
    ------
    CommandError
        The table has neither or both, or bounds of a string or of an unknown attribute.
    """
    from rtfilter.errors import PredicateError
    from rtfilter.predicates.bound_columns import bounded_columns

    try:
        return bounded_columns(header, schema)
    except PredicateError as error:
        raise CommandError(f"{files.place(path)}: {error}") from None


def read_csv_bounds(
    path: str,
    header: list[str],
    rows: Iterator[tuple[int, list[str]]],
    columns: list[BoundColumn],
    schema: Schema,
) -> FileBounds:
    """Read bounds from CSV: numbers, true and false, ISO 8601 timestamps; an empty cell is no bound.

    Raises
    ------
    CommandError
        A cell has another type than the attribute; the message has its place.
    """
    import numpy as np

    id_at = header.index("id") if "id" in header else None
    convert = [(column, BOUNDS[schema.attributes[column.attribute].family], _Cells()) for column in columns]
    at = array("q")
    ids: list[str] = []
    labels_of = None if set(LABELS).isdisjoint(header) else csv_labels(header)
    labels: list[Cells] = []
    for line, row in rows:
        at.append(line)
        if labels_of is not None:
            labels.append(labels_of(row))
        ids.append("" if id_at is None else row[id_at])
        for column, bound_of, cells in convert:
            cell = row[column.at]
            try:
                cells.add(bound_of(cell) if cell else None)
            except ValueError:
                family = schema.attributes[column.attribute].family
                where = f"{files.place(path, line)}: column {header[column.at]!r}"
                raise CommandError(f"{where}: {shown(cell)} is not a {family}") from None
    sides: dict[str, Columns] = {"low": {}, "high": {}}
    for column, _, cells in convert:
        sides[column.side][column.attribute] = np.ma.MaskedArray(
            cells.column(), np.frombuffer(cells.empty, np.bool_)
        )
    return FileBounds(at, sides["low"], sides["high"], id_column(ids), None if labels_of is None else labels)


class _Cells:
    """The cells of a column, most of them as float64, because objects would take four times the memory."""

    def __init__(self) -> None:
        self._values, self.empty = array("d"), bytearray()
        self._large: dict[int, int] = {}  # by place: integers that float64 cannot represent exactly

    def add(self, value: float | None) -> None:
        """Add a bound, or None."""
        if isinstance(value, int) and abs(value) >= LARGE:
            self._large[len(self.empty)] = value
            value = 0.0
        self._values.append(0.0 if value is None else value)
        self.empty.append(value is None)

    def column(self) -> AnyArray:
        """Return all cells, (n,); empty ones have any value."""
        import numpy as np

        values = np.frombuffer(self._values, np.float64)
        if not self._large:
            return values
        objects = values.astype(object)
        for place, value in self._large.items():
            objects[place] = value
        return objects


def read_arrow_bounds(path: str, table: Any, columns: list[BoundColumn], schema: Schema) -> FileBounds:
    """Read bounds from an Arrow table: numbers, booleans, timestamps; null is no bound.

    Raises
    ------
    CommandError
        A column has another type than its attribute.
    """
    from rtfilter.errors import PredicateError
    from rtfilter.predicates.bound_columns import read_bounds

    try:
        low, high = read_bounds(table.column, table.column_names, columns, schema)
    except PredicateError as error:
        raise CommandError(f"{path}: {error}") from None
    ids = table.column("id").to_pylist() if "id" in table.column_names else [None] * len(table)
    labels = None if set(LABELS).isdisjoint(table.column_names) else arrow_labels(table)
    return FileBounds(range(len(table)), low, high, ids, labels)
