"""Explanations of a match or a miss: each conjunction, each constraint, and by how much it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rtfilter.basics.text import numbered, shown
from rtfilter.events.elements import every_value
from rtfilter.events.encoding import Timestamp, is_missing
from rtfilter.events.fields import NOW, PHRASES
from rtfilter.predicates.boxes.cost import Cost
from rtfilter.predicates.explanations.reasons import WORDS, apart, by_how_much, reason, remedy_of
from rtfilter.predicates.model.comparison import FAMILIES, Comparison
from rtfilter.predicates.model.constraints import Constraint, Filter, Quantified, Test
from rtfilter.predicates.model.list_tests import Elements, Event, View
from rtfilter.predicates.operands.expressions import Distance, Operand, Operation, evaluate, text
from rtfilter.predicates.operands.intervals import Now
from rtfilter.predicates.operands.text_comparison import Reason
from rtfilter.predicates.predicate import Predicate


@dataclass(frozen=True, slots=True)
class ConstraintExplanation:
    """The result of one constraint for one event.

    Attributes
    ----------
    constraint : Constraint, Comparison or Quantified
    satisfied : bool
    value : object
        The event's value; None if missing. For a comparison a tuple, the values of the left and the right
        side, None for a side without a value. For a quantified constraint the value of the element that
        decides.
    missing : bool
        Whether the event lacks the attribute, or any of those of a comparison.
    reason : str
        The reason as a phrase, such as ``is 12.5, too high by 2.5``.
    shortfall : str
        The amount by which it fails, such as ``too high by 2.5``; empty if it is satisfied.
    distance : float or None
        If numbers or timestamps fail: the distance of the value from the constant, from the nearest of a set,
        or of both sides of a comparison; 0 exactly on an open end. Else None.
    unit : str
        ``s`` if the distance is in seconds, ``km`` if in kilometres, else empty: the attribute's unit.
    agrees : int or None
        Number of first characters of text, or first bits of an address, that are as wanted; else None.
    element : str
        The place of the value in a list, as ``tags[2]``; for a comparison all places, as ``legs[1].bid,
        legs[1].ask``. Empty if it is in no list.
    event : dict
        The values of the attributes that the event has.
    telling : ConstraintExplanation or None
        For a quantified constraint the explanation of the element that decides: for ``any`` the nearest one,
        for ``all`` the first that fails, with the constraint that it satisfies or nearly does. None if the
        event lacks the attribute.
    elements, failing : int
        For a quantified constraint the number of elements, and of those that fail.
    """

    constraint: Test
    satisfied: bool
    value: Any
    missing: bool
    reason: str
    shortfall: str = ""
    distance: float | None = None
    unit: str = ""
    agrees: int | None = None
    element: str = ""
    event: dict[str, object] = field(default_factory=dict)
    telling: ConstraintExplanation | None = None
    elements: int = 1
    failing: int = 0

    @property
    def remedy(self) -> dict[str, object]:
        """Attributes with acceptable values: ``event | remedy`` satisfies the constraint.

        For numbers and timestamps it is the nearest value; None means a missing value. Empty if the
        constraint is satisfied, if any value satisfies it, and if no value does or none is found: one of the
        attributes of a comparison must occur once.
        """
        return {} if self.satisfied else remedy_of(self.constraint, self.event)

    def __str__(self) -> str:
        return f"{'yes' if self.satisfied else 'no '}  {self.constraint}: {self.reason}"


@dataclass(frozen=True, slots=True)
class FilterExplanation:
    """The result of one conjunction for one event: satisfied if every constraint is."""

    satisfied: bool
    constraints: tuple[ConstraintExplanation, ...]

    @property
    def failing(self) -> tuple[ConstraintExplanation, ...]:
        """The constraints that are not satisfied."""
        return tuple(one for one in self.constraints if not one.satisfied)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of a predicate for one event; ``str()`` is a report with one line per constraint.

    Attributes
    ----------
    matched : bool
    filters : tuple of FilterExplanation
    cost : Cost or None
        The cost of the subscription, unless the matcher works without boxes. The report has it if candidates
        must be verified.
    """

    matched: bool
    filters: tuple[FilterExplanation, ...]
    cost: Cost | None = None

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
        if self.cost is not None and self.cost.checked:
            lines.append(f"  cost: {self.cost}")
        return "\n".join(lines)


