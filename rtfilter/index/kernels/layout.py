"""The arrays of an R*-tree, how they are allocated, and how they grow.

All data are pools of rows in NumPy arrays, so saving is writing arrays, loading is mapping them, and a
reference is a row number. A *box* is a distinct hyper-rectangle; a *link* connects one id to one box, so that
identical boxes are stored once; a *node* has up to its capacity of entries: box rows in a leaf (level 0),
node rows above.
"""

from typing import NamedTuple

import numpy as np

from rtfilter.index.kernels.array_types import (
    Float2,
    Float3,
    Int1,
    Int16_2,
    Int32_1,
    Int32_2,
    Links,
    Nodes,
    Slots,
    Word1,
)
from rtfilter.index.kernels.borrow import ByAddress
from rtfilter.index.kernels.jit import kernel, part
from rtfilter.index.kernels.pools import give_back, grown, use_huge_pages

CELLS = 64  # cells of a node's grid in each dimension
WORD = 64  # bits of a mask word
CODES = 16  # words of codes for each mask word: 64 entries x 2 ends x 1 byte
LANES = 8  # words of a vector, see `kernels.vector`
DIMENSIONS = 2**15 - 1  # at most: `Tree.ranking`
MINIMUM_FILL = 0.4  # share of its capacity that a node has at least, the root excepted
WIDE = 200  # entries of a node; those of papers have fewer
MOST_BOXES = 2**28  # for which large pools reserve address space
OPEN = 1e300  # a side beyond this is an open end and says nothing about where values lie
ONE = np.uint64(1)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)

#: One row per box. `link`: first link of the box, -1 when the row is free, and `id`: the id of that link;
#: `leaf`: node that holds it, or the next free row.
SLOT = np.dtype([("id", "i8"), ("link", "i4"), ("leaf", "i4")], align=True)

#: One row per (id, box). `box`: -1 when the row is free, `next` then chains the free rows. `next` and
#: `previous` chain the links of one box, `sibling` those of one id. `exact`: the box alone decides.
LINK = np.dtype(
    [("id", "i8"), ("box", "i4"), ("next", "i4"), ("previous", "i4"), ("sibling", "i4"), ("exact", "i4")],
    align=True,
)

#: One row per node. `entries`, `masks`: where its block starts in the flat arrays; `level`: 0 for a leaf;
#: `parent`: -1 for the root, or the next free node; `count`: entries; `drawn`: how many of the first of them
#: are in the masks (all, but within a change); `built`: entries when its grid was made, `age`: changes since;
#: `tested`: dimensions that any entry constrains; `sure`: so many of them are tested in any case; `stale`:
#: the next node whose masks are behind, -1 for none, -2 when this one is up to date; `leaving`: the next node
#: that is being dissolved, -1 for none, -2 when this one stays.
NODE = np.dtype(
    [
        ("entries", "i8"),
        ("masks", "i8"),
        ("level", "i4"),
        ("parent", "i4"),
        ("count", "i4"),
        ("built", "i4"),
        ("age", "i4"),
        ("tested", "i4"),
        ("sure", "i4"),
        ("drawn", "i4"),
        ("stale", "i4"),
        ("leaving", "i4"),
    ],
    align=True,
)

# Positions in `Tree.state`.
ROOT, HEIGHT, BOXES, LINKS, IDS, UPDATES = 0, 1, 2, 3, 4, 5  # live counts; changes since the beginning
LEAF_CAPACITY, INNER_CAPACITY = 6, 7
FREE_BOX, FREE_LINK, FREE_LEAF, FREE_INNER = 8, 9, 10, 11  # heads of the free chains, -1 when empty
USED_BOX, USED_LINK, USED_NODE, USED_ENTRY, USED_MASK = 12, 13, 14, 15, 16  # rows ever used
TODO, REINSERTED = 17, 18  # entries waiting for their place; bit per level that was reinserted from
INEXACT, STALE = 19, 20  # links that are not exact; first node whose masks are behind its entries, or -1
LEAVING, FREED = 21, 22  # first node that is being dissolved, or -1; whether wide nodes were freed
STAYS = -2  # of `Node.leaving`
GIVEN_BACK = -1  # of `Node.built`, when a free node's memory is
FIRST, MOVED = 24, 26  # of each old hash table: its first place, and how many are moved from there on
STATE_SIZE = 40


