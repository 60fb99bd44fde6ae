"""Cutting space into shards by the rule that packs boxes into the nodes of the R*-tree.

Only functions that cut import the compiled code: tasks that match against a small index do not need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import AnyArray, FloatArray, IntArray

#: Boxes that one cut is chosen on.
SAMPLE = 512


class ShardCut(NamedTuple):
    """A cut: boxes with a key below `at` go left, and boxes at it whose id has a smaller `salted` value.

    The key is made of the dimension's coordinates, scaled so that `low` becomes 0 and `low + width` 1, and
    clipped to that range. `left` and `right` are numbers of further cuts, or ``~s`` for shard s.
    """

    dimension: int
    low: float
    width: float
    kind: int
    at: float
    salt: int
    left: int
    right: int


@dataclass(frozen=True)
class Cuts:
    """The cuts that assign boxes to shards.

    Attributes
    ----------
    cuts : list of ShardCut
        The first is the root; none where there is one shard.
    """

    cuts: list[ShardCut]

    @classmethod
    def into(cls, shards: int, low: FloatArray, high: FloatArray, ids: IntArray) -> Cuts:
        """Cut space so that a sample of boxes, float64 (n, d), with `keys_of` ids, is spread evenly."""
        from rtfilter.index.kernels import pack

        least, width = _frame(low, high)
        boxes, salts = _framed(low, high, least, width), salted(ids)
        cuts: list[ShardCut] = []
        first = 0

        def cut(rows: IntArray, groups: int) -> int:
            nonlocal first
            if groups == 1 or len(rows) < 2:
                first += groups
                return ~(first - groups)
            k, kind, left = pack.choose_cut(boxes, rows, groups, SAMPLE)
            keys = _keys(boxes[rows], k, kind)
            order = np.lexsort((salts[rows], keys))
            middle = min(max(len(rows) * left // groups, 1), len(rows) - 1)
            own, at = len(cuts), order[middle]
            frame = float(least[k]), float(width[k])
            cuts.append(ShardCut(int(k), *frame, int(kind), float(keys[at]), int(salts[rows[at]]), 0, 0))
            sides = cut(rows[order[:middle]], left), cut(rows[order[middle:]], groups - left)
            cuts[own] = cuts[own]._replace(left=sides[0], right=sides[1])
            return own

        cut(np.arange(len(ids)), shards)
        return cls(cuts)

    def with_parts(self, shard: int, parts: Cuts, new: int) -> Cuts:
        """Return cuts with a shard cut into parts: the first keeps its number, others begin at `new`."""
        offset = len(self.cuts)

        def inner(side: int) -> int:
            if side >= 0:
                return side + offset
            return ~shard if side == ~0 else ~(new + ~side - 1)

        def outer(side: int) -> int:
            return offset if side == ~shard else side

        before = [cut._replace(left=outer(cut.left), right=outer(cut.right)) for cut in self.cuts]
        after = [cut._replace(left=inner(cut.left), right=inner(cut.right)) for cut in parts.cuts]
        return Cuts([*before, *after])

    def place(self, low: FloatArray, high: FloatArray, ids: IntArray) -> IntArray:
        """Return the shard of each box, int64 (n,), by its ends, float64 (n, d), and its `keys_of` ids."""
        salts = salted(ids)
        shard = np.zeros(len(ids), np.int64)
        pending = [(0, np.arange(len(ids)))] if self.cuts else []
        while pending:
            number, rows = pending.pop()
            cut = self.cuts[number]
            k = slice(cut.dimension, cut.dimension + 1)
            keys = _keys(_framed(low[rows, k], high[rows, k], cut.low, cut.width), 0, cut.kind)
            left = (keys < cut.at) | ((keys == cut.at) & (salts[rows] < cut.salt))
            for side, own in ((cut.left, rows[left]), (cut.right, rows[~left])):
                if side < 0:
                    shard[own] = ~side
                else:
                    pending.append((side, own))
        return shard

    def to_json(self) -> list[list[float]]:
        """Return a JSON array that `from_json` turns into equal cuts."""
        return [list(cut) for cut in self.cuts]

    @classmethod
    def from_json(cls, data: list[list[Any]]) -> Cuts:
        """Return the cuts that `to_json` described."""
        return cls([ShardCut(*cut) for cut in data])


def _frame(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the least finite coordinate of each dimension, and the extent from there to the greatest."""
    from rtfilter.index.kernels.layout import OPEN

    ends = np.concatenate([low, high])
    finite = np.abs(ends) < OPEN
    least = np.where(finite, ends, np.inf).min(axis=0, initial=np.inf)
    most = np.where(finite, ends, -np.inf).max(axis=0, initial=-np.inf)
    least = np.where(np.isfinite(least), least, 0.0)
    return least, np.where(most > least, most - least, 1.0)


def _framed(low: FloatArray, high: FloatArray, least: Any, width: Any) -> FloatArray:
    """Return boxes, float64 (n, 2, d), scaled to 0 to 1 and clipped there."""
    with np.errstate(over="ignore"):
        framed: FloatArray = np.clip((np.stack([low, high], axis=1) - least) / width, 0.0, 1.0)
    return framed


def _keys(boxes: FloatArray, k: int, kind: int) -> FloatArray:
    from rtfilter.index.kernels import pack

    return pack.keys_of(boxes, k, kind)


def keys_of(ids: AnyArray) -> IntArray:
    """Return n ids that are integers, or hashes of ids that are text, as int64 (n,)."""
    if ids.dtype != object:
        return ids.astype(np.int64)
    from pandas.util import hash_array

    hashed: IntArray = (hash_array(ids, categorize=False) >> np.uint64(1)).astype(np.int64)
    return hashed


def salted(ids: IntArray) -> NDArray[np.uint64]:
    """Return hashes of `keys_of` ids (n,), by which boxes with equal keys are divided."""
    return (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(1)
