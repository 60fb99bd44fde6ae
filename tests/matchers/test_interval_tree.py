"""The interval tree against a list of intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.matchers.papers.interval_tree import IntervalTree

ENDS = st.integers(-4, 12)


def require_order(tree):
    """Check the order of nodes and the highest ends, and return the height."""
    height, waiting = 0, [(tree._root, 1)]
    while waiting:
        node, depth = waiting.pop()
        if node is None:
            continue
        height = max(height, depth)
        assert node.left is None or (node.left.key < node.key and node.left.priority <= node.priority)
        assert node.right is None or (node.right.key > node.key and node.right.priority <= node.priority)
        below = [child.highest for child in (node.left, node.right) if child is not None]
        assert node.highest == max([node.high, *below])
        waiting += [(node.left, depth + 1), (node.right, depth + 1)]
    return height


@given(st.lists(st.tuples(ENDS, ENDS), max_size=40), st.data())
def test_it_holds_what_a_list_holds(ends, data):
    tree, known = IntervalTree(), {}
    for number, (low, high) in enumerate(ends):  # some low ends are above the high ones
        tree.add(low, high, number, number)
        known[number] = (low, high)
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(known)))
            tree.remove(known.pop(gone)[0], gone)
        require_order(tree)
        assert bool(tree) == bool(known)
    for point in range(-5, 14):
        expected = [number for number, (low, high) in known.items() if low <= point <= high]
        assert sorted(tree.holding(point)) == expected
    for number, (low, _) in known.items():
        tree.remove(low, number)
    assert not tree


def test_both_ends_are_inside():
    tree = IntervalTree()
    tree.add(2, 5, 0, "range")
    tree.add(5, 5, 1, "point")
    assert [sorted(tree.holding(x)) for x in (1.9, 2, 5, 5.1)] == [[], ["range"], ["point", "range"], []]


def test_texts_have_an_order_as_well():
    tree = IntervalTree()
    tree.add("", "b", 0, "low")
    tree.add("b", "é", 1, "high")
    assert [sorted(tree.holding(text)) for text in ("", "b", "ba", "z", "éa")] == [
        ["low"],
        ["high", "low"],
        ["high"],
        ["high"],
        [],
    ]


@pytest.mark.slow
def test_ascending_ends_make_no_deep_tree():
    tree = IntervalTree()
    for at in range(10_000):
        tree.add(at, at + 1, at, at)
    assert require_order(tree) < 60
    assert sorted(tree.holding(5000)) == [4999, 5000]
    for at in range(10_000):
        tree.remove(at, at)
    assert not tree


def test_what_is_not_there_is_removed_without_harm():
    tree = IntervalTree()
    tree.add(1, 2, 7, "here")
    tree.remove(1, 8)
    tree.remove(2, 7)
    assert tree.holding(1) == ["here"]
