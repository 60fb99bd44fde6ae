"""Rows of boxes and links: two open-addressing hash tables and the chains between them.

The first of `tables` finds the row of an identical box, the second the first link of an id. A place has the
complement of a row: 0 is an empty place, so that new memory is an empty table. A deletion moves
later entries back, so that probing needs no tombstones.

A full table moves to a larger one in steps: each insertion moves the entries of a few places of the old
table, in their order, up to the next empty one. Hashes of places before that are in the new table, later ones
in the old table: a look-up reads only one of them.
"""

import numpy as np

from rtfilter.index.kernels.array_types import Float2, Int1, Int32_1, Int32_2
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    BOXES,
    FIRST,
    FREE_BOX,
    FREE_LINK,
    IDS,
    INEXACT,
    LINKS,
    MOVED,
    USED_BOX,
    USED_LINK,
    Tree,
    opened_tree,
)

BY_SIDES, BY_ID = 0, 1  # the tables
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(29)


@kernel
def mix(value: np.uint64) -> np.uint64:
    """Spread the bits of a 64-bit word."""
    value = (value ^ (value >> SHIFT)) * MULTIPLIER
    return value ^ (value >> SHIFT)


@kernel
def hash_box(sides: Float2) -> np.uint64:
    """Return the hash of one box, float64 (2, d) without negative zeros."""
    total = np.uint64(0)
    words = sides.view(np.uint64)
    for end in range(2):
        for k in range(sides.shape[1]):
            total = mix(total * MULTIPLIER + words[end, k])
    return total


@kernel
def hash_id(identifier: int) -> np.uint64:
    """Return the hash of one id."""
    return mix(np.uint64(identifier) * MULTIPLIER)


@kernel
def same_box(tree: Tree, box: int, sides: Float2) -> bool:
    """Return whether the box in row `box` has exactly these sides."""
    for end in range(2):
        for k in range(sides.shape[1]):
            if tree.bounds[box, end, k] != sides[end, k]:
                return False
    return True


@kernel
def row_at(table: Int32_1, place: int | np.uint64) -> int:
    """Return the row in a place, -1 if it is empty."""
    return np.int64(~table[place])


@kernel
def serving(tree: Tree, which: int, hashed: np.uint64) -> Int32_1:
    """Return the table, old or new, that has the entries with this hash."""
    size = tree.old_tables.shape[1]
    if size > 0:
        place = (hashed - np.uint64(tree.state[FIRST + which])) & np.uint64(size - 1)
        if place >= np.uint64(tree.state[MOVED + which]):
            return tree.old_tables[which]
    return tree.tables[which]


@kernel
def place_of_box(tree: Tree, sides: Float2) -> tuple[Int32_1, int]:
    """Return table and place of the box with these sides, or the empty place for it."""
    hashed = hash_box(sides)
    table = serving(tree, BY_SIDES, hashed)
    last = np.uint64(len(table) - 1)
    place = hashed & last
    while table[place] != 0 and not same_box(tree, row_at(table, place), sides):
        place = (place + np.uint64(1)) & last
    return table, np.int64(place)


@kernel
def place_of_id(tree: Tree, identifier: int) -> tuple[Int32_1, int]:
    """Return table and place of this id, or the empty place for it."""
    hashed = hash_id(identifier)
    table = serving(tree, BY_ID, hashed)
    last = np.uint64(len(table) - 1)
    place = hashed & last
    while table[place] != 0 and tree.links[row_at(table, place)].id != identifier:
        place = (place + np.uint64(1)) & last
    return table, np.int64(place)


@kernel
def first_link(tree: Tree, identifier: int) -> int:
    """Return the first link of an id, -1 if it is unknown."""
    table, place = place_of_id(tree, identifier)
    return row_at(table, place)


@kernel
def look_up(where: Int1, identifier: int) -> int:
    """Return `first_link` in the tree at these addresses: the call takes a tenth of the time."""
    return first_link(opened_tree(where), identifier)


@kernel
def _home(tree: Tree, row: int, which: int) -> np.uint64:
    return hash_box(tree.bounds[row]) if which == BY_SIDES else hash_id(tree.links[row].id)


@kernel
def _vacate(tree: Tree, table: Int32_1, place: int, which: int) -> None:
    """Empty a place, and move later entries of its run back over it."""
    last = np.uint64(len(table) - 1)
    hole = np.uint64(place)
    probe = hole
    while True:
        probe = (probe + np.uint64(1)) & last
        if table[probe] == 0:
            break
        home = _home(tree, row_at(table, probe), which) & last
        if ((probe - home) & last) >= ((probe - hole) & last):  # the hole lies between its home and it
            table[hole] = table[probe]
            hole = probe
    table[hole] = 0


@kernel
def _enter(tree: Tree, table: Int32_1, row: int, which: int) -> None:
    """Add a row that is in no table."""
    last = np.uint64(len(table) - 1)
    place = _home(tree, row, which) & last
    while table[place] != 0:
        place = (place + np.uint64(1)) & last
    table[place] = ~row


