"""A test of every subscription, one after the other: the baseline for the other matchers."""

from __future__ import annotations

from rtfilter.matchers.papers.eventwise import EventwiseMatcher, FlatEvent
from rtfilter.matchers.port import Takes
from rtfilter.predicates.model.constraints import Filter


class NaiveMatcher(EventwiseMatcher):
    """Tries each filter up to its first constraint that does not hold."""

    takes = Takes(boxes=False, comparisons=True)
    unit = "constraints"

    def insert(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`: the predicates are its only data."""

    def delete(self, id: int, filter: Filter) -> None:
        """See `PredicateMatcher`."""

    def find(self, event: FlatEvent) -> tuple[set[int], int]:
        """See `EventwiseMatcher`; operations are constraints that were evaluated."""
        found, evaluated = set(), 0
        for id, predicate in self._predicates.items():
            for conjunction in predicate.filters:
                for constraint in conjunction.constraints:
                    evaluated += 1
                    if not event.satisfies(constraint):
                        break
                else:
                    found.add(id)
                    break
        return found, evaluated
