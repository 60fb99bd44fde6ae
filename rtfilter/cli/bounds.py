"""Reading subscriptions that are bounds from files of CSV and Parquet."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rtfilter.cli import files
from rtfilter.cli.cells import BOUNDS, id_of
from rtfilter.cli.terminal import CommandError
from rtfilter.dtypes import FloatArray
from rtfilter.text import shown

if TYPE_CHECKING:
    from rtfilter.events.schema import Schema
    from rtfilter.predicates.bound_columns import BoundColumn


class Bounds(NamedTuple):
    """n subscriptions over the attributes of a schema."""

    at: Sequence[int]
    """Line of each, or row of a Parquet file."""
    low: FloatArray
    """Closed low ends, float64 (n, number of attributes); -inf is no bound."""
    high: FloatArray
    """Closed high ends, of the same shape; inf is no bound."""
    ids: Sequence[object]
    """Id of each, None where not given."""


def find_columns(path: str, header: Sequence[str], schema: Schema) -> list[BoundColumn]:
    """Return the columns of bounds; none where the table holds conditions in a column ``where``.

    Raises
    ------
    CommandError
        Neither, both, or bounds of a string or of an attribute that the schema does not have.
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
) -> Bounds:
    """Read bounds from CSV: numbers, true and false, ISO 8601 timestamps; an empty cell is no bound.

    Raises
    ------
    CommandError
        A cell is of another type than the attribute; with its place.
    """
    import numpy as np

    from rtfilter.predicates.bound_columns import SIDES, open_bounds

    id_at = header.index("id") if "id" in header else None
    convert = [
        (column, SIDES[column.side], BOUNDS[schema.attributes[column.attribute].family]) for column in columns
    ]
    at, values = array("q"), array("d")
    ids: list[object] = []
    for line, row in rows:
        at.append(line)
        ids.append(None if id_at is None else id_of(row[id_at]))
        for column, empty, bound_of in convert:
            cell = row[column.at]
            if not cell:
                values.append(empty)
                continue
            try:
                values.append(bound_of(cell))
            except ValueError:
                family = schema.attributes[column.attribute].family
                where = f"{files.place(path, line)}: column {header[column.at]!r}"
                raise CommandError(f"{where}: {shown(cell)} is not a {family}") from None
    table = np.frombuffer(values, np.float64).reshape(len(at), len(columns))
    low, high = open_bounds(len(at), schema)
    for j, column in enumerate(columns):
        (low if column.side == "low" else high)[:, schema.names.index(column.attribute)] = table[:, j]
    return Bounds(at, low, high, ids)


def read_arrow_bounds(path: str, table: Any, columns: list[BoundColumn], schema: Schema) -> Bounds:
    """Read bounds from an Arrow table: numbers, booleans, timestamps; null is no bound.

    Raises
    ------
    CommandError
        A column is of another type than its attribute.
    """
    from rtfilter.errors import PredicateError
    from rtfilter.predicates.bound_columns import bounds_of_arrow

    try:
        low, high = bounds_of_arrow(table, columns, schema)
    except PredicateError as error:
        raise CommandError(f"{path}: {error}") from None
    ids = table.column("id").to_pylist() if "id" in table.column_names else [None] * len(table)
    return Bounds(range(len(table)), low, high, ids)
