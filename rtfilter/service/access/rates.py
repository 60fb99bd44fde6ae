"""Token buckets: a rate per second, and a burst. Pure: the caller gives the time."""

from __future__ import annotations


class Bucket:
    """A bucket that starts full.

    Parameters
    ----------
    rate : float
        Tokens that come in a second.
    burst : float
        Tokens of a full bucket. A full bucket gives more than that at once, and then owes the rest.
    now : float
        Seconds of any clock that does not go back.
    """

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst, self._level, self._at = rate, burst, float(burst), now

    def take(self, amount: float, now: float) -> float:
        """Take an amount as a whole, or nothing; return 0, or the seconds to wait for it."""
        self._fill(now)
        short = min(amount, self._burst) - self._level
        if short > 0:
            return short / self._rate
        self._level -= amount
        return 0.0

    def full(self, now: float) -> bool:
        """Return whether the bucket is full."""
        self._fill(now)
        return self._level >= self._burst

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._burst, self._level + (now - self._at) * self._rate)
            self._at = now
