"""The BE-Tree: what lies where, what a search visits, and that removal leaves nothing behind."""

import mmap

import numpy as np
import pytest
from box_cases import containing, drawn, filters, found, schema
from hypothesis import given, settings
from hypothesis import strategies as st

from rtfilter.index.kernels.pools import LARGE
from rtfilter.matchers import make_matcher
from rtfilter.matchers.papers.be_tree import FULL, NODES, NONE, PIECE, PIECES, BETreeMatcher


def nodes_below(tree):
    """All nodes with their attributes and intervals on the way from the root."""
    waiting, seen = [(0, {})], []
    while waiting:
        node, way = waiting.pop()
        own = tree.nodes[node]
        if own["attribute"] != NONE:
            way = way | {int(own["attribute"]): (own["low"], own["high"])}
        seen.append((node, way))
        if own["left"] != NONE:
            for half, ends in (("left", (own["low"], own["cut"])), ("right", (own["cut"], own["high"]))):
                child = tree.nodes[own[half]]
                assert (child["low"], child["high"]) == ends
                assert child["attribute"] == own["attribute"]
                assert child["parent"] == node
                waiting.append((own[half], way))
        partition, chosen = own["partition"], []
        while partition != NONE:
            chosen.append(int(tree.nodes[partition]["attribute"]))
            assert chosen[-1] not in way, "an attribute is used twice on a way"
            assert tree.nodes[partition]["parent"] == node
            waiting.append((partition, way))
            partition = tree.nodes[partition]["next"]
        assert len(set(chosen)) == len(chosen)
    return seen


def check(matcher):
    """Every invariant of the tree."""
    tree, rows = matcher._tree, matcher._rows
    seen = nodes_below(tree)
    assert len({node for node, _ in seen}) == len(seen) == tree.state[NODES]
    listed, pieces = [], 0
    for node, way in seen:
        piece, rest = tree.nodes[node]["piece"], int(tree.nodes[node]["count"])
        while rest:
            size = (rest - 1) % PIECE + 1
            for at in range(piece * PIECE, piece * PIECE + size):
                row = int(tree.slots[at])
                assert (tree.node[row], tree.slot[row]) == (node, at)
                listed.append(row)
                for j, (low, high) in way.items():
                    assert rows.low[row, j] > -np.inf or rows.high[row, j] < np.inf
                    assert low <= rows.low[row, j] or low == -np.inf
                    assert rows.high[row, j] < high or high == np.inf
            rest, piece, pieces = rest - size, tree.before[piece], pieces + 1
    assert pieces == tree.state[PIECES]
    assert sorted(listed) == np.flatnonzero(tree.node >= 0).tolist()
    free = tree.free[: tree.state[0]].tolist()
    assert sorted(free + listed) == list(range(len(tree.node)))
    assert rows.alive[: len(tree.node)].sum() == len(listed)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data())
