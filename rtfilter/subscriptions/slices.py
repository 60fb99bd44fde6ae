"""Slices of subscriptions, for a copy that is made while matching and changes go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.stored.predicate_store import Kept, kept
from rtfilter.subscriptions.ids import NO_IDS
from rtfilter.subscriptions.labels import NO_LABELS, LabelColumns
from rtfilter.subscriptions.stored import StoredSubscriptions

SLICE = 2048
"""Subscriptions that one step reads, so that changes do not wait long."""


class Part(NamedTuple):
    """Some of the subscriptions, read at one moment."""

    filters: Filters
    """The subscriptions that the matcher has."""
    kept: list[tuple[int, Kept]]
    """Predicates stored beside the matcher, by handle."""
    unmatchable: list[int]
    """Handles that no event can match."""
    handles: IntArray
    """Handles that have labels, int64 (n,)."""
    labels: LabelColumns

    def renumbered(self, handles: IntArray) -> Part:
        """Return this part with other handles: the places of its handles among `handles`, which ascend."""
        filters = self.filters.named(np.searchsorted(handles, self.filters.ids))
        kept = [(int(np.searchsorted(handles, handle)), one) for handle, one in self.kept]
        unmatchable = np.searchsorted(handles, self.unmatchable).tolist()
        return Part(filters, kept, unmatchable, np.searchsorted(handles, self.handles), self.labels)


def slices_of(held: StoredSubscriptions) -> list[range | IntArray]:
    """Cut all subscriptions into slices that `read` takes; an unchanged subscription stays in its slice."""
    cut: list[range | IntArray] = []
    if held.scannable is not None:
        rows = held.scannable.rows
        cut += [range(first, min(first + SLICE, rows)) for first in range(0, rows, SLICE)]
    else:
        cut += _cut_up(held.matcher.ids())
    return cut + _cut_up(np.array(sorted(held.unmatchable), np.int64))


def _cut_up(handles: IntArray) -> list[range | IntArray]:
    return [handles[first : first + SLICE] for first in range(0, len(handles), SLICE)]


def places_of(held: StoredSubscriptions) -> object:
    """Return an object that stays the same while the ranges of `slices_of` are valid."""
    return None if held.scannable is None else held.scannable.places


def read(held: StoredSubscriptions, part: range | IntArray) -> Part:
    """Return a slice of the subscriptions; unknown handles are left out."""
    if isinstance(part, range):
        assert held.scannable is not None
        filters = held.scannable.scan(part)
        visible = held.visible(filters.ids)
        if visible is not None:
            filters = Filters.joined(held.schema, [filters], filters.ids[~visible])
        if held.ends:
            filters = filters.with_ends(held.ends.of(filters.ids))
        labels = held.labels.of(filters.ids)
        return Part(filters, _kept(held, filters.ids.tolist()), [], filters.ids, labels)
    known = [handle for handle in part.tolist() if handle in held]
    unmatchable = [handle for handle in known if handle in held.unmatchable] if held.unmatchable else []
    matchable = [handle for handle in known if handle not in held.unmatchable] if held.unmatchable else known
    handles = np.array(known, np.int64)
    return Part(held.content(matchable), _kept(held, known), unmatchable, handles, held.labels.of(handles))


def _kept(held: StoredSubscriptions, handles: list[int]) -> list[tuple[int, Kept]]:
    found = ((handle, held.predicates.kept(handle)) for handle in handles if handle in held.predicates)
    return [(handle, one) for handle, one in found if one is not None]


def take(held: StoredSubscriptions, parts: Sequence[Part], without: IntArray = NO_IDS) -> None:
    """Add parts of other subscriptions, without some handles, and report nothing. It must run alone.

    The parts may be boxes although the matcher takes predicates, or the reverse.
    """
    left_out = set(without.tolist())
    # First, because predicates that were compiled to boxes are joined as boxes, and impossible ones have
    # none.
    filters = Filters.joined(held.schema, [part.filters for part in parts], without)
    for part in parts:
        held.used.note_kept([one for _, one in part.kept])  # a closed generator swallows an interrupt
        for handle, predicate in part.kept:
            if handle not in left_out:
                held.predicates.put(handle, predicate)
        held.unmatchable.update(handle for handle in part.unmatchable if handle not in left_out)
    _take_labels(held, [part for part in parts if part.labels is not NO_LABELS], without)
    if not held.matcher.takes.boxes:
        filters = _as_predicates(held, filters)
    held.ends.add(filters.ends)
    held.fill(filters.ids, filters)


def _as_predicates(held: StoredSubscriptions, filters: Filters) -> Filters:
    """Return filters as predicates: stored ones, and those of bounds, which are then stored too."""
    known = np.array([id for id in filters.ids.tolist() if id in held.predicates], np.int64)
    bounds = Filters.joined(held.schema, [filters], known)
    for handle, predicate in zip(bounds.ids.tolist(), bounds.predicates(), strict=True):
        held.predicates.put(handle, kept(predicate))
    found = [one for one in map(held.predicates.read, filters.ids.tolist()) if one is not None]
    return Filters.of_predicates(held.schema, found, filters.ids)


def _take_labels(held: StoredSubscriptions, parts: Sequence[Part], without: IntArray) -> None:
    """Take the labels of parts. Boxes of one subscription may lie in several parts, each with its labels."""
    moments: list[tuple[IntArray, FloatArray]] = []
    for part in parts:
        rows = np.flatnonzero(~np.isin(part.handles, without))
        handles, own = part.handles[rows], part.labels.take(rows)
        held.labels.put(handles.tolist(), own._replace(deadlines=None))
        if own.deadlines is not None:
            moments.append((handles, own.deadlines))
    if moments:  # all at once, which is much faster
        columns: Any = map(np.concatenate, zip(*moments, strict=True))
        handles, deadlines = columns
        handles, first = np.unique(handles, return_index=True)
        held.labels.put(handles.tolist(), LabelColumns(deadlines=deadlines[first]))


def renew(held: StoredSubscriptions, handles: IntArray, part: Part) -> None:
    """Replace all data of some handles by a part of other subscriptions; see `take`."""
    held.forget(handles)
    take(held, [part])
