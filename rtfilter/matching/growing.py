"""A filter that begins with a scan and moves to the R*-tree when it has grown.

A scan needs no compiled code, so a small filter answers at once. A tree is faster, but its kernels take about
a second to load, and more than that to compile. So they are loaded where that is likely to pay: where a
filter is large, or where its scan has taken about as long. A thread does so, builds the tree aside, and puts
it in place. Until then the scan answers.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final
from weakref import ref

from rtfilter.index import ready
from rtfilter.matchers.scan import ScanMatcher

if TYPE_CHECKING:
    from rtfilter.matching.updates import Updates
    from rtfilter.subscriptions.content import Subscriptions

SMALL: Final = "scan"
"""The matcher that a filter begins with."""
LARGE: Final = "rtree"
"""The matcher that it moves to."""
MOVED: Final = 2_000
"""Subscriptions from which on a filter moves; where the kernels are loaded already, `SOON` are enough."""
SOON: Final = 64
WORK: Final = 1_000_000_000
"""Comparisons of a scan after which it moves, whatever its size: they take half a second."""
VERIFIED: Final = 200_000
"""Candidates of a scan, verified by Python, after which it moves: they take half a second, too."""
BATCHES: Final = 64
"""Batches after which is looked whether it should move, or so many candidates."""
WAITED: Final = 30_000
"""Subscriptions that are added at once, or loaded, from which on a filter waits for the kernels: a scan of so
many takes longer than most who load them would bear."""


class Growing:
    """Moves a filter to the R*-tree, once."""

    def __init__(self, subscriptions: Subscriptions, updates: Updates) -> None:
        self._held, self._updates = subscriptions, updates
        self._thread: threading.Thread | None = None
        self._given_up = False

    def look(self) -> None:
        """After a change, or some batches: begin to move if that pays. Takes no time, and raises nothing."""
        if self._given_up or self.moving or not self._pays():
            return
        try:
            # The thread does not keep alive a filter that is no longer used.
            thread = threading.Thread(target=_move, args=(ref(self),), name="rtfilter grows", daemon=True)
            thread.start()
            self._thread = thread
        except RuntimeError:  # no more threads now; the next change looks again
            self._thread = None

    def _pays(self) -> bool:
        scan = self._held.matcher
        if not isinstance(scan, ScanMatcher):  # the tree has just been put in place
            return False
        least = SOON if ready.ready() else MOVED
        worked = scan.work >= WORK or self._held.verified.by_python >= VERIFIED
        return len(scan) >= least or (worked and len(scan) > 0)

    @property
    def moving(self) -> bool:
        """True while a thread loads the kernels or builds the tree."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until a move that has begun is done; at most so many seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def moves_with(self, count: int) -> bool:
        """Return whether a change that adds so many subscriptions builds the tree; may load its kernels."""
        total = len(self._held) + count
        if total >= WAITED and not self._given_up:
            try:
                ready.load()
            except Exception:
                self.give_up()
        return total >= SOON and ready.ready()

    def move(self) -> None:
        """Build the tree and put it in place; the kernels are loaded."""
        self._updates.grow(LARGE)

    def give_up(self) -> None:
        """Stay with the scan for good, and say so in the log."""
        import logging  # takes longer than to make a filter

        self._given_up = True
        logging.getLogger("rtfilter").warning(
            "the search code cannot be compiled; the filter stays with a scan, which is slow for many "
            "subscriptions",
            exc_info=True,
        )


def _move(of: ref[Growing]) -> None:
    """Load the kernels, then let a filter move, if it is still in use."""
    try:
        ready.load_in_background()
        growing = of()
        if growing is not None:
            growing.move()
    except Exception:
        growing = of()
        if growing is not None:
            growing.give_up()
