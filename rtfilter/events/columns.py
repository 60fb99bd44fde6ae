"""Reading events from columns: NumPy arrays, masked arrays, pandas DataFrames, Arrow tables.

Neither pandas nor pyarrow is imported here: a caller who passes such an object has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.basics.errors import EventError
from rtfilter.basics.text import composed, listed
from rtfilter.events.cells import assemble, encode_objects, meaningless, refusal
from rtfilter.events.elements import with_choices
from rtfilter.events.encoding import ALIEN, HIGHEST, LOWEST, MISSING
from rtfilter.events.fields import PHRASES, Field, Fields
from rtfilter.events.foreign import PLAIN, arrow_values, families, pandas_values, streamed
from rtfilter.events.mismatches import check_columns
from rtfilter.events.moments import instants
from rtfilter.events.nesting import inner_paths, is_list
from rtfilter.events.table import EventTable, rests, rests_one_by_one

_FAMILIES = {"i": "number", "u": "number", "f": "number", "b": "bool", "M": "timestamp"}
"""The family of attributes for each kind of NumPy's dtypes."""
_TEXT = frozenset(("str", "timestamp"))
"""The families that an array of text may have."""
_NOT_HASHED = (TypeError, NotImplementedError)
"""The errors of pandas for a list or a dict among the values."""


class Column(NamedTuple):
    """The values of an attribute of n events."""

    coordinates: FloatArray
    """float64 (n,), for strings (n, 2)."""
    value: Callable[[int], object]
    """Returns the value in a row; None if missing."""
    exact: AnyArray | None = None
    """(n,), integers or float64: the exact numbers, or the microseconds of timestamps; None for objects."""
    missing: bool = False
    """True if the table has no such column."""


def read_columns(fields: Fields, events: Any, names: frozenset[str] | None = None) -> EventTable:
    """Read n events from an array, a DataFrame, or an Arrow table; with `names`, only these from lists.

    Raises `EventError` for another object, a wrong shape, a table without any of the attributes, and a value
    that `rtfilter.events.schema.Schema.read` refuses.
    """
    table = _read(fields, events, None if fields.strict else names)
    if table.read is not None:
        table.again = partial(read_columns, fields, events)
    return table


def _read(fields: Fields, events: Any, names: frozenset[str] | None) -> EventTable:
    if isinstance(events, np.ndarray):
        return _read_array(fields, events, names)
    kinds = families(events)  # includes subclasses (geopandas)
    if ("pandas", "DataFrame") in kinds:
        if fields.spelled:
            events = events.rename(columns=_spelling(fields, events.columns))
        _require_known(fields, map(str, events.columns))
        table = _table(lambda field: _pandas_column(field, events), fields, len(events))
        lists = _pandas_lists(table, events)
        table = with_choices(table, lists, names)
        inside = [lists.get(row, {}) for row in range(len(table))] if lists else ()
        return check_columns(table, map(str, events.columns), inside)
    if ("pyarrow", "RecordBatch") in kinds:
        events = sys.modules["pyarrow"].Table.from_batches([events])
        kinds.add(("pyarrow", "Table"))
    if ("pyarrow", "Table") in kinds:
        return _read_arrow(fields, events, names)
    if hasattr(events, "__arrow_c_stream__"):
        return _read_arrow(fields, streamed(events, EventError), names)
    raise EventError(
        f"cannot read events from {type(events).__name__}; pass a dict, a list of dicts or of rows, "
        "a NumPy array, a DataFrame of pandas or Polars, or an Arrow table"
    )


def _require_known(fields: Fields, names: Iterable[str]) -> None:
    """Raise `EventError` for a table without any attribute: it is another table, or its columns are misspelt.

    A table with some attributes is read: attributes may be missing, and other columns are ignored.
    """
    given = list(names)
    # A dotted attribute may lie in a column of structs.
    known = fields.known | {name.partition(".")[0] for name in fields.known}
    if given and not known.intersection(given):
        raise EventError(
            f"the table has none of the attributes {listed(fields.labels)}; its columns are {listed(given)}"
        )


class _Columns(NamedTuple):
    by_name: dict[str, Column]

    def row(self, index: int) -> dict[str, object]:
        found = ((name, column.value(index)) for name, column in self.by_name.items())
        return {name: value for name, value in found if value is not None}

    def values(self, name: str, rows: Sequence[int]) -> list[object]:
        return list(map(self.by_name[name].value, rows))

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        column = self.by_name[field.name]
        if column.exact is None:
            return rests_one_by_one(column.value, field, rows, coordinates)
        return rests(column.exact[rows], coordinates)