@kernel
def _move(tree: Tree, which: int, places: int) -> None:
    """Move the entries of at least `places` places from the old table to the new one, while there are any.

    The move begins and ends after an empty place, so that no entry is before its home. At the end, entries
    that were put after the last place, at the start of the table, are moved as well.
    """
    old, new = tree.old_tables[which], tree.tables[which]
    moved = tree.state[MOVED + which]
    end = min(moved + places, len(old))
    if moved >= len(old):
        return
    while True:
        place = (tree.state[FIRST + which] + moved) & (len(old) - 1)
        moved += 1
        row = row_at(old, place)
        if row >= 0:
            _enter(tree, new, row, which)
            old[place] = 0
        elif moved >= end:
            break
    tree.state[MOVED + which] = moved


@kernel
def move(tree: Tree, places: int) -> None:
    """Move the entries of `places` places, and a few more, from old tables to new ones, if there are any."""
    _move(tree, BY_SIDES, places)
    _move(tree, BY_ID, places)


def moved_all(tree: Tree) -> bool:
    """Return whether the old tables are empty."""
    size, state = tree.old_tables.shape[1], tree.state
    return bool(state.item(MOVED + BY_SIDES) >= size and state.item(MOVED + BY_ID) >= size)


def start_moving(tree: Tree) -> None:
    """Begin to move the entries of old tables, which are complete."""
    for which in range(2):
        tree.state[FIRST + which] = _first_gap(tree.old_tables[which]) + 1
        tree.state[MOVED + which] = 0


def _first_gap(table: Int32_1) -> int:
    """Return the first empty place; a table is half empty, so one of the first rows of places has it."""
    for first in range(0, len(table), 1024):
        gaps = np.flatnonzero(table[first : first + 1024] == 0)
        if len(gaps):
            return first + int(gaps[0])
    raise ValueError("the table has no empty place")


@kernel
def fill_whole(tree: Tree, tables: Int32_2) -> None:
    """Add all boxes and ids to empty tables."""
    for box in range(tree.state[USED_BOX]):
        if tree.slots[box].link >= 0:
            _enter(tree, tables[BY_SIDES], box, BY_SIDES)
    for own in (tree.old_tables, tree.tables):
        for place in range(own.shape[1]):
            if own[BY_ID, place] != 0:
                _enter(tree, tables[BY_ID], row_at(own[BY_ID], place), BY_ID)


@kernel
def distinct(low: Float2, high: Float2, table: Int32_1) -> Int1:
    """Return the first row identical to each row, int64 (n,): its own number for a new row.

    `table`, int32, a power of two above n, filled with -1, becomes the hash table of the new ones.
    """
    n, dimensions = low.shape
    first = np.empty(n, np.int64)
    sides = np.empty((2, dimensions))
    last = np.uint64(len(table) - 1)
    for i in range(n):
        for k in range(dimensions):
            sides[0, k], sides[1, k] = low[i, k] + 0.0, high[i, k] + 0.0  # no negative zeros
        place = hash_box(sides) & last
        while table[place] >= 0:
            other = table[place]
            same = True
            for k in range(dimensions):
                same &= low[other, k] == low[i, k] and high[other, k] == high[i, k]
            if same:
                break
            place = (place + np.uint64(1)) & last
        if table[place] < 0:
            table[place] = i
        first[i] = table[place]
    return first


@kernel
def add_box(tree: Tree, sides: Float2, table: Int32_1, place: int) -> int:
    """Add a row for a box at the empty `place_of_box`, without links or leaf; return it."""
    box = tree.state[FREE_BOX]
    if box >= 0:
        tree.state[FREE_BOX] = tree.slots[box].leaf
    else:
        box = tree.state[USED_BOX]
        tree.state[USED_BOX] += 1
    for k in range(sides.shape[1]):
        tree.bounds[box, 0, k], tree.bounds[box, 1, k] = sides[0, k], sides[1, k]
    tree.slots[box].link = -1
    tree.slots[box].leaf = -1
    table[place] = ~box
    tree.state[BOXES] += 1
    return box


@kernel
def add_link(tree: Tree, identifier: int, box: int, exact: bool) -> None:
    """Add a link from an id to a box; an existing one can only become exact."""
    table, place = place_of_id(tree, identifier)
    first = row_at(table, place)
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
    table[place] = ~link
    tree.state[LINKS] += 1
    if not exact:
        tree.state[INEXACT] += 1
    if first < 0:
        tree.state[IDS] += 1


@kernel
def remove_first_link(tree: Tree, identifier: int) -> int:
    """Remove one link of a known id. Return the box that lost its last link, or -1."""
    table, place = place_of_id(tree, identifier)
    link = row_at(table, place)
    row = tree.links[link]
    if row.sibling >= 0:
        table[place] = ~row.sibling
    else:
        _vacate(tree, table, place, BY_ID)
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
    table, place = place_of_box(tree, tree.bounds[box])
    _vacate(tree, table, place, BY_SIDES)
    tree.slots[box].leaf = tree.state[FREE_BOX]
    tree.state[FREE_BOX] = box
    tree.state[BOXES] -= 1
