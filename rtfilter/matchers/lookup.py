"""Boxes that events find in a hash table: by an equality, or by the beginning or end of a text.

Each box waits under the one of its equalities and affixes under which the fewest wait so far
(`rtfilter.matchers.equal_sides`). Affixes are further coordinates: a box tells the beginning or end that its
pattern asks for (`rtfilter.predicates.boxes.affixes`). Each attribute, kind and length that occurs is a
column: a box has the checksum there that its texts have, an event that of its own text. One pass over a text
computes the checksums of all lengths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import BoolArray, Flags, FloatArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable, ranges
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.index.kernels.pools import grown
from rtfilter.matchers.equal_sides import EqualSides
from rtfilter.matchers.filters import BoxColumns
from rtfilter.matchers.rows import MOST, distinct
from rtfilter.predicates.boxes.affixes import END, LOWEST_END
from rtfilter.predicates.boxes.compiling import compile_predicate
from rtfilter.predicates.operands.text_comparison import encoded
from rtfilter.predicates.predicate import Predicate

PIECE: Final = 4096
"""Boxes that are added at once."""
_NO_FLAGS: Final = np.empty(0, np.uint8)


class _AffixColumn(NamedTuple):
    """The columns of an attribute."""

    name: str
    lengths: IntArray
    """int64 (k,), ascending: kinds and lengths."""
    columns: IntArray
    """int64 (k,)."""


class AffixColumns:
    """The columns behind the coordinates of a schema; there are more of them as boxes come.

    Boxes tell beginnings and ends by the coordinates `identities`, int64 (t,).
    """

    def __init__(self, schema: Schema) -> None:
        self._names = [name for name, own in schema.attributes.items() if own.family == "str"]
        self.identities = identities_of(schema)
        self._places: list[int] = self.identities.tolist()
        self._dimensions = schema.dimensions
        self._columns: dict[tuple[int, int], int] = {}  # by coordinate, and kind and length
        self._by_attribute: list[_AffixColumn] = []

    @property
    def width(self) -> int:
        """The coordinates of the schema, and the columns behind them."""
        return self._dimensions + len(self._columns)

    def telling(self, low: FloatArray) -> BoolArray | None:
        """Return which boxes tell a beginning or end, bool (m, t), by their low ends; None if none do."""
        if not self._places:
            return None
        ends = low[:, self.identities]
        telling: BoolArray = (ends < 0) & (ends >= LOWEST_END)
        return telling if telling.any() else None

    def of_boxes(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return boxes, float64 (n, D), with the columns behind their sides; adds those that are new."""
        telling = self.telling(low)
        found: list[tuple[IntArray, IntArray, IntArray, int]] = []
        for coordinate, tells in [] if telling is None else zip(self._places, telling.T, strict=True):
            rows = np.flatnonzero(tells)
            told = (-low[rows, coordinate]).astype(np.int64)
            lengths, own = np.unique(told >> 32, return_inverse=True)
            columns = [
                self._columns.setdefault((coordinate, length), self.width) for length in lengths.tolist()
            ]
            found.append((rows, np.array(columns, np.int64)[own], told & 0xFFFFFFFF, coordinate))
        if not self._columns:
            return low, high
        if sum(len(own.columns) for own in self._by_attribute) < len(self._columns):
            self._by_attribute = [*map(self._columns_of, self._names, self._places)]
        lows = np.full((len(low), self.width), -np.inf)
        highs = np.full((len(low), self.width), np.inf)
        lows[:, : self._dimensions], highs[:, : self._dimensions] = low, high
        for rows, own, checksums, coordinate in found:
            lows[rows, own] = highs[rows, own] = checksums
            lows[rows, coordinate] = -np.inf  # the column tells it
        return lows, highs

    def plain(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the boxes, float64 (n, D), that `of_boxes` made these of."""
        lows, highs = low[:, : self._dimensions], high[:, : self._dimensions]
        for (coordinate, length), column in self._columns.items():
            rows = np.flatnonzero(low[:, column] > -np.inf)
            lows[rows, coordinate] = -(length * 2.0**32 + low[rows, column])
        return lows, highs

    def of_events(self, events: EventTable) -> FloatArray:
        """Return the points of events with the columns behind them, -inf where a text is too short."""
        if not self._columns:
            return events.points
        points = np.full((len(events), self.width), -np.inf)
        points[:, : self._dimensions] = events.points
        for name, lengths, columns in self._by_attribute:
            if len(columns):
                sizes, texts = encoded(events.values(name), True)
                data = np.frombuffer(texts, np.uint8)
                _checksums(np.array(sizes, np.int64), data, lengths, columns, _STEPS, points)
        return points

    def _columns_of(self, name: str, coordinate: int) -> _AffixColumn:
        own = sorted((length, column) for (at, length), column in self._columns.items() if at == coordinate)
        lengths, columns = np.array(own, np.int64).reshape(-1, 2).T.copy()
        return _AffixColumn(name, lengths, columns)


def identities_of(schema: Schema) -> IntArray:
    """Return the coordinates `identity` of the attributes of text, int64 (t,)."""
    texts = [name for name, attribute in schema.attributes.items() if attribute.family == "str"]
    return np.array([schema.offsets[name] + 1 for name in texts], np.int64)


def _steps() -> Iterable[int]:
    """Yield what CRC-32 makes of each byte."""
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0xEDB88320 if byte & 1 else 0)
        yield byte


_STEPS: Final = np.fromiter(_steps(), np.uint32, 256)


class FoundBoxes(NamedTuple):
    """The boxes that a table found for n events, by the ids of their subscriptions."""

    offsets: IntArray
    """int64 (n + 1,): event i has ``ids[offsets[i]:offsets[i + 1]]``."""
    ids: IntArray
    """int64 (k,), each at most once per event."""
    exact: BoolArray
    """bool (k,)."""
    tried: IntArray
    """int64 (n,): the boxes that were compared with each event."""

    def take(self, events: IntArray) -> FoundBoxes:
        """Return what was found for some events, int64 (m,), in this order."""
        places, ends = ranges(self.offsets, events)
        return FoundBoxes(ends, self.ids[places], self.exact[places], self.tried[events])

    @unwrapped
    def added_to(self, hits: Hits) -> Hits:
        """Return hits of the same events together with these, of other subscriptions."""
        tried = hits.visits + self.tried
        if not len(self.ids):
            return hits._replace(visits=tried)
        exact = _NO_FLAGS if hits.exact is None else hits.exact
        own = _NO_FLAGS if self.exact.all() else self.exact.astype(np.uint8)
        offsets, ids, flags = _merged(hits.offsets, hits.ids, exact, self.offsets, self.ids, own)
        return Hits(offsets, ids, flags if len(flags) else None, tried)


class Lookup:
    """The table; `updates` counts boxes added and removed. All boxes of a subscription are added at once."""

    def __init__(self, schema: Schema) -> None:
        self.equal, self.affixes = EqualSides(schema.dimensions), AffixColumns(schema)
        self._last: dict[int, int] = {}  # of the rows of each id, the one that came last
        self._before = np.empty(16, np.int64)  # by row, the one that came before it, or -1
        self._ids, self._exact = np.empty(16, np.int64), np.empty(16, np.bool_)  # by row
        self.updates = 0

    def take(self, boxes: BoxColumns, crowds: BoolArray | bool = False) -> BoolArray:
        """Add the subscriptions all of whose boxes have a place; bool (m,): the boxes that were added.

        Boxes with `crowds`, bool (m,) or one for all, have a place whatever number is there.
        """
        crowds = np.broadcast_to(crowds, len(boxes.ids))
        order = np.argsort(boxes.ids, kind="stable")
        ids, taken = boxes.ids[order], np.ones(len(order), np.bool_)
        first = 0
        while first < len(ids):  # in pieces, so that it is seen when a crowd gathers
            last = int(np.searchsorted(ids, ids[min(first + PIECE, len(ids)) - 1], "right"))
            rows = order[first:last]
            low, high = self.affixes.of_boxes(boxes.low[rows], boxes.high[rows])
            self.equal.widen(self.affixes.width)
            crowded = self.equal.crowded(low, high) & ~crowds[rows]
            if crowded.any():
                crowded = np.isin(boxes.ids[rows], boxes.ids[rows][crowded])
                taken[rows] = ~crowded
                rows, low, high = rows[~crowded], low[~crowded], high[~crowded]
            places = self.equal.take_rows(len(rows))
            self._ids = grown(self._ids, self.equal.rows, MOST)
            self._exact = grown(self._exact, self.equal.rows, MOST)
            self._before = grown(self._before, self.equal.rows, MOST)
            self._ids[places], self._exact[places] = boxes.ids[rows], boxes.exact[rows]
            for id, place in zip(boxes.ids[rows].tolist(), places.tolist(), strict=True):
                self._before[place] = self._last.get(id, -1)
                self._last[id] = place  # before it is put there, so that `remove` knows it after an interrupt
            self.equal.put(places, low, high)
            self.updates += len(rows)
            first = last
        if len(ids) > PIECE and 2 * len(ids) > len(self._last):
            self.equal.pack()
        return taken

    def remove(self, ids: IntArray) -> BoolArray:
        """Remove subscriptions; bool (n,): which ids were known."""
        known = np.zeros(len(ids), np.bool_)
        for at, id in enumerate(ids.tolist()):
            if id in self._last:
                known[at] = True
                self.drop(id, self.count_of(id))
        return known

    def drop(self, id: int, count: int) -> None:
        """Remove so many boxes of a known id, those that came first."""
        rows = self._chain(id)
        for left in range(len(rows) - 1, len(rows) - 1 - count, -1):
            self.equal.remove(rows[left])  # before it is forgotten: an interrupt may come in between
            if left:
                self._before[rows[left - 1]] = -1
            else:
                del self._last[id]
            self.equal.give_back(rows[left])
            self.updates += 1

    def _chain(self, id: int) -> list[int]:
        """Return the rows of an id, the last one first."""
        rows, row = [], self._last.get(id, -1)
        while row >= 0:
            rows.append(row)
            row = int(self._before[row])
        return rows

    def search(self, events: EventTable) -> FoundBoxes:
        """Find the boxes that contain each event."""
        offsets, rows, tried = self.equal.search(self.affixes.of_events(events))
        ids, exact = self._ids[rows], self._exact[rows]
        if len(self.equal) > len(self._last):  # some have several boxes
            offsets, ids, exact = distinct(offsets, ids, exact)
        return FoundBoxes(offsets, ids, exact, tried)

    def estimate(self, events: EventTable) -> IntArray:
        """Return how many boxes will be compared with each event, int64 (n,)."""
        return self.equal.estimate(self.affixes.of_events(events))

    def ids(self) -> IntArray:
        """Return the ids, in the order in which they came, int64 (k,)."""
        return np.fromiter(self._last, np.int64, len(self._last))

    def __len__(self) -> int:
        return len(self._last)

    def __contains__(self, id: int) -> bool:
        return id in self._last

    def count_of(self, id: int) -> int:
        """Return how many boxes an id has."""
        return len(self._chain(id))

    def rows_of(self, ids: list[int]) -> IntArray:
        """Return the rows of known ids, int64 (k,)."""
        return np.array([row for id in ids for row in self._chain(id)], np.int64)

    def ends_of(self, ids: IntArray) -> FloatArray:
        """Return the first box's ends that tell beginnings and ends, float64 (k, t), of known ids."""
        rows = np.array([self._chain(id)[-1] for id in ids.tolist()], np.int64)
        return self.boxes(rows).low[:, self.affixes.identities]

    def boxes(self, rows: IntArray) -> BoxColumns:
        """Return the boxes in some rows, without those that nothing lies in."""
        rows = rows[self.equal.holds(rows)]
        low, high = self.affixes.plain(*self.equal.boxes(rows))
        return BoxColumns(self._ids[rows], low, high, self._exact[rows])

    @property
    def nbytes(self) -> int:
        """Memory in use; of the dict about."""
        return self.equal.nbytes + 150 * len(self._last) + 17 * self.equal.rows


def exercise() -> None:
    """Use all kernels once, which loads or compiles them."""
    schema = Schema({"s": str})
    table, event = Lookup(schema), schema.read([{"s": "exercise"}])
    boxes = compile_predicate(Predicate.parse("s LIKE 'exercise%'", schema), schema)
    for id in range(20):  # buckets split
        table.take(BoxColumns(np.array([id]), *boxes))
    table.equal.pack()
    table.estimate(event)
    found = table.search(event)
    found.added_to(Hits(found.offsets, found.ids, None, found.tried))
    found.added_to(Hits(found.offsets, found.ids, np.zeros(len(found.ids), np.uint8), found.tried))
    table.boxes(table.rows_of([1]))
    table.remove(np.arange(20))


@kernel
def _merged(
    first: IntArray,
    ids: IntArray,
    exact: Flags,
    second: IntArray,
    other_ids: IntArray,
    other_exact: Flags,
) -> tuple[IntArray, IntArray, Flags]:
    """Return offsets, ids and flags of both, event by event; no flags where both have none."""
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


@kernel
def _checksums(
    sizes: IntArray,
    texts: NDArray[np.uint8],
    lengths: IntArray,
    columns: IntArray,
    steps: NDArray[np.uint32],
    points: FloatArray,
) -> None:
    """Write the checksums of texts that lie one after the other; kinds and lengths ascend."""
    begin = np.int64(0)
    for row in range(len(sizes)):
        size = max(sizes[row], 0)
        checksum, done, kind = np.uint32(0xFFFFFFFF), np.int64(0), np.int64(0)
        for at in range(len(lengths)):
            length = lengths[at] & 0xFF
            if lengths[at] >> 8 != kind:
                checksum, done, kind = np.uint32(0xFFFFFFFF), np.int64(0), lengths[at] >> 8
            if length > size:
                continue
            while done < length:
                byte = texts[begin + size - 1 - done] if kind == END else texts[begin + done]
                checksum = steps[(checksum ^ byte) & np.uint32(0xFF)] ^ (checksum >> np.uint32(8))
                done += 1
            points[row, columns[at]] = np.float64(checksum ^ np.uint32(0xFFFFFFFF))
        begin += size
