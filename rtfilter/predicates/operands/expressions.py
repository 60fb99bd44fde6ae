"""Arithmetic on the attributes of an event, and its exact meaning (normative text: `docs/predicates.md`).

An operand is the name of an attribute, a constant number, an `Operation` on two operands, or a distance
(`distances.py`); for timestamps a name, or the time of the batch (`intervals.py`). Numbers count by their
value: 2.0 is the integer 2. Sums, differences and products of integers are exact at any size. With a
fraction, and for ``/``, the result is the nearest float64; a result beyond float64 is infinite. Division by
zero, and operations that give NaN in float64, have no result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from math import inf, isfinite
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from rtfilter.dtypes import BoolArray, FloatArray
from rtfilter.errors import PredicateError
from rtfilter.events.encoding import EXACT, HIGHEST, number
from rtfilter.predicates.operands.attribute_names import written
from rtfilter.predicates.operands.distances import Distance
from rtfilter.predicates.operands.intervals import Now
from rtfilter.text import shown

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
