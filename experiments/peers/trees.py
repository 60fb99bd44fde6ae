"""R-trees: `rtree` (libspatialindex), Boost's in `boostree`, and the STRtree of `shapely` (GEOS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.peers.peer import Finite, Peer, Way, grouped
from rtfilter.basics.dtypes import FloatArray
from rtfilter.basics.results import Matches
from rtfilter.replay.rtree_peer import properties
from rtfilter.replay.workloads import Bounds

if TYPE_CHECKING:
    from rtree.index import Index


class Rtree(Peer):
    """An index of `rtree`, with finite sides, because it crashes on infinite ones."""

    package = "rtree"

    def __init__(self, boxes: Bounds) -> None:
        self.finite = Finite(boxes)
        self.index = self.build(Bounds(*map(self.finite, boxes)))

    @classmethod
    def refuses(cls, boxes: Bounds) -> str:
        """Refuse one dimension."""
        return "" if boxes.low.shape[1] > 1 else "takes 2 dimensions or more"

    @classmethod
    def build(cls, boxes: Bounds) -> Index:
        """Make the index of finite boxes."""
        raise NotImplementedError

    @property
    def ways(self) -> Mapping[str, Way]:
        """Return two ways: a call per point, and a call for all. Neither shares work among points."""
        return {"intersection": self.ask_each, "intersection_v": self.ask_all}

    def ask_each(self, points: FloatArray) -> list[list[int]]:
        """Match each point with its own `intersection`."""
        asked = self.finite(points)
        return [list(self.index.intersection(box)) for box in np.hstack([asked, asked]).tolist()]

    def ask_all(self, points: FloatArray) -> Matches:
        """Match all points with a single `intersection_v`."""
        asked = self.finite(points)
        ids, counts = self.index.intersection_v(asked, asked)  # type: ignore[no-untyped-call]
        return Matches(np.concatenate([[0], np.cumsum(counts.astype(np.int64))]), ids)


class RtreeInserted(Rtree):
    """Default node capacities of `rtree`; boxes are inserted one by one."""

    name = "rtree inserted 100/100"
    capacity = (100, 100)

    @classmethod
    def build(cls, boxes: Bounds) -> Index:
        """Insert one by one."""
        from rtree.index import Index

        index = Index(properties=properties(boxes.low.shape[1], *cls.capacity))
        for id, box in enumerate(np.hstack(boxes).tolist()):
            index.insert(id, box)
        return index


class RtreeInsertedSmall(RtreeInserted):
    """Node capacities of the paper (Wang et al.)."""

    name = "rtree inserted 10/20"
    capacity = (10, 20)


class RtreePacked(Rtree):
    """Packed from arrays, with the default node capacities of `rtree`."""

    name = "rtree packed 100/100"

    @classmethod
    def build(cls, boxes: Bounds) -> Index:
        """Pack all boxes at once."""
        from rtree.index import Index

        ids = np.arange(len(boxes.low))
        return Index((ids, boxes.low, boxes.high), properties=properties(boxes.low.shape[1], 100, 100))


class Boost(Peer):
    """The R*-tree of Boost.Geometry, packed, with finite sides."""

    name = "boostree"
    package = "boostree"

    def __init__(self, boxes: Bounds) -> None:
        from boostree import RTree

        self._finite = Finite(boxes)
        self._tree = RTree.from_boxes(*map(self._finite, boxes))

    @classmethod
    def refuses(cls, boxes: Bounds) -> str:
        """Refuse all but 2 to 4 dimensions."""
        return "" if 2 <= boxes.low.shape[1] <= 4 else "takes 2 to 4 dimensions"

    @property
    def ways(self) -> Mapping[str, Way]:
        """Return the only way: a call for all points."""
        return {"intersect": self.ask}

    def ask(self, points: FloatArray) -> Matches:
        """Match all points with a single `intersect`."""
        asked = self._finite(points)
        ids, counts = self._tree.intersect(asked, asked)
        return Matches(np.concatenate([[0], np.cumsum(counts.astype(np.int64))]), ids)


class STRtree(Peer):
    """The packed R-tree of GEOS (STR), in the plane."""

    name = "shapely STRtree"
    package = "shapely"

    def __init__(self, boxes: Bounds) -> None:
        import shapely

        self._finite = Finite(boxes)
        low, high = map(self._finite, boxes)
        self._tree: Any = shapely.STRtree(shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1]))

    @classmethod
    def refuses(cls, boxes: Bounds) -> str:
        """Refuse all but 2 dimensions."""
        return "" if boxes.low.shape[1] == 2 else "takes 2 dimensions"

    @property
    def ways(self) -> Mapping[str, Way]:
        """Return a single way: a call for all points."""
        return {"query": self.ask}

    def ask(self, points: FloatArray) -> Matches:
        """Match all points with a single `query`. It compares closed envelopes, which is right for boxes."""
        import shapely

        events, ids = self._tree.query(shapely.points(self._finite(points)))
        return grouped(events, ids, len(points))
