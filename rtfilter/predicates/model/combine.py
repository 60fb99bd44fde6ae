"""Combinations of filters for all notations: one constraint, AND, OR, and the limits of size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from rtfilter.basics.errors import PredicateError
from rtfilter.events.encoding import Timestamp
from rtfilter.events.fields import PHRASES
from rtfilter.events.schema import Schema
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import (
    COMPARE,
    FORMS,
    MAX_TERMS,
    NEGATED,
    OPERATORS_OF,
    PRESENCE,
    SETS,
    Constraint,
    Filter,
    Quantified,
    Test,
    constants,
)
from rtfilter.predicates.operands.expressions import Operand, names
from rtfilter.predicates.operands.intervals import Now

MAX_FILTERS: Final = 256
"""Most filters that one predicate may expand to."""
MAX_DEPTH: Final = 32
"""Deepest nesting of parentheses, NOTs or objects in one `where`."""

Filters = tuple[Filter, ...]
"""A disjunction: an event satisfies it if it satisfies one of the filters."""
_ORDINAL: Final = frozenset(OPERATORS_OF["number"])
NOTHING: Final[Filters] = ()
"""The empty disjunction: FALSE."""
ALWAYS: Final = (Filter(()),)
"""The disjunction of one empty conjunction: TRUE."""


def one(schema: Schema, attribute: str, operator: str, value: Any = None) -> Filters:
    """Return one constraint, checked against `schema`, as a disjunction.

    Raises `PredicateError`: as `rtfilter.predicates.predicate.parse`, without a position.
    """
    if attribute in schema.types and operator not in PRESENCE:
        return _of_types(schema, attribute, operator, value)
    if attribute in schema.nulls and operator in PRESENCE:
        null = schema.nulls[attribute]
        if operator == "exists":
            return _one(schema, null, "=", False)
        return (*_one(schema, null, "=", True), *_one(schema, null, operator, None))
    return _one(schema, attribute, operator, value)


def _of_types(schema: Schema, attribute: str, operator: str, value: Any) -> Filters:
    """Return a constraint of an attribute of several types: of the one that its constants have."""
    if operator in SETS:
        groups: dict[str, list[Any]] = {}
        for item in constants(value):
            groups.setdefault(schema.typed(attribute, item), []).append(item)
        if not groups:
            groups = {name: [] for name in schema.types[attribute]}
        return any_of([_one(schema, name, operator, items) for name, items in groups.items()])
    return _one(schema, _typed(schema, attribute, operator, value), operator, value)


def _typed(schema: Schema, attribute: str, operator: str, value: Any) -> str:
    families = {schema.attribute(name).family: name for name in schema.types[attribute]}
    if isinstance(value, Now):
        return families.get("timestamp", attribute)
    if operator not in _ORDINAL:
        return families.get("str", attribute)
    return schema.typed(attribute, value)


def _one(schema: Schema, attribute: str, operator: str, value: Any) -> Filters:
    family = schema.attribute(attribute).family
    if isinstance(value, Now):
        if family != "timestamp":
            raise PredicateError.about(attribute, f"is {PHRASES[family]}, and NOW() is a timestamp")
        return (Filter((Comparison(attribute, operator, value, family),)),)
    if operator not in PRESENCE:
        if operator not in OPERATORS_OF[family]:
            if operator not in COMPARE:
                Constraint(attribute, operator, value)  # raises for unknown operators, with the known ones
            known = ", ".join(OPERATORS_OF[family])
            reason = (
                f"is {PHRASES[family]}, which has no operator {operator!r}; use {known}, is null or exists"
            )
            raise PredicateError.about(attribute, reason)
        if operator in SETS:
            value = frozenset(schema.constant(attribute, item) for item in constants(value))
            if operator == "not in" and not value:
                return _EVERY_VALUE[family](attribute)
        else:
            value = schema.constant(attribute, value)
            if operator in FORMS:
                return (Filter((_formed(attribute, operator, value),)),)
    else:
        value = None
    # All parts are canonical already, so the checks of Constraint.__new__ are skipped.
    return (Filter((tuple.__new__(Constraint, (attribute, operator, value)),)),)


def _formed(attribute: str, operator: str, value: Any) -> Constraint:
    """Return a constraint after bringing its constant into canonical form; errors name the attribute."""
    try:
        return Constraint(attribute, operator, value)
    except PredicateError as error:
        raise PredicateError(error.message, attribute=attribute) from None


def compared(schema: Schema, left: Operand, operator: str, right: Operand) -> Filters:
    """Return a comparison of two operands, checked against `schema`, as a disjunction.

    An attribute and a constant make a constraint, in any order.

    Raises `PredicateError`: as `one`, and for operands that have no order, or cannot be compared.
    """
    if isinstance(left, str) and isinstance(right, Now):
        return one(schema, left, operator, right)
    families = [_family(schema, side) for side in (left, right)]
    found = Comparison(left, operator, right, "number" if "number" in families else families[0])
    if isinstance(found.left, str) and isinstance(found.right, int | float):
        return one(schema, found.left, found.operator, found.right)
    if families[0] != families[1]:
        shown = [f"{side} is {PHRASES[family]}" for side, family in zip((left, right), families, strict=True)]
        raise PredicateError(f"{shown[0]} and {shown[1]}; they cannot be compared")
    return (Filter((found,)),)


def _family(schema: Schema, given: Operand) -> str:
    if isinstance(given, str):
        return schema.attribute(given).family
    for name in names(given):
        family = schema.attribute(name).family
        if family != "number":
            raise PredicateError.about(name, f"is {PHRASES[family]}; arithmetic and distances need numbers")
    return "number"


def checked(schema: Schema, test: Test) -> Filters:
    """Return a constraint of any kind, checked against `schema`; see `one` and `compared`."""
    if isinstance(test, Comparison):
        return compared(schema, *test[:3])
    if isinstance(test, Constraint):
        return one(schema, *test)
    parts = [one(schema, *own) for own in test.tests]
    return (
        any_element(all_of(parts))
        if test.quantifier == "any"
        else no_element(schema, complement(schema, any_of(parts)))
    )


def any_element(condition: Filters) -> Filters:
    """Return the constraint that some element of a list satisfies a condition.

    Raises `PredicateError`: the condition is not only about the values of one attribute.
    """
    _require_one(condition)
    return any_of([(Filter((Quantified("any", _own(one)),)),) for one in condition])


def no_element(schema: Schema, condition: Filters) -> Filters:
    """Return the constraint that all elements have the attribute's type, and none satisfies a condition.

    To require that all elements satisfy a condition, pass its complement. Raises as `any_element`.
    """
    _require_one(condition)
    return all_of([_no_element(schema, _own(one)) for one in condition])


def _no_element(schema: Schema, tests: Sequence[Constraint]) -> Filters:
    """Return the constraint that each element violates one of some constraints."""
    parts = any_of([_negated(schema, test) for test in tests])
    return (Filter((Quantified("all", [test for part in parts for test in _own(part)]),)),)


def complement(schema: Schema, condition: Filters) -> Filters:
    """Return the complement of a condition on values of one attribute. Raises as `any_element`."""
    _require_one(condition)
    return all_of([any_of([_negated(schema, test) for test in _own(one)]) for one in condition])


def _negated(schema: Schema, test: Constraint) -> Filters:
    return one(schema, test.attribute, NEGATED[test.operator], test.value)


def _own(conjunction: Filter) -> list[Constraint]:
    """Return the constraints of a condition that `_require_one` has checked."""
    return [test for test in conjunction.constraints if isinstance(test, Constraint)]


def _require_one(condition: Filters) -> None:
    """Raise `PredicateError` for a condition on elements that is not about the values of one attribute."""
    tests = [test for conjunction in condition for test in conjunction.constraints]
    names = list(dict.fromkeys(name for test in tests for name in test.attributes))
    plain = all(isinstance(test, Constraint) and test.operator not in PRESENCE for test in tests)
    if len(names) == 1 and plain and all(conjunction.constraints for conjunction in condition):
        return
    found = f"; this is about {' and '.join(map(repr, names))}" if len(names) > 1 else ""
    raise PredicateError(
        f"any, all and none need a constraint of one attribute with constants{found}; "
        "arithmetic, NOW(), IS NULL and IS NOT NULL cannot follow them"
    )


def _split(attribute: str, at: int) -> Filters:
    return tuple(Filter((Constraint(attribute, operator, at),)) for operator in ("<", ">="))


_EVERY_VALUE: Final[dict[str, Callable[[str], Filters]]] = {
    "number": lambda name: _split(name, 0),
    "timestamp": lambda name: _split(name, Timestamp(0)),
    "str": lambda name: (Filter((Constraint(name, "prefix", ""),)),),
    "bool": lambda name: (Filter((Constraint(name, "in", (False, True)),)),),
}
"""The conjunctions of ``NOT IN ()``, by family: they accept every value of the type, and no other value."""


def any_of(parts: Sequence[Filters]) -> Filters:
    """Return the disjunction of disjunctions; equal filters become one.

    Raises `PredicateError`: there are more than `MAX_FILTERS` filters or `MAX_TERMS` terms.
    """
    if len(parts) == 1:
        return parts[0]
    _bound(sum(map(len, parts)), sum(map(_terms, parts)))
    return tuple(dict.fromkeys(conjunction for part in parts for conjunction in part))


def all_of(parts: Sequence[Filters]) -> Filters:
    """Return the conjunction of disjunctions, as a disjunction; equal ones are merged.

    Raises `PredicateError`: as `any_of`; the limits are checked before the expansion.
    """
    if len(parts) == 1:
        return parts[0]
    count = prod(map(len, parts))
    if count == 0:
        return NOTHING
    _bound(count, sum(count // len(part) * _terms(part) for part in parts))
    if count == 1:
        tests = [test for (conjunction,) in parts for test in conjunction.constraints]
        return (Filter(tuple(dict.fromkeys(tests))),)
    expanded = (
        Filter(tuple(dict.fromkeys(constraint for f in choice for constraint in f.constraints)))
        for choice in product(*parts)
    )
    return tuple(dict.fromkeys(expanded))


def _terms(filters: Filters) -> int:
    """Return the number of constants and operands, which determines the cost of parsing and storing."""
    count = 0
    for conjunction in filters:  # several times faster than sum() for few filters
        for test in conjunction.constraints:
            if isinstance(test, Comparison):
                count += test.size
            elif isinstance(test, Quantified):
                count += _terms((Filter(test.tests),))
            elif type(test.value) is frozenset:
                count += len(test.value)
            else:
                count += 1
    return count


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
