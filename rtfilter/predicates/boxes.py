"""From predicates to closed boxes in encoded coordinates (W-1).

One filter becomes one box, or a few: a set has one per value, ``<>`` one on either side. A box only ever
widens: every event that satisfies the filter lies in one of its boxes. Where a box may hold other events
too, its `exact` flag is false, and `rtfilter.predicates.model.Predicate.matches` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import pairwise, product
from math import ceil, floor, inf, nextafter, prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import (
    ALIEN,
    EXACT,
    HIGHEST,
    IDENTITY_MAX,
    LOWEST,
    MISSING,
    ORDER_MAX,
    STRING_BYTES,
    BoolArray,
    FloatArray,
    Timestamp,
    order_code,
    string_code,
    utf8,
)
from rtfilter.events.schema import Schema
from rtfilter.predicates.model import COMPARE, Constraint, Filter, Predicate

MAX_BOXES: Final = 1024
"""Most boxes of one predicate."""
MAX_SPLIT: Final = 16
"""Most boxes of one filter: beyond, neighbouring values share a hull that is not exact (W-1)."""


_STRICTEST: Final[dict[str, Callable[[Any, Any], Any]]] = {"<": min, "<=": min, ">": max, ">=": max}


class Boxes(NamedTuple):
    """Closed boxes in encoded coordinates; none for a predicate that matches nothing (M-11 ii)."""

    low: FloatArray
    """float64 (m, D)."""
    high: FloatArray
    """float64 (m, D), at least `low` everywhere."""
    exact: BoolArray
    """bool (m,): whether every event inside satisfies the predicate."""


class _Piece(NamedTuple):
    """An interval of one attribute: a side of a box, for a string two sides."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    exact: bool


def compile_predicate(predicate: Predicate, schema: Schema) -> Boxes:
    """Compile a predicate that was checked against `schema` (see `rtfilter.predicates.model.parse`).

    Returns
    -------
    Boxes
        Distinct boxes; an event that satisfies the predicate lies in at least one.

    Raises
    ------
    PredicateError
        More than `MAX_BOXES` boxes, or an attribute that the schema has not.
    """
    found: dict[tuple[tuple[float, ...], tuple[float, ...]], bool] = {}
    for conjunction in predicate.filters:
        for low, high, exact in _filter_boxes(conjunction.constraints, schema):
            # An exact box vouches for all its events, whichever filter it came from.
            found[low, high] = exact or found.get((low, high), False)
        if len(found) > MAX_BOXES:
            raise PredicateError(
                f"the predicate needs more than {MAX_BOXES} boxes; split it into several subscriptions"
            )
    shape = (len(found), schema.dimensions)
    # -0.0 becomes 0.0, so that equal boxes have equal bytes.
    lows = np.array([low for low, _ in found], np.float64).reshape(shape) + 0.0
    highs = np.array([high for _, high in found], np.float64).reshape(shape) + 0.0
    return Boxes(lows, highs, np.array(list(found.values()), np.bool_))


def _filter_boxes(constraints: Iterable[Constraint], schema: Schema) -> Iterable[_Piece]:
    by_name: dict[str, list[Constraint]] = {}
    for constraint in constraints:
        by_name.setdefault(constraint.attribute, []).append(constraint)
    sides: list[list[_Piece]] = []
    for name, given in by_name.items():
        family = schema.attribute(name).family
        pieces = _presence(given, schema.attributes[name].width)
        if pieces is None:
            pieces = _VALUES[family](given)
        if not pieces:
            return []
        sides.append(pieces)
    _limit(sides)
    low, high = [-inf] * schema.dimensions, [inf] * schema.dimensions
    places = [schema.offsets[name] for name in by_name]
    boxes: list[_Piece] = []
    for choice in product(*sides):
        for place, piece in zip(places, choice, strict=True):
            low[place : place + len(piece.low)] = piece.low
            high[place : place + len(piece.high)] = piece.high
        boxes.append(_Piece(tuple(low), tuple(high), all(piece.exact for piece in choice)))
    return boxes


