"""Predicates on events with lists: what one choice of elements does not tell.

A filter holds where it holds for one choice of elements, except that ``IS NULL`` looks further: no element
may have the attribute that could be chosen together with those that the filter's other tests need.
"""

from __future__ import annotations

from collections.abc import Mapping

from rtfilter.events.elements import Choice, Lists, below, choices
from rtfilter.predicates.model import Constraint, Filter, Predicate, Test


def asks_for_none(predicate: Predicate) -> bool:
    """Whether a predicate asks for an attribute to be missing."""
    return any(map(_is_null, (test for own in predicate.filters for test in own.constraints)))


def satisfied(predicate: Predicate, row: Mapping[str, object], lists: Lists) -> bool:
    """Whether an event with lists satisfies a predicate.

    Parameters
    ----------
    predicate : Predicate
    row : mapping
        The event as `EventTable.row` gives it.
    lists : mapping
        Its lists by path, as of `Choices.lists`.
    """
    return any(_holds(own, row, lists) for own in predicate.filters)


def _is_null(test: Test) -> bool:
    return isinstance(test, Constraint) and test.operator == "is null"


def _holds(own: Filter, row: Mapping[str, object], lists: Lists) -> bool:
    nulls = {test.attributes[0] for test in own.constraints if _is_null(test)}
    others = Filter(tuple(test for test in own.constraints if not _is_null(test)))
    names = frozenset(name for test in others.constraints for name in test.attributes)
    inside = set(below(lists, [*nulls, *names]))
    fixed = {name: value for name, value in row.items() if name not in inside}
    if any(fixed.get(name) is not None for name in nulls):
        return False
    there = [one for name in nulls & inside for one in choices(lists, frozenset((name,))) if one.values]
    return any(
        others.matches({**fixed, **one.values}) and not any(_agree(one, other) for other in there)
        for one in choices(lists, names)
    )


def _agree(one: Choice, other: Choice) -> bool:
    """Whether two choices can be made together: from a list that both choose from they have one element."""
    return all(one.places.get(own, index) == index for own, index in other.places.items())
