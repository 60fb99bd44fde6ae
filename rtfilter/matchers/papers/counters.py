"""Three places for the counters of filters (Novák 2013): a map, the filters, or arrays with stamps."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import ClassVar, Final, Protocol

from rtfilter.matchers.papers.operator_indexes import Collections
from rtfilter.matchers.papers.relations import StoredFilter


class Counters(Protocol):
    """The number of its constraints that an event satisfies, for each filter."""

    threads: ClassVar[bool]
    """True if several threads may count at once."""

    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        """Return the filters whose constraints are all satisfied, and the number of increments.

        Parameters
        ----------
        satisfied : list of collections
            The constraints that an event satisfies, each once.
        size : int
            All numbers of filters are below it.
        """


class MapCounters:
    """A map that exists during one match ("multicore")."""

    threads: ClassVar[bool] = True

    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        """See `Counters`."""
        counts: dict[Hashable, int] = {}
        full, increments = [], 0
        for constraints in satisfied:
            for constraint in constraints:
                increments += len(constraint.filters)
                for one in constraint.filters:
                    counts[one.counted] = reached = counts.get(one.counted, 0) + 1
                    if reached == one.needed:
                        full.append(one)
        return full, increments


class FilterCounters:
    """A counter in each filter, set to zero after each match ("singlecore").

    Counters of an interrupted match are set to zero before the next match.
    """

    threads: ClassVar[bool] = False

    def __init__(self) -> None:
        self._touched: list[StoredFilter] = []

    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        """See `Counters`."""
        self._reset()
        touched = self._touched
        full, increments = [], 0
        for constraints in satisfied:
            for constraint in constraints:
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


class StampedCounters:
    """Arrays of each thread, never set to zero: a counter is valid only with the stamp of its match.

    The thesis rejected arrays, because numbers become sparse when filters are removed. Here the numbers of
    removed filters are used again, so an array is as long as the most filters at once. A filter with the
    number of an older one is safe: the old stamp is of an older match.
    """

    threads: ClassVar[bool] = True

    def __init__(self) -> None:
        self._own = _Own()

    def count(self, satisfied: Collections, size: int) -> tuple[list[StoredFilter], int]:
        """See `Counters`."""
        own = self._own
        own.epoch = epoch = own.epoch + 1
        stamps, counts = own.stamps, own.counts
        for array in (stamps, counts):  # each by its own length: an interrupt may come in between
            array.extend([0] * (size - len(array)))
            del array[size:]
        full, increments = [], 0
        for constraints in satisfied:
            for constraint in constraints:
                increments += len(constraint.filters)
                for one in constraint.filters:
                    number = one.number
                    if stamps[number] == epoch:
                        counts[number] = reached = counts[number] + 1
                    else:
                        # The counter comes first: an interrupt then never leaves a stamp without its counter.
                        counts[number] = reached = 1
                        stamps[number] = epoch
                    if reached == one.needed:
                        full.append(one)
        return full, increments


COUNTERS: Final[dict[str, type[MapCounters] | type[FilterCounters] | type[StampedCounters]]] = {
    "map": MapCounters,
    "filters": FilterCounters,
    "stamped": StampedCounters,
}
"""Each layout by name."""
