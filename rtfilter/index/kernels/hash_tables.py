"""Rows of boxes and links: two open-addressing hash tables and the chains between them.

`box_table` finds the row of an identical box, `id_table` the first link of an id; -1 is an empty place.
Deleting shifts later entries back, so that probing needs no tombstones.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float2, Int1, Int32_1
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    BOXES,
    FREE_BOX,
    FREE_LINK,
    IDS,
    INEXACT,
    LINKS,
    USED_BOX,
    USED_LINK,
    Tree,
)

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)


@kernel
def mix(value: np.uint64) -> np.uint64:
    """Spread the bits of a 64-bit word."""
    value = (value ^ (value >> SHIFT)) * MULTIPLIER
    return value ^ (value >> SHIFT)


@kernel
def hash_box(sides: Float2) -> np.uint64:
    """Hash of one box, float64 (2, d) without negative zeros."""
    total = np.uint64(0)
    for word in sides.reshape(sides.size).view(np.uint64):
        total = mix(total * MULTIPLIER + word)
    return total


@kernel
def hash_id(identifier: int) -> np.uint64:
    """Hash of one id."""
    return mix(np.uint64(identifier) * MULTIPLIER)


@kernel
def same_box(tree: Tree, box: int, sides: Float2) -> bool:
    """Whether the box in row `box` has exactly these sides."""
    for end in range(2):
        for k in range(sides.shape[1]):
            if tree.bounds[box, end, k] != sides[end, k]:
                return False
    return True


@kernel
def place_of_box(tree: Tree, sides: Float2) -> int:
    """Place in the table of the box with these sides, or of the empty place where it would go."""
    last = np.uint64(len(tree.box_table) - 1)
    place = hash_box(sides) & last
    while tree.box_table[place] >= 0 and not same_box(tree, tree.box_table[place], sides):
        place = (place + np.uint64(1)) & last
    return np.int64(place)


@kernel
def place_of_id(tree: Tree, identifier: int) -> int:
    """Place in the table of this id, or of the empty place where it would go."""
    last = np.uint64(len(tree.id_table) - 1)
    place = hash_id(identifier) & last
    while tree.id_table[place] >= 0 and tree.links[tree.id_table[place]].id != identifier:
        place = (place + np.uint64(1)) & last
    return np.int64(place)


@kernel
def first_link(tree: Tree, identifier: int) -> int:
    """First link of an id, -1 when it is unknown."""
    return tree.id_table[place_of_id(tree, identifier)]


@kernel
def _home(tree: Tree, row: int, of_box: bool) -> np.uint64:
    return hash_box(tree.bounds[row]) if of_box else hash_id(tree.links[row].id)


@kernel
def _vacate(tree: Tree, table: Int32_1, place: int, of_box: bool) -> None:
    """Empty a place and move later entries of its run back over it."""
    last = np.uint64(len(table) - 1)
    hole = np.uint64(place)
    probe = hole
    while True:
        probe = (probe + np.uint64(1)) & last
        if table[probe] < 0:
            break
        home = _home(tree, table[probe], of_box) & last
        if ((probe - home) & last) >= ((probe - hole) & last):  # the hole lies between its home and it
            table[hole] = table[probe]
            hole = probe
    table[hole] = -1


@kernel
def rehash(tree: Tree, box_table: Int32_1, id_table: Int32_1) -> None:
    """Fill new, empty tables from the live rows."""
    last = np.uint64(len(box_table) - 1)
    for box in range(tree.state[USED_BOX]):
        if tree.slots[box].link >= 0:
            place = _home(tree, box, True) & last
            while box_table[place] >= 0:
                place = (place + np.uint64(1)) & last
            box_table[place] = box
    last = np.uint64(len(id_table) - 1)
    for old in tree.id_table:
        if old >= 0:
            place = _home(tree, old, False) & last
            while id_table[place] >= 0:
                place = (place + np.uint64(1)) & last
            id_table[place] = old


@kernel
def distinct(low: Float2, high: Float2, table: Int32_1) -> Int1:
    """First row identical to each row, int64 (n,): its own number where the row is new.

    `table`, int32, a power of two above n, filled with -1, becomes the hash table of the new ones.
    """
    n, dimensions = low.shape
    first = np.empty(n, np.int64)
    sides = np.empty((2, dimensions))
    last = np.uint64(len(table) - 1)
    for i in range(n):
        sides[0], sides[1] = low[i] + 0.0, high[i] + 0.0  # no negative zeros
        place = hash_box(sides) & last
        while table[place] >= 0:
            other = table[place]
            if (low[other] == low[i]).all() and (high[other] == high[i]).all():
                break
            place = (place + np.uint64(1)) & last
        if table[place] < 0:
            table[place] = i
        first[i] = table[place]
    return first


@kernel
def add_box(tree: Tree, sides: Float2) -> int:
    """A new row for a box that is not in the table yet, entered there, without links or leaf."""
    box = tree.state[FREE_BOX]
    if box >= 0:
        tree.state[FREE_BOX] = tree.slots[box].leaf
    else:
        box = tree.state[USED_BOX]
        tree.state[USED_BOX] += 1
    tree.bounds[box] = sides
    tree.slots[box].link = -1
    tree.slots[box].leaf = -1
    tree.box_table[place_of_box(tree, sides)] = box
    tree.state[BOXES] += 1
    return box


@kernel
def add_link(tree: Tree, identifier: int, box: int, exact: bool) -> None:
    """Tie an id to a box; nothing new when it is tied already (then exactness may only be gained)."""
    place = place_of_id(tree, identifier)
    first = tree.id_table[place]
    by_id, by_box = first, tree.slots[box].link  # walked in step: an end of the shorter chain is enough
    while by_id >= 0 and by_box >= 0:
        known = by_id if tree.links[by_id].box == box else by_box
        if tree.links[known].box == box and tree.links[known].id == identifier:
            if exact and not tree.links[known].exact:
                tree.links[known].exact = 1
                tree.state[INEXACT] -= 1
            return
        by_id, by_box = tree.links[by_id].sibling, tree.links[by_box].next
    link = tree.state[FREE_LINK]
    if link >= 0:
        tree.state[FREE_LINK] = tree.links[link].next
    else:
        link = tree.state[USED_LINK]
        tree.state[USED_LINK] += 1
    row = tree.links[link]
    row.id, row.box, row.exact = identifier, box, np.int32(exact)
    row.previous, row.next = -1, tree.slots[box].link
    if row.next >= 0:
        tree.links[row.next].previous = link
    tree.slots[box].link, tree.slots[box].id = link, identifier
    row.sibling = first
    tree.id_table[place] = link
    tree.state[LINKS] += 1
    if not exact:
        tree.state[INEXACT] += 1
    if first < 0:
        tree.state[IDS] += 1


@kernel
def remove_first_link(tree: Tree, identifier: int) -> int:
    """Drop one link of a known id. Returns the box that lost its last link, or -1."""
    place = place_of_id(tree, identifier)
    link = tree.id_table[place]
    row = tree.links[link]
    if row.sibling >= 0:
        tree.id_table[place] = row.sibling
    else:
        _vacate(tree, tree.id_table, place, False)
        tree.state[IDS] -= 1
    box = row.box
    if row.previous >= 0:
        tree.links[row.previous].next = row.next
    else:
        tree.slots[box].link = row.next
        if row.next >= 0:
            tree.slots[box].id = tree.links[row.next].id
    if row.next >= 0:
        tree.links[row.next].previous = row.previous
    row.box = -1
    row.next = tree.state[FREE_LINK]
    tree.state[FREE_LINK] = link
    tree.state[LINKS] -= 1
    if not row.exact:
        tree.state[INEXACT] -= 1
    return box if tree.slots[box].link < 0 else -1


@kernel
def remove_box(tree: Tree, box: int) -> None:
    """Free the row of a box without links that has left its leaf."""
    _vacate(tree, tree.box_table, place_of_box(tree, tree.bounds[box]), True)
    tree.slots[box].leaf = tree.state[FREE_BOX]
    tree.state[FREE_BOX] = box
    tree.state[BOXES] -= 1
