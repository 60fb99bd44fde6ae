"""Slices of subscriptions, for a copy that is made while others go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.matchers.filters import Filters
from rtfilter.predicates.store import Kept
from rtfilter.subscriptions.held import Held
from rtfilter.subscriptions.ids import NO_IDS
from rtfilter.subscriptions.labels import NO_LABELS, Beside

SLICE = 2048
"""Subscriptions that are read at once by those who must not keep changes waiting."""


class Part(NamedTuple):
    """Some of the subscriptions, as they are at one moment."""

    filters: Filters
    """Those that the matcher has."""
    kept: list[tuple[int, Kept]]
    """Predicates beside it, by key."""
    unmatchable: list[int]
    """Keys that no event can match."""
    keys: IntArray
    """Keys that have labels, int64 (n,)."""
    labels: Beside

    def renumbered(self, keys: IntArray) -> Part:
        """The same with the places of their keys among some, which ascend, as keys."""
        filters = self.filters.named(np.searchsorted(keys, self.filters.ids))
        kept = [(int(np.searchsorted(keys, key)), one) for key, one in self.kept]
        unmatchable = np.searchsorted(keys, self.unmatchable).tolist()
        return Part(filters, kept, unmatchable, np.searchsorted(keys, self.keys), self.labels)


def slices_of(held: Held) -> list[range | IntArray]:
    """Cut all subscriptions into slices that `read` takes; one that is not changed stays in its slice."""
    cut: list[range | IntArray] = []
    if held.scannable is not None:
        rows = held.scannable.rows
        cut += [range(first, min(first + SLICE, rows)) for first in range(0, rows, SLICE)]
    else:
        cut += _cut_up(held.matcher.ids())
    return cut + _cut_up(np.array(sorted(held.unmatchable), np.int64))


def _cut_up(keys: IntArray) -> list[range | IntArray]:
    return [keys[first : first + SLICE] for first in range(0, len(keys), SLICE)]


def places_of(held: Held) -> object:
    """The same object as long as `slices_of` that are ranges can be read."""
    return None if held.scannable is None else held.scannable.places


def read(held: Held, part: range | IntArray) -> Part:
    """A slice, or keys of which unknown ones are left out."""
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
    known = [key for key in part.tolist() if key in held]
    unmatchable = [key for key in known if key in held.unmatchable] if held.unmatchable else []
    matchable = [key for key in known if key not in held.unmatchable] if held.unmatchable else known
    keys = np.array(known, np.int64)
    return Part(held.content(matchable), _kept(held, known), unmatchable, keys, held.labels.of(keys))


def _kept(held: Held, keys: list[int]) -> list[tuple[int, Kept]]:
    found = ((key, held.predicates.kept(key)) for key in keys if key in held.predicates)
    return [(key, one) for key, one in found if one is not None]


def take(held: Held, parts: Sequence[Part], without: IntArray = NO_IDS) -> None:
    """Add parts of others, without some keys. Nobody else may use these meanwhile, and nobody is told."""
    left_out = set(without.tolist())
    for part in parts:
        for key, predicate in part.kept:
            if key not in left_out:
                held.predicates.put(key, predicate)
        held.unmatchable.update(key for key in part.unmatchable if key not in left_out)
    _take_labels(held, [part for part in parts if part.labels is not NO_LABELS], without)
    filters = Filters.joined(held.schema, [part.filters for part in parts], without)
    held.ends.add(filters.ends)
    held.unbounded.note(filters)
    held.matcher.add(filters)


def _take_labels(held: Held, parts: Sequence[Part], without: IntArray) -> None:
    """Take the labels of parts; the boxes of one subscription may lie in several, which then all tell."""
    moments: list[tuple[IntArray, FloatArray]] = []
    for part in parts:
        rows = np.flatnonzero(~np.isin(part.keys, without))
        keys, own = part.keys[rows], part.labels.take(rows)
        held.labels.put(keys.tolist(), own._replace(deadlines=None))
        if own.deadlines is not None:
            moments.append((keys, own.deadlines))
    if moments:  # all at once, which is much sooner
        columns: Any = map(np.concatenate, zip(*moments, strict=True))
        keys, deadlines = columns
        keys, first = np.unique(keys, return_index=True)
        held.labels.put(keys.tolist(), Beside(deadlines=deadlines[first]))


def renew(held: Held, keys: IntArray, part: Part) -> None:
    """Replace what is known of some keys, by a part of others; see `take`."""
    held.forget(keys)
    take(held, [part])
