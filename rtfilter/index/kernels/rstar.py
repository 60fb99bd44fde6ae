"""Changing the R*-tree one box at a time (Beckmann et al.; requirements W-1).

Entries that need a place wait in `todo` as (row, level) pairs: new boxes, entries of a forced reinsertion,
entries of dissolved nodes. `drain` places them until none is left, or stops *between* two entries when the
node pools could run short; the caller then grows the pools and calls it again.

No decision here looks at masks, so they are left behind and brought up to date once, at the end (`redraw`).

Areas and margins are computed in `frame` coordinates, the tree's finite extent mapped to [0, 1], with open
ends cut off, so that infinite sides and any number of dimensions are safe. Heuristics see these, search does
not.
"""

import numpy as np

from rtfilter.index.kernels.grid import (
    ONE,
    OPEN,
    UP_TO_DATE,
    block_of,
    candidates,
    capacity_of,
    clear_bits,
    locate,
    postpone,
    rectangles,
    redraw,
    set_bits,
    words_of,
)
from rtfilter.index.kernels.hash_tables import (
    add_box,
    add_link,
    first_link,
    place_of_box,
    remove_box,
    remove_first_link,
)
from rtfilter.index.kernels.jit import kernel
from rtfilter.index.kernels.layout import (
    FREE_INNER,
    FREE_LEAF,
    HEIGHT,
    LINKS,
    REINSERTED,
    ROOT,
    TODO,
    UPDATES,
    USED_BOX,
    USED_ENTRY,
    USED_LINK,
    USED_MASK,
    USED_NODE,
    WORD,
    Array,
    Tree,
    opened,
    words_for,
)
from rtfilter.index.kernels.vector import trailing_zeros

MINIMUM_FILL = 0.4
REINSERTED_SHARE = 0.3
REINSERTED_MOST = 64  # of a wide node: more improve nothing and cost as much as all the rest
NEAR = 32  # candidates of least area enlargement whose overlap is computed
SAMPLE = 256  # entries from which a wide node chooses its split axis
THIN = 2.0**-14  # what every side counts at least, so that degenerate sides do not make all areas zero


@kernel
def minimum_of(tree: Tree, level: int) -> int:
    """Least entries of a node of this level, the root excepted."""
    return max(2, int(capacity_of(tree, level) * MINIMUM_FILL))


@kernel
def widen_frame(tree: Tree, sides: Array) -> None:
    """Let the frame cover the finite ends of a box."""
    for k in range(sides.shape[1]):
        for end in range(2):
            x = sides[end, k]
            if abs(x) < OPEN and not tree.frame[0, k] <= x <= tree.frame[1, k]:
                tree.frame[0, k] = min(tree.frame[0, k], x)
                tree.frame[1, k] = max(tree.frame[1, k], x)
                tree.frame[2, k] = 1.0 / max(tree.frame[1, k] - tree.frame[0, k], 1e-300)


@kernel
def framed(tree: Tree, sides: Array, out: Array) -> None:
    """The box `sides` (2, d) in frame coordinates, into `out` (2, d)."""
    for k in range(sides.shape[1]):
        low, width = tree.frame[0, k], tree.frame[2, k]
        out[0, k] = min(max((sides[0, k] - low) * width, 0.0), 1.0)
        out[1, k] = min(max((sides[1, k] - low) * width, 0.0), 1.0)


@kernel
def area(box: Array) -> float:
    """Volume of a framed box."""
    product = 1.0
    for k in range(box.shape[1]):
        product *= box[1, k] - box[0, k] + THIN
    return product


@kernel
def area_of_union(a: Array, b: Array) -> float:
    """Volume of the smallest framed box around two."""
    product = 1.0
    for k in range(a.shape[1]):
        product *= max(a[1, k], b[1, k]) - min(a[0, k], b[0, k]) + THIN
    return product


