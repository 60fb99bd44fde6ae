"""Comparisons of expressions with each other, and of timestamps with the time of the batch.

A constraint compares one attribute with a constant.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import shown
from rtfilter.events.encoding import boolean, microseconds, number, string
from rtfilter.predicates.operands.expressions import (
    Operand,
    evaluate,
    from_json,
    names,
    operand,
    operations,
    text,
    to_json,
)
from rtfilter.predicates.operands.intervals import Now

RELATIONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The operators of comparisons."""
EXCHANGED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Each operator, and the equivalent one after its sides are exchanged."""
FAMILIES: Final[dict[str, Callable[[object], Any]]] = {
    "number": number,
    "timestamp": microseconds,
    "str": string,
    "bool": boolean,
}
"""The function that reads a value, by family of attributes; it returns None for a value of another type."""


class _Comparison(NamedTuple):
    left: Operand
    operator: str
    right: Operand
    family: str = "number"


class Comparison(_Comparison):
    """A comparison of two expressions. Immutable, hashable, equal by value.

    Parameters
    ----------
    left, right : str, number, Operation, Distance or Now
        A str is the name of an attribute; see `rtfilter.predicates.operands.expressions`. At least one has an
        attribute. Stored canonically: a single constant, and `Now`, is on the right.
    operator : str
        A key of `RELATIONS`.
    family : str
        The family of the attributes: ``number``, ``timestamp``, ``str`` or ``bool``. Arithmetic and constants
        need numbers, and booleans have no order.

    Raises
    ------
    PredicateError
        A part is none of these.

    Notes
    -----
    It is false if an attribute is missing or has a value of another type, and if a side has no value.
    """

    __slots__ = ()

    def __new__(cls, left: Operand, operator: str, right: Operand, family: str = "number") -> Comparison:
        """Check the parts, and bring them into canonical form."""
        if not isinstance(operator, str) or operator not in RELATIONS:
            known = ", ".join(RELATIONS)
            raise PredicateError(f"unknown operator {shown(operator)} of a comparison; use one of {known}")
        if not isinstance(family, str) or family not in FAMILIES:
            raise PredicateError(f"unknown family {shown(family)}; use one of {', '.join(FAMILIES)}")
        left, right = operand(left), operand(right)
        if isinstance(left, int | float | Now):
            left, operator, right = right, EXCHANGED[operator], left
        if isinstance(left, int | float | Now):
            raise PredicateError("a comparison of constants is TRUE or FALSE; write that")
        if isinstance(right, Now):
            if family != "timestamp" or not isinstance(left, str):
                raise PredicateError("NOW() can only be compared with an attribute of timestamps")
        elif family != "number" and not (isinstance(left, str) and isinstance(right, str)):
            raise PredicateError(f"arithmetic and constants need numbers; these attributes are a {family}")
        if family == "bool" and operator not in ("=", "<>"):
            raise PredicateError(f"booleans have no order; use = or <>, not {operator}")
        return tuple.__new__(cls, (left, operator, right, family))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes, each once, from left to right."""
        return tuple(dict.fromkeys((*names(self.left), *names(self.right))))

    @property
    def size(self) -> int:
        """Number of operations and operands: the cost of evaluation."""
        return 2 * (operations(self.left) + operations(self.right)) + 2

    def sides(self, row: Mapping[str, object]) -> tuple[Any, Any]:
        """Return the values of both sides in a flat event; None for a side without a value."""
        left, _, right, family = self
        if family == "number":
            return evaluate(left, row), evaluate(right, row)
        read = FAMILIES[family]
        other = right.of(row) if isinstance(right, Now) else read(row.get(str(right)))
        return read(row.get(str(left))), other

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether a flat event satisfies the comparison. Never raises, for any values."""
        left, right = self.sides(row)
        return left is not None and right is not None and RELATIONS[self.operator](left, right)

    def to_json(self) -> list[Any]:
        """Return ``[left, operator, right]``, with the family unless it is ``number``."""
        data = [to_json(self.left), self.operator, to_json(self.right)]
        return data if self.family == "number" else [*data, self.family]

    @classmethod
    def from_json(cls, left: Any, operator: str, right: Any, family: str = "number") -> Comparison:
        """Return the comparison of a result of `to_json`.

        Raises `PredicateError`, `TypeError` or `ValueError`.
        """
        return cls(from_json(left), operator, from_json(right), family)

    def __str__(self) -> str:
        return f"{text(self.left)} {self.operator} {text(self.right)}"
