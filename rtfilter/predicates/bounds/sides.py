"""Readers for one side of bounds, the low or the high ends, in arrays, lists and tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import composed, listed, shown
from rtfilter.events.encoding import EXACT, is_missing, microseconds, number
from rtfilter.events.foreign import ColumnValues, arrow_values, families, pandas_values, streamed
from rtfilter.events.moments import instants
from rtfilter.events.schema import Attribute, Schema
from rtfilter.events.table import MOST_REST, rest_of, rests

Name = Literal["low", "high"]
OPEN: Final = {"low": -math.inf, "high": math.inf}
"""The end that means no bound, by side; a missing cell of a table means the same."""


NO_STRING: Final = "is a string, which has no bounds; subscribe with a predicate instead"
"""The error message for bounds that are strings."""
NO_PART: Final = "is a further type of an attribute, which has no bounds; subscribe with a predicate instead"
"""The error message for bounds of a further type."""


class Side(NamedTuple):
    """Ends of n intervals over the attributes of a schema."""

    values: FloatArray
    """float64 (n, number of attributes): the nearest float64 to each end."""
    rests: IntArray | None
    """int64, of the same shape: the end minus its float64; None if all are 0."""

    def shown(self, row: int, column: int) -> str:
        """Return an end as messages show it."""
        value = float(self.values[row, column])
        whole = self.rests is not None and abs(value) >= EXACT and math.isfinite(value)
        return str(int(value) + int(self.rests[row, column])) if whole else str(value)  # type: ignore[index]


def open_side(count: int, schema: Schema, name: Name) -> Side:
    """Return the ends of `count` intervals without bounds on one side."""
    return Side(np.full((count, len(schema.names)), OPEN[name]), None)


def read_side(given: Any, schema: Schema, name: Name) -> Side:
    """Read the ends of one side; see `rtfilter.predicates.bounds.bound_arrays.compile_bounds` for their form.

    Raises `PredicateError`: a wrong shape or column, or ends of another type than the attribute.
    """
    shape = (len(schema.names),)
    if (
        type(given) is np.ndarray
        and given.dtype == np.float64
        and given.ndim == 2
        and given.shape[1:] == shape
    ):
        return Side(given, None)  # the usual case
    columns = _columns(given, name)
    if columns is None:
        array = _array(given, schema, name)
        return _read(array, [(own, schema.attributes[own]) for own in schema.names], name)
    for column in columns:
        attribute = schema.attribute(column)
        if attribute.kind == "str":
            raise PredicateError.about(column, NO_STRING)
        if column not in schema.names:
            raise PredicateError.about(column, NO_PART)
    read = {column: bound_values(values, column, name) for column, values in columns.items()}
    lengths = {len(values.array) for values in read.values()}
    if len(lengths) > 1:
        raise PredicateError(f"the columns of {name} have {listed([str(n) for n in sorted(lengths)])} rows")
    values = np.full((max(lengths, default=0), len(schema.names)), OPEN[name])
    left = np.zeros(values.shape, np.int64)
    for column, (array, missing) in read.items():
        at = schema.names.index(column)
        masked = np.ma.MaskedArray(array[:, np.newaxis], missing[:, np.newaxis])
        own = _read(masked, [(column, schema.attributes[column])], name)
        values[:, at : at + 1] = own.values
        if own.rests is not None:
            left[:, at : at + 1] = own.rests
    return Side(values, left if left.any() else None)


def _columns(given: Any, name: Name) -> dict[str, Any] | None:
    """Return the columns of a table by name; None if it is no table."""
    if isinstance(given, Mapping):
        return _named(given, name)
    if isinstance(given, np.ndarray | list | tuple):
        return None
    kinds = families(given)
    if ("pandas", "DataFrame") in kinds:
        names, columns = list(given.columns), [given.iloc[:, at] for at in range(given.shape[1])]
    elif ("pyarrow", "Table") in kinds or ("pyarrow", "RecordBatch") in kinds:
        names, columns = list(given.schema.names), list(given.columns)
    elif hasattr(given, "__arrow_c_stream__"):
        table = streamed(given, PredicateError)
        names, columns = list(table.column_names), list(table.columns)
    elif hasattr(type(given), "columns"):  # of the class: the property is slow for some frames
        raise PredicateError(
            f"{name} is a {type(given).__name__}; "
            "pass an array, a DataFrame of pandas or Polars, or an Arrow table"
        )
    else:
        return None
    for column in names:
        if not isinstance(column, str):
            raise PredicateError(
                f"the columns of {name} must have the names of attributes, not {shown(column)}; "
                "for columns in the order of the schema pass an array: to_numpy()"
            )
        if names.count(column) > 1:
            raise PredicateError(f"{name} has several columns called {column!r}; keep one")
    return _named(dict(zip(names, columns, strict=True)), name)


def _named(columns: Mapping[Any, Any], name: Name) -> dict[Any, Any]:
    """Return columns with their names in the schema's spelling."""
    found = {composed(column) if isinstance(column, str) else column: one for column, one in columns.items()}
    if len(found) < len(columns):
        raise PredicateError(f"{name} has a column in two spellings of Unicode; keep one")
    return found


