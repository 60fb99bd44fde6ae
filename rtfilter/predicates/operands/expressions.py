"""Operands: names of attributes, distances, and arithmetic, with their exact meaning (`docs/predicates.md`).

An operand is the name of an attribute, a constant number, an `Operation` on two operands, or a `Distance`;
for timestamps a name, or the time of the batch (`intervals.py`). Numbers count by their value: 2.0 is the
integer 2. Sums, differences and products of integers are exact at any size. With a fraction, and for ``/``,
the result is the nearest float64; a result beyond float64 is infinite. Division by zero, and operations that
give NaN in float64, have no result.

The Earth is a sphere, and distances use the haversine formula. Latitudes reach from -90 to 90 and longitudes
from -180 to 180 degrees; other coordinates have no distance.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from math import asin, cos, degrees, inf, isfinite, pi, radians, sin, sqrt
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import shown
from rtfilter.events.encoding import EXACT, HIGHEST, number
from rtfilter.predicates.operands.intervals import Now

WORD: Final = r"[^\W\d][\w\u0300-\u036f]*"
"""Regular expression of a name, or a part of one, that needs no double quotes. Accents may be separate."""
RESERVED: Final = frozenset(("AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"))
"""Words that are names of attributes only in double quotes, in any case."""

_NAME: Final = re.compile(WORD)


def written(name: str) -> str:
    """Return a name in the notation of `where`, in double quotes if it needs them."""
    plain = all(_NAME.fullmatch(part) and part.upper() not in RESERVED for part in name.split("."))
    return name if plain else quoted(name)


def quoted(name: str) -> str:
    """Return a name in double quotes; a double quote in it is doubled."""
    return '"' + name.replace('"', '""') + '"'


# -- distances ---------------------------------------------------------------------------------------------

RADIUS: Final = 6371.0088
"""Kilometres: the mean radius of the Earth (IUGG)."""
SLACK: Final = 0.001
"""Most kilometres by which a computed distance is wrong; most errors are near the opposite point."""

Interval = tuple[float, float]
"""A closed interval, in degrees."""


class _Distance(NamedTuple):
    latitude: str
    longitude: str
    north: float
    east: float


class Distance(_Distance):
    """The distance of two attributes, in kilometres, from a point: an operand of comparisons with numbers.

    Parameters
    ----------
    latitude, longitude : str
        Attributes, in degrees.
    north, east : float
        The point, in degrees: its latitude from -90 to 90, its longitude from -180 to 180.

    Raises
    ------
    PredicateError
        A name is no string, or the point is out of range.
    """

    __slots__ = ()

    def __new__(cls, latitude: str, longitude: str, north: float, east: float) -> Distance:
        """Check the point."""
        point = []
        for value, most, what in ((north, 90, "latitude"), (east, 180, "longitude")):
            found = number(value)
            if found is None or not -most <= found <= most:
                raise PredicateError(f"a {what} is a number from -{most} to {most}; got {shown(value)}")
            point.append(float(found) + 0.0)
        if not (isinstance(latitude, str) and isinstance(longitude, str)):
            raise PredicateError("the latitude and the longitude of events are attributes")
        return tuple.__new__(cls, (latitude, longitude, *point))

    def of(self, row: Mapping[str, object]) -> float | None:
        """Return the distance of a flat event; None if it has none."""
        latitude, longitude = number(row.get(self.latitude)), number(row.get(self.longitude))
        if latitude is None or longitude is None or not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
            return None
        return distance(latitude, longitude, self.north, self.east)

    def columns(self, latitude: FloatArray, longitude: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Return the distances of k events, up to `SLACK`, from their coordinates; and which have none."""
        none = ~((np.abs(latitude) <= 90) & (np.abs(longitude) <= 180))
        own, other = np.radians(np.where(none, 0, latitude)), radians(self.north)
        east = np.radians(np.where(none, 0, longitude) - self.east)
        part = np.sin((own - other) / 2) ** 2 + np.cos(own) * cos(other) * np.sin(east / 2) ** 2
        return 2 * RADIUS * np.arcsin(np.sqrt(np.minimum(part, 1))), none

    def around(self, radius: float) -> tuple[Interval, list[Interval]]:
        """Return intervals that contain all latitudes and longitudes within a radius.

        Longitudes are one interval, or two across the 180th meridian; none if all longitudes are within.
        """
        if radius < 0:
            return (self.north, self.north), [(self.east, self.east)]
        angle = min((radius + SLACK) / RADIUS, pi)
        low, high = self.north - degrees(angle), self.north + degrees(angle)
        if low <= -90 or high >= 90:  # a pole is within, and so are all meridians
            return (max(low, -90.0), min(high, 90.0)), []
        wide = degrees(asin(min(sin(angle) / cos(radians(self.north)), 1.0)) + SLACK / RADIUS)
        west, east = self.east - wide, self.east + wide
        if west <= -180:
            return (low, high), [(-180.0, east), (west + 360, 180.0)]
        if east >= 180:
            return (low, high), [(-180.0, east - 360), (west, 180.0)]
        return (low, high), [(west, east)]

    def latitudes(self, radius: float) -> list[float]:
        """Return the latitudes at about a distance on the meridian of the point."""
        angle = degrees(min(max(radius, 0), RADIUS * pi) / RADIUS)
        return [own for own in (self.north + angle, self.north - angle) if -90 <= own <= 90]

    def __str__(self) -> str:
        names = f"{written(self.latitude)}, {written(self.longitude)}"
        return f"DISTANCE_KM({names}, {self.north!r}, {self.east!r})"


