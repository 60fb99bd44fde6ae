"""Matchers of profiles, filter nodes and the tree: intervals, answers, changes and interrupts."""

from datetime import datetime
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rtfilter.matchers.papers.filter_nodes
import rtfilter.matchers.papers.gough_smith
import rtfilter.matchers.papers.profiles
from cases import cases
from lengths import long_but
from profile_cases import EVENTS, PREDICATES, SCHEMA, add, found, interrupted, matcher_of, remove
from rtfilter import Attribute, Predicate, Schema
from rtfilter.matchers.papers.filter_nodes import FilterNodesMatcher, numbers_of
from rtfilter.matchers.papers.gough_smith import GoughSmithMatcher
from rtfilter.matchers.papers.profiles import FIRST, Profiles, bounds_of, places_in

MADE = {
    "mixed": FilterNodesMatcher,
    "pointers": partial(FilterNodesMatcher, bit_lists=1),
    "bit lists": partial(FilterNodesMatcher, bit_lists=0),
    "half": partial(FilterNodesMatcher, bit_lists=0.5),
    "tree": GoughSmithMatcher,
    "small tree": partial(GoughSmithMatcher, most_references=40),
}
every = pytest.mark.parametrize("made", MADE.values(), ids=MADE)


def shape(matcher):
    """Bounds, and what lies where, by subscriptions: what does not depend on the history."""
    if isinstance(matcher, GoughSmithMatcher):
        return matcher._root, matcher._beside
    id_of = {number: profile.id for number, profile in matcher._profiles.numbered.items()}
    return {
        name: (
            node.bounds,
            [sorted(id_of[one] for one in numbers_of(leaf)) for leaf in node.leaves],
            {bound: sorted(map(id_of.get, users)) for bound, users in node.users.items()},
            sorted(map(id_of.get, node.caring)),
        )
        for name, node in matcher.nodes.items()
    }


def require_empty(matcher):
    assert matcher._profiles.size == 0
    assert not matcher._profiles._of
    assert shape(matcher) == ((None, {}) if isinstance(matcher, GoughSmithMatcher) else {})


# -- the paper's example -------------------------------------------------------------------------------------

THREE = Schema({"a1": int, "a2": int, "a3": int})
FIVE = [(10, 20, 50), (40, 10, 80), (40, 20, 100), (40, None, 100), (40, 20, 100)]
"""Profiles p1 to p5; p4 does not care about a2, and p3 and p5 are equal."""


def exactly(*values):
    """Equality on each attribute whose value is not None."""
    pairs = zip(THREE.names, values, strict=True)
    return " AND ".join(f"{name} = {value}" for name, value in pairs if value is not None)


@every
@cases(
    ("event", "profiles"),
    [
        ((40, 10, 80), {2}),
        ((40, 20, 100), {3, 4, 5}),
        ((40, 10, 100), {4}),
        ((40, 99, 100), {4}),
        ((10, 20, 50), {1}),
        ((11, 20, 50), set()),
    ],
)
def test_the_papers_example(made, event, profiles):
    matcher = matcher_of(made, [exactly(*one) for one in FIVE], THREE, range(1, 6))
    assert found(matcher, dict(zip(THREE.names, event, strict=True))) == [sorted(profiles)]


def test_the_sets_that_the_papers_example_intersects():
    matcher = matcher_of(FilterNodesMatcher, [exactly(*one) for one in FIVE], THREE, range(1, 6))
    looked_up = {}
    for name, value in (("a1", 40), ("a2", 10), ("a3", 80)):
        bounds, leaves, *_ = shape(matcher)[name]
        looked_up[name] = leaves[FIRST + bounds.index(value) + 1]
    assert looked_up == {"a1": [2, 3, 4, 5], "a2": [2, 4], "a3": [2]}


# -- intervals -----------------------------------------------------------------------------------------------

NUMBERS = (-1, 1.5, 2, 2.5, 7, 7.5, 8, 2**53, 2**53 + 1, 2**53 + 2)


