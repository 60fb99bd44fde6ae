"""Matchers over booleans: what they find, how much work that takes, and what changes leave behind."""

import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ternary_cases import (
    NAMES,
    add,
    asked,
    expected,
    matcher_of,
    plain_visits,
    schema_of,
    worlds,
)

import rtfilter.matchers.papers.rapidmatch
import rtfilter.matchers.papers.ternary
import rtfilter.matchers.papers.ternary_vectors
from interrupts import Interrupt, Lines
from lengths import long_but
from rtfilter import EventFilter, PredicateError
from rtfilter.matchers.papers.ternary import ABSENT, ALIEN, ONE, ZERO
from rtfilter.matchers.papers.ternary_vectors import ROOM

EXAMPLE = {
    1: "00111", 2: "01101", 3: "*11*1", 4: "00000", 5: "01*01", 6: "01000", 7: "10*01",
}  # fmt: skip
EXAMPLE = {id: (cells,) for id, cells in EXAMPLE.items()}
TREES = ("ternary-tree", "rapidmatch", "rapidmatch-modified")
names = pytest.mark.parametrize("name", NAMES)


# -- what is found -------------------------------------------------------------------------------------------


@names
def test_the_papers_example_is_answered_right(name):
    """The paper concludes 2 and 7, though 7 asks for a 1 in the first place, where the event has 0."""
    assert asked(matcher_of(name, EXAMPLE, 5), "01101")[0] == [{2, 3, 5}]


@pytest.mark.slow
@names
@given(world=worlds("01*+?!", "01_x"))
def test_all_operators_and_events_that_lack_attributes(name, world):
    width, subscriptions, events = world
    matcher = matcher_of(name, subscriptions, width)
    assert asked(matcher, *events)[0] == [expected(subscriptions, event) for event in events]


@names
def test_operators_and_contradictions(name):
    filter = EventFilter(schema_of(2), matcher=name)
    filter.subscribe_many(
        ["b0 = TRUE", "b0 <> TRUE", "b0 IN (TRUE)", "b0 NOT IN (TRUE)", "b0 NOT IN (TRUE, FALSE)"]
    )
    filter.subscribe_many(["b0 = TRUE AND b0 = FALSE", "b0 = TRUE AND b0 = TRUE", "NOT b0 = FALSE", "TRUE"])
    found = [sorted(filter.match({"b0": value, "b1": True})) for value in (True, False)]
    assert found == [[0, 2, 6, 7, 8], [1, 3, 8]]
    assert filter.match({}).tolist() == [8]


@pytest.mark.slow
@names
def test_many_attributes_and_bounds_as_arrays(name):
    rng = np.random.default_rng(0)
    width = 130  # three words
    subscriptions = {id: ("".join(rng.choice(list("01*"), width, p=[0.02, 0.02, 0.96])),) for id in range(60)}
    events = ["".join(rng.choice(list("01_x"), width, p=[0.5, 0.4, 0.05, 0.05])) for _ in range(40)]
    events += ["0" * width, "1" * width, "_" * width]
    matcher = matcher_of(name, subscriptions, width)
    assert asked(matcher, *events)[0] == [expected(subscriptions, event) for event in events]
    filter = EventFilter(schema_of(1), matcher=name)
    inf = np.inf
    filter.subscribe_boxes([[-inf, 1, -inf], [-inf, 0, -inf]], [[inf, 1, inf], [inf, 1, inf]])
    assert [sorted(filter.match({"b0": value})) for value in (False, True)] == [[1], [0, 1]]


@names
def test_only_booleans_are_taken(name, tmp_path):
    filter = EventFilter(schema_of(2), matcher=name)
    with pytest.raises(PredicateError, match="does not take attributes of type number, but only bool"):
        filter.subscribe("b0 = TRUE AND x = 3")
    with pytest.raises(PredicateError, match="does not take comparisons"):
        filter.subscribe("b0 = b1")
    other = EventFilter(schema_of(2))
    other.subscribe("x = 3")
    other.save(tmp_path / "index")
    with pytest.raises(PredicateError, match="does not take attributes of type number"):
        EventFilter.load(tmp_path / "index", matcher=name)


@names
def test_a_pickled_one_answers_the_same(name):
    matcher = pickle.loads(pickle.dumps(matcher_of(name, EXAMPLE, 5)))
    assert asked(matcher, "01101")[0] == [{2, 3, 5}]


# -- RAPIDMatch ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rapidmatch", "rapidmatch-modified"])
@given(world=worlds("01*+?!", "01_x"), data=st.data())
def test_every_admissible_block_gives_the_same(name, world, data):
    width, subscriptions, events = world
    matcher = matcher_of(name, subscriptions, width, c=data.draw(st.integers(0, width - 1)))
    for event in events:
        states = states_of(event)
        for block in matcher.admissible(states):
            assert block.tree.search(block.tested(states))[0] == expected(subscriptions, event)