def distance(latitude: float, longitude: float, north: float, east: float) -> float:
    """Return the distance of two points in kilometres; the coordinates are in degrees."""
    own, other = radians(latitude), radians(north)
    part = sin((own - other) / 2) ** 2 + cos(own) * cos(other) * sin(radians(longitude - east) / 2) ** 2
    return 2 * RADIUS * asin(sqrt(min(part, 1.0)))


# -- arithmetic --------------------------------------------------------------------------------------------

MAX_OPERATIONS: Final = 30
"""Most operations of one expression; its text then nests parentheses no deeper than `where` may."""

ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_BINDS: Final = {"+": 1, "-": 1, "*": 2, "/": 2}
"""The precedence of each operator: a higher one binds more tightly."""

Number = int | float
Operand: TypeAlias = "str | int | float | Operation | Distance | Now"
"""The name of an attribute, a finite constant, an operation, a distance, or a time relative to now."""


class _Operation(NamedTuple):
    operator: str
    left: Operand
    right: Operand


class Operation(_Operation):
    """An operation on two operands, at least one with an attribute. Immutable, equal by value.

    Parameters
    ----------
    operator : str
        A key of `ARITHMETIC`.
    left, right : str, number or Operation
        A str is the name of an attribute. Stored canonically: a whole float as an int.

    Raises
    ------
    PredicateError
        The operator or an operand is another one, both operands are constants, or there are more than
        `MAX_OPERATIONS` operations in all.
    """

    __slots__ = ()

    def __new__(cls, operator: str, left: Operand, right: Operand) -> Operation:
        """Check the operator, and bring the operands into canonical form."""
        if not isinstance(operator, str) or operator not in ARITHMETIC:
            raise PredicateError(f"unknown arithmetic {shown(operator)}; use one of {', '.join(ARITHMETIC)}")
        made = tuple.__new__(cls, (operator, operand(left), operand(right)))
        if not any(True for _ in names(made)):
            raise PredicateError("arithmetic on constants alone is a constant; write its result")
        if operations(made) > MAX_OPERATIONS:
            raise PredicateError(
                f"an expression of more than {MAX_OPERATIONS} operations; compute a part in advance, and "
                "add it to the events as an attribute"
            )
        return made

    def __str__(self) -> str:
        return text(self)


def operand(given: object) -> Operand:
    """Return an operand in canonical form. Raises `PredicateError` for any other value."""
    if type(given) in (Operation, Distance, Now):
        return given  # type: ignore[return-value]
    if isinstance(given, str):
        return str(given)
    found = number(given)
    if found is None:
        raise PredicateError(f"{shown(given)} is neither a number nor the name of an attribute")
    if not -HIGHEST <= found <= HIGHEST:
        raise PredicateError(f"the constant {shown(found)} is infinite or beyond float64")
    return _whole(found)


def names(given: Operand) -> Iterator[str]:
    """Yield the attributes of an operand from left to right, maybe repeatedly."""
    if isinstance(given, Operation):
        yield from names(given.left)
        yield from names(given.right)
    elif isinstance(given, Distance):
        yield from (given.latitude, given.longitude)
    elif isinstance(given, str):
        yield given


def operations(given: Operand) -> int:
    """Return the number of operations in an operand."""
    return 1 + operations(given.left) + operations(given.right) if isinstance(given, Operation) else 0


def calculate(operator: str, left: Number, right: Number) -> Number | None:
    """Return the result of one operation; None if it has none."""
    if operator == "/" and right == 0:
        return None
    left, right = _whole(left), _whole(right)
    try:
        result: Number = ARITHMETIC[operator](left, right)
    except OverflowError:  # beyond float64
        if type(left) is type(right):
            return inf if (left < 0) is (right < 0) else -inf
        result = ARITHMETIC[operator](_nearest(left), _nearest(right))
    return _whole(result) if result == result else None