def test_any_changes_leave_a_sound_tree_that_answers_as_brute_force(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    dimensions = data.draw(st.integers(1, 4))
    matcher, held, following = BETreeMatcher(schema(dimensions)), {}, 0
    for _ in range(data.draw(st.integers(1, 6))):
        count = data.draw(st.integers(0, 400))
        low, high = drawn(rng, count, dimensions, top=data.draw(st.sampled_from([2, 20, 5000])))
        ids = range(following, following + count)
        matcher.add(filters(low, high, ids))
        held |= {id: (a, b) for id, a, b in zip(ids, low, high, strict=True)}
        following += count
        check(matcher)
        gone = rng.permutation(np.array(list(held), np.int64))[: data.draw(st.integers(0, 500))]
        assert matcher.remove(gone).all()
        held = {id: box for id, box in held.items() if id not in set(gone.tolist())}
        check(matcher)
        points = rng.integers(-1, 25, (9, dimensions)).astype(float)
        names = np.array(list(held), np.int64)
        sides = np.array(list(held.values())).reshape(-1, 2, dimensions)
        expected = [sorted(names[own].tolist()) for own in containing(sides[:, 0], sides[:, 1], points)]
        hits = matcher.match(schema(dimensions).read(points))
        assert found(hits) == expected
        assert (matcher.workload(schema(dimensions).read(points)) == hits.visits).all()
    matcher.remove(np.array(list(held), np.int64))
    check(matcher)
    assert (matcher._tree.state[NODES], matcher._tree.state[PIECES]) == (1, 0)
    assert matcher._tree.nodes[0]["full"] == FULL


def test_a_search_visits_the_half_that_holds_the_value():
    # 65 values in one list: partitioned by the only attribute, then cut at the median.
    low = np.arange(66.0)[:, None]
    matcher = BETreeMatcher(schema(1))
    matcher.add(filters(low[:64], low[:64]))
    assert matcher.stats()["nodes"] == 1
    assert matcher.match(schema(1).read([[3.0]])).visits.tolist() == [1 + 64]
    matcher.add(filters(low[64:65], low[64:65], [64]))
    assert matcher.stats()["nodes"] == 2
    assert matcher.match(schema(1).read([[3.0]])).visits.tolist() == [2 + 65]
    matcher.add(filters(low[65:], low[65:], [65]))
    assert matcher.stats()["nodes"] == 4
    assert matcher.match(schema(1).read([[3.0], [40.0]])).visits.tolist() == [3 + 33] * 2


def test_one_value_gets_an_interval_of_its_own():
    low = np.full((200, 1), 7.0)
    matcher = BETreeMatcher(schema(1))
    matcher.add(filters(low, low))
    assert matcher.match(schema(1).read([[7.0]])).visits[0] >= 200
    assert matcher.match(schema(1).read([[6.0], [8.0]])).visits.max() <= 5


def test_attributes_take_turns_where_sides_span_the_cut():
    rng = np.random.default_rng(3)
    low, high = np.sort(rng.random((2, 5000, 6)), axis=0)
    matcher = BETreeMatcher(schema(6))
    matcher.add(filters(low, high))
    check(matcher)
    visits = matcher.match(schema(6).read(rng.random((50, 6)))).visits
    assert visits.mean() < 1500


def test_a_list_that_cannot_be_cut_is_left_alone_until_it_is_twice_as_long():
    matcher = BETreeMatcher(schema(2))
    everything = np.full((500, 2), np.inf)
    matcher.add(filters(-everything, everything))
    assert matcher.stats()["nodes"] == 1
    assert matcher._tree.nodes[0]["full"] >= 500
    matcher.remove(np.arange(490))
    assert matcher._tree.nodes[0]["full"] == FULL


@pytest.mark.parametrize("order", ["as added", "backwards", "mixed"])
def test_rows_nodes_and_pieces_are_used_again(order):
    rng = np.random.default_rng(4)
    low, high = drawn(rng, 3000, 3)
    matcher = BETreeMatcher(schema(3))
    ids = {"as added": np.arange(3000), "backwards": np.arange(3000)[::-1], "mixed": rng.permutation(3000)}
    sizes = set()
    for _ in range(4):
        matcher.add(filters(low, high))
        sizes.add((matcher.stats()["bytes"], matcher.stats()["nodes"]))
        assert matcher.remove(ids[order]).all()
        assert matcher.stats()["boxes"] == 0
    assert len(sizes) == 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="no address space to reserve")
@pytest.mark.parametrize("name", ["be-tree", "masks"])
def test_boxes_are_not_copied_when_many_become_more(name):
    """Else a single change of a million would take as long as copying them."""
    count = LARGE // (8 * 64)
    low, high = drawn(np.random.default_rng(5), count, 64)
    matcher = make_matcher(name, schema(64))
    matcher.add(filters(low, high))
    before, memory = matcher._rows.low, matcher.stats()["bytes"]
    matcher.add(filters(low, high, np.arange(count, 2 * count)))
    assert matcher._rows.low is before
    assert 1.5 * memory < matcher.stats()["bytes"] < 3 * memory
