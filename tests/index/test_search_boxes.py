"""Searching by query boxes: stored boxes that intersect them, contain them, or lie within them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxes import random_boxes, random_points
from cases import cases
from lengths import long_but
from oracle import as_sets
from rtfilter.index.selection import QueryBoxes
from rtfilter.index.tree import RStarTree

INF = np.inf
CAPACITIES = [(10, 20), (4, 4), (512, 4096), (70, 130)]
HOWS = ["intersect", "contain", "within"]


def related(how, low, high, query_low, query_high, ids=None):
    """Ids of the stored boxes that each query selects, by brute force."""
    names = np.arange(len(low)) if ids is None else np.asarray(ids)
    selects = {
        "intersect": lambda a, b: (low <= b) & (a <= high),
        "contain": lambda a, b: (low <= a) & (b <= high),
        "within": lambda a, b: (a <= low) & (high <= b),
    }[how]
    return [
        set(names[selects(*ends).all(axis=1)].tolist()) for ends in zip(query_low, query_high, strict=True)
    ]


def sets(hits):
    """The ids of each query of `Hits` as sets."""
    parts = np.split(hits.ids, hits.offsets[1:-1])
    assert all(len(part) == len(np.unique(part)) for part in parts), "an id is reported twice"
    return [set(part.tolist()) for part in parts][: len(hits.offsets) - 1]


def require_agreement(tree, low, high, ids, query_low, query_high, rng):
    """All ways to ask give what brute force gives, for all selections."""
    n = len(query_low)
    for how in HOWS:
        expected = related(how, low, high, query_low, query_high, ids)
        queries = QueryBoxes(query_low, query_high, how)
        assert as_sets(tree.search_boxes(query_low, query_high, how)) == expected, how
        assert tree.count(queries).tolist() == [len(found) for found in expected]
        assert tree.any(queries).tolist() == [len(found) > 0 for found in expected]
        visits = tree.hits(queries).visits
        for level in range(tree.height + 1):
            frontier = tree.frontier(queries, level)
            finished = tree.resume(frontier)
            assert sets(finished) == expected, (how, level)
            assert frontier.visits + finished.visits.sum() == visits.sum()
            order, cuts = rng.permutation(n), np.array([0, n // 3, n // 3, n])
            parts = frontier.split(order, cuts)
            for g in range(3):
                wanted = [expected[row] for row in order[cuts[g] : cuts[g + 1]]]
                assert sets(tree.resume_part(parts, g)) == wanted


@st.composite
def boxes(draw, d, most):
    """Boxes of few different ends: many touch, are equal, degenerate or open."""
    value = st.sampled_from([-INF, *range(6), INF])
    ends = st.tuples(value, value).map(sorted)
    drawn = draw(st.lists(st.lists(ends, min_size=d, max_size=d), max_size=most))
    sides = np.array(drawn, float).reshape(len(drawn), d, 2)
    return sides[:, :, 0], sides[:, :, 1]


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=150)
def test_every_selection_equals_brute_force_after_any_change(data):
    d = data.draw(st.integers(1, 3))
    capacity = data.draw(st.sampled_from([(4, 4), (4, 7), (10, 20), (70, 130), (512, 4096)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    packed, inserted = data.draw(boxes(d, 60)), data.draw(boxes(d, 30))
    low, high = np.vstack([packed[0], inserted[0]]), np.vstack([packed[1], inserted[1]])
    most = data.draw(st.sampled_from([5, 1000]))  # ids with several boxes, or hardly any
    ids = rng.integers(0, most, len(low))
    n = len(packed[0])
    tree = RStarTree.bulk_load(*packed, ids[:n], capacity=capacity)
    tree.insert_many(ids[n:], *inserted)
    gone = rng.choice(ids, len(ids) // 4) if len(ids) else ids
    tree.delete_many(gone)
    kept = ~np.isin(ids, gone)
    query_low, query_high = data.draw(boxes(d, 12))
    require_agreement(tree, low[kept], high[kept], ids[kept], query_low, query_high, rng)


@pytest.mark.slow
@pytest.mark.parametrize("capacity", long_but(CAPACITIES, [(4, 4), (512, 4096)]))
@pytest.mark.parametrize("d", long_but([1, 2, 12, 64], [2, 12]))
@pytest.mark.parametrize("way", ["bulk", "insert"])
def test_every_selection_equals_brute_force(capacity, d, way):
    rng = np.random.default_rng(d)
    low, high = random_boxes(rng, 700, d)
    query_low, query_high = random_boxes(rng, 60, d)
    query_low[:20], query_high[:20] = low[:20], high[:20]  # identical to stored boxes
    query_low[20:40], query_high[20:40] = low[20:40] - 1, high[20:40] + 1  # around them
    middle = (np.clip(low[40:50], -1e6, 1e6) + np.clip(high[40:50], -1e6, 1e6)) / 2
    query_low[40:50] = query_high[40:50] = middle  # within them
    query_low[50], query_high[50] = -INF, INF
    if way == "bulk":
        tree = RStarTree.bulk_load(low, high, capacity=capacity)
    else:
        tree = RStarTree(d, capacity)
        tree.insert_many(np.arange(700), low, high)
    ids = np.arange(700)
    require_agreement(tree, low, high, ids, query_low, query_high, rng)
    tree.delete_many(np.arange(0, 700, 2))
    require_agreement(tree, low[1::2], high[1::2], ids[1::2], query_low, query_high, rng)


@pytest.mark.slow
def test_real_coordinates_equal_brute_force():
    """Ends within one cell of a node's grid, and on both sides of a cell's border."""
    rng = np.random.default_rng(3)
    low = rng.random((6000, 2))
    high = low + rng.random((6000, 2)) ** 8
    query_low = np.vstack([low[:40], rng.random((160, 2))])
    query_high = np.vstack([high[:40], query_low[40:] + rng.random((160, 2)) ** 4])
    query_low[:20] = np.nextafter(query_low[:20], INF)  # barely other than a stored box
    for capacity in [(10, 20), (512, 4096)]:
        tree = RStarTree.bulk_load(low, high, capacity=capacity)
        require_agreement(tree, low, high, np.arange(6000), query_low, np.maximum(query_low, query_high), rng)


def test_rtree_finds_the_same_boxes_intersecting():
    from rtree.index import Index, Property

    rng = np.random.default_rng(4)
    low = rng.integers(0, 50, (3000, 3)).astype(float)
    high = low + rng.integers(0, 4, (3000, 3))
    query_low = rng.integers(0, 50, (200, 3)).astype(float)
    query_high = query_low + rng.integers(0, 20, (200, 3))
    peer = Index((np.arange(3000), low, high), properties=Property(dimension=3))
    expected = [set(peer.intersection(box)) for box in np.hstack([query_low, query_high])]
    tree = RStarTree.bulk_load(low, high, capacity=(10, 20))
    assert as_sets(tree.search_boxes(query_low, query_high, "intersect")) == expected


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_point_as_a_box_is_contained_and_intersected_alike(capacity):
    rng = np.random.default_rng(5)
    low, high = random_boxes(rng, 500, 3)
    points = random_points(rng, 50, 3)
    tree = RStarTree.bulk_load(low, high, capacity=capacity)
    expected = as_sets(tree.search(points))
    for how in ("contain", "intersect"):
        assert as_sets(tree.search_boxes(points, points, how)) == expected


def test_an_unconstrained_side_lies_within_an_unbounded_query_only():
    low, high = np.full((300, 2), -INF), np.full((300, 2), INF)
    low[:, 0] = high[:, 0] = np.arange(300)  # no box constrains the other dimension
    for capacity in [(10, 20), (512, 4096)]:
        tree = RStarTree.bulk_load(low, high, capacity=capacity)
        bounded = [[10.0, -1e308]], [[20.0, 1e308]]
        assert tree.search_boxes(*bounded, "within").counts.tolist() == [0]
        assert tree.search_boxes(*bounded, "intersect").counts.tolist() == [11]
        assert tree.search_boxes([[10.0, -INF]], [[20.0, INF]], "within").counts.tolist() == [11]
        assert tree.search_boxes([[10.0, -INF]], [[10.0, INF]], "contain").counts.tolist() == [1]
        assert tree.search_boxes([[10.0, -INF]], [[20.0, 5.0]], "within").counts.tolist() == [0]
        everything = np.full((1, 2), -INF), np.full((1, 2), INF)
        assert tree.search_boxes(*everything, "within").counts.tolist() == [300]
        assert tree.search_boxes(*everything, "contain").counts.tolist() == [0]


def test_boxes_of_one_id_are_judged_by_themselves_and_the_id_is_found_once():
    tree = RStarTree(1)
    for low, high in [(0, 2), (2, 4), (8, 9)]:
        tree.insert(7, [low], [high])
    assert tree.search_boxes([[1]], [[3]], "contain")[0].tolist() == []  # the two are not joined
    assert tree.search_boxes([[1]], [[3]], "intersect")[0].tolist() == [7]
    assert tree.search_boxes([[0]], [[4]], "within")[0].tolist() == [7]
    assert tree.delete(7)
    assert tree.search_boxes([[0]], [[9]], "intersect").counts.tolist() == [0]


def test_exactness_is_told_and_any_waits_for_an_exact_hit():
    tree = RStarTree(1)
    tree.insert(1, [0], [10], exact=False)
    tree.insert(2, [0], [9])
    tree.insert(3, [5], [20], exact=False)
    hits = tree.hits(QueryBoxes([[6]], [[8]], "contain"))
    assert dict(zip(hits.ids.tolist(), hits.exact.tolist(), strict=True)) == {1: 0, 2: 1, 3: 0}
    found = tree.hits(QueryBoxes([[6], [12]], [[8], [15]], "contain"), first_only=True)
    assert np.diff(found.offsets).tolist() == [3, 1]


def test_more_queries_than_a_chunk_are_all_answered(monkeypatch):
    rng = np.random.default_rng(6)
    low, high = random_boxes(rng, 300, 2)
    queries = random_boxes(rng, 100, 2)
    tree = RStarTree.bulk_load(low, high, capacity=(10, 20))
    monkeypatch.setattr("rtfilter.index.tree.CHUNK", 7)
    for how in HOWS:
        assert as_sets(tree.search_boxes(*queries, how)) == related(how, low, high, *queries)


def test_no_queries_and_no_boxes_have_empty_results():
    tree = RStarTree(2)
    for how in HOWS:
        assert len(tree.search_boxes(np.empty((0, 2)), np.empty((0, 2)), how)) == 0
        assert tree.search_boxes([[0, 0]], [[1, 1]], how).counts.tolist() == [0]


@cases(
    ("low", "high", "how", "message"),
    [
        ([[0, 0]], [[1, 1]], "touch", "how must be one of 'intersect', 'contain', 'within', not 'touch'"),
        ([[0, 0]], [[1, 1]], None, "how must be one of .*, not None"),
        ([[0, 0], [0, 2]], [[1, 1], [1, 1]], "within", "box 1 is not a box: every low must be <= its high"),
        ([[0, np.nan]], [[1, 1]], "within", "box 0 is not a box: .* neither NaN"),
        ([[0, 0]], [[1, np.nan]], "contain", "box 0 is not a box: .* neither NaN"),
        ([[0]], [[1]], "intersect", "2 dimensions, not 1"),
        ([0, 0], [1, 1], "intersect", r"must both have shape \(n, d\)"),
        ([[0, 0]], [[1, 1], [2, 2]], "intersect", "must both have shape"),
    ],
)
def test_wrong_queries_say_what_is_wrong(low, high, how, message):
    tree = RStarTree(2)
    with pytest.raises(ValueError, match=message):
        tree.search_boxes(low, high, how)
    with pytest.raises(ValueError, match=message):
        tree.frontier(QueryBoxes(low, high, how), 0)
