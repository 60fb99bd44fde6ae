"""The port for matchers: the methods that an `EventFilter` needs, and optional ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, Flags, FloatArray, IntArray
from rtfilter.basics.errors import EventError, PredicateError
from rtfilter.basics.results import Hits
from rtfilter.events.encoding import MISSING
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.selection import How
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import NEGATED, Quantified
from rtfilter.predicates.predicate import Predicate

OPERATORS: Final = frozenset(NEGATED)
"""All operators of constraints."""
FAMILIES: Final = frozenset(("number", "timestamp", "str", "bool"))
"""All families of attributes; see `rtfilter.events.schema.Attribute.family`."""


class Takes(NamedTuple):
    """The operators and types that a matcher takes, and its abilities; other input is an error."""

    operators: frozenset[str] = OPERATORS
    families: frozenset[str] = FAMILIES
    missing: bool = True
    """True if events may lack attributes."""
    threads: bool = True
    """True if several threads may match at once. If not, they match one after the other."""
    boxes: bool = True
    """True if it works on `Filters.boxes`; they are then compiled before the change begins."""
    comparisons: bool = False
    """True if a matcher of predicates also takes comparisons and quantified constraints.

    For a matcher of boxes they make no difference.
    """
    gradual: bool = True
    """True if a change of few subscriptions takes at most milliseconds, with any number of subscriptions."""
    full: bool = False
    """True if it may refuse a subscription because it has too many."""

    @property
    def everything(self) -> bool:
        """True if it takes all operators and types, and any number of subscriptions, as by default."""
        kinds = self.operators is OPERATORS and self.families is FAMILIES
        return kinds and not self.full and (self.boxes or self.comparisons)


class Matcher(Protocol):
    """The index of a filter: finds the subscriptions that match each of some events.

    Its class is called with a `Schema`. Changes run alone, so no method needs a lock. If a change fails
    half-way, `remove` is called to undo it, and must work then.
    """

    takes: Takes

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that its class was called with in addition to the schema, JSON-able."""

    def add(self, filters: Filters) -> None:
        """Add n >= 0 subscriptions with new ids; subscriptions that can match nothing may be left out."""

    def remove(self, ids: IntArray) -> BoolArray:
        """Remove subscriptions, and return which ids were known, bool (n,).

        If an id occurs twice, only the first occurrence was known.
        """

    def match(self, events: EventTable) -> Hits:
        """Find the subscriptions that match each event.

        Each id occurs once per event, in any order. If `Hits.exact` is 0, the candidate is verified
        afterwards; None means that all are exact. `Hits.visits` counts operations per event, in the unit of
        `stats`.
        """

    def workload(self, events: EventTable) -> IntArray:
        """Estimate the work of matching each event, int64 (n,), at least 1 unless nothing can match it."""

    def ids(self) -> IntArray:
        """Return all ids, ascending, int64 (n,)."""

    def __len__(self) -> int: ...

    def __contains__(self, id: int) -> bool: ...

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """Return the content for some known ids, or for all, in a form that `add` takes.

        A matcher of constraints gives predicates, one of boxes gives boxes.
        """

    @property
    def updates(self) -> int:
        """Number of boxes or filters added and removed since the matcher was made."""

    def stats(self) -> dict[str, Any]:
        """Return the memory (``bytes``), the ``unit`` of `Hits.visits`, and more details, JSON-able."""


class Stopped(Protocol):
    """The places where the search paths of a batch stopped; see `Resumable.frontier`."""

    @property
    def workload(self) -> IntArray:
        """Estimated work of each event, int64 (n,); an event of 0 matches nothing."""

    @property
    def visits(self) -> int:
        """Number of operations of the estimate."""

    def split(self, order: IntArray, cuts: IntArray) -> Any:
        """Cut it into groups ``order[cuts[g]:cuts[g + 1]]`` for `Resumable.resume_part`."""


@runtime_checkable
class Resumable(Matcher, Protocol):
    """A matcher whose search can stop at a level and continue from there, group by group."""

    @property
    def height(self) -> int:
        """Number of levels that a search can stop at, at least 1."""

    @property
    def packed(self) -> int:
        """The number of times it was built as a whole, which changes its levels, even at an equal height."""

    def frontier(self, events: EventTable, level: int) -> Stopped:
        """Search down to a level, 0..height - 1; a higher level means the last."""

    def resume_part(self, parts: Any, group: int) -> Hits:
        """Finish the events of one group, in its order."""


@runtime_checkable
class Scannable(Matcher, Protocol):
    """A matcher that can be read in slices while it changes. For others, all ids are listed first."""

    @property
    def rows(self) -> int:
        """Number of places for added boxes or filters."""

    def scan(self, rows: range) -> Filters:
        """Return the content of some places. A subscription stays there until it is removed or all move."""

    @property
    def places(self) -> object:
        """An object that stays the same until all subscriptions move.

        They may move when another matcher is adopted or many boxes are added.
        """


