"""Verification: candidates, whose boxes are only supersets, remain if the event satisfies the predicate.

Exact ends of bounds that the box does not hold are compared for all candidates at once. Compiled code
verifies coordinates and texts of other predicates (`rtfilter.subscriptions.checks`). Python verifies the
rest, mainly comparisons of attributes and networks. If a subscription has many candidates, it checks them
together: each distinct constraint once, by the coordinates of the events, and if those are not enough, once
for each distinct value. Few candidates are checked one by one. An event with lists matches each subscription
that one of its choices matches.
"""

from __future__ import annotations

from math import inf
from random import random
from time import perf_counter
from typing import Final

import numpy as np

from rtfilter.basics.dtypes import BoolArray, Flags, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.elements import is_of_choices
from rtfilter.events.encoding import Timestamp
from rtfilter.events.fields import NOW, microseconds_at
from rtfilter.events.table import Choices, EventTable, ranges
from rtfilter.predicates.bounds.ends import EndStore
from rtfilter.predicates.explanations.verdicts import places_of, verdicts
from rtfilter.predicates.model.comparison import Comparison
from rtfilter.predicates.model.constraints import Constraint, Quantified, Test
from rtfilter.predicates.model.disjunction import asks_for_none
from rtfilter.predicates.model.list_tests import Elements
from rtfilter.predicates.operands.intervals import Now
from rtfilter.predicates.predicate import Predicate
from rtfilter.subscriptions.stored import StoredSubscriptions
from rtfilter.subscriptions.verification import ASK, NO, SAMPLE, YES

COMPILED: Final = 7
"""Candidates of a batch from which compiled code is called: its call takes as long as a few checks."""
MANY: Final = 16
"""Candidates of one subscription from which Python verifies them together."""


def verify(
    hits: Hits,
    events: EventTable,
    held: StoredSubscriptions,
    rows: IntArray | None = None,
    moment: float = -inf,
    now: float | None = None,
) -> tuple[IntArray, IntArray]:
    """Verify the hits that are not exact, and leave out hidden and expired subscriptions.

    Parameters
    ----------
    hits : Hits
        The hits of n events; if events have lists, of their choices, one event after the other.
    rows : int64 (n,), optional
        Rows of `events` that the hits are about; all by default.
    moment : float
        Subscriptions that are expired then are left out.
    now : float, optional
        The moment of the batch, in seconds since 1970; by default by the clock, if it is needed.

    Returns
    -------
    offsets, ids : int64 (n + 1,), int64 (matches,)
        Ids ascend for each event, if events have lists.
    """
    choices = events.choices
    if choices is None:
        return _verified(hits, events, held, rows, moment, now)
    places = None if rows is None else ranges(choices.offsets, rows)[0]
    offsets, ids = _verified(hits, events.searched, held, places, moment, now)
    return _united(offsets, ids, events, held, rows, now)


