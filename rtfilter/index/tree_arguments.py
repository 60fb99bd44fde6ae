"""Arguments and saved arrays of a tree, checked before kernels, which do not check, read them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from operator import index
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.index.kernels import layout, select_box
from rtfilter.index.kernels.descend import first_nan
from rtfilter.index.selection import QueryBoxes

SELECTIONS = {
    "intersect": select_box.INTERSECT,
    "contain": select_box.CONTAIN,
    "within": select_box.WITHIN,
}


def queries(given: ArrayLike | QueryBoxes, dimensions: int) -> tuple[FloatArray, int]:
    """Return the query rows for kernels, and their selection (a constant of `kernels.select_box`).

    A row is a point, float64 (d,), or the low ends of a box and then its high ends, float64 (2 d,).
    """
    if not isinstance(given, QueryBoxes):
        found = points(given, dimensions)
        require_numbers(found)
        return found, select_box.POINT
    if given.how not in list(SELECTIONS):
        raise ValueError(f"how must be one of {', '.join(map(repr, SELECTIONS))}, not {given.how!r}")
    return np.hstack(boxes(given.low, given.high, dimensions)), SELECTIONS[given.how]


def points(given: ArrayLike, dimensions: int) -> FloatArray:
    """Return points as contiguous float64 (n, d), of which some may still be NaN."""
    found = np.ascontiguousarray(given, np.float64)
    if found.ndim != 2 or found.shape[1] != dimensions:
        raise ValueError(f"points must have shape (n, {dimensions}), not {found.shape}")
    return found


def require_numbers(points: FloatArray) -> None:
    """Raise `ValueError` for a coordinate that is NaN."""
    row = first_nan(points)
    if row >= 0:
        raise ValueError(f"point {row} has a NaN coordinate")


def boxes(low: ArrayLike, high: ArrayLike, dimensions: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Return both ends as contiguous float64 (n, d). Raises `ValueError` for anything that is no box."""
    lower, upper = np.ascontiguousarray(low, np.float64), np.ascontiguousarray(high, np.float64)
    if lower.ndim != 2 or lower.shape != upper.shape:
        raise ValueError(f"low and high must both have shape (n, d), not {lower.shape} and {upper.shape}")
    if lower.shape[1] != (dimensions or max(lower.shape[1], 1)):
        raise ValueError(f"boxes must have {dimensions or 'at least 1'} dimensions, not {lower.shape[1]}")
    right = lower <= upper
    if not right.all():
        row = int((~right).any(axis=1).argmax())
        raise ValueError(
            f"box {row} is not a box: every low must be <= its high and neither NaN, "
            f"but low is {lower[row].tolist()} and high is {upper[row].tolist()}"
        )
    return lower, upper


def ids(given: ArrayLike | None, count: int) -> IntArray:
    """Return `count` ids as int64; 0, 1, ... if none are given."""
    if given is None:
        return np.arange(count)
    array = np.asarray(given)
    if array.shape != (count,) or (count and array.dtype.kind not in "iu"):
        raise ValueError(f"ids must be {count} integers, not {array.dtype} of shape {array.shape}")
    if count and not is_id(int(array.max())):
        raise ValueError(f"ids must be below 2**63, not {array.max()}")
    return np.ascontiguousarray(array, np.int64)


def id(given: Integral | int) -> int:
    """Return an id as an int that fits int64."""
    key = index(given)
    if not is_id(key):
        ids([key], 1)  # raises
    return key


def is_id(id: Integral | int) -> bool:
    """Return whether an integer fits int64."""
    return -(2**63) <= int(id) < 2**63


def flags(exact: ArrayLike | None, count: int) -> BoolArray:
    """Return `count` flags; all True if none are given."""
    array = np.ones(count, np.bool_) if exact is None else np.ascontiguousarray(exact, np.bool_)
    if array.shape != (count,):
        raise ValueError(f"exact must have shape ({count},), not {array.shape}")
    return array


NOT_KEPT: Final = ("tables", "old_tables", "todo")
"""Arrays of a tree that are not saved unchanged."""
TABLES: Final = ("box_table", "id_table")
"""Names under which the two rows of `tables` are saved."""
FIELDS: Final = (*(name for name in layout.Tree._fields if name not in NOT_KEPT), *TABLES)
"""Names of the saved arrays."""
OLD_STATE_SIZES: Final = 24, 32
"""Lengths of the array `state` in earlier versions, with another `grid.code`; missing entries are 0."""

_ROWS: Final = {
    "bounds": layout.USED_BOX,
    "slots": layout.USED_BOX,
    "links": layout.USED_LINK,
    "nodes": layout.USED_NODE,
    "mbr": layout.USED_NODE,
    "grid": layout.USED_NODE,
    "ranking": layout.USED_NODE,
    "entries": layout.USED_ENTRY,
    "masks": layout.USED_MASK,
}
"""The entry of the state with the number of rows in use, by array."""


def require_form(arrays: Mapping[str, AnyArray]) -> None:
    """Check names, types and shapes of the arrays of a tree; `check_tree` checks their content.

    Raises
    ------
    ValueError
        An array is missing, or has another form; the message names it.
    """
    missing = set(FIELDS) - arrays.keys()
    if missing:
        raise ValueError(f"the array {min(missing)!r} is missing")
    frame = arrays["frame"]
    wanted = layout.empty(frame.shape[1] if frame.ndim == 2 and frame.shape[1] else 1, 4, 4)
    for name in FIELDS:
        array, like = arrays[name], wanted.tables[0] if name in TABLES else getattr(wanted, name)
        fits = array.shape[1:] == like.shape[1:] and array.itemsize == like.itemsize
        if array.ndim != like.ndim or not fits or (like.dtype.names is None and array.dtype != like.dtype):
            raise ValueError(f"the array {name!r} has the form {array.dtype} {array.shape}")
    state = arrays["state"]
    sizes = {name: len(arrays[name]) for name in FIELDS}
    if sizes["state"] not in (*OLD_STATE_SIZES, layout.STATE_SIZE) or sizes["frame"] != len(wanted.frame):
        raise ValueError("the array 'state' or 'frame' has another length")
    for name, used in _ROWS.items():
        if not 0 <= state[used] <= sizes[name]:
            raise ValueError(f"the array {name!r} has {sizes[name]} rows, not {state[used]}")
    for name, count in zip(TABLES, state[[layout.BOXES, layout.IDS]], strict=True):
        if not 0 <= count < sizes[name] or sizes[name] & (sizes[name] - 1):  # a search ends at a free place
            raise ValueError(f"the array {name!r} has {sizes[name]} rows for {count} entries")
    capacities = state[[layout.INNER_CAPACITY, layout.LEAF_CAPACITY]]
    if not ((capacities >= 4) & (capacities <= 2**20)).all() or not 0 <= state[layout.ROOT] < sizes["nodes"]:
        raise ValueError("the array 'state' has impossible capacities, or an impossible root")