@kernel
def overlap(a: Array, b: Array) -> float:
    """Volume that two framed boxes share."""
    product = 1.0
    for k in range(a.shape[1]):
        side = min(a[1, k], b[1, k]) - max(a[0, k], b[0, k])
        if side < 0.0:
            return 0.0
        product *= side + THIN
    return product


@kernel
def covers(a: Array, b: Array) -> bool:
    """Whether box `a` contains box `b`."""
    covered = True
    for k in range(a.shape[1]):
        covered &= a[0, k] <= b[0, k] and b[1, k] <= a[1, k]
    return covered


@kernel
def overlap_growth(children: Array, i: int, box: Array, bound: float) -> float:
    """How much more child i overlaps its siblings once it includes `box`; stops early above `bound`."""
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


@kernel
def covering(tree: Tree, node: int, sides: Array) -> int:
    """The least entry of an inner node that covers the box, -1 if there is none.

    An entry covers a box when both of its outermost corners are in it; masks name few that may.
    """
    head = tree.nodes[node]
    rows, box = np.empty(sides.shape[1], np.int64), np.empty_like(sides)
    found = np.zeros((2, words_of(tree, head.level)), np.uint64)
    for end in range(2 if head.drawn > 0 else 0):  # else its grid, too, may be behind
        locate(tree, node, sides[end], rows)
        candidates(tree, node, rows, True, found[end])
    best, least = -1, np.inf
    for w in range(words_for(head.count)):
        bits = found[0, w] & found[1, w]
        for j in range(max(head.drawn, w * WORD), min(head.count, w * WORD + WORD)):
            bits |= ONE << np.uint64(j % WORD)
        while bits != 0:
            j = w * WORD + trailing_zeros(bits)
            bits &= bits - ONE
            rectangle = tree.mbr[tree.entries[head.entries + j]]
            if covers(rectangle, sides):
                framed(tree, rectangle, box)
                size = area(box)
                if size < least:
                    best, least = j, size
    return best


@kernel
def choose_child(tree: Tree, node: int, sides: Array) -> int:
    """Entry of `node` that should take the box: least overlap growth above leaves, else least area growth."""
    head = tree.nodes[node]
    count = head.count
    best = covering(tree, node, sides)
    if best >= 0:  # mostly: it need not grow
        return best
    box, least = np.empty_like(sides), np.inf
    framed(tree, sides, box)
    children = np.empty((count, 2, sides.shape[1]))
    growth = np.empty(count)
    areas = np.empty(count)
    best = 0
    for j in range(count):
        framed(tree, tree.mbr[tree.entries[head.entries + j]], children[j])
        areas[j] = area(children[j])
        growth[j] = area_of_union(children[j], box) - areas[j]
        if growth[j] < growth[best] or (growth[j] == growth[best] and areas[j] < areas[best]):
            best = j
    if head.level > 1 or growth[best] == 0.0:  # an entry that holds the box already adds no overlap
        return best
    least = np.inf
    for j in np.argsort(growth)[:NEAR]:
        added = overlap_growth(children, j, box, least)
        if added < least:
            best, least = j, added
    return best


@kernel
def new_node(tree: Tree, level: int) -> int:
    """An empty node; the caller has made sure that there is room."""
    free = FREE_LEAF if level == 0 else FREE_INNER
    node = tree.state[free]
    if node >= 0:
        tree.state[free] = tree.nodes[node].parent
    else:
        node = tree.state[USED_NODE]
        tree.state[USED_NODE] += 1
        tree.nodes[node].entries = tree.state[USED_ENTRY]
        tree.nodes[node].masks = tree.state[USED_MASK]
        tree.nodes[node].stale = UP_TO_DATE
        tree.state[USED_ENTRY] += capacity_of(tree, level)
        tree.state[USED_MASK] += block_of(tree, level)
    tree.nodes[node].level = level
    tree.nodes[node].parent = -1
    tree.nodes[node].count = 0
    tree.nodes[node].drawn = 0
    return node


