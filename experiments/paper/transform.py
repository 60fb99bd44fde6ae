"""The other reading of the paper's "12-d": six intervals as points of twelve dimensions (W-1).

An interval [l, u] becomes the point (l, u), an event v the query l <= v <= u. Turned round, so that events
stay points, the subscription is the box [l, inf] x [-inf, u] and the event the point (v, v): a node is pruned
by just the same comparisons, min l <= v <= max u.
"""

import numpy as np

from rtfilter.replay.workloads import Bounds
from rtfilter.replay.workloads.base import FloatArray


def transform_boxes(low: FloatArray, high: FloatArray) -> Bounds:
    """Boxes float64 (n, d) as boxes (n, 2 d): per attribute [low, inf] and [-inf, high]."""
    n, d = low.shape
    lower, upper = np.full((n, 2 * d), -np.inf), np.full((n, 2 * d), np.inf)
    lower[:, 0::2], upper[:, 1::2] = low, high
    return Bounds(lower, upper)


def transform_points(points: FloatArray) -> FloatArray:
    """Events float64 (n, d) as points (n, 2 d): each coordinate twice."""
    return np.repeat(points, 2, axis=1)
