"""The expiry of subscriptions: a column of deadlines by handle, in which many are looked up at once.

It is a hash table of two columns, with linear probing: 16 bytes a place; at most two thirds are taken.
"""

from __future__ import annotations

from math import inf
from typing import Final

import numpy as np

from rtfilter.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.subscriptions.ids import NO_IDS

EMPTY: Final = -1
"""In a place without a handle."""
LEAST: Final = 64
"""Places of the smallest table; a power of two."""
FACTOR: Final = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: multiplied by it, handles that lie close together are spread."""
SCAN: Final = 4096
"""Places that are looked through for deadlines that have passed, in one go: some 10 us."""

_ALL = 2**64 - 1


class Deadlines:
    """Seconds of a clock after which handles are gone, float64, by handle.

    Many may look up at once; changes run alone. One that was interrupted can be done again.

    Attributes
    ----------
    earliest : float
        No deadline is before; those who ask for an earlier moment need not look.
    """

    def __init__(self, handles: IntArray = NO_IDS, deadlines: FloatArray | None = None) -> None:
        at = np.empty(0) if deadlines is None else deadlines
        self.earliest = float(at.min(initial=inf))
        self._fill(handles, at)

    def _fill(self, handles: IntArray, at: FloatArray) -> None:
        """Make a table of distinct handles, at most half full."""
        size = max(LEAST, 1 << (2 * len(handles)).bit_length())
        shift = 65 - size.bit_length()
        order = np.argsort(_hashed(handles, shift), kind="stable")
        # In the order of their hashes each takes the next free place; the last ones may need some more.
        number = np.arange(len(handles))
        places = np.maximum.accumulate(_hashed(handles[order], shift) - number) + number
        # The last place stays empty, also when one more handle is put: there each search ends.
        table = np.full(max(size + 16, int(places.max(initial=0)) + 3), EMPTY)
        deadlines = np.full(len(table), inf)
        table[places], deadlines[places] = handles[order], at[order]
        self._sweep = 0, inf  # the next place to look through, and the least deadline of those before it
        self._table = table, deadlines, shift
        self._used = len(handles)

    # -- changing --------------------------------------------------------------------------------------------

    def put(self, handle: int, deadline: float) -> None:
        """Set the deadline of a handle; inf is none."""
        place, found = self._place(handle)
        if not found:
            if deadline == inf:
                return
            if 3 * self._used >= 2 * len(self._table[0]) or place + 1 == len(self._table[0]):
                self._grow()
                place, _ = self._place(handle)
        # First the bounds: a deadline below them would not be seen.
        hand, least = self._sweep
        self.earliest, self._sweep = min(self.earliest, deadline), (hand, min(least, deadline))
        table, deadlines, _ = self._table
        deadlines[place] = deadline
        if not found:
            table[place] = handle
            self._used += 1

    def put_many(self, handles: IntArray, deadlines: FloatArray) -> None:
        """Set the deadlines of distinct handles, int64 (n,) and float64 (n,); inf is none."""
        concerned = (deadlines < inf) | (self.of(handles) < inf)
        handles, deadlines = handles[concerned], deadlines[concerned]
        if len(handles) < max(LEAST, self._used // 4):
            for pair in zip(handles.tolist(), deadlines.tolist(), strict=True):
                self.put(*pair)
            return
        before, kept = self.content()
        stays, given = ~np.isin(before, handles), deadlines < inf
        self.earliest = min(self.earliest, float(deadlines.min(initial=inf)))
        self._fill(
            np.concatenate([before[stays], handles[given]]), np.concatenate([kept[stays], deadlines[given]])
        )

    def remove(self, handle: int) -> None:
        """Forget the deadline of a handle, if it has one."""
        place, found = self._place(handle)
        if found:
            self._table[1][place] = inf

    def _place(self, handle: int) -> tuple[int, bool]:
        """Return the place of a handle, or the place where it would be, and whether it is there."""
        table, _, shift = self._table
        place = (int(handle) * FACTOR & _ALL) >> shift
        while (here := table.item(place)) != handle:
            if here == EMPTY:
                return place, False
            place += 1
        return place, True

    def _grow(self) -> None:
        """Make a new table of what has a deadline."""
        table, deadlines, _ = self._table
        used = np.flatnonzero(deadlines < inf)
        self._fill(table[used], deadlines[used])

    # -- looking ---------------------------------------------------------------------------------------------

    def get(self, handle: int) -> float:
        """The deadline of a handle, inf if it has none."""
        place, found = self._place(handle)
        return self._table[1].item(place) if found else inf

    def of(self, handles: IntArray) -> FloatArray:
        """The deadline of each handle, inf for those that have none, float64 (n,)."""
        table, deadlines, shift = self._table
        places = _hashed(handles, shift)
        here = table[places]
        left = np.flatnonzero((here != handles) & (here != EMPTY))
        while len(left):
            places[left] += 1
            here = table[places[left]]
            left = left[(here != handles[left]) & (here != EMPTY)]
        found: FloatArray = np.where(table[places] == handles, deadlines[places], inf)
        return found

    def passed(self, handles: IntArray, moment: float) -> BoolArray | None:
        """Return which handles are expired at a moment, bool (n,); None for none."""
        return None if moment < self.earliest else self.of(handles) <= moment

    def has_passed(self, handle: int, moment: float) -> bool:
        """Return whether a handle is expired at a moment."""
        return self.earliest <= moment and self.get(handle) <= moment

    def all_passed(self, moment: float) -> IntArray:
        """All handles that are gone at a moment, int64 (n,)."""
        if moment < self.earliest:
            return NO_IDS
        table, deadlines, _ = self._table
        found: IntArray = table[deadlines <= moment]
        return found

    def next_passed(self, moment: float, most: int) -> IntArray:
        """Some handles that are gone at a moment, at most so many, for who removes them then, int64 (n,).

        Little is looked through at a time, round and round. It must run alone.
        """
        table, deadlines, _ = self._table
        for _ in range(1 + most // 8):
            if moment < self.earliest:
                break
            hand, least = self._sweep
            slice_ = deadlines[hand : hand + SCAN]
            places = np.flatnonzero(slice_ <= moment)
            if len(places):  # it is looked through again, until they are removed
                found: IntArray = table[hand + places[:most]]
                return found
            least = min(least, float(slice_.min(initial=inf)))
            if hand + SCAN < len(table):
                self._sweep = hand + SCAN, least
            else:
                self.earliest = least
                self._sweep = 0, inf
        return NO_IDS

    def content(self) -> tuple[IntArray, FloatArray]:
        """All handles that have a deadline, ascending, int64 (n,), and their deadlines, float64 (n,)."""
        table, deadlines, _ = self._table
        used = np.flatnonzero(deadlines < inf)
        order = used[np.argsort(table[used])]
        return table[order], deadlines[order]


def _hashed(handles: IntArray, shift: int) -> IntArray:
    """Return the places at which the search for handles begins, int64 (n,)."""
    places: IntArray = (handles.astype(np.uint64) * np.uint64(FACTOR) >> np.uint64(shift)).astype(np.int64)
    return places
