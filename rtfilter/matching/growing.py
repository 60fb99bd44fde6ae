"""A filter that begins with a scan and moves to the R*-tree once it is large.

A scan needs no compiled code, so a small filter answers at once. A tree is faster, but its kernels take about
a second to load, and more than that to compile. So they are loaded when that is likely to pay: once a filter
is large, or its scans have taken about as long. A thread loads them, builds the tree from a copy, and
replaces the scan. Until then the scan answers.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Final
from weakref import ref

from rtfilter.index import ready
from rtfilter.matchers.scan import ScanMatcher
from rtfilter.subscriptions.content import Subscriptions

SMALL: Final = "scan"
"""The first matcher of a filter."""
LARGE: Final = "rtree"
"""The matcher of a large filter."""
MOVED: Final = 2_000
"""Subscriptions from which a filter moves; if the kernels are loaded already, from `SOON`."""
SOON: Final = 64
WORK: Final = 1_000_000_000
"""Comparisons of a scan after which a filter of any size moves: they take half a second."""
VERIFIED: Final = 200_000
"""Candidates of a scan, verified by Python, after which a filter moves: they take half a second, too."""
BATCHES: Final = 64
"""Batches, or candidates, after which the filter checks whether to move."""
WAITED: Final = 30_000
"""Subscriptions, added at once or loaded, from which a filter waits for the kernels.

A scan of more takes too long for most users.
"""


class Growing:
    """The move of a filter to the R*-tree, once; `grow` replaces the matcher by one of another name."""

    def __init__(self, subscriptions: Subscriptions, grow: Callable[[str], object]) -> None:
        self._held, self._grow = subscriptions, grow
        self._thread: threading.Thread | None = None
        self._given_up = False

    def look(self) -> None:
        """Begin to move if that pays; called after a change, or after some batches.

        It returns at once, and raises nothing.
        """
        if self._given_up or self.moving or not self._pays():
            return
        if sys.is_finalizing():  # a thread would never begin, and Python 3.11 waits for its beginning
            return
        try:
            # The thread does not keep alive a filter that is not used any more.
            thread = threading.Thread(target=_move, args=(ref(self),), name="rtfilter grows", daemon=True)
            thread.start()
            self._thread = thread
        except RuntimeError:  # no more threads now; the next change checks again
            self._thread = None

    def _pays(self) -> bool:
        scan = self._held.matcher
        if not isinstance(scan, ScanMatcher):  # the tree has just replaced the scan
            return False
        least = SOON if ready.ready() else MOVED
        worked = scan.work >= WORK or self._held.verified.by_python >= VERIFIED
        return len(scan) >= least or (worked and len(scan) > 0)

    @property
    def moving(self) -> bool:
        """True while a thread loads the kernels or builds the tree."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until a move that has begun is done, at most `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def moves_with(self, count: int) -> bool:
        """Return whether a change that adds `count` subscriptions builds the tree; may load the kernels."""
        total = len(self._held) + count
        if total >= WAITED and not self._given_up:
            try:
                ready.load()
            except Exception:
                self.give_up()
        return total >= SOON and ready.ready()

    def move(self) -> None:
        """Build the tree and replace the scan by it; the kernels must be loaded."""
        self._grow(LARGE)

    def give_up(self) -> None:
        """Stay with the scan for good, and log a warning."""
        import logging  # slow to import

        self._given_up = True
        logging.getLogger("rtfilter").warning(
            "the search code cannot be compiled; the filter stays with a scan, which is slow for many "
            "subscriptions",
            exc_info=True,
        )


def _move(of: ref[Growing]) -> None:
    """Load the kernels, then move the filter if it is still in use."""
    try:
        ready.load_in_background()
        growing = of()
        if growing is not None:
            growing.move()
    except Exception:
        growing = of()
        if growing is not None:
            growing.give_up()
