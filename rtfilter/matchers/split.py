"""Subscriptions split by kind: some with equalities in a hash table, all others in an R*-tree.

A tree packs similar boxes. A box that fixes an attribute, and leaves most others open, is similar to few
others, and makes its nodes larger. In a hash table, only events with its value try it. A subscription goes
there if each of its boxes has an equality with not too many boxes already (`rtfilter.matchers.equal_sides`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels.interrupts import unwrapped
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.pools import grown
from rtfilter.matchers.equal_sides import EqualSides
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Matcher, Takes
from rtfilter.matchers.rows import MOST, distinct
from rtfilter.matchers.rtree import LEAST_ROWS, WASTED, RTreeMatcher
from rtfilter.results import Hits

Flags = NDArray[np.uint8]
_NO_IDS: Final = np.empty(0, np.int64)
_NO_FLAGS: Final = np.empty(0, np.uint8)
PIECE: Final = 4096
"""Boxes that are added at once."""


class SplitMatcher:
    """Looks up equalities, and searches a tree for the rest; fast if there are many of both kinds."""

    takes = Takes()
    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._tree, self._equal = RTreeMatcher(schema), EqualSides(schema.dimensions)
        self._rows: dict[int, list[int]] = {}  # of the boxes with equalities, by id
        self._ids, self._exact = np.empty(16, np.int64), np.empty(16, np.bool_)  # by row
        self._several = False  # True if any id has several such boxes
        self._updates = 0  # of these boxes

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        boxes = filters.boxes()
        if not len(boxes.ids):
            return
        order = np.argsort(boxes.ids, kind="stable")
        ids, other = boxes.ids[order], np.zeros(len(order), np.bool_)
        first = 0
        while first < len(ids):  # in pieces, so that crowded buckets are noticed
            last = int(np.searchsorted(ids, ids[min(first + PIECE, len(ids)) - 1], "right"))
            rows = order[first:last]
            crowded = self._equal.crowded(boxes.low[rows], boxes.high[rows])
            if crowded.any():
                crowded = np.isin(boxes.ids[rows], boxes.ids[rows][crowded])
                other[rows] = crowded
                rows = rows[~crowded]
            self._put(boxes.ids[rows], boxes.low[rows], boxes.high[rows], boxes.exact[rows])
            first = last
        if len(ids) > PIECE and 2 * len(ids) > len(self):
            self._equal.pack()
        if other.any():
            in_tree: Any = (column[other] for column in boxes)
            self._tree.add(Filters.of_boxes(self._schema, BoxColumns(*in_tree)))

    def _put(self, ids: IntArray, low: FloatArray, high: FloatArray, exact: BoolArray) -> None:
        """Add boxes to the hash table."""
        rows = self._equal.take_rows(len(ids))
        self._ids = grown(self._ids, self._equal.rows, MOST)
        self._exact = grown(self._exact, self._equal.rows, MOST)
        self._ids[rows], self._exact[rows] = ids, exact
        for id, row in zip(ids.tolist(), rows.tolist(), strict=True):
            own = self._rows.setdefault(id, [])  # first, so that `remove` knows it after an interrupt
            own.append(row)
            self._several |= len(own) > 1
        self._equal.put(rows, low, high)
        self._updates += len(rows)

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        known = np.zeros(len(ids), np.bool_)
        rest = []
        for at, id in enumerate(ids.tolist()):
            rows = self._rows.get(id)
            if rows is None:
                rest.append(at)
                continue
            known[at] = True
            while rows:
                self._equal.remove(rows[-1])  # before its id is forgotten: an interrupt may come in between
                self._equal.give_back(rows.pop())
                self._updates += 1
            del self._rows[id]
        if rest:
            known[rest] = self._tree.remove(ids[rest])
        return known

    @unwrapped
    def match(self, events: EventTable, *, first_only: bool = False) -> Hits:
        """See `Matcher`; visits are nodes of the tree, and boxes of the hash table that are tried."""
        if not self._rows:
            return self._tree.match(events, first_only=first_only)
        offsets, rows, tried = self._equal.search(events.points)
        ids, exact = self._ids[rows], self._exact[rows]
        if self._several:
            offsets, ids, exact = distinct(offsets, ids, exact)
        if not len(self._tree):
            return Hits(offsets, ids, None if exact.all() else exact.astype(np.uint8), tried)
        hits = self._tree.match(events, first_only=first_only)
        if not len(ids):
            return Hits(hits.offsets, hits.ids, hits.exact, hits.visits + tried)
        none = _NO_FLAGS
        flags = none if exact.all() else exact.astype(np.uint8)
        offsets, ids, flags = _merged(
            hits.offsets, hits.ids, none if hits.exact is None else hits.exact, offsets, ids, flags
        )
        return Hits(offsets, ids, flags if len(flags) else None, hits.visits + tried)

    def workload(self, events: EventTable) -> IntArray:
        """Return the leaves of the tree, plus the boxes of the hash table, that matching will try."""
        found = self._equal.estimate(events.points)
        return found + self._tree.workload(events) if len(self._tree) else found

    def ids(self) -> IntArray:
        """See `Matcher`."""
        own = np.fromiter(self._rows, np.int64, len(self._rows))
        return np.sort(np.concatenate([own, self._tree.ids()]))

    def __len__(self) -> int:
        return len(self._rows) + len(self._tree)

    def __contains__(self, id: int) -> bool:
        return id in self._rows or id in self._tree

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """Return the boxes of some ids, or of all."""
        wanted = None if ids is None else list(ids)
        own = list(self._rows) if wanted is None else [id for id in wanted if id in self._rows]
        rest = None if wanted is None else [id for id in wanted if id not in self._rows]
        rows = np.array([row for id in own for row in self._rows[id]], np.int64)
        return self._joined(rows, self._tree.content(rest))

    def _joined(self, rows: IntArray, others: Filters) -> Filters:
        boxes = BoxColumns(self._ids[rows], *self._equal.boxes(rows), self._exact[rows])
        return Filters.joined(
            self._schema, [others, Filters.of_boxes(self._schema, boxes)], np.empty(0, np.int64)
        )

    @property
    def rows(self) -> int:
        """See `Scannable`: each is a row of the tree and a row of the table."""
        return max(self._tree.rows, self._equal.rows)

    def scan(self, rows: range) -> Filters:
        """See `Scannable`."""
        in_tree = range(min(rows.start, self._tree.rows), min(rows.stop, self._tree.rows))
        own = np.arange(min(rows.start, self._equal.rows), min(rows.stop, self._equal.rows))
        return self._joined(own[self._equal.holds(own)], self._tree.scan(in_tree))

    @property
    def places(self) -> object:
        """See `Scannable`."""
        return self._tree.places

    @property
    def wasteful(self) -> bool:
        """See `Adopting`."""
        rows = self._tree.rows + self._equal.rows
        return rows > LEAST_ROWS and rows > WASTED * len(self)

    def adopt(self, other: Matcher) -> None:
        """See `Adopting`."""
        assert isinstance(other, SplitMatcher)
        if other._equal is not self._equal:
            updates = self.updates + abs(len(other._equal) - len(self._equal))
            # The tree counts its own changes when it is adopted.
            other._updates = updates - self._tree.updates
        self._ids, self._exact, self._several = other._ids, other._exact, other._several
        self._rows, self._updates = other._rows, other._updates
        self._equal = other._equal
        self._tree.adopt(other._tree)

    @property
    def updates(self) -> int:
        """Number of boxes added and removed."""
        return self._updates + self._tree.updates

    def stats(self) -> dict[str, Any]:
        """Return the numbers of boxes of both kinds, and the memory."""
        tree = self._tree.stats()
        del tree["capacity"], tree["unit"]
        rows = 100 * len(self._rows) + self._ids.itemsize * self._equal.rows  # about the memory of a dict
        return {
            **tree,
            "boxes": tree["boxes"] + len(self._equal),
            "looked_up": len(self._equal),
            "updates": self.updates,
            "bytes": tree["bytes"] + self._equal.nbytes + rows,
            "unit": "nodes and boxes",
        }


@kernel
def _merged(
    first: IntArray,
    ids: IntArray,
    exact: Flags,
    second: IntArray,
    other_ids: IntArray,
    other_exact: Flags,
) -> tuple[IntArray, IntArray, Flags]:
    """Return offsets, ids and flags of both results, event by event; no flags if both have none."""
    offsets, total = first + second, len(ids) + len(other_ids)
    both, flags = np.empty(total, np.int64), np.empty(total if len(exact) + len(other_exact) else 0, np.uint8)
    for event in range(len(first) - 1):
        at, middle, end = offsets[event], second[event] + first[event + 1], offsets[event + 1]
        both[at:middle] = ids[first[event] : first[event + 1]]
        both[middle:end] = other_ids[second[event] : second[event + 1]]
        if len(flags):
            flags[at:middle], flags[middle:end] = 1, 1
            if len(exact):
                flags[at:middle] = exact[first[event] : first[event + 1]]
            if len(other_exact):
                flags[middle:end] = other_exact[second[event] : second[event + 1]]
    return offsets, both, flags