@every
@cases(
    "source",
    ["x < 2", "x <= 2", "x > 2", "x >= 2", "x = 2", "x <> 2", "x >= 2 AND x <= 7", "x > 2 AND x < 7",
     "x IN (2, 7)", "x NOT IN (2, 7)", "x = 9007199254740993", "x > 9007199254740992", "x IS NOT NULL",
     "x IS NULL", "NOT (x > 2)", "x < 2 AND x > 7"],
)  # fmt: skip
def test_values_on_at_and_around_bounds(made, source):
    """Beside others, which cut the values elsewhere, and beside one that does not care."""
    schema = Schema({"x": float, "s": str})
    others = ["x < 1.5", "x IN (7.5, 8)", "x >= 9007199254740994", "s = 'a'"]
    matcher = matcher_of(made, [*others, source], schema)
    predicates = [Predicate.parse(one, schema) for one in [*others, source]]
    events = [*({"x": value} for value in NUMBERS), {}, {"s": "a"}, {"x": "text", "s": "a"}]
    assert found(matcher, *events) == [
        [id for id, one in enumerate(predicates) if one.matches(event)] for event in events
    ]


@every
def test_texts_moments_and_truth_have_intervals(made):
    schema = Schema({"s": str, "t": datetime, "b": bool})
    sources = ["s < 'b'", "s LIKE 'b%'", "s = 'b'", "t > TIMESTAMP '2020-01-02'", "b", "b = FALSE",
               "s LIKE '%c' AND b"]  # fmt: skip
    matcher = matcher_of(made, sources, schema)
    events = [{"s": s} for s in ("", "az", "b", "b\0", "bc", "c")]
    assert found(matcher, *events) == [[0], [0], [1, 2], [1], [1], []]
    events = [{"t": datetime(2020, 1, 2)}, {"t": datetime(2020, 1, 2, 0, 0, 0, 1)}, {"b": True}, {"b": False}]
    assert found(matcher, *events) == [[], [3], [4], [5]]
    assert found(matcher, {"s": "abc", "b": True}, {"s": "abc", "b": False}) == [[0, 4, 6], [0, 5]]


def test_bounds_are_the_values_behind_each_end():
    profiles = Profiles(Schema({"n": Attribute(int, low=0, high=9), "x": float, "s": str}))

    def bounds(source):
        (conjunction,) = Predicate.parse(source, profiles._space.schema).filters
        ((name, values),) = profiles.add(0, conjunction).wanted.items()
        return sorted(bounds_of(values, profiles.line(name)))

    behind = 5.000000000000001
    assert bounds("x = 5") == [5, behind]
    assert bounds("x < 5") == bounds("x >= 5") == [5]
    assert bounds("x > 5") == bounds("x <= 5") == [behind]
    assert bounds("x BETWEEN 2 AND 5") == [2, behind]
    assert bounds("x > 5 AND x < 7") == [behind, 7]
    assert bounds("n = 5") == bounds("n > 4 AND n < 6") == [5, 6]
    assert bounds("n <= 5") == bounds("n < 5.5") == bounds("n > 5") == bounds("n >= 5.5") == [6]
    assert bounds("n IN (3, 4, 7)") == [3, 5, 7, 8]
    assert bounds("n >= 0 AND n <= 9") == bounds("n IS NULL") == []
    assert bounds("s = 'a'") == ["a", "a\0"]
    assert bounds("s LIKE 'a%'") == ["a", "b"]


def test_a_domain_of_integers_has_at_most_its_values_as_bounds():
    profiles = Profiles(Schema({"n": Attribute(int, low=0, high=11)}))
    sources = [
        f"n {operator} {value}" for value in range(12) for operator in ("=", "<", "<=", ">", ">=", "<>")
    ]
    filters = [Predicate.parse(source, profiles._space.schema).filters[0] for source in sources]
    found = [profiles.add(id, filter) for id, filter in enumerate(filters)]
    wanted = [one.wanted["n"] for one in found if one is not None]
    assert set().union(*(bounds_of(values, profiles.line("n")) for values in wanted)) == {*range(1, 12)}


@every
def test_an_integer_attribute_may_have_another_number(made):
    schema = Schema({"n": int, "m": int})
    sources = ["n <= 3", "n >= 4", "n = 3.5", "n <> 3", "n IN (3, 4) AND m = 1", "n > 3.2", "m = 1"]
    predicates = [Predicate.parse(source, schema) for source in sources]
    matcher = matcher_of(made, sources, schema)
    for event in ({"n": 3.5, "m": 1}, {"n": 3}, {"n": 4.0, "m": 1}, {"n": 3, "m": 0.5}, {"m": 1}):
        assert found(matcher, event) == [[id for id, one in enumerate(predicates) if one.matches(event)]]
    remove(matcher, *range(len(sources)))
    require_empty(matcher)