@kernel
def free_node(tree: Tree, node: int) -> None:
    """Give a node back to the pool."""
    free = FREE_LEAF if tree.nodes[node].level == 0 else FREE_INNER
    tree.nodes[node].parent = tree.state[free]
    tree.nodes[node].level = -1
    tree.state[free] = node


@kernel
def has_room(tree: Tree) -> bool:
    """Whether one entry can be placed: at worst every level splits and the tree grows."""
    inner = tree.state[HEIGHT] + 1
    masks = block_of(tree, 0) + inner * block_of(tree, 1)
    return (
        tree.state[USED_NODE] + 1 + inner <= len(tree.nodes)
        and tree.state[USED_ENTRY] + capacity_of(tree, 0) + inner * capacity_of(tree, 1) <= len(tree.entries)
        and tree.state[USED_MASK] + masks <= len(tree.masks)
    )


@kernel
def own(tree: Tree, node: int, row: int) -> None:
    """Record that `row` is an entry of `node`."""
    if tree.nodes[node].level == 0:
        tree.slots[row].leaf = node
    else:
        tree.nodes[row].parent = node


@kernel
def position(tree: Tree, node: int, row: int) -> int:
    """Where `row` stands among the entries of `node`."""
    head = tree.nodes[node]
    for j in range(head.count):
        if tree.entries[head.entries + j] == row:
            return j
    return -1


@kernel
def wait(tree: Tree, row: int, level: int) -> None:
    """Let an entry wait for a node of `level`."""
    tree.todo[tree.state[TODO], 0] = row
    tree.todo[tree.state[TODO], 1] = level
    tree.state[TODO] += 1


@kernel
def append_entry(tree: Tree, node: int, row: int) -> None:
    """Add an entry to a node with room; rectangles are the caller's."""
    head = tree.nodes[node]
    tree.entries[head.entries + head.count] = row
    head.count += 1
    head.age += 1
    own(tree, node, row)
    postpone(tree, node)


@kernel
def remove_entry(tree: Tree, node: int, j: int) -> None:
    """Take entry j out of a node, the last entry filling its place; rectangles are the caller's."""
    head = tree.nodes[node]
    last = head.count - 1
    if j < head.drawn:
        clear_bits(tree, node, j)
    if j != last:
        if last < head.drawn:
            clear_bits(tree, node, last)
        tree.entries[head.entries + j] = tree.entries[head.entries + last]
        if j < head.drawn:
            set_bits(tree, node, j)
    head.count = last
    head.drawn = min(head.drawn, last)
    head.age += 1
    postpone(tree, node)


@kernel
def set_entries(tree: Tree, node: int, rows: Array) -> None:
    """Make `rows` the entries of a node, with exact rectangle; nothing is drawn."""
    head = tree.nodes[node]
    head.count = len(rows)
    head.drawn = 0
    for j in range(len(rows)):
        tree.entries[head.entries + j] = rows[j]
        own(tree, node, rows[j])
    measure(tree, node)


@kernel
def fill_node(tree: Tree, node: int, rows: Array) -> None:
    """`set_entries`, to be drawn at the end of the change."""
    set_entries(tree, node, rows)
    postpone(tree, node)


@kernel
def measure(tree: Tree, node: int) -> bool:
    """Compute a node's rectangle from its entries; whether it changed."""
    head = tree.nodes[node]
    source = rectangles(tree, head.level)
    changed = False
    for k in range(source.shape[2]):
        low, high = np.inf, -np.inf
        for j in range(head.count):
            row = tree.entries[head.entries + j]
            low, high = min(low, source[row, 0, k]), max(high, source[row, 1, k])
        if low != tree.mbr[node, 0, k] or high != tree.mbr[node, 1, k]:
            tree.mbr[node, 0, k], tree.mbr[node, 1, k] = low, high
            changed = True
    return changed