class _Numbers(NamedTuple):
    """An array of numbers (n, number of attributes), none missing."""

    names: tuple[str, ...]
    array: AnyArray

    def row(self, index: int) -> dict[str, object]:
        return dict(zip(self.names, self.array[index].tolist(), strict=True))

    def values(self, name: str, rows: Sequence[int]) -> list[object]:
        return _items(self.array[:, self.names.index(name)], rows)

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        return rests(self.array[rows, self.names.index(field.name)], coordinates)


class _NumberColumns(NamedTuple):
    by_name: dict[str, AnyArray]

    def row(self, index: int) -> dict[str, object]:
        return {name: array[index].item() for name, array in self.by_name.items()}

    def values(self, name: str, rows: Sequence[int]) -> list[object]:
        return _items(self.by_name[name], rows)

    def rests(self, field: Field, rows: IntArray, coordinates: FloatArray) -> IntArray:
        return rests(self.by_name[field.name][rows], coordinates)


def _items(array: AnyArray, rows: Sequence[int]) -> list[object]:
    items: list[object] = (array if rows == range(len(array)) else array[list(rows)]).tolist()
    return items


def _table(read: Callable[[Field], Column], fields: Fields, count: int) -> EventTable:
    """Return the table of columns; `read` returns one for each attribute, for null that of its values."""
    named = {field.name: _nulls(read(field)) if field.null else read(field) for field in fields}
    points = assemble([column.coordinates for column in named.values()], count)
    return EventTable(points, _Columns(named), fields)


def _nulls(column: Column) -> Column:
    """Return whether the values of a column that is there are null."""
    if column.missing:
        return column
    coordinates = (column.coordinates == MISSING).astype(np.float64)
    if column.exact is None:  # an object is no value
        for row in np.flatnonzero(coordinates).tolist():
            if isinstance(column.value(row), Mapping):
                coordinates[row] = MISSING

    def value(index: int) -> bool | None:
        return None if coordinates[index] == MISSING else bool(coordinates[index])

    return Column(coordinates, value)


def _read_array(fields: Fields, events: AnyArray, names: frozenset[str] | None) -> EventTable:
    own = fields.labels
    if events.ndim != 2 or events.shape[1] != len(own):
        raise EventError(f"expected an array of shape (n, {len(own)}) [{', '.join(own)}]; got {events.shape}")
    if fields.numbers and type(events) is np.ndarray and events.dtype == np.float64:
        points = np.array(events, order="C")  # never the caller's own memory
        if _within(fields, points, points):
            points += 0.0  # -0.0 and 0.0 become the same coordinate
            return EventTable(points, _Numbers(fields.names, points), fields)
    mask = np.ma.getmaskarray(events) if isinstance(events, np.ma.MaskedArray) else None
    values = np.ma.getdata(events)
    kind = _FAMILIES.get(values.dtype.kind)
    if values.dtype.kind != "O" and (kind is None or fields.family != kind):
        _require(fields, _TEXT if values.dtype.kind in "UT" else {kind}, values)
    if kind == fields.family == "number" and mask is None:
        long = values.dtype.char == "g"
        with np.errstate(over="ignore") if long else nullcontext():  # beyond float64 it becomes infinite
            points = np.array(values, np.float64, order="C")  # never the caller's own memory
        if _within(fields, points, values):
            points += 0.0  # -0.0 and 0.0 become the same coordinate
            # Only the rows have large integers exactly; floats are exact in both.
            kept = values.copy() if values.dtype.kind != "f" else points
            return EventTable(points, _Numbers(fields.names, kept), fields)

    def read(field: Field) -> Column:
        j = own.index(field.source)
        return encode_array(field, values[:, j], None if mask is None else mask[:, j])

    table = _table(read, fields, len(values))
    if values.dtype.kind != "O":
        return check_columns(table, ())
    lists: dict[int, dict[str, Any]] = {}
    for name in own:
        if (table.points[:, fields.places[name]] == ALIEN).any():
            _gather(lists, name, table.values(name))
    return check_columns(with_choices(table, lists, names), ())


def _require(fields: Fields, possible: Set[str | None], values: AnyArray) -> None:
    """Raise `EventError` for an array whose dtype fits no value of an attribute."""
    for field in fields:
        if not field.of and not {one.family for one in fields if one.source == field.name} & possible:
            raise EventError.about(
                field.name,
                f"is {PHRASES[field.family]}, but the array holds {values.dtype}; "
                "pass dicts, a DataFrame, an Arrow table or an array of objects",
            )


