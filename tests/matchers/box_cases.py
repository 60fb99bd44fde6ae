"""Random boxes and points on a small grid, and brute force: what tests of matchers of boxes share."""

from itertools import pairwise

import numpy as np

from rtfilter import Schema
from rtfilter.matchers import BoxColumns, Filters


def drawn(rng, count, dimensions, top=20, open_share=0.3, equal_share=0.3):
    """Closed boxes with sides that are ranges, single values, half-open or open."""
    low, high = np.sort(rng.integers(0, top, (2, count, dimensions)), axis=0).astype(float)
    high = np.where(rng.random(low.shape) < equal_share, low, high)
    low = np.where(rng.random(low.shape) < open_share, -np.inf, low)
    return low, np.where(rng.random(low.shape) < open_share, np.inf, high)


def crowded(rng, count, dimensions):
    """Boxes of which nearly all ends are the same few values."""
    ends = rng.choice([5.0, 5.0, 5.0, 5.0, 6.0, 90.0], (2, count, dimensions))
    return ends.min(axis=0), ends.max(axis=0)


def containing(low, high, points):
    """The rows of the boxes that contain each point."""
    return [np.flatnonzero(((low <= x) & (x <= high)).all(axis=1)).tolist() for x in points]


def schema(dimensions):
    """Numbers, one a dimension."""
    return Schema({f"a{j}": float for j in range(dimensions)})


def filters(low, high, ids=None):
    """Exact boxes, one a subscription."""
    names = np.arange(len(low)) if ids is None else np.asarray(ids, np.int64)
    return Filters.of_boxes(schema(low.shape[1]), BoxColumns(names, low, high, np.ones(len(low), np.bool_)))


def found(hits):
    """The ids of each event, ascending."""
    cuts = hits.offsets.tolist()
    return [sorted(hits.ids[a:b].tolist()) for a, b in pairwise(cuts)]
