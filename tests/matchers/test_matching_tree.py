"""Trees of tests: their shapes, what an event finds in them, and what is left after removals."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import profile_cases
import rtfilter.matchers.papers.matching_tree
from lengths import long_but
from profile_cases import add, found, interrupted
from rtfilter import Schema
from rtfilter.matchers import Filters, make_matcher
from rtfilter.matchers.papers.matching_tree import STAR, Check, Compare, Examine, Leaf
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate

NAMES = ("matching-tree", "matching-tree-equality")
SCHEMA = Schema({"application": str, "severity": int, "x": float})
APACHE = "application = 'Apache Server'"
both = pytest.mark.parametrize("name", NAMES)


def matcher_of(sources, name="matching-tree", schema=SCHEMA):
    """A matcher of predicates with ids 1, 2, ..., as papers number consumers."""
    sources = list(sources)
    made = partial(make_matcher, name)
    return profile_cases.matcher_of(made, sources, schema, range(1, len(sources) + 1))


def asked(matcher, *events):
    """Ids of each event."""
    return list(map(set, found(matcher, *events)))


def severities(matcher, *values, **more):
    return [ids for value in values for ids in asked(matcher, {"severity": value, **more})]


def visits(matcher, *events):
    return matcher.match(matcher._schema.read(list(events))).visits.tolist()


def shape(matcher):
    """The tree as nested tuples: a test and its edges, or the ids of a leaf; None without any."""

    def shown(node):
        if isinstance(node, Leaf):
            return node.ids
        return node.test, {result: shown(below) for result, below in node.edges.items()}

    below = matcher._root.edges.get(STAR)
    return None if below is None else shown(below)


def require_sound(matcher):
    """Links up and down belong together, and no node is there without a need."""
    ahead, leaves = [matcher._root], 0
    while ahead:
        node = ahead.pop()
        for result, below in node.edges.items():
            assert below.above == (node, result)
            if isinstance(below, Leaf):
                leaves += 1
                assert below.ids
                assert all(below in matcher._leaves[id] for id in below.ids)
                continue
            assert below.edges
            assert not matcher.splices or below.edges.keys() != {STAR}
            ahead.append(below)
    assert leaves == matcher.details()["leaves"]
    assert leaves == len({id(leaf) for own in matcher._leaves.values() for leaf in own})


def require_empty(matcher):
    assert shape(matcher) is None
    assert not matcher._leaves
    assert matcher.details() == {"test_nodes": 0, "leaves": 0, "depth": 0}


# -- the examples of the thesis ------------------------------------------------------------------------------


def test_the_first_example():
    matcher = matcher_of([f"{APACHE} AND severity >= 2", "severity >= 4"])
    assert severities(matcher, 5, 2, application="Apache Server") == [{1, 2}, {1}]
    assert severities(matcher, 3, 4, application="PostgreSQL") == [set(), {2}]
    assert asked(matcher, {"application": "Apache Server"}, {"severity": 4}) == [set(), {2}]


def test_the_shape_after_three_insertions():
    matcher = matcher_of([f"{APACHE} AND severity {asks}" for asks in ("> 5", "= 10", "< 20")])
    examined = Examine("severity"), {10: {2}, STAR: {1}}
    smaller = Compare("severity", 20), {"<": {3}}
    severity = Compare("severity", 5), {">": examined, STAR: smaller}
    assert shape(matcher) == (Examine("application"), {"Apache Server": severity})
    found = severities(matcher, 10, 7, 25, 3, 5, 20, application="Apache Server")
    assert found == [{1, 2, 3}, {1, 3}, {1}, {3}, {3}, {1}]
    assert severities(matcher, 10, application="PostgreSQL") == [set()]
    assert matcher.details() == {"test_nodes": 4, "leaves": 3, "depth": 3}


def test_comparisons_of_one_attribute_are_a_chain():
    matcher = matcher_of([f"severity >= {least}" for least in (2, 3, 4, 5)])
    tree = {4}
    for least in (5, 4, 3):
        tree = Compare("severity", least), {">=": tree, STAR: {least - 2}}
    assert shape(matcher) == (Compare("severity", 2), {">=": tree})
    assert severities(matcher, 4, 1, 9) == [{1, 2, 3}, set(), {1, 2, 3, 4}]
    assert visits(matcher, {"severity": 9}, {"severity": 1}) == [4 + 4, 1]


# -- what follows from what ----------------------------------------------------------------------------------

ASKED = [(operator, value) for operator in ("=", "<", "<=", ">", ">=") for value in range(5)]


def step_of(operator, value):
    return rtfilter.matchers.papers.matching_tree._step(Constraint("x", operator, value))


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
def test_a_result_is_implied_if_and_only_if_it_follows(operator):
    """Values between the constants tell what follows from what."""
    values = [value / 2 for value in range(-1, 11)]
    edge = Constraint("x", operator, 2)
    for own, constant in ASKED:
        constraint = Constraint("x", own, constant)
        follows = all(edge.matches({"x": x}) for x in values if constraint.matches({"x": x}))
        assert (operator in Compare("x", 2).implied(step_of(own, constant))) == follows, constraint
    assert Compare("y", 2).implied(step_of(operator, 2)) == ()


def test_the_narrowest_edge_that_follows_is_taken():
    matcher = matcher_of(["x >= 2", "x > 2", "x > 3"])
    chain = Compare("x", 3), {">": {3}, STAR: {2}}
    assert shape(matcher) == (Compare("x", 2), {">=": {1}, ">": chain})
    assert asked(matcher, {"x": 2}, {"x": 3}, {"x": 4}) == [{1}, {1, 2}, {1, 2, 3}]


def test_nothing_implies_that_a_value_is_examined():
    matcher = matcher_of(["x = 2", "x >= 2 AND x <= 2", "x > 1"])
    assert asked(matcher, {"x": 2}, {"x": 3}) == [{1, 2, 3}, {3}]
    assert Examine("x").implied(step_of("=", 2)) == ()
    assert Check(Constraint("x", "<>", 2)).implied(step_of("=", 3)) == ()


def test_a_more_general_constraint_that_comes_later_stays_below_the_star():
    matcher = matcher_of(["x > 5", "x > 1"])
    assert shape(matcher) == (Compare("x", 5), {">": {1}, STAR: (Compare("x", 1), {">": {2}})})
    assert asked(matcher, {"x": 9}, {"x": 3}, {"x": 1}) == [{1, 2}, {2}, set()]


def test_a_value_on_the_constant_is_at_least_and_at_most_that():
    matcher = matcher_of(["x >= 2", "x <= 2", "x > 2", "x < 2"])
    assert matcher.details()["test_nodes"] == 1
    assert asked(matcher, {"x": 2}, {"x": 1}, {"x": 3}, {}) == [{1, 2}, {2, 4}, {1, 3}, set()]


# -- leaves --------------------------------------------------------------------------------------------------


@both
def test_equal_subscriptions_share_a_leaf(name):
    matcher = matcher_of(["x = 1", "x = 1", "x = 1 OR severity = 2"], name)
    assert asked(matcher, {"x": 1}) == [{1, 2, 3}]
    assert matcher.details()["leaves"] == 2
    assert matcher.remove(np.array([1, 3])).tolist() == [True, True]
    assert asked(matcher, {"x": 1}, {"severity": 2}) == [{2}, set()]
    assert matcher.details()["leaves"] == 1
    assert matcher.remove(np.array([1, 2])).tolist() == [False, True]
    require_empty(matcher)


def test_a_leaf_below_a_star_gives_way_without_loss():
    matcher = matcher_of(["x > 1", "x > 1 AND x > 9", "x > 1 AND x < 5"])
    assert asked(matcher, {"x": 2}, {"x": 7}, {"x": 10}, {"x": 1}) == [{1, 3}, {1}, {1, 2}, set()]
    add(matcher, {4: "TRUE"})
    add(matcher, {5: "severity = 1"})
    assert asked(matcher, {"x": 2, "severity": 1}, {}) == [{1, 3, 4, 5}, {4}]
    require_sound(matcher)


@both
def test_filters_without_constraints_match_everything(name):
    matcher = matcher_of(["TRUE", "x = 1", "FALSE", "TRUE"], name)
    assert asked(matcher, {}, {"x": 1}) == [{1, 4}, {1, 2, 4}]
    matcher.remove(np.array([1, 2, 3]))
    assert asked(matcher, {}) == [{4}]
    matcher.remove(np.array([4]))
    require_empty(matcher)


@both
def test_two_values_of_one_attribute_match_nothing(name):
    matcher = matcher_of(["x = 1 AND x = 2", "x = 1"], name)
    assert asked(matcher, {"x": 1}, {"x": 2}) == [{2}, set()]
    matcher.remove(np.array([1, 2]))
    require_empty(matcher)


@both
def test_constraints_that_are_repeated_count_once(name):
    twice = Constraint("x", "=", 1.0)
    matcher = make_matcher(name, SCHEMA)
    predicate = Predicate((Filter((twice, twice)), Filter((twice,))))
    matcher.add(Filters.of_predicates(SCHEMA, [predicate], np.array([7])))
    assert asked(matcher, {"x": 1}) == [{7}]
    assert matcher.details()["leaves"] == 1
    matcher.remove(np.array([7]))
    require_empty(matcher)


# -- the tree for equality -----------------------------------------------------------------------------------


def test_a_level_for_each_attribute_in_the_order_of_the_schema():
    matcher = matcher_of(["severity = 3", f"{APACHE} AND severity = 3"], "matching-tree-equality")
    x = [(Examine("x"), {STAR: {id}}) for id in (1, 2)]
    severity = [(Examine("severity"), {3: below}) for below in x]
    assert shape(matcher) == (Examine("application"), {STAR: severity[0], "Apache Server": severity[1]})
    assert visits(matcher, {"severity": 3, "application": "Apache Server"}) == [1 + 2 + 2 + 2]
    assert asked(matcher, {"severity": 3}, {"severity": 3, "application": "Apache Server"}) == [{1}, {1, 2}]


def test_an_event_visits_at_most_two_ways_at_each_level():
    schema = Schema({f"a{i}": int for i in range(6)})
    sources = ["TRUE"]
    for count in range(1, 7):
        sources += [" AND ".join(f"a{i} = 0" for i in own) for own in combinations(range(6), count)]
    matcher = matcher_of(sources, "matching-tree-equality", schema)
    event = {f"a{i}": 0 for i in range(6)}
    assert len(asked(matcher, event)[0]) == 2**6
    assert visits(matcher, event, {"a0": 1}) == [2**7 - 1, 7]


def test_what_it_takes_is_equality():
    takes = make_matcher("matching-tree-equality", SCHEMA).takes
    assert takes.operators == {"="}
    assert not takes.everything
    assert make_matcher("matching-tree", SCHEMA).takes.everything


# -- long chains ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("descending", [False, True])
def test_more_sorted_limits_than_python_recurses_overflow_nothing(descending):
    """Ascending, each limit is below the star of the one before; descending, below its result."""
    limits = list(range(1200))[:: -1 if descending else 1]
    matcher = matcher_of(f"x < {limit}" for limit in limits)
    assert matcher.details() == {"test_nodes": 1200, "leaves": 1200, "depth": 1200}
    assert asked(matcher, {"x": 1190}) == [{limits.index(limit) + 1 for limit in range(1191, 1200)}]
    for gone in (np.arange(1, 1201, 2), np.arange(2, 1201, 2)):
        require_sound(matcher)
        matcher.remove(gone)
    require_empty(matcher)


# -- any predicates, any changes -----------------------------------------------------------------------------

EQUALITIES = st.one_of(
    st.builds(Constraint, st.sampled_from(("x", "y")), st.just("="), st.integers(0, 3)),
    st.builds(Constraint, st.just("s"), st.just("="), st.sampled_from(("", "a"))),
)
CONSTRAINTS = st.one_of(
    EQUALITIES,
    st.builds(Constraint, st.sampled_from("xy"), st.sampled_from(("<", "<=", ">", ">=")), st.integers(0, 3)),
    st.builds(Constraint, st.just("y"), st.sampled_from(("in", "not in")), st.just((1, 2))),
    st.builds(Constraint, st.just("s"), st.sampled_from(("<", ">=", "prefix", "is null")), st.just("a")),
)
EVENTS = st.fixed_dictionaries(
    {}, optional={"x": st.integers(-1, 4), "y": st.integers(-1, 4), "s": st.sampled_from(("", "a", "ab"))}
)
WORLD = Schema({"s": str, "x": float, "y": int})


def predicates_of(constraints):
    return st.lists(st.lists(constraints, max_size=3), max_size=3).map(
        lambda filters: Predicate(tuple(Filter(tuple(one)) for one in filters))
    )


@both
@given(data=st.data())
def test_removing_what_came_last_restores_the_tree(name, data):
    constraints = EQUALITIES if name == "matching-tree-equality" else CONSTRAINTS
    predicates = data.draw(st.lists(predicates_of(constraints), max_size=8))
    matcher, shapes = make_matcher(name, WORLD), []
    for id, predicate in enumerate(predicates):
        shapes.append(shape(matcher))
        matcher.add(Filters.of_predicates(WORLD, [predicate], np.array([id])))
        require_sound(matcher)
    for id in reversed(range(len(predicates))):
        assert matcher.remove(np.array([id])).all()
        assert shape(matcher) == shapes[id]
    require_empty(matcher)


@pytest.mark.slow
@both
@given(data=st.data())
def test_any_changes_leave_a_sound_tree_that_finds_what_matches(name, data):
    constraints = EQUALITIES if name == "matching-tree-equality" else CONSTRAINTS
    predicates = data.draw(st.lists(predicates_of(constraints), min_size=1, max_size=9))
    matcher, there, waiting = make_matcher(name, WORLD), {}, dict(enumerate(predicates))
    while waiting:
        if there and data.draw(st.booleans()):
            id = data.draw(st.sampled_from(sorted(there)))
            assert matcher.remove(np.array([id])).all()
            del there[id]
        else:
            id, there[id] = min(waiting), waiting.pop(min(waiting))
            matcher.add(Filters.of_predicates(WORLD, [there[id]], np.array([id])))
        require_sound(matcher)
        events = data.draw(st.lists(EVENTS, min_size=1, max_size=3))
        expected = [{id for id, one in there.items() if one.matches(event)} for event in events]
        assert asked(matcher, *events) == expected
        assert all(count >= 1 for count in visits(matcher, *events) if there and shape(matcher))
    matcher.remove(np.array(list(there), np.int64))
    require_empty(matcher)


# -- interrupts ----------------------------------------------------------------------------------------------

MODULES = [rtfilter.matchers.papers.matching_tree]
OTHERS = ["x > 1", "x > 1 AND x > 9", "x = 5 OR severity = 2 AND x > 1"]
WANTED = "x > 1 AND x < 5 OR x > 1 OR x >= 3 OR x = 5 AND severity = 1"
SOME = [{"x": 3}, {"x": 5, "severity": 1}, {"x": 10, "severity": 2}]


@pytest.mark.parametrize("change", ["add", "remove"])
@pytest.mark.parametrize("every", long_but([1, 4], [4]))
def test_a_change_cut_short_anywhere_is_undone_by_removal(change, every):
    """As the port has it: removal follows, which may be cut short as well, until one is whole."""
    alone = matcher_of(OTHERS)
    left = shape(alone)
    for matcher, lines in interrupted(MODULES, matcher_of, OTHERS, WANTED, change, every):
        assert shape(matcher) == left, lines
        require_sound(matcher)
        assert asked(matcher, *SOME) == asked(alone, *SOME)
