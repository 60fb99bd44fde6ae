"""Changes of a tree: each is one call without interruption; a signal is handled before or after it.

One kernel makes all kinds of changes, because a kernel that inserts takes longest to compile.
"""

from typing import NamedTuple

import numpy as np

from rtfilter.index.kernels.array_types import Byte1, Float1, Int1
from rtfilter.index.kernels.borrow import ByAddress
from rtfilter.index.kernels.delete import remove
from rtfilter.index.kernels.dissolve import dissolve
from rtfilter.index.kernels.grid import redraw
from rtfilter.index.kernels.insert import enter
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import LINKS, has_room, opened_tree

INSERT_ONE, REPLACE, INSERT, DELETE, DELETE_ONE = 0, 1, 2, 3, 4  # kinds of changes
NO_ROOM, WRONG = -1, -2


class Given(NamedTuple):
    """The arrays of a change. Flags are bytes."""

    low: Float1
    high: Float1
    ids: Int1
    flags: Byte1


NOTHING = Given(np.empty(0), np.empty(0), np.empty(0, np.int64), np.empty(0, np.uint8))
GIVEN_BY_ADDRESS = ByAddress(lambda: NOTHING)
opened_given = GIVEN_BY_ADDRESS.opened


@kernel
def change(where: Int1, kind: int, identifier: int, exact: bool, given: Int1) -> int:
    """Change the tree at these addresses completely, or not at all if there is no room or no box.

    `given` are the addresses of a `Given`: numba would take 0.1 us for each array.

    `INSERT_ONE` takes `identifier`, `exact` and a box (d,), (d,). `INSERT` takes n `ids`, their exactness in
    `flags` and their boxes one after another, (n d,), (n d,). `DELETE_ONE` takes `identifier`, `DELETE` takes
    `ids`, and sets the `flags` of the known ones. `REPLACE` deletes `identifier` and inserts it with n
    boxes and `flags`. Unused arrays of a kind are empty.

    Returns the number of known deleted ids, `NO_ROOM`, or `WRONG` for low > high in `INSERT_ONE`.
    """
    tree, arrays = opened_tree(where), opened_given(given)
    low, high, ids, flags = arrays.low, arrays.high, arrays.ids, arrays.flags
    dimensions = tree.mbr.shape[2]
    boxes = len(low) // dimensions
    many = INSERT <= kind <= DELETE
    steps = len(ids) if many else max(boxes, 1)
    if steps > 0 and not has_room(tree, max(boxes, 1), max(boxes, 1)):
        return NO_ROOM
    if boxes > 0 and tree.tables.shape[1] < 2 * (tree.state[LINKS] + boxes):
        return NO_ROOM
    if kind == INSERT_ONE:
        for k in range(dimensions):
            if not low[k] <= high[k]:
                return WRONG
    sides = np.empty((2, dimensions))
    known = 0
    for i in range(steps):
        one = ids[i] if many else identifier
        if kind >= DELETE or (kind == REPLACE and i == 0):
            removed = remove(tree, one)
            known += removed
            if kind == DELETE:
                flags[i] = removed
        if i < boxes:
            first, last = i * dimensions, (i + 1) * dimensions
            sure = exact if kind == INSERT_ONE else flags[i] != 0
            enter(tree, one, low[first:last], high[first:last], sure, sides)
        dissolve(tree)
    redraw(tree)
    return known
