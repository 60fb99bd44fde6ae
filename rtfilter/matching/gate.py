"""Who may use the index: many batches at once, or one change alone.

Turns alternate. A change waits for the batches that run. Batches that arrive meanwhile wait for the changes
that wait already; these go one after another, in the order they came. The next changes wait for the batches
that waited. So neither starves: a change waits for one turn of batches and the changes before it, a batch for
one turn of batches and one of changes.

A stream of results is a batch that pauses whenever its consumer does. A change does not wait for a consumer
(who may be the very thread that wants the change): it finishes the open streams itself, their remaining
results being kept until they are asked for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


class Gate:
    """A fair lock for many readers or one writer, with readers that can be told to finish."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._admitted = threading.Condition(self._lock)
        self._readers_waiting = 0
        self._round = 0  # how often waiting readers have been let in
        # Each waiting change has a condition of its own, so that its thread alone is woken.
        self._writer: threading.Condition | None = None
        self._turn: deque[threading.Condition] = deque()  # the changes of this turn that are still to come
        self._writers_waiting: deque[threading.Condition] = deque()  # those of the next
        self._open: dict[int, Callable[[], None]] = {}
        self._next_token = 0
        self._reading = _Reading(self)

    @property
    def readers(self) -> int:
        """Batches that hold the index now."""
        return self._readers

    def reading(self) -> AbstractContextManager[None]:
        """Hold the index unchanged."""
        return self._reading

    def open_stream(self, finish: Callable[[], None]) -> int:
        """While `reading`: hold the index beyond it, until `close_stream`. A change may call `finish`."""
        with self._lock:
            self._readers += 1
            self._next_token += 1
            self._open[self._next_token] = finish
            for change in self._writers_waiting:  # they have one more stream to finish
                change.notify()
            return self._next_token

    def close_stream(self, token: int) -> None:
        """Let the index go; a second call does nothing."""
        with self._lock:
            if self._open.pop(token, None) is not None:
                self._release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Have the index alone."""
        change = threading.Condition(self._lock)
        try:
            with self._lock:
                self._writers_waiting.append(change)
                if self._writer is None and not self._readers:
                    self._begin_turn()
            while not self._writing_begun(change):
                self._finish_streams()
            yield
        finally:
            with self._lock:
                self._withdraw(change)

    def enter(self) -> None:
        """Hold the index unchanged until `leave`; see `reading`."""
        with self._lock:
            if self._writer is None and not self._writers_waiting:
                self._readers += 1
            else:
                self._wait()

    def leave(self) -> None:
        """Let the index go."""
        with self._lock:
            self._release()

    def _wait(self) -> None:
        """Wait for the end of a turn of changes: whoever ends it counts us in."""
        mine = self._round
        self._readers_waiting += 1
        try:
            self._admitted.wait_for(lambda: self._round != mine)
        except BaseException:
            if self._round != mine:
                self._release()
            else:
                self._readers_waiting -= 1
            raise

    def _release(self) -> None:
        self._readers -= 1
        if not self._readers and self._writers_waiting:
            self._begin_turn()

    def _begin_turn(self) -> None:
        """Nobody holds the index: the changes that wait are next."""
        self._turn, self._writers_waiting = self._writers_waiting, deque()
        self._next_change()

    def _next_change(self) -> None:
        """Let the next change of this turn in, or after the last one the batches that wait."""
        if self._turn:
            self._writer = self._turn.popleft()
            self._writer.notify()
            return
        self._writer = None
        self._admit()
        if self._writers_waiting and not self._readers:
            self._begin_turn()

    def _admit(self) -> None:
        self._round += 1
        self._readers += self._readers_waiting
        self._readers_waiting = 0
        self._admitted.notify_all()

    def _withdraw(self, change: threading.Condition) -> None:
        """A change is done, or gave up waiting."""
        if self._writer is change:
            self._next_change()
        elif change in self._turn:
            self._turn.remove(change)
        elif change in self._writers_waiting:
            self._writers_waiting.remove(change)
            if self._writer is None and not self._writers_waiting:
                self._admit()

    def _writing_begun(self, change: threading.Condition) -> bool:
        """Wait for this change's turn, or until a stream must be finished first."""
        with self._lock:
            change.wait_for(lambda: self._open or self._writer is change)
            return self._writer is change

    def _finish_streams(self) -> None:
        while True:
            with self._lock:
                if not self._open:
                    return
                token, finish = next(iter(self._open.items()))
            finish()  # fails only if this thread is interrupted: then the stream still holds the index
            self.close_stream(token)


class _Reading:
    """Holds the index unchanged. One object serves all batches: a generator would cost each 1 us more."""

    __slots__ = ("_enter", "_leave")

    def __init__(self, gate: Gate) -> None:
        self._enter, self._leave = gate.enter, gate.leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, *_: object) -> None:
        self._leave()
