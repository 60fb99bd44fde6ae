"""Subscriptions given as arrays of closed bounds, one interval per attribute."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import ceil, floor, inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.dtypes import BoolArray, FloatArray
from rtfilter.errors import PredicateError
from rtfilter.events.encoding import ALIEN, HIGHEST, LOWEST, MISSING, Timestamp
from rtfilter.events.schema import Schema
from rtfilter.predicates.model import Constraint, Filter, Predicate


def compile_bounds(low: ArrayLike, high: ArrayLike, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Compile n subscriptions given as arrays, one closed interval per attribute.

    Parameters
    ----------
    low, high : float (n, number of attributes)
        Closed ends in the order of ``schema.names``: numbers; 0 and 1 for booleans; microseconds since
        1970-01-01T00:00:00Z for timestamps. -inf and +inf together mean no constraint: the attribute
        may be missing. One infinite end alone means no bound on that side: the attribute must be
        present. A string attribute must have no constraint. Ends and events compare as float64.
    schema : Schema

    Returns
    -------
    low, high : float64 (n, D)
        Encoded boxes, all exact.

    Raises
    ------
    PredicateError
        A wrong shape, NaN, an end at the wrong infinity, low above high, or a bounded string attribute;
        its `row` and `attribute` say where.
    """
    lows, highs = np.asarray(low, np.float64), np.asarray(high, np.float64)
    width = len(schema.names)
    if lows.ndim != 2 or lows.shape[1] != width or lows.shape != highs.shape:
        raise PredicateError(
            f"low and high must both have shape (n, {width}); got {lows.shape}, {highs.shape}"
        )
    free = (lows == -inf) & (highs == inf)
    _refuse(np.isnan(lows) | np.isnan(highs), "NaN", lows, highs, schema)
    _refuse(lows > highs, "low above high", lows, highs, schema)
    _refuse((lows == inf) | (highs == -inf), "an end at the wrong infinity", lows, highs, schema)
    strings = np.array([attribute.width == 2 for attribute in schema.attributes.values()])
    _refuse(~free & strings, "bounds on a string, which arrays cannot hold", lows, highs, schema)
    at = np.repeat(np.arange(width), [attribute.width for attribute in schema.attributes.values()])
    # -0.0 becomes 0.0, so that equal boxes have equal bytes.
    encoded_low = np.where(free, MISSING, np.maximum(lows, LOWEST) + 0.0)[:, at]
    encoded_high = np.where(free, ALIEN, np.minimum(highs, HIGHEST) + 0.0)[:, at]
    return np.ascontiguousarray(encoded_low), np.ascontiguousarray(encoded_high)


def bounds_predicate(low: FloatArray, high: FloatArray, schema: Schema) -> Predicate:
    """Return the predicate that one row of `compile_bounds` stands for.

    Parameters
    ----------
    low, high : float64 (D,)
        A closed box in encoded coordinates, without a constraint on strings.
    schema : Schema
    """
    constraints: list[Constraint] = []
    for name, attribute in schema.attributes.items():
        at = schema.offsets[name]
        a, b = float(low[at]), float(high[at])
        if a == MISSING and b == ALIEN:
            continue
        if attribute.type is bool:
            constraints.append(Constraint(name, "in", [value for value in (False, True) if a <= value <= b]))
        elif a == b and (attribute.type is not datetime or a.is_integer()):
            constraints.append(Constraint(name, "=", _constant(a, attribute.type, ceil)))
        else:
            # The attribute must be present. Any end says so; where both are open, the lowest number does.
            if a != LOWEST or b == HIGHEST:
                constraints.append(Constraint(name, ">=", _constant(a, attribute.type, ceil)))
            if b != HIGHEST:
                constraints.append(Constraint(name, "<=", _constant(b, attribute.type, floor)))
    return Predicate((Filter(tuple(constraints)),))


def _constant(coordinate: float, kind: type, whole: Callable[[float], int]) -> Any:
    return Timestamp(whole(coordinate)) if kind is datetime else coordinate


def _refuse(wrong: BoolArray, what: str, lows: FloatArray, highs: FloatArray, schema: Schema) -> None:
    if wrong.any():
        row, column = map(int, np.argwhere(wrong)[0])
        name = schema.names[column]
        reason = f"{what} in [{lows[row, column]}, {highs[row, column]}]"
        raise PredicateError(f"attribute {name!r}: {reason}", row=row, attribute=name, reason=reason)
