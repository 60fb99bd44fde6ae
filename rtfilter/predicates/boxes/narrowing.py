"""Constraints of single attributes that follow from other constraints; the index searches their boxes.

For an event with lists, each choice of elements is searched. If a filter with quantified constraints holds,
one choice satisfies the constraints that follow from it: elements of lists without other constraints can be
chosen freely.

A comparison of one attribute that occurs once, in sums and products with constants, is solved for it. Its
operands are rounded, so each step of the solution widens the interval by neighbours in float64. From other
comparisons only the presence of all attributes follows.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Final

from rtfilter.events.encoding import EXACT, LOWEST
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import Constraint, Filter, Quantified, Test
from rtfilter.predicates.operands.expressions import Distance, Operand, Operation

Interval = tuple[float, float]
"""A closed interval; infinite on a side without a bound."""
_NONE: Final = (-inf, inf)
MAX_SPLIT: Final = 16
"""Most boxes of one filter; if there were more, neighbouring values share a hull that is not exact.

Also most filters that follow from a filter with quantified constraints.
"""


def lowered(filter: Filter) -> tuple[list[Filter], bool]:
    """Return the filters whose boxes are searched for a filter, and whether they are complete.

    They have no quantified constraints, and a distance across the 180th meridian is split into its two sides.
    If an event satisfies the original, a choice of elements satisfies one of them. If they are complete, an
    event without lists that satisfies one of them satisfies the original.
    """
    quantified = [test for test in filter.constraints if isinstance(test, Quantified)]
    plain: list[Test] = [test for test in filter.constraints if not isinstance(test, Quantified)]
    taken = {_root(name) for test in plain for name in test.attributes}
    parts = [plain]
    for side in (_across(test) for test in plain):
        if len(parts) * len(side) <= MAX_SPLIT:
            parts = [[*one, test] for one in parts for test in side] or parts
    used: set[Quantified] = set()
    for test in sorted(quantified, key=_promise):
        if _root(test.attribute) in taken:  # the other constraint may determine the choice of the element
            continue
        taken.add(_root(test.attribute))
        part: list[list[Test]] = [[own] for own in test.tests]
        own = {test}
        if test.quantifier == "any":  # the element that satisfies it also satisfies all `all` constraints
            own |= {one for one in quantified if one.attribute == test.attribute and _is_simple(one)}
            part = [[one for other in own for one in other.tests]]
        if len(parts) * len(part) <= MAX_SPLIT:
            parts = [[*one, *other] for one in parts for other in part]
            used |= own
    filters = [Filter(tuple(dict.fromkeys(tests))) for tests in parts]
    return filters, len(used) == len(quantified)


def _is_simple(test: Quantified) -> bool:
    return test.quantifier == "all" and len(test.tests) == 1


def is_lowered(filter: Filter) -> bool:
    """Return whether boxes represent all constraints of a conjunction: `lowered` would change nothing."""
    return not any(isinstance(test, Quantified) or _across(test) for test in filter.constraints)


def _across(test: Test) -> list[Constraint]:
    """Return the longitudes on either side, if a constraint of a distance lies across the 180th meridian."""
    near = _near(test)
    if near is None or len(near[2]) < 2:
        return []
    own, _, ((_, east), (west, _)) = near
    return [Constraint(own.longitude, "<=", east), Constraint(own.longitude, ">=", west)]


def _near(test: Test) -> tuple[Distance, Interval, list[Interval]] | None:
    """Return a distance that a constraint limits, and its latitudes and longitudes; None for others."""
    if not isinstance(test, Comparison) or test.operator not in ("<", "<=", "="):
        return None
    if not isinstance(test.left, Distance) or not isinstance(test.right, int | float):
        return None
    return test.left, *test.left.around(test.right)


def _root(name: str) -> str:
    """Return the first part of a name; attributes with the same first part may be in one list of objects."""
    return name.partition(".")[0]


def _promise(test: Quantified) -> tuple[bool, bool]:
    """Return the sort key of constraints of one root: ``any`` before ``all``, then few values before many."""
    equal = any(own.operator in ("=", "in") for own in test.tests)
    return test.quantifier == "all", not equal


def implied(comparison: Comparison) -> list[Constraint]:
    """Return constraints whose box contains every event that satisfies a comparison."""
    found = [_present(name, comparison.family) for name in comparison.attributes]
    near = _near(comparison)
    if near is not None:
        own, latitudes, longitudes = near
        sides = [(own.latitude, latitudes)]
        if len(longitudes) == 1:
            sides.append((own.longitude, longitudes[0]))
        for name, (low, high) in sides:
            found += [Constraint(name, ">=", low), Constraint(name, "<=", high)]
    if isinstance(comparison.right, int | float) and len(comparison.attributes) == 1:
        name = comparison.attributes[0]
        low, high = _solved(comparison.left, _wanted(comparison.operator, comparison.right))
        if low > -inf:
            found.append(Constraint(name, ">=", low))
        if high < inf:
            found.append(Constraint(name, "<=", high))
    return found


def _present(name: str, family: str) -> Constraint:
    """Return a constraint that all values of a family satisfy."""
    if family == "str":
        return Constraint(name, "prefix", "")
    return Constraint(name, "in", (False, True)) if family == "bool" else Constraint(name, ">=", LOWEST)


def _wanted(operator: str, constant: float) -> Interval:
    """Return the interval of the values that satisfy a comparison with a constant."""
    if operator == "<>" or abs(constant) >= EXACT:
        return _NONE
    end = float(constant)
    return -inf if operator in ("<", "<=") else end, inf if operator in (">", ">=") else end


def _solved(given: Operand, wanted: Interval) -> Interval:
    """Return the interval of the one attribute for which an operand may lie in an interval."""
    while isinstance(given, Operation):
        operator, left, right = given
        first = isinstance(left, int | float)
        constant, given = (left, right) if first else (right, left)
        if not isinstance(constant, int | float) or abs(constant) >= EXACT:
            return _NONE
        # The operands were at most neighbours of the exact ones, and the result was rounded to a neighbour.
        low, high = _wider(wanted)
        if operator == "+":
            wanted = low - constant, high - constant
        elif operator == "-":
            wanted = (constant - high, constant - low) if first else (low + constant, high + constant)
        elif constant == 0 or (operator == "/" and first):
            return _NONE
        else:
            ends = [end / constant if operator == "*" else end * constant for end in (low, high)]
            wanted = min(ends), max(ends)
        wanted = _wider(_wider(wanted))
    return wanted if isinstance(given, str) else _NONE


def _wider(interval: Interval) -> Interval:
    return nextafter(interval[0], -inf), nextafter(interval[1], inf)
