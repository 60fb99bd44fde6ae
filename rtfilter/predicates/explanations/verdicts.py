"""Constraints tested on many events at once, by their coordinates.

Coordinates decide most verdicts. The others are marked as unsure: numbers from 2**53 on, long strings, and
constraints of strings other than equality.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.events.encoding import EXACT, IDENTITY_MAX, MISSING, STRING_BYTES, string_code, utf8
from rtfilter.events.fields import Fields
from rtfilter.predicates.model.comparison import RELATIONS, Comparison
from rtfilter.predicates.model.constraints import Constraint
from rtfilter.predicates.operands.expressions import SLACK, Distance, evaluate_columns

_SHORT: Final = (IDENTITY_MAX + 1) // 2
"""Identities below this belong to strings that are certainly distinguished."""


class Verdicts(NamedTuple):
    """The verdicts of one constraint on k events."""

    holds: BoolArray
    """bool (k,): whether an event satisfies it."""
    unsure: BoolArray
    """bool (k,): call `matches` instead."""


class Place(NamedTuple):
    """The place of an attribute's coordinates."""

    start: int
    family: str


def places_of(fields: Fields) -> dict[str, Place]:
    """Return the places of all attributes, by name."""
    starts = accumulate((field.width for field in fields), initial=0)
    return {field.name: Place(start, field.family) for field, start in zip(fields, starts, strict=False)}


def verdicts(
    test: Constraint | Comparison, points: FloatArray, rows: IntArray, places: Mapping[str, Place]
) -> Verdicts:
    """Test a constraint, which was checked against the schema, on some events.

    Parameters
    ----------
    test : Constraint or Comparison
    points : float64 (n, D)
    rows : int64 (k,)
        Rows of `points`.
    places : mapping
        A result of `places_of`.
    """
    if isinstance(test, Comparison):
        if test.family == "str":
            return _compare_strings(test, points, rows, places)
        return _compare(test, {name: points[rows, places[name].start] for name in test.attributes})
    place = places[test.attribute]
    column = points[rows, place.start]
    if test.operator in ("is null", "exists"):
        return _sure((column == MISSING) == (test.operator == "is null"))
    if place.family == "str":
        return _string(test, points[rows, place.start + 1])
    return _ordinal(test, column)


def _sure(holds: BoolArray) -> Verdicts:
    return Verdicts(holds, np.zeros(len(holds), np.bool_))


def _compare(test: Comparison, columns: Mapping[str, FloatArray]) -> Verdicts:
    if isinstance(test.left, Distance) and isinstance(test.right, int | float):
        far, none = test.left.columns(columns[test.left.latitude], columns[test.left.longitude])
        holds: BoolArray = RELATIONS[test.operator](far, float(test.right)) & ~none
        return Verdicts(holds, (np.abs(far - float(test.right)) <= SLACK) & ~none)
    count = len(next(iter(columns.values())))
    left, right = (evaluate_columns(side, columns, count) for side in (test.left, test.right))
    none = left.none | right.none
    holds = RELATIONS[test.operator](left.values, right.values) & ~none
    return Verdicts(holds, (left.unsure | right.unsure) & ~none)


def _compare_strings(
    test: Comparison, points: FloatArray, rows: IntArray, places: Mapping[str, Place]
) -> Verdicts:
    starts = [places[str(side)].start for side in (test.left, test.right)]
    exact = test.operator in ("=", "<>")
    left, right = (points[rows, start + exact] for start in starts)
    present = np.isfinite(left) & np.isfinite(right)
    holds: BoolArray = RELATIONS[test.operator](left, right) & present
    unsure = (left == right) & present
    return Verdicts(holds, unsure & (left >= _SHORT) if exact else unsure)


def _ordinal(test: Constraint, column: FloatArray) -> Verdicts:
    """Return the verdicts for numbers, timestamps and booleans."""
    present = np.isfinite(column)
    if test.operator in RELATIONS:
        constants: list[Any] = [test.value]
        holds = RELATIONS[test.operator](column, float(test.value)) & present
    elif test.operator in ("in", "not in") and test.value:
        constants = list(test.value)
        among = np.isin(column, [float(value) for value in constants])
        holds = among if test.operator == "in" else ~among & present
    else:
        return Verdicts(np.zeros(len(column), np.bool_), np.ones(len(column), np.bool_))
    far = any(abs(value) >= EXACT for value in constants)
    # A coordinate below 2**53 is the number itself, and on the right side of every larger constant.
    return Verdicts(holds, present & (np.abs(column) >= EXACT)) if far else _sure(holds)


def _string(test: Constraint, identity: FloatArray) -> Verdicts:
    present = np.isfinite(identity)
    if test.operator in ("=", "<>"):
        texts: Iterable[str] = (test.value,)
    elif test.operator in ("in", "not in") and test.value:
        texts = test.value
    else:
        return Verdicts(np.zeros(len(identity), np.bool_), present)
    codes = {string_code(text)[1]: len(utf8(text)) > STRING_BYTES for text in texts}
    among = np.isin(identity, list(codes))
    unsure = np.isin(identity, [code for code, long in codes.items() if long])
    return Verdicts(among if test.operator in ("=", "in") else ~among & present, unsure)
