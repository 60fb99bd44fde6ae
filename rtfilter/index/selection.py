"""Query boxes, and their relation to the selected stored boxes. Imports no compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

How = Literal["intersect", "contain", "within"]
"""The relation of stored boxes to a query box: they intersect it, contain it, or lie within it."""


@dataclass(frozen=True, eq=False)
class QueryBoxes:
    """Boxes to search by, instead of points.

    Attributes
    ----------
    low, high : array_like of float64 (n, d)
        Closed ends, which may be infinite.
    how : {"intersect", "contain", "within"}
        The stored boxes to find: those that intersect the query box (to touch is enough), those that contain
        it, or those that lie within it.
    """

    low: ArrayLike
    high: ArrayLike
    how: How
