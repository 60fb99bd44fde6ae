"""Batch search: frontiers, workloads, and resuming from them."""

import numpy as np
import pytest

from boxes import random_boxes, random_points
from oracle import as_sets, matches
from rtfilter.index.kernels import layout
from rtfilter.index.tree import RStarTree


@pytest.fixture(scope="module", params=[(10, 20), (4, 4), (512, 4096)], ids=str)
def case(request):
    rng = np.random.default_rng(0)
    low, high = random_boxes(rng, 900, 4, top=30)
    points = random_points(rng, 120, 4, top=30)
    points[-20:] = points[:20]  # duplicates are jobs of their own
    tree = RStarTree(4, request.param)
    tree.insert_many(np.arange(900), low, high)
    return tree, low, high, points


class Node:
    """A plain view of a node, for walking the tree as the paper writes it."""

    def __init__(self, tree, row):
        self.tree, self.row = tree._tree, row
        head = self.tree.nodes[row]
        self.leaf = head["level"] == 0
        entries = self.tree.entries[head["entries"] :][: head["count"]]
        self.children = [] if self.leaf else [(Node(tree, child), self.tree.mbr[child]) for child in entries]


def literal_estimate(root, points, level):
    """The printed pseudo-code, which stops at CurrentLevel >= Level with the root at CurrentLevel 1."""
    workload = np.zeros(len(points), int)

    def visit(node, rows, current):
        if node.leaf or current >= level:
            workload[rows] += 1
            return
        for child, (low, high) in node.children:
            inside = ((low <= points[rows]) & (points[rows] <= high)).all(axis=1)
            visit(child, rows[inside], current + 1)

    visit(root, np.arange(len(points)), 1)
    return workload


def test_results_are_the_same_at_every_level(case):
    tree, low, high, points = case
    expected = matches(low, high, points)
    assert as_sets(tree.search(points)) == expected
    for level in range(tree.height + 2):  # beyond H - 1 it is clamped
        hits = tree.resume(tree.frontier(points, level))
        found = [
            set(hits.ids[a:b].tolist()) for a, b in zip(hits.offsets[:-1], hits.offsets[1:], strict=True)
        ]
        assert found == expected


def test_workload_at_the_root_is_one_for_all(case):
    tree, _, _, points = case
    assert (tree.frontier(points, 0).workload == 1).all()


def test_workload_counts_the_nodes_whose_path_contains_the_event(case):
    tree, _, _, points = case
    for level in range(tree.height):
        # A node's rectangle lies inside all those above it, so it alone decides (the root is never tested).
        low, high = tree.boxes_at_level(level)
        expected = [len(found) for found in matches(low, high, points)] if level else [1] * len(points)
        assert tree.frontier(points, level).workload.tolist() == expected


def test_the_printed_pseudo_code_is_one_level_off(case):
    tree, _, _, points = case
    root = Node(tree, int(tree._tree.state[layout.ROOT]))
    for printed in range(tree.height + 3):
        normalised = max(printed - 1, 0)
        assert (
            literal_estimate(root, points, printed) == tree.frontier(points, normalised).workload
        ).all(), f"printed level {printed}"


def test_estimate_and_search_visit_what_a_plain_search_visits(case):
    tree, _, _, points = case
    plain = tree.hits(points).visits.sum()
    one_by_one = sum(tree.hits(point[None]).visits.sum() for point in points)
    assert plain == one_by_one
    for level in range(tree.height):
        frontier = tree.frontier(points, level)
        assert frontier.visits + tree.resume(frontier).visits.sum() == plain


def test_events_that_reach_no_node_are_answered_without_search(case):
    tree, _, _, _ = case
    outside = np.full((3, 4), 1e9)
    diagonal = np.tile(np.arange(5000.0)[:, None], 4)  # more than one leaf of any capacity
    bounded = RStarTree.bulk_load(diagonal, diagonal, capacity=tree.capacity)
    frontier = bounded.frontier(outside, 1)
    assert frontier.workload.tolist() == [0, 0, 0]
    hits = bounded.resume(frontier)
    assert len(hits.ids) == 0
    assert hits.visits.sum() == 0


def test_split_frontiers_give_what_the_whole_gives(case):
    tree, low, high, points = case
    rng = np.random.default_rng(1)
    expected = matches(low, high, points)
    for level in range(tree.height):
        frontier = tree.frontier(points, level)
        order = rng.permutation(len(points))
        cuts = np.array([0, 1, 2, 40, 40, len(points)])  # one group is empty
        visits = 0
        parts = frontier.split(order, cuts)
        for g in range(len(cuts) - 1):
            rows = order[cuts[g] : cuts[g + 1]]
            hits = tree.resume_part(parts, g)
            visits += hits.visits.sum()
            for i, row in enumerate(rows):
                own = hits.ids[hits.offsets[i] : hits.offsets[i + 1]]
                assert set(own.tolist()) == expected[row]
        assert visits == tree.resume(frontier).visits.sum()


def test_a_split_must_cover_the_batch(case):
    tree, _, _, points = case
    frontier = tree.frontier(points, 1)
    with pytest.raises(ValueError, match="permutation"):
        frontier.split(np.arange(len(points) - 1), np.array([0, len(points) - 1]))


def test_an_empty_batch_and_an_empty_tree_have_empty_results(case):
    tree, _, _, points = case
    assert tree.resume(tree.frontier(points[:0], 1)).offsets.tolist() == [0]
    empty = RStarTree(4)
    assert empty.frontier(points, 5).workload.tolist() == [1] * len(points)
    assert len(empty.resume(empty.frontier(points, 0)).ids) == 0
    assert not empty.any(points).any()


def test_rectangles_and_the_transformed_space_agree():
    """An interval [l, u] as the point (l, u), an event v as the query l <= v <= u: 6 attributes in 12-d."""
    from experiments.paper.transform import transform_boxes, transform_points

    rng = np.random.default_rng(2)
    low, high = random_boxes(rng, 500, 6, top=20)
    points = rng.integers(0, 20, (100, 6)).astype(float)
    plain = RStarTree.bulk_load(low, high, capacity=(10, 20))
    moved = RStarTree.bulk_load(*transform_boxes(low, high), capacity=(10, 20))
    assert moved.dimensions == 12
    assert as_sets(moved.search(transform_points(points))) == as_sets(plain.search(points))


@pytest.mark.parametrize(
    ("order", "cuts"),
    [([0, 0, 1], [0, 3]), ([0, 1, 3], [0, 3]), ([0, 1, 2], [0, 2, 1, 3]), ([0, 1, 2], [1, 3])],
)
def test_wrong_splits_are_refused(order, cuts):
    tree = RStarTree(1)
    frontier = tree.frontier([[1.0], [2.0], [3.0]], 0)
    with pytest.raises(ValueError, match="permutation"):
        frontier.split(np.array(order), np.array(cuts))
    parts = frontier.split(np.arange(3), np.array([0, 3]))
    with pytest.raises(IndexError, match="there is no group 1 among 1"):
        tree.resume_part(parts, 1)
