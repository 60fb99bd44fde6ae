"""Filter nodes: the two forms of their sets, the steps they take, and what covers what."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profile_cases import CARES, PREDICATES, SCHEMA, add, asked, found, matcher_of, remove
from rtfilter import Predicate, Schema
from rtfilter.matchers import check_matcher
from rtfilter.matchers.papers.filter_nodes import (
    SHARE,
    FilterNodesMatcher,
    bits_of,
    common,
    copied,
    leaf_of,
    numbers_of,
    size_of,
    with_number,
    without_number,
)
from rtfilter.predicates.model.constraints import Constraint, Filter

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


@pytest.mark.slow
@pytest.mark.parametrize("made", [POINTERS, BITS])
def test_both_forms_keep_the_promises(made):
    check_matcher(made, rounds=4)


# -- steps ---------------------------------------------------------------------------------------------------


def test_steps_are_comparisons_and_what_the_smallest_set_is_held_against():
    sources = ["x = 1", "x = 2 AND y = 1", "x = 2 AND y = 2", "y = 2", "x < 0"]
    # Bounds of x: 0, 1, 2, 3, of which a look-up compares three; of y: 1, 2, 3, of which it compares two.
    assert asked(matcher_of(POINTERS, sources, XY), {"x": 2, "y": 1}) == [([1], 5 + 3)]
    assert asked(matcher_of(POINTERS, sources, XY), {"x": 5, "y": 5}) == [([], 5 + 1)]
    assert asked(matcher_of(BITS, sources, XY), {"x": 2, "y": 1}) == [([1], 5 + 1)]


def test_no_set_is_held_against_nothing():
    """Of three attributes: where the first two have nothing in common, the third is not asked."""
    schema = Schema({"x": int, "y": int, "z": int})
    sources = ["x = 1 AND y = 1 AND z < 9", "x = 2 AND y = 2 AND z < 9", "z < 9 AND x = 2 AND y = 3"]
    matcher = matcher_of(POINTERS, sources, schema)
    look_ups = 2 + 3 + 1  # of 3, 4 and 1 bounds
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


# -- covering ------------------------------------------------------------------------------------------------

SMALL = Schema({"x": int, "y": int})
CONJUNCTIONS = st.lists(
    st.one_of(
        st.builds(Constraint, st.sampled_from("xy"), st.sampled_from(("=", "<", "<=", ">", ">=", "<>")),
                  st.integers(0, 3)),
        st.builds(Constraint, st.sampled_from("xy"), st.just("in"), st.lists(st.integers(0, 3), max_size=3)),
        st.builds(Constraint, st.sampled_from("xy"), st.sampled_from(("exists", "is null")), st.none()),
    ),
    max_size=3,
).map(lambda tests: Predicate((Filter(tuple(tests)),)))  # fmt: skip
#: All that tells constraints with constants 0 to 3 apart.
SIDES = [None, "alien", *(n / 2 for n in range(-1, 8))]
WORLD = [
    {name: value for name, value in zip("xy", pair, strict=True) if value is not None}
    for pair in product(SIDES, repeat=2)
]


@pytest.mark.slow
@given(st.lists(CONJUNCTIONS, min_size=1, max_size=8))
def test_a_profile_covers_what_brute_force_says(predicates):
    matcher = matcher_of(FilterNodesMatcher, predicates, SMALL)
    matched = [{at for at, event in enumerate(WORLD) if one.matches(event)} for one in predicates]
    checked = [Predicate.parse(one, SMALL) for one in predicates]
    covered = {id: matcher.covered(id) for id in range(len(predicates))}
    for one, own in covered.items():
        assert own == {other for other, events in enumerate(matched) if events <= matched[one]}
        assert one in own
        for other in range(len(predicates)):
            assert checked[one].covers(checked[other]) == (other in own)
    for one, own in covered.items():
        for other in own:
            assert covered[other] <= own
            if one in covered[other]:
                assert matched[one] == matched[other]


@given(st.lists(PREDICATES, min_size=1, max_size=6))
def test_what_is_said_to_be_covered_is_covered(predicates):
    """Also of disjunctions, and of tests that intervals do not tell."""
    matcher = matcher_of(FilterNodesMatcher, predicates)
    checked = [Predicate.parse(one, SCHEMA) for one in predicates]
    for one in range(len(predicates)):
        for other in matcher.covered(one):
            assert checked[one].covers(checked[other]) is not False
        equal = {other for other in range(len(predicates)) if predicates[other] == predicates[one]}
        assert equal <= matcher.covered(one)


@given(st.lists(CARES, max_size=3), st.lists(CARES, max_size=3), st.lists(CONJUNCTIONS, max_size=3))
def test_covering_does_not_depend_on_who_else_is_there(one, two, others):
    pair = [Predicate((Filter(tuple(tests)),)) for tests in (one, two)]
    alone = matcher_of(FilterNodesMatcher, pair).covered(0)
    assert matcher_of(FilterNodesMatcher, [*pair, *others]).covered(0) & {0, 1} == alone


def test_covering_of_other_tests_and_of_disjunctions():
    sources = ["s LIKE '%a_' AND x > 1", "s LIKE '%a_' AND x > 2", "x > 1", "x > 2 OR x = 7", "FALSE"]
    matcher = matcher_of(FilterNodesMatcher, sources)
    assert [sorted(matcher.covered(id)) for id in range(5)] == [
        [0, 1, 4], [1, 4], [0, 1, 2, 3, 4], [1, 3, 4], [4]
    ]  # fmt: skip
    with pytest.raises(KeyError):
        matcher.covered(9)
    remove(matcher, 0, 2)
    assert sorted(matcher.covered(3)) == [1, 3, 4]


def test_the_papers_rule_for_greater_is_wrong_where_the_constant_is_no_bound():
    """Printed: what occurs from the next larger bound on and nowhere else is covered, be it another one's.

    With bounds 10 and 20, a profile of the interval between them alone seems covered by ``> 15``, but it
    matches 12. Who asks about a registered profile has its own bound, and the rule is right.
    """
    schema = Schema({"x": int})
    between, greater = "x > 10 AND x <= 20", "x > 15"
    matcher = matcher_of(FilterNodesMatcher, [between], schema)
    node = matcher.nodes["x"]
    places = [place for place, leaf in enumerate(node.leaves) if size_of(leaf)]
    begin = next(at for at, bound in enumerate(node.bounds) if bound > 15)  # the next larger bound
    printed = all(place >= 2 + begin for place in places)  # from the interval on that it ends
    assert printed
    assert Predicate.parse(greater, schema).covers(Predicate.parse(between, schema)) is False
    add(matcher, {7: greater})
    assert matcher.covered(7) == {7}
    add(matcher, {8: "x > 10", 9: "x > 16 AND x < 19"})
    assert matcher.covered(8) == {0, 7, 8, 9}
    assert matcher.covered(7) == {7, 9}
