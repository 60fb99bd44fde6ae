"""The subscription index: a dynamic R*-tree over closed boxes with bit-sliced nodes.

You can use it alone, without schema or predicates. Reads may run in several threads at once; a change must
run alone (`EventFilter` does this).
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from operator import index
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.basics.dtypes import AnyArray, BoolArray, Flags, FloatArray, IntArray
from rtfilter.basics.results import Hits, Matches
from rtfilter.index import bulk, room, tree_arguments
from rtfilter.index.kernels import changes, descend, grid, layout, nodes, pools, runs, select_box
from rtfilter.index.kernels import hash_tables as tables
from rtfilter.index.kernels.array_types import Links
from rtfilter.index.kernels.frontiers import Frontier, Parts, Version
from rtfilter.index.kernels.jit import unwrapped
from rtfilter.index.selection import How, QueryBoxes
from rtfilter.index.tree_arguments import FIELDS, NOT_KEPT, require_form
from rtfilter.snapshots import arrays as snapshot

#: Entries of an inner node and of a leaf, chosen by `experiments`' capacity benchmark.
DEFAULT_CAPACITY = (512, 4096)
#: Most entries of a node, because the room for all entries of a node is made at once.
MOST_CAPACITY = 1 << 20
#: Most points in one search; more points share no more work and need larger scratch arrays.
CHUNK = 4096
KIND = "rtfilter.tree"
#: Number of places of hash tables that are moved to larger ones at once.
MOVED_AT_ONCE = 1 << 12

_NOTHING = changes.GIVEN_BY_ADDRESS.addresses(changes.NOTHING)
_NOWHERE = np.empty(0, np.int64)
_NO_QUERIES = np.empty((0, 1))
_NO_FRONTIER = _NOWHERE, _NOWHERE, np.empty(0, np.int32)


class RStarTree:
    """R*-tree of closed boxes [low, high], each with one or more ids.

    Parameters
    ----------
    dimensions : int
        At least 1; 1 to 64 are tested.
    capacity : (int, int)
        Most entries of an inner node and of a leaf, 4 to 2**20. Small nodes, as the paper's (10, 20), prune
        more and cost more per visit. The default is measured.

    Sides may be infinite: [-inf, inf] is a don't-care side. NaN and low > high are refused.
    """

    packed = 0
    """The number of times that this object was built as a whole: bulk loaded, packed, or replaced."""
    _hits_per_point = 1.0  # in the last search
    _former: layout.Tree | None = None

    def __init__(self, dimensions: int, capacity: tuple[int, int] = DEFAULT_CAPACITY) -> None:
        inner, leaf = map(index, capacity)
        if not 1 <= index(dimensions) <= layout.DIMENSIONS:
            raise ValueError(f"a tree has 1 to {layout.DIMENSIONS} dimensions, not {dimensions}")
        if min(inner, leaf) < 4:
            raise ValueError(f"capacities (inner, leaf) must be at least 4, not {tuple(capacity)}")
        if max(inner, leaf) > MOST_CAPACITY:
            raise ValueError(f"capacities (inner, leaf) are at most {MOST_CAPACITY}, not {tuple(capacity)}")
        self._tree = layout.empty(index(dimensions), inner, leaf)

    @property
    def _tree(self) -> layout.Tree:
        return self._arrays

    @_tree.setter
    def _tree(self, arrays: layout.Tree) -> None:
        dimensions = arrays.frame.shape[1]
        box = changes.NOTHING._replace(low=np.empty(dimensions), high=np.empty(dimensions))
        where, where_box = layout.TREE_BY_ADDRESS.addresses(arrays), changes.GIVEN_BY_ADDRESS.addresses(box)
        # No signal interrupts this line: arrays and their addresses belong together.
        self._arrays, self._where, self._box, self._where_box = arrays, where, box, where_box

    # -- building ------------------------------------------------------------------------------------

    @classmethod
    def bulk_load(
        cls,
        low: ArrayLike,
        high: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        exact: ArrayLike | None = None,
        capacity: tuple[int, int] = DEFAULT_CAPACITY,
    ) -> RStarTree:
        """Return a tree of n boxes packed at once: faster and better packed than by insertions.

        Parameters
        ----------
        low, high : array_like of float64 (n, d)
            Closed bounds.
        ids : array_like of int64 (n,), optional
            0..n-1 by default. An id may have several boxes.
        exact : array_like of bool (n,), optional
            False if a box is only a superset of its predicate. All True by default.
        """
        lower, upper = tree_arguments.boxes(low, high)
        tree = cls(lower.shape[1], capacity)
        tree._pack(tree_arguments.ids(ids, len(lower)), lower, upper, tree_arguments.flags(exact, len(lower)))
        return tree

    @classmethod
    def from_rtree(cls, source: Any, capacity: tuple[int, int] = DEFAULT_CAPACITY) -> RStarTree:
        """Return a tree with the ids and boxes of an `rtree.index.Index`, bulk-loaded."""
        dimensions = source.properties.dimension
        items = list(source.intersection(source.bounds, objects=True)) if len(source) else []
        boxes = np.array([item.bbox for item in items]).reshape(len(items), 2, dimensions)
        ids = np.array([item.id for item in items], np.int64)
        return cls.bulk_load(boxes[:, 0], boxes[:, 1], ids, capacity=capacity)

    # -- changing ------------------------------------------------------------------------------------

    def insert(self, id: int, low: ArrayLike, high: ArrayLike, *, exact: bool = True) -> None:
        """Insert one box, low and high of shape (d,). An id may have several boxes."""
        lower, upper = np.ascontiguousarray(low, np.float64), np.ascontiguousarray(high, np.float64)
        key, shape = index(id), (self.dimensions,)
        inserted = -1
        if lower.shape == upper.shape == shape and tree_arguments.is_id(key):
            self._box.low[:], self._box.high[:] = lower, upper
            inserted = changes.change(self._where, changes.INSERT_ONE, key, bool(exact), self._where_box)
        if inserted < 0:  # `boxes` raises for a wrong box; otherwise there was no room
            self.insert_many([key], lower[np.newaxis], upper[np.newaxis], exact=[exact])
        elif self._arrays.old_tables.size:
            self._drop_old_tables()

    def insert_many(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, *, exact: ArrayLike | None = None
    ) -> None:
        """Insert n boxes one by one by the R* rules; see `bulk_load` for the parameters."""
        lower, upper = tree_arguments.boxes(low, high, self.dimensions)
        self._insert(
            tree_arguments.ids(ids, len(lower)), lower, upper, tree_arguments.flags(exact, len(lower))
        )

    def _insert(self, ids: IntArray, low: FloatArray, high: FloatArray, exact: BoolArray) -> None:
        given = changes.Given(low.reshape(-1), high.reshape(-1), ids, exact.view(np.uint8))
        if self._change(changes.INSERT, given) == changes.NO_ROOM:
            self._make_room(max(len(ids), 1))
            self._change(changes.INSERT, given)
        self._drop_old_tables()

    def extend(
        self, ids: ArrayLike, low: ArrayLike, high: ArrayLike, *, exact: ArrayLike | None = None
    ) -> None:
        """Add n boxes the faster way: insert them, or pack all boxes again if n is not small beside them."""
        lower, upper = tree_arguments.boxes(low, high, self.dimensions)
        identifiers, flags = tree_arguments.ids(ids, len(lower)), tree_arguments.flags(exact, len(lower))
        if len(lower) < max(64, int(self._tree.state[layout.LINKS]) // 4):
            self._insert(identifiers, lower, upper, flags)
            return
        old_ids, old_low, old_high, old_exact = self.content()
        self._pack(
            np.concatenate([old_ids, identifiers]),
            np.concatenate([old_low, lower]),
            np.concatenate([old_high, upper]),
            np.concatenate([old_exact, flags]),
        )

    def delete(self, id: int) -> bool:
        """Remove an id with all its boxes; return False if it is unknown."""
        key = tree_arguments.id(id)
        known = changes.change(self._where, changes.DELETE_ONE, key, False, _NOTHING)
        if known < 0:
            self._make_room(1)
            known = changes.change(self._where, changes.DELETE_ONE, key, False, _NOTHING)
        if self._arrays.state.item(layout.FREED):
            layout.give_back_free_nodes(self._arrays)
        return bool(known)

    def delete_many(self, ids: ArrayLike) -> BoolArray:
        """Remove ids with all their boxes; return which were known, bool (n,)."""
        identifiers = tree_arguments.ids(ids, np.size(ids))
        removed = np.zeros(len(identifiers), np.bool_)
        given = changes.NOTHING._replace(ids=identifiers, flags=removed.view(np.uint8))
        if self._change(changes.DELETE, given) == changes.NO_ROOM:
            self._make_room(1)
            self._change(changes.DELETE, given)
        if len(removed) > 1 or self._arrays.state.item(layout.FREED):
            layout.give_back_free_nodes(self._arrays)
        return removed

    def adopt(self, other: RStarTree) -> None:
        """Take the content of another tree, which must not be used afterwards; a second call changes nothing.

        The difference in the number of links between the trees counts as `updates`.
        """
        if other._tree is self._tree:
            return
        other._former = self._tree  # slow to free, so `other` does it when it ends
        changed = abs(int(other._tree.state[layout.LINKS] - self._tree.state[layout.LINKS]))
        other._tree.state[layout.UPDATES] = self.updates + changed
        self._tree = other._tree
        self.packed += 1

    def replace(self, id: int, low: ArrayLike, high: ArrayLike, *, exact: ArrayLike | None = None) -> bool:
        """Replace all boxes of an id by n others, as in `bulk_load`; return False if the id was unknown."""
        lower, upper = tree_arguments.boxes(low, high, self.dimensions)
        key = tree_arguments.id(id)
        flags = tree_arguments.flags(exact, len(lower))
        sides = lower.reshape(-1), upper.reshape(-1)
        given = changes.Given(*sides, changes.NOTHING.ids, flags.view(np.uint8))
        known = self._change(changes.REPLACE, given, key)
        if known < 0:
            self._make_room(max(len(lower), 1))
            known = self._change(changes.REPLACE, given, key)
        self._drop_old_tables()
        return bool(known)

    def _change(self, kind: int, given: changes.Given, identifier: int = 0) -> int:
        # Read-only arrays are copied; `changes.DELETE` writes to its own flags.
        arrays = changes.Given._make(np.require(array, requirements=["C", "W"]) for array in given)
        where = changes.GIVEN_BY_ADDRESS.addresses(arrays)
        return int(changes.change(self._where, kind, identifier, False, where))

    def repack(self) -> None:
        """Pack all boxes again, as `bulk_load` does. After many insertions, this may double the speed.

        Takes about as long as `bulk_load`, and memory for a second tree meanwhile. If it fails, the tree is
        unchanged.
        """
        self._pack(*self.content())

    def _require_whole(self) -> None:
        state = self._arrays.state
        if state.item(layout.TODO) > 0 or state.item(layout.STALE) >= 0:
            raise MemoryError("the index lost entries when memory ran out during a change; load a snapshot")

    def _make_room(self, count: int) -> None:
        """Make room for `count` more boxes and links before a change; deletions may need new nodes, too.

        An interrupt leaves the tree unchanged: pools that are mapped from a file are not written to before
        they are moved.
        """
        self._tree = layout.with_room(self._tree, count, count)
        rows = int(self._tree.state[layout.LINKS]) + count
        if 2 * rows > self._tree.tables.shape[1]:
            self._grow_tables(2 * rows)

    def _grow_tables(self, least: int) -> None:
        """Make larger hash tables; later insertions move the entries of large ones in small steps.

        The rows that were added since the last call are written now, so they may use huge pages.
        """
        layout.use_huge_pages_for_rows(self._tree)
        tables.move(self._tree, self._tree.old_tables.shape[1])
        self._drop_old_tables()
        old, size = self._tree, 1 << max(4, (least - 1).bit_length())
        larger = old._replace(tables=pools.zeros(2, size), old_tables=old.tables)
        tables.start_moving(larger)
        self._tree = larger
        if old.tables.shape[1] <= MOVED_AT_ONCE:
            tables.move(larger, MOVED_AT_ONCE)
            self._drop_old_tables()

    def _drop_old_tables(self) -> None:
        """Drop the old hash tables, if all their entries are moved."""
        tree = self._arrays
        if tree.old_tables.size and tables.moved_all(tree):
            self._tree = tree._replace(old_tables=np.zeros((2, 0), np.int32))

    @unwrapped
    def _pack(self, ids: IntArray, low: FloatArray, high: FloatArray, exact: BoolArray) -> None:
        """Replace the content by these boxes."""
        fresh = RStarTree(low.shape[1], self.capacity)
        fresh._make_room(len(ids))
        if len(ids):
            bulk.load(fresh._tree, ids, low, high, exact)
        fresh._tree.state[layout.UPDATES] = self.updates + len(ids) - int(self._tree.state[layout.LINKS])
        self._tree = fresh._tree
        self.packed += 1

    # -- searching -----------------------------------------------------------------------------------

    def search(self, points: ArrayLike | QueryBoxes) -> Matches:
        """Return the ids whose boxes contain each point, float64 (n, d); or those that query boxes select.

        Points may be infinite, not NaN.
        """
        hits = self.hits(points)
        return Matches(hits.offsets, hits.ids)

    def search_boxes(self, low: ArrayLike, high: ArrayLike, how: How) -> Matches:
        """Return the ids with a box that intersects each query box, contains it, or lies within it.

        For the parameters, see `QueryBoxes`. Each box counts alone: boxes of one id are not joined. Raises
        `ValueError` for another `how`, or for a query that is not a box.
        """
        return self.search(QueryBoxes(low, high, how))

    def count(self, points: ArrayLike | QueryBoxes) -> IntArray:
        """Return the number of ids that `search` finds for each point, int64 (n,)."""
        return self.search(points).counts

    def any(self, points: ArrayLike | QueryBoxes) -> BoolArray:
        """Return whether `search` finds any id for each point, bool (n,); ends at the first exact match."""
        return np.diff(self.hits(points, first_only=True).offsets) > 0

    @unwrapped
    def hits(self, points: ArrayLike | QueryBoxes, *, first_only: bool = False) -> Hits:
        """Return the ids of `search` with exactness and visits; `first_only` stops at an exact match."""
        if isinstance(points, QueryBoxes):
            batch, selection = tree_arguments.queries(points, self.dimensions)
        else:
            batch, selection = tree_arguments.points(points, self.dimensions), select_box.POINT
            if len(batch) == 1:
                return Hits.of_one(*self.one(batch, first_only))
            tree_arguments.require_numbers(batch)
        self._require_whole()
        size = self._chunk(len(batch))
        if len(batch) <= size:
            return self._hits(batch, selection, first_only, *descend.FROM_ROOT)
        parts = [self._hits(batch[:size], selection, first_only, *descend.FROM_ROOT)]
        start = size
        # All parts of a large result are in one array: new memory costs more than the search.
        ids = room.GrowingArray(parts[0].ids, len(batch) / size)
        exact = None if parts[0].exact is None else room.GrowingArray(parts[0].exact, len(batch) / size)
        while start < len(batch):
            size = self._chunk(len(batch) - start)
            part = batch[start : start + size]
            what = part, selection, first_only, *descend.FROM_ROOT
            parts.append(self._hits(*what, ids=ids, exact=exact))
            start += size
        return Hits.joined(parts, ids.closed(), None if exact is None else exact.closed())

    def one(self, point: FloatArray, first_only: bool = False) -> tuple[IntArray, Flags | None, int]:
        """Return ids, exactness and visits of `hits` for one point, float64 (1, d), C-contiguous.

        The hits of one point need no reordering, and most of the time is Python's. Without hits there is no
        exactness.
        """
        found, addresses = room.taken()
        visits = descend.search_one(self._where, point, first_only, addresses)
        while visits < 0:
            if visits == descend.WRONG:
                self._require_whole()
                tree_arguments.require_numbers(point)
            found, addresses = room.larger(found)
            visits = descend.search_one(self._where, point, first_only, addresses)
        count = found.size.item(1)
        if count == 0:
            room.returned(found, addresses)
            return _NOWHERE, None, visits
        state = self._arrays.state
        ids = found.ids[:count].copy()
        exact = None if state.item(layout.INEXACT) == 0 else found.exact[:count].copy()
        room.returned(found, addresses)
        if state.item(layout.LINKS) > state.item(layout.IDS):  # an id may occur twice
            offsets, flags = np.array((0, count)), np.empty(0, np.uint8) if exact is None else exact
            runs.distinct(offsets, ids, flags)
            ids, exact = ids[: offsets[1]], None if exact is None else exact[: offsets[1]]
        return ids, exact, visits

    def _chunk(self, points: int) -> int:
        """Return the number of points per search, so that the expected matches fit the room."""
        most = room.KEPT / self._hits_per_point
        return min(CHUNK, points if points <= 0.9 * most else max(64, int(0.7 * most)))

    def _hits(
        self,
        *what: Any,
        ids: room.GrowingArray | None = None,
        exact: room.GrowingArray | None = None,
    ) -> Hits:
        """Search (`descend.search`) and write the hits in the order of the points, after those in `ids`."""
        search: Callable[..., tuple[bool, IntArray, IntArray]] = descend.search
        found, addresses = room.taken()
        complete, offsets, visits = search(self._where, *what, addresses)
        while not complete:
            found, addresses = room.larger(found)
            complete, offsets, visits = search(self._where, *what, addresses)
        state, count = self._arrays.state, int(offsets[-1])
        # Memory from NumPy, which asks for huge pages: with small ones, its first use is the slowest part.
        own_ids = np.empty(count, np.int64) if ids is None else ids.room(count)
        all_exact = state.item(layout.INEXACT) == 0
        flags = 0 if all_exact else count
        own_exact = np.empty(flags, np.uint8) if exact is None else exact.room(flags)
        runs.gather(addresses, offsets, own_ids, own_exact)
        room.returned(found, addresses)
        self._hits_per_point = max(1.0, count / max(len(visits), 1))
        if state.item(layout.LINKS) > state.item(layout.IDS):  # an id may occur twice
            runs.distinct(offsets, own_ids, own_exact)
            own_ids, own_exact = own_ids[: offsets[-1]], own_exact[: offsets[-1]]
        for array, own in ((ids, own_ids), (exact, own_exact)):
            if array is not None:
                array.used += len(own)
        return Hits(offsets, own_ids, None if all_exact else own_exact, visits)

    @unwrapped
    def frontier(self, points: ArrayLike | QueryBoxes, level: int) -> Frontier:
        """Share one traversal of points, or query boxes, down to `level`; return the nodes where it stopped.

        The level is 0 (the root: every workload is 1) to H - 1 (the leaves); higher levels mean H - 1. You
        can finish the frontier until the tree changes.
        """
        if level < 0:
            raise ValueError(f"level must be 0 (the root) or more, not {level}")
        self._require_whole()
        batch, selection = tree_arguments.queries(points, self.dimensions)
        level = min(int(level), self.height - 1)
        nodes, cuts, pairs, workload, visits = descend.frontier(
            self._where, batch, selection, self.height - 1 - level
        )
        return Frontier(batch, level, nodes, cuts, pairs, workload, int(visits), self._version, selection)

    @unwrapped
    def resume(self, frontier: Frontier) -> Hits:
        """Finish the search of all points of a frontier.

        Raises `ValueError` if it is from another tree, or if the tree has changed since.
        """
        self._require(frontier.version)
        stopped = frontier.nodes, frontier.cuts, frontier.pairs
        return self._hits(frontier.points, frontier.selection, False, *stopped, _NOWHERE, 0)

    @unwrapped
    def resume_part(self, parts: Parts, group: int) -> Hits:
        """Finish the points of one group, in its order; see `resume`."""
        self._require(parts.version)
        if not 0 <= group < len(parts):
            raise IndexError(f"there is no group {group} among {len(parts)}")
        return self._hits(_NO_QUERIES, parts.selection, False, *_NO_FRONTIER, parts.where, group)

    @property
    def _version(self) -> Version:
        return Version(self._tree.state, self.updates)

    def _require(self, version: Version) -> None:
        if version.state is not self._tree.state or version.updates != self.updates:
            raise ValueError("the tree has changed since the frontier was made, or is another: make it again")

    # -- looking inside ------------------------------------------------------------------------------

    @property
    def dimensions(self) -> int:
        """Number of dimensions d."""
        return int(self._arrays.frame.shape[1])

    @property
    def capacity(self) -> tuple[int, int]:
        """Most entries of an inner node and of a leaf."""
        state = self._tree.state
        return int(state[layout.INNER_CAPACITY]), int(state[layout.LEAF_CAPACITY])

    @property
    def height(self) -> int:
        """Levels H of the tree; 1 if the root is a leaf."""
        return int(self._tree.state[layout.HEIGHT])

    @property
    def updates(self) -> int:
        """Boxes inserted plus boxes deleted since the tree was made."""
        return int(self._tree.state[layout.UPDATES])

    @property
    def nbytes(self) -> int:
        """Memory of the rows in use, in bytes."""
        return sum(array.nbytes for array in layout.trimmed(self._tree))

    def __len__(self) -> int:
        """Return the number of ids."""
        return int(self._tree.state[layout.IDS])

    def __contains__(self, id: int) -> bool:
        known = type(id) is int or isinstance(id, Integral)  # the first comparison takes a third of the time
        return known and tree_arguments.is_id(id) and bool(tables.look_up(self._where, int(id)) >= 0)

    def ids(self) -> IntArray:
        """Return all ids, ascending, int64 (n,)."""
        return np.unique(self._live_links()["id"])

    def boxes_of(self, id: int) -> tuple[FloatArray, FloatArray]:
        """Return low and high of the boxes of one id, each float64 (m, d); m is 0 if it is unknown."""
        low, high, _ = self.boxes_and_exactness_of(id)
        return low, high

    def boxes_and_exactness_of(self, id: int) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Return low, high and exactness, bool (m,), of the boxes of one id; see `boxes_of`."""
        links: list[int] = []
        link = int(tables.look_up(self._where, int(id))) if id in self else -1
        while link >= 0:
            links.append(link)
            link = int(self._tree.links["sibling"][link])
        own = self._tree.links[links]
        return self._tree.bounds[own["box"], 0], self._tree.bounds[own["box"], 1], own["exact"].astype(bool)

    def content_of(self, ids: IntArray) -> tuple[IntArray, FloatArray, FloatArray, BoolArray]:
        """Return the (id, box) pairs of known ids, int64 (k,), in their order; see `content`."""
        links = np.array([tables.look_up(self._where, id) for id in ids.tolist()], np.int64)
        rows = np.arange(len(ids))
        found: list[tuple[IntArray, IntArray]] = []
        while len(rows):  # the first box of each, then the second ones, ...
            found.append((rows, links))
            links = self._arrays.links["sibling"][links].astype(np.int64)
            rows, links = rows[links >= 0], links[links >= 0]
        if not found:
            return self.content(range(0))
        rows, links = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        own = self._arrays.links[links[order]]
        sides = self._tree.bounds[own["box"]]
        return ids[rows[order]], sides[:, 0], sides[:, 1], own["exact"].astype(bool)

    @property
    def rows(self) -> int:
        """Number of places for (id, box) pairs so far; a pair keeps its place until it is deleted."""
        return int(self._arrays.state[layout.USED_LINK])

    @property
    def places(self) -> object:
        """An object that changes when pairs have left their places, because all were packed again."""
        return self._arrays.state

    def content(self, rows: range | None = None) -> tuple[IntArray, FloatArray, FloatArray, BoolArray]:
        """Return all (id, box) pairs, or those in some places, in the order of their places.

        These are ids, int64 (n,), low and high, float64 (n, d), and exactness, bool (n,).
        """
        links = self._live_links(rows)
        sides = self._tree.bounds[links["box"]]
        return links["id"].copy(), sides[:, 0].copy(), sides[:, 1].copy(), links["exact"].astype(bool)

    def _live_links(self, rows: range | None = None) -> Links:
        places = range(self.rows) if rows is None else rows
        links = self._arrays.links[places.start : min(places.stop, self.rows)]
        return links[links["box"] >= 0]

    def boxes_at_level(self, level: int) -> tuple[FloatArray, FloatArray]:
        """Return the bounding rectangles of the nodes at a level, 0 is the root, each float64 (k, d)."""
        if not 0 <= level < self.height:
            raise ValueError(f"level must be in 0..{self.height - 1}, not {level}")
        used = self._tree.state[layout.USED_NODE]
        rows = np.flatnonzero(self._tree.nodes["level"][:used] == self.height - 1 - level)
        return self._tree.mbr[rows, 0], self._tree.mbr[rows, 1]

    def stats(self) -> dict[str, Any]:
        """Return size, shape, fill and memory of the tree, JSON-able."""
        state = self._tree.state
        nodes = self._tree.nodes[: state[layout.USED_NODE]]
        per_level = [nodes["count"][nodes["level"] == level] for level in range(self.height)][::-1]
        inner, leaf = self.capacity
        return {
            "ids": len(self),
            "boxes": int(state[layout.BOXES]),
            "links": int(state[layout.LINKS]),
            "dimensions": self.dimensions,
            "capacity": [inner, leaf],
            "height": self.height,
            "nodes_per_level": [len(counts) for counts in per_level],
            "mean_leaf_fill": float(per_level[-1].mean() / leaf),
            "updates": self.updates,
            "bytes": self.nbytes,
        }

    def check(self) -> None:
        """Verify every invariant; raise `AssertionError` with the broken one. Slow, for tests."""
        from rtfilter.index.invariants import check_tree

        check_tree(self._tree)

    # -- keeping -------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return the arrays of the tree by name, without spare rows."""
        self._require_whole()
        tree = self._arrays
        both = tree.tables
        if tree.old_tables.size:
            both = np.zeros_like(both)
            tables.fill_whole(tree, both)
        kept = layout.trimmed(tree)._asdict()
        for name in NOT_KEPT:
            del kept[name]
        return kept | {"box_table": ~both[tables.BY_SIDES], "id_table": ~both[tables.BY_ID]}

    @classmethod
    def from_arrays(cls, arrays: dict[str, AnyArray]) -> RStarTree:
        """Return the tree of `to_arrays`. Raises `ValueError` if an array is missing or has another form."""
        require_form(arrays)
        tree = cls.__new__(cls)
        state = arrays["state"]
        made = layout.empty(1, int(state[layout.INNER_CAPACITY]), int(state[layout.LEAF_CAPACITY]))._asdict()
        records = {"slots": layout.SLOT, "links": layout.LINK, "nodes": layout.NODE}
        typed: dict[str, AnyArray] = {
            name: (array if array.flags.writeable else array.copy()).view(records.get(name, array.dtype))
            for name, array in ((name, arrays[name]) for name in FIELDS)
        }
        typed["nodes"] = typed["nodes"].copy()  # few bytes, of which some are changed
        typed["state"] = np.concatenate([state, np.zeros(layout.STATE_SIZE - len(state), np.int64)])
        made["tables"] = ~np.stack([typed.pop("box_table"), typed.pop("id_table")])
        tree._tree = layout.Tree(**typed, **{name: made[name] for name in NOT_KEPT})
        nodes.find_leaving(tree._tree)
        if len(state) < layout.STATE_SIZE:
            grid.let_be_drawn(tree._tree)
            tree.delete_many([])  # redraws the masks
        return tree

    def save(self, path: str | PathLike[str]) -> None:
        """Write a snapshot: a directory of arrays with a manifest; replace an older one atomically."""
        snapshot.write(path, KIND, {"dimensions": self.dimensions}, self.to_arrays())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> RStarTree:
        """Open a snapshot by memory mapping; changes stay in memory. Raises `SnapshotError`."""
        with snapshot.opening(path):
            return cls.from_arrays(snapshot.read(path, KIND).arrays)

    def __getstate__(self) -> dict[str, Any]:
        return {name: np.array(array) for name, array in self.to_arrays().items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._tree = RStarTree.from_arrays(state)._tree

    def __repr__(self) -> str:
        return f"RStarTree({self.dimensions} dimensions, {len(self)} ids, height {self.height})"
