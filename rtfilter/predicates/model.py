"""What a subscription asks for: constraints, filters, predicates, and their exact meaning (M-2..M-4).

`Predicate.matches` is the one definition of the semantics; boxes are only a faster way to most of its
answers. The normative text is `docs/predicates.md`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from rtfilter.errors import PredicateError
from rtfilter.events.encoding import READERS, Constant, Timestamp, canonical, is_missing
from rtfilter.events.schema import Schema
from rtfilter.text import shown

MAX_FILTERS: Final = 256
"""Most conjunctions that one predicate may expand to."""
MAX_TERMS: Final = 10_000
"""Most constants in all filters of one predicate."""
MAX_DEPTH: Final = 32
"""Deepest nesting of parentheses, NOTs or objects in one condition."""

COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, constants: value in constants,
    "not in": lambda value, constants: value not in constants,
    "prefix": str.startswith,
    "not prefix": lambda value, start: not value.startswith(start),
}
"""Operators with a constant, on canonical values of one type; the constant is the right operand (M-2)."""

NEGATED: Final = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "in": "not in",
    "not in": "in",
    "prefix": "not prefix",
    "not prefix": "prefix",
    "is null": "exists",
    "exists": "is null",
}
"""Each operator's complement among events that have the attribute, with a value of its type."""

_SETS = frozenset(("in", "not in"))
_PRESENCE = frozenset(("is null", "exists"))
_ALLOWED = {
    "number": frozenset(COMPARE) - {"prefix", "not prefix"},
    "timestamp": frozenset(COMPARE) - {"prefix", "not prefix"},
    "str": frozenset(COMPARE),
    "bool": frozenset(("=", "<>", "in", "not in")),
}


class _Constraint(NamedTuple):
    attribute: str
    operator: str
    value: Any = None


class Constraint(_Constraint):
    """One test of one attribute (M-2). Immutable, hashable, equal by value.

    Parameters
    ----------
    attribute : str
        Flattened name.
    operator : str
        A key of `COMPARE`, or ``is null`` or ``exists``, which take no value.
    value : constant or set of constants
        bool, int, float, str, datetime; for ``in`` and ``not in`` an iterable of them, of one type.
        Stored canonically: a datetime as `rtfilter.events.encoding.Timestamp`, a set as a frozenset.

    Raises
    ------
    PredicateError
        Unknown operator, or no usable constant.

    Notes
    -----
    Without a schema the constant's type alone says what it compares with, so that text is text; `parse`
    turns ISO 8601 text for a timestamp attribute into a timestamp.
    """

    __slots__ = ()

    def __new__(cls, attribute: str, operator: str, value: Any = None) -> Constraint:
        if operator in _PRESENCE:
            value = None
        elif operator in _SETS:
            value = frozenset(_canonical(item) for item in _items(value))
            if operator == "not in" and not value:
                operator, value = "exists", None
        elif operator in COMPARE:
            value = _canonical(value)
        else:
            known = ", ".join([*COMPARE, *sorted(_PRESENCE)])
            raise PredicateError(f"unknown operator {shown(operator)}; use one of {known}")
        if "prefix" in operator and not isinstance(value, str):
            raise PredicateError(f"a prefix must be a string; got {shown(value)}")
        return tuple.__new__(cls, (attribute, operator, value))

    def matches(self, row: Mapping[str, object]) -> bool:
        """Whether a flat event satisfies the constraint. Never raises, whatever the value."""
        return self.accepts(row.get(self.attribute))

    def accepts(self, value: object) -> bool:
        """Whether a value, None for a missing one, satisfies the constraint."""
        operator, constant = self.operator, self.value
        if value is None or is_missing(value):
            return operator == "is null"
        if operator in _PRESENCE:
            return operator == "exists"
        sample = constant
        if operator in _SETS:
            if not constant:
                return False
            sample = next(iter(constant))
        found = READERS[type(sample)](value)
        return found is not None and COMPARE[operator](found, constant)

    def __str__(self) -> str:
        name, operator, value = self
        if not name.replace(".", "_").isidentifier():
            name = '"' + name.replace('"', '""') + '"'
        if operator in _PRESENCE:
            return f"{name} IS NULL" if operator == "is null" else f"{name} IS NOT NULL"
        if operator in _SETS:
            return f"{name} {operator.upper()} ({', '.join(map(_literal, sorted(value)))})"
        if operator in ("prefix", "not prefix"):
            escaped = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            return f"{name} {'NOT ' * (operator != 'prefix')}LIKE {_literal(escaped + '%')}"
        return f"{name} {operator} {_literal(value)}"


