"""Subscriptions that are bounds: columns ``low.<attribute>`` and ``high.<attribute>`` of a table.

Bounds are closed. An empty cell is open on that side; where both are empty the attribute may be missing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from math import inf, isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from rtfilter.cli import files
from rtfilter.cli.terminal import CommandError

if TYPE_CHECKING:
    from rtfilter.encoding import FloatArray
    from rtfilter.schema import Schema

SIDES = {"low": -inf, "high": inf}
"""Prefixes of the columns, and the bound that an empty cell stands for."""


class Bounds(NamedTuple):
    """n subscriptions over the attributes of a schema."""

    at: Sequence[int]
    """Line of each, or row of a Parquet file."""
    low: FloatArray
    """float64 (n, number of attributes); -inf is open."""
    high: FloatArray
    """The same; inf is open."""
    ids: Sequence[object]
    """Id of each, None where not given."""


class Column(NamedTuple):
    """A column of bounds."""

    at: int
    """Its place in the table."""
    side: str
    """``low`` or ``high``."""
    attribute: str


def bounded_columns(path: str, header: Sequence[str], schema: Schema) -> list[Column]:
    """Return the columns of bounds; none where the table holds conditions in a column ``where``.

    Raises
    ------
    CommandError
        Neither, both, or bounds of an attribute that the schema has not or that can have none.
    """
    from rtfilter.errors import PredicateError

    columns = []
    for at, column in enumerate(header):
        side, _, name = column.partition(".")
        if side not in SIDES or not name:
            continue
        try:
            attribute = schema.attribute(name)
        except PredicateError as error:
            raise CommandError(f"{files.place(path)}: column {column!r}: {error}") from None
        if attribute.kind == "str":
            raise CommandError(
                f"{files.place(path)}: column {column!r}: {name!r} is a string, which has no bounds; "
                "write conditions in a column where"
            )
        columns.append(Column(at, side, name))
    if bool(columns) == ("where" in header):
        both = ", not both" if columns else ""
        raise CommandError(
            f"{files.place(path)}: subscriptions need a column where (SQL conditions), or columns "
            f"low.<attribute> and high.<attribute>{both}; it has {', '.join(header)}"
        )
    return columns


def bounds_of_csv(
    path: str,
    header: list[str],
    rows: Iterator[tuple[int, list[str]]],
    columns: list[Column],
    schema: Schema,
) -> Bounds:
    """Read bounds from the cells of CSV: numbers, true and false, ISO 8601 timestamps."""
    import numpy as np

    id_at = header.index("id") if "id" in header else None
    convert = [
        (column, SIDES[column.side], _CELLS[schema.attributes[column.attribute].family]) for column in columns
    ]
    at, values = array("q"), array("d")
    ids: list[object] = []
    for line, row in rows:
        at.append(line)
        ids.append(None if id_at is None or not row[id_at] else _integer(row[id_at]))
        for column, empty, read in convert:
            cell = row[column.at]
            if not cell:
                values.append(empty)
                continue
            try:
                values.append(read(cell))
            except ValueError:
                family = schema.attributes[column.attribute].family
                raise CommandError(
                    f"{files.place(path, line)}: column {header[column.at]!r}: {cell!r} is not a {family}"
                ) from None
    table = np.frombuffer(values, np.float64).reshape(len(at), len(columns))
    low, high = _empty(len(at), schema)
    for j, column in enumerate(columns):
        (low if column.side == "low" else high)[:, schema.names.index(column.attribute)] = table[:, j]
    return Bounds(at, low, high, ids)


def _empty(count: int, schema: Schema) -> tuple[FloatArray, FloatArray]:
    import numpy as np

    shape = (count, len(schema.names))
    return np.full(shape, SIDES["low"]), np.full(shape, SIDES["high"])


def _integer(cell: str) -> object:
    try:
        return int(cell)
    except ValueError:
        return cell


def _number(cell: str) -> float:
    value = float(cell)
    if isnan(value) or "_" in cell:
        raise ValueError(cell)
    return value


def _boolean(cell: str) -> float:
    found = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}.get(cell.lower())
    if found is None:
        raise ValueError(cell)
    return found


def _timestamp(cell: str) -> float:
    from rtfilter.encoding import microseconds

    found = microseconds(cell)
    if found is None:
        raise ValueError(cell)
    return float(found)


_CELLS: dict[str, Callable[[str], float]] = {"number": _number, "bool": _boolean, "timestamp": _timestamp}
"""From the text of a cell to a bound."""


def bounds_of_arrow(path: str, table: Any, columns: list[Column], schema: Schema) -> Bounds:
    """Read bounds from the columns of an Arrow table: numbers, booleans, timestamps; null is open."""
    low, high = _empty(len(table), schema)
    for column in columns:
        family = schema.attributes[column.attribute].family
        values = _floats(path, table.column_names[column.at], table.column(column.at), family)
        side = low if column.side == "low" else high
        side[:, schema.names.index(column.attribute)] = values.fill_null(SIDES[column.side]).to_numpy()
    ids = table.column("id").to_pylist() if "id" in table.column_names else [None] * len(table)
    return Bounds(range(len(table)), low, high, ids)


def _floats(path: str, name: str, values: Any, family: str) -> Any:
    arrow = files.pyarrow(path)
    types, kind = arrow.types, values.type
    fits = {
        "number": types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        "bool": types.is_boolean(kind),
        "timestamp": types.is_timestamp(kind) or types.is_date(kind),
    }
    if not (fits[family] or types.is_null(kind)):
        raise CommandError(f"{path}: column {name!r} holds {kind}, but the attribute is a {family}")
    if fits["timestamp"]:
        values = values.cast(arrow.timestamp("us"), safe=False).cast(arrow.int64())
    if fits["bool"]:
        values = values.cast(arrow.int8())
    return values.cast(arrow.float64(), safe=False)
