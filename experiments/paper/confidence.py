"""Confidence intervals of numbers that were measured on several batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from rtfilter.dtypes import FloatArray

LEVEL = 0.95
"""Share of the intervals that contain the true value."""
RESAMPLES = 999
"""Number of resamples of a bootstrap."""


class Interval(NamedTuple):
    """A mean, or a ratio of means, with the two ends of its confidence interval."""

    value: float
    low: float
    high: float


def mean(values: ArrayLike) -> Interval:
    """Mean of independent values (n,) with Student's interval, whose ends are the mean if n is 1."""
    sample = np.asarray(values, float)
    center = float(sample.mean())
    error = float(stats.sem(sample)) if len(sample) > 1 else 0.0
    if error == 0:
        return Interval(center, center, center)
    low, high = stats.t.interval(LEVEL, len(sample) - 1, center, error)
    return Interval(center, float(low), float(high))


def saved(own: ArrayLike, reference: ArrayLike) -> Interval:
    """1 - mean(own) / mean(reference) of paired values (n,), with a percentile bootstrap interval."""
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
    """1 - own / reference of paired times (n,), a geometric mean, with Student's interval of logarithms.

    Times are few and have outliers. A bootstrap of six times contains the true value in four of five cases
    only; this interval keeps its level.
    """
    found = mean(np.log(np.asarray(own, float)) - np.log(np.asarray(reference, float)))
    return Interval(*(float(-np.expm1(value)) for value in (found.value, found.high, found.low)))


def slower(own: ArrayLike, reference: ArrayLike) -> Interval:
    """own / reference - 1 of paired times (n,), with an interval as in `faster`."""
    share = faster(own, reference)
    return Interval(-share.value, -share.high, -share.low)


def _saved(own: FloatArray, reference: FloatArray, axis: int = -1) -> FloatArray:
    share: FloatArray = 1 - np.mean(own, axis=axis) / np.mean(reference, axis=axis)
    return share
