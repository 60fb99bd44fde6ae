"""A sequential test for drift, a two-sided CUSUM (Page 1954), and the noise of values."""

import math
import statistics
from collections import deque

FIRST = 4
"""Number of first values; their mean is the reference."""
TOLERATED = 0.1
"""Difference that is no drift, in the unit of the values: of logarithms, about a tenth."""
ALLOWED, MOST, LIMIT = 1.0, 4.0, 4.0
"""Standard deviations: what a value may deviate, the most that it counts, and the sum that alarms."""
WIDEST = 8.0
"""Largest factor of the limit, which doubles with each alarm."""
RECENT = 32
"""Number of pairs of values for the variance."""
MEDIAN = 0.91
"""Median of the square of the difference of two normal values, as a share of their variance."""
LEAST_NOISE = 1e-5
"""Least variance of values."""


def summed(total: float, deviation: float, allowance: float, most: float = math.inf) -> float:
    """Return the sum of one side of the test after a deviation, less its allowance and at most `most`."""
    return max(0.0, total + min(deviation - allowance, most))


class Drift:
    """Finds a lasting difference of values from the mean of the first ones."""

    def __init__(self) -> None:
        self._factor = 1.0
        self._begin()

    def _begin(self) -> None:
        self._count, self._mean = 0, 0.0
        self._above = self._below = 0.0

    def add(self, value: float, variance: float) -> bool:
        """Add a value with its variance; return True, and start again, if it is an alarm."""
        if self._count < FIRST:
            self._count += 1
            self._mean += (value - self._mean) / self._count
            return False
        off = (value - self._mean) / math.sqrt(variance + TOLERATED**2)
        off = max(min(off, MOST), -MOST)
        self._above = summed(self._above, off, ALLOWED)
        self._below = summed(self._below, -off, ALLOWED)
        if max(self._above, self._below) <= LIMIT * self._factor:
            return False
        self._factor = min(2 * self._factor, WIDEST)
        self._begin()
        return True


class Noise:
    """The variance of values: of their recent differences, of which some odd ones do not move the median."""

    def __init__(self, *first: float) -> None:
        self._squares = deque(first, RECENT)

    def add(self, difference: float) -> None:
        """Add the difference of two values of one kind that follow each other."""
        self._squares.append(difference**2)

    @property
    def variance(self) -> float:
        """The variance of a value."""
        return max(statistics.median_high(self._squares) / MEDIAN, LEAST_NOISE)
