"""The time of day, as the log needs it: it never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Seconds since 1970. While the clock beneath is set back, it goes on at half the speed.

    Moments ascend with positions in the log, so that a time is found there, and a subscription ends at the
    same event in this run and in one after a restart. Half the speed lets the clock beneath catch up, and
    what lives for seconds does not live until then.

    Parameters
    ----------
    beneath : callable
    least : float
        The last moment that the log has.
    passing : callable
        Seconds of a clock that nobody sets.
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
        """So many seconds ago, or later where a later moment was told before; by default now."""
        before, self._looked = self._looked, self._passing()
        now = self._beneath()
        if now < self._last:
            self._last += (self._looked - before) / 2
        self._last = max(self._last, now - since)
        return self._last
