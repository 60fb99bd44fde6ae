"""Constraints and filters, the parts of predicates, and their exact meaning (`docs/predicates.md`).

A constraint tests one value of an attribute: of a list one element, the same for all constraints of a filter.
A quantified constraint tests all elements, independently of other constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern
from typing import Any, Final, NamedTuple, TypeAlias

from rtfilter.basics.errors import PredicateError
from rtfilter.basics.text import composed, shown
from rtfilter.events.elements import every_value
from rtfilter.events.encoding import READERS, Constant, Timestamp, canonical, is_missing
from rtfilter.predicates.model.comparison import RELATIONS, Comparison
from rtfilter.predicates.operands.expressions import written
from rtfilter.predicates.operands.like import escaped
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS

MAX_TERMS: Final = 10_000
"""Most constants in all filters of one predicate."""


def _complement(accepts: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    return lambda value, constant: not accepts(value, constant)


COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    **RELATIONS,
    "in": lambda value, constants: value in constants,
    "not in": lambda value, constants: value not in constants,
    "prefix": str.startswith,
    "not prefix": lambda value, start: not value.startswith(start),
    **{
        f"{negation}{name}": compare
        for name, own in TEXT_OPERATORS.items()
        for negation, compare in (("", own.accepts), ("not ", _complement(own.accepts)))
    },
}
"""Operators with a constant, on canonical values of one type; the constant is the right operand."""

_COMPLEMENTS: Final = (
    ("=", "<>"), ("<", ">="), ("<=", ">"), ("in", "not in"), ("is null", "exists"),
    *((name, f"not {name}") for name in ("prefix", *TEXT_OPERATORS)),
)  # fmt: skip
NEGATED: Final = {one: other for pair in _COMPLEMENTS for one, other in (pair, pair[::-1])}
"""Each operator's complement among events that have the attribute with a value of its type."""

SETS: Final = frozenset(("in", "not in"))
"""Operators with a set of constants."""
PRESENCE: Final = frozenset(("is null", "exists"))
"""Operators without a constant."""

FORMS: Final = frozenset(f"{negation}{name}" for name in TEXT_OPERATORS for negation in ("", "not "))
"""Operators of strings whose constant has a canonical form; see `Constraint`."""

_ORDINAL = ("=", "<>", "<", "<=", ">", ">=", "in", "not in")
OPERATORS_OF: Final[dict[str, tuple[str, ...]]] = {
    "number": _ORDINAL,
    "timestamp": _ORDINAL,
    "str": (*_ORDINAL, *(operator for operator in COMPARE if operator not in _ORDINAL)),
    "bool": ("=", "<>", "in", "not in"),
}
"""The operators with a constant, for each family of attributes."""
FAMILY_OF: Final = {bool: "bool", int: "number", float: "number", str: "str", Timestamp: "timestamp"}
"""The family of attributes with which a canonical constant is compared, by its type."""


class _Constraint(NamedTuple):
    attribute: str
    operator: str
    value: Any = None


