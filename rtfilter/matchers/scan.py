"""A scan of all boxes in plain NumPy: it needs no compiled code, so a filter can begin with it at once.

The ends of all boxes lie in columns, one row an end, the lower ends negated: a box contains a point if
``(-point, point) <= ends`` holds in its whole column. One event needs one comparison with all ends. A batch
is compared end by end, until few pairs of an event and a box are left. Ends that no box has are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final

import numpy as np

from rtfilter.basics.dtypes import BoolArray, Flags, FloatArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.selection import How
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Takes
from rtfilter.matchers.rows import IdMatcher, distinct

PAIRS: Final = 1 << 17
"""Pairs of an event and a box that are compared together: one byte each, so that they stay in the cache."""
FEW: Final = 64
"""Compared pairs for each remaining pair from which only the remaining pairs are compared further."""
STEP: Final = 4
"""Ends after which the remaining pairs are counted."""
BOXES: Final = 4096
"""Most boxes that are compared together."""
LITTLE: Final = 48
"""Most boxes that Python compares with one event: it takes 30 to 200 ns for each, the calls of NumPy 5 us."""

CALL: Final = 20_000
"""Comparisons that take as long as a call of NumPy takes longer than a call of compiled code, about."""
EACH, FREE = 60, 16
"""Comparisons that take as long as Python for a box, and boxes for which compiled code is not faster."""

_Side = tuple[int, float, float]
"""A coordinate with closed ends."""
_Tests = tuple[int, int, float, float, list[_Side]]
"""The place of a box, one of its bounded sides, and the others."""
_ANY: Final[_Side] = 0, -inf, inf
_FIRST: Final = 64  # columns of an empty scan
_NONE: Final = np.empty(0, np.int64)
_NOTHING: Final = _NONE, None


class ScanMatcher(IdMatcher[tuple[int, ...]]):
    """Compares each event with all boxes.

    Boxes are appended. A removed box gets an end that no point satisfies; once half of all boxes are removed,
    the others are packed.
    """

    takes = Takes(gradual=False)
    unit = "boxes"
    work = 0
    """Comparisons of ends so far, about: a measure of the time that compiled code would save."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._ends, self._ids, self._exact = self._room(_FIRST)
        self._used = 0  # filled places
        self._bounding = np.zeros(len(self._ends), np.bool_)  # ends that some box has
        self._bounding[0] = True  # the end that marks removed boxes
        self._rows: IntArray | slice = np.flatnonzero(self._bounding)
        self._tests: list[_Tests] | None = None  # see `_few`
        self._several = False  # True if any id has several boxes
        self._all_exact = True  # True if all boxes ever added are exact

    def _room(self, places: int) -> tuple[FloatArray, IntArray, BoolArray]:
        """Return empty arrays for the ends, ids and exactness of `places` boxes."""
        ends = np.empty((2 * self._schema.dimensions, places))
        return ends, np.empty(places, np.int64), np.empty(places, np.bool_)

    def add(self, filters: Filters) -> None:
        """See `Matcher`."""
        self._tests = None
        boxes = filters.boxes()
        first, last = self._used, self._used + len(boxes.ids)
        if last > len(self._ids):
            self._grow(max(last, 2 * len(self._ids)))
        # No search reads behind `_used`, so values of an interrupted call do no harm.
        np.negative(boxes.low.T, out=self._ends[: self._schema.dimensions, first:last])
        self._ends[self._schema.dimensions :, first:last] = boxes.high.T
        self._ids[first:last], self._exact[first:last] = boxes.ids, boxes.exact
        if not isinstance(self._rows, slice):
            self._bounding |= (self._ends[:, first:last] < np.inf).any(axis=1)
            self._rows = slice(None) if self._bounding.all() else np.flatnonzero(self._bounding)
        for place, id in enumerate(boxes.ids.tolist(), first):
            known = self._known.get(id)
            self._known[id] = (place,) if known is None else (*known, place)
            self._several |= known is not None
        self._all_exact = self._all_exact and bool(boxes.exact.all())
        self._updates += last - first
        self._used = last

    def _grow(self, places: int) -> None:
        larger = self._room(places)
        for column, old in zip(larger, (self._ends, self._ids, self._exact), strict=True):
            column[..., : self._used] = old[..., : self._used]
        # The ids come last: their length shows a later change that it must grow.
        self._ends, self._exact, self._ids = larger[0], larger[2], larger[1]

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        self._tests = None
        known = np.zeros(len(ids), np.bool_)
        for row, id in enumerate(ids.tolist()):
            for place in self._known.get(id, ()):
                self._updates += int(place < self._used)
                self._ends[0, place] = np.nan
            known[row] = self._known.pop(id, None) is not None
        if 2 * self._alive() < self._used:
            self._pack()
        return known

    def _alive(self) -> int:
        """Return the number of boxes that are not removed."""
        if not self._several:
            return len(self._known)
        return int(np.count_nonzero(self._ends[0, : self._used] == self._ends[0, : self._used]))

    def _pack(self) -> None:
        """Pack the boxes that are not removed."""
        packed = ScanMatcher(self._schema)
        packed.add(self.content())
        packed._updates, packed.work = self._updates, self.work
        self.__dict__.update(packed.__dict__)

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`; visits are boxes: each is compared."""
        points, rows = events.points, self._rows
        if len(points) == 1:
            return Hits.of_one(*self.match_one(events), self._used)
        self._count(len(points))
        points = points.T
        if isinstance(rows, slice):
            return self._hits(np.concatenate([-points, points]), rows)
        first = int(np.searchsorted(rows, self._schema.dimensions))
        upper = points[rows[first:] - self._schema.dimensions]
        return self._hits(np.concatenate([-points[rows[:first]], upper]), rows)

    def _count(self, points: int) -> None:
        """Add the work of comparing `points` points with all boxes."""
        ends = len(self._ends) if isinstance(self._rows, slice) else len(self._rows)
        self.work += points * self._used * ends + CALL

    def match_one(self, event: EventTable) -> tuple[IntArray, Flags | None]:
        """See `Single`. Calls of NumPy take most of the time, so there are few."""
        used = self._used
        if used <= LITTLE:
            self.work += max(used - FREE, 0) * EACH
            places = self._few(event.point)
            if self._several and places:
                return self._each_once(places)
            return self._at(np.array(places)) if places else _NOTHING
        self._count(1)
        rows, point = self._rows, event.points[0]
        asked = np.concatenate((-point, point))[rows]
        inside = np.logical_and.reduce(asked[:, np.newaxis] <= self._ends[rows, :used])
        return self._at(inside.nonzero()[0])

    def _at(self, places: IntArray) -> tuple[IntArray, Flags | None]:
        """Return ids and exactness of the boxes at some places, which contain one point."""
        ids, exact = self._ids[places], None
        if not self._all_exact or self._several:
            flags = self._exact[places]
            if self._several:
                _, ids, flags = distinct(np.array((0, len(ids))), ids, flags)
            exact = None if self._all_exact else flags.astype(np.uint8)
        return ids, exact

    def _each_once(self, places: Iterable[int]) -> tuple[IntArray, Flags | None]:
        """Return what `_at` returns for a few places, without the calls of NumPy for ids of several boxes."""
        exact: dict[int, bool] = {}
        for place in places:
            id = self._ids.item(place)
            exact[id] = exact.get(id, False) or self._exact.item(place)
        ids = np.array([*exact], np.int64)
        return ids, None if self._all_exact else np.array([*exact.values()], np.uint8)

    def _few(self, point: Sequence[float]) -> list[int]:
        """Return the places of boxes that contain a point; with few boxes, Python is faster than NumPy."""
        tests = self._tests
        if tests is None:
            tests = self._tests = self._read_tests()
        places = []
        for place, at, low, high, others in tests:
            if low <= point[at] <= high and (not others or all(a <= point[k] <= b for k, a, b in others)):
                places.append(place)
        return places

    def _read_tests(self) -> list[_Tests]:
        """Return the tests of all boxes that are not removed."""
        found: list[_Tests] = []
        for place, ends in enumerate(self._ends[:, : self._used].T.tolist()):
            sides = zip(ends, ends[self._schema.dimensions :], strict=False)
            if ends[0] == ends[0]:
                own = [(at, -low, high) for at, (low, high) in enumerate(sides) if min(low, high) < inf]
                own.sort(key=lambda one: one[2] - one[1])  # equality excludes the most
                found.append((place, *(own[0] if own else _ANY), own[1:]))
        return found

    def search_boxes(self, low: FloatArray, high: FloatArray, how: How) -> Hits:
        """See `SearchingBoxes`."""
        first, last = (low, high) if how != "intersect" else (high, low)
        return self._hits(np.concatenate([-first.T, last.T]), slice(None), within=how == "within")

    def _hits(self, asked: FloatArray, rows: IntArray | slice, within: bool = False) -> Hits:
        """Find the boxes whose ends in some rows are at least `asked`, float64 (r, n).

        With `within`, the ends must be at most `asked`.
        """
        count = asked.shape[1]
        queries, places = self._together(asked, rows, np.greater_equal if within else np.less_equal)
        offsets = np.searchsorted(queries, np.arange(count + 1))
        ids, exact = self._ids[places], self._exact[places]
        if self._several:
            offsets, ids, exact = distinct(offsets, ids, exact)
        flags = None if self._all_exact else exact.astype(np.uint8)
        return Hits(offsets, ids, flags, np.full(count, self._used))

    def _together(self, asked: FloatArray, rows: IntArray | slice, compare: Any) -> tuple[IntArray, IntArray]:
        """Return pairs of a query and the place of a box; queries ascend."""
        count = asked.shape[1]
        width = min(max(self._used, 1), BOXES)
        height = max(1, PAIRS // width)
        left, room = np.empty((2, height, width), np.bool_)
        found = [(_NONE, _NONE)]
        bounding = self._ends[rows, : self._used]
        for query in range(0, count, height):
            for box in range(0, self._used, width):
                own = asked[:, query : query + height]
                ends = bounding[:, box : box + width]
                queries, places = _compared(own, ends, compare, left, room)
                found.append((queries + query, places + box))
        queries, places = map(np.concatenate, zip(*found, strict=True))
        if self._used > width:  # pairs come block by block
            order = np.argsort(queries, kind="stable")
            queries, places = queries[order], places[order]
        return queries, places

    def workload(self, events: EventTable) -> IntArray:
        """See `Matcher`; 0 where there are no boxes."""
        return np.full(len(events), self._used)

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """See `Matcher`."""
        wanted = self._known.values() if ids is None else (self._known.get(id, ()) for id in ids)
        places = np.array([place for own in wanted for place in own], np.int64)
        ends, dimensions = self._ends[:, places], self._schema.dimensions
        low, high = -ends[:dimensions].T, ends[dimensions:].T
        boxes = BoxColumns(
            self._ids[places], np.ascontiguousarray(low), np.ascontiguousarray(high), self._exact[places]
        )
        return Filters.of_boxes(self._schema, boxes)

    def stats(self) -> dict[str, Any]:
        """Return the number of boxes, and the memory."""
        memory = self._ends.nbytes + self._ids.nbytes + self._exact.nbytes
        return self._stats(memory, ids=len(self), boxes=self._alive())


def _compared(
    asked: FloatArray, ends: FloatArray, compare: Any, left: BoolArray, room: BoolArray
) -> tuple[IntArray, IntArray]:
    """Return the pairs of a query and a box that are found; `left` and `room` are memory for all pairs."""
    shape = asked.shape[1], ends.shape[1]
    left, room = left[: shape[0], : shape[1]], room[: shape[0], : shape[1]]
    compare(asked[0][:, np.newaxis], ends[0], out=left)
    for end in range(1, len(ends)):
        if end % STEP == 0 and FEW * np.count_nonzero(left) <= left.size:
            queries, places = np.nonzero(left)
            for later in range(end, len(ends)):
                kept = compare(asked[later][queries], ends[later][places])
                queries, places = queries[kept], places[kept]
            return queries, places
        compare(asked[end][:, np.newaxis], ends[end], out=room)
        left &= room
    queries, places = np.nonzero(left)
    return queries, places