def _within(fields: Fields, points: FloatArray, values: AnyArray) -> bool:
    """Return whether every number is finite and in its domain; two passes, without temporary arrays."""
    if not len(points):
        return True
    if len(points) == 1 and values is points:
        return fields.contain(points[0].tolist())
    # NaN makes both comparisons false, infinity lies outside every domain.
    if not fields.bounded:
        return bool(points.min() >= LOWEST and points.max() <= HIGHEST)
    if values.dtype.kind != "f" and not all(field.sharp for field in fields):
        return not any(field.outside(values[:, j]).any() for j, field in enumerate(fields))
    low, high = fields.inward
    return bool((points.min(axis=0) >= low).all() and (points.max(axis=0) <= high).all())


def encode_array(field: Field, values: AnyArray, missing: BoolArray | None) -> Column:
    """Encode a NumPy column (n,) of any dtype; ignore values where `missing`, bool (n,), is true.

    Raises `EventError` as `encode_cell`.
    """
    kind = values.dtype.kind
    if kind == "m":
        raise meaningless(field.name, values.dtype)
    absent = np.zeros(len(values), np.bool_) if missing is None else np.array(missing, np.bool_)
    if kind not in PLAIN:
        objects = [None if gone else value for gone, value in zip(absent, values.tolist(), strict=True)]
        return Column(encode_objects(field, objects), objects.__getitem__)
    if kind in "mM":
        absent |= np.isnat(values)
    if kind == "f":
        _refuse(field, values, ~np.isfinite(values) & ~absent)
    exact: AnyArray | None = None
    if field.family == _FAMILIES.get(kind):
        exact, alien = values, np.zeros(1, np.bool_)
        if kind == "M":
            exact, _, _, alien = instants(values)
        elif kind == "f":
            with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
                exact = values.astype(np.float64)
        if kind != "b":
            _refuse(field, values, field.outside(exact) & ~absent & ~alien)
        coordinates = np.where(absent, MISSING, np.where(alien, ALIEN, exact.astype(np.float64)))
    else:
        coordinates = np.where(absent, MISSING, ALIEN)
    if field.width > 1:
        coordinates = np.repeat(coordinates[:, None], field.width, axis=1)

    def value(index: int) -> object:
        if absent[index]:
            return None
        return values[index] if kind in "mM" else values[index].item()

    return Column(coordinates, value, exact)


def _refuse(field: Field, values: AnyArray, wrong: BoolArray) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise refusal(field, row, values[row])


def encode_uniques(field: Field, codes: NDArray[np.signedinteger[Any]], uniques: list[Any]) -> Column:
    """Encode a dictionary-encoded column: row i has the value ``uniques[codes[i]]``; code -1 is missing."""
    try:
        table = encode_objects(field, [*uniques, None])  # index -1 is the missing one
    except EventError as error:
        raise EventError.about(field.name, error.reason, int(np.argmax(codes == error.row))) from None
    return Column(table[codes], lambda index: uniques[codes[index]] if codes[index] >= 0 else None)


def _pandas_column(field: Field, frame: Any) -> Column:
    if field.source not in frame.columns:
        return _absent(field, len(frame))
    series = frame[field.source]
    if series.ndim != 1:
        raise _several(field, "DataFrame")
    values = pandas_values(series)
    if values.array.dtype.kind not in PLAIN and field.family in ("str", "timestamp"):
        try:
            codes, uniques = series.factorize()
        except _NOT_HASHED:
            pass
        else:
            return encode_uniques(field, codes, list(uniques))
    return encode_array(field, *values)


def _several(field: Field, form: str) -> EventError:
    message = f"the {form} has several columns called {field.source!r}; keep one"
    return EventError(message, attribute=field.source)


def _absent(field: Field, count: int) -> Column:
    column = encode_array(field, np.zeros(count, np.int8), np.ones(count, np.bool_))
    return column._replace(missing=True)


def _spelling(fields: Fields, names: Iterable[Any]) -> dict[Any, str]:
    """Return the spelling in the schema of each column name that it knows."""
    known = {*fields.known, *inner_paths(fields.known)}
    spelled = {name: composed(name) for name in names if isinstance(name, str)}
    return {name: found for name, found in spelled.items() if found in known}


def _respelled(fields: Fields, table: Any) -> Any:
    if not fields.spelled:
        return table
    spelling = _spelling(fields, table.column_names)
    return table.rename_columns([spelling.get(name, name) for name in table.column_names])


