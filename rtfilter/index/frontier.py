"""The state of a batch's search at one level of the tree, to be finished later, whole or in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.dtypes import FloatArray, IntArray
from rtfilter.index.kernels.dealt import Dealt, deal
from rtfilter.index.kernels.interrupts import unwrapped
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
        queries, part_cuts, nodes, starts, pairs, where = deal(
            self.points, self.nodes, self.cuts, self.pairs, order, cuts
        )
        if not len(where):
            raise ValueError(
                "order must be a permutation of the batch, and cuts must ascend from 0 to its end"
            )
        return Parts(
            self.version, self.selection, Dealt(queries, cuts, part_cuts, nodes, starts, pairs), where
        )


class Parts(NamedTuple):
    """A frontier cut into groups; see `Frontier.split`."""

    version: Version
    selection: int
    arrays: Dealt
    where: IntArray  # addresses, for kernels

    def __len__(self) -> int:
        return len(self.arrays.cuts) - 1
