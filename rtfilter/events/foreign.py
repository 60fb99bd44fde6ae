"""Columns of pandas and Arrow as NumPy arrays, and rows of Arrow tables as Python objects.

Neither is imported here: a caller who passes one has imported it already. Only for Arrow columns from other
libraries, such as Polars, pyarrow is imported.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.basics.extras import install
from rtfilter.events.cells import meaningless
from rtfilter.events.encoding import string

PLAIN = "iufbmM"
"""Kinds of NumPy's dtypes whose values need not be read singly."""


class ColumnValues(NamedTuple):
    """A column of n values."""

    array: AnyArray
    """(n,) of any dtype; any value where missing."""
    missing: BoolArray
    """bool (n,)."""


def families(given: object) -> set[tuple[str, str]]:
    """Return package and name of the classes of an object, with its base classes."""
    return {(base.__module__.partition(".")[0], base.__name__) for base in type(given).__mro__}


def pandas_values(series: Any) -> ColumnValues:
    """Return a pandas Series as NumPy values: NaN, NaT, None and NA are missing."""
    dtype, missing = series.dtype, series.isna().to_numpy(np.bool_)
    arrow = getattr(dtype, "pyarrow_dtype", None)
    if arrow is not None and _is_plain(arrow):
        return arrow_values(series.array.__arrow_array__())
    plain = np.dtype(getattr(dtype, "numpy_dtype", dtype if isinstance(dtype, np.dtype) else object))
    if plain.kind in "iufb":
        values = series.to_numpy() if dtype == plain else series.to_numpy(plain, na_value=0)
        return ColumnValues(values, missing)
    if plain.kind == "M" or hasattr(dtype, "tz"):
        aware = getattr(series.dt, "tz", None) is not None
        moments = series.dt.tz_convert(None) if aware else series
        return ColumnValues(
            moments.to_numpy(plain if plain.kind == "M" else f"datetime64[{dtype.unit}]"), missing
        )
    return ColumnValues(series.to_numpy(object), missing)


def _is_plain(kind: Any) -> bool:
    types = sys.modules["pyarrow"].types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return bool(number or types.is_timestamp(kind) or types.is_date(kind) or types.is_duration(kind))


def arrow_values(column: Any) -> ColumnValues:
    """Return an Arrow array, whole or in chunks: null is missing. Raises `UnicodeDecodeError`."""
    pa = sys.modules["pyarrow"]
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    missing = np.asarray(column.is_null())
    if not _is_plain(kind):
        # Lists of equal length must not become a matrix.
        return ColumnValues(np.fromiter(column.to_pylist(), object, len(column)), missing)
    if pa.types.is_float16(kind):
        column = column.cast(pa.float32())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        # As integers: pandas would turn some of them into objects.
        unit = {pa.date32(): "D", pa.date64(): "ms"}.get(kind) or kind.unit
        letter = "m" if pa.types.is_duration(kind) else "M"
        width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        counts = np.asarray(column.cast(width).fill_null(0)).astype(np.int64)
        return ColumnValues(counts.view(f"{letter}8[{unit}]"), missing)
    return ColumnValues(np.asarray(column.fill_null(False if pa.types.is_boolean(kind) else 0)), missing)


def streamed(given: Any, refusal: type[EventError | PredicateError]) -> Any:
    """Return the Arrow table of an object with Arrow's C interface, such as a Polars DataFrame.

    Raises `refusal` without pyarrow, and for an object without named columns, such as a Series.
    """
    kind = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
    try:
        import pyarrow as pa
    except ImportError:
        raise refusal(f"reading a {kind} needs pyarrow: {install('arrow')}") from None
    try:
        table = pa.table(given)
    except pa.ArrowInvalid:
        raise refusal(
            f"a {kind} has no named columns; pass a DataFrame, an Arrow table or an array"
        ) from None
    for place, name in enumerate(table.column_names):
        table = table.set_column(place, name, _with_plain_text(pa, table.column(place)))
    return table


def readable_twice(events: Any) -> Any:
    """Return events in a form that can be read twice, which a stream of Arrow cannot."""
    once = hasattr(events, "__arrow_c_stream__") and not families(events) & {
        ("pandas", "DataFrame"),
        ("pyarrow", "Table"),
    }
    return streamed(events, EventError) if once else events


def _with_plain_text(pa: Any, column: Any) -> Any:
    """Return the column with text in a type that all functions of pyarrow accept; Polars uses another one."""
    if column.type == pa.string_view():
        return column.cast(pa.large_string())
    if pa.types.is_dictionary(column.type) and column.type.value_type == pa.string_view():
        chunks = [chunk.dictionary.cast(pa.large_string()).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(chunks, pa.large_string())
    return column


def arrow_rows(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table or record batch as dicts that JSON can represent, for senders of events.

    Moments are rounded down to microseconds.
    Raises `EventError` for a type that no event has, and a moment that Python cannot hold.
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
