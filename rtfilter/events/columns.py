"""Reading events from columns: NumPy arrays, masked arrays, pandas DataFrames, Arrow tables.

Neither pandas nor pyarrow is imported here: a caller who passes such an object has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import AnyArray, BoolArray, FloatArray
from rtfilter.errors import EventError
from rtfilter.events.cells import assemble, encode_objects, refusal
from rtfilter.events.encoding import ALIEN, HIGHEST, LOWEST, MISSING
from rtfilter.events.table import EventTable, Field
from rtfilter.text import listed

_FAMILIES = {"i": "number", "u": "number", "f": "number", "b": "bool", "M": "timestamp"}
"""What the kinds of NumPy's dtypes compare with."""


class Column(NamedTuple):
    """One attribute of n events."""

    coordinates: FloatArray
    """float64 (n,), for strings (n, 2)."""
    value: Callable[[int], object]
    """The value in a row; None where missing."""


def read_columns(fields: tuple[Field, ...], events: Any) -> EventTable:
    """Read n events from an array, a DataFrame, or an Arrow table or record batch.

    Raises
    ------
    EventError
        Another object, a wrong shape, a table without any of the attributes, or a value that
        `rtfilter.events.schema.Schema.read` refuses.
    """
    if isinstance(events, np.ndarray):
        return _read_array(fields, events)
    # The base classes count too, so that subclasses (geopandas) are read as well.
    families = {(base.__module__.partition(".")[0], base.__name__) for base in type(events).__mro__}
    if ("pandas", "DataFrame") in families:
        _require_known(fields, map(str, events.columns))
        return _table([_pandas_column(field, events) for field in fields], fields, len(events))
    if ("pyarrow", "RecordBatch") in families:
        events = sys.modules["pyarrow"].Table.from_batches([events])
        families.add(("pyarrow", "Table"))
    if ("pyarrow", "Table") in families:
        _require_known(fields, events.column_names)
        return _read_arrow(fields, events)
    raise EventError(
        f"cannot read events from {type(events).__name__}; pass a dict, a list of dicts, "
        "a NumPy array, a pandas DataFrame or an Arrow table"
    )


def _require_known(fields: tuple[Field, ...], names: Iterable[str]) -> None:
    """Refuse a table that has none of the attributes: it is another table, or its columns are misspelt.

    A table that has some of them is read: attributes may be missing, and other columns are ignored.
    """
    given = list(names)
    # A dotted attribute may lie in a column of structs.
    known = {field.name for field in fields} | {field.name.partition(".")[0] for field in fields}
    if given and not known.intersection(given):
        raise EventError(
            f"the table has none of the attributes {listed([field.name for field in fields])}; "
            f"its columns are {listed(given)}"
        )


class _Columns(NamedTuple):
    """Columns by the names of their attributes."""

    by_name: dict[str, Column]
    length: int

    def row(self, index: int) -> dict[str, object]:
        found = ((name, column.value(index)) for name, column in self.by_name.items())
        return {name: value for name, value in found if value is not None}

    def values(self, name: str) -> list[object]:
        return list(map(self.by_name[name].value, range(self.length)))


class _Numbers(NamedTuple):
    """An array of numbers (n, number of attributes), none missing."""

    names: list[str]
    array: AnyArray

    def row(self, index: int) -> dict[str, object]:
        return dict(zip(self.names, self.array[index].tolist(), strict=True))

    def values(self, name: str) -> list[object]:
        values: list[object] = self.array[:, self.names.index(name)].tolist()
        return values


def _table(columns: list[Column], fields: tuple[Field, ...], count: int) -> EventTable:
    named = {field.name: column for field, column in zip(fields, columns, strict=True)}
    return EventTable(assemble([column.coordinates for column in columns], count), _Columns(named, count))


def _read_array(fields: tuple[Field, ...], events: AnyArray) -> EventTable:
    if events.ndim != 2 or events.shape[1] != len(fields):
        names = ", ".join(field.name for field in fields)
        raise EventError(f"expected an array of shape (n, {len(fields)}) [{names}]; got {events.shape}")
    mask = np.ma.getmaskarray(events) if isinstance(events, np.ma.MaskedArray) else None
    values = np.ma.getdata(events)
    if values.dtype.kind in "iufb":
        kind = "bool" if values.dtype.kind == "b" else "number"
        for field in fields:
            # No value of the array can be of this attribute's type, so the array is a mistake.
            if field.family != kind:
                raise EventError.about(
                    field.name,
                    f"is {field.family}, but the array holds {values.dtype}; "
                    "pass dicts, a DataFrame, an Arrow table or an array of objects",
                )
        if kind == "number" and mask is None:
            with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
                points = np.array(values, np.float64, order="C")  # never the caller's own memory
            if _within(fields, points):
                points += 0.0  # -0.0 and 0.0 become the same coordinate
                # Large integers are exact in the rows only; floats are the same in both.
                kept = values.copy() if values.dtype.kind != "f" else points
                return EventTable(points, _Numbers([field.name for field in fields], kept))
    columns = [
        encode_array(field, values[:, j], None if mask is None else mask[:, j])
        for j, field in enumerate(fields)
    ]
    return _table(columns, fields, len(values))


def _within(fields: tuple[Field, ...], points: FloatArray) -> bool:
    """Whether every coordinate is finite and inside its domain; two passes, no temporary arrays."""
    if not len(points):
        return True
    # NaN makes both comparisons false, infinity lies outside every domain.
    if all(field.low == LOWEST and field.high == HIGHEST for field in fields):
        return bool(points.min() >= LOWEST and points.max() <= HIGHEST)
    low = np.array([field.low for field in fields])
    high = np.array([field.high for field in fields])
    return bool((points.min(axis=0) >= low).all() and (points.max(axis=0) <= high).all())


