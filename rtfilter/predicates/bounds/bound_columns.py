"""Subscriptions in a table: `where` in one column, or closed bounds in several columns.

Bounds are in columns ``low.<attribute>`` and ``high.<attribute>``. An empty cell means no bound on that side;
if both are empty, the attribute may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import composed, listed
from rtfilter.events.foreign import families
from rtfilter.events.schema import Attribute, Schema
from rtfilter.predicates.bounds.sides import NO_PART, bound_values

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

    Raises `PredicateError`: the header has neither, both, or bounds of a string or of an attribute that the
    schema does not have.
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
        if name not in schema.names:
            raise PredicateError(f"column {column!r}: {name!r} {NO_PART}", attribute=name)
        if any((one.side, one.attribute) == (side, name) for one in columns):
            raise PredicateError(f"column {column!r} occurs twice", attribute=name)
        columns.append(BoundColumn(at, side, name))
    if bool(columns) == ("where" in header):
        both = ", not both" if columns else ""
        raise PredicateError(
            f"subscriptions need a column where, or columns low.<attribute> and high.<attribute>{both}; "
            f"they may have id, ttl or expires, and metadata; the table has {listed(header)}"
        )
    return columns


def read_bounds(
    read: Callable[[int], Any], header: Sequence[str], columns: list[BoundColumn], schema: Schema
) -> tuple[Columns, Columns]:
    """Return low and high bounds (n,) from the columns of a table, as `compile_bounds` takes them.

    `read` returns a column by its number: of pandas, Arrow, NumPy, or a list. Missing cells are masked.

    Raises `PredicateError`: a column of Arrow has another type than its attribute, or columns have different
    numbers of rows.
    """
    sides: dict[str, Columns] = {side: {} for side in SIDES}
    for column in columns:
        given = read(column.at)
        if any(package == "pyarrow" for package, _ in families(given)):
            given = _fitting(given, header[column.at], column.attribute, schema.attributes[column.attribute])
        values, missing = bound_values(given, column.attribute, column.side)
        sides[column.side][column.attribute] = np.ma.MaskedArray(values, missing)
    lengths = {len(values) for side in sides.values() for values in side.values()}
    if len(lengths) > 1:
        raise PredicateError(
            f"the columns of bounds have {listed([str(length) for length in sorted(lengths)])} rows"
        )
    return sides["low"], sides["high"]


def _fitting(values: Any, column: str, name: str, attribute: Attribute) -> Any:
    """Return a column of Arrow, decimals as float64; it must have the attribute's type."""
    import pyarrow

    types, kind, family = pyarrow.types, values.type, attribute.family
    fits = {
        "number": types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        "bool": types.is_boolean(kind),
        "timestamp": types.is_timestamp(kind) or types.is_date(kind),
    }
    if not (fits[family] or types.is_null(kind)):
        raise PredicateError(
            f"column {column!r} holds {kind}, but the attribute is a {family}", attribute=name
        )
    return values.cast(pyarrow.float64(), safe=False) if types.is_decimal(kind) else values
