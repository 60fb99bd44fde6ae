"""Counting with shared predicates, filters and constraints: the full Counting algorithm of Novák (2013).

An event's values find the constraints that they satisfy; each constraint adds one to the counter of each of
its filters; a filter whose counter reaches the number of its constraints is satisfied, and with it all its
predicates and their subscriptions. The matcher `counting` is the lean one, with boxes in flat arrays.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from itertools import chain
from typing import Any, Final, Literal

from rtfilter.events.schema import Schema
from rtfilter.matchers.papers.counters import COUNTERS, Counters
from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.papers.operator_indexes import Collections, ConstraintIndex
from rtfilter.matchers.papers.relations import Relations, StoredConstraint
from rtfilter.matchers.port import Takes
from rtfilter.predicates.model.constraints import Filter


class SharedCountingMatcher(EventwiseMatcher):
    """Counts satisfied constraints; fast if few are satisfied, and many are equal.

    Operators without an index (``<>``, ``like``, comparisons and others) are tried once an event for each
    distinct constraint; the increments do not count these.

    Parameters
    ----------
    schema : Schema
    counters : {"map", "filters", "stamped"}
        The place of the counters: a map for each match, for any number of threads; the filters, for one
        thread, in 2/3 of the time according to the thesis; or arrays with stamps, for each thread. See
        `rtfilter.matchers.papers.counters`.
    share : bool
        Whether equal predicates, filters and constraints are stored once. The thesis expects less memory and
        slightly more speed. Without it, each of several equal subscriptions has its own counters.
    keys : {"id", "content"}
        The key of a filter in a map: a unique integer, or its constraints. The thesis found integers
        noticeably faster, even with hashes computed in advance, as here.
    merged : bool
        Whether the found constraints become one collection before they are counted, or stay in the
        collections of the indexes. The thesis found merging slower.

    Raises
    ------
    ValueError
        An argument has another value, or `keys` is set for counters that are not in a map.

    Notes
    -----
    Visits are increments: for each stored filter, the number of its constraints that an event satisfies.
    Equal constraints of a filter count once, and so do a ``>=`` and a ``<=`` of one attribute.
    """

    takes = Takes(boxes=False, comparisons=True)
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
        self._counters: Counters = COUNTERS[counters]()
        self.takes = self.takes._replace(threads=self._counters.threads)
        self._merged = merged
        self._index = ConstraintIndex()
        self._relations = Relations(self._index, share, keys == "content")

    def insert(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`."""
        self._relations.attach(id, self._predicates[id].filters, filter)

    def delete(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`; the first filter removes all filters of the subscription."""
        self._relations.detach(id)

    def find(self, event: FlatEvent) -> tuple[set[int], int]:
        """See `EventwiseMatcher`; operations are increments."""
        satisfied: Collections = self._index.satisfied(event)
        if self._merged:
            merged: Collection[StoredConstraint] = list(chain.from_iterable(satisfied))
            satisfied = [merged]
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