def states_of(event):
    """The states of an event such as ``01_``."""
    return bytes({"0": ZERO, "1": ONE, "_": ABSENT, "x": ALIEN}[state] for state in event)


@pytest.mark.parametrize("c", range(5))
def test_events_of_up_to_c_ones_have_a_block_and_others_none(c):
    matcher = matcher_of("rapidmatch", EXAMPLE, 5, c=c)
    for event in map("".join, product("01", repeat=5)):
        ones = event.count("1")
        able = matcher.admissible(states_of(event))
        assert bool(able) == (ones <= c)
        assert {(one.most, len(one.tested(b"." * 5)) < 5) for one in able} <= {(ones, True)}
        assert asked(matcher, event)[0] == [expected(EXAMPLE, event)]


def test_blocks_are_of_nearly_equal_length_and_end_where_the_next_begins():
    for width in (1, 5, 50):
        for t, level in enumerate(rtfilter.matchers.papers.rapidmatch.partitions(width, width - 1, 1)):
            lengths = [one.last - one.first for one in level]
            assert (len(lengths), sum(lengths)) == (t + 1, width)
            assert max(lengths) - min(lengths) <= 1
            assert [one.first for one in level] == [0, *(one.last for one in level[:-1])]


def test_a_subscription_is_in_each_tree_that_it_fits():
    """The blocks of four attributes are 0..3; 0..1 and 2..3; 0, 1 and 2..3."""
    matcher = matcher_of("rapidmatch", {1: ("1***",), 2: ("****",), 3: ("11**",)}, 4, c=2)
    held = [
        [{id for _, ids in one.tree.vectors() for id in ids} for one in level]
        for level in matcher._by_common[ZERO]
    ]
    assert held == [[{2}], [{2}, {1, 2}], [{2}, {1, 2}, {1, 2, 3}]]


@given(world=worlds())
def test_modified_visits_the_same_nodes_where_ones_are_no_more_than_zeros(world):
    width, subscriptions, events = world
    one, other = (matcher_of(name, subscriptions, width) for name in ("rapidmatch", "rapidmatch-modified"))
    rare = [event for event in events if event.count("1") <= event.count("0")]
    assert asked(one, *rare) == asked(other, *rare)


@pytest.mark.slow
@given(world=worlds())
def test_modified_is_the_same_with_zeros_and_ones_exchanged(world):
    width, subscriptions, events = world
    flip = str.maketrans("01", "10")
    flipped = {id: tuple(cells.translate(flip) for cells in own) for id, own in subscriptions.items()}
    uneven = [event for event in events if 2 * event.count("1") != width]
    one, other = (matcher_of("rapidmatch-modified", own, width) for own in (subscriptions, flipped))
    assert asked(one, *uneven) == asked(other, *(event.translate(flip) for event in uneven))


def test_modified_needs_few_nodes_for_events_with_few_zeros():
    rng = np.random.default_rng(0)
    subscriptions = {id: ("".join(rng.choice(list("01*"), 20, p=[0.1, 0.3, 0.6])),) for id in range(200)}
    event = "1" * 9 + "0" + "1" * 10
    plain, rapid, modified = (asked(matcher_of(name, subscriptions, 20), event)[1][0] for name in TREES)
    assert plain == rapid > 3 * modified


def test_c_has_to_fit_the_attributes():
    for c in (-1, 3):
        with pytest.raises(ValueError, match=f"less 1, 2; got {c}"):
            matcher_of("rapidmatch", {}, 3, c=c)
    assert matcher_of("rapidmatch", {}, 3).details()["trees"] == 1 + 1 + 2 + 3
    assert matcher_of("rapidmatch-modified", {}, 3, c=1).details()["trees"] == 1 + 2 * (1 + 2)
    assert matcher_of("rapidmatch", {1: ()}, 0).details()["trees"] == 1


# -- work ----------------------------------------------------------------------------------------------------


@given(world=worlds())
def test_visits_are_the_nodes_of_the_plain_tree(world):
    width, subscriptions, events = world
    vectors = {cells for own in subscriptions.values() for cells in own}
    tree, rapid = (matcher_of(name, subscriptions, width, **options)
                   for name, options in (("ternary-tree", {}), ("rapidmatch", {"c": 0})))  # fmt: skip
    visits = [plain_visits(vectors, event) for event in events]
    assert asked(tree, *events)[1] == visits
    none = int(any("1" not in cells for cells in vectors))  # the tree of t = 0 has no level
    assert asked(rapid, *events)[1] == [
        own if "1" in event else none for own, event in zip(visits, events, strict=True)
    ]
    assert tree.details()["plain_nodes"] == len({one[:at] for one in vectors for at in range(width + 1)})
    assert tree.details()["nodes"] <= max(0, 2 * len(vectors) - 1)


