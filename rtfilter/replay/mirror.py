"""The peer in a replay: an `rtree` index with the same boxes, asked event by event in order of arrival."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from rtree.index import Index, Property

from rtfilter import EventFilter
from rtfilter.index.tree import RStarTree
from rtfilter.replay.workloads.base import FloatArray, IntArray

CAPACITY = (10, 20)
"""The paper's."""


def properties(dimensions: int, inner: int, leaf: int) -> Property:
    """Node capacities for `rtree`; the rest stays as it comes (R*, fill 0.7)."""
    chosen = Property(dimension=dimensions, index_capacity=inner, leaf_capacity=leaf)
    # It has to be below both capacities; 32, as it comes, is not below the paper's.
    chosen.near_minimum_overlap_factor = min(32, inner - 1, leaf - 1)
    return chosen


class Mirror:
    """An `rtree` index that follows a filter.

    `rtree` crashes on infinite sides and on boxes whose volume overflows, so each dimension is mapped by a
    monotone function to ranks among the ends of the boxes it starts with. That keeps every match.
    """

    def __init__(self, filter: EventFilter, step: Callable[[int], object] = lambda rows: None) -> None:
        self._tree: RStarTree = filter.tree
        ids, low, high, _ = self._tree.content()
        self._ranks = [
            np.unique(ends[np.isfinite(ends) & (np.abs(ends) < 1e300)])
            for ends in np.concatenate([low, high]).T
        ]
        self._places = np.arange(max(map(len, self._ranks)))
        self._index = Index(properties=properties(self._tree.dimensions, *CAPACITY))
        self._boxes: dict[int, list[list[float]]] = {}
        for start in range(0, len(ids), 1000):
            rows = slice(start, start + 1000)
            self._insert(ids[rows], low[rows], high[rows])
            step(len(ids[rows]))

    def add(self, ids: IntArray) -> None:
        """Insert subscriptions that the filter has got."""
        boxes = [self._tree.boxes_of(id) for id in ids.tolist()]
        if boxes:
            owners = np.repeat(ids, [len(low) for low, _ in boxes])
            self._insert(owners, *(np.concatenate(ends) for ends in zip(*boxes, strict=True)))

    def remove(self, ids: IntArray) -> None:
        """Delete subscriptions."""
        for id in ids.tolist():
            for box in self._boxes.pop(id, []):
                self._index.delete(id, box)

    def response(self, points: FloatArray) -> tuple[FloatArray, list[set[int]]]:
        """Seconds from the start until each event was answered, and the answers (superset: boxes only)."""
        boxes = np.hstack([self._ranked(points)] * 2).tolist()
        answers, ended = [], np.empty(len(boxes))
        begun = perf_counter()
        for row, box in enumerate(boxes):
            answers.append(list(self._index.intersection(box)))
            ended[row] = perf_counter() - begun
        return ended, [set(answer) for answer in answers]

    def _insert(self, ids: IntArray, low: FloatArray, high: FloatArray) -> None:
        boxes = np.hstack([self._ranked(low), self._ranked(high)]).tolist()
        for id, box in zip(ids.tolist(), boxes, strict=True):
            self._index.insert(id, box)
            self._boxes.setdefault(id, []).append(box)

    def _ranked(self, values: FloatArray) -> FloatArray:
        mapped = np.empty_like(values)
        for k, ends in enumerate(self._ranks):
            top = len(ends)
            if top:
                mapped[:, k] = np.interp(values[:, k], ends, self._places[:top], left=-1, right=top)
            else:
                mapped[:, k] = 0
            mapped[values[:, k] == -np.inf, k] = -2  # a missing value lies below all
            mapped[values[:, k] == np.inf, k] = top + 1
        return mapped
