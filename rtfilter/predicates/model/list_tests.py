"""Predicates on events with lists: tests that need more than one choice of elements.

A filter holds if it holds for one choice of elements. ``IS NULL`` also requires that no element has the
attribute that could be chosen together with the elements of the filter's other constraints. Quantified
constraints are about all elements, and choose none.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from rtfilter.events.elements import Choice, Chosen, ListKey, below, choices
from rtfilter.events.encoding import is_missing
from rtfilter.events.fields import NOW, Fields
from rtfilter.events.nesting import flatten
from rtfilter.events.table import EventTable, Lists
from rtfilter.predicates.model.constraints import Constraint, Filter, Quantified, Test

_NONE: Final = Fields()


class View(NamedTuple):
    """A choice of elements, reduced to the attributes of a conjunction."""

    row: Chosen
    """The values of the filter's attributes, by flattened name.

    All of its constraints hold here, or the choice does not satisfy it. An attribute that must be missing has
    the value of an element that forbids it.
    """
    chosen: Mapping[str, Choice]
    """The choice of each attribute whose value comes from lists."""
    event: Elements

    def element(self, name: str) -> str:
        """Return the place of an attribute's value in the event, as ``tags[2]``; empty without a list."""
        return _element(self.chosen.get(name), self.event._sources.get(name, name))


def _element(choice: Choice | None, name: str) -> str:
    if choice is None:
        return ""
    places = choice.places
    found, told, own = "", "", _next(places, (), name)
    while own:
        if isinstance(own[-1], str):  # else it is a list in a list
            found, told = found + own[-1][len(told) :], own[-1]
        found += f"[{places[own]}]"
        own = _next(places, (*own, places[own]), name)
    return found + name[len(told) :]


def _next(places: Mapping[ListKey, int], element: ListKey, name: str) -> ListKey:
    """Return the list in an element, of the chosen ones, that has a value; nothing if there is none."""
    if element in places:
        return element
    for own in places:
        if own[:-1] == element and isinstance(own[-1], str) and f"{name}.".startswith(f"{own[-1]}."):
            return own
    return ()


