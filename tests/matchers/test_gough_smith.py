"""The tree of Gough and Smith: replication, steps, its size, and what happens where it has no room."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profile_cases import EVENTS, PREDICATES, add, asked, found, matcher_of, remove
from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.matchers.papers.filter_nodes import FilterNodesMatcher
from rtfilter.matchers.papers.gough_smith import GoughSmithMatcher

XY = Schema({"x": int, "y": int})


def test_who_does_not_care_is_below_every_edge():
    matcher = matcher_of(GoughSmithMatcher, ["x = 1", "x = 2", "y = 5"], XY)
    (one, two), star = (child for child in matcher._root.below if child), matcher._root.star
    leaves = [[leaf for leaf in (*child.below, child.star) if leaf] for child in (one, two, star)]
    assert leaves == [[{0, 2}, {0}], [{1, 2}, {1}], [{2}]]
    # Edges: three of the root, two below 1, two below 2, one below the star; and seven profiles in leaves.
    assert matcher.details() == {"profiles": 3, "nodes": 4, "references": 3 + 5 + 7, "tried": 0}


def test_steps_are_the_comparisons_on_one_path():
    matcher = matcher_of(GoughSmithMatcher, ["x = 1", "x = 2", "y = 5"], XY)
    # Of x the bounds 1, 2, 3; of y 5, 6.
    assert asked(matcher, {"x": 2, "y": 5}, {"x": 9, "y": 4}, {}) == [([1, 2], 2 + 2), ([], 2 + 2), ([], 4)]
    assert asked(GoughSmithMatcher(XY), {"x": 2}) == [([], 0)]


def test_the_tree_grows_exponentially_where_nobody_cares_about_most():
    sizes = {}
    for count in range(1, 6):
        schema = Schema({f"a{i}": int for i in range(count)})
        sources = [f"a{i} = {value}" for i in range(count) for value in (1, 2)]
        matcher = matcher_of(GoughSmithMatcher, sources, schema)
        # Three edges below each node but where nothing is left: the star below stars alone.
        assert matcher.details()["nodes"] == (3**count - 1) // 2
        nodes = matcher_of(partial(FilterNodesMatcher, bit_lists=1), sources, schema)
        sizes[count] = matcher.details()["references"], nodes.details()["pointers"]
    assert sizes[5][0] > 3 * sizes[4][0] > 9 * sizes[3][0]
    assert sizes[5][1] < 2 * sizes[4][1]


@given(st.lists(PREDICATES, max_size=7), st.lists(EVENTS, min_size=1, max_size=5))
def test_tree_and_nodes_find_the_same(predicates, events):
    tree, nodes = (matcher_of(made, predicates) for made in (GoughSmithMatcher, FilterNodesMatcher))
    assert found(tree, *events) == found(nodes, *events)


@pytest.mark.parametrize("most", [20, 18])  # of three references each, six find room
def test_what_finds_no_room_is_tried_by_each_event(most):
    made = partial(GoughSmithMatcher, most_references=most)
    matcher = matcher_of(made, [f"x = {i}" for i in range(20)], XY)
    details = matcher.details()
    assert (details["references"], details["tried"]) == (18, 14)
    assert asked(matcher, {"x": 3}, {"x": 19}) == [([3], 3 + 14), ([19], 3 + 14)]
    remove(matcher, *range(6, 20))
    assert matcher.details()["tried"] == 0
    remove(matcher, *range(6))
    assert matcher._root is None


def test_a_subscription_that_is_refused_leaves_the_tree_as_it_was():
    filter = EventFilter(XY, matcher=partial(GoughSmithMatcher, most_references=20, beyond="refuse"))
    filter.subscribe_many(["x = 1", "x = 2 OR y = 1"])
    matcher = filter._subscriptions.matcher
    before, root = matcher.details(), matcher._root
    for source in ("x = 3 OR y = 7 OR y = 8", "x IN (3, 4, 5, 6, 7, 8)"):
        with pytest.raises(PredicateError, match=r"would hold \d+ references, and at most 20 are allowed"):
            filter.subscribe(source)
        assert (matcher.details(), matcher._root) == (before, root)
    with pytest.raises(PredicateError, match="raise most_references, or choose another matcher"):
        filter.subscribe_many(["x = 1", "x IN (3, 4, 5, 6, 7, 8)"])
    assert (len(filter), matcher._root) == (2, root)
    assert len(matcher._profiles.numbered) == 3
    assert [sorted(filter.match({"x": x, "y": 1})) for x in (1, 2, 3)] == [[0, 1], [1], [1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most_references": 0}, "most_references is at least 1"),
        ({"beyond": "drop"}, "try, refuse, not 'drop'"),
    ],
)
def test_wrong_options_say_which_there_are(options, message):
    with pytest.raises(ValueError, match=message):
        GoughSmithMatcher(XY, **options)


def test_a_change_that_would_explode_builds_no_more_than_there_is():
    """The tree it would make is never built: its size is reckoned from parts that are shared."""
    schema = Schema({f"a{i}": int for i in range(12)})
    matcher = GoughSmithMatcher(schema, most_references=3000)
    for i in range(12):
        add(matcher, {i: f"a{i} IN (1, 2, 3, 4, 5, 6, 7, 8)"})
    assert matcher.details()["references"] <= 3000
    assert matcher.details()["tried"] > 0
    event = {f"a{i}": 3 * (i % 2) for i in range(12)}
    assert found(matcher, event) == [[1, 3, 5, 7, 9, 11]]
    remove(matcher, *range(12))
    assert matcher.ids().tolist() == np.empty(0).tolist()
