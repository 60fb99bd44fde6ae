"""A check that a matcher keeps the promises of the port, for authors of matchers.

>>> from rtfilter.matchers import check_matcher
>>> check_matcher("counting")
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Attribute, Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import FAMILIES, Matcher, Resumable, Savable, Takes, refuse_untaken
from rtfilter.matchers.registry import Factory, factory_of, name_of
from rtfilter.predicates.model.comparison import RELATIONS, Comparison
from rtfilter.predicates.model.constraints import (
    OPERATORS_OF,
    PRESENCE,
    SETS,
    Constraint,
    Filter,
    Quantified,
    Test,
)
from rtfilter.predicates.operands.expressions import ARITHMETIC, Operation
from rtfilter.predicates.operands.text_operators import TEXT_OPERATORS
from rtfilter.predicates.predicate import Predicate

#: Attributes of the random events and subscriptions that matchers are checked with.
ATTRIBUTES: dict[str, type | Attribute] = {
    "x": float, "n": int, "d": Attribute(float, low=0, high=2), "s": str, "b": bool, "t": datetime,
}  # fmt: skip
#: Values of constants and, within their domains, of events: equal ones, neighbours, ones that share a prefix
#: or a code, and both ends of a domain.
VALUES: dict[str, list[Any]] = {
    "number": [-3, -1, 0, 0.5, 1, 2, 2**53, 2**53 + 1, 1e18],
    "str": ["", "a", "ab", "AB", "abcdefg", "abcdefh", "é", "z", "10.1.2.3"],
    "bool": [False, True],
    "timestamp": [datetime(2020, 1, day) for day in (1, 2, 3)],
}


def check_matcher(matcher: Factory, seed: int = 0, rounds: int = 8) -> None:
    """Check a matcher on random subscriptions and events against brute force.

    The check covers: matches, also after removals and additions; ids and content; the estimate; levels, if it
    is `Resumable`; arrays, if it is `Savable`; threads, if it takes them; and the refusal of predicates that
    it does not take.

    Parameters
    ----------
    matcher : str or callable
        A name in `MATCHERS`, or a callable that makes a matcher for a schema.
    seed : int
        Seed of the random subscriptions and events.
    rounds : int
        Changes, with a batch of events after each.

    Raises
    ------
    AssertionError
        The matcher breaks a promise; the message says which.
    """
    world = _World(matcher, np.random.default_rng(seed))
    world.compare("without subscriptions")
    for step in range(rounds):
        world.add(30)
        world.compare(f"after additions {step}")
        world.remove(10 if step < rounds - 1 else len(world.predicates))
        world.compare(f"after removals {step}")
    world.add(40)
    world.check_refusals()
    world.check_content()
    world.check_arrays()
    if world.made.takes.threads:
        world.check_threads()


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


class _World:
    """A matcher, and the correct answers to compare it with."""

    def __init__(self, matcher: Factory, rng: np.random.Generator) -> None:
        self.rng, self.name, self.factory = rng, name_of(matcher), factory_of(matcher)
        first = self.factory(Schema({"x": float})).takes
        _require(first.families <= FAMILIES, f"unknown families {sorted(first.families - FAMILIES)}")
        attributes = {name: kind for name, kind in ATTRIBUTES.items() if _family(name) in first.families}
        self.schema = Schema(attributes)
        self.made = self.factory(self.schema)
        self.predicates: dict[int, Predicate] = {}
        self.next_id = 0

    @property
    def takes(self) -> Takes:
        """The operators, types and changes that the matcher declares to take."""
        return self.made.takes

    def constraint(self) -> Constraint | None:
        """Draw a constraint that the matcher takes; None if it takes none for the drawn attribute."""
        name = str(self.rng.choice(self.schema.names))
        values = VALUES[_family(name)]
        taken = [operator for operator in _operators(name) if operator in self.takes.operators]
        if not taken:
            return None
        operator = taken[self.rng.integers(len(taken))]
        chosen = [values[i] for i in self.rng.integers(len(values), size=2)]
        return Constraint(name, operator, _constant(operator, chosen))

    def comparison(self) -> Comparison | None:
        """Draw a comparison that the matcher takes; None if it takes none for the drawn attributes."""
        left, right = (str(name) for name in self.rng.choice(self.schema.names, size=2))
        operator, family = str(self.rng.choice(list(RELATIONS))), _family(left)
        taken = operator in self.takes.operators and (self.takes.boxes or self.takes.comparisons)
        if not taken or _family(right) != family or (family == "bool" and operator not in ("=", "<>")):
            return None
        if family == "number" and self.rng.random() < 0.5:
            sign = str(self.rng.choice(list(ARITHMETIC)))
            return Comparison(Operation(sign, left, int(self.rng.integers(3))), operator, right)
        return Comparison(left, operator, right, family)

    def quantified(self) -> Quantified | None:
        """Draw a quantified constraint that the matcher takes; None if the drawn constraint cannot be one."""
        inner = self.constraint()
        if inner is None or inner.operator in PRESENCE or not (self.takes.boxes or self.takes.comparisons):
            return None
        return Quantified(str(self.rng.choice(["any", "all"])), [inner])

    def predicate(self) -> Predicate:
        """Draw a predicate; a few match all events, or none."""
        filters = []
        for _ in range(self.rng.choice([0, 1, 1, 1, 2, 3])):
            drawn: list[Test | None] = [self.constraint() for _ in range(self.rng.integers(0, 4))]
            if self.rng.random() < 0.1:
                drawn.append(self.comparison())
            if self.rng.random() < 0.1:
                drawn.append(self.quantified())
            filters.append(Filter(tuple(one for one in drawn if one is not None)))
        return Predicate(tuple(filters))

    def events(self, count: int) -> EventTable:
        """Draw events.

        If the matcher takes such events, some lack attributes or have values of another type.
        """
        found, values_of = [], {name: _values(name) for name in self.schema.names}
        for _ in range(count):
            event = {}
            for name, values in values_of.items():
                if self.takes.missing and self.rng.random() < 0.2:
                    continue
                event[name] = values[self.rng.integers(len(values))]
                if self.takes.missing and self.rng.random() < 0.05:
                    event[name] = [1, "text"][name != "s"]
            found.append(event)
        return self.schema.read(found)

    def add(self, count: int) -> None:
        """Add subscriptions, some with predicates that exist already."""
        drawn = [self.predicate() for _ in range(count)]
        known = list(self.predicates.values())
        drawn[: min(3, len(known))] = known[:3]
        names = self.next_id + self.rng.permutation(count).astype(np.int64)
        self.next_id += count
        self.made.add(Filters.of_predicates(self.schema, drawn, names))
        self.predicates.update(zip(names.tolist(), drawn, strict=True))
        self.made.add(Filters.of_predicates(self.schema, []))

    def remove(self, count: int) -> None:
        """Remove some known ids, one of them twice, and an unknown one."""
        held = [id for id in self.predicates if id in self.made]
        gone = self.rng.permutation(np.array(held, np.int64))[:count]
        for id in set(self.predicates) - set(held) if count >= len(self.predicates) else ():
            del self.predicates[id]  # matches nothing, so the matcher may have left it out
        named = np.concatenate([gone, gone[:1], [self.next_id]])
        known = self.made.remove(named)
        expected = [True] * len(gone) + [False] * (len(named) - len(gone))
        _require(known.tolist() == expected, "remove() does not return which ids were known")
        for id in gone.tolist():
            del self.predicates[id]
            _require(id not in self.made, f"id {id} is still known after its removal")

    def compare(self, when: str, matcher: Matcher | None = None, events: EventTable | None = None) -> None:
        """Compare all ways to match with brute force."""
        made = self.made if matcher is None else matcher
        table = self.events(40) if events is None else events
        rows = [table.row(row) for row in range(len(table))]
        expected = [{id for id, one in self.predicates.items() if one.matches(row)} for row in rows]
        self._compare(made.match(table), table, expected, when)
        self._compare(made.match(table.take(np.empty(0, np.int64))), table, [], f"{when}, without events")
        workload = made.workload(table)
        _require(workload.dtype == np.int64 and workload.shape == (len(table),), "workload() is int64 (n,)")
        idle = [expected[row] for row in np.flatnonzero(workload <= 0).tolist()]
        _require(not any(idle), f"{when}: an event of workload 0 has matches")
        if isinstance(made, Resumable):
            self._compare_levels(made, table, expected, when)

    def _compare_levels(
        self, made: Resumable, table: EventTable, expected: list[set[int]], when: str
    ) -> None:
        order = self.rng.permutation(len(table))
        cuts = np.array([0, 0, len(table) // 3, len(table)])
        for level in range(made.height + 1):
            parts = made.frontier(table, level).split(order, cuts)
            for group in range(len(cuts) - 1):
                rows = order[cuts[group] : cuts[group + 1]]
                wanted = [expected[row] for row in rows.tolist()]
                self._compare(made.resume_part(parts, group), table, wanted, f"{when}, level {level}", rows)

    def _compare(
        self,
        hits: Hits,
        table: EventTable,
        expected: list[set[int]],
        when: str,
        rows: IntArray | None = None,
    ) -> None:
        _require(len(hits.offsets) == len(expected) + 1, f"{when}: offsets are int64 (n + 1,)")
        _require(len(hits.visits) == len(expected), f"{when}: visits are int64 (n,)")
        exact = np.ones(len(hits.ids), np.uint8) if hits.exact is None else hits.exact
        for event, ids in enumerate(expected):
            start, stop = hits.offsets[event], hits.offsets[event + 1]
            own = hits.ids[start:stop].tolist()
            _require(len(set(own)) == len(own), f"{when}: an id occurs twice for event {event}")
            values = table.row(int(event if rows is None else rows[event]))
            kept = {
                id
                for id, sure in zip(own, exact[start:stop], strict=True)
                if sure or self.predicates[id].matches(values)
            }
            _require(
                kept == ids,
                f"{when}: event {values} matches {sorted(ids)} by brute force, but {sorted(kept)} here",
            )

    def check_refusals(self) -> None:
        """Check that the port refuses exactly the predicates that the matcher does not take."""
        refuse_untaken(self.name, self.takes, self.predicates.values(), self.schema)
        everything = Schema(ATTRIBUTES)
        for name in ATTRIBUTES:
            for operator in _operators(name):
                values = VALUES[_family(name)][:2]
                one = Constraint(name, operator, _constant(operator, values))
                if one.operator in self.takes.operators and _family(name) in self.takes.families:
                    continue
                try:
                    refuse_untaken(self.name, self.takes, [Predicate((Filter((one,)),))], everything)
                except PredicateError:
                    continue
                raise AssertionError(f"{one} is not refused")

    def check_content(self) -> None:
        """Check that another matcher, built from the content of this one, finds the same matches."""
        held = [id for id in self.predicates if id in self.made]
        _require(self.made.ids().tolist() == sorted(held), "ids() does not return the known ids, ascending")
        _require(len(self.made) == len(held), "len() is not the number of ids")
        json.dumps([self.made.stats(), dict(self.made.options)])
        _require({"bytes", "unit"} <= self.made.stats().keys(), "stats() has no bytes or no unit")
        other = self.factory(self.schema, **self.made.options)
        other.add(self.made.content())
        self.compare("built from content()", other)
        some = self.factory(self.schema, **self.made.options)
        some.add(self.made.content(held[:5]))
        _require(some.ids().tolist() == sorted(held[:5]), "content(ids) is not the content of these ids")

    def check_arrays(self) -> None:
        """Check that the arrays of the matcher make an equal matcher."""
        if isinstance(self.made, Savable):
            arrays = {name: np.array(array) for name, array in self.made.to_arrays().items()}
            self.compare("from arrays", type(self.made).from_arrays(self.schema, arrays))

    def check_threads(self) -> None:
        """Check that several threads get the same answers as one."""
        batches = [self.events(30) for _ in range(16)]
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(self.made.match, batches))
        for batch, hits in zip(batches, answers, strict=True):
            alone = self.made.match(batch)
            same = (np.diff(alone.offsets) == np.diff(hits.offsets)).all()
            _require(bool(same), "threads that match at the same time get other answers than one")


def _constant(operator: str, values: list[Any]) -> Any:
    """Return a constant for an operator, made from some values."""
    if operator in SETS:
        return values
    if "like" in operator:
        return f"%{values[0]}_%"
    own = TEXT_OPERATORS.get(operator.removeprefix("not "))
    return own.function.example if own is not None and own.function is not None else values[0]


def _operators(name: str) -> tuple[str, ...]:
    return *OPERATORS_OF[_family(name)], "is null", "exists"


def _values(name: str) -> list[Any]:
    """Return the values of an attribute within its domain."""
    attribute = Schema(ATTRIBUTES).attributes[name]
    low, high = attribute.low, attribute.high
    return [one for one in VALUES[attribute.family] if low is None or low <= one <= high]


def _family(name: str) -> str:
    return Schema(ATTRIBUTES).attributes[name].family
