"""The peer of a replay: an `rtree` index of the same boxes, searched event by event in order of arrival."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from rtree.index import Index, Property

from rtfilter import EventFilter
from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.filter import inside
from rtfilter.matchers.rtree import shown, tree_of

CAPACITY = (10, 20)
"""Children of an inner node and entries of a leaf, as in the paper (Wang et al.)."""


def properties(dimensions: int, inner: int, leaf: int) -> Property:
    """Return the properties of an `rtree` index with these node capacities, and defaults (R*, fill 0.7)."""
    chosen = Property(dimension=dimensions, index_capacity=inner, leaf_capacity=leaf)
    # rtree wants this below both capacities. Its default, 32, is not below the paper's.
    chosen.near_minimum_overlap_factor = min(32, inner - 1, leaf - 1)
    return chosen


class RtreePeer:
    """An `rtree` index with the boxes of a filter.

    `rtree` crashes on infinite sides and on boxes whose volume overflows. So each coordinate is replaced by
    its rank among the ends of the first boxes. The map is monotone, so no match is lost.

    Parameters
    ----------
    filter : EventFilter
        Its boxes are copied.
    step : callable
        Called with the number of boxes after each block of them; for a progress bar.
    """

    def __init__(self, filter: EventFilter, step: Callable[[int], object] = lambda rows: None) -> None:
        self._tree = tree_of(inside(filter).matcher)
        self._schema = filter.schema
        ids, low, high, _ = self._tree.content()
        high = shown(filter.schema, high)
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
        """Insert the boxes of subscriptions that the filter has by now, ids int64 (n,)."""
        boxes = [self._tree.boxes_of(id) for id in ids.tolist()]
        if boxes:
            owners = np.repeat(ids, [len(low) for low, _ in boxes])
            low, high = (np.concatenate(ends) for ends in zip(*boxes, strict=True))
            self._insert(owners, low, shown(self._schema, high))

    def remove(self, ids: IntArray) -> None:
        """Delete the boxes of subscriptions, ids int64 (n,)."""
        for id in ids.tolist():
            for box in self._boxes.pop(id, []):
                self._index.delete(id, box)

    def response(self, points: FloatArray) -> tuple[FloatArray, list[set[int]]]:
        """Search the matches of each event, points float64 (n, d).

        Returns
        -------
        float64 (n,)
            Seconds from the start until each event was answered.
        list of sets of int
            The ids found for each event. Boxes alone are compared, so some ids may be no matches.
        """
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
        """Return coordinates (n, d) as ranks."""
        mapped = np.empty_like(values)
        for k, ends in enumerate(self._ranks):
            top = len(ends)
            if top:
                mapped[:, k] = np.interp(values[:, k], ends, self._places[:top], left=-1, right=top)
            else:
                mapped[:, k] = 0
            mapped[values[:, k] == -np.inf, k] = -2  # a missing value lies below all others
            mapped[values[:, k] == np.inf, k] = top + 1
        return mapped
