"""Explanations of a match or a miss: each conjunction, each constraint, and by how much it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtfilter.events.elements import every_value
from rtfilter.events.encoding import Timestamp, is_missing
from rtfilter.events.fields import NOW, PHRASES
from rtfilter.predicates.boxes.cost import Cost
from rtfilter.predicates.explanations.reasons import WORDS, apart, by_how_much, reason, sample
from rtfilter.predicates.explanations.remedies import remedy_of_comparison, remedy_of_constraint
from rtfilter.predicates.model.comparison import FAMILIES, Comparison
from rtfilter.predicates.model.constraints import Constraint, Filter, Quantified, Test
from rtfilter.predicates.model.list_tests import Elements, Event, View
from rtfilter.predicates.operands.distances import Distance
from rtfilter.predicates.operands.expressions import Operand, Operation, evaluate, text
from rtfilter.predicates.operands.intervals import Now
from rtfilter.predicates.predicate import Predicate
from rtfilter.text import numbered, shown


@dataclass(frozen=True, slots=True)
class ConstraintExplanation:
    """The result of one constraint for one event.

    Attributes
    ----------
    constraint : Constraint
    satisfied : bool
    value : object
        The event's value; None if missing.
    missing : bool
        Whether the event lacks the attribute.
    distance : float or None
        For an unsatisfied comparison of numbers or timestamps: the distance of the value from the constant,
        or from the nearest of a set, in the attribute's unit, in seconds for timestamps; 0 exactly on an open
        end. Else None.
    element : str
        The place of the value in a list, as ``tags[2]``; empty if it is in no list.
    """

    constraint: Constraint
    satisfied: bool
    value: object
    missing: bool
    distance: float | None
    element: str = ""

    @property
    def unit(self) -> str:
        """``s`` if the distance is in seconds, else empty: it is in the attribute's unit."""
        return "s" if isinstance(sample(self.constraint), Timestamp) else ""

    @property
    def agrees(self) -> int | None:
        """Number of first characters of text, or first bits of an address, that are as wanted; else None."""
        return None if self.satisfied or self.missing else reason(self.constraint, self.value).agrees

    @property
    def shortfall(self) -> str:
        """The amount by which it fails, such as ``too high by 2.5``; empty if it is satisfied."""
        if self.satisfied:
            return ""
        return "missing" if self.missing else reason(self.constraint, self.value).phrase

    @property
    def remedy(self) -> dict[str, object]:
        """The attribute with an acceptable value: ``event | remedy`` satisfies the constraint.

        For numbers and timestamps it is the nearest value; None means a missing value. Empty if the
        constraint is satisfied, if no value satisfies it, and if any value does.
        """
        return {} if self.satisfied else remedy_of_constraint(self.constraint, self.value)

    @property
    def reason(self) -> str:
        """The reason as a phrase, such as ``is 12.5, too high by 2.5``."""
        if self.missing:
            return "missing"
        shortfall = self.shortfall
        said = f"{self.element} is" if self.element else "is"
        return f"{said} {shown(self.value)}" + (f", {shortfall}" if shortfall else "")

    def __str__(self) -> str:
        return f"{'yes' if self.satisfied else 'no '}  {self.constraint}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ComparisonExplanation:
    """The result of one comparison for one event.

    Attributes
    ----------
    constraint : Comparison
    satisfied : bool
    value : tuple
        The values of the left and the right side; None for a side without a value.
    missing : bool
        Whether the event lacks any of the attributes.
    distance : float or None
        For an unsatisfied comparison of numbers or timestamps: the difference of both sides, in seconds for
        timestamps; 0 if they are equal. Else None.
    without : str
        The reason why a side has no value; empty if both have values.
    event : dict
        The values of the attributes that the event has.
    element : str
        The places of the values in lists, as ``legs[1].bid, legs[1].ask``; empty for no lists.
    """

    constraint: Comparison
    satisfied: bool
    value: tuple[object, object]
    missing: bool
    distance: float | None
    without: str = ""
    event: dict[str, object] = field(default_factory=dict)
    element: str = ""

    @property
    def unit(self) -> str:
        """``s`` if the distance is in seconds, ``km`` if it is in kilometres, else empty."""
        if isinstance(self.constraint.left, Distance) and isinstance(self.constraint.right, int | float):
            return "km"
        return "s" if self.constraint.family == "timestamp" else ""

    @property
    def agrees(self) -> None:
        """None: a comparison does not report equal characters."""

    @property
    def shortfall(self) -> str:
        """The amount by which it fails, such as ``too high by 2.5``; empty if it is satisfied."""
        if self.satisfied or self.without:
            return self.without
        operator, (left, right) = self.constraint.operator, self.value
        if not self.distance:
            return f"not {WORDS[operator]} {self.shown_values[1]}"
        return by_how_much(self.distance, left > right, self.unit)  # type: ignore[operator]

    @property
    def remedy(self) -> dict[str, object]:
        """Attributes with acceptable values: ``event | remedy`` satisfies the comparison.

        Empty if it is satisfied, and if no values are found: one of the attributes must occur once.
        """
        return {} if self.satisfied else remedy_of_comparison(self.constraint, self.event)

    @property
    def reason(self) -> str:
        """The reason as a phrase, such as ``bid is 12.5 and ask is 10, too high by 2.5``."""
        if self.without:
            return self.without
        left, _, right, _ = self.constraint
        values = self.shown_values
        said = f"{text(left)} is {values[0]}"
        if not isinstance(right, int | float):
            said += f" and {text(right)} is {values[1]}"
        if self.element:
            said += f" (of {self.element})"
        return f"{said}, {self.shortfall}" if not self.satisfied else said

    @property
    def shown_values(self) -> list[str]:
        """The values of both sides as text."""
        moments = self.unit == "s"
        return [str(Timestamp(one)) if moments and isinstance(one, int) else shown(one) for one in self.value]

    def __str__(self) -> str:
        return f"{'yes' if self.satisfied else 'no '}  {self.constraint}: {self.reason}"