@kernel
def shrink(tree: Tree, node: int, gone: Array) -> bool:
    """Fit a node's rectangle after the entry with the sides `gone` has left it; whether it changed.

    Only where that entry reached the rectangle's side can another side be due.
    """
    head = tree.nodes[node]
    source = rectangles(tree, head.level)
    changed = False
    for k in range(gone.shape[1]):
        for end in range(2):
            if gone[end, k] != tree.mbr[node, end, k]:
                continue
            most = -np.inf  # outward
            sign = 2.0 * end - 1.0
            for j in range(head.count):
                most = max(most, sign * source[tree.entries[head.entries + j], end, k])
                if most == sign * gone[end, k]:
                    break
            changed |= most != sign * gone[end, k]
            tree.mbr[node, end, k] = sign * most
    return changed


@kernel
def extend(tree: Tree, node: int, sides: Array) -> bool:
    """Let a node's rectangle cover `sides`; whether it had to grow."""
    grown = False
    for k in range(sides.shape[1]):
        if sides[0, k] < tree.mbr[node, 0, k]:
            tree.mbr[node, 0, k] = sides[0, k]
            grown = True
        if sides[1, k] > tree.mbr[node, 1, k]:
            tree.mbr[node, 1, k] = sides[1, k]
            grown = True
    return grown


@kernel
def refresh_entry(tree: Tree, node: int, j: int) -> None:
    """Redraw the mask bits of an entry whose rectangle changed."""
    if j < tree.nodes[node].drawn:
        clear_bits(tree, node, j)
        set_bits(tree, node, j)


@kernel
def refresh_ancestors(tree: Tree, node: int) -> None:
    """Carry a changed rectangle of `node` up to the root."""
    while tree.nodes[node].parent >= 0:
        parent = tree.nodes[node].parent
        refresh_entry(tree, parent, position(tree, parent, node))
        if not measure(tree, parent):
            break
        node = parent


