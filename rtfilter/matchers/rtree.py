"""The R*-tree as a matcher: boxes, levels to stop at, arrays that are saved as they are.

A box knows six bytes of a text, and many paths and hosts share these. So boxes of patterns with a longer
beginning or end are found by a hash table (`rtfilter.matchers.lookup`). The tree has them too, for all but
matching: there they are hidden, with an `identity` below that of any text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import AnyArray, BoolArray, Flags, FloatArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.encoding import ORDER_MAX
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.index.kernels.frontiers import Frontier, Parts
from rtfilter.index.selection import How, QueryBoxes
from rtfilter.index.tree import DEFAULT_CAPACITY, RStarTree
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.lookup import FoundBoxes, Lookup, identities_of
from rtfilter.matchers.port import Matcher, Takes
from rtfilter.matchers.rows import distinct, grouped
from rtfilter.predicates.boxes.affixes import LOWEST_OF_BEGINNINGS

#: Rows in use, and how many times the subscriptions, above which memory is released.
LEAST_ROWS, WASTED = 1 << 16, 8
#: Ids from which a pass over all boxes may be faster than a look-up of each.
SCANNED = 64
FEW = 16
"""Boxes that differ only by what they tell, up to which the tree finds them: to verify so many takes as long
as to look an event up."""
COUNTERS: Final = 1 << 16
_HIDDEN: Final = -1.0
"""The high end of `identity` of a hidden box. The low end too, if the table alone tells its beginning or end:
then boxes of many subscriptions are equal, and the tree has them once."""


class _Stopped(NamedTuple):
    """The places where the paths of a batch stopped in the tree, and what the table has found."""

    frontier: Frontier
    found: FoundBoxes

    @property
    def workload(self) -> IntArray:
        """See `Stopped`: leaves, and boxes that were compared."""
        return self.frontier.workload + self.found.tried

    @property
    def visits(self) -> int:
        """See `Stopped`."""
        return self.frontier.visits + int(self.found.tried.sum())

    def split(self, order: IntArray, cuts: IntArray) -> _Parts:
        """See `Stopped`."""
        return _Parts(self.frontier.split(order, cuts), self.found, order, cuts)


class _Parts(NamedTuple):
    """The groups of a batch, ``order[cuts[g]:cuts[g + 1]]``: the rest of the search, and what is found."""

    tree: Parts
    found: FoundBoxes
    order: IntArray
    cuts: IntArray


class RTreeMatcher:
    """Matches with an `RStarTree`; `capacity` is the capacity of its nodes.

    Attributes
    ----------
    tree : RStarTree
    """

    takes = Takes()

    def __init__(self, schema: Schema, capacity: tuple[int, int] = DEFAULT_CAPACITY) -> None:
        self._begin(schema, RStarTree(schema.dimensions, capacity))

    def _begin(self, schema: Schema, tree: RStarTree) -> None:
        self._schema, self.tree = schema, tree
        self._lookup = Lookup(schema)
        self._alike = np.zeros(COUNTERS if len(self._lookup.affixes.identities) else 0, np.int32)
        self._mixed = False  # True while an id may have boxes in the table and others that are not hidden

    @property
    def options(self) -> Mapping[str, Any]:
        """The capacity of nodes."""
        return {"capacity": self.tree.capacity}

    def add(self, filters: Filters) -> None:
        """Insert the boxes, or pack the tree again if there are many."""
        ids, low, high, exact = self._hide(filters.boxes(), new=True)
        if len(ids) == 1:
            self.tree.insert(int(ids[0]), low[0], high[0], exact=bool(exact[0]))
        elif len(ids):
            self.tree.extend(ids, low, high, exact=exact)

    def replace(self, filters: Filters) -> None:
        """See `Replacing`."""
        boxes = filters.boxes()
        id = int(boxes.ids[0])
        before = self._lookup.count_of(id)
        # Candidates of the table are verified, so old and new boxes may be there together.
        self._mixed = True
        _, low, high, exact = self._hide(boxes, new=False)
        self.tree.replace(id, low, high, exact=exact)
        if before:
            self._lookup.drop(id, before)
        self._mixed = False

    def _hide(self, boxes: BoxColumns, new: bool) -> BoxColumns:
        """Let the table take boxes that tell a beginning or end and are many alike; return all for the tree.

        Of `new` ids, the tree need not know what a single box tells.
        """
        telling = self._lookup.affixes.telling(boxes.low)
        if telling is None:
            return boxes
        own: BoolArray = np.logical_or.reduce(telling, axis=1)
        own[own] = self._count(boxes.low[own], boxes.high[own], telling[own]) > FEW
        own &= ~np.isin(boxes.ids, boxes.ids[~own])
        rows = np.flatnonzero(own)
        if not len(rows):
            return boxes
        taken: Any = (column[rows] for column in boxes)
        alone = self._alone(boxes.low[rows], boxes.high[rows], telling[rows])
        rows = rows[self._lookup.take(BoxColumns(*taken), alone)]
        low, high = boxes.low.copy(), boxes.high.copy()
        coordinates = self._lookup.affixes.identities[telling[rows].argmax(axis=1)]  # one is enough
        high[rows, coordinates] = _HIDDEN
        ids, counts = np.unique(boxes.ids[rows], return_counts=True)
        single = np.isin(boxes.ids[rows], ids[counts == 1]) & new
        low[rows[single], coordinates[single]] = _HIDDEN
        return boxes._replace(low=low, high=high)

    def _count(self, low: FloatArray, high: FloatArray, telling: BoolArray) -> NDArray[np.int32]:
        """Count boxes, and return how many were alike so far, or hash alike, int32 (m,)."""
        identities, width = self._lookup.affixes.identities, low.shape[1]
        sides = np.hstack([low, high])
        sides[:, identities] = np.where(telling, 0, low[:, identities])
        orders = identities - 1
        idle = telling & _idle(low[:, orders], high[:, orders])
        for columns in (orders, orders + width):
            sides[:, columns] = np.where(idle, 0, sides[:, columns])
        bits = (sides + 0.0).view(np.uint64) * (2 * np.arange(1, sides.shape[1] + 1, dtype=np.uint64) + 1)
        mixed = bits.sum(axis=1) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(48)
        np.add.at(self._alike, mixed, 1)
        alike: NDArray[np.int32] = self._alike[mixed]
        return alike

    def _alone(self, low: FloatArray, high: FloatArray, telling: BoolArray) -> BoolArray:
        """Return which boxes, float64 (m, D), ask only for what they tell: nothing else sorts them out."""
        identities = self._lookup.affixes.identities
        ends = (low > -np.inf) | (high < np.inf)
        of_end = telling & (low[:, identities] < LOWEST_OF_BEGINNINGS)
        idle = _idle(low[:, identities - 1], high[:, identities - 1])
        ends[:, identities - 1] &= ~(telling & (idle | ~of_end))  # a beginning tells the order
        ends[:, identities] &= ~telling
        ends[:, identities + 1] &= ~of_end
        alone: BoolArray = ~np.logical_or.reduce(ends, axis=1)
        return alone

    def _shown(self, ids: IntArray, low: FloatArray, high: FloatArray, exact: BoolArray) -> Filters:
        """Return boxes of the tree as they were added."""
        identities = self._lookup.affixes.identities
        rows = np.flatnonzero((low[:, identities] == _HIDDEN).any(axis=1))
        if len(rows):
            low = low.copy()
            low[np.ix_(rows, identities)] = self._lookup.ends_of(ids[rows])
        return Filters.of_boxes(self._schema, BoxColumns(ids, low, shown(self._schema, high), exact))

    @property
    def wasteful(self) -> bool:
        """True if seven eighths of its rows are free; they cannot be released one by one."""
        rows = self.tree.rows
        return rows > LEAST_ROWS and rows > WASTED * len(self.tree)

    def adopt(self, other: Matcher) -> None:
        """See `Adopting`."""
        assert isinstance(other, RTreeMatcher)
        self.tree.adopt(other.tree)
        self._lookup, self._alike, self._mixed = other._lookup, other._alike, other._mixed

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`."""
        known = np.array([self.tree.delete(int(ids[0]))]) if len(ids) == 1 else self.tree.delete_many(ids)
        if len(self._lookup):
            self._lookup.remove(ids)
        return known

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`; visits are nodes, and boxes that the table compares."""
        hits = self.tree.hits(events.points)
        return self._both(hits, self._lookup.search(events)) if len(self._lookup) else hits

    def match_one(self, event: EventTable) -> tuple[IntArray, Flags | None]:
        """See `Single`."""
        ids, exact, _ = self.tree.one(event.points)
        if not len(self._lookup):
            return ids, exact
        found = self._lookup.search(event)
        if not len(found.ids):
            return ids, exact
        if not len(ids):
            return found.ids, None if found.exact.all() else found.exact.astype(np.uint8)
        hits = self._both(Hits.of_one(ids, exact), found)
        return hits.ids, hits.exact

    def _both(self, hits: Hits, found: FoundBoxes) -> Hits:
        hits = found.added_to(hits)
        if not self._mixed:
            return hits
        exact = np.ones(len(hits.ids), np.bool_) if hits.exact is None else hits.exact.astype(np.bool_)
        offsets, ids, exact = distinct(hits.offsets, hits.ids, exact)
        return Hits(offsets, ids, exact.astype(np.uint8), hits.visits)

    def search_boxes(self, low: FloatArray, high: FloatArray, how: How) -> Hits:
        """See `SearchingBoxes`; visits are nodes."""
        if (
            not len(self._lookup) or how == "within"
        ):  # a box that has all identities within has the hidden ones
            return self.tree.hits(QueryBoxes(low, high, how))
        owners, lows, highs = [np.arange(len(low))], [low], [high]
        for coordinate in self._lookup.affixes.identities.tolist():  # a hidden box has all texts there
            owners.append(np.flatnonzero(high[:, coordinate] >= 0))
            for ends, parts in ((low, lows), (high, highs)):
                parts.append(ends[owners[-1]])
                parts[-1][:, coordinate] = _HIDDEN
        hits = self.tree.hits(QueryBoxes(np.concatenate(lows), np.concatenate(highs), how))
        owner = np.concatenate(owners)
        own, places = grouped(owner.repeat(np.diff(hits.offsets)), np.arange(len(hits.ids)), len(low))
        flags = np.ones(len(hits.ids), np.bool_) if hits.exact is None else hits.exact.astype(np.bool_)
        offsets, ids, exact = distinct(own, hits.ids[places], flags[places])
        visits = np.bincount(owner, hits.visits, len(low)).astype(np.int64)
        return Hits(offsets, ids, exact.astype(np.uint8), visits)

    def workload(self, events: EventTable) -> IntArray:
        """Return for each event the leaves to visit and the boxes to compare, int64 (n,)."""
        leaves = self.tree.frontier(events.points, self.tree.height - 1).workload
        return leaves + self._lookup.estimate(events) if len(self._lookup) else leaves

    @property
    def height(self) -> int:
        """Number of levels of the tree."""
        return self.tree.height

    @property
    def packed(self) -> int:
        """Number of times that the tree was packed, or replaced by a copy."""
        return self.tree.packed

    def frontier(self, events: EventTable, level: int) -> Frontier | _Stopped:
        """Return the places where the paths of the events stop at a level; see `RStarTree.frontier`."""
        frontier = self.tree.frontier(events.points, level)
        return _Stopped(frontier, self._lookup.search(events)) if len(self._lookup) else frontier

    def resume_part(self, parts: Parts | _Parts, group: int) -> Hits:
        """See `Resumable`."""
        if not isinstance(parts, _Parts):
            return self.tree.resume_part(parts, group)
        events = parts.order[parts.cuts[group] : parts.cuts[group + 1]]
        return self._both(self.tree.resume_part(parts.tree, group), parts.found.take(events))

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
            return self._shown(*self.tree.content())
        names = list(ids)
        if len(names) == 1:
            low, high, exact = self.tree.boxes_and_exactness_of(names[0])
            owner = np.full(len(low), names[0], np.int64)
            return self._shown(owner, low, high, exact)
        if len(names) > SCANNED and 8 * len(names) > len(self):
            of_box, low, high, exact = self.tree.content()
            own = np.isin(of_box, np.array(names, np.int64))
            return self._shown(of_box[own], low[own], high[own], exact[own])
        return self._shown(*self.tree.content_of(np.array(names, np.int64)))

    @property
    def rows(self) -> int:
        """See `Scannable`."""
        return self.tree.rows

    def scan(self, rows: range) -> Filters:
        """See `Scannable`; the boxes of one subscription may lie apart."""
        return self._shown(*self.tree.content(rows))

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
        stats = {**self.tree.stats(), "unit": "nodes"}
        if len(self._lookup):
            stats.update(looked_up=len(self._lookup.equal), bytes=stats["bytes"] + self._lookup.nbytes)
        return stats

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of the tree, and what the table alone knows; see `RStarTree.to_arrays`."""
        arrays = {f"tree_{name}": array for name, array in self.tree.to_arrays().items()}
        if not len(self._lookup):
            return arrays
        ids = np.sort(self._lookup.ids())
        return {**arrays, "affix_ids": ids, "affix_ends": self._lookup.ends_of(ids)}

    @classmethod
    def from_arrays(cls, schema: Schema, arrays: Mapping[str, AnyArray]) -> Self:
        """Return the matcher of `to_arrays`; other arrays are ignored."""
        own = {name: array for name, array in arrays.items() if name.startswith("tree_")}
        tree = RStarTree.from_arrays({name.removeprefix("tree_"): array for name, array in own.items()})
        if tree.dimensions != schema.dimensions:
            raise ValueError(f"the tree has {tree.dimensions} dimensions, not {schema.dimensions}")
        made = cls.__new__(cls)
        made._begin(schema, tree)
        if "affix_ids" in arrays:
            ids, low, high, exact = tree.content_of(arrays["affix_ids"])
            ends = arrays["affix_ends"][np.searchsorted(arrays["affix_ids"], ids)]
            identities = made._lookup.affixes.identities
            low[:, identities] = np.where(low[:, identities] == _HIDDEN, ends, low[:, identities])
            made._lookup.take(BoxColumns(ids, low, shown(schema, high), exact), crowds=True)
        return made


def _idle(low: FloatArray, high: FloatArray) -> BoolArray:
    """Return which ends of `order` tell next to nothing: all texts, or from a capital to its small letter."""
    low, high = np.maximum(low, 0), np.minimum(high, ORDER_MAX)
    first, last = low.astype(np.int64), high.astype(np.int64)
    differing = first ^ last
    bits = np.frexp(differing.astype(np.float64))[1]
    shift = np.maximum(bits - 1, 0) // 8 * 8  # of the first byte that differs
    small = last >> shift & 0xFF
    of_either_case = (differing >> shift == 0x20) & (small >= ord("a")) & (small <= ord("z"))
    idle: BoolArray = of_either_case | ((low == 0) & (high == ORDER_MAX))
    return idle


def shown(schema: Schema, high: FloatArray) -> FloatArray:
    """Return high ends of boxes of the tree, float64 (m, D), as they are when none is hidden."""
    identities = identities_of(schema)
    hidden = high[:, identities] == _HIDDEN
    if not hidden.any():
        return high
    high = high.copy()
    high[:, identities] = np.where(hidden, np.inf, high[:, identities])
    return high


def tree_of(matcher: Matcher) -> RStarTree:
    """Return the tree of a matcher; raise `TypeError` if it has none."""
    if not isinstance(matcher, RTreeMatcher):
        raise TypeError(
            f"this filter has a {type(matcher).__name__}, and no R*-tree; "
            "make the filter with matcher='rtree' to have one"
        )
    return matcher.tree
