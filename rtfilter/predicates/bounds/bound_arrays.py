"""Subscriptions given as arrays of closed bounds, one interval per attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import ceil, floor, inf
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray
from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import ALIEN, EXACT, HIGHEST, LOWEST, MISSING, Timestamp
from rtfilter.events.schema import Attribute, Schema
from rtfilter.predicates.bounds.ends import NO_ENDS, Ends
from rtfilter.predicates.bounds.sides import NO_STRING, Side, open_side, read_side
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate

_FLOAT: Final = np.dtype(np.float64)


class EncodedBounds(NamedTuple):
    """n subscriptions with an encoded box each."""

    low: FloatArray
    """float64 (n, D)."""
    high: FloatArray
    """float64 (n, D)."""
    ends: Ends
    """Exact ends, by row, that an event in the box may violate; a box without such ends is exact."""


def compile_bounds(low: Any, high: Any, schema: Schema) -> EncodedBounds:
    """Compile n subscriptions given as arrays or tables, one closed interval per attribute.

    Parameters
    ----------
    low, high : array_like (n, number of attributes), or table of n rows
        Closed ends. The columns of an array are in the order of ``schema.names``. The columns of a table have
        the names of attributes; an attribute without a column has no bound on that side. A table is a
        DataFrame of pandas or of Polars (which needs pyarrow), an Arrow table, or a mapping of names to
        columns.

        Ends of numbers are numbers of any dtype; ends of booleans are 0 and 1, or booleans. Ends of
        timestamps are datetime64 of any unit, constants of predicates, or numbers: microseconds since
        1970-01-01T00:00:00Z. Events have whole microseconds, so finer ends are rounded inwards.

        -inf and +inf together mean no constraint: the attribute may be missing. A single infinite end means
        no bound on that side: the attribute must be present. A missing end counts as infinite: a masked cell,
        None, NaT, null in Arrow, and in pandas NaN. A string attribute must have no constraint.
    schema : Schema

    Returns
    -------
    EncodedBounds
        The bounds compare exactly with all int64, uint64 and float64 values of events.

    Raises `PredicateError`: a wrong shape, a column that is no attribute, ends of another type than the
    attribute, NaN, an end at the wrong infinity or beyond float64, low above high, or a bounded string
    attribute; its `row` and `attribute` name the place.
    """
    one = _single(low, high, schema)
    if one is not None:
        return one
    lows, highs = read_side(low, schema, "low"), read_side(high, schema, "high")
    if isinstance(low, Mapping) and not low:  # no column: no bound on that side
        lows = open_side(len(highs.values), schema, "low")
    if isinstance(high, Mapping) and not high:
        highs = open_side(len(lows.values), schema, "high")
    if lows.values.shape != highs.values.shape:
        raise PredicateError(
            f"low and high must both have shape (n, {len(schema.names)}); "
            f"got {lows.values.shape}, {highs.values.shape}"
        )
    _check(lows, highs, schema)
    _check_booleans(lows, highs, schema)
    a, b = lows.values, highs.values
    sizes = np.abs(np.stack((a, b), axis=2))
    far = sizes >= EXACT
    if not far.any():  # nor is any end infinite
        low, high, ends = a + 0.0, b + 0.0, NO_ENDS
    else:
        free = (a == -inf) & (b == inf)
        low = np.where(free, MISSING, np.maximum(a, LOWEST) + 0.0)
        high = np.where(free, ALIEN, np.minimum(b, HIGHEST) + 0.0)
        ends = _ends(lows, highs, far & (sizes < inf), schema)
    # -0.0 has become 0.0, so that equal boxes have equal bytes.
    if schema.dimensions > len(schema.names):
        widths = np.array([attribute.width for attribute in _own(schema)])
        bounded = (low != MISSING) & (widths > 1)
        if bounded.any():
            row, at = map(int, np.argwhere(bounded)[0])
            raise PredicateError.about(schema.names[at], NO_STRING, row=row)
        low, high = _spread(low, MISSING, schema), _spread(high, ALIEN, schema)
    return EncodedBounds(low, high, ends)


def _own(schema: Schema) -> list[Attribute]:
    """Return the attributes of `schema.names`."""
    return [schema.attributes[name] for name in schema.names]


def _spread(side: FloatArray, unbounded: float, schema: Schema) -> FloatArray:
    """Return ends for all coordinates; strings, and attributes for further types, have no bound."""
    found = np.full((len(side), schema.dimensions), unbounded)
    found[:, [schema.offsets[name] for name in schema.names]] = side
    return found


def _single(low: Any, high: Any, schema: Schema) -> EncodedBounds | None:
    """Return the bounds of one numeric subscription, the usual case; None if they need further checks."""
    if not (type(low) is type(high) is np.ndarray and low.dtype == high.dtype == _FLOAT and schema.plain):
        return None
    if not low.shape == high.shape == (1, len(schema.names)):
        return None
    (lows,), (highs,) = low.tolist(), high.tolist()
    most = float(EXACT)  # a comparison of two floats takes half the time
    least = -most
    for a, b in zip(lows, highs, strict=True):
        if not (least < a <= b < most or (a == MISSING and b == ALIEN)):
            return None
    return EncodedBounds(low + 0.0, high + 0.0, NO_ENDS)  # -0.0 becomes 0.0


def _check(lows: Side, highs: Side, schema: Schema) -> None:
    """Raise `PredicateError` for ends that form no interval."""
    a, b = lows.values, highs.values
    # NaN makes the comparison false. Two ends at one infinity are the only other case that passes it.
    if (a <= b).all() and lows.rests is highs.rests is None and not (np.isinf(a) & (a == b)).any():
        return
    _refuse(np.isnan(a) | np.isnan(b), "NaN", lows, highs, schema)
    above = a > b
    if not (lows.rests is highs.rests is None):
        low_rests, high_rests = (0 if side.rests is None else side.rests for side in (lows, highs))
        above = above | ((a == b) & (np.asarray(low_rests) > high_rests))
    _refuse(above, "low above high", lows, highs, schema)
    _refuse((a == inf) | (b == -inf), "low is inf or high is -inf", lows, highs, schema)


def _check_booleans(lows: Side, highs: Side, schema: Schema) -> None:
    """Raise `PredicateError` for ends that are no booleans."""
    flags = [at for at, attribute in enumerate(_own(schema)) if attribute.type is bool]
    if not flags:
        return
    wrong = np.zeros(lows.values.shape, np.bool_)
    for side in (lows, highs):
        ends = side.values[:, flags]
        wrong[:, flags] |= ~(np.isinf(ends) | (ends == 0) | (ends == 1))
    _refuse(wrong, "a boolean's bound is 0, 1 or infinite (no bound); not so", lows, highs, schema)


def _ends(lows: Side, highs: Side, large: BoolArray, schema: Schema) -> Ends:
    """Return the ends of numbers and timestamps that are `large`, bool (n, number of attributes, 2)."""
    if not large.any():
        return NO_ENDS
    ordinal = np.array([attribute.ordinal for attribute in _own(schema)])
    rows, at, is_high = np.nonzero(large & ordinal[:, np.newaxis])
    sides = 2 * np.array([schema.offsets[name] for name in schema.names])[at] + is_high
    values = np.where(is_high == 1, highs.values[rows, at], lows.values[rows, at])
    rests = np.zeros(len(rows), np.int64)
    for side, own in ((lows, is_high == 0), (highs, is_high == 1)):
        if side.rests is not None:
            rests[own] = side.rests[rows[own], at[own]]
    return Ends(rows, sides, values, rests)


def bounds_predicate(low: FloatArray, high: FloatArray, schema: Schema, ends: Ends = NO_ENDS) -> Predicate:
    """Return the predicate of one row of `compile_bounds`.

    Parameters
    ----------
    low, high : float64 (D,)
        A closed box in encoded coordinates, without a constraint on strings.
    schema : Schema
    ends : Ends
        The exact ends of this row.
    """
    exact = {
        side: int(value) + rest if rest else value
        for side, value, rest in zip(*(column.tolist() for column in ends[1:]), strict=True)
    }
    constraints: list[Constraint] = []
    for name, attribute in schema.attributes.items():
        at = schema.offsets[name]
        if low[at] == MISSING and high[at] == ALIEN:
            continue
        a, b = exact.get(2 * at, float(low[at])), exact.get(2 * at + 1, float(high[at]))
        if attribute.type is bool:
            constraints.append(Constraint(name, "in", [value for value in (False, True) if a <= value <= b]))
        elif a == b and (attribute.type is not datetime or a == floor(a)):
            constraints.append(Constraint(name, "=", _constant(a, attribute.type, ceil)))
        else:
            # The attribute must be present. One end suffices for that; if both are open, the lowest number is
            # used.
            if a != LOWEST or b == HIGHEST:
                constraints.append(Constraint(name, ">=", _constant(a, attribute.type, ceil)))
            if b != HIGHEST:
                constraints.append(Constraint(name, "<=", _constant(b, attribute.type, floor)))
    return Predicate((Filter(tuple(constraints)),))


def _constant(end: float, kind: type, whole: Callable[[float], int]) -> Any:
    return Timestamp(whole(end)) if kind is datetime else end


def _refuse(wrong: BoolArray, what: str, lows: Side, highs: Side, schema: Schema) -> None:
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        name = schema.names[column]
        if what == "low above high" and schema.attributes[name].family == "timestamp":
            what = "no whole microsecond lies between low and high"
        reason = f"{what} in [{lows.shown(row, column)}, {highs.shown(row, column)}]"
        raise PredicateError(f"attribute {name!r}: {reason}", row=row, attribute=name, reason=reason)
