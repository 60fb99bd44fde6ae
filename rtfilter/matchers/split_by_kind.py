"""Subscriptions split by kind: those that a hash table finds there, all others in an R*-tree.

A tree packs boxes that are alike. One that fixes an attribute, and leaves most others open, is like no box of
another kind: it makes every node larger that it lies in. Under its value in a hash table only events try it
that have that value. The same holds for a long beginning or end of a text, of which a box knows six
bytes (`rtfilter.matchers.lookup`). A subscription goes there if each of its boxes has an equality, or
such a beginning or end, under which not too many wait already (`rtfilter.matchers.equal_sides`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from rtfilter.basics.dtypes import BoolArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.lookup import Lookup
from rtfilter.matchers.port import Matcher, Takes
from rtfilter.matchers.rtree import LEAST_ROWS, WASTED, RTreeMatcher

_NO_IDS: Final = np.empty(0, np.int64)


class SplitMatcher:
    """The matcher: it looks equalities, beginnings and ends up, and searches a tree for the rest."""

    takes = Takes()
    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._tree, self._lookup = RTreeMatcher(schema), Lookup(schema)

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        boxes = filters.boxes()
        if not len(boxes.ids):
            return
        other = ~self._lookup.take(boxes)
        if other.any():
            in_tree: Any = (column[other] for column in boxes)
            self._tree.add(Filters.of_boxes(self._schema, BoxColumns(*in_tree)))

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        known = self._lookup.remove(ids)
        rest = np.flatnonzero(~known)
        if len(rest):
            known[rest] = self._tree.remove(ids[rest])
        return known

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`; visits are nodes of the tree, and boxes that are tried besides."""
        if not len(self._lookup):
            return self._tree.match(events)
        found = self._lookup.search(events)
        if len(self._tree):
            return found.added_to(self._tree.match(events))
        exact = None if found.exact.all() else found.exact.astype(np.uint8)
        return Hits(found.offsets, found.ids, exact, found.tried)

    def workload(self, events: EventTable) -> IntArray:
        """Return for each event the leaves to visit and the boxes to compare, int64 (n,)."""
        found = self._lookup.estimate(events)
        return found + self._tree.workload(events) if len(self._tree) else found

    def ids(self) -> IntArray:
        """See `Matcher`."""
        return np.sort(np.concatenate([self._lookup.ids(), self._tree.ids()]))

    def __len__(self) -> int:
        return len(self._lookup) + len(self._tree)

    def __contains__(self, id: int) -> bool:
        return id in self._lookup or id in self._tree

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """Return the boxes of some ids, or of all."""
        wanted = None if ids is None else list(ids)
        own = self._lookup.ids().tolist() if wanted is None else [id for id in wanted if id in self._lookup]
        rest = None if wanted is None else [id for id in wanted if id not in self._lookup]
        return self._joined(self._lookup.rows_of(own), self._tree.content(rest))

    def _joined(self, rows: IntArray, others: Filters) -> Filters:
        own = Filters.of_boxes(self._schema, self._lookup.boxes(rows))
        return Filters.joined(self._schema, [others, own], _NO_IDS)

    @property
    def rows(self) -> int:
        """See `Scannable`: each is a row of the tree and one of the table."""
        return max(self._tree.rows, self._lookup.equal.rows)

    def scan(self, rows: range) -> Filters:
        """See `Scannable`."""
        in_tree = range(min(rows.start, self._tree.rows), min(rows.stop, self._tree.rows))
        own = np.arange(min(rows.start, self._lookup.equal.rows), min(rows.stop, self._lookup.equal.rows))
        return self._joined(own, self._tree.scan(in_tree))

    @property
    def places(self) -> object:
        """See `Scannable`."""
        return self._tree.places

    @property
    def wasteful(self) -> bool:
        """See `Adopting`."""
        rows = self._tree.rows + self._lookup.equal.rows
        return rows > LEAST_ROWS and rows > WASTED * len(self)

    def adopt(self, other: Matcher) -> None:
        """See `Adopting`."""
        assert isinstance(other, SplitMatcher)
        if other._lookup is not self._lookup:
            updates = self.updates + abs(len(other._lookup.equal) - len(self._lookup.equal))
            # The tree counts its own changes when it is adopted.
            other._lookup.updates = updates - self._tree.updates
        self._lookup = other._lookup
        self._tree.adopt(other._tree)

    @property
    def updates(self) -> int:
        """Number of boxes added and removed."""
        return self._lookup.updates + self._tree.updates

    def stats(self) -> dict[str, Any]:
        """Return the numbers of boxes of both kinds, and the memory."""
        tree = self._tree.stats()
        del tree["capacity"], tree["unit"]
        return {
            **tree,
            "boxes": tree["boxes"] + len(self._lookup.equal),
            "looked_up": len(self._lookup.equal),
            "updates": self.updates,
            "bytes": tree["bytes"] + self._lookup.nbytes,
            "unit": "nodes and boxes",
        }