def bound_values(column: Any, attribute: str, name: str) -> ColumnValues:
    """Return a column of a table in NumPy: of pandas, Arrow, NumPy, or a list."""
    kinds = families(column)
    if ("pandas", "Series") in kinds:
        return pandas_values(column)
    if any(package == "pyarrow" for package, _ in kinds):
        return arrow_values(column)
    array = column if isinstance(column, np.ndarray) else _converted(column, name)
    if array.ndim != 1:
        raise PredicateError.about(attribute, f"needs a column of one dimension, not of shape {array.shape}")
    return ColumnValues(np.ma.getdata(array), np.ma.getmaskarray(array))


def _converted(given: Any, name: str) -> AnyArray:
    """Return a value as an array; of objects if float64 may have lost integers of a list."""
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "iufbmM":
            return np.array(given, object)
        # NumPy makes floats of a list with integers and floats.
        if isinstance(given, Sequence) and array.dtype.kind == "f":
            sizes = np.abs(array)
            if ((sizes >= EXACT) & (sizes < math.inf)).any():
                return np.array(given, object)
    except (ValueError, TypeError) as error:
        raise _no_array(given, name, error) from None
    return array


def _no_array(given: Any, name: str, error: Exception) -> PredicateError:
    """Return the error for ends that NumPy cannot convert to an array."""
    if not isinstance(given, Sequence):
        return PredicateError(f"{name} is no array: {error}")
    if all(isinstance(ends, Sequence) or (isinstance(ends, np.ndarray) and ends.ndim) for ends in given):
        for row, ends in enumerate(given):
            if len(ends) != len(given[0]):
                reason = f"{name} is no array: this row has length {len(ends)}, but row 0 has {len(given[0])}"
                return PredicateError(reason, row=row)
    return PredicateError(
        f"{name} is no array: a row has one plain value for each attribute; got {shown(given)}"
    )


def _array(given: Any, schema: Schema, name: Name) -> AnyArray:
    """Return ends as an array (n, number of attributes)."""
    array = given if isinstance(given, np.ndarray) else _converted(given, name)
    if array.dtype.names is not None:
        raise PredicateError(f"{name} is an array of records; pass a DataFrame, or an array without names")
    if array.shape == (0,):
        array = np.empty((0, len(schema.names)))
    if array.ndim != 2 or array.shape[1] != len(schema.names):
        raise PredicateError(
            f"low and high must both have shape (n, {len(schema.names)}); {name} has {array.shape}"
        )
    return array


def _read(ends: AnyArray, attributes: list[tuple[str, Attribute]], name: Name) -> Side:
    """Read ends (n, k) of any dtype, for k attributes; a masked end is no bound."""
    array, mask = np.ma.getdata(ends), np.ma.getmask(ends)
    kind = array.dtype.kind
    left: IntArray | None = None
    if kind in "fiu":
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes infinite
            values = np.array(array, np.float64)
        if kind != "f":
            large = np.abs(values) >= EXACT
            if large.any():
                left = np.zeros(values.shape, np.int64)
                left[large] = rests(array[large], values[large])
    elif kind == "b":
        _require(attributes, "bool", array, mask)
        values = array.astype(np.float64)
    elif kind == "M":
        _require(attributes, "timestamp", array, mask)
        values, left, missing = _moments(array, mask, attributes, name)
        mask = mask | missing
    elif kind in "OUST":
        values, left = _objects(array.astype(object), mask, attributes, name)
    else:
        _require(attributes, "", array, mask)
        values = np.zeros(array.shape)
    if mask is not np.ma.nomask:
        values[mask] = OPEN[name]
        if left is not None:
            left[mask] = 0
    return Side(values, left)


