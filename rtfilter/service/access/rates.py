"""Token buckets: so much a second over time, and a burst at once. Pure: the caller says what time it is."""

from __future__ import annotations


class Bucket:
    """A bucket that starts full.

    Parameters
    ----------
    rate : float
        What comes in a second.
    burst : float
        What it holds. More can be taken at once when it is full; what was taken too much comes in first.
    now : float
        Seconds of any clock that does not go back.
    """

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._level, self._at = rate, burst, float(burst), now

    def take(self, amount: float, now: float) -> float:
        """Take all of an amount or nothing; returns 0, or the seconds after which it can be had."""
        self._fill(now)
        short = min(amount, self._burst) - self._level
        if short > 0:
            return short / self._rate
        self._level -= amount
        return 0.0

    def full(self, now: float) -> bool:
        """Return whether nothing is used up."""
        self._fill(now)
        return self._level >= self._burst

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
            self._at = now
