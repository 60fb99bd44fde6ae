"""Memory for what searches find.

The first touch of new memory takes longer than the search that fills it. So each thread keeps some from one
search to the next, until all are told to `forget` it, and a large result grows in one array.
"""

from __future__ import annotations

import threading
from weakref import ref

import numpy as np

from rtfilter.dtypes import AnyArray, IntArray
from rtfilter.index.kernels.runs import RUNS_BY_ADDRESS, Runs, room_for

#: Hits for which a thread keeps room; 9 bytes each.
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
    """The room that this thread keeps, and its addresses.

    Nobody else has it before it is `returned`: a signal handler or a finalizer may search, too.
    """
    try:
        return _scratch.kept.rooms.pop()
    except IndexError:
        return _room(1024)


def larger(room: Runs) -> tuple[Runs, IntArray]:
    """More room than this."""
    size = len(room.ids)
    return _room(min(4 * size, KEPT) if size < KEPT else 2 * size)


def returned(room: Runs, addresses: IntArray) -> None:
    """Keep room for the next search, unless it is too much."""
    if len(room.ids) <= KEPT:
        _scratch.kept.rooms[:] = [(room, addresses)]


def forget() -> None:
    """Free the room that threads keep and do not use now: after large results, hundreds of megabytes."""
    for one in _all:
        if (kept := one()) is not None:
            kept.rooms.clear()


def _room(hits: int) -> tuple[Runs, IntArray]:
    room = room_for(hits)
    return room, RUNS_BY_ADDRESS.addresses(room)


class Growing:
    """An array whose rows arrive part by part; about `times` as many as the first are expected."""

    def __init__(self, first: AnyArray, times: float) -> None:
        # Room costs nothing before it is used, but the first part may have been an exception.
        self._array = np.empty(int(min(1.5 * times, 16.0) * len(first)) + KEPT, first.dtype)
        self._array[: len(first)] = first
        self.used = len(first)

    def room(self, rows: int) -> AnyArray:
        """So many rows behind those used."""
        if self.used + rows > len(self._array):
            larger = np.empty(self.used + rows + len(self._array) // 2, self._array.dtype)
            larger[: self.used] = self._array[: self.used]
            self._array = larger
        return self._array[self.used : self.used + rows]

    def put(self, rows: AnyArray) -> None:
        """Let rows arrive."""
        self.room(len(rows))[:] = rows
        self.used += len(rows)

    def closed(self) -> AnyArray:
        """Return the rows that arrived. No more may arrive, and rows from `room` may no longer be read."""
        # The system takes the rest back. To copy would be the first touch of as much memory again.
        self._array.resize(self.used, refcheck=False)
        return self._array