@given(world=worlds(least=3))
def test_a_block_is_not_tested_and_what_comes_after_it_first(world):
    width, subscriptions, events = world
    matcher = matcher_of("rapidmatch", subscriptions, width, c=width - 1)
    for event in events:
        for block in matcher.admissible(states_of(event)):
            first, last = block.first, block.last
            fitting = {
                cells[last:] + cells[:first]
                for own in subscriptions.values()
                for cells in own
                if cells.count("1") <= event.count("1") and "1" not in cells[first:last]
            }
            visits = block.tree.search(block.tested(states_of(event)))[1]
            assert visits == plain_visits(fitting, event[last:] + event[:first])


def test_words_compared():
    """Three rows; of each of them a word for what is 0, and of those left one for what is 1."""
    matcher = matcher_of("ternary-vectors", {1: ("1*",), 2: ("*0",), 3: ("**",)}, 2)
    assert asked(matcher, "00", "11", "01", "0_", "__") == ([{2, 3}, {1, 3}, {3}, {3}, {3}], [3, 3, 5, 5, 3])
    matcher.remove(np.array([1]))
    assert asked(matcher, "10") == ([{2, 3}], [3 + 2])


# -- changes -------------------------------------------------------------------------------------------------


def shape(matcher):
    """What is known of the structure, but its rows, which are kept for others."""
    trees = [matcher._tree] if hasattr(matcher, "_tree") else []
    for levels in getattr(matcher, "_by_common", {}).values():
        trees += [one.tree for level in levels for one in level]
    return [
        (tree.nodes, tree.plain_nodes, sorted((v, sorted(ids)) for v, ids in tree.vectors()))
        for tree in trees
    ]


@pytest.mark.slow
@names
@given(world=worlds("01*+?!", "01_x", most=4), more=st.data())
def test_what_is_removed_leaves_nothing(name, world, more):
    width, subscriptions, events = world
    matcher = matcher_of(name, subscriptions, width)
    before = asked(matcher, *events), shape(matcher)
    filters = st.text(st.sampled_from("01**+?!"), min_size=width, max_size=width)
    others = more.draw(st.lists(st.lists(filters, min_size=1, max_size=3).map(tuple), max_size=9))
    others = dict(enumerate(others, 100))
    add(matcher, others)
    everyone = subscriptions | others
    assert asked(matcher, *events)[0] == [expected(everyone, event) for event in events]
    gone = more.draw(st.permutations(list(others)))
    assert matcher.remove(np.array(gone, np.int64)).all()
    assert (asked(matcher, *events)[0], shape(matcher)) == (before[0][0], before[1])
    assert matcher.remove(np.array(list(subscriptions), np.int64)).all()
    assert asked(matcher, *events)[0] == [set() for _ in events]
    assert {pair[:2] for pair in shape(matcher)} <= {(0, 0)}


def test_rows_are_used_again_and_move_together():
    matcher = matcher_of("ternary-vectors", dict.fromkeys(range(5 * ROOM), ("1*",)), 2)
    assert matcher.details()["rows"] == 5 * ROOM
    matcher.remove(np.arange(ROOM))
    add(matcher, dict.fromkeys(range(1000, 1000 + ROOM // 2), ("*1", "**")))
    assert matcher.details()["rows"] == 5 * ROOM
    assert asked(matcher, "10")[0] == [{*range(ROOM, 5 * ROOM), *range(1000, 1000 + ROOM // 2)}]
    matcher.remove(np.arange(ROOM, 5 * ROOM))
    assert matcher.details()["rows"] == ROOM
    assert asked(matcher, "01")[0] == [set(range(1000, 1000 + ROOM // 2))]


MODULES = [
    rtfilter.matchers.papers.rapidmatch,
    rtfilter.matchers.papers.ternary,
    rtfilter.matchers.papers.ternary_vectors,
]
HELD = {0: ("0*1",), 1: ("01*", "0**"), 2: ("***",)}
CALLS = {
    "add": lambda matcher: add(matcher, {7: ("011", "0*1", "1**"), 8: ("01*",)}),
    "remove": lambda matcher: matcher.remove(np.array([0, 1])),
}
EVENTS = ["".join(event) for event in product("01", repeat=3)]


@pytest.mark.slow
@names
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("part", long_but(range(3), [0]))
def test_an_interrupt_anywhere_is_put_right_by_removing(name, call, part):
    """What was being changed may be there or not; when it is removed, nothing of it is left."""
    matcher = matcher_of(name, HELD, 3)
    with Lines(MODULES) as lines:
        CALLS[call](matcher)
    assert lines.count > 10
    empty = shape(matcher_of(name, {2: HELD[2]}, 3))
    for at in lines.ends()[part::3]:
        matcher = matcher_of(name, HELD, 3)
        with pytest.raises(Interrupt), Lines(MODULES, at):
            CALLS[call](matcher)
        matcher.remove(np.array([7, 8, 0, 1]))
        assert asked(matcher, *EVENTS)[0] == [{2}] * len(EVENTS)
        assert shape(matcher) == empty
        add(matcher, {0: HELD[0], 7: ("1*1",)})
        assert asked(matcher, "001", "111")[0] == [{0, 2}, {2, 7}]