class Tree(NamedTuple):
    """Arrays of one tree of d dimensions, which kernels read and change."""

    bounds: Float3  # float64 (boxes, 2, d): low and high of each box, closed
    slots: Slots  # SLOT (boxes,)
    links: Links  # LINK (links,)
    nodes: Nodes  # NODE (nodes,)
    mbr: Float3  # float64 (nodes, 2, d): exact bounding rectangle of each node
    grid: Float3  # float64 (nodes, 2, d): low end and cells per unit of each node's grid
    ranking: Int16_2  # int16 (nodes, d): dimensions of each node in the order of testing, untested ones last
    entries: Int32_1  # int32, flat: a block of `capacity` rows per node
    masks: Word1  # uint64, flat: `block` words per node: CELLS masks for each dimension, then codes (`grid`)
    tables: Int32_2  # int32 (2, power of two): hash of the boxes, and of the ids, see `hash_tables`
    old_tables: Int32_2  # int32 (2, power of two or 0): what is not yet moved to larger `tables`
    state: Int1  # int64 (STATE_SIZE,)
    frame: Float2  # float64 (3, d): low, high and 1 / width of all finite sides ever seen
    todo: Int32_2  # int32 (k, 3): row, level and former node (or -1) of entries waiting for their place


@part
def words_for(count: int) -> int:
    """Return the number of mask words with a bit for each of `count` entries."""
    return (count + WORD - 1) // WORD


@part
def words(capacity: int) -> int:
    """Return the mask words of a node of `capacity` entries; a multiple of `LANES` if there are many."""
    least = words_for(capacity)
    return least if least <= LANES // 2 else (least + LANES - 1) // LANES * LANES


@part
def in_vectors(words: int) -> bool:
    """Return whether masks of so many words are processed as vectors, and have codes."""
    return words % LANES == 0


@part
def block(dimensions: int, words: int) -> int:
    """Return the words in `Tree.masks` of a node with masks of `words` words."""
    return dimensions * (CELLS + (CODES if in_vectors(words) else 0)) * words


@part
def capacity_of(tree: Tree, level: int) -> int:
    """Return the most entries of a node of this level."""
    return tree.state[LEAF_CAPACITY] if level == 0 else tree.state[INNER_CAPACITY]


@part
def is_wide(tree: Tree, level: int) -> bool:
    """Return whether nodes of this level are so wide that other rules apply, see `insert`."""
    return capacity_of(tree, level) > WIDE


@part
def words_of(tree: Tree, level: int) -> int:
    """Return the mask words of a node of this level."""
    return words(capacity_of(tree, level))


@part
def block_of(tree: Tree, level: int) -> int:
    """Return the words of a node of this level in `Tree.masks`."""
    return block(tree.mbr.shape[2], words_of(tree, level))


@kernel
def rectangles(tree: Tree, level: int) -> Float3:
    """Return the array of the entries of nodes of this level: boxes, or rectangles of nodes."""
    return tree.bounds if level == 0 else tree.mbr


def empty(dimensions: int, inner_capacity: int, leaf_capacity: int) -> Tree:
    """Return a tree whose root is an empty leaf."""
    state = np.zeros(STATE_SIZE, np.int64)
    state[[LEAF_CAPACITY, INNER_CAPACITY]] = leaf_capacity, inner_capacity
    state[[FREE_BOX, FREE_LINK, FREE_LEAF, FREE_INNER, STALE, LEAVING]] = -1
    frame = np.array([[np.inf], [-np.inf], [0.0]]) * np.ones((1, dimensions))
    frame[2] = 1.0
    # At most one node per level is dissolved or reinserted from before its entries are placed again.
    waiting = leaf_capacity + 16 * inner_capacity + 64
    tree = Tree(
        bounds=np.empty((0, 2, dimensions)),
        slots=np.empty(0, SLOT),
        links=np.empty(0, LINK),
        nodes=np.empty(0, NODE),
        mbr=np.empty((0, 2, dimensions)),
        grid=np.empty((0, 2, dimensions)),
        ranking=np.empty((0, dimensions), np.int16),
        entries=np.empty(0, np.int32),
        masks=np.empty(0, np.uint64),
        tables=np.zeros((2, 16), np.int32),
        old_tables=np.zeros((2, 0), np.int32),
        state=state,
        frame=frame,
        todo=np.empty((waiting, 3), np.int32),
    )
    tree = with_room(tree, boxes=0, links=0)
    tree.nodes[0] = (0, 0, 0, -1, 0, 0, 0, 0, 0, 0, -2, -2)
    tree.ranking[0] = np.arange(dimensions)
    tree.mbr[0, 0], tree.mbr[0, 1] = np.inf, -np.inf
    tree.grid[0, 0], tree.grid[0, 1] = 0.0, 1.0
    masks = block(dimensions, words(leaf_capacity))
    tree.masks[:masks] = 0
    state[ROOT], state[HEIGHT], state[USED_NODE] = 0, 1, 1
    state[USED_ENTRY], state[USED_MASK] = leaf_capacity, masks
    return tree


TREE_BY_ADDRESS = ByAddress(lambda: empty(1, 4, 4))
opened_tree = TREE_BY_ADDRESS.opened


