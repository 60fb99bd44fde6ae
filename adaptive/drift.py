"""A sequential test whether something still is what it was: a two-sided CUSUM (Page 1954)."""

import math

FIRST = 4
"""Values whose mean is what it was."""
TOLERATED = 0.1
"""A difference that is no drift, in the unit of the values: of logarithms, about a tenth."""
ALLOWED, MOST, LIMIT = 1.0, 4.0, 4.0
"""Standard deviations of each value that are ordinary, that count at most, and whose sum is an alarm."""
PATIENCE = 8.0
"""After an alarm the limit doubles, up to so many times: who alarms again and again is heard less."""


def summed(total: float, deviation: float, allowance: float, most: float = math.inf) -> float:
    """Add a deviation, less its allowance and at most `most`, to the sum of one side of the test."""
    return max(0.0, total + min(deviation - allowance, most))


class Drift:
    """Says when values are not what the first ones were any more."""

    def __init__(self) -> None:
        self._patience = 1.0
        self._begin()

    def _begin(self) -> None:
        self._count, self._mean = 0, 0.0
        self._above = self._below = 0.0

    def add(self, value: float, variance: float) -> bool:
        """Take a value with its variance; whether it is an alarm. Then all begins anew."""
        if self._count < FIRST:
            self._count += 1
            self._mean += (value - self._mean) / self._count
            return False
        off = (value - self._mean) / math.sqrt(variance + TOLERATED**2)
        off = max(min(off, MOST), -MOST)
        self._above = summed(self._above, off, ALLOWED)
        self._below = summed(self._below, -off, ALLOWED)
        if max(self._above, self._below) <= LIMIT * self._patience:
            return False
        self._patience = min(2 * self._patience, PATIENCE)
        self._begin()
        return True