class Filter(NamedTuple):
    """A conjunction of constraints (M-3); an empty one is satisfied by every event."""

    constraints: tuple[Constraint, ...]

    def matches(self, row: Mapping[str, object]) -> bool:
        """Whether a flat event satisfies every constraint."""
        for constraint in self.constraints:  # noqa: SIM110, a loop is twice as fast as all() here
            if not constraint.accepts(row.get(constraint.attribute)):
                return False
        return True

    def __str__(self) -> str:
        return " AND ".join(map(str, self.constraints)) or "TRUE"


@dataclass(frozen=True, slots=True)
class Predicate:
    """A disjunction of filters (M-4). Without filters it matches no event (M-11 ii).

    Attributes
    ----------
    filters : tuple of Filter
    """

    filters: tuple[Filter, ...]

    @classmethod
    def everything(cls) -> Predicate:
        """Return the predicate that every event satisfies (M-11 i)."""
        return cls((Filter(()),))

    def matches(self, row: Mapping[str, object]) -> bool:
        """Whether a flat event satisfies the predicate.

        Parameters
        ----------
        row : mapping of flattened names to values
            As from `EventTable.row`. Missing is an absent key or None. Values of another type than
            the constants' are no error, they satisfy nothing but ``exists`` (M-9).
        """
        for conjunction in self.filters:  # noqa: SIM110, a loop is twice as fast as any() here
            if conjunction.matches(row):
                return True
        return False

    def to_json(self) -> list[list[list[Any]]]:
        """Return ``[[[attribute, operator, value], ...], ...]``, which `from_json` turns back."""
        return [[_constraint_to_json(c) for c in conjunction.constraints] for conjunction in self.filters]

    @classmethod
    def from_json(cls, data: Sequence[Sequence[Sequence[Any]]]) -> Predicate:
        """Return the predicate that `to_json` described.

        Raises
        ------
        PredicateError
            `data` is not of that form.
        """
        try:
            return cls(tuple(Filter(tuple(_constraint_from_json(*c) for c in f)) for f in data))
        except (TypeError, AttributeError) as error:
            raise PredicateError(f"this is not a predicate's JSON: {error}") from None

    def __str__(self) -> str:
        if len(self.filters) == 1:
            return str(self.filters[0])
        return " OR ".join(f"({conjunction})" for conjunction in self.filters) or "FALSE"


NOTHING: Final[tuple[Filter, ...]] = ()
"""The empty disjunction: FALSE."""
ALWAYS: Final = (Filter(()),)
"""The disjunction of one empty conjunction: TRUE."""


def one(schema: Schema, attribute: str, operator: str, value: Any = None) -> tuple[Filter, ...]:
    """Return one constraint, checked against `schema`, as a disjunction.

    Raises
    ------
    PredicateError
        See `parse`; without a place.
    """
    family = schema.attribute(attribute).family
    if operator not in _PRESENCE:
        if operator not in _ALLOWED[family]:
            if operator not in COMPARE:
                Constraint(attribute, operator, value)  # names the operators there are
            known = ", ".join(op for op in COMPARE if op in _ALLOWED[family])
            raise PredicateError.about(
                attribute, f"is {family}, which has no operator {operator!r}; use {known}, is null or exists"
            )
        if operator in _SETS:
            value = frozenset(schema.constant(attribute, item) for item in _items(value))
            if operator == "not in" and not value:
                operator, value = "exists", None
        else:
            value = schema.constant(attribute, value)
    else:
        value = None
    # Everything is canonical by now: what Constraint.__new__ would check again is skipped.
    return (Filter((tuple.__new__(Constraint, (attribute, operator, value)),)),)


