"""Verification of every invariant of an R*-tree, without its own kernels. Slow, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from rtfilter.index.kernels import hash_tables, layout
from rtfilter.index.kernels.array_types import Float3, Int1, Int32_1
from rtfilter.index.kernels.layout import CELLS, WORD, Tree


def require(holds: Any, otherwise: str) -> None:
    """Raise `AssertionError` unless `holds` is true, even if Python skips asserts."""
    if not holds:
        raise AssertionError(otherwise)


def check_tree(tree: Tree) -> None:
    """Raise `AssertionError` with the first broken invariant of a tree."""
    state = tree.state
    require(state[layout.TODO] == 0, "entries are still waiting for their place")
    require(state[layout.STALE] == -1, "masks are still waiting to be drawn")
    seen_boxes: list[int] = []
    seen_nodes: list[int] = []
    root = int(state[layout.ROOT])
    require(tree.nodes[root]["parent"] == -1, "the root has a parent")
    require(tree.nodes[root]["level"] == state[layout.HEIGHT] - 1, "height differs from the root's level")
    pending = [root]
    while pending:
        node = pending.pop()
        seen_nodes.append(node)
        entries = _check_node(tree, node, is_root=node == root)
        if tree.nodes[node]["level"] == 0:
            require((tree.slots["leaf"][entries] == node).all(), f"a box of leaf {node} names another leaf")
            seen_boxes.extend(entries.tolist())
        else:
            children = tree.nodes[entries]
            require((children["parent"] == node).all(), f"a child of node {node} has another parent")
            require((children["level"] == tree.nodes[node]["level"] - 1).all(), "leaves differ in depth")
            pending.extend(entries.tolist())
    leaving, node = [], int(state[layout.LEAVING])
    while node >= 0:
        leaving.append(node)
        require(node != root, "the root is being dissolved")
        require(
            layout.is_wide(tree, tree.nodes[node]["level"]), f"node {node} is being dissolved, but not wide"
        )
        node = int(tree.nodes[node]["leaving"])
    marked = [node for node in seen_nodes if tree.nodes[node]["leaving"] != layout.STAYS]
    require(sorted(leaving) == sorted(marked), "other nodes are being dissolved than are marked so")
    _check_pools(tree, seen_nodes)
    _check_rows(tree, np.array(seen_boxes, np.int64))


def _check_node(tree: Tree, node: int, is_root: bool) -> Int32_1:
    head = tree.nodes[node]
    level, count = int(head["level"]), int(head["count"])
    capacity = int(tree.state[layout.LEAF_CAPACITY if level == 0 else layout.INNER_CAPACITY])
    fewest = max(2, int(capacity * layout.MINIMUM_FILL))
    if is_root:
        fewest = 2 if level > 0 else 0
    leaving = head["leaving"] != layout.STAYS
    if leaving or (layout.is_wide(tree, level) and not is_root and _siblings_leave(tree, node)):
        fewest = 0
    require(fewest <= count <= capacity, f"node {node} has {count} entries, not {fewest}..{capacity}")
    entries: Int32_1 = tree.entries[head["entries"] :][:count]
    boxes = (tree.bounds if level == 0 else tree.mbr)[entries]
    if count:
        hull = np.stack([boxes[:, 0].min(axis=0), boxes[:, 1].max(axis=0)])
        covered = (tree.mbr[node, 0] <= hull[0]).all() and (tree.mbr[node, 1] >= hull[1]).all()
        fits = covered if leaving else (tree.mbr[node] == hull).all()
        require(fits, f"the rectangle of node {node} is not that of its entries")
    _check_masks(tree, node, boxes)
    return entries


def _siblings_leave(tree: Tree, node: int) -> bool:
    above = tree.nodes[tree.nodes[node]["parent"]]
    siblings = tree.entries[above["entries"] :][: above["count"]]
    return bool((tree.nodes["leaving"][siblings[siblings != node]] != layout.STAYS).all())


def _check_masks(tree: Tree, node: int, boxes: Float3) -> None:
    """Check that bit j of a cell is set if entry j overlaps the cell, and clear otherwise."""
    head = tree.nodes[node]
    dimensions = tree.frame.shape[1]
    capacity = int(tree.state[layout.LEAF_CAPACITY if head["level"] == 0 else layout.INNER_CAPACITY])
    stride = layout.words(capacity)
    words = tree.masks[head["masks"] :][: dimensions * CELLS * stride].reshape(dimensions, CELLS, stride)
    bits = np.unpackbits(words.view(np.uint8), axis=2, bitorder="little").reshape(
        dimensions, CELLS, stride * WORD
    )
    low, scale = tree.grid[node]
    with np.errstate(over="ignore"):  # open ends are infinitely many cells away
        inside = np.clip((boxes - low) * scale, 0, CELLS - 3)
    cells = inside.astype(int) + 1
    cells[boxes == -np.inf] = 0
    cells[boxes == np.inf] = CELLS - 1
    expected = np.zeros_like(bits)
    cell = np.arange(CELLS)[None, :, None]
    expected[:, :, : len(boxes)] = (cells[:, 0].T[:, None] <= cell) & (cell <= cells[:, 1].T[:, None])
    require((bits == expected).all(), f"the masks of node {node} do not fit its entries")
    if layout.in_vectors(stride):
        codes = tree.masks[head["masks"] + words.size :][: dimensions * layout.CODES * stride]
        held = codes.view(np.uint8).reshape(dimensions, 2, -1)[:, :, : len(boxes)]
        places = (inside % 1 * 254).astype(int) + 1
        open_ends = boxes < -layout.OPEN, boxes > layout.OPEN
        expected = np.select(open_ends, (0, 255), places).T
        require((held == expected).all(), f"the codes of node {node} do not fit its entries")
    ranking, tested = tree.ranking[node], int(head["tested"])
    require((np.sort(ranking) == np.arange(dimensions)).all(), f"node {node} ranks no permutation")
    free = np.isinf(boxes[:, :, ranking[tested:]])
    require(bool(free.all()), f"node {node} does not test a dimension that entries constrain")
    require(head["drawn"] == head["count"], f"entries of node {node} are not drawn")
    require(head["stale"] == -2, f"node {node} still waits to be drawn")


def _check_pools(tree: Tree, seen: list[int]) -> None:
    """Check that each node row is in the tree or in one free chain, and that no two nodes share a block."""
    require(len(set(seen)) == len(seen), "a node has two parents")
    free = []
    for head in (layout.FREE_LEAF, layout.FREE_INNER):
        node = int(tree.state[head])
        while node >= 0:
            free.append(node)
            require(tree.nodes[node]["level"] == -1, f"node {node} is free and has a level")
            node = int(tree.nodes[node]["parent"])
    used = int(tree.state[layout.USED_NODE])
    require(sorted(seen + free) == list(range(used)), "a node row is neither in the tree nor free")
    require(len(set(tree.nodes["masks"][:used].tolist())) == used, "two nodes share a block")
    boxes, leaf, inner = (
        int(tree.state[c]) for c in (layout.USED_BOX, layout.LEAF_CAPACITY, layout.INNER_CAPACITY)
    )
    most = layout.rows_for(boxes, leaf, inner, tree.frame.shape[1])
    rows = tree.state[[layout.USED_NODE, layout.USED_ENTRY, layout.USED_MASK]]
    require((rows <= most).all(), "there are more nodes than room is made for")


def _check_rows(tree: Tree, boxes: Int1) -> None:
    """Check that boxes, links and hash tables agree with each other."""
    state = tree.state
    slots = tree.slots[: state[layout.USED_BOX]]
    live = np.flatnonzero(slots["link"] >= 0)
    require((np.sort(boxes) == live).all(), "the leaves hold other boxes than the pool")
    require(len(live) == state[layout.BOXES], "wrong count of boxes")
    sides = tree.bounds[live].reshape(len(live), 2 * tree.frame.shape[1])
    require(len(np.unique(sides, axis=0)) == len(live), "identical boxes are stored twice")
    links = tree.links[: state[layout.USED_LINK]]
    require((links["box"] >= 0).sum() == state[layout.LINKS], "wrong count of links")
    of_box = slots[["link", "id"]].tolist()
    of_link = links[["box", "id", "previous", "next", "sibling"]].tolist()
    chained = 0
    for box in live.tolist():
        (link, id), previous = of_box[box], -1
        require(id == of_link[link][1], f"box {box} does not have the id of its first link")
        while link >= 0:
            owner, _, before, after, _ = of_link[link]
            require(owner == box, f"a link of box {box} names another box")
            require(before == previous, f"the chain of box {box} is torn")
            link, previous = after, link
            chained += 1
    require(chained == state[layout.LINKS], "a link is in no chain")
    inexact = (links["box"] >= 0) & (links["exact"] == 0)
    require(inexact.sum() == state[layout.INEXACT], "wrong count of inexact links")
    heads = _entered(tree, hash_tables.BY_ID).tolist()
    require(len(heads) == state[layout.IDS], "wrong count of ids")
    siblings = 0
    where = layout.TREE_BY_ADDRESS.addresses(tree)
    for head in heads:
        link, own = head, of_link[head][1]
        require(hash_tables.look_up(where, own) == head, f"id {own} cannot be looked up")
        while link >= 0:
            require(of_link[link][1] == own, f"a link of id {own} names another id")
            link = of_link[link][-1]
            siblings += 1
    require(siblings == state[layout.LINKS], "a link cannot be found by its id")
    entered = _entered(tree, hash_tables.BY_SIDES)
    require(np.array_equal(np.sort(entered), live), "the hash of boxes is incomplete")
    for box in live.tolist():
        table, place = hash_tables.place_of_box(tree, tree.bounds[box])
        require(table[place] == ~box, f"box {box} cannot be looked up")


def _entered(tree: Tree, which: int) -> Int32_1:
    """Return the rows that are in a hash table, old or new."""
    both = np.concatenate([tree.old_tables[which], tree.tables[which]])
    rows: Int32_1 = ~both[both != 0]
    return rows
