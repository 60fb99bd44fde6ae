"""Random boxes and points for tests of the index."""

import numpy as np

INF = np.inf


def random_boxes(rng, n, d, top=100):
    """Integer boxes with ties, degenerate sides, open sides and duplicates."""
    ends = np.sort(rng.integers(0, top, (n, 2, d)).astype(float), axis=1)
    low, high = ends[:, 0], ends[:, 1]
    high[rng.random((n, d)) < 0.1] = INF
    low[rng.random((n, d)) < 0.1] = -INF
    equal = rng.random((n, d)) < 0.1
    low[equal] = np.where(np.isfinite(high[equal]), high[equal], low[equal])
    copies = rng.random(n) < 0.1
    low[copies], high[copies] = low[0], high[0]
    return low, high


def random_points(rng, n, d, top=100):
    points = rng.integers(-1, top + 1, (n, d)).astype(float)
    points[rng.random((n, d)) < 0.05] = -INF
    points[rng.random((n, d)) < 0.02] = INF
    return points
