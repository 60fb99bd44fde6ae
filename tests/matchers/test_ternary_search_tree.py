"""The ternary search tree against a dict and `str.startswith`."""

from hypothesis import given
from hypothesis import strategies as st

from rtfilter.matchers.papers.ternary_search_tree import TernarySearchTree

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


def tree_of(*texts):
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
    tree = tree_of("")
    assert [tree.prefixes_of(text) for text in ("", "a", "é")] == [[""]] * 3
    tree.delete("")
    assert not tree
    assert tree.prefixes_of("a") == []


def test_a_prefix_may_be_as_long_as_the_text_but_no_longer():
    tree = tree_of("ab", "abc", "abcd")
    assert tree.prefixes_of("abc") == ["ab", "abc"]
    assert tree.prefixes_of("a") == []


def test_letters_beyond_ascii_are_letters():
    tree = tree_of("é", "éß", "\U0001f600", "e")
    assert tree.prefixes_of("éß!") == ["é", "éß"]
    assert tree.prefixes_of("\U0001f600\U0001f600") == ["\U0001f600"]
    assert tree.prefixes_of("e\u0301") == ["e"]  # an e and an accent: other letters than é


def test_long_texts_are_no_deep_recursion():
    text = "x" * 20_000
    tree = tree_of(text, "x", text[:-1] + "y")
    assert tree.prefixes_of(text) == ["x", text]
    tree.delete(text)
    assert tree.prefixes_of(text) == ["x"]
    for other in ("x", text[:-1] + "y"):
        tree.delete(other)
    assert not tree


def test_a_letter_between_others_goes_without_them():
    tree = tree_of("b", "a", "c")
    tree.delete("b")
    assert [tree.prefixes_of(text) for text in "abc"] == [["a"], [], ["c"]]
    assert len(nodes(tree)) == 3  # it parts the others until one of them goes
    tree.delete("a")
    assert len(nodes(tree)) == 1


def test_what_is_not_there_is_deleted_without_harm():
    tree = tree_of("abc")
    for text in ("", "a", "abd", "abcd", "z"):
        tree.delete(text)
    assert tree.prefixes_of("abc") == ["abc"]
