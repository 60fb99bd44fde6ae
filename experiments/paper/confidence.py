"""Confidence intervals of numbers that were measured on several batches."""

from __future__ import annotations

from functools import cache
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from rtfilter.basics.dtypes import FloatArray

LEVEL = 0.95
"""Share of the intervals that contain the true value."""
RESAMPLES = 999
"""Number of resamples of a bootstrap."""


class Interval(NamedTuple):
    """A mean, a median or a share, with the two ends of its confidence interval."""

    value: float
    low: float
    high: float


def mean(values: ArrayLike, least: float = -inf) -> Interval:
    """Return the mean of independent values (n,) with Student's interval, whose ends are the mean if n is 1.

    No end is below `least`, the smallest value that is possible.
    """
    sample = np.asarray(values, float)
    center = float(sample.mean())
    error = float(sample.std(ddof=1)) / sqrt(len(sample)) if len(sample) > 1 else 0.0
    if error == 0:
        return Interval(center, center, center)
    reach = _student(len(sample) - 1) * error
    return Interval(center, max(center - reach, least), center + reach)


@cache
def _student(degrees: int) -> float:
    """Return the standard errors from a mean to an end of its interval; SciPy takes a millisecond for it."""
    return float(stats.t.ppf((1 + LEVEL) / 2, degrees))


def middle(values: ArrayLike) -> Interval:
    """Return the median of independent values (n,), with an interval between two of the values.

    Times are skewed and have outliers. The interval needs no assumption about that: the true median lies
    between the k-th smallest and the k-th largest value unless less than k of n coins show one side. It never
    leaves what was seen. Less than six values have no interval of this level; theirs is from the smallest to
    the largest.
    """
    sample = np.sort(np.asarray(values, float))
    k = max(int(stats.binom.ppf((1 - LEVEL) / 2, len(sample), 0.5)), 1)
    return Interval(float(np.median(sample)), float(sample[k - 1]), float(sample[-k]))


def spread(values: ArrayLike) -> Interval:
    """Return mean of values (n,) with the range of the middle 95 % of them: how far single runs differ."""
    sample = np.asarray(values, float)
    low, high = np.quantile(sample, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(sample.mean()), float(low), float(high))


def saved(own: ArrayLike, reference: ArrayLike) -> Interval:
    """Return 1 - mean(own) / mean(reference) of paired values (n,), with a percentile bootstrap interval."""
    pairs = np.asarray(own, float), np.asarray(reference, float)
    share = _saved(*pairs)
    if len(pairs[0]) < 2 or np.array_equal(*pairs):
        return Interval(float(share), float(share), float(share))
    found = stats.bootstrap(
        pairs, _saved, paired=True, vectorized=True, n_resamples=RESAMPLES,
        confidence_level=LEVEL, method="percentile", random_state=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    return Interval(float(share), float(found.low), float(found.high))


def faster(own: ArrayLike, reference: ArrayLike) -> Interval:
    """Return 1 - own / reference of paired times (n,), a median with its interval, see `middle`."""
    found = middle(np.asarray(own, float) / np.asarray(reference, float))
    return Interval(1 - found.value, 1 - found.high, 1 - found.low)


def slower(own: ArrayLike, reference: ArrayLike) -> Interval:
    """Return own / reference - 1 of paired times (n,), with an interval as in `faster`; above -1."""
    found = middle(np.asarray(own, float) / np.asarray(reference, float))
    return Interval(found.value - 1, found.low - 1, found.high - 1)


def _saved(own: FloatArray, reference: FloatArray, axis: int = -1) -> FloatArray:
    share: FloatArray = 1 - np.mean(own, axis=axis) / np.mean(reference, axis=axis)
    return share
