"""Memory for the results of searches.

The first write to new memory takes longer than the search that fills it. So each thread keeps some memory for
its next search, until `forget` frees it, and a large result grows in one array.
"""

from __future__ import annotations

import threading
from weakref import ref

import numpy as np

from rtfilter.basics.dtypes import AnyArray, IntArray
from rtfilter.index.kernels.runs import RUNS_BY_ADDRESS, Runs, room_for

#: Most hits for which a thread keeps room; 9 bytes each.
KEPT = 1 << 25


class _Kept:
    """The room that a thread keeps: none, or one."""

    def __init__(self) -> None:
        self.rooms: list[tuple[Runs, IntArray]] = []


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.kept = _Kept()
        _all.append(ref(self.kept, _all.remove))


_all: list[ref[_Kept]] = []
_scratch = _Scratch()


def taken() -> tuple[Runs, IntArray]:
    """Remove the room from this thread's store, or make some; return it with its addresses.

    No other search has it before it is `returned`: a signal handler or a finalizer may search, too.
    """
    try:
        return _scratch.kept.rooms.pop()
    except IndexError:
        return _room(1024)


def larger(room: Runs) -> tuple[Runs, IntArray]:
    """Return new room that is larger than `room`, with its addresses."""
    size = len(room.ids)
    return _room(min(4 * size, KEPT) if size < KEPT else 2 * size)


def returned(room: Runs, addresses: IntArray) -> None:
    """Store room for the next search of this thread, unless it has some or this is too large."""
    rooms = _scratch.kept.rooms
    if not rooms and len(room.ids) <= KEPT:
        rooms.append((room, addresses))


def forget() -> None:
    """Free the room that threads keep and do not use now: after large results, hundreds of megabytes."""
    for one in _all:
        if (kept := one()) is not None:
            kept.rooms.clear()


def _room(hits: int) -> tuple[Runs, IntArray]:
    room = room_for(hits)
    return room, RUNS_BY_ADDRESS.addresses(room)


class GrowingArray:
    """An array whose rows arrive in parts; `times` is the expected size as a multiple of the first part."""

    def __init__(self, first: AnyArray, times: float) -> None:
        # Unused room costs nothing, but the first part may be untypical.
        self._array = np.empty(int(min(1.5 * times, 16.0) * len(first)) + KEPT, first.dtype)
        self._array[: len(first)] = first
        self.used = len(first)

    def room(self, rows: int) -> AnyArray:
        """Return the next `rows` rows, for writing."""
        if self.used + rows > len(self._array):
            larger = np.empty(self.used + rows + len(self._array) // 2, self._array.dtype)
            larger[: self.used] = self._array[: self.used]
            self._array = larger
        return self._array[self.used : self.used + rows]

    def put(self, rows: AnyArray) -> None:
        """Append rows."""
        self.room(len(rows))[:] = rows
        self.used += len(rows)

    def closed(self) -> AnyArray:
        """Return the rows that arrived. Afterwards, add no rows, and do not read rows from `room`."""
        # This returns the rest to the system. A copy would write as much new memory again.
        self._array.resize(self.used, refcheck=False)
        return self._array
