"""The common parts of matchers: the ids, and for matchers of boxes the boxes, one a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.index.kernels.pools import grown
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Takes

MOST: Final = 1 << 30
"""Most rows of a pool, for which it reserves address space."""

K = TypeVar("K")
"""A value that a matcher stores of each id."""


class FoundRows(NamedTuple):
    """Boxes that contain each of n points; point i has ``rows[offsets[i]:offsets[i + 1]]``."""

    offsets: IntArray
    rows: IntArray
    work: IntArray
    """int64 (n,): operations."""


class BoxRows(NamedTuple):
    """Boxes, one a row, with room for more."""

    ids: IntArray
    low: FloatArray
    high: FloatArray
    exact: BoolArray
    alive: BoolArray
    """True if a search may find it."""
    following: IntArray
    """The next row of the same id, or -1."""

    @classmethod
    def room(cls, rows: int, dimensions: int) -> BoxRows:
        """Return empty columns for some rows."""
        low, high = np.empty((rows, dimensions)), np.empty((rows, dimensions))
        exact, alive = np.empty(rows, np.bool_), np.empty(rows, np.bool_)
        return cls(np.empty(rows, np.int64), low, high, exact, alive, np.empty(rows, np.int64))

    def grown(self, rows: int) -> BoxRows:
        """Return the columns with room for at least `rows` rows, without copying large ones if possible."""
        pools = (grown(column, rows, MOST) for column in self)
        return BoxRows(*pools)  # type: ignore[arg-type]

    def nbytes(self, rows: int) -> int:
        """Return the memory of the first rows."""
        return sum(column[:rows].nbytes for column in self)

    def boxes(self, rows: IntArray) -> BoxColumns:
        """Return some of the boxes."""
        return BoxColumns(self.ids[rows], self.low[rows], self.high[rows], self.exact[rows])


class IdMatcher(ABC, Generic[K]):
    """Stores something of each id, and counts changes. See `Matcher` for the methods."""

    takes = Takes()
    options: Mapping[str, Any] = MappingProxyType({})
    unit: str
    """The unit of `Hits.visits`."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[int, K] = {}
        self._updates = 0

    def ids(self) -> IntArray:
        """See `Matcher`."""
        return np.sort(np.fromiter(self._known, np.int64, len(self._known)))

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, id: int) -> bool:
        return id in self._known

    @property
    def updates(self) -> int:
        """Number of boxes, or filters, added and removed."""
        return self._updates

    def _stats(self, memory: int, **own: Any) -> dict[str, Any]:
        common = {"dimensions": self._schema.dimensions, "height": 1, "updates": self._updates}
        return {**own, **common, "bytes": memory, "unit": self.unit}


class BoxMatcher(IdMatcher[int]):
    """Stores the boxes of all subscriptions, and the last row of each id. A subclass finds rows."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._rows = BoxRows.room(64, schema.dimensions)
        self._several = False  # True if any id has several boxes

    @abstractmethod
    def _alive(self) -> IntArray:
        """Return the rows that a search may find."""

    def _write(self, rows: Sequence[int], boxes: BoxColumns) -> None:
        """Write boxes into rows that are not alive, and link them to their ids."""
        where = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        for column, given in zip(self._rows, boxes, strict=False):
            column[where] = given
        for row, id in zip(rows, boxes.ids.tolist(), strict=True):
            self._rows.following[row] = self._known.get(id, -1)
            self._several |= id in self._known
            self._known[id] = row

    def _hits(self, offsets: IntArray, rows: IntArray, work: IntArray) -> Hits:
        """Return the matches by id."""
        ids, exact = self._rows.ids[rows], self._rows.exact[rows]
        if self._several:
            offsets, ids, exact = distinct(offsets, ids, exact)
        return Hits(offsets, ids, None if exact.all() else exact.astype(np.uint8), work)

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """Return the boxes of some ids, or of all."""
        if ids is None:
            rows = self._alive()
        else:
            rows = np.array([row for id in ids for row in self._chain(id)], np.int64)
        return Filters.of_boxes(self._schema, self._rows.boxes(rows))

    def _chain(self, id: int) -> Iterable[int]:
        """Yield the rows of an id."""
        row = self._known.get(id, -1)
        while row >= 0:
            yield row
            row = int(self._rows.following[row])


def grouped(events: IntArray, rows: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return offsets, int64 (count + 1,), and rows by event, of pairs of an event and a row in any order."""
    order = np.argsort(events, kind="stable")
    return np.searchsorted(events[order], np.arange(count + 1)), rows[order]


def distinct(offsets: IntArray, ids: IntArray, exact: BoolArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Return each id once per event; it is exact if any of its boxes was."""
    events = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((~exact, ids, events))
    events, ids, exact = events[order], ids[order], exact[order]
    first = np.ones(len(ids), np.bool_)
    first[1:] = (events[1:] != events[:-1]) | (ids[1:] != ids[:-1])
    counts = np.bincount(events[first], minlength=len(offsets) - 1)
    return np.concatenate([[0], np.cumsum(counts)]), ids[first], exact[first]
