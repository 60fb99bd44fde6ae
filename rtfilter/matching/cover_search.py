"""Subscriptions that cover a predicate, are covered by it, or mean the same.

The index finds candidates. The boxes of some make them certain; the others are decided one by one
(`rtfilter.predicates.covers.covering`). An event that rules out one candidate often rules out many others.

A subscription that covers a predicate matches every event that satisfies it. So candidates are found by a few
such events, in opposite corners of the predicate. A box that contains a box of the predicate makes it
certain. A covered subscription has its boxes among those of the predicate, or boxes that are only supersets.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.basics.results import Hits, Matches, RelatedIds
from rtfilter.events.encoding import order_gaps
from rtfilter.events.schema import Schema
from rtfilter.index.selection import How as Selection
from rtfilter.matchers.filters import BoxColumns
from rtfilter.matchers.port import SearchingBoxes
from rtfilter.matching.road import Road
from rtfilter.matching.verify import verify
from rtfilter.predicates.boxes.compiling import Boxes, compile_predicate
from rtfilter.predicates.covers.covering import Question
from rtfilter.predicates.covers.sets import MOMENT
from rtfilter.predicates.model.disjunction import asks_for_every
from rtfilter.predicates.predicate import Predicate
from rtfilter.subscriptions.content import Subscriptions

How = Literal["covers", "covered", "equal"]
MAX_DECIDED: Final = 10_000
"""Most subscriptions that one call decides one by one; the others are reported as unknown."""
FIRST_ROUND, LAST_ROUND = 4, 64
"""Subscriptions decided before their counterexamples are tried on the others: at first, at last."""
_NONE: Final = np.empty(0, np.int64)


class _Candidates(NamedTuple):
    """Keys of subscriptions, each in at most one of the arrays."""

    certain: IntArray
    doubtful: IntArray


class Related:
    """The subscriptions related to a predicate; each relation is searched when it is first asked for."""

    def __init__(self, road: Road, predicate: Predicate) -> None:
        self._road, self._predicate = road, predicate

    @cached_property
    def covers(self) -> RelatedIds:
        """The subscriptions that cover the predicate: they match every event that satisfies it.

        All subscriptions cover a predicate that no event satisfies.
        """
        return self._found("covers")

    @cached_property
    def covered(self) -> RelatedIds:
        """The subscriptions that the predicate covers: each event that they match satisfies it.

        Only the R*-tree can search by boxes; other matchers compare each subscription.
        """
        return self._found("covered")

    @cached_property
    def equal(self) -> RelatedIds:
        """The subscriptions that match exactly the events that satisfy the predicate."""
        return self._found("equal")

    def _found(self, how: How) -> RelatedIds:
        held = self._road.subscriptions
        search = _Search(held, self._predicate, held.moment())
        with self._road.gate.reading(), self._road.turn:
            sure, unknown = search.decide(getattr(search, how)(), how)
            return RelatedIds(
                np.sort(held.labels.ids(sure)), np.sort(held.labels.ids(unknown)), search.visits
            )

    def __repr__(self) -> str:
        return f"Related({str(self._predicate)!r})"


class _Search:
    """The search for subscriptions that are related to one predicate. The caller holds the index.

    `visits` counts its operations so far.
    """

    def __init__(self, held: Subscriptions, predicate: Predicate, moment: float) -> None:
        self._held, self._moment, self.visits = held, moment, 0
        self._boxes = compile_predicate(predicate, held.schema)
        if asks_for_every(predicate):  # boxes are exact only for events without lists
            self._boxes = self._boxes._replace(exact=np.zeros_like(self._boxes.exact))
        self._index = held.matcher if isinstance(held.matcher, SearchingBoxes) else None
        self._question = Question(predicate, held.schema)
        self._empty = self._question.empty or not len(self._boxes.low)

    def covers(self) -> _Candidates:
        """Return the subscriptions that may cover the predicate, and those that do by their boxes."""
        events = self._question.events
        if self._empty:
            return _Candidates(self._all(), _NONE)
        if not events and self._question.listed:  # boxes for events with lists need not share an event
            return _Candidates(_NONE, self._all())
        if not events or not self._held.matcher.takes.missing:
            if self._index is None:
                return _Candidates(_NONE, self._all())
            return _Candidates(_NONE, self._visible(np.unique(self._by_boxes(self._boxes, "intersect").ids)))
        matching = _in_all(self._matches(events).ids, len(events))
        if self._index is None:
            return _Candidates(_NONE, matching)
        own = self._by_boxes(self._boxes, "contain")
        exact = own.ids if own.exact is None else own.ids[own.exact == 1]
        certain = np.intersect1d(matching, _in_all(exact, len(self._boxes.low)))
        if self._held.listed:
            certain = certain[[key not in self._held.listed for key in certain.tolist()]]
        return _Candidates(certain, np.setdiff1d(matching, certain))

    def covered(self) -> _Candidates:
        """Return the subscriptions that the predicate may cover, and those that it certainly covers."""
        if self._index is None:
            return _Candidates(_NONE, self._all())
        impossible = self._visible(np.array(sorted(self._held.unmatchable), np.int64))
        if self._empty:
            return _Candidates(impossible, _NONE)
        wide = _widened(self._boxes, self._held.schema)
        within = self._by_boxes(_hull(wide), "within")
        keys = np.unique(within.ids)
        if within.exact is not None:  # some boxes are supersets
            touched = self._by_boxes(wide, "intersect")
            assert touched.exact is not None
            keys = np.union1d(keys, touched.ids[touched.exact == 0])
        keys = self._visible(keys)
        inside = self._lie_inside(self._content(keys), keys)
        return _Candidates(np.union1d(keys[inside], impossible), keys[~inside])

    def equal(self) -> _Candidates:
        """Return the subscriptions that may be equal, and those that certainly are by their boxes."""
        if self._empty:
            return self.covered()
        found = self.covers()
        keys = np.union1d(*found)
        if self._index is None or not len(keys):
            return _Candidates(_NONE, keys)
        # Few subscriptions cover it: to examine their boxes is faster than to search for covered ones.
        content, hull = self._content(keys), _hull(_widened(self._boxes, self._held.schema))
        within = ((hull.low <= content.low) & (content.high <= hull.high)).all(axis=1)
        keys = np.setdiff1d(keys, content.ids[content.exact & ~within])
        certain = np.intersect1d(keys[self._lie_inside(content, keys)], found.certain)
        return _Candidates(certain, np.setdiff1d(keys, certain))

    def _content(self, keys: IntArray) -> BoxColumns:
        return self._held.matcher.content(keys.tolist()).boxes()

    def _lie_inside(self, content: BoxColumns, keys: IntArray) -> BoolArray:
        """Return which of some subscriptions have every box inside an exact box of the predicate."""
        low, high, exact = self._boxes
        inside = np.zeros(len(content.ids), np.bool_)
        for least, most in zip(low[exact], high[exact], strict=True):
            inside |= ((least <= content.low) & (content.high <= most)).all(axis=1)
        return ~np.isin(keys, content.ids[~inside])

    def decide(self, found: _Candidates, how: How) -> tuple[IntArray, IntArray]:
        """Decide the candidates; return the related subscriptions, and those that remain unknown.

        An event shows that a subscription is not related, and may show it for many others at once.
        """
        sure, unknown = [found.certain], [_NONE]
        if len(found.doubtful):
            left = _Doubtful(found.doubtful, self._held, self._index is not None)
            asked, size = 0, FIRST_ROUND
            while len(left.keys) and asked < MAX_DECIDED:
                inside: list[dict[str, Any]] = []
                outside: list[dict[str, Any]] = []
                some = left.take(size)
                for key in some.tolist():
                    answer = self._ask(key, how, inside, outside)
                    if answer is not False:
                        (unknown if answer is None else sure).append(np.array([key]))
                left.agree(inside, outside)
                asked, size = asked + len(some), min(2 * size, LAST_ROUND)
            unknown.append(left.keys)
        return np.concatenate(sure), np.concatenate(unknown)

    def _ask(
        self, key: int, how: How, inside: list[dict[str, Any]], outside: list[dict[str, Any]]
    ) -> bool | None:
        """Decide one candidate; add an event that rules it out to `inside` or `outside` of the predicate."""
        other = self._held.get(key)
        if other is None:
            return False
        answers: list[bool | None] = []
        if how != "covered":
            verdict = self._question.covered_by(other)
            answers.append(verdict.covers)
            if verdict.event is not None:
                inside.append(verdict.event)
        if how != "covers" and False not in answers:
            verdict = self._question.covers(other)
            answers.append(verdict.covers)
            if verdict.event is not None:
                outside.append(verdict.event)
        return False if False in answers else None if None in answers else True

    def _matches(self, events: list[dict[str, Any]]) -> Matches:
        table = self._held.schema.read(events).at(MOMENT / 1e6)
        hits = self._held.matcher.match(table)
        self.visits += int(hits.visits.sum())
        return Matches(*verify(hits, table, self._held, None, self._moment))

    def _by_boxes(self, boxes: Boxes, how: Selection) -> Hits:
        assert self._index is not None
        hits = self._index.search_boxes(boxes.low, boxes.high, how)
        self.visits += int(hits.visits.sum())
        return hits

    def _all(self) -> IntArray:
        held = self._held
        return self._visible(np.union1d(held.matcher.ids(), np.array(sorted(held.unmatchable), np.int64)))

    def _visible(self, keys: IntArray) -> IntArray:
        visible = self._held.visible(keys, self._moment)
        return keys if visible is None else keys[visible]


class _Doubtful:
    """Subscriptions that are still to be decided, with their boxes; `keys` ascend, int64 (k,)."""

    def __init__(self, keys: IntArray, held: Subscriptions, with_boxes: bool) -> None:
        self.keys, self._held = keys, held
        self._boxes: BoxColumns | None = None
        if with_boxes and len(keys) > FIRST_ROUND:
            boxes = held.matcher.content(keys.tolist()).boxes()
            self._boxes = boxes._replace(ids=np.searchsorted(keys, boxes.ids))  # rows of `keys`

    def take(self, count: int) -> IntArray:
        """Remove and return the first `count` of them."""
        taken = self.keys[:count]
        self._keep(np.arange(len(self.keys)) >= count)
        return taken

    def agree(self, inside: list[dict[str, Any]], outside: list[dict[str, Any]]) -> None:
        """Keep those that match all of some events, and none of others, as far as boxes show it."""
        if self._boxes is None or not len(self.keys):
            return
        agrees = np.ones(len(self.keys), np.bool_)
        for events, wanted in ((inside, True), (outside, False)):
            for event, point in zip(events, self._held.schema.encode(events) if events else (), strict=True):
                agrees &= self._match(event, point, agrees) == wanted
        self._keep(agrees)

    def _match(self, event: dict[str, Any], point: FloatArray, asked: BoolArray) -> BoolArray:
        """Return which of them match an event, bool (k,); only those in `asked` are verified."""
        assert self._boxes is not None
        rows, low, high, exact = self._boxes
        holds = ((low <= point) & (point <= high)).all(axis=1)
        matches = np.zeros(len(self.keys), np.bool_)
        matches[rows[holds & ~exact]] = True
        unsure = matches & asked
        matches[rows[holds & exact]] = True
        unsure[rows[holds & exact]] = False
        for row in np.flatnonzero(unsure).tolist():
            predicate = self._held.get(int(self.keys[row]))
            matches[row] = predicate is not None and predicate.satisfied_by(event)
        return matches

    def _keep(self, wanted: BoolArray) -> None:
        self.keys = self.keys[wanted]
        if self._boxes is not None:
            rows, low, high, exact = self._boxes
            own = wanted[rows]
            places = np.cumsum(wanted) - 1
            self._boxes = BoxColumns(places[rows[own]], low[own], high[own], exact[own])


def _in_all(ids: IntArray, count: int) -> IntArray:
    if count == 1:
        return np.sort(ids)
    found, times = np.unique(ids, return_counts=True)
    often: IntArray = found[times == count]
    return often


def _hull(boxes: Boxes) -> Boxes:
    return Boxes(boxes.low.min(axis=0)[np.newaxis], boxes.high.max(axis=0)[np.newaxis], boxes.exact[:1])


def _widened(boxes: Boxes, schema: Schema) -> Boxes:
    """Return boxes widened as far as no other event enters them.

    Times are whole microseconds, and an open end of a box lies between two of them. For text, UTF-8 leaves
    gaps between the codes of successive texts, and holes in the range of identities may exclude no text.
    """
    low, high = boxes.low.copy(), boxes.high.copy()
    for name, attribute in schema.attributes.items():
        at = schema.offsets[name]
        if attribute.family == "timestamp":
            low[:, at] = _beside(np.ceil(low[:, at]) - 1, np.inf)
            high[:, at] = _beside(np.floor(high[:, at]) + 1, -np.inf)
        elif attribute.family == "str":
            for row in np.flatnonzero(low[:, at + 1] < high[:, at + 1]).tolist():
                low[row, at], high[row, at] = order_gaps(low[row, at], high[row, at])
                low[row, at + 1], high[row, at + 1] = -np.inf, np.inf
            # If the text is exact, its endings are free: they restrict nothing.
            low[:, at + 2], high[:, at + 2] = -np.inf, np.inf
    return Boxes(np.minimum(low, boxes.low), np.maximum(high, boxes.high), boxes.exact)


def _beside(ends: FloatArray, towards: float) -> AnyArray:
    found: AnyArray = np.nextafter(ends, towards)
    return found