def test_places_are_those_of_the_values():
    profiles = Profiles(Schema({"n": int}))
    (conjunction,) = Predicate.parse("n < 3 OR n > 7", profiles._space.schema).filters[:1]
    values = profiles.add(0, conjunction).wanted["n"]
    assert [list(places) for places in places_in(values, [3, 7])] == [[2]]
    assert [list(places) for places in places_in(values, [1, 2, 3, 7])] == [[2, 3, 4]]


# -- changes -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@every
@given(
    changes=st.lists(st.tuples(st.integers(0, 5), PREDICATES), max_size=14),
    events=st.lists(EVENTS, max_size=4),
)
def test_changes_leave_what_would_be_there_without_them(made, changes, events):
    """A change adds a subscription, or removes one that is there."""
    matcher, held = made(SCHEMA), {}
    for id, predicate in changes:
        if id in held:
            remove(matcher, id)
            del held[id]
        else:
            add(matcher, {id: predicate})
            held[id] = predicate
        expected = [[id for id, one in sorted(held.items()) if one.matches(event)] for event in events]
        assert found(matcher, *events) == expected
    anew = matcher_of(made, list(held.values()), ids=list(held))
    if isinstance(matcher, FilterNodesMatcher):
        assert shape(matcher) == shape(anew)
        for name, node in matcher.nodes.items():
            needed = set()
            for profile in matcher._profiles.numbered.values():
                if name in profile.wanted:
                    needed |= bounds_of(profile.wanted[name], matcher._profiles.line(name))
            assert node.bounds == sorted(needed)
    assert matcher._profiles.size <= max(2 * len(changes), 1)
    remove(matcher, *held)
    require_empty(matcher)


@pytest.mark.slow
@every
@given(predicates=st.lists(PREDICATES, max_size=6), last=PREDICATES)
def test_who_comes_and_goes_leaves_no_trace(made, predicates, last):
    matcher = matcher_of(made, predicates)
    before = shape(matcher)
    details = matcher.details()
    add(matcher, {99: last})
    remove(matcher, 99)
    assert shape(matcher) == before
    if made is not MADE["half"] and made is not MADE["mixed"]:  # else sets may have changed their form
        assert matcher.details() == details


@every
def test_numbers_are_given_again(made):
    matcher = matcher_of(made, [f"x = {i}" for i in range(10)])
    for step in range(40):
        remove(matcher, step)
        assert found(matcher, {"x": (step + 5) % 10}) == [[step + 5]]
        add(matcher, {step + 10: f"x = {step % 10}"})
        assert sorted(matcher._profiles.numbered) == list(range(10))
    assert matcher._profiles.size == 10


@every
def test_a_filter_that_nothing_satisfies_is_nowhere(made):
    matcher = matcher_of(made, ["x < 1 AND x > 2", "FALSE", "x < 1 AND x > 2 OR TRUE"])
    assert found(matcher, {}, {"x": 1.5}) == [[2], [2]]
    assert matcher.details()["profiles"] == 1


# -- interrupts ----------------------------------------------------------------------------------------------

MODULES = [
    rtfilter.matchers.papers.filter_nodes,
    rtfilter.matchers.papers.gough_smith,
    rtfilter.matchers.papers.profiles,
]
OTHERS = ["x = 1 AND y < 2", "s LIKE 'ab%' OR x >= 1 AND x <= 3", "TRUE"]
WANTED = "x = 1 AND y < 2 OR s LIKE 'ab%' AND x <= 3 OR b OR TRUE"
SOME = [{"x": 1, "y": 1, "s": "abc"}, {"x": 4, "y": 2, "s": "a"}, {}]


@pytest.mark.slow
@pytest.mark.parametrize("made", [MADE[name] for name in ("half", "tree", "small tree")])
@pytest.mark.parametrize("change", ["add", "remove"])
@pytest.mark.parametrize("every", long_but([1, 10], [10]))
def test_a_change_that_was_interrupted_can_be_undone(change, made, every):
    """Wherever it is cut short, and wherever undoing it is."""
    alone = matcher_of(made, OTHERS)
    expected, left = found(alone, *SOME), shape(alone)
    for matcher, lines in interrupted(MODULES, partial(matcher_of, made), OTHERS, WANTED, change, every):
        assert (found(matcher, *SOME), shape(matcher)) == (expected, left), lines
        add(matcher, {9: "x = 1 OR y < 2", 8: "x = 7"})
        remove(matcher, *range(10))
        require_empty(matcher)