@dataclass(frozen=True, slots=True)
class QuantifiedExplanation:
    """The result of one quantified constraint for one event.

    Attributes
    ----------
    constraint : Quantified
    satisfied : bool
    telling : ConstraintExplanation or None
        The explanation of the element that decides: for ``any`` the nearest one, for ``all`` the first that
        fails, with the constraint that it satisfies or nearly does. None if the event lacks the attribute.
    elements, failing : int
        The number of elements, and of those that fail.
    """

    constraint: Quantified
    satisfied: bool
    telling: ConstraintExplanation | None
    elements: int
    failing: int

    @property
    def value(self) -> object:
        """The value of the element; None if the event lacks the attribute."""
        return None if self.telling is None else self.telling.value

    @property
    def missing(self) -> bool:
        """True if the event lacks the attribute."""
        return self.telling is None

    @property
    def distance(self) -> float | None:
        """The distance of the element from the constant; see `ConstraintExplanation.distance`."""
        return None if self.telling is None else self.telling.distance

    @property
    def element(self) -> str:
        """The element that decides, as ``tags[2]``; empty if the value is no list."""
        return "" if self.telling is None else self.telling.element

    @property
    def unit(self) -> str:
        """``s`` if the distance is in seconds, else empty."""
        return "s" if isinstance(sample(self.constraint.tests[0]), Timestamp) else ""

    @property
    def agrees(self) -> int | None:
        """Number of first characters, or first bits of an address, that are as wanted; else None."""
        return None if self.satisfied or self.telling is None else self.telling.agrees

    @property
    def shortfall(self) -> str:
        """The amount by which it fails, such as ``too high by 2.5``; empty if it is satisfied."""
        if self.satisfied:
            return ""
        if self.telling is None:
            return "missing"
        if self.elements == 1:
            return self.telling.shortfall
        nearest = self.constraint.quantifier == "any"
        which = "the nearest" if nearest else f"fails for {self.failing}"
        return f"{self.telling.shortfall}; {which} of {self.elements} elements"

    @property
    def remedy(self) -> dict[str, object]:
        """The attribute with a single acceptable value; empty if it is satisfied, or if none is found."""
        if self.satisfied:
            return {}
        remedies = (remedy_of_constraint(test, self.value) for test in self.constraint.tests)
        return next((one for one in remedies if self.constraint.matches(one)), {})

    @property
    def reason(self) -> str:
        """The reason as a phrase, such as ``tags[1] is 'spam', excluded; fails for 1 of 2 elements``."""
        if self.telling is None:
            return "missing"
        if self.satisfied and self.constraint.quantifier == "all" and self.elements > 1:
            return f"all {numbered(self.elements, 'element')}"
        said = f"{self.element} is" if self.element else "is"
        shortfall = self.shortfall
        return f"{said} {shown(self.value)}" + (f", {shortfall}" if shortfall else "")

    def __str__(self) -> str:
        return f"{'yes' if self.satisfied else 'no '}  {self.constraint}: {self.reason}"


