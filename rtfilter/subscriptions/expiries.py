"""The expiry of subscriptions: a column of times by handle, which looks up many handles at once.

It is a hash table of two columns, with linear probing: 16 bytes a place; at most two thirds are taken.
"""

from __future__ import annotations

from math import inf
from typing import Final

import numpy as np

from rtfilter.basics.dtypes import BoolArray, FloatArray, IntArray
from rtfilter.subscriptions.ids import NO_IDS

EMPTY: Final = -1
"""Marks a place without a handle."""
LEAST: Final = 64
"""Places of the smallest table; a power of two."""
FACTOR: Final = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: multiplication by it spreads handles that lie close together."""
SCAN: Final = 4096
"""Places that one step searches for expired handles, in about 10 us."""

_ALL = 2**64 - 1


class Expiries:
    """Times at which subscriptions expire, in seconds of a clock, float64, by handle.

    Threads may look up at the same time; a change must run alone. An interrupted change can be repeated.

    Attributes
    ----------
    earliest : float
        No handle expires before this time.
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
        # In the order of the hashes, each handle takes the next free place; the last ones may need extra
        # places.
        number = np.arange(len(handles))
        places = np.maximum.accumulate(_hashed(handles[order], shift) - number) + number
        # The last place stays empty, even after one more `put`: every search ends there.
        table = np.full(max(size + 16, int(places.max(initial=0)) + 3), EMPTY)
        deadlines = np.full(len(table), inf)
        table[places], deadlines[places] = handles[order], at[order]
        self._sweep = 0, inf  # the next place to search, and the earliest expiry of the places before it
        self._table = table, deadlines, shift
        self._used = len(handles)

    # -- changing --------------------------------------------------------------------------------------------

    def put(self, handle: int, deadline: float) -> None:
        """Set the expiry of a handle; inf for none."""
        place, found = self._place(handle)
        if not found:
            if deadline == inf:
                return
            if 3 * self._used >= 2 * len(self._table[0]) or place + 1 == len(self._table[0]):
                self._grow()
                place, _ = self._place(handle)
        # The bounds come first: readers do not see an expiry below them.
        hand, least = self._sweep
        self.earliest, self._sweep = min(self.earliest, deadline), (hand, min(least, deadline))
        table, deadlines, _ = self._table
        deadlines[place] = deadline
        if not found:
            table[place] = handle
            self._used += 1

    def put_many(self, handles: IntArray, deadlines: FloatArray) -> None:
        """Set the expiry of distinct handles, int64 (n,) and float64 (n,); inf for none."""
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
        """Remove the expiry of a handle, if it has one."""
        place, found = self._place(handle)
        if found:
            self._table[1][place] = inf

    def _place(self, handle: int) -> tuple[int, bool]:
        """Return the place of a handle, or the free place for it, and whether the handle is there."""
        table, _, shift = self._table
        place = (int(handle) * FACTOR & _ALL) >> shift
        while (here := table.item(place)) != handle:
            if here == EMPTY:
                return place, False
            place += 1
        return place, True

    def _grow(self) -> None:
        """Make a new table of the handles that expire."""
        table, deadlines, _ = self._table
        used = np.flatnonzero(deadlines < inf)
        self._fill(table[used], deadlines[used])

    # -- looking up ------------------------------------------------------------------------------------------

    def get(self, handle: int) -> float:
        """Return the expiry of a handle, inf if it has none."""
        place, found = self._place(handle)
        return self._table[1].item(place) if found else inf

    def of(self, handles: IntArray) -> FloatArray:
        """Return the expiry of each handle, float64 (n,), inf if it has none."""
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

    def all_passed(self, moment: float) -> IntArray:
        """Return all handles that are expired at a moment, int64 (n,)."""
        if moment < self.earliest:
            return NO_IDS
        table, deadlines, _ = self._table
        found: IntArray = table[deadlines <= moment]
        return found

    def next_passed(self, moment: float, most: int) -> IntArray:
        """Return at most `most` handles that are expired at a moment, int64 (n,); the caller removes them.

        Each call searches a small piece of the table, and the next call goes on from there. It must run
        alone.
        """
        table, deadlines, _ = self._table
        for _ in range(1 + most // 8):
            if moment < self.earliest:
                break
            hand, least = self._sweep
            slice_ = deadlines[hand : hand + SCAN]
            places = np.flatnonzero(slice_ <= moment)
            if len(places):  # this piece is searched again until they are removed
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
        """Return all handles that expire, ascending, int64 (n,), and their expiry, float64 (n,)."""
        table, deadlines, _ = self._table
        used = np.flatnonzero(deadlines < inf)
        order = used[np.argsort(table[used])]
        return table[order], deadlines[order]


def _hashed(handles: IntArray, shift: int) -> IntArray:
    """Return the places at which the search for handles begins, int64 (n,)."""
    places: IntArray = (handles.astype(np.uint64) * np.uint64(FACTOR) >> np.uint64(shift)).astype(np.int64)
    return places
