"""Who may use the index: many batches at once, or one change alone.

Turns alternate: a change waits for the batches that run, batches that arrive meanwhile wait for that one
change, and the next change waits for them. So neither starves, and no batch waits for more than one other.

A stream of results is a batch that pauses whenever its consumer does. A change does not wait for a consumer
(who may be the very thread that wants the change): it finishes the open streams itself, their remaining
results being kept until they are asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Gate:
    """A fair lock for many readers or one writer, with readers that can be told to finish."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0
        self._readers_waiting = 0
        self._round = 0  # changes that have ended; waiting readers are let in by the next
        self._open: dict[int, Callable[[], None]] = {}
        self._next_token = 0

    @property
    def readers(self) -> int:
        """Batches that hold the index now."""
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the index unchanged."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def open_stream(self, finish: Callable[[], None]) -> int:
        """While `reading`: hold the index beyond it, until `close_stream`. A change may call `finish`."""
        with self._turn:
            self._readers += 1
            self._next_token += 1
            self._open[self._next_token] = finish
            self._turn.notify_all()  # a change that waits already has one more stream to finish
            return self._next_token

    def close_stream(self, token: int) -> None:
        """Let the index go; a second call does nothing."""
        with self._turn:
            if self._open.pop(token, None) is not None:
                self._release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Have the index alone."""
        with self._turn:
            self._writers_waiting += 1
        begun = False
        try:
            while not (begun := self._writing_begun()):
                self._finish_streams()
        finally:
            with self._turn:
                self._writers_waiting -= 1
                if not begun and not self._writing and not self._writers_waiting:  # gave up
                    self._admit()
        try:
            yield
        finally:
            with self._turn:
                self._writing = False
                self._admit()

    def _enter(self) -> None:
        with self._turn:
            if not self._writing and not self._writers_waiting:
                self._readers += 1
                return
            mine = self._round
            self._readers_waiting += 1
            try:
                self._turn.wait_for(lambda: self._round != mine)  # whoever ends the round counts us in
            except BaseException:
                if self._round != mine:
                    self._release()
                else:
                    self._readers_waiting -= 1
                raise

    def _leave(self) -> None:
        with self._turn:
            self._release()

    def _release(self) -> None:
        self._readers -= 1
        self._turn.notify_all()

    def _admit(self) -> None:
        self._round += 1
        self._readers += self._readers_waiting
        self._readers_waiting = 0
        self._turn.notify_all()

    def _writing_begun(self) -> bool:
        """Wait until the index is free, and take it, or until a stream must be finished first."""
        with self._turn:
            self._turn.wait_for(lambda: self._open or not (self._readers or self._writing))
            if self._open:
                return False
            self._writing = True
            return True

    def _finish_streams(self) -> None:
        while True:
            with self._turn:
                if not self._open:
                    return
                token, finish = next(iter(self._open.items()))
            finish()  # fails only if this thread is interrupted: then the stream still holds the index
            self.close_stream(token)
