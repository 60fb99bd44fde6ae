"""Covering and intersection of two predicates (docs/covering.md).

A predicate *covers* another one if every event that satisfies the other satisfies it too. Filters are
products of sets (`rtfilter.predicates.covers.sets`). All filters of the outer predicate are cut out of each
filter of the inner one, one after the other. If nothing is left, the inner predicate is covered. Else events
from the rest are tried: an event that satisfies only the inner predicate shows that it is not covered.
Without such an event, the answer is unknown.

For an event without lists, a quantified constraint means the same as its constraints. If a predicate covers
another one for such events, its constraints on lists must follow as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rtfilter.basics.errors import PredicateError
from rtfilter.events.schema import Schema
from rtfilter.predicates.boxes.narrowing import lowered
from rtfilter.predicates.covers.sets import Cell, MixedError, Space, asks_for_aspects
from rtfilter.predicates.model.combine import Filters, all_of, any_of
from rtfilter.predicates.model.constraints import Filter, Quantified, Test
from rtfilter.predicates.model.disjunction import Disjunction, asks_for_every

MAX_WORK: Final = 20_000
"""Most operations on sets for one question; an operation on a set of many values counts several times.

If that is not enough, the answer is unknown.
"""
MOST_CELLS: Final = 8
"""Cells of the rest that are tried for events."""
MOST_EVENTS: Final = 256
"""Events that are tried for one cell."""
_ASKED: Final = 4
"""Cells of a predicate in which events in opposite corners are searched."""
_WIDE: Final = 8
"""Spans of a set that count for one operation."""


class Verdict(NamedTuple):
    """The answer to the question whether one predicate covers another one."""

    covers: bool | None
    """None if it is not known."""
    event: dict[str, Any] | None = None
    """If False, a flat event that satisfies only the other predicate."""


class Question:
    """A predicate that is compared with many others.

    Parameters
    ----------
    predicate : Disjunction
        A predicate that was checked against `schema`.
    schema : Schema

    Attributes
    ----------
    predicate : Disjunction
    events : list of dict
        A few flat events that satisfy it, far apart if such are easy to find; empty if none is known.
    empty : bool
        Whether certainly no event satisfies it.
    listed : bool
        Whether it has quantified constraints: maybe only events with lists satisfy it.
    """

    def __init__(self, predicate: Disjunction, schema: Schema) -> None:
        self.predicate, self._schema = predicate, schema
        self.listed = asks_for_every(predicate)
        asked = predicate
        if self.listed:
            try:
                asked = _flat(predicate)
            except PredicateError:  # too many filters
                asked = replace(predicate, filters=())
        self._space = Space(schema, (asked,))
        self._cells = self._space.cells(asked)
        self._parts = [split for cell in self._cells for split in self._space.grounded(cell)]
        self.empty = not (self._parts or self.listed)
        self.events: list[dict[str, Any]] = []
        for cell in self._parts[:_ASKED]:
            corners = map(self._space.real, self._space.corners(cell))
            self.events += [event for event in corners if predicate.satisfied_by(event)]
        if not self.events:
            found = _event(self._space, self._parts, predicate.satisfied_by)
            self.events = [] if found is None else [found]

    def covered_by(self, other: Disjunction) -> Verdict:
        """Return whether another predicate, checked against the same schema, covers this one."""
        if self.listed or asks_for_aspects(other):
            return judge(other, self.predicate, self._schema)
        return _judged(self._space, self._space.cells(other), self._parts, other, self.predicate)

    def covers(self, other: Disjunction) -> Verdict:
        """Return whether this predicate covers another one, checked against the same schema."""
        if self.listed or asks_for_aspects(other):
            return judge(self.predicate, other, self._schema)
        parts = [split for cell in self._space.cells(other) for split in self._space.grounded(cell)]
        return _judged(self._space, self._cells, parts, self.predicate, other)


def judge(outer: Disjunction, inner: Disjunction, schema: Schema | None) -> Verdict:
    """Return whether every event that satisfies `inner` satisfies `outer`.

    Both must have been checked against the schema, if there is one.
    """
    if not (asks_for_every(outer) or asks_for_every(inner)):
        return _judge(outer, inner, schema)
    try:
        verdict = _judge(_flat(outer), _flat(inner), schema)
        if verdict.covers and not all(_covers_lists(outer, own, schema) for own in inner.filters):
            return Verdict(None)
    except PredicateError:  # too many filters
        return Verdict(None)
    return verdict


def _flat(predicate: Disjunction) -> Disjunction:
    """Return the meaning of a predicate for events without lists."""
    parts = [all_of([_of_one(test) for test in own.constraints]) for own in predicate.filters]
    return replace(predicate, filters=any_of(parts))


def _of_one(test: Test) -> Filters:
    """Return the meaning of a constraint for events without lists: a quantified one applies to the value."""
    if not isinstance(test, Quantified):
        return (Filter((test,)),)
    return (Filter(test.tests),) if test.quantifier == "any" else tuple(Filter((own,)) for own in test.tests)


def _covers_lists(outer: Disjunction, own: Filter, schema: Schema | None) -> bool:
    """Return whether a conjunction with quantified constraints certainly implies a predicate."""
    usable = []
    for conjunction in outer.filters:
        asked = [test for test in conjunction.constraints if isinstance(test, Quantified)]
        if all(_follows(test, own, outer, schema) for test in asked):
            usable.append(Filter(tuple(test for test in conjunction.constraints if test not in asked)))
    chosen = replace(outer, filters=tuple(lowered(own)[0]))
    return bool(_judge(replace(outer, filters=tuple(usable)), chosen, schema).covers)


def _follows(test: Quantified, own: Filter, of: Disjunction, schema: Schema | None) -> bool:
    """Return whether a conjunction certainly implies a quantified constraint."""
    given = [
        one for one in own.constraints if isinstance(one, Quantified) and one.attribute == test.attribute
    ]
    if test in given:
        return True
    every = [_of_one(one) for one in given if one.quantifier == "all"]
    known = [all_of(every)] if every else []  # filters that some element satisfies; for `all`, each element
    if test.quantifier == "any":
        known += [all_of([_of_one(one), *every]) for one in given if one.quantifier == "any"]
        known.append(tuple(lowered(own)[0]))
    wanted = replace(of, filters=_of_one(test))
    return any(_judge(wanted, replace(of, filters=one), schema).covers for one in known)


def _judge(outer: Disjunction, inner: Disjunction, schema: Schema | None) -> Verdict:
    try:
        space = Space(schema, (outer, inner))
    except MixedError:
        return Verdict(None)
    parts = [split for cell in space.cells(inner) for split in space.grounded(cell)]
    return _judged(space, space.cells(outer), parts, outer, inner)


def _judged(
    space: Space, cutters: Sequence[Cell], parts: Sequence[Cell], outer: Disjunction, inner: Disjunction
) -> Verdict:
    known, work = True, _Work()
    for part in parts:
        left = _remainder(space, part, cutters, work)
        if left is None:
            left = [part]
        elif not left:
            continue
        event = _event(space, left, lambda row: inner.satisfied_by(row) and not outer.satisfied_by(row))
        if event is not None:
            return Verdict(False, event)
        known = False
    return Verdict(True if known else None)


def intersects(one: Disjunction, two: Disjunction, schema: Schema | None) -> bool | None:
    """Return whether an event without lists can satisfy both; None if that is not known. See `judge`."""
    try:
        one, two = (_flat(given) if asks_for_every(given) else given for given in (one, two))
        space = Space(schema, (one, two))
    except (MixedError, PredicateError):
        return None
    known, work = True, _Work()
    others = space.cells(two)
    for cell in space.cells(one):
        for other in others:
            both = _common(cell, other)
            if not work.spend(both or cell):
                return None
            parts = [] if both is None else space.grounded(both)
            if _event(space, parts, lambda row: one.satisfied_by(row) and two.satisfied_by(row)) is not None:
                return True
            known = known and not parts
    return False if known else None


class _Work:
    """The remaining number of operations for one question."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, cell: Cell) -> bool:
        """Count an operation on a cell; return False if there were too many."""
        self._left -= sum([1 + len(values.spans) // _WIDE for values in cell.values()]) + 1
        return self._left >= 0


def _remainder(space: Space, cell: Cell, cutters: Sequence[Cell], work: _Work) -> list[Cell] | None:
    """Return the rest of a cell after some cells are cut out; None if that is too much work."""
    left = [cell]
    for cutter in cutters:
        kept: list[Cell] = []
        for piece in left:
            if not work.spend(piece) or not work.spend(cutter):
                return None
            kept += _cut(space, piece, cutter)
        left = kept
        if not left:
            break
    return left


def _cut(space: Space, cell: Cell, cutter: Cell) -> list[Cell]:
    """Return the rest of a cell after another is cut out: at most one piece for each set of the cutter."""
    inside, pieces = cell, []
    for key, values in cutter.items():
        own = cell.get(key) or space.anything(key)
        shared = own.common(values)
        if not shared.some:
            return [cell]
        outside = own.less(values)
        if outside.some:
            pieces.append({**inside, key: outside})
            inside = {**inside, key: shared}
    return pieces


def _common(one: Cell, two: Cell) -> Cell | None:
    """Return the intersection of two cells; None if it is empty."""
    both = dict(one)
    for key, values in two.items():
        if key in both:
            values = both[key].common(values)
            if not values.some:
                return None
        both[key] = values
    return both


def _event(
    space: Space, cells: Sequence[Cell], wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any] | None:
    """Return a wanted event in some cells; None if none is found."""
    events = (space.real(event) for cell in cells[:MOST_CELLS] for event in space.events(cell, MOST_EVENTS))
    return next(filter(wanted, events), None)
