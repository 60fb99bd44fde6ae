"""A gate that records the use of the index by threads, with times."""

from __future__ import annotations

import sys
import threading
from collections import deque
from time import perf_counter, thread_time
from typing import NamedTuple

from rtfilter.matching.gate import Gate, Reading, Writing


class Turn(NamedTuple):
    """The times, in seconds of `perf_counter`, at which a thread asked for, got and released the index."""

    asked: float
    begun: float
    left: float
    own: float
    """Seconds of the thread's own time from when it knew that it had the index."""
    alone: bool
    """True if the thread held the index alone, for a change."""


class WatchedGate(Gate):
    """A gate that keeps all turns, and the last one of each thread.

    A thread that had to wait goes on some time after it was let in. So the time is taken where it is let in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns: deque[Turn] = deque()
        self.own = threading.local()
        self._granted = 0.0

    @property
    def last(self) -> Turn:
        """The last turn of this thread."""
        turn: Turn = self.own.turn
        return turn

    def reading(self) -> Reading:
        """Return a context in which the index does not change."""
        self.own.asked = None
        return _WatchedReading(self)

    def writing(self) -> Writing:
        """Return a context in which no other thread uses the index."""
        self.own.asked = None
        return _WatchedWriting(self)

    def begin(self) -> None:
        """Note that the batch of this thread has the index."""
        self.own.begun = perf_counter() if self.own.asked is None else self._granted
        self.own.cpu = thread_time()

    def begin_alone(self) -> None:
        """Note that the change of this thread has the index."""
        self.own.begun, self.own.cpu = perf_counter(), thread_time()

    def end(self, alone: bool) -> None:
        """Note that this thread is about to release the index."""
        own, begun = thread_time() - self.own.cpu, self.own.begun
        asked = begun if self.own.asked is None else self.own.asked
        self.own.turn = Turn(asked, begun, perf_counter(), own, alone)
        self.turns.append(self.own.turn)

    def _wait_to_read(self, reading: Reading) -> None:
        self.own.asked = perf_counter()
        super()._wait_to_read(reading)

    def _wait_to_write(self, change: Writing) -> None:
        self.own.asked = perf_counter()
        super()._wait_to_write(change)

    def _admit(self) -> None:
        self._granted = perf_counter()
        super()._admit()

    def _withdraw(self, change: Writing) -> None:
        self._granted = perf_counter()
        super()._withdraw(change)


class _WatchedReading(Reading):
    __slots__ = ("_watched",)

    def __init__(self, gate: WatchedGate) -> None:
        super().__init__(gate)
        self._watched = gate

    def __enter__(self) -> None:  # as in `Reading`, which looks at the frame of its caller
        gate = self._watched
        self.frame = sys._getframe(1)
        gate._held.add(self)
        if gate._changes:
            gate._wait_to_read(self)
        gate.begin()

    def __exit__(self, *_: object) -> None:
        self._watched.end(False)
        super().__exit__()


class _WatchedWriting(Writing):
    __slots__ = ("_watched",)

    def __init__(self, gate: WatchedGate) -> None:
        super().__init__(gate)
        self._watched = gate

    def __enter__(self) -> None:  # as in `Writing`
        gate = self._watched
        self.frame = sys._getframe(1)
        gate._changes.append(self)
        if len(gate._changes) > 1 or gate._held or gate._open:
            gate._wait_to_write(self)
        gate.begin_alone()

    def __exit__(self, *_: object) -> None:
        self._watched.end(True)
        super().__exit__()
