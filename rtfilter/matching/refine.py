"""Refining: of the hits whose boxes are only supersets, those remain whose predicate is satisfied."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rtfilter.dtypes import IntArray
from rtfilter.events.table import EventTable
from rtfilter.predicates.model import Predicate
from rtfilter.results import Hits


class Predicates(Protocol):
    """Predicates by id."""

    def get(self, id: int) -> Predicate | None:
        """The predicate of a subscription, None if it is unknown."""


def refine(
    hits: Hits, events: EventTable, predicates: Predicates, rows: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    """Ask the predicates of hits that are not exact.

    Parameters
    ----------
    hits : Hits
        Of n events.
    events : EventTable
    predicates : Predicates
        Of all subscriptions with a hit that is not exact.
    rows : int64 (n,), optional
        Rows of `events` that the hits are about; all by default.

    Returns
    -------
    offsets : int64 (n + 1,)
    ids : int64 (matches,)
    """
    if hits.exact is None or hits.exact.all():
        return hits.offsets, hits.ids
    keep = np.ones(len(hits.ids), np.bool_)
    owner = np.repeat(np.arange(len(hits.offsets) - 1), np.diff(hits.offsets))
    seen, event = -1, {}
    for hit in np.flatnonzero(hits.exact == 0).tolist():
        if owner[hit] != seen:
            seen = owner[hit]
            event = events.row(int(seen if rows is None else rows[seen]))
        predicate = predicates.get(int(hits.ids[hit]))
        keep[hit] = predicate is not None and predicate.matches(event)
    counts = np.bincount(owner[keep], minlength=len(hits.offsets) - 1)
    return np.concatenate([[0], np.cumsum(counts)]), hits.ids[keep]
