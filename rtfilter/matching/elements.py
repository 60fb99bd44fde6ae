"""From matches of choices to matches of events with lists: an event matches what one of its choices does."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rtfilter.dtypes import IntArray
from rtfilter.events.elements import ranges
from rtfilter.events.table import EventTable
from rtfilter.predicates.elements import asks_for_none, satisfied
from rtfilter.predicates.model import Predicate


class Predicates(Protocol):
    """Predicates by id."""

    def get(self, id: int) -> Predicate | None:
        """The predicate of a subscription, None if it is unknown."""


def united(
    offsets: IntArray,
    ids: IntArray,
    events: EventTable,
    predicates: Predicates,
    rows: IntArray | None = None,
) -> tuple[IntArray, IntArray]:
    """Unite the ids of each event's choices.

    Parameters
    ----------
    offsets, ids : int64 (m + 1,), int64 (matches,)
        Of all choices of the events, one event after the other.
    events : EventTable
        With choices.
    predicates : Predicates
    rows : int64 (k,), optional
        The events whose choices these are; all by default.

    Returns
    -------
    offsets : int64 (k + 1,)
    ids : int64 (matches,)
        Ascending for each event.
    """
    choices = events.choices
    assert choices is not None
    if rows is None:
        rows = np.arange(len(events))
    places, cuts = ranges(choices.offsets, rows)
    counts = np.diff(offsets)
    owner = np.repeat(np.repeat(np.arange(len(rows)), np.diff(cuts)), counts)
    unsure = np.zeros(len(ids), np.bool_)
    if choices.partial is not None:
        unsure = np.repeat(choices.partial[places], counts)
    order = np.lexsort((unsure, ids, owner))
    owner, ids, unsure = owner[order], ids[order], unsure[order]
    keep = np.ones(len(ids), np.bool_)
    keep[1:] = (owner[1:] != owner[:-1]) | (ids[1:] != ids[:-1])  # what is sure comes first
    asked: dict[int, Predicate | None] = {}
    for hit in np.flatnonzero(keep & unsure).tolist():
        id, row = int(ids[hit]), int(rows[owner[hit]])
        if id not in asked:
            predicate = predicates.get(id)
            asked[id] = predicate if predicate is not None and asks_for_none(predicate) else None
        found, lists = asked[id], choices.lists[row]
        if found is not None and lists is not None:
            keep[hit] = satisfied(found, events.row(row), lists)
    kept = np.searchsorted(owner[keep], np.arange(len(rows) + 1))
    return kept, ids[keep]
