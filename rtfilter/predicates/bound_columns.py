"""Subscriptions in a table: `where` in one column, or closed bounds in several columns.

Bounds are in columns ``low.<attribute>`` and ``high.<attribute>``. An empty cell means no bound on that side;
if both are empty, the attribute may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rtfilter.dtypes import AnyArray
from rtfilter.errors import PredicateError
from rtfilter.events.foreign import ColumnValues, arrow_values
from rtfilter.events.schema import Schema
from rtfilter.text import composed, listed

SIDES = ("low", "high")
"""Prefixes of the columns."""
Columns = dict[str, AnyArray]
"""Ends of one side by attribute, masked if there is no bound."""


class BoundColumn(NamedTuple):
    """A column of bounds."""

    at: int
    """Its number in the table, from 0."""
    side: str
    """``low`` or ``high``."""
    attribute: str


def bounded_columns(header: Sequence[str], schema: Schema) -> list[BoundColumn]:
    """Return the columns of bounds; none if the table has a column ``where``.

    Raises
    ------
    PredicateError
        The header has neither, both, or bounds of a string or of an attribute that the schema does not have.
    """
    columns: list[BoundColumn] = []
    for at, column in enumerate(header):
        side, _, name = column.partition(".")
        if side not in SIDES or not name:
            continue
        name = composed(name)
        try:
            attribute = schema.attribute(name)
        except PredicateError as error:
            raise PredicateError(
                f"column {column!r}: {error.message}", attribute=error.attribute, reason=error.reason
            ) from None
        if attribute.kind == "str":
            raise PredicateError(
                f"column {column!r}: {name!r} is a string, which has no bounds; "
                "write conditions in a column where",
                attribute=name,
            )
        if any((one.side, one.attribute) == (side, name) for one in columns):
            raise PredicateError(f"column {column!r} occurs twice", attribute=name)
        columns.append(BoundColumn(at, side, name))
    if bool(columns) == ("where" in header):
        both = ", not both" if columns else ""
        raise PredicateError(
            "subscriptions need a column where (SQL conditions), or columns "
            f"low.<attribute> and high.<attribute>{both}; it has {listed(header)}"
        )
    return columns


def bounds_of_arrow(table: Any, columns: list[BoundColumn], schema: Schema) -> tuple[Columns, Columns]:
    """Return low and high bounds from n rows of an Arrow table or batch, as `compile_bounds` takes them.

    Columns hold numbers, booleans or times; null is no bound.

    Raises
    ------
    PredicateError
        A column has another type than its attribute.
    """
    sides: dict[str, Columns] = {side: {} for side in SIDES}
    for column in columns:
        values, missing = _values(table, column, schema)
        sides[column.side][column.attribute] = np.ma.MaskedArray(values, missing)
    return sides["low"], sides["high"]


def _values(table: Any, column: BoundColumn, schema: Schema) -> ColumnValues:
    """Return the values of a column, which must have the attribute's type."""
    import pyarrow

    values, family = table.column(column.at), schema.attributes[column.attribute].family
    types, kind = pyarrow.types, values.type
    fits = {
        "number": types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        "bool": types.is_boolean(kind),
        "timestamp": types.is_timestamp(kind) or types.is_date(kind),
    }
    if not (fits[family] or types.is_null(kind)):
        raise PredicateError(
            f"column {table.column_names[column.at]!r} holds {kind}, but the attribute is a {family}",
            attribute=column.attribute,
        )
    return arrow_values(values.cast(pyarrow.float64(), safe=False) if types.is_decimal(kind) else values)