class Constraint(_Constraint):
    """A constraint of one attribute. Immutable, hashable, equal by value.

    Parameters
    ----------
    attribute : str
        Flattened name.
    operator : str
        A key of `COMPARE`, or ``is null`` or ``exists``, which take no value.
    value : constant or set of constants
        bool, int, float, str, datetime; for ``in`` and ``not in`` an iterable of them, of one type. Stored
        canonically: a datetime as `rtfilter.events.encoding.Timestamp`, a set as a frozenset. For ``like`` a
        pattern (`rtfilter.predicates.operands.like`), for ``cidr`` a network; ``ignore case`` stores the text
        folded by `rtfilter.predicates.operands.text_comparison.fold`.

    Raises
    ------
    PredicateError
        The operator is unknown, the constant is unusable, constants have several types, or the name is no
        string.

    Notes
    -----
    Without a schema the constant's type determines the values that it compares with, so text stays text;
    `parse` turns ISO 8601 text for a timestamp attribute into a timestamp.

    Constraints with equal meaning are equal: ``like`` with one ``%``, at the end, becomes ``prefix``, and
    without a wildcard ``=``.
    """

    __slots__ = ()

    def __new__(cls, attribute: str, operator: str, value: Any = None) -> Constraint:
        """Check the operator, and bring the value into its canonical form."""
        if not isinstance(attribute, str):
            raise PredicateError(f"an attribute's name is a string; got {shown(attribute)}")
        if operator in PRESENCE:
            value = None
        elif operator in SETS:
            items = [_canonical(item) for item in constants(value)]
            if len({READERS[type(item)] for item in items}) > 1:
                raise PredicateError(f"a set has constants of one type; got {shown(items)}")
            value = frozenset(items)
        elif operator in COMPARE:
            value = _canonical(value)
            if operator in _TEXT_FORMS:
                operator, value = _text_form(operator, value)
        else:
            known = ", ".join([*COMPARE, *sorted(PRESENCE)])
            raise PredicateError(f"unknown operator {shown(operator)}; use one of {known}")
        return tuple.__new__(cls, (composed(attribute), operator, value))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attribute as a tuple, as in `Comparison`."""
        return (self.attribute,)

    @property
    def sample(self) -> Any:
        """The constant, or one of a set: its type is that of the values compared. None if there is none."""
        return next(iter(self.value), None) if isinstance(self.value, frozenset) else self.value

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether a flat event satisfies the constraint. Never raises, for any value."""
        return self.accepts(row.get(self.attribute))

    def accepts(self, value: object) -> bool:
        """Return whether a value, None for a missing one, satisfies the constraint."""
        _, operator, constant = self
        if type(value) is str:  # the usual case
            one = next(iter(constant), None) if type(constant) is frozenset else constant
            if type(one) is str:
                return COMPARE[operator](value, constant)
        if is_missing(value):
            return operator == "is null"
        if operator in PRESENCE:
            return operator == "exists"
        sample = constant
        if operator in SETS:
            if not constant:
                return operator == "not in"  # of any type: only a schema determines the right one
            sample = next(iter(constant))
        found = READERS[type(sample)](value)
        return found is not None and COMPARE[operator](found, constant)

    def __str__(self) -> str:
        name, operator, value = written(self.attribute), self.operator, self.value
        if operator in PRESENCE:
            return f"{name} IS NULL" if operator == "is null" else f"{name} IS NOT NULL"
        if operator in SETS:
            return f"{name} {operator.upper()} ({', '.join(map(_literal, sorted(value)))})"
        if operator in ("prefix", "not prefix"):
            return f"{name} {'NOT ' * (operator != 'prefix')}LIKE {_literal(escaped(value) + '%')}"
        if operator in FORMS:
            return _WRITTEN[operator].format(name, _literal(value))
        return f"{name} {operator} {_literal(value)}"


class _Quantified(NamedTuple):
    quantifier: str
    tests: tuple[Constraint, ...]


class Quantified(_Quantified):
    """A constraint of a list's elements; any other value counts as a list of one.

    Immutable, hashable, equal by value.

    Parameters
    ----------
    quantifier : str
        ``any``: an element satisfies all of the constraints. ``all``: there are elements, and each satisfies
        one of the constraints. ``all`` of the complement of ``c`` means: no element satisfies ``c``, and each
        has the type of the attribute.
    tests : iterable of Constraint
        Constraints of one attribute, with constants. Stored canonically: each once and in order, and for
        ``all`` equalities as one set.

    Raises
    ------
    PredicateError
        The quantifier is unknown, or there is no constraint, or one of another kind.
    """

    __slots__ = ()

    def __new__(cls, quantifier: str, tests: Iterable[Constraint]) -> Quantified:
        """Check the parts, and bring them into their canonical form."""
        if quantifier not in ("any", "all"):
            raise PredicateError(f"unknown quantifier {shown(quantifier)}; use one of any, all")
        own = tuple(dict.fromkeys(tests))
        if not all(isinstance(test, Constraint) and test.operator not in PRESENCE for test in own):
            raise PredicateError("a quantifier takes constraints with constants")
        if len({test.attribute for test in own}) != 1:
            raise PredicateError("a quantifier takes constraints of one attribute, at least one")
        equal = [test for test in own if test.operator in ("=", "in")]
        if quantifier == "all" and len(equal) > 1:
            values = [
                one for test in equal for one in (test.value if test.operator == "in" else (test.value,))
            ]
            own = (*(test for test in own if test not in equal), Constraint(own[0].attribute, "in", values))
        return tuple.__new__(cls, (quantifier, tuple(sorted(own, key=_order))))

    @property
    def attribute(self) -> str:
        """The attribute of all constraints."""
        return self.tests[0].attribute

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attribute as a tuple, as in `Comparison`."""
        return (self.attribute,)

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether an event, flat or the event of a `Chosen` row, satisfies it."""
        values = every_value(row, self.attribute)
        if self.quantifier == "any":
            return any(map(self.accepts, values))
        return len(values) > 0 and all(map(self.accepts, values))

    def accepts(self, value: object) -> bool:
        """Return whether an element satisfies all constraints (for ``any``) or one of them (for ``all``)."""
        if len(self.tests) == 1:  # the usual case
            return self.tests[0].accepts(value)
        accepted = (test.accepts(value) for test in self.tests)
        return all(accepted) if self.quantifier == "any" else any(accepted)

    def __str__(self) -> str:
        word, tests, glue = (
            self.quantifier.upper(),
            self.tests,
            " AND " if self.quantifier == "any" else " OR ",
        )
        operators = [test.operator for test in tests]
        if word == "ALL" and (operators == [">", "<"] or all(map(is_negated, operators))):
            word, glue = "NONE", " AND "
            tests = tuple(Constraint(name, NEGATED[operator], value) for name, operator, value in tests)
            tests = tuple(sorted(tests, key=_order))
        if glue == " AND " and [test.operator for test in tests] == [">=", "<="]:
            ends = " AND ".join(_literal(test.value) for test in tests)
            return f"{word} {written(self.attribute)} BETWEEN {ends}"
        text = glue.join(map(str, tests))
        return f"{word} {text}" if len(tests) == 1 else f"{word} ({text})"


