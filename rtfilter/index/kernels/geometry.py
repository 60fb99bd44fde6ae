"""Volumes, unions and overlaps of boxes, for the heuristics of the R*-tree.

Volumes and margins are computed in `frame` coordinates: the tree's finite extent becomes [0, 1], and open
ends are cut off, so that infinite sides and any number of dimensions are safe. Searches do not use them.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float2, Float3
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import OPEN, Tree

#: Length that every side counts as at least, so that degenerate sides do not make all volumes zero.
THIN = 2.0**-14


@kernel
def widen_frame(tree: Tree, sides: Float2) -> None:
    """Extend the frame to cover the finite ends of a box."""
    for k in range(sides.shape[1]):
        for end in range(2):
            x = sides[end, k]
            if abs(x) < OPEN and not tree.frame[0, k] <= x <= tree.frame[1, k]:
                tree.frame[0, k] = min(tree.frame[0, k], x)
                tree.frame[1, k] = max(tree.frame[1, k], x)
                tree.frame[2, k] = 1.0 / max(tree.frame[1, k] - tree.frame[0, k], 1e-300)


@kernel
def framed(tree: Tree, sides: Float2, out: Float2) -> None:
    """Write the box `sides` (2, d) in frame coordinates to `out` (2, d).

    While no side was finite, the frame is empty: all sides are 0.
    """
    for k in range(sides.shape[1]):
        low, width = tree.frame[0, k], tree.frame[2, k]
        for end in range(2):
            x = (sides[end, k] - low) * width
            out[end, k] = min(x, 1.0) if x > 0.0 else 0.0  # not a number, too, is 0


@kernel
def area(box: Float2) -> float:
    """Return the volume of a framed box."""
    product = 1.0
    for k in range(box.shape[1]):
        product *= box[1, k] - box[0, k] + THIN
    return product


@kernel
def area_of_union(a: Float2, b: Float2) -> float:
    """Return the volume of the smallest framed box around two."""
    product = 1.0
    for k in range(a.shape[1]):
        product *= max(a[1, k], b[1, k]) - min(a[0, k], b[0, k]) + THIN
    return product


@kernel
def overlap(a: Float2, b: Float2) -> float:
    """Return the volume that two framed boxes share."""
    product = 1.0
    for k in range(a.shape[1]):
        side = min(a[1, k], b[1, k]) - max(a[0, k], b[0, k])
        if side < 0.0:
            return 0.0
        product *= side + THIN
    return product


@kernel
def covers(a: Float2, b: Float2) -> bool:
    """Return whether box `a` contains box `b`."""
    covered = True
    for k in range(a.shape[1]):
        covered &= a[0, k] <= b[0, k] and b[1, k] <= a[1, k]
    return covered


@kernel
def overlap_growth(children: Float3, i: int, box: Float2, bound: float) -> float:
    """Return the overlap that child i gains if it includes `box`; stops early above `bound`."""
    union = np.empty_like(box)
    for k in range(box.shape[1]):
        union[0, k] = min(children[i, 0, k], box[0, k])
        union[1, k] = max(children[i, 1, k], box[1, k])
    total = 0.0
    for j in range(len(children)):
        if j != i:
            after = overlap(union, children[j])
            if after > 0.0:
                total += after - overlap(children[i], children[j])
                if total > bound:
                    break
    return total
