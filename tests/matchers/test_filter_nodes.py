"""Filter nodes: the two forms of their sets, the steps they take, and what covers what."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profile_cases import add, asked, found, matcher_of, remove
from rtfilter import Schema
from rtfilter.matchers import check_matcher
from rtfilter.matchers.filter_nodes import SHARE, FilterNodesMatcher
from rtfilter.matchers.leaf_sets import (
    bits_of,
    common,
    copied,
    leaf_of,
    numbers_of,
    size_of,
    with_number,
    without_number,
)

POINTERS, BITS = partial(FilterNodesMatcher, bit_lists=1), partial(FilterNodesMatcher, bit_lists=0)
XY = Schema({"x": int, "y": int})

# -- sets ----------------------------------------------------------------------------------------------------

NUMBERS = st.sets(st.integers(0, 200))


@given(NUMBERS, NUMBERS, st.booleans(), st.booleans())
def test_what_two_sets_have_in_common_in_any_form(one, two, first, second):
    leaves = [bits_of(numbers) if bits else set(numbers) for numbers, bits in ((one, first), (two, second))]
    shared, steps = common(*leaves)
    assert set(numbers_of(shared)) == one & two
    if first and second:
        assert steps == -(-min(max(one, default=-1) + 1, max(two, default=-1) + 1) // 64)
    elif first or second:
        assert steps == len(two if first else one)
    else:
        assert steps == min(len(one), len(two))
    assert [set(numbers_of(leaf)) for leaf in leaves] == [one, two]


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 12))
def test_a_set_has_the_form_that_its_size_says(changes, most):
    leaf, held = leaf_of((), most), set()
    for number in changes:
        if number in held:
            leaf = without_number(leaf, number, most)
            held.remove(number)
        else:
            leaf = with_number(leaf, number, most)
            held.add(number)
        assert set(numbers_of(leaf)) == held
        assert isinstance(leaf, int) == (len(held) > most)
        assert size_of(leaf) == len(held)
        assert leaf == leaf_of(held, most)
    assert leaf == without_number(leaf, 99, most)


def test_a_copied_set_changes_alone():
    pointers = {1, 2}
    with_number(copied(pointers), 3, 9)
    assert pointers == {1, 2}


@pytest.mark.parametrize("count", [31, 32, 33, 63, 64, 65, 66])
def test_around_the_threshold_nothing_but_the_form_differs(count):
    """The interval of 7 has two profiles, which is more than 1/32 of all up to 63."""
    sources = ["x = 7 AND y > 0", "x = 7", *(f"x = {100 + i}" for i in range(count - 2))]
    events = [{"x": 7, "y": 1}, {"x": 7}, {"x": 102, "y": 3}, {"y": 1}]
    matchers = [matcher_of(made, sources, XY) for made in (FilterNodesMatcher, POINTERS, BITS)]
    assert found(matchers[0], *events) == [[0, 1], [1], [4], []]
    assert len({tuple(map(tuple, found(one, *events))) for one in matchers}) == 1
    mixed, pointers, bits = (one.details() for one in matchers)
    assert pointers["bit_lists"] == bits["pointers"] == 0
    node = matchers[0].nodes["x"]
    leaf = node.leaves[2 + node.bounds.index(7) + 1]
    # Forms are chosen when a set changes: this one has two profiles from when there were two.
    assert isinstance(leaf, int)
    matchers[0].remove(np.array([1]))
    add(matchers[0], {1: "x = 7"})
    leaf = node.leaves[2 + node.bounds.index(7) + 1]
    assert isinstance(leaf, int) == (SHARE * count < 2)
    assert found(matchers[0], *events) == [[0, 1], [1], [4], []]
    assert mixed["profiles"] == count


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="bit_lists is a share from 0 to 1"):
        FilterNodesMatcher(XY, bit_lists=share)


@pytest.mark.parametrize("made", [POINTERS, BITS])
def test_both_forms_keep_the_promises(made):
    check_matcher(made)


# -- steps ---------------------------------------------------------------------------------------------------


def test_steps_are_comparisons_and_what_the_smallest_set_is_held_against():
    sources = ["x = 1", "x = 2 AND y = 1", "x = 2 AND y = 2", "y = 2", "x < 0"]
    # Bounds of x: 0, 1, 1+, 2, 2+, of which a look-up compares three; of y: 1, 1+, 2, 2+, three as well.
    assert asked(matcher_of(POINTERS, sources, XY), {"x": 2, "y": 1}) == [([1], 6 + 3)]
    assert asked(matcher_of(POINTERS, sources, XY), {"x": 5, "y": 5}) == [([], 6 + 1)]
    assert asked(matcher_of(BITS, sources, XY), {"x": 2, "y": 1}) == [([1], 6 + 1)]


def test_no_set_is_held_against_nothing():
    """Of three attributes: where the first two have nothing in common, the third is not asked."""
    schema = Schema({"x": int, "y": int, "z": int})
    sources = ["x = 1 AND y = 1 AND z < 9", "x = 2 AND y = 2 AND z < 9", "z < 9 AND x = 2 AND y = 3"]
    matcher = matcher_of(POINTERS, sources, schema)
    look_ups = 3 + 3 + 1  # of 4, 6 and 1 bounds
    assert asked(matcher, {"x": 1, "y": 2, "z": 1}) == [([], look_ups + 1)]
    assert asked(matcher, {"x": 5, "y": 2, "z": 1}) == [([], look_ups)]
    assert asked(matcher, {"x": 1, "y": 1, "z": 1}) == [([0], look_ups + 1 + 1)]


def test_an_attribute_that_nobody_cares_about_has_no_node():
    matcher = matcher_of(FilterNodesMatcher, ["TRUE", "TRUE"], XY)
    assert asked(matcher, {"x": 1}, {}) == [([0, 1], 0), ([0, 1], 0)]
    add(matcher, {5: "y = 1"})
    assert list(matcher.nodes) == ["y"]
    remove(matcher, 5)
    assert matcher.details()["nodes"] == 0