def explain(predicate: Predicate, event: Event) -> Explanation:
    """Explain why `predicate` matches an event or not.

    Parameters
    ----------
    predicate : Predicate
    event : mapping of flattened names to values, or Elements
        A result of `rtfilter.predicates.model.list_tests.events_of`.

    Returns
    -------
    Explanation
        Its `matched` is True if the event satisfies the predicate. The nearest choice of elements explains
        each filter; see `nearest`.
    """
    filters = tuple(nearest(conjunction, event) for conjunction in predicate.filters)
    return Explanation(any(conjunction.satisfied for conjunction in filters), filters)


def nearest(conjunction: Filter, event: Event) -> FilterExplanation:
    """Explain a filter by the choice of elements that satisfies it, or else by the nearest choice.

    The nearest choice fails the fewest constraints; among several, it has the least `distance_order`.
    """
    if not isinstance(event, Elements):
        return _explained(conjunction, event)
    least, near = len(conjunction.constraints) + 1, list[View]()
    for view in event.views(conjunction):
        fails = failing(conjunction, view.row)
        if fails <= least:
            near = [*near, view] if fails == least else [view]
            least = fails
        if not least:
            break
    found = (_explained(conjunction, view.row, view) for view in near)
    return next(found) if len(near) == 1 else min(found, key=lambda one: distance_order(one.failing))


def fewest_failing(conjunction: Filter, event: Event) -> int:
    """Return how many constraints of a filter fail for the nearest choice of elements."""
    if not isinstance(event, Elements):
        return failing(conjunction, event)
    return min(failing(conjunction, view.row) for view in event.views(conjunction))


def failing(conjunction: Filter, row: Mapping[str, object]) -> int:
    """Return how many constraints of a filter fail for a flat event."""
    return sum(not test.matches(row) for test in conjunction.constraints)


def distance_order(failing: Sequence[ConstraintExplanation]) -> tuple[int, float]:
    """Return the sort key of equally many failing constraints: number without distance, sum of distances.

    Distances in different units are added: they only decide among equally many constraints.
    """
    distances = [one.distance for one in failing if one.distance is not None]
    return len(failing) - len(distances), sum(distances)


def _explained(conjunction: Filter, row: Mapping[str, object], view: View | None = None) -> FilterExplanation:
    found = []
    for test in conjunction.constraints:
        if isinstance(test, Quantified):
            found.append(_quantified(test, row, view))
            continue
        element = ", ".join(filter(None, map(view.element, test.attributes))) if view is not None else ""
        if isinstance(test, Comparison):
            found.append(_comparison(test, row, element))
        else:
            found.append(_constraint(test, row.get(test.attribute), element))
    return FilterExplanation(all(one.satisfied for one in found), tuple(found))


def _constraint(test: Constraint, value: object, element: str = "") -> ConstraintExplanation:
    satisfied, unit = test.accepts(value), "s" if isinstance(test.sample, Timestamp) else ""
    if is_missing(value):
        short = "" if satisfied else "missing"
        return ConstraintExplanation(test, satisfied, None, True, "missing", short, None, unit, None, element)
    why = Reason("") if satisfied else reason(test, value)
    said = _said(element, value, why.phrase)
    event = {test.attribute: value}
    return ConstraintExplanation(test, satisfied, value, False, said, *why[:2], unit, why[2], element, event)


def _said(element: str, value: object, shortfall: str) -> str:
    said = f"{element} is {shown(value)}" if element else f"is {shown(value)}"
    return f"{said}, {shortfall}" if shortfall else said