def evaluate(given: Operand, row: Mapping[str, object]) -> Number | None:
    """Return the value of an operand in a flat event; None if it has none. Never raises."""
    if type(given) is Operation:
        left = evaluate(given.left, row)
        if left is None:
            return None
        right = evaluate(given.right, row)
        return None if right is None else calculate(given.operator, left, right)
    if isinstance(given, Distance):
        return given.of(row)
    return number(row.get(given)) if isinstance(given, str) else given  # type: ignore[return-value]


class Columns(NamedTuple):
    """An operand's values in k events, and marks for values that float64 may not represent exactly."""

    values: FloatArray
    """float64 (k,)."""
    unsure: BoolArray
    """bool (k,): call `evaluate` instead; for other events the value, or its absence, is certain."""
    none: BoolArray
    """bool (k,): there is no value."""


def evaluate_columns(given: Operand, columns: Mapping[str, FloatArray], count: int) -> Columns:
    """Return the values of an operand in k events at once.

    Below 2**53 float64 holds every integer, and its operations are those of `calculate`. Rows with a larger
    intermediate value are unsure.

    Parameters
    ----------
    given : Operand
    columns : mapping of attribute to float64 (k,)
        Coordinates of numbers; infinite if there is none.
    count : int
        The number of events, k.
    """
    unsure, none = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    with np.errstate(all="ignore"):
        values = _column(given, columns, unsure, none)
    if not isinstance(values, np.ndarray):
        values = np.full(count, values)
    return Columns(values, unsure & ~none, none)


def _column(
    given: Operand, columns: Mapping[str, FloatArray], unsure: BoolArray, none: BoolArray
) -> FloatArray | float:
    """Return the values, or one for all rows; mark rows in `unsure`, and in `none` if certain."""
    if isinstance(given, str):
        values = columns[given]
        absent = np.isinf(values)
        none |= absent
        unsure |= (np.abs(values) >= EXACT) & ~absent
        return values
    if isinstance(given, Distance | Now):
        unsure[:] = True
        return 0.0
    if not isinstance(given, Operation):
        if abs(given) >= EXACT:
            unsure[:] = True
            return 0.0
        return float(given)
    left, right = (_column(side, columns, unsure, none) for side in (given.left, given.right))
    if given.operator == "/":
        zero = np.equal(right, 0)
        none |= zero & ~unsure
        right = np.where(zero, 1.0, right)
    result: FloatArray = ARITHMETIC[given.operator](left, right)
    unsure |= ~(np.abs(result) < EXACT)
    return result


def text(given: Operand) -> str:
    """Return an operand in the notation of `where`."""
    if isinstance(given, Operation):
        binds = _BINDS[given.operator]
        left = _enclosed(given.left, binds - 1)
        return f"{left} {given.operator} {_enclosed(given.right, binds)}"
    if isinstance(given, Distance | Now):
        return str(given)
    return written(given) if isinstance(given, str) else repr(given)


def _enclosed(given: Operand, binds: int) -> str:
    """Return the text of an operand, in parentheses if it binds no tighter than `binds`."""
    inner = text(given)
    return f"({inner})" if isinstance(given, Operation) and _BINDS[given.operator] <= binds else inner


def to_json(given: Operand) -> Any:
    """Return the JSON form of an operand, for `from_json`.

    It is a number, ``{"attribute": name}``, ``[left, operator, right]``, ``{"now": microseconds}``, or
    ``{"distance": [latitude, longitude, north, east]}``.
    """
    if isinstance(given, Distance):
        return {"distance": list(given)}
    if isinstance(given, Now):
        return {"now": given.offset}
    if isinstance(given, Operation):
        return [to_json(given.left), given.operator, to_json(given.right)]
    return {"attribute": given} if isinstance(given, str) else given


def from_json(data: Any) -> Operand:
    """Return the operand of a result of `to_json`. Raises `PredicateError`, `TypeError` or `ValueError`."""
    if isinstance(data, list | tuple):
        left, operator, right = data
        return Operation(operator, from_json(left), from_json(right))
    if isinstance(data, Mapping) and set(data) == {"distance"}:
        return Distance(*data["distance"])
    if isinstance(data, Mapping) and set(data) == {"now"}:
        return Now(data["now"])
    if isinstance(data, Mapping):
        if set(data) != {"attribute"} or not isinstance(data["attribute"], str):
            raise ValueError(f"{shown(data)} is no attribute")
        return str(data["attribute"])
    if isinstance(data, str):
        raise ValueError(f"{shown(data)} is no number")
    return operand(data)


def _whole(value: Number) -> Number:
    """Return a whole float as an integer, and other numbers unchanged."""
    return int(value) if type(value) is float and value.is_integer() else value


def _nearest(value: Number) -> float:
    """Return the nearest float64; infinite for numbers beyond float64."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def is_finite(value: Number) -> bool:
    """Return whether a value lies within float64."""
    return isfinite(value) if isinstance(value, float) else -HIGHEST <= value <= HIGHEST
