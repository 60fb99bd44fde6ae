"""The lock of the index: many batches together, or one change alone.

Turns alternate. A change waits for the batches that run. Batches that arrive meanwhile wait for it, and for
the changes behind it, but not for long: once the first of them has waited for `TURN`, the next change to end
lets them in. So neither starves: a change waits for one turn of batches and for the changes before it, a
batch for one turn of batches and for as many changes as fit into a turn.

A stream of results is a batch that pauses whenever its consumer does. A change does not wait for a consumer
(who may be the very thread that wants the change): it finishes the open streams itself, their remaining
results being kept until they are asked for.

**Interrupts.** Ctrl-C, or an exception of a signal handler, may end a call between any two of its lines, also
within what should clean up. So nobody here relies on another's cleaning up. All that is shared are a set, a
dict and two deques, each changed by single operations that Python does not interrupt. Who waits looks whether
those he waits for still run: each has left its frame, and a frame that has ended can be told from one that
runs. A change that was cut short keeps its place until somebody has put in order what it left behind.
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
"""Seconds that batches may wait while change follows change."""
LOOK = 0.005
"""Seconds after which who waits looks whether those he waits for still run."""


class Gate:
    """A fair lock for many readers or one writer, with readers that can be told to finish.

    Parameters
    ----------
    recover : callable
        Puts in order what a change left that was cut short. It is called by whoever is next, alone with the
        index; also after changes that ended well, so it must be quick then.
    turn : float
        Seconds; see `TURN`.
    """

    def __init__(self, recover: Callable[[], None] = lambda: None, turn: float = TURN) -> None:
        self._recover, self._turn = recover, turn
        self._held: set[Reading] = set()  # batches that hold the index, or look whether they may
        self._open: set[_Stream] = set()  # streams that hold the index
        self._changes: deque[Writing] = deque()  # the first one may run, all others wait
        self._waiting: deque[Reading] = deque()
        self._process = os.getpid()

    @property
    def readers(self) -> int:
        """Batches that hold the index now."""
        self._discard_dead()
        return len(self._held) + len(self._open)

    @property
    def changing(self) -> bool:
        """True if a change runs, or waits."""
        self._forget_other_process()
        return any(change.runs() for change in list(self._changes))

    @property
    def idle(self) -> bool:
        """True if no batch or change runs or waits: a new one need not wait."""
        return not (self._held or self._open or self._changes or self._waiting)

    @property
    def streams(self) -> int:
        """Streams that hold the index now."""
        return len(self._open)

    def _discard_dead(self) -> None:
        for reading in list(self._held):
            if not reading.runs():
                self._held.discard(reading)
                reading.frame = None

    def reading(self) -> Reading:
        """Hold the index unchanged. For a ``with`` in a function that is no generator."""
        return Reading(self)

    def writing(self) -> Writing:
        """Have the index alone. For a ``with`` in a function that is no generator.

        `RuntimeError` where this thread holds the index already, and so would wait for itself.
        """
        return Writing(self)

    def require_free(self, change: Writing | None = None) -> None:
        """Raise `RuntimeError` where this thread is at the gate already, but for a change."""
        if _own([*self._held, *self._waiting, *self._changes], change) or self._steps():
            raise RuntimeError(
                "this thread is matching or changing already: an order, a controller or a signal handler "
                "must not change subscriptions"
            )

    def open_stream(self, finish: Callable[[], None], steps: Gate) -> Hold:
        """While `reading`: hold the index beyond it. A change may call `finish`, and then goes on.

        Who computes some of the stream, as `finish` does, is `writing` at the gate `steps` meanwhile.
        """
        hold = Hold(self, finish, steps)
        hold.stream = _Stream(hold, self._open.discard)
        self._open.add(hold.stream)
        self._wake_change()  # it has one more stream to finish
        return hold

    def _steps(self) -> bool:
        """Return whether this thread computes part of an open stream, for which a change waits."""
        holds = (stream() for stream in list(self._open))
        return any(_own(hold.steps._changes) for hold in holds if hold is not None)

    def _close(self, stream: _Stream) -> None:
        self._open.discard(stream)
        self._wake_change()

    def _wake_change(self) -> None:
        """Tell the first change that it may be alone now."""
        with contextlib.suppress(IndexError):
            self._changes[0].wake()

    def _forget_other_process(self) -> None:
        """After a fork, nobody runs that is not of this thread."""
        if self._process != os.getpid():
            everybody = [*self._held, *self._waiting, *self._changes]
            own = _own(everybody)
            for entry in everybody:
                if entry not in own:
                    entry.frame = None
            self._process = os.getpid()

    # -- batches ---------------------------------------------------------------------------------------

    def _wait_to_read(self, reading: Reading) -> None:
        """Changes were there first: wait until one lets this batch in, or until there are none."""
        self._forget_other_process()
        for other in _own(self._held, reading):
            if other.inside:
                reading.inside = True
                return  # within a batch of this thread, which they wait for
            self._held.discard(other)  # it only looked, and will look again
        if self._steps():
            reading.inside = True
            return
        self._held.discard(reading)
        if _own(self._changes, reading):
            raise RuntimeError("this thread is changing subscriptions: match afterwards")
        reading.since, reading.bell = perf_counter(), SimpleQueue()
        try:
            self._waiting.append(reading)
            self._wake_change()  # it may have seen this batch among those that hold the index
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
        if any(other.inside for other in _own(self._held, reading)):  # let in after this began to wait
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
            self._held.discard(reading)  # a change has come just now, and may not have seen it
            self._wake_change()
        if reading not in self._waiting:
            self._waiting.append(reading)
        return False

    def _bury(self, reading: Reading) -> None:
        """If no change is alive, be one for a moment: who is alone puts in order what the dead ones left."""
        if not any(change.runs() for change in list(self._changes)) and _remove(self._waiting, reading):
            with Writing(self):
                pass

    def _admit(self) -> None:
        """Let in all batches that wait."""
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
        """Return whether a change may begin. First remove changes that were cut short, and finish streams."""
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
                hold.finish()  # fails only if this thread is interrupted: the stream is open then as before
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
        """A change is done, or was cut short."""
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
    """A stream's hold of the index, until it is closed or forgotten. No code of ours runs at its end."""

    __slots__ = ("__weakref__", "_gate", "finish", "steps", "stream")

    def __init__(self, gate: Gate, finish: Callable[[], None], steps: Gate) -> None:
        self._gate, self.finish, self.steps = gate, finish, steps
        self.stream: _Stream | None = None

    def close(self) -> None:
        """Let the index go; a second call does nothing."""
        if self.stream is not None:
            self._gate._close(self.stream)
            self.stream = None