class Elements:
    """An event with lists, for tests of predicates.

    Parameters
    ----------
    row : mapping
        The event as `EventTable.row` gives it.
    lists : mapping
        Its lists by path, as in `Choices.lists`.
    fields : Fields
        The attributes of the schema; without a schema, none.
    """

    def __init__(self, row: Mapping[str, object], lists: Lists, fields: Fields = _NONE) -> None:
        self._row, self._lists, self._fields = row, lists, fields
        self._sources = {field.name: field.of for field in fields.further}
        self._known: dict[tuple[frozenset[str], bool], list[Choice]] = {}

    def satisfy(self, filters: Iterable[Filter]) -> bool:
        """Return whether the event satisfies one of some filters."""
        return any(map(self._satisfy, filters))

    def every(self, name: str) -> list[object]:
        """Return all values of an attribute."""
        return [value for value, _ in self.placed(name)]

    def placed(self, name: str) -> list[tuple[object, str]]:
        """Return all values of an attribute, with their places in the event as in `View.element`."""
        if not self._below((name,)):
            value = self._row.get(name)
            return [] if is_missing(value) else [(value, "")]
        found = self._choices(frozenset((name,)), distinct=True)
        source = self._sources.get(name, name)
        return [(one.values[name], _element(one, source)) for one in found if one.values]

    def views(self, own: Filter) -> Iterator[View]:
        """Yield the choices of elements for a filter, at least one."""
        tests = [test for test in own.constraints if not isinstance(test, Quantified)]
        names = list(dict.fromkeys(name for test in tests for name in test.attributes))
        nulls = {test.attributes[0] for test in tests if is_null(test)}
        needed = {name for test in tests if not is_null(test) for name in test.attributes}
        inside = self._below(names)
        fixed = {name: self._row[name] for name in (NOW, *names) if name not in inside and name in self._row}
        if not nulls & inside:  # choices with equal values count as one
            for one in self._choices(inside, distinct=True):
                row = Chosen(fixed | one.values, self.every)
                yield View(row, dict.fromkeys(one.values, one), self)
            return
        there = {name: self._having(name) for name in nulls & inside}
        for one in self._choices(inside & needed):
            chosen = dict.fromkeys(one.values, one)
            for name, others in there.items():
                agreeing = next((other for other in others if _agree(one, other)), None)
                if agreeing is not None:
                    chosen.setdefault(name, agreeing)
            row = Chosen(fixed | {name: by.values[name] for name, by in chosen.items()}, self.every)
            yield View(row, chosen, self)

    def _having(self, name: str) -> list[Choice]:
        """Return the choices in which an attribute has a value."""
        return [one for one in self._choices(frozenset((name,))) if one.values]

    def _satisfy(self, own: Filter) -> bool:
        quantified = [test for test in own.constraints if isinstance(test, Quantified)]
        if quantified and not all(test.matches(Chosen({}, self.every)) for test in quantified):
            return False
        nulls = {test.attributes[0] for test in own.constraints if is_null(test)}
        others = Filter(
            tuple(test for test in own.constraints if not (is_null(test) or isinstance(test, Quantified)))
        )
        names = frozenset(name for test in others.constraints for name in test.attributes)
        inside = self._below([*nulls, *names])
        if any(self._row.get(name) is not None for name in nulls - inside):
            return False
        there = [one for name in nulls & inside for one in self._having(name)]
        fixed = {name: self._row.get(name) for name in (NOW, *(names - inside))}
        return any(
            others.matches(fixed | one.values if fixed else one.values)
            and not any(_agree(one, other) for other in there)
            for one in self._choices(names & inside, distinct=not nulls & inside)
        )

    def _choices(self, names: frozenset[str], distinct: bool = False) -> list[Choice]:
        """Return all choices for some attributes; `distinct` merges choices with equal values."""
        found = self._known.get((names, distinct))
        if found is None:
            found = self._known[names, distinct] = self._read(names, distinct)
        return found

    def _read(self, names: frozenset[str], distinct: bool) -> list[Choice]:
        fields = self._fields
        if not fields.further:
            return choices(self._lists, names, distinct=distinct)
        sources = fields.sources(names)
        found = choices(self._lists, sources, distinct=distinct, nullable=fields.nullable & sources)
        return [one._replace(values=_present(fields.completed(one.values), names)) for one in found]

    def _below(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names whose values come from lists."""
        return frozenset(name for name in names if below(self._lists, (self._sources.get(name, name),)))


def _present(row: Mapping[str, object], names: Container[str]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name in names and not is_missing(value)}


def is_null(test: Test) -> bool:
    """Return whether a constraint requires an attribute to be missing."""
    return isinstance(test, Constraint) and test.operator == "is null"


def _agree(one: Choice, other: Choice) -> bool:
    """Return whether two choices take the same element of each list that both choose from."""
    return all(one.places.get(own, index) == index for own, index in other.places.items())


Event = Mapping[str, object] | Elements
"""A flat event, as `EventTable.row` gives it, or one with lists."""


def events_of(table: EventTable) -> list[Event]:
    """Return the events of a table one by one. An event with one choice is flat: it is that choice."""
    found = table.choices
    if found is None:
        return [table.row(row) for row in range(len(table))]
    events: list[Event] = []
    searched = table.searched
    for row, (first, end) in enumerate(pairwise(found.offsets.tolist())):
        lists = found.lists[row]
        if lists is None or end - first == 1:
            events.append(searched.row(first))
        else:
            events.append(Elements(table.row(row), lists, table.fields))
    return events


def event_of(event: Mapping[str, object], names: frozenset[str], fields: Fields | None) -> Event:
    """Return an event with objects and lists, as some attributes see it; it is flat if it has no lists.

    `fields` has the attributes of the schema; None without a schema.
    """
    if fields is None:
        fields = _NONE
    values, lists = flatten(event, fields.sources(names))
    row = _present(fields.completed(values) if fields.further else values, names)
    if NOW in event:
        row[NOW] = event[NOW]
    return Elements(row, lists, fields) if lists else row