def _quantified(test: Quantified, row: Mapping[str, object], view: View | None) -> ConstraintExplanation:
    if view is None:
        placed = [(value, "") for value in every_value(row, test.attribute)]
    else:
        placed = view.event.placed(test.attribute)
    satisfied, unit = test.matches(row), "s" if isinstance(test.tests[0].sample, Timestamp) else ""
    if not placed:
        return ConstraintExplanation(
            test, satisfied, None, True, "missing", "missing", None, unit, elements=0
        )
    right, wrong = ([one for one in placed if test.accepts(one[0]) is wanted] for wanted in (True, False))
    asked = right if satisfied else wrong
    if test.quantifier == "all" or satisfied:
        asked = asked[:1]
    _, telling = min((_element_explained(test, *one) for one in asked), key=lambda one: one[0])
    short, element, value = "", telling.element, telling.value
    if not satisfied:
        short = telling.shortfall
        if len(placed) > 1:
            which = "the nearest" if test.quantifier == "any" else f"fails for {len(wrong)}"
            short += f"; {which} of {len(placed)} elements"
    said = _said(element, value, short)
    if satisfied and test.quantifier == "all" and len(placed) > 1:
        said = f"all {numbered(len(placed), 'element')}"
    agrees = None if satisfied else telling.agrees
    return ConstraintExplanation(
        test, satisfied, value, False, said, short, telling.distance, unit, agrees, element,
        telling.event, telling, len(placed), len(wrong),
    )  # fmt: skip


def _element_explained(
    test: Quantified, value: object, element: str
) -> tuple[tuple[float, ...], ConstraintExplanation]:
    """Explain one element by its telling constraint; return the sort key of elements first, nearest first."""
    parts = [_constraint(own, value, element) for own in test.tests]
    wrong = [one for one in parts if not one.satisfied]
    order = (len(wrong), *distance_order(wrong))
    if len(wrong) < len(parts) and test.quantifier == "all":
        return order, next(one for one in parts if one.satisfied)
    if test.quantifier == "all":
        return order, min(wrong, key=lambda one: distance_order((one,)))
    return order, wrong[0] if wrong else parts[0]


def _comparison(test: Comparison, row: Mapping[str, object], element: str) -> ConstraintExplanation:
    sides = left, right = test.sides(row)
    satisfied = test.matches(row)
    absent = [name for name in test.attributes if is_missing(row.get(name))]
    asked = (*test.attributes, NOW) if isinstance(test.right, Now) else test.attributes
    event = {name: row[name] for name in asked if name in row}
    constant, moments = isinstance(test.right, int | float), test.family == "timestamp"
    unit = "km" if isinstance(test.left, Distance) and constant else "s" if moments else ""
    if left is None or right is None:
        short = f"{' and '.join(absent)} missing" if absent else _no_value(test, row)
        return ConstraintExplanation(
            test, satisfied, sides, bool(absent), short, short, None, unit, None, element, event
        )
    values = [str(Timestamp(one)) if moments and isinstance(one, int) else shown(one) for one in sides]
    said = f"{text(test.left)} is {values[0]}" + f" and {text(test.right)} is {values[1]}" * (not constant)
    if element:
        said += f" (of {element})"
    short, distance = "", None
    if not satisfied:
        if test.operator != "<>" and test.family in ("number", "timestamp"):
            distance = apart(left, right, moments)
        failed = f"not {WORDS[test.operator]} {values[1]}"
        short = by_how_much(distance, left > right, unit) if distance else failed
        said += f", {short}"
    return ConstraintExplanation(
        test, satisfied, sides, False, said, short, distance, unit, None, element, event
    )


def _no_value(test: Comparison, row: Mapping[str, object]) -> str:
    """Return the reason why a side has no value, although all attributes are there."""
    read = FAMILIES[test.family]
    for name in test.attributes:
        if read(row[name]) is None:
            return f"{name} is {shown(row[name])}, of another type: not {PHRASES[test.family]}"
    side = test.left if evaluate(test.left, row) is None else test.right
    why = "a division by zero" if _divides_by_zero(side, row) else "not a number"
    if isinstance(side, Distance):
        why = "latitudes reach from -90 to 90, longitudes from -180 to 180"
    return f"{text(side)} has no value: {why}"


def _divides_by_zero(side: Operand, row: Mapping[str, object]) -> bool:
    if not isinstance(side, Operation):
        return False
    if side.operator == "/" and evaluate(side.right, row) == 0:
        return True
    return _divides_by_zero(side.left, row) or _divides_by_zero(side.right, row)
