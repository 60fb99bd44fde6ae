"""Beginnings and ends of texts as further coordinates, by which boxes wait in a hash table.

A box tells the beginning or end that its pattern asks for (`rtfilter.predicates.boxes.affixes`). Each
attribute, kind and length that occurs is a column: a box has the checksum there that its texts have, an event
that of its own text. One pass over a text computes the checksums of all lengths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels.jit import kernel
from rtfilter.predicates.boxes.affixes import END, LOWEST_END
from rtfilter.predicates.operands.text_comparison import encoded


class _Asked(NamedTuple):
    """The columns of an attribute."""

    name: str
    lengths: IntArray
    """int64 (k,), ascending: kinds and lengths."""
    columns: IntArray
    """int64 (k,)."""


class AffixColumns:
    """The columns behind the coordinates of a schema; there are more of them as boxes come.

    Attributes
    ----------
    identities : int64 (t,)
        The coordinates by which boxes tell beginnings and ends.
    """

    def __init__(self, schema: Schema) -> None:
        self._names = [name for name, own in schema.attributes.items() if own.family == "str"]
        self.identities = identities_of(schema)
        self._places: list[int] = self.identities.tolist()
        self._dimensions = schema.dimensions
        self._columns: dict[tuple[int, int], int] = {}  # by coordinate, and kind and length
        self._asked: list[_Asked] = []

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
        if sum(len(asked.columns) for asked in self._asked) < len(self._columns):
            self._asked = [*map(self._asked_of, self._names, self._places)]
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
        for name, lengths, columns in self._asked:
            if len(columns):
                sizes, texts = encoded(events.values(name), True)
                data = np.frombuffer(texts, np.uint8)
                _checksums(np.array(sizes, np.int64), data, lengths, columns, _STEPS, points)
        return points

    def _asked_of(self, name: str, coordinate: int) -> _Asked:
        own = sorted((length, column) for (at, length), column in self._columns.items() if at == coordinate)
        lengths, columns = np.array(own, np.int64).reshape(-1, 2).T.copy()
        return _Asked(name, lengths, columns)


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