@kernel
def split_order(boxes: Array, minimum: int) -> tuple[Array, int]:
    """R* split of framed boxes (n, 2, d): an order of them and how many of its first form the one node.

    The axis has the least sum of margins over all distributions; on it the distribution has the least
    overlap, then the least area.
    """
    n, _, dimensions = boxes.shape
    some = boxes if n <= SAMPLE else boxes[np.arange(SAMPLE) * n // SAMPLE]
    fewest = max(1, minimum * len(some) // n)
    axis, least = 0, np.inf
    for k in range(dimensions):
        margin = 0.0
        for end in range(2):
            left, right = running_boxes(some, np.argsort(some[:, end, k], kind="mergesort"))
            for cut in range(fewest, len(some) - fewest + 1):
                for m in range(dimensions):
                    margin += left[cut - 1, 1, m] - left[cut - 1, 0, m] + right[cut, 1, m] - right[cut, 0, m]
        if margin < least:
            axis, least = k, margin
    best_order = np.arange(n)
    best_cut, best_overlap, best_area = minimum, np.inf, np.inf
    for end in range(2):
        order = np.argsort(boxes[:, end, axis], kind="mergesort")
        left, right = running_boxes(boxes, order)
        for cut in range(minimum, n - minimum + 1):
            shared = overlap(left[cut - 1], right[cut])
            total = area(left[cut - 1]) + area(right[cut])
            if shared < best_overlap or (shared == best_overlap and total < best_area):
                best_order, best_cut, best_overlap, best_area = order, cut, shared, total
    return best_order, best_cut


@kernel
def running_boxes(boxes: Array, order: Array) -> tuple[Array, Array]:
    """Bounding boxes of the first 1..n and of the last n..1 boxes of an order, each float64 (n, 2, d)."""
    n = len(order)
    left = np.empty((n, 2, boxes.shape[2]))
    right = np.empty((n, 2, boxes.shape[2]))
    left[0], right[n - 1] = boxes[order[0]], boxes[order[n - 1]]
    for i in range(1, n):
        for k in range(boxes.shape[2]):
            left[i, 0, k] = min(left[i - 1, 0, k], boxes[order[i], 0, k])
            left[i, 1, k] = max(left[i - 1, 1, k], boxes[order[i], 1, k])
            j = n - 1 - i
            right[j, 0, k] = min(right[j + 1, 0, k], boxes[order[j], 0, k])
            right[j, 1, k] = max(right[j + 1, 1, k], boxes[order[j], 1, k])
    return left, right


@kernel
def reinsert(tree: Tree, node: int, rows: Array, boxes: Array) -> None:
    """Keep the entries nearest to the node's centre, let the farthest wait, nearest of them first."""
    n = len(rows)
    distance = np.zeros(n)
    for k in range(boxes.shape[2]):
        centre = (boxes[:, 0, k].min() + boxes[:, 1, k].max()) / 2
        distance += ((boxes[:, 0, k] + boxes[:, 1, k]) / 2 - centre) ** 2
    order = np.argsort(distance, kind="mergesort")
    kept = n - min(max(1, int(n * REINSERTED_SHARE)), REINSERTED_MOST)
    level = tree.nodes[node].level
    tree.state[REINSERTED] |= 1 << level
    fill_node(tree, node, rows[order[:kept]])
    refresh_ancestors(tree, node)
    for i in range(n - 1, kept - 1, -1):  # `todo` is a stack
        wait(tree, rows[order[i]], level)


@kernel
def overflow(tree: Tree, node: int, extra: int) -> None:
    """Treat a full node that gets one entry more: reinsert once per level and insertion, else split."""
    while True:
        head = tree.nodes[node]
        level, parent = head.level, head.parent
        rows = np.empty(head.count + 1, np.int32)
        rows[: head.count] = tree.entries[head.entries : head.entries + head.count]
        rows[head.count] = extra
        source = rectangles(tree, level)
        boxes = np.empty((len(rows), 2, source.shape[2]))
        for i in range(len(rows)):
            framed(tree, source[rows[i]], boxes[i])
        if parent >= 0 and not (tree.state[REINSERTED] >> level) & 1:
            reinsert(tree, node, rows, boxes)
            return
        order, cut = split_order(boxes, minimum_of(tree, level))
        twin = new_node(tree, level)
        fill_node(tree, node, rows[order[:cut]])
        fill_node(tree, twin, rows[order[cut:]])
        if parent < 0:
            parent = new_node(tree, level + 1)
            fill_node(tree, parent, np.array([node, twin], np.int32))
            tree.state[ROOT] = parent
            tree.state[HEIGHT] += 1
            return
        refresh_ancestors(tree, node)
        if tree.nodes[parent].count < capacity_of(tree, level + 1):
            append_entry(tree, parent, twin)
            if extend(tree, parent, tree.mbr[twin]):
                refresh_ancestors(tree, parent)
            return
        node, extra = parent, twin


@kernel
def place(tree: Tree, row: int, level: int) -> None:
    """Give a waiting entry its node, splitting or reinserting where one is full."""
    sides = rectangles(tree, level)[row]
    node = tree.state[ROOT]
    extend(tree, node, sides)
    while tree.nodes[node].level > level:
        j = choose_child(tree, node, sides)
        child = tree.entries[tree.nodes[node].entries + j]
        if extend(tree, child, sides):
            refresh_entry(tree, node, j)
        node = child
    if tree.nodes[node].count < capacity_of(tree, level):
        append_entry(tree, node, row)
    else:
        overflow(tree, node, row)


@kernel
def drain(tree: Tree) -> bool:
    """Place all waiting entries; False when it stopped because the node pools must grow first."""
    while tree.state[TODO] > 0:
        if not has_room(tree):
            return False
        tree.state[TODO] -= 1
        place(tree, tree.todo[tree.state[TODO], 0], tree.todo[tree.state[TODO], 1])
    return True


@kernel
def enter(tree: Tree, identifier: int, low: Array, high: Array, exact: bool, sides: Array) -> None:
    """Add a box, which then waits for its place; `sides` (2, d) is scratch."""
    for k in range(len(low)):
        sides[0, k], sides[1, k] = low[k] + 0.0, high[k] + 0.0  # no negative zeros
    box = tree.box_table[place_of_box(tree, sides)]
    if box < 0:
        widen_frame(tree, sides)
        box = add_box(tree, sides)
        tree.state[REINSERTED] = 0
        wait(tree, box, 0)
    add_link(tree, identifier, box, exact)
    tree.state[UPDATES] += 1


@kernel
def insert(where: Array, start: int, ids: Array, low: Array, high: Array, exact: Array) -> int:
    """Insert boxes `start`.. of n in the tree at these addresses and return how many are in.

    Fewer than n, or entries still waiting: the node pools must grow first. The pools of boxes and links and
    the tables must have room for all n.
    """
    tree = opened(where)
    sides = np.empty((2, low.shape[1]))
    for i in range(start, len(ids)):
        if not drain(tree):
            return i
        enter(tree, ids[i], low[i], high[i], exact[i], sides)
    if drain(tree):
        redraw(tree)
    return len(ids)


@kernel
def insert_one(where: Array, identifier: int, low: Array, high: Array, exact: bool) -> bool:
    """Insert one box (d,), (d,) if it is one and all pools have the room; whether it was.

    Entries may still be waiting then. Less work to call than `insert`.
    """
    tree = opened(where)
    room = min(len(tree.slots) - tree.state[USED_BOX], len(tree.links) - tree.state[USED_LINK])
    valid = room > 0 and len(tree.id_table) >= 2 * (tree.state[LINKS] + 1) and has_room(tree)
    for k in range(len(low)):
        valid &= low[k] <= high[k]
    if not valid or not drain(tree):
        return False
    enter(tree, identifier, low, high, exact, np.empty((2, len(low))))
    if drain(tree):
        redraw(tree)
    return True


@kernel
def condense(tree: Tree, node: int, sides: Array) -> None:
    """After an entry left `node`: dissolve nodes that are too empty, shrink rectangles, up to the root."""
    gone = sides.copy()
    while tree.nodes[node].parent >= 0:
        head = tree.nodes[node]
        parent = head.parent
        before = tree.mbr[node].copy()
        if head.count < minimum_of(tree, head.level):
            for i in range(head.count):
                wait(tree, tree.entries[head.entries + i], head.level)
            remove_entry(tree, parent, position(tree, parent, node))
            free_node(tree, node)
        elif shrink(tree, node, gone):
            refresh_entry(tree, parent, position(tree, parent, node))
        else:
            return
        gone, node = before, parent
    shrink(tree, node, gone)


@kernel
def lower_root(tree: Tree) -> None:
    """While the root has a single child, let the child be the root. Nothing may be waiting."""
    root = tree.state[ROOT]
    while tree.nodes[root].level > 0 and tree.nodes[root].count == 1:
        child = tree.entries[tree.nodes[root].entries]
        free_node(tree, root)
        tree.nodes[child].parent = -1
        tree.state[ROOT] = child
        tree.state[HEIGHT] -= 1
        root = child


@kernel
def delete(where: Array, start: int, ids: Array, removed: Array) -> int:
    """Delete ids `start`.. of n with all their boxes and return how many are gone; see `insert`.

    `removed` (bool, n) is set where the id was known.
    """
    tree = opened(where)
    for i in range(start, len(ids)):
        while first_link(tree, ids[i]) >= 0:
            if not drain(tree):
                return i
            lower_root(tree)
            removed[i] = True
            box = remove_first_link(tree, ids[i])
            tree.state[UPDATES] += 1
            if box >= 0:
                leaf = tree.slots[box].leaf
                remove_entry(tree, leaf, position(tree, leaf, box))
                remove_box(tree, box)
                tree.state[REINSERTED] = 0
                condense(tree, leaf, tree.bounds[box])
    if drain(tree):
        lower_root(tree)
        redraw(tree)
    return len(ids)
