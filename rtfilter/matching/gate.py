"""The lock of the index: many batches together, or one change alone.

Batches and changes alternate. A change waits for the batches that run. Batches that arrive meanwhile wait for
this change and for the changes behind it, but not for long: once the first batch has waited for `TURN`
seconds, the next change that ends lets all waiting batches in. So neither starves: a change waits for one
group of batches and for the changes before it. A batch waits for one group of batches and for the changes
that fit into `TURN`.

A stream of results is a batch that pauses whenever its consumer does. A change does not wait for a consumer,
which may be the very thread that wants the change: it finishes the open streams itself, and their remaining
results are kept for the consumer.

**Interrupts.** Ctrl-C, or an exception of a signal handler, may end a call between any two of its lines, also
within its cleanup. So no thread depends on another thread's cleanup. The shared state is a set, a dict and
two deques, each changed by single operations that Python does not interrupt. A waiting thread checks that the
threads it waits for still run: an interrupted call has left its frame, and a frame that has ended can be told
from one that runs. An interrupted change keeps its place until another thread has recovered from it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import perf_counter
from types import FrameType
from typing import Any, TypeVar
from weakref import ref

Entry = TypeVar("Entry", bound="_Entry")

TURN = 0.002
"""Seconds that batches may wait while changes follow one another."""
LOOK = 0.005
"""Seconds after which a waiting thread checks that the threads it waits for still run."""


class Gate:
    """A fair lock for many readers or one writer, with readers that a writer can finish.

    `recover` undoes or completes an interrupted change. The next thread calls it alone with the index, also
    after a change that ended well; then it must be quick. `turn` is in seconds, see `TURN`.
    """

    def __init__(self, recover: Callable[[], None] = lambda: None, turn: float = TURN) -> None:
        self._recover, self._turn = recover, turn
        self._held: set[Reading] = set()  # batches that hold the index, or check whether they may
        self._open: set[_Stream] = set()  # streams that hold the index
        self._changes: deque[Writing] = deque()  # the first one may run, all others wait
        self._waiting: deque[Reading] = deque()
        self._process = os.getpid()

    @property
    def readers(self) -> int:
        """Number of batches that hold the index now."""
        self._discard_dead()
        return len(self._held) + len(self._open)

    @property
    def changing(self) -> bool:
        """True if a change runs or waits."""
        self._forget_other_process()
        return _some_run(self._changes)

    @property
    def idle(self) -> bool:
        """True if no batch or change runs or waits: a new one need not wait."""
        return not (self._held or self._open or self._changes or self._waiting)

    @property
    def streams(self) -> int:
        """Number of streams that hold the index now."""
        return len(self._open)

    def _discard_dead(self) -> None:
        for reading in list(self._held):
            if not reading.runs():
                self._held.discard(reading)
                reading.frame = None

    def reading(self) -> Reading:
        """Return a context manager that holds the index unchanged.

        Use it in a ``with`` statement of a function that is no generator.
        """
        return Reading(self)

    def writing(self) -> Writing:
        """Return a context manager that has the index alone.

        Use it in a ``with`` statement of a function that is no generator. Entering raises `RuntimeError` if
        this thread holds the index already, and so would wait for itself.
        """
        return Writing(self)

    def require_free(self, change: Writing | None = None) -> None:
        """Raise `RuntimeError` if this thread runs a batch or a change other than `change`."""
        if _own([*self._held, *self._waiting, *self._changes], change) or self._steps():
            raise RuntimeError(
                "this thread is matching or changing already: an order, a controller or a signal handler "
                "must not change subscriptions"
            )

    def open_stream(self, finish: Callable[[], None], steps: Gate) -> Hold:
        """Hold the index for a stream, also after the `reading` in which this is called.

        A change may call `finish` and then proceed. A thread that computes part of the stream, as `finish`
        does, is `writing` at the gate `steps` meanwhile.
        """
        hold = Hold(self, finish, steps)
        hold.stream = _Stream(hold, self._open.discard)
        self._open.add(hold.stream)
        self._wake_change()  # the change must finish this stream, too
        return hold

    def _steps(self) -> bool:
        """Return whether this thread computes part of an open stream that a change waits for."""
        holds = (stream() for stream in list(self._open))
        return any(_own(hold.steps._changes) for hold in holds if hold is not None)

    def _close(self, stream: _Stream) -> None:
        self._open.discard(stream)
        self._wake_change()

    def _wake_change(self) -> None:
        """Wake the first change, which may be able to begin."""
        with contextlib.suppress(IndexError):
            self._changes[0].wake()

    def _forget_other_process(self) -> None:
        """Drop, after a fork, the entries of threads that only the parent process has."""
        if self._process != os.getpid():
            everybody = [*self._held, *self._waiting, *self._changes]
            own = _own(everybody)
            for entry in everybody:
                if entry not in own:
                    entry.frame = None
            self._process = os.getpid()

    # -- batches ---------------------------------------------------------------------------------------

    def _wait_to_read(self, reading: Reading) -> None:
        """Wait until a change lets this batch in, or until there are no changes."""
        self._forget_other_process()
        for other in _own(self._held, reading):
            if other.inside:
                reading.inside = True
                return  # inside a batch of this thread, which the changes wait for
            self._held.discard(other)  # it only checked, and will check again
        if self._steps():
            reading.inside = True
            return
        self._held.discard(reading)
        if _own(self._changes, reading):
            raise RuntimeError("this thread is changing subscriptions: match afterwards")
        reading.since, reading.bell = perf_counter(), SimpleQueue()
        try:
            self._waiting.append(reading)
            self._wake_change()  # the change may count this batch among the holders of the index
            while not self._let_in(reading):
                if not reading.heard():
                    self._bury(reading)
        except BaseException:
            self._held.discard(reading)
            _remove(self._waiting, reading)
            raise

    def _let_in(self, reading: Reading) -> bool:
        if reading in self._held:  # a change that ended let it in
            _remove(self._waiting, reading)
            return True
        if any(other.inside for other in _own(self._held, reading)):  # let in after this call began to wait
            reading.inside = True
            self._held.add(reading)
            _remove(self._waiting, reading)
            return True
        if not self._changes:
            self._held.add(reading)
            reading.inside = reading in self._held and not self._changes
            if reading.inside:
                _remove(self._waiting, reading)
                return True
            self._held.discard(reading)  # a change has arrived just now, and may not have seen this batch
            self._wake_change()
        if reading not in self._waiting:
            self._waiting.append(reading)
        return False

    def _bury(self, reading: Reading) -> None:
        """Run an empty change if all changes were interrupted; it recovers from them."""
        if not _some_run(self._changes) and _remove(self._waiting, reading):
            with Writing(self):
                pass

    def _admit(self) -> None:
        """Let all waiting batches in."""
        for reading in list(self._waiting):
            if _remove(self._waiting, reading):
                reading.inside = True
                self._held.add(reading)
                reading.wake()

    # -- changes ---------------------------------------------------------------------------------------

    def _wait_to_write(self, change: Writing) -> None:
        change.bell = SimpleQueue()
        self._forget_other_process()
        while True:
            self.require_free(change)
            if self._alone(change):
                return
            change.heard()

    def _alone(self, change: Writing) -> bool:
        """Return whether a change may begin, after removing interrupted changes and finishing streams."""
        dead: list[Writing] = []
        for other in list(self._changes):
            if other is change:
                break
            if other.runs():
                return False
            dead.append(other)
        for stream in list(self._open):
            hold = stream()
            if hold is not None:
                hold.finish()  # fails only if this thread is interrupted: the stream then stays open
            self._open.discard(stream)
        self._discard_dead()
        if self._held or self._open:
            return False
        if dead:
            self._recover()
            for other in dead:
                _remove(self._changes, other)
                other.frame = None
        return True

    def _end(self, change: Writing) -> None:
        """End a change, completed or interrupted: recover, and let batches in that have waited for long."""
        self._recover()
        waiting = list(self._waiting)
        if waiting and (len(self._changes) == 1 or perf_counter() - waiting[0].since >= self._turn):
            self._admit()
        self._withdraw(change)

    def _withdraw(self, change: Writing) -> None:
        _remove(self._changes, change)
        if self._changes:
            self._wake_change()
        else:
            for reading in list(self._waiting):
                reading.wake()


class Hold:
    """A stream's hold of the index, until it is closed or garbage-collected.

    Its collection runs no Python code.
    """

    __slots__ = ("__weakref__", "_gate", "finish", "steps", "stream")

    def __init__(self, gate: Gate, finish: Callable[[], None], steps: Gate) -> None:
        self._gate, self.finish, self.steps = gate, finish, steps
        self.stream: _Stream | None = None

    def close(self) -> None:
        """Release the index; a second call does nothing."""
        if self.stream is not None:
            self._gate._close(self.stream)
            self.stream = None


class _Stream(ref[Hold]):
    """An open stream in the gate's set; it disappears with its `Hold`."""

    __slots__ = ()

    # A `ref` has the hash of its target, which no longer exists when the set discards the `ref`.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class _Entry:
    """A batch or a change at the gate."""

    __slots__ = ("_gate", "bell", "frame", "inside", "since")

    frame: FrameType | None
    """The function with the ``with`` statement; None once it has released the index."""
    inside: bool
    """For a batch: True if it holds the index, False if it only checks whether it may."""
    since: float
    """The time at which it began to wait, in seconds of `perf_counter`."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.bell: SimpleQueue[None] | None = None
        self.inside = False

    def runs(self) -> bool:
        """Return whether the call still runs."""
        frame = self.frame
        if frame is None:
            return False
        try:
            frame.clear()  # raises for a frame that runs, in any thread
        except RuntimeError:
            return True
        return False

    def wake(self) -> None:
        """Wake the waiting thread, so that it checks again."""
        if self.bell is not None:
            self.bell.put(None)

    def heard(self) -> bool:
        """Wait to be woken, at most `LOOK` seconds; return whether it was."""
        assert self.bell is not None
        try:
            self.bell.get(timeout=LOOK)
        except Empty:
            return False
        return True


class Reading(_Entry):
    """A context manager that holds the index unchanged."""

    __slots__ = ()

    def __enter__(self) -> None:
        gate = self._gate
        self.frame = sys._getframe(1)
        gate._held.add(self)
        self.inside = self in gate._held and not gate._changes
        if not self.inside:
            gate._wait_to_read(self)

    def __exit__(self, *_: object) -> None:
        gate = self._gate
        gate._held.discard(self)
        self.frame = None
        if gate._changes:
            gate._wake_change()


class Writing(_Entry):
    """A context manager that has the index alone."""

    __slots__ = ()

    def __enter__(self) -> None:
        gate = self._gate
        self.frame = sys._getframe(1)
        try:
            gate._changes.append(self)
            if len(gate._changes) > 1 or gate._held or gate._open:
                gate._wait_to_write(self)
        except BaseException:
            gate._withdraw(self)
            self.frame = None
            raise

    def __exit__(self, *_: object) -> None:
        self._gate._end(self)
        self.frame = None


def _own(entries: Iterable[Entry], but: _Entry | None = None) -> list[Entry]:
    """Return this thread's entries but one: their frames are on its stack. It keeps no frame alive."""
    frames = {other.frame: other for other in list(entries) if other is not but}
    found: list[Entry] = []
    frame = sys._getframe(1) if frames else None
    while frame is not None:
        if frame in frames:
            found.append(frames[frame])
        frame = frame.f_back
    return found


def _some_run(changes: Iterable[Writing]) -> bool:
    """Return whether a change still runs.

    Not a generator: an exception of a signal handler in its cleanup would reach no caller.
    """
    for change in list(changes):  # noqa: SIM110
        if change.runs():
            return True
    return False


def _remove(queue: deque[Any], entry: _Entry) -> bool:
    """Remove an entry, and return whether it was there."""
    try:
        queue.remove(entry)
    except ValueError:
        return False
    return True
