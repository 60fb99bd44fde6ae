"""Why a predicate did or did not match an event: each filter, each constraint, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from rtfilter.events.encoding import READERS, Timestamp, is_missing
from rtfilter.predicates.comparison import FAMILIES, Comparison
from rtfilter.predicates.expressions import text
from rtfilter.predicates.letters import fold
from rtfilter.predicates.like import lacks
from rtfilter.predicates.model import FORMS, Constraint, Filter, Predicate, Test
from rtfilter.predicates.networks import address
from rtfilter.text import plain, shown

_MICROSECONDS = 1_000_000
_RELATIONS = {"<": "below", "<=": "at most", ">": "above", ">=": "at least", "=": "equal to"}
"""What a value is not whose distance from the constant is 0, or too small for a float."""


@dataclass(frozen=True, slots=True)
class ConstraintExplanation:
    """One constraint held against one event.

    Attributes
    ----------
    constraint : Constraint
    satisfied : bool
    value : object
        The event's value; None where missing.
    missing : bool
        Whether the event lacks the attribute.
    distance : float or None
        For an unsatisfied comparison of numbers or timestamps: how far the value is from the constant,
        in the attribute's unit, in seconds for timestamps; 0 exactly on an open end. Else None.
    """

    constraint: Constraint
    satisfied: bool
    value: object
    missing: bool
    distance: float | None

    @property
    def reason(self) -> str:
        """One phrase, such as ``is 12.5, too high by 2.5``."""
        if self.missing:
            return "missing"
        text = f"is {shown(self.value)}"
        if self.satisfied or self.constraint.operator == "is null":
            return text
        if self.distance is None:
            if not _comparable(self.constraint, self.value):
                return f"{text}, of another type"
            why = _lack(self.constraint, self.value)
            return f"{text}, {why}" if why else text
        if self.distance == 0 and self.constraint.operator in _RELATIONS:
            return f"{text}, which is not {_RELATIONS[self.constraint.operator]} {self.constraint.value}"
        if self.constraint.operator in ("<", "<="):
            side = "too high by"
        else:
            side = "too low by" if self.constraint.operator in (">", ">=") else "off by"
        unit = " s" if isinstance(_sample(self.constraint), Timestamp) else ""
        return f"{text}, {side} {plain(self.distance, 6)}{unit}"

    def __str__(self) -> str:
        return f"{'yes' if self.satisfied else 'no '}  {self.constraint}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ComparisonExplanation:
    """One comparison held against one event.

    Attributes
    ----------
    constraint : Comparison
    satisfied : bool
    value : tuple
        The values of the left and the right side; None for one that has none.
    missing : bool
        Whether the event lacks any of the attributes.
    distance : float or None
        For an unsatisfied one of numbers or timestamps: the difference of both sides, in seconds for
        timestamps; 0 exactly where they are equal. Else None.
    without : str
        Why a side has no value; empty where both have.
    """

    constraint: Comparison
    satisfied: bool
    value: tuple[object, object]
    missing: bool
    distance: float | None
    without: str = ""

    @property
    def reason(self) -> str:
        """One phrase, such as ``bid is 12.5 and ask is 10, too high by 2.5``."""
        if self.without:
            return self.without
        left, operator, right, family = self.constraint
        unit = " s" if family == "timestamp" else ""
        values = [str(Timestamp(value)) if unit else shown(value) for value in self.value]  # type: ignore[call-overload]
        said = f"{text(left)} is {values[0]}"
        if not isinstance(right, int | float):
            said += f" and {text(right)} is {values[1]}"
        if self.satisfied or self.distance is None:
            return said
        if self.distance == 0:
            return f"{said}, which is not {_RELATIONS.get(operator, 'different from')} it"
        side = {"<": "too high by", "<=": "too high by", "=": "off by"}.get(operator, "too low by")
        return f"{said}, {side} {plain(self.distance, 6)}{unit}"

    def __str__(self) -> str:
        return f"{'yes' if self.satisfied else 'no '}  {self.constraint}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FilterExplanation:
    """One filter held against one event: satisfied when every constraint is."""

    satisfied: bool
    constraints: tuple[ConstraintExplanation | ComparisonExplanation, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A predicate held against one event; ``str()`` is a report of one line per constraint."""

    matched: bool
    filters: tuple[FilterExplanation, ...]

    def __str__(self) -> str:
        lines = ["match" if self.matched else "no match"]
        if not self.filters:
            lines.append("  the predicate has no filters: nothing can match it")
        for number, conjunction in enumerate(self.filters, 1):
            verdict = "yes" if conjunction.satisfied else "no"
            lines.append(f"  filter {number} of {len(self.filters)}: {verdict}")
            lines += [f"    {constraint}" for constraint in conjunction.constraints]
            if not conjunction.constraints:
                lines.append("    yes  no constraint: every event")
        return "\n".join(lines)


