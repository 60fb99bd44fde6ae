"""The other meaning of "12-d" in the paper: six intervals as points of twelve dimensions.

There an interval [l, u] becomes the point (l, u), and an event v asks for all points with l <= v <= u. The
same can be done with events as points: the interval becomes the box [l, inf] x [-inf, u] and the event the
point (v, v). Nodes are pruned by the same comparisons, min l <= v <= max u.
"""

import numpy as np

from rtfilter.basics.dtypes import FloatArray
from rtfilter.replay.workloads import Bounds


def transform_boxes(low: FloatArray, high: FloatArray) -> Bounds:
    """Return boxes with ends float64 (n, d) as boxes (n, 2 d): [low, inf] and [-inf, high] per attribute."""
    n, d = low.shape
    lower, upper = np.full((n, 2 * d), -np.inf), np.full((n, 2 * d), np.inf)
    lower[:, 0::2], upper[:, 1::2] = low, high
    return Bounds(lower, upper)


def transform_points(points: FloatArray) -> FloatArray:
    """Return events float64 (n, d) as points (n, 2 d), with each coordinate twice."""
    return np.repeat(points, 2, axis=1)