def encode_array(field: Field, values: AnyArray, missing: BoolArray | None) -> Column:
    """Encode a NumPy column (n,) of any dtype; values where `missing`, bool (n,), is true are ignored.

    Raises
    ------
    EventError
        NaN, infinity or a value outside the domain, where not missing.
    """
    kind = values.dtype.kind
    absent = np.zeros(len(values), np.bool_) if missing is None else np.array(missing, np.bool_)
    if kind in "mM":
        absent |= np.isnat(values)
    elif kind in "OUST":
        objects = [None if gone else value for gone, value in zip(absent, values.tolist(), strict=True)]
        return Column(encode_objects(field, objects), objects.__getitem__)
    if kind == "f":
        _refuse(field, values, ~np.isfinite(values) & ~absent)
    if field.family == _FAMILIES.get(kind):
        with np.errstate(over="ignore"):
            coordinates = (_microseconds(values) if kind == "M" else values).astype(np.float64)
        outside = ~((coordinates >= field.low) & (coordinates <= field.high)) & ~absent
        _refuse(field, values, outside & (coordinates != ALIEN) if kind == "M" else outside)
        coordinates[absent] = MISSING
    else:
        coordinates = np.where(absent, MISSING, ALIEN)
    if field.width == 2:
        coordinates = np.repeat(coordinates[:, None], 2, axis=1)

    def value(index: int) -> object:
        if absent[index]:
            return None
        return values[index] if kind in "mM" else values[index].item()

    return Column(coordinates, value)


def _refuse(field: Field, values: AnyArray, wrong: BoolArray) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise refusal(field, row, values[row])


def _microseconds(values: AnyArray) -> FloatArray:
    """Return datetime64 values (n,) as float64 microseconds, rounded down; `ALIEN` beyond int64's range."""
    days = values.astype("datetime64[D]").astype(np.int64)
    coordinates = values.astype("datetime64[us]").astype(np.int64).astype(np.float64)
    coordinates[np.abs(days) > 290_000 * 365] = ALIEN
    return coordinates


def encode_uniques(field: Field, codes: NDArray[np.signedinteger[Any]], uniques: list[Any]) -> Column:
    """Encode a dictionary-coded column: row i holds ``uniques[codes[i]]``; code -1 is missing."""
    table = encode_objects(field, [*uniques, None])  # index -1 is the missing one
    return Column(table[codes], lambda index: uniques[codes[index]] if codes[index] >= 0 else None)


def _pandas_column(field: Field, frame: Any) -> Column:
    if field.name not in frame.columns:
        return _absent(field, len(frame))
    series = frame[field.name]
    if series.ndim != 1:
        raise _several(field, "DataFrame")
    dtype = series.dtype
    missing = series.isna().to_numpy(np.bool_)
    plain = np.dtype(getattr(dtype, "numpy_dtype", dtype if isinstance(dtype, np.dtype) else object))
    if plain.kind in "iufb":
        values = series.to_numpy() if dtype == plain else series.to_numpy(plain, na_value=0)
        return encode_array(field, values, missing)
    if plain.kind == "M" or hasattr(dtype, "tz"):
        aware = getattr(series.dt, "tz", None) is not None
        instants = series.dt.tz_convert(None) if aware else series
        values = instants.to_numpy(plain if plain.kind == "M" else f"datetime64[{dtype.unit}]")
        return encode_array(field, values, missing)
    if field.family in ("str", "timestamp"):
        try:
            codes, uniques = series.factorize()
        except TypeError:  # a list or a dict among the values
            pass
        else:
            return encode_uniques(field, codes, list(uniques))
    return encode_array(field, series.to_numpy(object), missing)


def _several(field: Field, form: str) -> EventError:
    message = f"the {form} has several columns called {field.name!r}; keep one"
    return EventError(message, attribute=field.name)


def _absent(field: Field, count: int) -> Column:
    return encode_array(field, np.zeros(count, np.int8), np.ones(count, np.bool_))


def _read_arrow(fields: tuple[Field, ...], table: Any) -> EventTable:
    types = sys.modules["pyarrow"].types
    for _ in range(max(field.name.count(".") for field in fields)):
        if not any(types.is_struct(kind) for kind in table.schema.types):
            break
        table = table.flatten()  # a struct column "a" with a field "b" becomes "a.b"
    return _table([_arrow_column(field, table) for field in fields], fields, len(table))


def _arrow_column(field: Field, table: Any) -> Column:
    pa = sys.modules["pyarrow"]
    places = table.schema.get_all_field_indices(field.name)
    if len(places) > 1:
        raise _several(field, "Arrow table")
    if not places or pa.types.is_struct(table.schema.types[places[0]]):
        return _absent(field, len(table))
    column = table.column(places[0])
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    missing = column.is_null().to_numpy()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        if pa.types.is_float16(kind):
            column = column.cast(pa.float32())
        return encode_array(field, column.fill_null(False if kind == pa.bool_() else 0).to_numpy(), missing)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return encode_array(field, column.to_numpy(), missing)
    try:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            coded = column.combine_chunks().dictionary_encode()
            codes = coded.indices.fill_null(-1).to_numpy()
            return encode_uniques(field, codes, coded.dictionary.to_pylist())
        values = column.to_pylist()
    except UnicodeDecodeError as error:
        raise EventError.about(field.name, f"is not valid UTF-8: {error}") from None
    return encode_array(field, _objects(values), missing)


def _objects(values: list[Any]) -> AnyArray:
    array = np.empty(len(values), object)
    array[:] = values
    return array