def _order(test: Any) -> tuple[bool, str]:
    """Return the sort key of a constraint: low ends come before high ones."""
    return test.operator in ("<", "<="), str(test)


def is_negated(operator: str) -> bool:
    """Return whether an operator excludes constants."""
    return operator == "<>" or operator.startswith("not ")


Test: TypeAlias = Constraint | Quantified | Comparison
"""A constraint of any kind; a conjunction consists of these."""


class Filter(NamedTuple):
    """A conjunction of constraints; every event satisfies an empty one."""

    constraints: tuple[Test, ...]

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether a flat event, or one choice of elements, satisfies every constraint."""
        for test in self.constraints:
            if type(test) is Constraint:
                if not test.accepts(row.get(test.attribute)):
                    return False
            elif not test.matches(row):
                return False
        return True

    def __str__(self) -> str:
        return " AND ".join(map(str, self.constraints)) or "TRUE"


def constants(value: Any) -> Sequence[Any] | frozenset[Any]:
    """Return the constants of a set, in the given order if they have one.

    Raises `PredicateError`: the value is no collection, or has more than `MAX_TERMS` constants.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise PredicateError(f"in and not in need a collection of constants; got {shown(value)}")
    items = value if isinstance(value, frozenset | list | tuple) else list(value)
    if len(items) > MAX_TERMS:
        raise PredicateError(f"a set of {len(items)} constants; at most {MAX_TERMS} are allowed")
    return items


def _canonical(value: object) -> Constant:
    if type(value) is Timestamp:
        found: Constant | None = value if abs(value) < 2**63 else None
    else:
        found = canonical(value)
    if found is None:
        raise PredicateError(
            f"{shown(value)} cannot be a constant; use a bool, finite number, string or datetime"
        )
    return found


_TEXT_FORMS: Final = FORMS | {"prefix", "not prefix"}


def _text_form(operator: str, value: Constant) -> tuple[str, str]:
    """Return an operator on strings and its constant in canonical form."""
    if not isinstance(value, str):
        raise PredicateError(f"{operator} needs a string; got {shown(value)}")
    if operator not in FORMS:
        return operator, value
    name = operator.removeprefix("not ")
    simple, text = TEXT_OPERATORS[name].canonical(value)
    return simple if name == operator else NEGATED[simple], text


_WRITTEN: Final = {name: own.written for name, own in TEXT_OPERATORS.items()} | {
    f"not {name}": own.unwritten for name, own in TEXT_OPERATORS.items()
}
"""The SQL form of each operator of `FORMS`."""


def _literal(value: Constant) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bool):
        return str(value).upper()
    return f"TIMESTAMP '{value}'" if isinstance(value, Timestamp) else repr(value)


def constraint_to_json(constraint: Test) -> list[Any]:
    """Return ``[attribute, operator, value]``, without the value if there is none.

    A quantified constraint gives ``[quantifier, constraints]``, a comparison the result of
    `Comparison.to_json`.
    """
    if isinstance(constraint, Comparison):
        return constraint.to_json()
    if isinstance(constraint, Quantified):
        return [constraint.quantifier, [constraint_to_json(test) for test in constraint.tests]]
    name, operator, value = constraint
    if operator in PRESENCE:
        return [name, operator]
    if operator in SETS:
        return [name, operator, [_constant_to_json(item) for item in sorted(value)]]
    return [name, operator, _constant_to_json(value)]


def _constant_to_json(value: Constant) -> Any:
    return {"us": int(value)} if isinstance(value, Timestamp) else value


def constraint_from_json(name: Any, operator: Any, value: Any = None, *family: Any) -> Test:
    """Return the constraint of a result of `constraint_to_json`."""
    if isinstance(operator, list):
        return Quantified(name, [constraint_from_json(*test) for test in operator])  # type: ignore[misc]
    if family or isinstance(name, dict | list | int | float):
        return Comparison.from_json(name, operator, value, *family)
    if operator in SETS:
        return Constraint(name, operator, [_constant_from_json(item) for item in value])
    return Constraint(_shared(name), _shared(operator), _constant_from_json(value))


def _shared(given: Any) -> Any:
    """Return one shared object for equal names and operators, which many predicates have."""
    return intern(given) if type(given) is str else given


def _constant_from_json(value: Any) -> Any:
    return Timestamp(value["us"]) if isinstance(value, dict) and set(value) == {"us"} else value
