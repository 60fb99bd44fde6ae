"""The interval tree against a list of intervals, and the ternary search tree against a dict."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtfilter.matchers.papers.operator_indexes import IntervalTree, TernarySearchTree

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
        assert sorted(tree.containing(point)) == expected
    for number, (low, _) in known.items():
        tree.remove(low, number)
    assert not tree


def test_both_ends_are_inside():
    tree = IntervalTree()
    tree.add(2, 5, 0, "range")
    tree.add(5, 5, 1, "point")
    assert [sorted(tree.containing(x)) for x in (1.9, 2, 5, 5.1)] == [[], ["range"], ["point", "range"], []]


def test_texts_have_an_order_as_well():
    tree = IntervalTree()
    tree.add("", "b", 0, "low")
    tree.add("b", "é", 1, "high")
    assert [sorted(tree.containing(text)) for text in ("", "b", "ba", "z", "éa")] == [
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
    assert sorted(tree.containing(5000)) == [4999, 5000]
    for at in range(10_000):
        tree.remove(at, at)
    assert not tree


def test_what_is_not_there_is_removed_without_harm():
    tree = IntervalTree()
    tree.add(1, 2, 7, "here")
    tree.remove(1, 8)
    tree.remove(2, 7)
    assert tree.containing(1) == ["here"]


# -- texts ---------------------------------------------------------------------------------------------------

TEXTS = st.text("abcé\U0001f600", max_size=4)


def nodes(tree):
    """All nodes but the top."""
    waiting, found = [tree._top.equal], []
    while waiting:
        node = waiting.pop()
        if node is not None:
            found.append(node)
            waiting += [node.low, node.equal, node.high]
    return found


def texts_of(*texts):
    tree = TernarySearchTree()
    for text in texts:
        tree.put(text, text)
    return tree


@given(st.lists(st.tuples(st.booleans(), TEXTS), max_size=40), st.lists(TEXTS, max_size=10))
def test_it_knows_what_a_dict_knows(changes, asked):
    tree, known = TernarySearchTree(), {}
    for at, (put, text) in enumerate(changes):
        if put:
            tree.put(text, at)
            known[text] = at
        else:
            tree.delete(text)
            known.pop(text, None)
        assert bool(tree) == bool(known)
        for node in nodes(tree):
            sides = node.low is not None and node.high is not None
            assert node.value is not None or node.equal is not None or sides, "a node that nobody needs"
    for text in [*asked, *(text for _, text in changes)]:
        assert tree.get(text) == known.get(text)
        expected = [known[text[:n]] for n in range(len(text) + 1) if text[:n] in known]
        assert tree.prefixes_of(text) == expected
    for text in known:
        tree.delete(text)
    assert not tree


def test_the_empty_text_begins_every_text():
    tree = texts_of("")
    assert [tree.prefixes_of(text) for text in ("", "a", "é")] == [[""]] * 3
    tree.delete("")
    assert not tree
    assert tree.prefixes_of("a") == []


def test_a_prefix_may_be_as_long_as_the_text_but_no_longer():
    tree = texts_of("ab", "abc", "abcd")
    assert tree.prefixes_of("abc") == ["ab", "abc"]
    assert tree.prefixes_of("a") == []


def test_letters_beyond_ascii_are_letters():
    tree = texts_of("é", "éß", "\U0001f600", "e")
    assert tree.prefixes_of("éß!") == ["é", "éß"]
    assert tree.prefixes_of("\U0001f600\U0001f600") == ["\U0001f600"]
    assert tree.prefixes_of("e\u0301") == ["e"]  # an e and an accent: other letters than é


def test_long_texts_are_no_deep_recursion():
    text = "x" * 20_000
    tree = texts_of(text, "x", text[:-1] + "y")
    assert tree.prefixes_of(text) == ["x", text]
    tree.delete(text)
    assert tree.prefixes_of(text) == ["x"]
    for other in ("x", text[:-1] + "y"):
        tree.delete(other)
    assert not tree


def test_a_letter_between_others_goes_without_them():
    tree = texts_of("b", "a", "c")
    tree.delete("b")
    assert [tree.prefixes_of(text) for text in "abc"] == [["a"], [], ["c"]]
    assert len(nodes(tree)) == 3  # it parts the others until one of them goes
    tree.delete("a")
    assert len(nodes(tree)) == 1


def test_a_text_that_is_not_there_is_deleted_without_harm():
    tree = texts_of("abc")
    for text in ("", "a", "abd", "abcd", "z"):
        tree.delete(text)
    assert tree.prefixes_of("abc") == ["abc"]