Explained = ConstraintExplanation | ComparisonExplanation | QuantifiedExplanation


@dataclass(frozen=True, slots=True)
class FilterExplanation:
    """The result of one conjunction for one event: satisfied if every constraint is."""

    satisfied: bool
    constraints: tuple[Explained, ...]

    @property
    def failing(self) -> tuple[Explained, ...]:
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


def distance_order(failing: Sequence[Explained]) -> tuple[int, float]:
    """Return the sort key of equally many failing constraints: number without distance, sum of distances.

    Distances in different units are added: they only decide among equally many constraints.
    """
    distances = [one.distance for one in failing if one.distance is not None]
    return len(failing) - len(distances), sum(distances)


def _explained(conjunction: Filter, row: Mapping[str, object], view: View | None = None) -> FilterExplanation:
    constraints = tuple(
        _quantified(test, row, view) if isinstance(test, Quantified) else explain_test(test, row)
        for test in conjunction.constraints
    )
    if view is not None and view.chosen:
        constraints = tuple(_placed(one, view) for one in constraints)
    return FilterExplanation(all(constraint.satisfied for constraint in constraints), constraints)


def _placed(explained: Explained, view: View) -> Explained:
    """Return an explanation that names the elements."""
    if isinstance(explained, QuantifiedExplanation):
        return explained
    elements = filter(None, map(view.element, explained.constraint.attributes))
    return replace(explained, element=", ".join(elements))


def explain_test(test: Test, row: Mapping[str, object]) -> Explained:
    """Explain one constraint of a filter for a flat event."""
    if isinstance(test, Quantified):
        return _quantified(test, row)
    return _comparison(test, row) if isinstance(test, Comparison) else _constraint(test, row)


def _quantified(
    test: Quantified, row: Mapping[str, object], view: View | None = None
) -> QuantifiedExplanation:
    if view is None:
        placed = [(value, "") for value in every_value(row, test.attribute)]
    else:
        placed = view.event.placed(test.attribute)
    satisfied = test.matches(row)
    right, wrong = ([one for one in placed if test.accepts(one[0]) is wanted] for wanted in (True, False))
    asked = right if satisfied else wrong
    if test.quantifier == "all" or satisfied:
        asked = asked[:1]
    found = [_element_explained(test, *one) for one in asked]
    telling = min(found, key=lambda one: one[0], default=(None, None))[1]
    return QuantifiedExplanation(test, satisfied, telling, len(placed), len(wrong))


def _element_explained(
    test: Quantified, value: object, element: str
) -> tuple[tuple[float, ...], ConstraintExplanation]:
    """Explain one element by its telling constraint; return the sort key of elements first, nearest first."""
    parts = [replace(_constraint(own, {own.attribute: value}), element=element) for own in test.tests]
    wrong = [one for one in parts if not one.satisfied]
    order = (len(wrong), *distance_order(wrong))
    if len(wrong) < len(parts) and test.quantifier == "all":
        return order, next(one for one in parts if one.satisfied)
    if test.quantifier == "all":
        return order, min(wrong, key=lambda one: distance_order((one,)))
    return order, wrong[0] if wrong else parts[0]


def _comparison(test: Comparison, row: Mapping[str, object]) -> ComparisonExplanation:
    left, right = test.sides(row)
    satisfied = test.matches(row)
    absent = [name for name in test.attributes if is_missing(row.get(name))]
    distance = None
    if absent:
        without = f"{' and '.join(absent)} missing"
    elif left is None or right is None:
        without = _no_value(test, row)
    else:
        without = ""
        if not satisfied and test.operator != "<>" and test.family in ("number", "timestamp"):
            distance = apart(left, right, test.family == "timestamp")
    asked = (*test.attributes, NOW) if isinstance(test.right, Now) else test.attributes
    event = {name: row[name] for name in asked if name in row}
    return ComparisonExplanation(test, satisfied, (left, right), bool(absent), distance, without, event)


def _constraint(constraint: Constraint, row: Mapping[str, object]) -> ConstraintExplanation:
    value = row.get(constraint.attribute)
    satisfied = constraint.accepts(value)
    missing = is_missing(value)
    distance = None if satisfied or missing else reason(constraint, value).distance
    return ConstraintExplanation(constraint, satisfied, None if missing else value, missing, distance)


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
