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


class Elements:
    """An event with lists, which predicates are held against.

    Parameters
    ----------
    row : mapping
        The event as `EventTable.row` gives it.
    lists : mapping
        Its lists by path, as of `Choices.lists`.
    """

    def __init__(self, row: Mapping[str, object], lists: Lists) -> None:
        self._row, self._lists = row, lists
        self._known: dict[frozenset[str], list[Choice]] = {}

    def satisfy(self, predicate: Predicate) -> bool:
        """Whether the event satisfies a predicate."""
        return any(map(self._satisfy, predicate.filters))

    def _satisfy(self, own: Filter) -> bool:
        nulls = {test.attributes[0] for test in own.constraints if _is_null(test)}
        others = Filter(tuple(test for test in own.constraints if not _is_null(test)))
        names = frozenset(name for test in others.constraints for name in test.attributes)
        inside = set(below(self._lists, [*nulls, *names]))
        if any(self._row.get(name) is not None for name in nulls - inside):
            return False
        there = [one for name in nulls & inside for one in self._choices(frozenset((name,))) if one.values]
        fixed = {name: self._row.get(name) for name in names - inside}
        return any(
            others.matches(fixed | one.values if fixed else one.values)
            and not any(_agree(one, other) for other in there)
            for one in self._choices(names & inside)
        )

    def _choices(self, names: frozenset[str]) -> list[Choice]:
        found = self._known.get(names)
        if found is None:
            found = self._known[names] = choices(self._lists, names)
        return found


def _is_null(test: Test) -> bool:
    return isinstance(test, Constraint) and test.operator == "is null"


def _agree(one: Choice, other: Choice) -> bool:
    """Whether two choices can be made together: from a list that both choose from they have one element."""
    return all(one.places.get(own, index) == index for own, index in other.places.items())