def any_of(parts: Sequence[tuple[Filter, ...]]) -> tuple[Filter, ...]:
    """Return the disjunction of disjunctions; equal filters are kept once.

    Raises
    ------
    PredicateError
        More than `MAX_FILTERS` filters or `MAX_TERMS` terms.
    """
    if len(parts) == 1:
        return parts[0]
    _bound(sum(map(len, parts)), sum(map(_terms, parts)))
    return tuple(dict.fromkeys(conjunction for part in parts for conjunction in part))


def all_of(parts: Sequence[tuple[Filter, ...]]) -> tuple[Filter, ...]:
    """Return the conjunction of disjunctions, as a disjunction; equal constraints and filters are kept once.

    Raises
    ------
    PredicateError
        As `any_of`; found by counting, before anything is expanded.
    """
    if len(parts) == 1:
        return parts[0]
    count = prod(map(len, parts))
    if count == 0:
        return NOTHING
    _bound(count, sum(count // len(part) * _terms(part) for part in parts))
    expanded = (
        Filter(tuple(dict.fromkeys(constraint for f in choice for constraint in f.constraints)))
        for choice in product(*parts)
    )
    return (next(expanded),) if count == 1 else tuple(dict.fromkeys(expanded))


def _terms(filters: tuple[Filter, ...]) -> int:
    """Return the number of constants, which is what parsing, compiling and storing costs."""
    constraints = (constraint for f in filters for constraint in f.constraints)
    return sum(len(c.value) if type(c.value) is frozenset else 1 for c in constraints)


def _bound(filters: int, terms: int) -> None:
    if filters > MAX_FILTERS:
        shown = filters if filters < 10**9 else "more than 10**9"
        raise PredicateError(
            f"the condition expands to {shown} alternatives (AND over OR multiplies them), more than "
            f"{MAX_FILTERS}; use IN, or split it into several subscriptions"
        )
    if terms > MAX_TERMS:
        raise PredicateError(
            f"the condition expands to {terms} constants, more than {MAX_TERMS}; "
            "split it into several subscriptions"
        )


def _items(value: Any) -> Sequence[Any] | frozenset[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise PredicateError(f"in and not in need a collection of constants; got {shown(value)}")
    items = value if isinstance(value, frozenset | list | tuple) else list(value)
    if len(items) > MAX_TERMS:
        raise PredicateError(f"a set of {len(items)} constants; at most {MAX_TERMS} are allowed")
    return items


def _canonical(value: object) -> Constant:
    if type(value) is Timestamp:
        return value
    found = canonical(value)
    if found is None:
        raise PredicateError(
            f"{shown(value)} cannot be a constant; use a bool, finite number, string or datetime"
        )
    return found


def _literal(value: Constant) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).upper()
    return f"TIMESTAMP '{value}'" if isinstance(value, Timestamp) else repr(value)


def _constraint_to_json(constraint: Constraint) -> list[Any]:
    name, operator, value = constraint
    if operator in _PRESENCE:
        return [name, operator]
    if operator in _SETS:
        return [name, operator, [_constant_to_json(item) for item in sorted(value)]]
    return [name, operator, _constant_to_json(value)]


def _constant_to_json(value: Constant) -> Any:
    return {"us": int(value)} if isinstance(value, Timestamp) else value


def _constraint_from_json(name: str, operator: str, value: Any = None) -> Constraint:
    if operator in _SETS:
        return Constraint(name, operator, [_constant_from_json(item) for item in value])
    return Constraint(name, operator, _constant_from_json(value))


def _constant_from_json(value: Any) -> Any:
    return Timestamp(value["us"]) if isinstance(value, dict) and set(value) == {"us"} else value