@part
def least_entries(capacity: int) -> int:
    """Return the least entries of a node, except the root."""
    return max(2, int(capacity * MINIMUM_FILL))


@part
def most_nodes(boxes: int, leaf_capacity: int, inner_capacity: int) -> tuple[int, int]:
    """Return the most leaves and inner nodes of a tree of so many boxes.

    Dissolving nodes have nearly as many entries as others, except the first.
    """
    leaves = max(1, boxes // least_entries(leaf_capacity))
    inner, level = 1, leaves
    while level > 1:
        level = max(1, level // least_entries(inner_capacity))
        inner += level
    return leaves + leaves // 8 + int(leaves > 1), inner + inner // 8 + int(inner > 2)


@part
def rows_for(boxes: int, leaf_capacity: int, inner_capacity: int, dimensions: int) -> tuple[int, int, int]:
    """Return the rows of `nodes`, of `entries` and of `masks` that are enough for so many boxes."""
    leaves, inner = most_nodes(boxes, leaf_capacity, inner_capacity)
    masks = leaves * block(dimensions, words(leaf_capacity)) + inner * block(
        dimensions, words(inner_capacity)
    )
    return leaves + inner, leaves * leaf_capacity + inner * inner_capacity, masks


@kernel
def has_room(tree: Tree, boxes: int, links: int) -> bool:
    """Return whether there is room for `boxes` more boxes, `links` more links, and all nodes for them."""
    state = tree.state
    count = state[USED_BOX] + boxes
    nodes, entries, masks = rows_for(count, state[LEAF_CAPACITY], state[INNER_CAPACITY], tree.mbr.shape[2])
    return (
        count <= len(tree.slots)
        and count <= len(tree.bounds)
        and state[USED_LINK] + links <= len(tree.links)
        and nodes <= min(len(tree.nodes), len(tree.mbr), len(tree.grid), len(tree.ranking))
        and entries <= len(tree.entries)
        and masks <= len(tree.masks)
    )


def with_room(tree: Tree, boxes: int, links: int) -> Tree:
    """Return `tree` with room for `boxes` more boxes, `links` more links, and all nodes for them.

    So a change never ends for lack of room. Hash tables have room of their own (`hash_tables`).
    """
    state, dimensions = tree.state, tree.frame.shape[1]
    capacities = int(state[LEAF_CAPACITY]), int(state[INNER_CAPACITY])
    count, ties = int(state[USED_BOX]) + boxes, int(state[USED_LINK]) + links
    nodes, entries, masks = rows_for(count, *capacities, dimensions)
    most_nodes, most_entries, most_masks = rows_for(MOST_BOXES, *capacities, dimensions)
    return tree._replace(
        bounds=grown(tree.bounds, count, MOST_BOXES),
        slots=grown(tree.slots, count, MOST_BOXES),
        links=grown(tree.links, ties, MOST_BOXES),
        nodes=grown(tree.nodes, nodes, most_nodes),
        mbr=grown(tree.mbr, nodes, most_nodes),
        grid=grown(tree.grid, nodes, most_nodes),
        ranking=grown(tree.ranking, nodes, most_nodes),
        entries=grown(tree.entries, entries, most_entries),
        masks=grown(tree.masks, masks, most_masks),
    )


def use_huge_pages_for_rows(tree: Tree) -> None:
    """Put all rows in use into huge pages, if pools are large."""
    for name, used in trimmed(tree)._asdict().items():
        use_huge_pages(getattr(tree, name), len(used))


def give_back_free_nodes(tree: Tree) -> None:
    """Return to the system the memory of nodes that were freed since the last call."""
    for level, chain in ((0, FREE_LEAF), (1, FREE_INNER)):
        node, words, capacity = int(tree.state[chain]), block_of(tree, level), capacity_of(tree, level)
        while node >= 0 and tree.nodes[node]["built"] != GIVEN_BACK:
            head = tree.nodes[node]
            give_back(tree.masks, int(head["masks"]), int(head["masks"]) + words)
            give_back(tree.entries, int(head["entries"]), int(head["entries"]) + capacity)
            tree.nodes[node]["built"] = GIVEN_BACK
            node = int(head["parent"])
    tree.state[FREED] = 0


def trimmed(tree: Tree) -> Tree:
    """Return `tree` without its spare rows, for saving."""
    state = tree.state
    return tree._replace(
        bounds=tree.bounds[: state[USED_BOX]],
        slots=tree.slots[: state[USED_BOX]],
        links=tree.links[: state[USED_LINK]],
        nodes=tree.nodes[: state[USED_NODE]],
        mbr=tree.mbr[: state[USED_NODE]],
        grid=tree.grid[: state[USED_NODE]],
        ranking=tree.ranking[: state[USED_NODE]],
        entries=tree.entries[: state[USED_ENTRY]],
        masks=tree.masks[: state[USED_MASK]],
    )