def _verified(
    hits: Hits,
    events: EventTable,
    held: StoredSubscriptions,
    rows: IntArray | None,
    moment: float,
    now: float | None,
) -> tuple[IntArray, IntArray]:
    visible = held.visible(hits.ids, moment)
    if visible is not None:
        hits = hits.only(visible)
    if held.listed and is_of_choices(events):
        unsure = np.array([id in held.listed for id in hits.ids.tolist()], np.bool_)
        exact = np.ones(len(unsure), np.uint8) if hits.exact is None else hits.exact
        hits = hits._replace(exact=np.where(unsure, 0, exact).astype(np.uint8))
    if hits.exact is None:
        return hits.offsets, hits.ids
    doubtful = (hits.exact == 0).nonzero()[0]
    slow, ids, candidates = doubtful, hits.ids, len(doubtful)
    if not candidates:
        return hits.offsets, hits.ids
    begun = compared = compiled = perf_counter()
    if events.now is None:
        events = events.at(held.now(moment) if now is None else now)
    keep = np.ones(len(hits.ids), np.bool_)
    owner = np.arange(len(hits.offsets) - 1).repeat(hits.offsets[1:] - hits.offsets[:-1])
    if held.ends:
        doubtful = _compare_ends(hits.ids, owner, doubtful, events, held.ends, rows, keep)
        compared = compiled = perf_counter()
    by_compiled = 0
    if held.checks is not None and len(doubtful) >= COMPILED:
        verdicts = held.checks.decide(hits.ids[doubtful], owner[doubtful], events, rows, held.read)
        keep[doubtful] = verdicts != NO
        doubtful = doubtful[verdicts == ASK]
        by_compiled, compiled = len(verdicts) - len(doubtful), perf_counter()
    by_python = len(doubtful)
    if by_python:
        slow = doubtful
    if len(doubtful) >= MANY:
        doubtful = _decide_together(hits.ids, owner, doubtful, events, held, rows, keep)
    seen, event = -1, {}
    for hit in doubtful.tolist():
        if owner[hit] != seen:
            seen = owner[hit]
            event = events.row(int(seen if rows is None else rows[seen]))
        predicate = held.get(int(hits.ids[hit]))
        keep[hit] = predicate is not None and predicate.satisfied_by(event)
    ended = perf_counter()
    hits = hits._replace(exact=None).only(keep)
    some = slow[:: len(slow) // SAMPLE + 1]
    pairs = zip(ids[some].tolist(), keep[some].tolist(), strict=True)
    parts = (
        ("ends", candidates - by_compiled - by_python, compared - begun),
        ("compiled", by_compiled, compiled - compared),
        ("python", by_python, ended - compiled),
    )
    held.verified.add(parts if by_python else parts[:2], len(keep) - len(hits.ids), pairs)
    return hits.offsets, hits.ids


def verify_one(
    ids: IntArray, exact: Flags | None, event: EventTable, held: StoredSubscriptions, moment: float
) -> IntArray:
    """Return `verify` for the hits of one event without lists: its ids, int64 (k,)."""
    hidden = len(held.hidden) > 0 or (moment > -inf and held.hides(moment))
    if hidden or (exact is not None and held.ends):
        return verify(Hits.of_one(ids, exact), event, held, None, moment)[1]
    if exact is None:
        return ids
    flags = exact.tobytes()
    candidates = flags.count(NO)
    if not candidates:
        return ids
    begun = compiled = perf_counter()
    verdicts, found, asked, by_python = exact, flags, NO, candidates
    if held.checks is not None:
        verdicts = held.checks.decide_one(ids, exact, event, held.read)
        found, asked, compiled = verdicts.tobytes(), ASK, perf_counter()
        by_python = found.count(ASK)
    if by_python:
        flags, verdicts, row = found, verdicts.copy(), event.row(0)
        if event.now is None:
            row[NOW] = microseconds_at(held.now(moment))
        for at, flag in enumerate(flags):
            if flag == asked:
                verdicts[at] = YES
                predicate = held.get(ids.item(at))
                if predicate is None or not predicate.satisfied_by(row):
                    verdicts[at] = NO
        found = verdicts.tobytes()
    ended, refused = perf_counter(), found.count(NO)
    slow = flags.find(asked if by_python else NO, int(random() * len(flags)))
    some = ((ids.item(slow), found[slow]),) if slow >= 0 else ()
    parts = (("compiled", candidates - by_python, compiled - begun), ("python", by_python, ended - compiled))
    held.verified.add(parts if by_python else parts[:1], refused, some)
    return ids[verdicts.view(np.bool_)] if refused else ids


def _decide_together(
    ids: IntArray,
    owner: IntArray,
    doubtful: IntArray,
    events: EventTable,
    held: StoredSubscriptions,
    rows: IntArray | None,
    keep: BoolArray,
) -> IntArray:
    """Verify, in `keep`, the candidates of subscriptions that have many; return the other candidates."""
    order = np.argsort(ids[doubtful], kind="stable")
    ordered = doubtful[order]
    names, starts, counts = np.unique(ids[ordered], return_index=True, return_counts=True)
    large = np.flatnonzero(counts >= MANY)
    if not len(large):
        return doubtful
    event = owner if rows is None else rows[owner]
    tests: dict[Test, list[int]] = {}  # groups that ask for each
    groups: list[tuple[IntArray, Predicate | None]] = []
    for group, place in enumerate(large.tolist()):
        hits = ordered[starts[place] : starts[place] + counts[place]]
        predicate = held.get(int(names[place]))
        groups.append((hits, predicate))
        filters = () if predicate is None else predicate.filters
        for test in dict.fromkeys(test for conjunction in filters for test in conjunction.constraints):
            tests.setdefault(test, []).append(group)
    answers: list[dict[Test, BoolArray]] = [{} for _ in groups]
    values = _EventValues(events)
    for test, own in tests.items():
        parts = [event[groups[group][0]] for group in own]
        found = values.holds(test, parts[0] if len(parts) == 1 else np.concatenate(parts))
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        for group, holds in zip(own, np.split(found, cuts), strict=True):
            answers[group][test] = holds
    for (hits, predicate), holds_of in zip(groups, answers, strict=True):
        satisfied = np.zeros(len(hits), np.bool_)
        for conjunction in () if predicate is None else predicate.filters:
            every = np.ones(len(hits), np.bool_)
            for test in conjunction.constraints:
                every &= holds_of[test]
            satisfied |= every
        keep[hits] = satisfied
    left = np.ones(len(ids), np.bool_)
    left[np.concatenate([hits for hits, _ in groups])] = False
    return doubtful[left[doubtful]]


class _EventValues:
    """The values that have been read from the events of a batch."""

    def __init__(self, events: EventTable) -> None:
        self._events, self._places = events, places_of(events.fields)
        self._rows: dict[int, dict[str, object]] = {}

    def holds(self, test: Test, rows: IntArray) -> BoolArray:
        """Return whether each of some events satisfies a constraint, bool (k,)."""
        if isinstance(test, Quantified):
            return self._quantified(test, rows)
        if isinstance(test, Comparison) and isinstance(test.right, Now) and self._events.now is not None:
            moment = Timestamp(self._events.now + test.right.offset)
            test = Constraint(str(test.left), test.operator, moment)
        holds, unsure = verdicts(test, self._events.points, rows, self._places)
        left = np.flatnonzero(unsure)
        if not len(left):
            return holds
        if isinstance(test, Constraint):
            holds[left] = self._accepted(test, rows[left].tolist())
        else:
            holds[left] = [test.matches(self._row(row)) for row in rows[left].tolist()]
        return holds

    def _quantified(self, test: Quantified, rows: IntArray) -> BoolArray:
        if is_of_choices(self._events):
            return np.array([test.matches(self._row(row)) for row in rows.tolist()], np.bool_)
        parts = [self.holds(own, rows) for own in test.tests]
        every = np.logical_and if test.quantifier == "any" else np.logical_or
        found: BoolArray = every.reduce(parts)
        return found

    def _accepted(self, test: Constraint, rows: list[int]) -> list[bool]:
        """Return whether a constraint accepts the values in some rows; checks each distinct string once."""
        known: dict[object, bool] = {}
        found = []
        for value in self._events.values(test.attribute, rows):
            if type(value) is not str:
                found.append(test.accepts(value))
                continue
            verdict = known.get(value)
            if verdict is None:
                verdict = known[value] = test.accepts(value)
            found.append(verdict)
        return found

    def _row(self, row: int) -> dict[str, object]:
        if row not in self._rows:
            self._rows[row] = self._events.row(row)
        return self._rows[row]


def _compare_ends(
    ids: IntArray,
    owner: IntArray,
    doubtful: IntArray,
    events: EventTable,
    ends: EndStore,
    rows: IntArray | None,
    keep: BoolArray,
) -> IntArray:
    """Verify, in `keep`, the candidates whose subscription has exact ends; return the other candidates.

    The box contains the event already, so rests matter only if a coordinate equals an end.
    """
    event = owner[doubtful] if rows is None else rows[owner[doubtful]]
    left = np.ones(len(doubtful), np.bool_)
    for at, places, own in ends.find(ids[doubtful]):
        coordinates = own.sides[places] >> 1
        tied = np.flatnonzero(events.points[event[at], coordinates] == own.values[places])
        if len(tied):
            rest, end = events.rests(event[at[tied]], coordinates[tied]), own.rests[places[tied]]
            outside = np.where(own.sides[places[tied]] & 1, rest > end, rest < end)
            keep[doubtful[at[tied[outside]]]] = False
        left[at] = False
    return doubtful[left]


def _united(
    offsets: IntArray,
    ids: IntArray,
    events: EventTable,
    held: StoredSubscriptions,
    rows: IntArray | None,
    now: float | None,
) -> tuple[IntArray, IntArray]:
    """Unite the matches of each event's choices, int64 (m + 1,) and int64 (matches,)."""
    choices = events.choices
    assert choices is not None
    if choices.partial is None and len(events) == 1:
        alone = np.unique(ids)
        return np.array([0, len(alone)]), alone
    if rows is None:
        rows = np.arange(len(events))
    places, cuts = ranges(choices.offsets, rows)
    counts = np.diff(offsets)
    owner = np.repeat(np.repeat(np.arange(len(rows)), np.diff(cuts)), counts)
    if choices.partial is None:
        order = np.lexsort((ids, owner))
    else:
        unsure = np.repeat(choices.partial[places], counts)
        order = np.lexsort((unsure, ids, owner))  # the certain one of equal hits comes first
    owner, ids = owner[order], ids[order]
    keep = np.ones(len(ids), np.bool_)
    keep[1:] = (owner[1:] != owner[:-1]) | (ids[1:] != ids[:-1])
    if choices.partial is not None:
        events = events if now is None else events.at(now)
        hits = np.flatnonzero(keep & unsure[order])
        keep[hits] = _decide_choices(ids[hits], rows[owner[hits]], events, choices, held)
    kept = np.searchsorted(owner[keep], np.arange(len(rows) + 1))
    return kept, ids[keep]


def _decide_choices(
    ids: IntArray, rows: IntArray, events: EventTable, choices: Choices, held: StoredSubscriptions
) -> list[bool]:
    """Return whether an event satisfies a subscription that one of its choices matches, for each pair."""
    asked: dict[int, Predicate | None] = {}
    event, found = Elements({}, {}, events.fields), []
    verified, seen, begun = list[tuple[int, bool]](), -1, perf_counter()
    for id, row in zip(ids.tolist(), rows.tolist(), strict=True):
        if id not in asked:
            predicate = held.get(id)
            asked[id] = predicate if predicate is not None and asks_for_none(predicate) else None
        predicate = asked[id]
        if predicate is None:
            found.append(True)
            continue
        if row != seen:
            event, seen = Elements(events.row(row), choices.lists[row] or {}, events.fields), row
        found.append(event.satisfy(predicate.filters))
        verified.append((id, found[-1]))
    if verified:
        parts = [("lists", len(verified), perf_counter() - begun)]
        held.verified.add(parts, found.count(False), verified[:: len(verified) // SAMPLE + 1])
    return found