def _require(
    attributes: list[tuple[str, Attribute]], family: str, array: AnyArray, mask: BoolArray | np.bool_
) -> None:
    """Raise `PredicateError` if the dtype of ends suits only another family, unless all are masked."""
    for at, (name, attribute) in enumerate(attributes):
        given = np.flatnonzero(~np.broadcast_to(mask, array.shape)[:, at])
        if attribute.family != family and len(given):
            but = f"is a {attribute.family}, but its bounds are {array.dtype}"
            reason = NO_STRING if attribute.family == "str" else but
            raise PredicateError.about(name, reason, row=int(given[0]))


def _moments(
    array: AnyArray, mask: BoolArray | np.bool_, attributes: list[tuple[str, Attribute]], name: Name
) -> tuple[FloatArray, IntArray | None, BoolArray]:
    """Convert datetime64 to microseconds, rounded inwards: events have whole microseconds."""
    found = instants(array.ravel())
    wrong = np.argwhere(found.beyond.reshape(array.shape) & ~mask)
    if len(wrong):
        row, column = wrong[0].tolist()
        reason = f"has the bound {shown(array[row, column])}, which int64 microseconds do not hold"
        raise PredicateError.about(attributes[column][0], reason, row=row)
    whole = found.microseconds + found.cut if name == "low" else found.microseconds
    values = whole.astype(np.float64)
    left = rests(whole, values)
    missing: BoolArray = found.missing.reshape(array.shape)
    return values.reshape(array.shape), left.reshape(array.shape) if left.any() else None, missing


def _objects(
    array: AnyArray, mask: BoolArray | np.bool_, attributes: list[tuple[str, Attribute]], name: Name
) -> tuple[FloatArray, IntArray]:
    """Read ends one by one; a missing end is no bound."""
    values, left = np.full(array.shape, OPEN[name]), np.zeros(array.shape, np.int64)
    for column, (attribute, declared) in enumerate(attributes):
        for row in np.flatnonzero(~np.broadcast_to(mask, array.shape)[:, column]).tolist():
            given = array[row, column]
            if is_missing(given) and not isinstance(given, Mapping):
                continue
            end = _end(given, declared.family, name)
            if end is None:
                but = f"is a {declared.family}, but has the bound {type(given).__name__} {shown(given)}"
                reason = NO_STRING if declared.family == "str" else but
                raise PredicateError.about(attribute, reason, row=row)
            try:
                values[row, column] = end
            except OverflowError:
                reason = f"has the bound {shown(given)}, which is beyond float64; leave that side open"
                raise PredicateError.about(attribute, reason, row=row) from None
            if abs(end) >= EXACT:
                left[row, column] = _rest(attribute, row, end, values[row, column])
    return values, left


def _end(given: object, family: str, name: Name) -> float | None:
    """Return one end as a number; None for a value of another type."""
    if isinstance(given, float | np.floating) and given != given:
        return math.nan  # refused together with those of arrays
    if family == "bool" and isinstance(given, bool | np.bool_):
        return float(given)
    if family == "timestamp":
        moment = microseconds(given)
        if moment is not None:
            return moment + (name == "low" and _cut(given))
    return number(given)


def _cut(moment: object) -> bool:
    """Return whether a time has a part of a microsecond."""
    if isinstance(moment, np.datetime64):
        return bool(instants(np.array([moment])).cut[0])
    return bool(getattr(moment, "nanosecond", 0))  # of pandas


def _rest(attribute: str, row: int, end: float, value: float) -> int:
    if isinstance(end, float | np.floating):
        return 0
    rest = rest_of(end, value)
    if abs(rest) >= MOST_REST:
        reason = "has a bound of more than 115 bits that float64 does not hold; write a condition"
        raise PredicateError.about(attribute, reason, row=row)
    return rest
