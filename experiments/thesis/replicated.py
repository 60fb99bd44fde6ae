"""Several copies of a matcher, one per core: changes go to all, and any copy can match (Novák 2013)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count
from typing import Any

from rtfilter.dtypes import BoolArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.registry import Factory, make_matcher, name_of
from rtfilter.results import Hits


class ReplicatedMatcher:
    """Lets as many threads match at once as there are copies, although a copy takes one thread at a time.

    `of` is the matcher to copy, and `copies` their number, at least 1. Memory and the time of changes are
    those of all copies. The first copy answers all other calls: additions reach it first, and removals last.
    Raises `ValueError` if there are no copies.
    """

    def __init__(self, schema: Schema, *, of: Factory = "shared-counting", copies: int = 2) -> None:
        if copies < 1:
            raise ValueError(f"copies must be at least 1, not {copies}")
        self._copies = [make_matcher(of, schema) for _ in range(copies)]
        self._locks = [threading.Lock() for _ in self._copies]
        self._turn = count()
        self.takes = self._copies[0].takes._replace(threads=True)
        self.options = {"of": name_of(of), "copies": copies}

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        for copy in self._copies:
            copy.add(filters)

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        for copy in reversed(self._copies):
            known = copy.remove(ids)
        return known

    def match(self, events: EventTable, *, first_only: bool = False) -> Hits:
        """See `Matcher`; the copies are used in rotation."""
        turn = next(self._turn) % len(self._copies)
        with self._locks[turn]:
            return self._copies[turn].match(events, first_only=first_only)

    def workload(self, events: EventTable) -> IntArray:
        """See `Matcher`."""
        with self._locks[0]:
            return self._copies[0].workload(events)

    def ids(self) -> IntArray:
        """See `Matcher`."""
        return self._copies[0].ids()

    def __len__(self) -> int:
        return len(self._copies[0])

    def __contains__(self, id: int) -> bool:
        return id in self._copies[0]

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """See `Matcher`."""
        return self._copies[0].content(ids)

    @property
    def updates(self) -> int:
        """Number of changes of the first copy."""
        return self._copies[0].updates

    def stats(self) -> dict[str, Any]:
        """Return the statistics of the first copy, with the memory of all."""
        own = [copy.stats() for copy in self._copies]
        return own[0] | {"bytes": sum(each["bytes"] for each in own), "copies": len(own)}
