"""The state of a batch's search at one level of the tree, to be finished later, whole or in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.array_types import Float2, Int1, Int32_1
from rtfilter.index.kernels.borrow import ByAddress
from rtfilter.index.kernels.jit import kernel, unwrapped
from rtfilter.index.kernels.select_box import POINT


class Version(NamedTuple):
    """The identity of one content of one tree, which no other content has."""

    state: IntArray  # compared by identity: repacking makes another one
    updates: int


@dataclass(frozen=True, eq=False)
class Frontier:
    """The nodes at which the search paths of a batch stop at one level: pairs of a node and a point.

    Attributes
    ----------
    points : float64 (n, d)
        For query boxes float64 (n, 2 d): their low ends, then their high ends.
    level : int
        0 is the root, H - 1 the leaves.
    nodes : int64 (k,)
        The nodes.
    cuts : int64 (k + 1,)
        Bounds of each node's points in `pairs`.
    pairs : int32 (workload.sum(),)
        Rows of `points`, node by node, ascending within a node.
    workload : int64 (n,)
        Number of nodes at which the paths of each point stop: the estimate of its remaining work.
    visits : int
        Number of (node, point) pairs expanded above the frontier.
    version : Version
        Version of the tree, which must not change before the search is finished.
    selection : int
        The relation that points, or query boxes, select: a constant of `kernels.select_box`.
    """

    points: FloatArray
    level: int
    nodes: IntArray
    cuts: IntArray
    pairs: NDArray[np.int32]
    workload: IntArray
    visits: int
    version: Version
    selection: int = POINT

    @unwrapped
    def split(self, order: IntArray, cuts: IntArray) -> Parts:
        """Return one frontier per group `order[cuts[g]:cuts[g + 1]]` of a permutation of the batch."""
        cuts = np.ascontiguousarray(cuts, np.int64)
        queries, part_cuts, nodes, starts, pairs, where = cut_frontier(
            self.points, self.nodes, self.cuts, self.pairs, order, cuts
        )
        if not len(where):
            raise ValueError(
                "order must be a permutation of the batch, and cuts must ascend from 0 to its end"
            )
        return Parts(
            self.version, self.selection, PartArrays(queries, cuts, part_cuts, nodes, starts, pairs), where
        )


class Parts(NamedTuple):
    """A frontier cut into groups; see `Frontier.split`."""

    version: Version
    selection: int
    arrays: PartArrays
    where: IntArray  # addresses, for kernels

    def __len__(self) -> int:
        return len(self.arrays.cuts) - 1


class PartArrays(NamedTuple):
    """A frontier cut into one per group; group g has the nodes cuts[g]:cuts[g + 1]."""

    queries: Float2  # float64 (n, d) or (n, 2 d): of the batch, group by group
    query_cuts: Int1  # int64 (groups + 1,): where the queries of each group begin
    cuts: Int1  # int64 (groups + 1,)
    nodes: Int1  # int64 (k,): those that queries of the group stopped at
    starts: Int1  # int64 (k + 1,): where each node's pairs begin
    pairs: Int32_1  # int32: places of queries within their group


def _nothing() -> PartArrays:
    none = np.empty(0, np.int64)
    return PartArrays(np.empty((0, 1)), none, none, none, none, np.empty(0, np.int32))


PARTS_BY_ADDRESS = ByAddress(_nothing)
opened_parts = PARTS_BY_ADDRESS.opened


@kernel
def is_cut(order: Int1, order_cuts: Int1, count: int) -> bool:
    """Return whether `order` is a permutation of 0..count - 1, and its cuts ascend from 0 to the end."""
    groups = len(order_cuts) - 1
    if len(order) != count or groups < 0 or order_cuts[0] != 0 or order_cuts[groups] != count:
        return False
    for g in range(groups):
        if order_cuts[g] > order_cuts[g + 1]:
            return False
    seen = np.zeros(count, np.bool_)
    for row in order:
        if row < 0 or row >= count or seen[row]:
            return False
        seen[row] = True
    return True


@kernel
def cut_frontier(
    queries: Float2, nodes: Int1, cuts: Int1, pairs: Int32_1, order: Int1, order_cuts: Int1
) -> tuple[Float2, Int1, Int1, Int1, Int32_1, Int1]:
    """Cut a frontier into one frontier per group order[order_cuts[g]:order_cuts[g + 1]], each node by node.

    Returns the arrays of `PartArrays`, except the cuts of the queries, which are `order_cuts`; and the
    addresses of all of them, as from `ByAddress.addresses`, empty unless `is_cut`.
    """
    if not is_cut(order, order_cuts, len(queries)):
        none = np.empty(0, np.int64)
        return np.empty((0, queries.shape[1])), none, none, none, np.empty(0, np.int32), none
    groups = len(order_cuts) - 1
    group_of = np.empty(len(order), np.int64)
    place_of = np.empty(len(order), np.int32)
    part_queries = np.empty_like(queries)
    for g in range(groups):
        for i in range(order_cuts[g], order_cuts[g + 1]):
            group_of[order[i]] = g
            place_of[order[i]] = i - order_cuts[g]
            for k in range(queries.shape[1]):
                part_queries[i, k] = queries[order[i], k]
    pair_count = np.zeros(groups + 1, np.int64)
    node_count = np.zeros(groups + 1, np.int64)
    last_node = np.full(groups, -1, np.int64)
    for i in range(len(nodes)):
        for p in range(cuts[i], cuts[i + 1]):
            g = group_of[pairs[p]]
            pair_count[g + 1] += 1
            if last_node[g] != i:
                last_node[g] = i
                node_count[g + 1] += 1
    pair_place, part_cuts, node_place = (
        np.zeros(groups + 1, np.int64),
        np.zeros(groups + 1, np.int64),
        np.zeros(groups + 1, np.int64),
    )
    for g in range(groups):
        pair_place[g + 1] = pair_place[g] + pair_count[g + 1]
        part_cuts[g + 1] = node_place[g + 1] = part_cuts[g] + node_count[g + 1]
    part_nodes = np.empty(part_cuts[groups], np.int64)
    part_starts = np.empty(part_cuts[groups] + 1, np.int64)
    part_starts[part_cuts[groups]] = len(pairs)
    part_pairs = np.empty(len(pairs), np.int32)
    last_node[:] = -1
    for i in range(len(nodes)):
        for p in range(cuts[i], cuts[i + 1]):
            g = group_of[pairs[p]]
            if last_node[g] != i:
                last_node[g] = i
                part_nodes[node_place[g]] = nodes[i]
                part_starts[node_place[g]] = pair_place[g]
                node_place[g] += 1
            part_pairs[pair_place[g]] = place_of[pairs[p]]
            pair_place[g] += 1
    where = np.empty(13, np.int64)
    where[0], where[1], where[2] = part_queries.ctypes.data, part_queries.shape[0], part_queries.shape[1]
    where[3], where[4] = order_cuts.ctypes.data, len(order_cuts)
    where[5], where[6] = part_cuts.ctypes.data, len(part_cuts)
    where[7], where[8] = part_nodes.ctypes.data, len(part_nodes)
    where[9], where[10] = part_starts.ctypes.data, len(part_starts)
    where[11], where[12] = part_pairs.ctypes.data, len(part_pairs)
    return part_queries, part_cuts, part_nodes, part_starts, part_pairs, where
