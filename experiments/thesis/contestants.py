"""The contestants of the thesis's benchmark: the thesis's own algorithms, and ours beside them.

Those of `PYTHON` are alike: objects of Python, one event after the other. Those of `COMPILED` run machine
code over arrays. Times are compared within each of the two, never across.
"""

from __future__ import annotations

import tracemalloc
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np

from experiments.thesis.workload import SCHEMA
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.port import Matcher, Takes
from rtfilter.matchers.registry import Factory, make_matcher
from rtfilter.matchers.rtree import RTreeMatcher
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate


class LeanCounting(EventwiseMatcher):
    """Counts in flat lists."""

    takes = Takes(operators=frozenset(("<",)), families=frozenset(("number",)), boxes=False)
    unit = "increments"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._constants: dict[str, list[float]] = {field.name: [] for field in schema.fields}
        self._filters: dict[str, list[int]] = {field.name: [] for field in schema.fields}
        self._needed: list[int] = []
        self._ids: list[int] = []

    def _insert(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`."""
        number = len(self._needed)
        for constraint in filter.constraints:
            assert isinstance(constraint, Constraint)
            constants = self._constants[constraint.attribute]
            place = bisect_right(constants, constraint.value)
            constants.insert(place, constraint.value)
            self._filters[constraint.attribute].insert(place, number)
        self._needed.append(len(filter.constraints))
        self._ids.append(id)

    def _delete(self, id: int, filter: Filter) -> None:
        """Raise `NotImplementedError`: the original cannot delete, either."""
        raise NotImplementedError("the lean counting cannot unsubscribe: make a new one")

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        """See `EventwiseMatcher`; operations are increments."""
        counts = [0] * len(self._needed)
        needed, ids = self._needed, self._ids
        found: set[int] = set()
        increments = 0
        for name, value in event.values.items():
            satisfied = self._filters[name][bisect_right(self._constants[name], value) :]
            increments += len(satisfied)
            for number in satisfied:
                counts[number] = reached = counts[number] + 1
                if reached == needed[number]:
                    found.add(ids[number])
        return found, increments


FOUR: Final[Mapping[str, Factory]] = {
    "MT": "matching-tree",
    "CAM": "shared-counting",
    "CAS": "shared-counting-filters",
    "lean": LeanCounting,
}
"""The algorithms of the thesis, in its order; lean stands where Siena stood."""
PYTHON: Final[Mapping[str, Factory]] = {**FOUR, "stamped": "shared-counting-stamped", "naive": "naive"}
"""All that are objects of Python."""
SMALL: Final = "10 and 20"
"""The R*-tree with the nodes of Wang et al."""
COMPILED: Final[Mapping[str, Factory]] = {
    "counting": "counting",
    "R*-tree": "rtree",
    SMALL: partial(RTreeMatcher, capacity=(10, 20)),
}
"""All that are machine code over arrays."""
AT_ONCE: Final = frozenset(("counting",))
"""Made of all subscriptions at once, where only their matching is of interest: one by one takes long."""


def made(factory: Factory, predicates: Sequence[Predicate], at_once: bool = False, **options: Any) -> Matcher:
    """Return a matcher of subscriptions 0, 1, ..., which came one by one unless they come at once."""
    matcher = make_matcher(factory, SCHEMA, **options)
    if at_once:
        matcher.add(Filters.of_predicates(SCHEMA, predicates))
    else:
        for id in range(len(predicates)):
            matcher.add(_one(predicates, id))
    return matcher


def _one(predicates: Sequence[Predicate], id: int) -> Filters:
    return Filters.of_predicates(SCHEMA, predicates[id : id + 1], np.array([id]))


def repeated(matcher: Matcher, event: EventTable, times: int) -> Callable[[], None]:
    """Return a call that matches one event again and again, as the thesis does."""

    def call() -> None:
        for _ in range(times):
            matcher.match(event)

    return call


def cost(name: str, factory: Factory, predicates: Sequence[Predicate], seed: int) -> dict[str, Any]:
    """Return the costs of subscriptions: microseconds each to subscribe and unsubscribe, and bytes.

    Bytes are those of Python's objects as `tracemalloc` counts them, or, of arrays, those that the matcher
    tells; the predicates themselves are not among them. They are unsubscribed in random order.
    """
    each = [_one(predicates, id) for id in range(len(predicates))]
    matcher = make_matcher(factory, SCHEMA)
    begun = perf_counter()
    for one in each:
        matcher.add(one)
    found: dict[str, Any] = {"subscribe_us": 1e6 * (perf_counter() - begun) / len(each)}
    stats = matcher.stats()
    found["height"] = stats.get("depth", stats["height"])
    found["nodes"] = sum(stats.get("nodes_per_level", [stats.get("test_nodes", 0)]))
    found["bytes"] = stats["bytes"] / len(each) if name in COMPILED else memory(factory, predicates)
    if name != "lean":  # lean cannot unsubscribe
        gone = np.random.default_rng(seed).permutation(len(each))
        begun = perf_counter()
        for id in gone:
            matcher.remove(np.array([id]))
        found["unsubscribe_us"] = 1e6 * (perf_counter() - begun) / len(each)
    return found


def memory(factory: Factory, predicates: Sequence[Predicate], **options: Any) -> float:
    """Return bytes of Python's objects per subscription."""
    filters = Filters.of_predicates(SCHEMA, predicates)
    tracemalloc.start()
    try:
        matcher = make_matcher(factory, SCHEMA, **options)
        matcher.add(filters)
        return tracemalloc.get_traced_memory()[0] / len(matcher)
    finally:
        tracemalloc.stop()