def _presence(constraints: list[Constraint], width: int) -> list[_Piece] | None:
    """Return the pieces where only presence matters; None where values do."""
    operators = {constraint.operator for constraint in constraints}
    if "is null" in operators:
        return [_Piece((MISSING,) * width, (MISSING,) * width, True)] if len(operators) == 1 else []
    if operators == {"exists"}:
        return [_Piece((LOWEST,) * width, (ALIEN,) * width, True)]
    return None


def _chosen(constraints: list[Constraint]) -> list[Any] | None:
    """Return the values that `=` and `in` leave, once the other constraints have been tried on them."""
    sets: list[frozenset[Any]] = []
    removed: set[Any] = set()
    tests: dict[str, Any] = {}
    starts: list[str] = []
    unwanted: list[str] = []
    for _, operator, value in constraints:
        if operator in ("=", "in"):
            sets.append(value if operator == "in" else frozenset((value,)))
        elif operator in ("<>", "not in"):
            removed.update(value if operator == "not in" else (value,))
        elif operator in _STRICTEST:  # one test per operator, so that the cost stays linear
            tests[operator] = _STRICTEST[operator](tests.get(operator, value), value)
        elif operator == "prefix":
            starts.append(value)
        elif operator == "not prefix":
            unwanted.append(value)
    if not sets:
        return None
    values: Iterable[Any] = frozenset.intersection(*sets) - removed
    for operator, constant in tests.items():
        values = [value for value in values if COMPARE[operator](value, constant)]
    if starts:
        values = [value for value in values if all(map(value.startswith, starts))]
    if unwanted:
        values = [value for value in values if not value.startswith(tuple(unwanted))]
    return list(values)


def _ordinal(constraints: list[Constraint]) -> list[_Piece]:
    """Numbers, and timestamps in microseconds."""
    chosen = _chosen(constraints)
    if chosen is not None:
        points = {float(value) + 0.0: abs(value) < EXACT for value in chosen}
        return [_Piece((point,), (point,), exact) for point, exact in points.items()]
    low, high, exact = LOWEST, HIGHEST, True
    holes: set[float] = set()
    for _, operator, value in constraints:
        if operator == "exists":
            continue
        if operator in ("<>", "not in"):
            values = (value,) if operator == "<>" else value
            holes.update(float(v) for v in values if abs(v) < EXACT)
            exact = exact and all(abs(v) < EXACT for v in values)
            continue
        end = float(value) + 0.0
        # At 2**53 an integer may round onto its neighbour: the end stays closed, matches() decides.
        sharp = abs(value) < EXACT
        exact = exact and sharp
        if operator in (">", ">="):
            low = max(low, nextafter(end, inf) if operator == ">" and sharp else end)
        else:
            high = min(high, nextafter(end, -inf) if operator == "<" and sharp else end)
    cuts = [(nextafter(hole, -inf), nextafter(hole, inf)) for hole in sorted(holes)]
    return [_Piece((a,), (b,), exact) for a, b in _gaps(low, high, cuts)]


def _boolean(constraints: list[Constraint]) -> list[_Piece]:
    tests = [c for c in constraints if c.operator in COMPARE]
    values = [v for v in (False, True) if all(COMPARE[c.operator](v, c.value) for c in tests)]
    return [_Piece((float(values[0]),), (float(values[-1]),), True)] if values else []