def explain(predicate: Predicate, row: Mapping[str, object]) -> Explanation:
    """Explain why `predicate` matches an event or not.

    Parameters
    ----------
    predicate : Predicate
    row : mapping of flattened names to values
        As from `rtfilter.events.table.EventTable.row`.

    Returns
    -------
    Explanation
        Its `matched` equals ``predicate.matches(row)``.
    """
    filters = tuple(_filter(conjunction, row) for conjunction in predicate.filters)
    return Explanation(any(conjunction.satisfied for conjunction in filters), filters)


def _filter(conjunction: Filter, row: Mapping[str, object]) -> FilterExplanation:
    constraints = tuple(_test(test, row) for test in conjunction.constraints)
    return FilterExplanation(all(constraint.satisfied for constraint in constraints), constraints)


def _test(test: Test, row: Mapping[str, object]) -> ConstraintExplanation | ComparisonExplanation:
    return _comparison(test, row) if isinstance(test, Comparison) else _constraint(test, row)


def _comparison(test: Comparison, row: Mapping[str, object]) -> ComparisonExplanation:
    left, right = test.sides(row)
    satisfied = test.matches(row)
    absent = [name for name in test.attributes if is_missing(row.get(name))]
    distance = None
    if absent:
        without = f"{' and '.join(absent)} missing"
    elif left is None or right is None:
        read = FAMILIES[test.family]
        odd = next((name for name in test.attributes if read(row[name]) is None), None)
        without = (
            f"{odd} is {shown(row[odd])}, of another type" if odd else "has no value: a division by zero"
        )
    else:
        without = ""
        if not satisfied and test.operator != "<>" and test.family in ("number", "timestamp"):
            distance = _difference(left, right) / (_MICROSECONDS if test.family == "timestamp" else 1)
    return ComparisonExplanation(test, satisfied, (left, right), bool(absent), distance, without)


def _difference(left: float, right: float) -> float:
    try:
        return float(abs(left - right)) if left != right else 0.0  # two infinite ones have no difference
    except OverflowError:
        return inf


def _constraint(constraint: Constraint, row: Mapping[str, object]) -> ConstraintExplanation:
    value = row.get(constraint.attribute)
    satisfied = constraint.accepts(value)
    missing = is_missing(value)
    distance = None if satisfied or missing else _distance(constraint, value)
    return ConstraintExplanation(constraint, satisfied, None if missing else value, missing, distance)


def _distance(constraint: Constraint, value: object) -> float | None:
    sample = _sample(constraint)
    if isinstance(sample, str | bool | None) or constraint.operator in ("<>", "not in"):
        return None
    found = READERS[type(sample)](value)
    if found is None or isinstance(found, str):
        return None
    constants = constraint.value if constraint.operator == "in" else (constraint.value,)
    distance = min(abs(found - constant) for constant in constants)
    return distance / _MICROSECONDS if isinstance(sample, Timestamp) else float(distance)


def _lack(constraint: Constraint, value: object) -> str:
    """Return why a string does not satisfy a test of text, as a phrase; empty where it is plain to see."""
    _, operator, constant = constraint
    found = READERS[str](value) if operator in FORMS else None
    if not isinstance(found, str):
        return ""
    if operator == "like":
        return lacks(found, constant)
    if operator == "like ignore case":
        return lacks(fold(found), constant)
    return "which is no IP address" if operator == "cidr" and address(found) is None else ""


def _comparable(constraint: Constraint, value: object) -> bool:
    sample = _sample(constraint)
    return sample is None or READERS[type(sample)](value) is not None


def _sample(constraint: Constraint) -> object:
    """Return the constant, or one of a set; its type says what it compares with. None without any."""
    value = constraint.value
    return next(iter(value), None) if isinstance(value, frozenset) else value
