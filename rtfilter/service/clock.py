"""The time of day, as the log needs it: it never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Seconds since 1970. While the clock `beneath` is behind, this one runs at half the speed.

    Times ascend with positions in the log, so that a search by time works, and a subscription ends at the
    same event in this run and after a restart. At half the speed, the clock `beneath` catches up, and a
    subscription of a few seconds still ends soon.

    Parameters
    ----------
    beneath : callable
    least : float
        The last time in the log.
    passing : callable
        Seconds of a clock that is never set.
    """

    def __init__(
        self,
        beneath: Callable[[], float],
        least: float,
        passing: Callable[[], float] = time.monotonic,
    ) -> None:
        self._beneath, self._last, self._passing = beneath, least, passing
        self._looked = passing()

    def __call__(self, since: float = 0.0) -> float:
        """Return the time `since` seconds ago, by default now, but never less than the last returned time."""
        before, self._looked = self._looked, self._passing()
        now = self._beneath()
        if now < self._last:
            self._last += (self._looked - before) / 2
        self._last = max(self._last, now - since)
        return self._last