def _text(constraints: list[Constraint]) -> list[_Piece]:
    """Strings: `order` holds ranges and prefixes, `identity` equality; both know 6 bytes exactly."""
    chosen = _chosen(constraints)
    if chosen is not None:
        exact_of = {string_code(text): len(utf8(text)) <= STRING_BYTES for text in chosen}
        return [
            _Piece((float(order), float(identity)), (float(order), float(identity)), exact)
            for (order, identity), exact in exact_of.items()
        ]
    low, high, exact = 0, ORDER_MAX, True
    cuts: list[tuple[float, float]] = []
    holes: set[int] = set()
    for _, operator, value in constraints:
        if operator == "exists":
            continue
        if operator in ("<>", "not in"):
            for text in (value,) if operator == "<>" else value:
                if len(utf8(text)) <= STRING_BYTES:
                    holes.add(string_code(text)[1])
                else:
                    exact = False  # others may share its code, so it cannot be cut out
            continue
        data = utf8(value)
        start = order_code(data)
        # Padding is what makes NUL special: "a" and "a\0" have one order code.
        sharp = len(data) <= STRING_BYTES and not data.endswith(b"\0")
        if operator in ("prefix", "not prefix"):
            end = start + 256 ** max(STRING_BYTES - len(data), 0) - 1
            exact = exact and sharp
            if operator == "prefix":
                low, high = max(low, start), min(high, end)
            elif sharp:
                cuts.append((start - 1, end + 1))
        elif operator in (">", ">="):
            low = max(low, start)
            exact = exact and sharp and operator == ">="
        else:
            high = min(high, start - 1 if operator == "<" and sharp else start)
            exact = exact and sharp and operator == "<"
    orders = _gaps(low, high, sorted(cuts))
    if not holes:
        return [_Piece((a, -inf), (b, inf), exact) for a, b in orders]
    identities = _gaps(0, IDENTITY_MAX, [(hole - 1, hole + 1) for hole in sorted(holes)])
    both = [_merge([_Piece((a,), (b,), exact) for a, b in gaps], MAX_SPLIT) for gaps in (orders, identities)]
    return [_Piece(o.low + i.low, o.high + i.high, o.exact and i.exact) for o, i in product(*both)]


_VALUES: Final = {"number": _ordinal, "timestamp": _ordinal, "bool": _boolean, "str": _text}


def _gaps(low: float, high: float, cuts: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return what the sorted `cuts` leave of [low, high]; a cut (a, b) leaves up to a and from b on."""
    gaps: list[tuple[float, float]] = []
    for before, after in cuts:
        if low <= min(before, high):
            gaps.append((low, min(before, high)))
        low = max(low, after)
    return [*gaps, (low, high)] if low <= high else gaps


def _limit(sides: list[list[_Piece]]) -> None:
    """Merge pieces, of the largest lists first, until a filter has at most `MAX_SPLIT` boxes."""
    while (total := prod(map(len, sides))) > MAX_SPLIT:
        largest = max(range(len(sides)), key=lambda at: len(sides[at]))
        keep = MAX_SPLIT // (total // len(sides[largest]))
        sides[largest] = _merge(sides[largest], max(keep, 1))


def _merge(pieces: list[_Piece], keep: int) -> list[_Piece]:
    """Return at most `keep` pieces that cover the given ones, apart where the gaps are widest."""
    if len(pieces) <= keep:
        return pieces
    ordered = sorted(pieces)
    gaps = [after.low[0] - before.high[0] for before, after in pairwise(ordered)]
    widest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: keep - 1]
    ends = [0, *sorted(at + 1 for at in widest), len(ordered)]
    return [_hull(ordered[start:end]) for start, end in pairwise(ends)]


def _hull(pieces: list[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    low = tuple(map(min, zip(*(piece.low for piece in pieces), strict=True)))
    high = tuple(map(max, zip(*(piece.high for piece in pieces), strict=True)))
    return _Piece(low, high, False)


def compile_bounds(low: ArrayLike, high: ArrayLike, schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Compile n boxes that are given as arrays, one closed interval per attribute.

    Parameters
    ----------
    low, high : float (n, number of attributes)
        Closed ends in the order of ``schema.names``: numbers; 0 and 1 for booleans; microseconds since
        1970-01-01T00:00:00Z for timestamps. -inf and +inf together are don't care, and a missing
        attribute matches. One infinite end alone is open-ended, and the attribute must be present.
        A string attribute must be don't care. Ends and events compare as float64.
    schema : Schema

    Returns
    -------
    low, high : float64 (n, D)
        Encoded boxes, all exact.

    Raises
    ------
    PredicateError
        A wrong shape, NaN, an end at the wrong infinity, low above high, or a bounded string attribute;
        names the row and the attribute.
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
        Closed encoded box; strings are don't care.
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
            # An open end still asks for presence, which the other end says; without one, this says it.
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