@runtime_checkable
class Replacing(Matcher, Protocol):
    """A matcher that can replace the filters of a subscription at once. Others remove and add it."""

    def replace(self, filters: Filters) -> None:
        """Replace the filters of a known id; an error or an interrupt leaves nothing or all of it done."""


@runtime_checkable
class Adopting(Matcher, Protocol):
    """A matcher whose content a copy built elsewhere can replace. Others change in pieces."""

    @property
    def wasteful(self) -> bool:
        """True if it would take much less memory if built again; read after each removal."""

    def adopt(self, other: Matcher) -> None:
        """Take the content of another matcher of its class, which is not used any more; `updates` continues.

        The other one may lack some subscriptions and have further ones. A second call does nothing.
        """


@runtime_checkable
class Single(Protocol):
    """A matcher that finds the matches of one event at less cost than those of a batch of one."""

    def match_one(self, event: EventTable) -> tuple[IntArray, Flags | None]:
        """Return ids, int64 (k,), and `Hits.exact` for a table of one event with C-contiguous points."""


@runtime_checkable
class SearchingBoxes(Protocol):
    """A matcher that can search by boxes in encoded coordinates."""

    def search_boxes(self, low: FloatArray, high: FloatArray, how: How) -> Hits:
        """Find the subscriptions with a box that each query box selects; see `RStarTree.search_boxes`.

        `Hits.exact` is 1 if a selected box is exact, and None only if all boxes are exact.
        """


@runtime_checkable
class Savable(Matcher, Protocol):
    """A matcher that saves its own arrays. Others are built again from their content."""

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays that `from_arrays` needs, by name."""

    @classmethod
    def from_arrays(cls, schema: Schema, arrays: Mapping[str, AnyArray]) -> Self:
        """Return the matcher of `to_arrays`. Arrays may be mapped memory."""


class _FlatFrontier(NamedTuple):
    """A batch that has not been searched yet."""

    events: EventTable
    workload: IntArray
    visits: int = 0

    def split(self, order: IntArray, cuts: IntArray) -> tuple[EventTable, IntArray, IntArray]:
        return self.events, order, cuts


class Flat:
    """Gives a matcher without levels the methods of a `Resumable` one: one level, its own estimate."""

    height, packed = 1, 0

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher

    def frontier(self, events: EventTable, level: int) -> _FlatFrontier:
        """Return the events with their estimated workload, at any level."""
        return _FlatFrontier(events, self._matcher.workload(events))

    def resume_part(self, parts: tuple[EventTable, IntArray, IntArray], group: int) -> Hits:
        """Match the events of one group, in its order."""
        events, order, cuts = parts
        return self._matcher.match(events.take(order[cuts[group] : cuts[group + 1]]))


def leveled(matcher: Matcher) -> Resumable | Flat:
    """Return the matcher itself if it has levels, else a `Flat` around it."""
    return matcher if isinstance(matcher, Resumable) else Flat(matcher)


def refuse_untaken(name: str, takes: Takes, predicates: Iterable[Predicate], schema: Schema) -> None:
    """Raise `PredicateError` for a constraint that a matcher does not take."""
    if takes.everything:
        return
    for row, predicate in enumerate(predicates):
        for conjunction in predicate.filters:
            for constraint in conjunction.constraints:
                attribute = constraint.attributes[0]
                family = schema.attribute(attribute).family
                own = constraint.tests if isinstance(constraint, Quantified) else (constraint,)
                untaken = [one.operator for one in own if one.operator not in takes.operators]
                asked = takes.boxes or takes.comparisons
                if isinstance(constraint, Comparison) and not asked:
                    what, known = "comparisons of attributes or arithmetic", frozenset(("constraints",))
                elif isinstance(constraint, Quantified) and not asked:
                    what, known = "quantified constraints", frozenset(("plain ones",))
                elif untaken:
                    what, known = f"the operator {untaken[0]!r}", takes.operators
                elif family not in takes.families:
                    what, known = f"attributes of type {family}", takes.families
                else:
                    continue
                reason = (
                    f"the matcher {name!r} does not take {what}, but only {', '.join(sorted(known))}; "
                    "choose another matcher"
                )
                error = PredicateError(f"{constraint}: {reason}", attribute=attribute, reason=reason)
                error.row = row
                raise error


def refuse_missing(name: str, events: EventTable, schema: Schema) -> None:
    """Raise `EventError` for an event without an attribute, for a matcher that needs all of them."""
    absent = events.searched.points == MISSING
    if absent.any():
        row, coordinate = (int(i) for i in np.argwhere(absent)[0])
        if events.choices is not None:
            row = int(np.searchsorted(events.choices.offsets, row, "right")) - 1
        attribute = next(n for n in reversed(schema.names) if schema.offsets[n] <= coordinate)
        raise EventError.about(
            attribute, f"is missing, but the matcher {name!r} needs all attributes; choose another", row
        )
