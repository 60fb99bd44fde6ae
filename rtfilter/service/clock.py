"""The time of day, as the log needs it: it never goes back."""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Seconds since 1970. While the clock beneath is set back, it stands still.

    Moments ascend with positions in the log, so that a time is found there, and a subscription ends at the
    same event in this run and in one after a restart.

    Parameters
    ----------
    beneath : callable
    least : float
        The last moment that the log has.
    """

    def __init__(self, beneath: Callable[[], float], least: float) -> None:
        self._beneath, self._last = beneath, least

    def __call__(self, since: float = 0.0) -> float:
        """So many seconds ago, or later where a later moment was told before; by default now."""
        self._last = max(self._last, self._beneath() - since)
        return self._last
