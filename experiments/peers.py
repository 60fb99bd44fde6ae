"""The peer: indexes of `rtree` (libspatialindex), in the variants and ways of asking that may be fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike
from rtree.index import Index, Property

from experiments.workloads import Bounds, FloatArray
from rtfilter.matches import Matches


def properties(dimensions: int, inner: int, leaf: int) -> Property:
    """Node capacities for `rtree`; the rest stays as it comes (R*, fill 0.7)."""
    chosen = Property(dimension=dimensions, index_capacity=inner, leaf_capacity=leaf)
    # It has to be below both capacities; 32, as it comes, is not below the paper's.
    chosen.near_minimum_overlap_factor = min(32, inner - 1, leaf - 1)
    return chosen


def inserted(boxes: Bounds, inner: int, leaf: int) -> Index:
    """An index that the boxes were inserted into one by one, ids 0..n-1."""
    index = Index(properties=properties(boxes.low.shape[1], inner, leaf))
    for id, box in enumerate(np.hstack(boxes).tolist()):
        index.insert(id, box)
    return index


def packed(boxes: Bounds) -> Index:
    """An index packed at once from arrays, ids 0..n-1, the capacities as they come (100, 100)."""
    ids = np.arange(len(boxes.low))
    return Index((ids, boxes.low, boxes.high), properties=properties(boxes.low.shape[1], 100, 100))


BUILDERS: Mapping[str, Callable[[Bounds], Index]] = {
    "inserted 10/20": lambda boxes: inserted(boxes, 10, 20),
    "inserted 100/100": lambda boxes: inserted(boxes, 100, 100),
    "packed 100/100": packed,
}
"""Ways to build an index: the paper's capacities, and those that come with the library."""


def ask_each(index: Index, points: FloatArray) -> list[list[int]]:
    """Ids per point, one `intersection` a point."""
    return [list(index.intersection(box)) for box in np.hstack([points, points]).tolist()]


def ask_all(index: Index, points: FloatArray) -> Matches:
    """Ids per point, one `intersection_v` for all."""
    ids, counts = index.intersection_v(points, points)  # type: ignore[no-untyped-call]
    return Matches(np.concatenate([[0], np.cumsum(counts.astype(np.int64))]), ids)


WAYS: Mapping[str, Callable[[Index, FloatArray], Iterable[ArrayLike]]] = {
    "intersection": ask_each,
    "intersection_v": ask_all,
}
"""Ways to ask for a batch of points."""
