"""Batches for flat matchers: one level, the matcher's own estimate, each group matched by itself."""

from __future__ import annotations

from typing import NamedTuple

from rtfilter.dtypes import IntArray
from rtfilter.events.table import EventTable
from rtfilter.matchers.port import Matcher, Resumable
from rtfilter.results import Hits


class FlatParts(NamedTuple):
    """A batch cut into groups."""

    events: EventTable
    order: IntArray
    cuts: IntArray


class FlatFrontier(NamedTuple):
    """A batch that has not been searched yet."""

    events: EventTable
    workload: IntArray
    visits: int = 0

    def split(self, order: IntArray, cuts: IntArray) -> FlatParts:
        """See `Stopped`."""
        return FlatParts(self.events, order, cuts)


class Flat:
    """Gives a matcher without levels the methods of a `Resumable` one."""

    height, packed = 1, 0

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def frontier(self, events: EventTable, level: int) -> FlatFrontier:
        """Return the events with their estimated workload, at any level."""
        return FlatFrontier(events, self._matcher.workload(events))

    def resume_part(self, parts: FlatParts, group: int) -> Hits:
        """Match the events of one group, in its order."""
        rows = parts.order[parts.cuts[group] : parts.cuts[group + 1]]
        return self._matcher.match(parts.events.take(rows))


def leveled(matcher: Matcher) -> Resumable | Flat:
    """Return the matcher itself if it has levels, else a `Flat` around it."""
    return matcher if isinstance(matcher, Resumable) else Flat(matcher)