class _Stream(ref[Hold]):
    """An open stream, as the gate knows it: it goes with its `Hold`."""

    __slots__ = ()

    # A `ref` has the hash of what it refers to, which is gone when the set is asked to discard it.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class _Entry:
    """Somebody at the gate."""

    __slots__ = ("_gate", "bell", "frame", "inside", "since")

    frame: FrameType | None
    """The function with the ``with``; None once it has let the index go."""
    inside: bool
    """Of a batch: whether it holds the index, and does not only look whether it may."""
    since: float
    """The time when it began to wait."""

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
            frame.clear()  # refused for a frame that runs, wherever that is
        except RuntimeError:
            return True
        return False

    def wake(self) -> None:
        """Make it look again."""
        if self.bell is not None:
            self.bell.put(None)

    def heard(self) -> bool:
        """Wait until woken, at most for `LOOK`; whether it was."""
        assert self.bell is not None
        try:
            self.bell.get(timeout=LOOK)
        except Empty:
            return False
        return True


class Reading(_Entry):
    """Holds the index unchanged."""

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
    """Has the index alone."""

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
    """Return this thread's entries besides one: their frames are on its stack. Keep no frame alive."""
    frames = {other.frame: other for other in list(entries) if other is not but}
    found: list[Entry] = []
    frame = sys._getframe(1) if frames else None
    while frame is not None:
        if frame in frames:
            found.append(frames[frame])
        frame = frame.f_back
    return found


def _remove(queue: deque[Any], entry: _Entry) -> bool:
    """Remove an entry, and return whether it was there."""
    try:
        queue.remove(entry)
    except ValueError:
        return False
    return True
