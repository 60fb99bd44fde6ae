"""Changes for structures that can only be built whole: a few of them side by side, of doubling sizes.

New boxes become a layer of their own; layers of like size are joined and built anew, so that a box is built
into log n structures at most (Bentley and Saxe: decomposable searching problems). Removed boxes are passed
over until half of all are, then everything is built anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from rtfilter.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Takes
from rtfilter.results import Hits


class Found(NamedTuple):
    """Boxes that contain each of n points; point i has ``rows[offsets[i]:offsets[i + 1]]``."""

    offsets: IntArray
    rows: IntArray
    work: IntArray
    """int64 (n,): operations."""


class Structure(Protocol):
    """What a layer is searched by: built of boxes, their rows the answer."""

    def search(self, points: FloatArray) -> Found:
        """The boxes that contain each point."""

    def estimate(self, points: FloatArray) -> IntArray:
        """Estimated operations per point, int64 (n,)."""

    @property
    def nbytes(self) -> int:
        """Memory it takes."""


class _Layer(NamedTuple):
    first: int
    last: int
    """Its boxes are the rows first..last - 1."""
    structure: Structure


class LayeredMatcher(ABC):
    """A matcher of boxes over structures that are built whole. Subclasses say which, and its unit of work."""

    takes = Takes(gradual=False)
    options: Mapping[str, Any] = MappingProxyType({})
    unit: str

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._rows = _Rows.room(64, schema.dimensions)
        self._used = 0  # rows
        self._first: dict[int, int] = {}  # the first row of each id
        self._layers: list[_Layer] = []
        self._live = self._updates = 0
        self._several = False  # whether any id has several boxes

    @abstractmethod
    def _build(self, low: FloatArray, high: FloatArray) -> Structure:
        """Build the structure of some boxes, float64 (n, D), n > 0."""

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        boxes = filters.boxes()
        if not len(boxes.ids):
            return
        first, last = self._used, self._used + len(boxes.ids)
        self._rows = rows = self._rows.grown(self._used, last)
        for column, given in zip(rows, boxes, strict=False):
            column[first:last] = given
        # Not alive until everything is in its place: if this is interrupted, nothing of it is ever found.
        rows.alive[first:last] = False
        self._used = last
        for row, id in enumerate(boxes.ids.tolist(), first):
            rows.following[row] = self._first.get(id, -1)
            self._several |= id in self._first
            self._first[id] = row
        begin, layers = first, list(self._layers)
        while layers and last - begin >= layers[-1].last - layers[-1].first:
            begin = layers.pop().first
        built = self._build(rows.low[begin:last], rows.high[begin:last])
        self._layers = [*layers, _Layer(begin, last, built)]
        self._updates += len(boxes.ids)
        rows.alive[first:last] = True
        self._count_live()

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        known = np.zeros(len(ids), np.bool_)
        for place, id in enumerate(ids.tolist()):
            known[place] = id in self._first
            for row in self._chain(id):
                self._updates += int(self._rows.alive[row])
                self._rows.alive[row] = False
            self._first.pop(id, None)
        self._count_live()
        if 2 * self._live < self._used:
            self._rebuild()
        return known

    def _count_live(self) -> None:
        # Counted anew and not added up: an interrupt may have come between a row and its count.
        self._live = int(np.count_nonzero(self._rows.alive[: self._used]))

    def _rebuild(self) -> None:
        """Leave the removed boxes out."""
        fresh = type(self)(self._schema)
        fresh.add(self.content())
        fresh._updates = self._updates
        self.__dict__.update(fresh.__dict__)

    def match(self, events: EventTable, *, first_only: bool = False) -> Hits:
        """See `Matcher`."""
        count = len(events)
        found = [layer.structure.search(events.points) for layer in self._layers]
        work = sum((one.work for one in found), np.zeros(count, np.int64))
        if len(found) == 1:
            offsets, rows = found[0].offsets, found[0].rows + self._layers[0].first
        else:
            offsets, rows = _merged(found, [layer.first for layer in self._layers], count)
        if self._live < self._used:
            offsets, rows = _kept(offsets, rows, self._rows.alive[rows])
        ids, exact = self._rows.ids[rows], self._rows.exact[rows]
        if self._several:
            offsets, ids, exact = distinct(offsets, ids, exact)
        return Hits(offsets, ids, None if exact.all() else exact.astype(np.uint8), work)

    def workload(self, events: EventTable) -> IntArray:
        """See `Matcher`; 0 where there is nothing to match."""
        parts = (layer.structure.estimate(events.points) for layer in self._layers)
        return sum(parts, np.zeros(len(events), np.int64))

    def ids(self) -> IntArray:
        """See `Matcher`."""
        return np.sort(np.fromiter(self._first, np.int64, len(self._first)))

    def __len__(self) -> int:
        return len(self._first)

    def __contains__(self, id: int) -> bool:
        return id in self._first

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """The boxes of some ids, or of all."""
        if ids is None:
            rows = np.flatnonzero(self._rows.alive[: self._used])
        else:
            rows = np.array([row for id in ids for row in self._chain(id)], np.int64)
        return Filters.of_boxes(self._schema, self._rows.boxes(rows))

    def _chain(self, id: int) -> Iterable[int]:
        """The rows of an id."""
        row = self._first.get(id, -1)
        while row >= 0:
            yield row
            row = int(self._rows.following[row])

    @property
    def updates(self) -> int:
        """Boxes added and removed."""
        return self._updates

    def stats(self) -> dict[str, Any]:
        """Boxes, layers and memory."""
        structures = sum(layer.structure.nbytes for layer in self._layers)
        return {
            "boxes": self._live,
            "dimensions": self._schema.dimensions,
            "height": 1,
            "layers": [layer.last - layer.first for layer in self._layers],
            "updates": self._updates,
            "bytes": structures + sum(column.nbytes for column in self._rows),
            "unit": self.unit,
        }


class _Rows(NamedTuple):
    """Boxes, one a row, with room for more."""

    ids: IntArray
    low: FloatArray
    high: FloatArray
    exact: BoolArray
    alive: BoolArray
    """Whether it is to be found."""
    following: IntArray
    """The next row of the same id, or -1."""

    @classmethod
    def room(cls, rows: int, dimensions: int) -> _Rows:
        """Room for so many."""
        low, high = np.empty((rows, dimensions)), np.empty((rows, dimensions))
        exact, alive = np.empty(rows, np.bool_), np.empty(rows, np.bool_)
        return cls(np.empty(rows, np.int64), low, high, exact, alive, np.empty(rows, np.int64))

    def grown(self, used: int, rows: int) -> _Rows:
        """These, or a copy of those used with room for at least so many."""
        if rows <= len(self.ids):
            return self
        larger = _Rows.room(max(rows, 2 * len(self.ids)), self.low.shape[1])
        for column, old in zip(larger, self, strict=True):
            column[:used] = old[:used]
        return larger

    def boxes(self, rows: IntArray) -> BoxColumns:
        """Some of them."""
        return BoxColumns(self.ids[rows], self.low[rows], self.high[rows], self.exact[rows])


def _merged(found: list[Found], firsts: list[int], count: int) -> tuple[IntArray, IntArray]:
    """Offsets and rows of all layers, event by event."""
    empty = np.empty(0, np.int64)
    events = [np.repeat(np.arange(count), np.diff(one.offsets)) for one in found]
    rows = [one.rows + first for one, first in zip(found, firsts, strict=True)]
    return grouped(np.concatenate([empty, *events]), np.concatenate([empty, *rows]), count)


def grouped(events: IntArray, rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Offsets, int64 (count + 1,), and rows by event, from pairs of an event and a row in any order."""
    order = np.argsort(events, kind="stable")
    return np.searchsorted(events[order], np.arange(count + 1)), rows[order]


def _kept(offsets: IntArray, rows: IntArray, keep: BoolArray) -> tuple[IntArray, IntArray]:
    before = np.concatenate([[0], np.cumsum(keep)])
    return before[offsets], rows[keep]


def distinct(offsets: IntArray, ids: IntArray, exact: BoolArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Each id once per event, exact if any of its boxes was."""
    events = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((~exact, ids, events))
    events, ids, exact = events[order], ids[order], exact[order]
    first = np.ones(len(ids), np.bool_)
    first[1:] = (events[1:] != events[:-1]) | (ids[1:] != ids[:-1])
    counts = np.bincount(events[first], minlength=len(offsets) - 1)
    return np.concatenate([[0], np.cumsum(counts)]), ids[first], exact[first]
