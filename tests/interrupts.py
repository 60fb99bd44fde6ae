"""Interrupts where they hurt: an exception at one chosen line of some modules, or a signal at any moment."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

import pytest

STEP = 7
"""Lines of undoing from one turn to the next."""


class Interrupt(BaseException):
    """What a signal handler raises."""


class Lines:
    """Counts the lines of some modules that a call runs through, and raises `Interrupt` at one of them.

    Parameters
    ----------
    modules : modules
    at : int
        The line, counted from 0 in the order in which they are run, -1 for none.

    Attributes
    ----------
    places : list
        File and number of each line that was run.
    place : str
        Where it was raised.
    """

    def __init__(self, modules: list[ModuleType], at: int = -1) -> None:
        self.files = {module.__file__ for module in modules}
        self.at, self.places = at, list[tuple[str, int]]()
        self.place = ""

    @property
    def count(self) -> int:
        """Number of lines that were run."""
        return len(self.places)

    def ends(self) -> list[int]:
        """Of each line of the source, the first and the last time that it was run."""
        first = {place: at for at, place in reversed(list(enumerate(self.places)))}
        last = {place: at for at, place in enumerate(self.places)}
        return sorted({*first.values(), *last.values()})

    def __enter__(self) -> Lines:
        self._collects = gc.isenabled()
        gc.disable()  # or it closes generators that an interrupt left, and runs their lines, at any moment
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        if self._collects:
            gc.enable()

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in self.files or _in_finalizer(frame):
            return None
        if event in ("call", "line"):
            self._step(frame)
        return self._trace

    def _step(self, frame: FrameType) -> None:
        here = self.count
        self.places.append((frame.f_code.co_filename, frame.f_lineno))
        if here == self.at:  # Python traces no more after this
            self.place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            raise Interrupt(self.place)


def twice(
    modules: list[ModuleType],
    made: Callable[[], Any],
    change: Callable[[Any], object],
    undo: Callable[[Any], object],
    every: int = 1,
) -> Iterator[tuple[Any, tuple[int, int]]]:
    """Cut a change short at its lines and undo it, and again with the undoing cut short as well.

    Where that is cut short goes round all of its lines, as the change goes on.

    Parameters
    ----------
    modules : modules
        Whose lines count.
    made : callable
        Makes what is changed, always alike.
    change, undo : callable
        They take what was made.
    every : int
        The change is cut short at one of so many lines.

    Yields
    ------
    object
        What was made, when it is undone as a whole.
    tuple
        The lines of the change and of undoing, -1 for none.
    """
    matcher = made()
    with Lines(modules) as whole:
        change(matcher)
    undone = 0
    for turn, at in enumerate(whole.ends()[::every]):
        line = -1
        for _ in range(2):
            matcher = made()
            with Lines(modules, at), pytest.raises(Interrupt):
                change(matcher)
            try:
                with Lines(modules, line) as undoing:
                    undo(matcher)
            except Interrupt:
                undone += 1
            undo(matcher)
            yield matcher, (at, line)
            line = turn * STEP % undoing.count
    assert undone > 5 // every


def _in_finalizer(frame: FrameType | None) -> bool:
    """An exception in a finalizer is printed and lost: it does not reach the call."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
