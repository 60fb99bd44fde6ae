"""Refining: of the hits whose boxes are only supersets, those remain whose subscription is satisfied.

Ends of bounds that the box does not tell are compared for all hits at once; other predicates are asked one by
one.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

import numpy as np

from rtfilter.dtypes import BoolArray, IntArray
from rtfilter.events.table import EventTable
from rtfilter.predicates.ends import EndStore
from rtfilter.predicates.model import Predicate
from rtfilter.results import Hits


class Predicates(Protocol):
    """What boxes do not tell, by id."""

    def visible(self, ids: IntArray, moment: float) -> BoolArray | None:
        """Which of some ids may be seen at a moment, bool (n,); None for all."""

    @property
    def ends(self) -> EndStore:
        """Exact ends of bounds."""

    def get(self, id: int) -> Predicate | None:
        """The predicate of a subscription, None if it is unknown."""


def refine(
    hits: Hits,
    events: EventTable,
    predicates: Predicates,
    rows: IntArray | None = None,
    moment: float = -inf,
) -> tuple[IntArray, IntArray]:
    """Decide the hits that are not exact, and leave out those that nobody may see.

    Parameters
    ----------
    hits : Hits
        Of n events.
    events : EventTable
    predicates : Predicates
        Ends, or else a predicate, of all subscriptions with a hit that is not exact.
    rows : int64 (n,), optional
        Rows of `events` that the hits are about; all by default.
    moment : float
        What is beyond its deadline then is left out.

    Returns
    -------
    offsets : int64 (n + 1,)
    ids : int64 (matches,)
    """
    visible = predicates.visible(hits.ids, moment)
    if visible is not None:
        hits = hits.only(visible)
    if hits.exact is None or hits.exact.all():
        return hits.offsets, hits.ids
    keep = np.ones(len(hits.ids), np.bool_)
    owner = np.repeat(np.arange(len(hits.offsets) - 1), np.diff(hits.offsets))
    doubtful = np.flatnonzero(hits.exact == 0)
    if predicates.ends:
        doubtful = _compare_ends(hits.ids, owner, doubtful, events, predicates.ends, rows, keep)
    seen, event = -1, {}
    for hit in doubtful.tolist():
        if owner[hit] != seen:
            seen = owner[hit]
            event = events.row(int(seen if rows is None else rows[seen]))
        predicate = predicates.get(int(hits.ids[hit]))
        keep[hit] = predicate is not None and predicate.matches(event)
    hits = hits.only(keep)
    return hits.offsets, hits.ids


def _compare_ends(
    ids: IntArray,
    owner: IntArray,
    doubtful: IntArray,
    events: EventTable,
    ends: EndStore,
    rows: IntArray | None,
    keep: BoolArray,
) -> IntArray:
    """Decide, in `keep`, the doubtful hits whose subscription has ends; returns the others.

    The box has been tried already: only where a coordinate equals an end can a rest make a difference.
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
