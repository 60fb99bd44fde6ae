"""Checks of saved arrays before kernels, which do not check, read them as those of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rtfilter.dtypes import AnyArray
from rtfilter.index.kernels import layout

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
