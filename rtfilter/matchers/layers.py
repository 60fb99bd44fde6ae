"""Changes for structures that can only be built as a whole: a few of them, of doubling sizes.

New boxes become a layer of their own. Layers of similar size are joined and built again, so that a box is
built into at most log n structures (Bentley and Saxe: decomposable searching problems). A search skips
removed boxes; once half of all are removed, everything is built again.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.room import GrowingArray
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Takes
from rtfilter.matchers.rows import BoxMatcher, FoundRows, grouped

PIECE: Final = 1 << 18
"""Hits, about, of the events that are matched at once: they stay in the cache until they are ids."""

FIRST: Final = 64
"""Events that are matched at once before the number of their hits is known."""

_NO_IDS: Final = np.empty(0, np.int64)


class Structure(Protocol):
    """The index of a layer, built from boxes; a search returns their rows."""

    def search(self, points: FloatArray) -> FoundRows:
        """Return the boxes that contain each point."""

    def estimate(self, points: FloatArray) -> IntArray:
        """Return the estimated operations per point, int64 (n,)."""

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""


class _Layer(NamedTuple):
    first: int
    last: int
    """Its boxes are the rows first..last - 1."""
    structure: Structure


class LayeredMatcher(BoxMatcher):
    """A matcher of boxes over structures that are built as a whole. Subclasses define these and the unit."""

    takes = Takes(gradual=False)

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._used = self._live = 0  # rows, and rows that are alive
        self._layers: list[_Layer] = []
        self._hits_per_event = PIECE / FIRST  # in recent batches

    @abstractmethod
    def _build(self, low: FloatArray, high: FloatArray) -> Structure:
        """Build the structure of some boxes, float64 (n, D), n > 0."""

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        boxes = filters.boxes()
        if not len(boxes.ids):
            return
        first, last = self._used, self._used + len(boxes.ids)
        self._rows = rows = self._rows.grown(last)
        # Not alive until everything is in its place: a search never finds the boxes of an interrupted call.
        rows.alive[first:last] = False
        self._used = last
        self._write(range(first, last), boxes)
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
            known[place] = id in self._known
            for row in self._chain(id):
                self._updates += int(self._rows.alive[row])
                self._rows.alive[row] = False
            self._known.pop(id, None)
        self._count_live()
        if 2 * self._live < self._used:
            self._rebuild()
        return known

    def _alive(self) -> IntArray:
        return np.flatnonzero(self._rows.alive[: self._used])

    def _count_live(self) -> None:
        # Counted again instead of added up: an interrupt may have come between a row and its count.
        self._live = int(np.count_nonzero(self._rows.alive[: self._used]))

    def _rebuild(self) -> None:
        """Build everything again without the removed boxes."""
        fresh = type(self)(self._schema)
        fresh.add(self.content())
        fresh._updates = self._updates
        self.__dict__.update(fresh.__dict__)

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`."""
        points = events.points
        size = self._affordable(len(points))
        first = self._match(points[:size])
        if size == len(points):
            return first
        ids, parts = GrowingArray(first.ids, len(points) / size), [first._replace(ids=_NO_IDS)]
        while size < len(points):
            last = size + self._affordable(len(points) - size)
            part = self._match(points[size:last])
            ids.put(part.ids)
            parts.append(part._replace(ids=_NO_IDS))
            size = last
        exact = None
        if any(part.exact is not None for part in parts):
            exact = np.concatenate([_flags(part) for part in parts])
        return Hits.joined(parts, ids.closed(), exact)

    def _affordable(self, events: int) -> int:
        """Return how many of the events to match at once."""
        return min(events, max(1, int(PIECE / self._hits_per_event)))

    def _match(self, points: FloatArray) -> Hits:
        count = len(points)
        found = [layer.structure.search(points) for layer in self._layers]
        work = sum((one.work for one in found), np.zeros(count, np.int64))
        if len(found) == 1:
            offsets, rows = found[0].offsets, found[0].rows  # of the first layer, which begins with row 0
        else:
            offsets, rows = _merged(found, [layer.first for layer in self._layers], count)
        if self._live < self._used:
            offsets, rows = _kept(offsets, rows, self._rows.alive[rows])
        self._hits_per_event = max(1.0, len(rows) / max(count, 1))
        return self._hits(offsets, rows, work)

    def workload(self, events: EventTable) -> IntArray:
        """See `Matcher`; 0 where there is nothing to match."""
        parts = (layer.structure.estimate(events.points) for layer in self._layers)
        return sum(parts, np.zeros(len(events), np.int64))

    def stats(self) -> dict[str, Any]:
        """Return the numbers of boxes and layers, and the memory."""
        memory = self._rows.nbytes(self._used) + sum(layer.structure.nbytes for layer in self._layers)
        sizes = [layer.last - layer.first for layer in self._layers]
        return self._stats(memory, boxes=self._live, layers=sizes)


def _flags(hits: Hits) -> NDArray[np.uint8]:
    return np.ones(hits.offsets[-1], np.uint8) if hits.exact is None else hits.exact


def _merged(found: list[FoundRows], firsts: list[int], count: int) -> tuple[IntArray, IntArray]:
    """Return offsets and rows of all layers, event by event."""
    empty = np.empty(0, np.int64)
    events = [np.repeat(np.arange(count), np.diff(one.offsets)) for one in found]
    rows = [one.rows + first for one, first in zip(found, firsts, strict=True)]
    return grouped(np.concatenate([empty, *events]), np.concatenate([empty, *rows]), count)


def _kept(offsets: IntArray, rows: IntArray, keep: BoolArray) -> tuple[IntArray, IntArray]:
    before = np.concatenate([[0], np.cumsum(keep)])
    return before[offsets], rows[keep]
