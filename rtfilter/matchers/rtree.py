"""The R*-tree as a matcher: boxes, levels to stop at, arrays that are saved as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, Flags, FloatArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.selection import How, QueryBoxes
from rtfilter.index.tree import DEFAULT_CAPACITY, Frontier, Parts, RStarTree
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Matcher, Takes
from rtfilter.results import Hits

#: Rows in use, and how many times the subscriptions, above which memory is released.
LEAST_ROWS, WASTED = 1 << 16, 8
#: Ids from which a pass over all boxes may be faster than a look-up of each.
SCANNED = 64


class RTreeMatcher:
    """Matches with an `RStarTree`; `capacity` is the capacity of its nodes.

    Attributes
    ----------
    tree : RStarTree
    """

    takes = Takes()

    def __init__(self, schema: Schema, capacity: tuple[int, int] = DEFAULT_CAPACITY) -> None:
        self._schema = schema
        self.tree = RStarTree(schema.dimensions, capacity)

    @property
    def options(self) -> Mapping[str, Any]:
        """The capacity of nodes."""
        return {"capacity": self.tree.capacity}

    def add(self, filters: Filters) -> None:
        """Insert the boxes, or pack the tree again if there are many."""
        ids, low, high, exact = filters.boxes()
        if len(ids) == 1:
            self.tree.insert(int(ids[0]), low[0], high[0], exact=bool(exact[0]))
        elif len(ids):
            self.tree.extend(ids, low, high, exact=exact)

    def replace(self, filters: Filters) -> None:
        """See `Replacing`."""
        ids, low, high, exact = filters.boxes()
        self.tree.replace(int(ids[0]), low, high, exact=exact)

    @property
    def wasteful(self) -> bool:
        """True if seven eighths of its rows are free; they cannot be released one by one."""
        rows = self.tree.rows
        return rows > LEAST_ROWS and rows > WASTED * len(self.tree)

    def adopt(self, other: Matcher) -> None:
        """See `Adopting`."""
        assert isinstance(other, RTreeMatcher)
        self.tree.adopt(other.tree)

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        if len(ids) == 1:
            return np.array([self.tree.delete(int(ids[0]))])
        return self.tree.delete_many(ids)

    def match(self, events: EventTable, *, first_only: bool = False) -> Hits:
        """See `Matcher`; visits are nodes."""
        return self.tree.hits(events.points, first_only=first_only)

    def match_one(self, point: FloatArray) -> tuple[IntArray, Flags | None]:
        """See `Single`."""
        ids, exact, _ = self.tree.one(point)
        return ids, exact

    def search_boxes(self, low: FloatArray, high: FloatArray, how: How) -> Hits:
        """See `SearchingBoxes`; visits are nodes."""
        return self.tree.hits(QueryBoxes(low, high, how))

    def workload(self, events: EventTable) -> IntArray:
        """Return how many leaves matching will visit for each event, int64 (n,)."""
        return self.tree.frontier(events.points, self.tree.height - 1).workload

    @property
    def height(self) -> int:
        """Number of levels of the tree."""
        return self.tree.height

    @property
    def packed(self) -> int:
        """Number of times that the tree was packed, or replaced by a copy."""
        return self.tree.packed

    def frontier(self, events: EventTable, level: int) -> Frontier:
        """Return the places where the paths of the events stop at a level; see `RStarTree.frontier`."""
        return self.tree.frontier(events.points, level)

    def resume_part(self, parts: Parts, group: int) -> Hits:
        """See `Resumable`."""
        return self.tree.resume_part(parts, group)

    def ids(self) -> IntArray:
        """See `Matcher`."""
        return self.tree.ids()

    def __len__(self) -> int:
        return len(self.tree)

    def __contains__(self, id: int) -> bool:
        return id in self.tree

    def content(self, ids: Iterable[int] | None = None) -> Filters:
        """Return the boxes of some ids, or of all."""
        if ids is None:
            return Filters.of_boxes(self._schema, BoxColumns(*self.tree.content()))
        names = list(ids)
        if len(names) == 1:
            low, high, exact = self.tree.boxes_and_exactness_of(names[0])
            owner = np.full(len(low), names[0], np.int64)
            return Filters.of_boxes(self._schema, BoxColumns(owner, low, high, exact))
        if len(names) > SCANNED and 8 * len(names) > len(self):
            of_box, low, high, exact = self.tree.content()
            own = np.isin(of_box, np.array(names, np.int64))
            return Filters.of_boxes(self._schema, BoxColumns(of_box[own], low[own], high[own], exact[own]))
        found = self.tree.content_of(np.array(names, np.int64))
        return Filters.of_boxes(self._schema, BoxColumns(*found))

    @property
    def rows(self) -> int:
        """See `Scannable`."""
        return self.tree.rows

    def scan(self, rows: range) -> Filters:
        """See `Scannable`; the boxes of one subscription may lie apart."""
        return Filters.of_boxes(self._schema, BoxColumns(*self.tree.content(rows)))

    @property
    def places(self) -> object:
        """See `Scannable`: places move when the tree is packed."""
        return self.tree.places

    @property
    def updates(self) -> int:
        """Number of boxes inserted and deleted."""
        return self.tree.updates

    def stats(self) -> dict[str, Any]:
        """Return the size, shape, fill and memory of the tree."""
        return {**self.tree.stats(), "unit": "nodes"}

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of the tree; see `RStarTree.to_arrays`."""
        return {f"tree_{name}": array for name, array in self.tree.to_arrays().items()}

    @classmethod
    def from_arrays(cls, schema: Schema, arrays: Mapping[str, AnyArray]) -> Self:
        """Return the matcher of `to_arrays`; other arrays are ignored."""
        own = {name: array for name, array in arrays.items() if name.startswith("tree_")}
        made = cls.__new__(cls)
        made._schema = schema
        made.tree = RStarTree.from_arrays({name.removeprefix("tree_"): array for name, array in own.items()})
        if made.tree.dimensions != schema.dimensions:
            raise ValueError(f"the tree has {made.tree.dimensions} dimensions, not {schema.dimensions}")
        return made
