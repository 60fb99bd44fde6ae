"""Matches of events with lists: an event matches each subscription that one of its choices matches."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from rtfilter.dtypes import IntArray
from rtfilter.events.elements import Choices, ranges
from rtfilter.events.table import EventTable
from rtfilter.predicates.list_tests import Elements, asks_for_none
from rtfilter.predicates.model import Predicate


class PredicatesById(Protocol):
    """Predicates by id."""

    def get(self, id: int) -> Predicate | None:
        """Return the predicate of a subscription, None if it is unknown."""


def united(
    offsets: IntArray,
    ids: IntArray,
    events: EventTable,
    predicates: PredicatesById,
    rows: IntArray | None = None,
    now: float | None = None,
) -> tuple[IntArray, IntArray]:
    """Unite the matches of each event's choices.

    Parameters
    ----------
    offsets, ids : int64 (m + 1,), int64 (matches,)
        The matches of all choices, one event after the other.
    events : EventTable
        Events with choices.
    predicates : PredicatesById
    rows : int64 (k,), optional
        The events whose choices these are; all by default.
    now : float, optional
        The moment of the batch, in seconds since 1970.

    Returns
    -------
    offsets : int64 (k + 1,)
    ids : int64 (matches,)
        Ascending for each event.
    """
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
        keep[hits] = _decide(ids[hits], rows[owner[hits]], events, choices, predicates)
    kept = np.searchsorted(owner[keep], np.arange(len(rows) + 1))
    return kept, ids[keep]


def _decide(
    ids: IntArray, rows: IntArray, events: EventTable, choices: Choices, predicates: PredicatesById
) -> list[bool]:
    """Return whether an event satisfies a subscription that one of its choices matches, for each pair."""
    asked: dict[int, Predicate | None] = {}
    event, found = Elements({}, {}), []
    seen = -1
    for id, row in zip(ids.tolist(), rows.tolist(), strict=True):
        if id not in asked:
            predicate = predicates.get(id)
            asked[id] = predicate if predicate is not None and asks_for_none(predicate) else None
        predicate = asked[id]
        if predicate is None:
            found.append(True)
            continue
        if row != seen:
            event, seen = Elements(events.row(row), choices.lists[row] or {}), row
        found.append(event.satisfy(predicate))
    return found
