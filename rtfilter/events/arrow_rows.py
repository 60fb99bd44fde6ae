"""Rows of Arrow tables as Python objects that JSON can represent, for senders of events.

pyarrow is not imported here: a caller with a table has imported it already.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rtfilter.errors import EventError
from rtfilter.events.cells import meaningless
from rtfilter.events.encoding import string


def arrow_rows(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table or record batch. Moments are rounded down to microseconds.

    Raises
    ------
    EventError
        A column has a type that no event has, or a moment that Python cannot hold; `row` and `attribute`
        say where.
    """
    names = table.schema.names
    columns = [_values(field, table.column(at)) for at, field in enumerate(table.schema)]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def require_meaning(schema: Any) -> None:
    """Raise `EventError` for the first column of a type that no event has."""
    for field in schema:
        if _readable(field.type) is None and not is_uuid(field.type):
            raise meaningless(field.name, field.type)


def _values(field: Any, column: Any) -> list[Any]:
    require_meaning([field])
    wanted = _readable(field.type)
    if wanted is not None and wanted != field.type:
        column = _cast(column, wanted)
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, LookupError):  # LookupError: an unknown time zone
        for row in range(len(column)):
            try:
                column[row].as_py()
            except (ValueError, OverflowError, LookupError) as error:
                raise EventError.about(field.name, f"cannot be read: {error}", row) from None
        raise
    return list(map(string, values)) if is_uuid(field.type) else values


def _cast(column: Any, wanted: Any) -> Any:
    pa = sys.modules["pyarrow"]
    if not pa.types.is_timestamp(column.type):
        return column.cast(wanted, safe=False)
    counts = np.asarray(column.cast(pa.int64()).fill_null(0)) // 1000  # rounds down, unlike a cast
    return pa.array(counts, wanted, mask=np.asarray(column.is_null()))


def is_uuid(kind: Any) -> bool:
    """Return whether an Arrow type is the type of UUIDs, which are read as text."""
    return getattr(kind, "extension_name", None) == "arrow.uuid"


def _readable(kind: Any) -> Any | None:
    """Return the Arrow type in which Python reads values of a type; None if no event has such values."""
    pa = sys.modules["pyarrow"]
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if types.is_dictionary(kind):
        return _readable(kind.value_type)
    if types.is_struct(kind):
        fields = [(field, _readable(field.type)) for field in kind]
        if any(found is None for _, found in fields):
            return None
        return pa.struct([field.with_type(found) for field, found in fields])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _readable(kind.value_type)
        if inner is None or inner == kind.value_type:
            return None if inner is None else kind
        if types.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if types.is_large_list(kind) else pa.list_(inner)
    if types.is_float16(kind):
        return pa.float32()
    plain = (
        *(types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_date),
        *(types.is_string, types.is_large_string, types.is_null),
    )
    if any(belongs(kind) for belongs in plain):
        return kind
    view = getattr(types, "is_string_view", None)
    return pa.large_string() if view is not None and view(kind) else None