def _read_arrow(fields: Fields, table: Any, names: frozenset[str] | None) -> EventTable:
    table = _respelled(fields, table)
    _require_known(fields, table.column_names)
    numbers = _read_arrow_numbers(fields, table) if fields.numbers and table.num_rows else None
    if numbers is not None and not fields.strict:
        return numbers
    found = _read_any_arrow(fields, table, names) if numbers is None else numbers
    return check_columns(found, _arrow_paths(table.schema, {*fields.known, *fields.spelling.inner}, ""))


def _arrow_paths(columns: Iterable[Any], known: Container[str], prefix: str) -> Iterator[str]:
    """Yield the names of Arrow fields, joined with dots if a struct contains attributes."""
    types = sys.modules["pyarrow"].types
    for column in columns:
        path, kind = f"{prefix}{column.name}", column.type
        while _is_list(kind):
            kind = kind.value_type
        if path in known and types.is_struct(kind):
            yield from _arrow_paths(list(kind), known, f"{path}.")
        else:
            yield path


def _read_arrow_numbers(fields: Fields, table: Any) -> EventTable | None:
    """Read all attributes at once; return None if one is missing, no plain number or outside its domain."""
    types = sys.modules["pyarrow"].types
    arrays: dict[str, AnyArray] = {}
    points = np.empty((table.num_rows, len(fields)))
    for place, name in enumerate(fields.names):
        at = table.schema.get_field_index(name)  # also -1 for several fields of the name
        if at < 0:
            return None
        column = table.column(at)
        if column.null_count or not (types.is_integer(column.type) or types.is_floating(column.type)):
            return None
        arrays[name] = points[:, place] = column.to_numpy()
    if not _within(fields, points, points):
        return None
    points += 0.0  # -0.0 and 0.0 become the same coordinate
    return EventTable(points, _NumberColumns(arrays), fields)


def _read_any_arrow(fields: Fields, table: Any, names: frozenset[str] | None) -> EventTable:
    types = sys.modules["pyarrow"].types
    for _ in range(max(field.name.count(".") for field in fields)):
        if not any(types.is_struct(kind) for kind in table.schema.types):
            break
        table = _respelled(fields, table.flatten())  # a struct column "a" with a field "b" becomes "a.b"
    found = _table(lambda field: _arrow_column(field, table), fields, len(table))
    inner = inner_paths(fields.known).difference(fields.known)
    lists: dict[int, dict[str, Any]] = {}
    for name in (name for name in table.column_names if name in inner or name in fields.known):
        column = table.column(name)
        if _is_list(column.type):
            _gather(lists, name, found.values(name) if name in fields.known else column.to_pylist())
    return with_choices(found, lists, names)


def _pandas_lists(table: EventTable, frame: Any) -> dict[int, dict[str, Any]]:
    """Return the lists in the cells of a frame, by row and path; attributes with lists were read as `ALIEN`.

    An object in a cell is a list of one element.
    """
    lists: dict[int, dict[str, Any]] = {}
    alien = (table.points == ALIEN).any(axis=0)
    for name in table.fields.labels:
        if alien[table.fields.places[name]] and frame[name].dtype.kind == "O":
            _gather(lists, name, table.values(name))
    inner = inner_paths(table.fields.known).difference(table.fields.known)
    for name in inner.intersection(frame.columns):
        if frame[name].dtype.kind == "O":
            cells = frame[name].tolist()
            _gather(lists, name, [[cell] if isinstance(cell, Mapping) else cell for cell in cells])
    return lists


def _gather(lists: dict[int, dict[str, Any]], name: str, values: Iterable[Any]) -> None:
    for row, value in enumerate(values):
        if is_list(value):
            lists.setdefault(row, {})[name] = value


def _is_list(kind: Any) -> bool:
    types = sys.modules["pyarrow"].types
    views = (getattr(types, name, None) for name in ("is_list_view", "is_large_list_view"))
    known = (types.is_list, types.is_large_list, types.is_fixed_size_list, *views)
    return any(belongs is not None and belongs(kind) for belongs in known)


def _arrow_column(field: Field, table: Any) -> Column:
    pa = sys.modules["pyarrow"]
    places = table.schema.get_all_field_indices(field.source)
    if len(places) > 1:
        raise _several(field, "Arrow table")
    if not places or pa.types.is_struct(table.schema.types[places[0]]):
        return _absent(field, len(table))
    column = table.column(places[0])
    if pa.types.is_map(column.type):
        raise meaningless(field.name, column.type)
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            coded = column.combine_chunks().dictionary_encode()
            codes = coded.indices.fill_null(-1).to_numpy()
            return encode_uniques(field, codes, coded.dictionary.to_pylist())
        return encode_array(field, *arrow_values(column))
    except UnicodeDecodeError as error:
        raise EventError.about(field.name, f"is not valid UTF-8: {error}") from None
