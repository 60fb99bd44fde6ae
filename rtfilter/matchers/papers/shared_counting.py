"""Counting with shared predicates, filters and constraints: the full Counting algorithm of Novák (2013).

An event's values find the constraints that they satisfy; each constraint adds one to the counter of each of
its filters; a filter whose counter reaches the number of its constraints is satisfied, and with it all its
predicates and their subscriptions. The matcher `counting` is the lean one, with boxes in flat arrays.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final, Literal

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.papers.operator_indexes import Collections, ConstraintIndex
from rtfilter.matchers.papers.relations import Relations, StoredFilter
from rtfilter.predicates.model.constraints import Filter


class Counters(ABC):
    """The number of its constraints that an event satisfies, for each filter."""

    threads: ClassVar[bool] = True
    """True if several threads may count at once."""

    @abstractmethod
    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        """Return the filters whose constraints are all satisfied, and the number of increments.

        `satisfied` has the constraints that an event satisfies, each once. All numbers of filters are below
        `size`.
        """


class _MapCounters(Counters):
    """A map that exists during one match ("multicore")."""

    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        counts: dict[Hashable, int] = {}
        full, increments = [], 0
        for constraint in chain.from_iterable(satisfied):
            increments += len(constraint.filters)
            for one in constraint.filters:
                counts[one.counted] = reached = counts.get(one.counted, 0) + 1
                if reached == one.needed:
                    full.append(one)
        return full, increments


class _FilterCounters(Counters):
    """A counter in each filter, set to zero after each match ("singlecore").

    Counters of an interrupted match are set to zero before the next match.
    """

    threads: ClassVar[bool] = False

    def __init__(self) -> None:
        self._touched: list[StoredFilter] = []

    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        self._reset()
        touched = self._touched
        full, increments = [], 0
        for constraint in chain.from_iterable(satisfied):
            increments += len(constraint.filters)
            for one in constraint.filters:
                if not one.count:
                    touched.append(one)
                one.count += 1
                if one.count == one.needed:
                    full.append(one)
        self._reset()
        return full, increments

    def _reset(self) -> None:
        for one in self._touched:
            one.count = 0
        self._touched.clear()


class _Own(threading.local):
    """The arrays of a thread, by number of the filter."""

    def __init__(self) -> None:
        self.epoch = 0
        self.stamps: list[int] = []
        self.counts: list[int] = []


class _StampedCounters(Counters):
    """Arrays of each thread, never set to zero: a counter is valid only with the stamp of its match.

    The thesis rejected arrays, because numbers become sparse when filters are removed. Here the numbers of
    removed filters are used again, so an array is as long as the most filters at once. A filter with the
    number of an older one is safe: the old stamp is of an older match.
    """

    def __init__(self) -> None:
        self._own = _Own()

    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        own = self._own
        own.epoch = epoch = own.epoch + 1
        stamps, counts = own.stamps, own.counts
        for array in (stamps, counts):  # each by its own length: an interrupt may come in between
            array.extend([0] * (size - len(array)))
            del array[size:]
        full, increments = [], 0
        for constraint in chain.from_iterable(satisfied):
            increments += len(constraint.filters)
            for one in constraint.filters:
                number = one.number
                reached = counts[number] + 1 if stamps[number] == epoch else 1
                # The counter comes first: an interrupt then never leaves a stamp without its counter.
                counts[number] = reached
                stamps[number] = epoch
                if reached == one.needed:
                    full.append(one)
        return full, increments


COUNTERS: Final[dict[str, type[Counters]]] = {
    "map": _MapCounters,
    "filters": _FilterCounters,
    "stamped": _StampedCounters,
}
"""Each layout by name."""


class SharedCountingMatcher(EventwiseMatcher):
    """Counts satisfied constraints; fast if few are satisfied, and many are equal.

    Operators without an index (``<>``, ``like``, comparisons and others) are tried once an event for each
    distinct constraint; the increments do not count these.

    Parameters
    ----------
    schema : Schema
    counters : {"map", "filters", "stamped"}
        The place of the counters: a map for each match, for any number of threads; the filters, for one
        thread, in 2/3 of the time according to the thesis; or arrays with stamps, for each thread.
    share : bool
        Whether equal predicates, filters and constraints are stored once. The thesis expects less memory and
        slightly more speed. Without it, each of several equal subscriptions has its own counters.
    keys : {"id", "content"}
        The key of a filter in a map: a unique integer, or its constraints. The thesis found integers
        noticeably faster, even with hashes computed in advance, as here.
    merged : bool
        Whether the found constraints become one collection before they are counted, or stay in the
        collections of the indexes. The thesis found merging slower.

    Notes
    -----
    Visits are increments: for each stored filter, the number of its constraints that an event satisfies.
    Equal constraints of a filter count once, and so do a ``>=`` and a ``<=`` of one attribute.
    """

    unit = "increments"

    def __init__(
        self,
        schema: Schema,
        *,
        counters: Literal["map", "filters", "stamped"] = "map",
        share: bool = True,
        keys: Literal["id", "content"] = "id",
        merged: bool = False,
    ) -> None:
        super().__init__(schema)
        if counters not in COUNTERS:
            raise ValueError(f"counters are one of {', '.join(COUNTERS)}, not {counters!r}")
        if keys not in ("id", "content"):
            raise ValueError(f"keys are one of id, content, not {keys!r}")
        if keys == "content" and counters != "map":
            raise ValueError(f"only counters in a map have keys; counters={counters!r} needs keys='id'")
        self.options = {"counters": counters, "share": share, "keys": keys, "merged": merged}
        self._counters = COUNTERS[counters]()
        self.takes = self.takes._replace(threads=self._counters.threads)
        self._merged = merged
        self._index = ConstraintIndex()
        self._relations = Relations(self._index, share, keys == "content")

    def _insert(self, id: int, filter: Filter) -> None:
        self._relations.attach(id, self._known[id].filters, filter)

    def _delete(self, id: int, filter: Filter) -> None:
        """Remove all filters of the subscription, at its first one."""
        self._relations.detach(id)

    def _find(self, event: FlatEvent) -> tuple[set[int], int]:
        satisfied: Collections = self._index.satisfied(event)
        if self._merged:
            satisfied = [list(chain.from_iterable(satisfied))]
        full, increments = self._counters.count(satisfied, self._relations.size)
        return self._relations.found(chain(full, self._relations.always)), increments

    def details(self) -> dict[str, Any]:
        """Return the numbers of stored objects, and of constraints that each event tries."""
        return {
            "stored_predicates": len(self._relations.predicates),
            "stored_filters": len(self._relations.filters),
            "stored_constraints": len(self._relations.constraints),
            "tried": self._index.tried,
        }


CountingInFilters: Final = partial(SharedCountingMatcher, counters="filters")
"""With counters in the filters."""
CountingWithStamps: Final = partial(SharedCountingMatcher, counters="stamped")
"""With counters in arrays with stamps."""
