"""Counting with shared constraints: what is stored, what is found, and how many increments that takes."""

import threading
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import profile_cases
import rtfilter.matchers.papers.operator_indexes
import rtfilter.matchers.papers.relations
import rtfilter.matchers.papers.shared_counting
from interrupts import Interrupt, Lines
from lengths import long_but
from profile_cases import add, asked, interrupted
from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.matchers import Filters, check_matcher, make_matcher
from rtfilter.matchers.papers.shared_counting import SharedCountingMatcher
from rtfilter.predicates.model.constraints import Constraint, Filter
from rtfilter.predicates.predicate import Predicate

LAYOUTS = ("map", "filters", "stamped")
VARIANTS = [{"counters": counters, "share": share} for counters in LAYOUTS for share in (True, False)]
VARIANTS += [{"merged": True}, {"keys": "content"}, {"share": False, "keys": "content", "merged": True}]
SCHEMA = Schema({"x": float, "y": float, "s": str})
variants = pytest.mark.parametrize("options", VARIANTS, ids=str)


def matcher_of(sources, schema=SCHEMA, **options):
    """A matcher of predicates with ids 0, 1, ..."""
    return profile_cases.matcher_of(partial(SharedCountingMatcher, **options), list(sources), schema)


def stored(matcher):
    """How many predicates, filters and constraints there are."""
    details = matcher.details()
    return tuple(details[f"stored_{what}"] for what in ("predicates", "filters", "constraints"))


def require_empty(matcher):
    relations = matcher._relations
    assert not matcher._index
    assert not relations.subscribed
    assert not relations.always
    assert stored(matcher) == (0, 0, 0)
    assert relations.size == 0


# -- examples ------------------------------------------------------------------------------------------------

MONITORING = Schema(
    {
        **dict.fromkeys(("type", "hostname", "application", "process"), str),
        **dict.fromkeys(("processId", "severity", "id", "request.response"), int),
        **dict.fromkeys(("occurrenceTime", "request.resource", "request.protocol"), str),
    }
)
REQUEST = {
    "type": "org.apache.httpd.request.GET",
    "hostname": "lykomedes.fi.muni.cz",
    "application": "Apache Server",
    "process": "httpd",
    "processId": 4219,
    "severity": 1,
    "id": 16051986,
    "occurrenceTime": "2012-04-11T08:25:13.129Z",
    "request": {"resource": "/apache_pb.gif", "protocol": "HTTP/1.0", "response": 200},
}
FILTERS = [
    "type = 'org.apache.httpd.request.GET'",
    "type = 'org.apache.httpd.request.POST'",
    "type = 'org.apache.httpd.request.GET' AND hostname = 'example.com'",
    "process = 'httpd' AND severity <= 2",
    "process = 'postgresql' AND severity > 3",
]


@variants
def test_the_counters_of_the_papers_example(options):
    matcher = matcher_of(FILTERS, MONITORING, **options)
    assert asked(matcher, REQUEST) == [([0, 3], 1 + 0 + 1 + 2 + 0)]
    assert stored(matcher)[2] == (7 if matcher.options["share"] else 8)


def test_the_papers_examples_of_operators():
    assert asked(matcher_of(["x < 5"]), {"x": 2}) == [([0], 1)]
    assert asked(matcher_of(["s = 'httpd'"]), {"s": "postgresql"}) == [([], 0)]


# -- operators -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "satisfied"),
    [("x < 2", [1]), ("x <= 2", [1, 2]), ("x > 2", [3]), ("x >= 2", [2, 3]), ("x = 2", [2])],
)
@variants
def test_a_constant_itself_and_its_neighbours(options, source, satisfied):
    matcher = matcher_of([source, source], **options)
    own = 1 if matcher.options["share"] else 2
    found = asked(matcher, *({"x": x} for x in (1, 2, 3)))
    assert found == [([0, 1], own) if x in satisfied else ([], 0) for x in (1, 2, 3)]


def test_each_side_of_many_constants():
    limits = [f"x {operator} {limit}" for operator in ("<", "<=", ">", ">=") for limit in (1, 2, 2, 3)]
    found = {
        tuple(limits[id] for id in ids if limits[id][2:4].strip() == operator)
        for operator in ("<", "<=", ">", ">=")
        for ids, _ in asked(matcher_of(limits), {"x": 2})
    }
    assert found == {
        ("x < 3",),
        ("x <= 2", "x <= 2", "x <= 3"),
        ("x > 1",),
        ("x >= 1", "x >= 2", "x >= 2"),
    }


def test_a_set_has_an_entry_for_each_member_and_counts_once():
    matcher = matcher_of(["x IN (1, 2, 3)", "x IN (2, 4) AND y = 0", "x = 2"])
    assert asked(matcher, {"x": 2, "y": 0}, {"x": 1, "y": 0}, {"x": 5}) == [
        ([0, 1, 2], 4),
        ([0], 2),
        ([], 0),
    ]
    assert matcher.remove(np.array([0, 2])).all()
    assert asked(matcher, {"x": 2, "y": 0}, {"x": 1, "y": 0}) == [([1], 2), ([], 1)]
    nothing = Predicate((Filter((Constraint("x", "in", ()),)),))
    matcher.add(Filters.of_predicates(SCHEMA, [nothing], np.array([9])))
    assert asked(matcher, {"x": 4, "y": 0}) == [([1], 2)]
    matcher.remove(np.array([1, 9]))
    require_empty(matcher)


def test_prefixes_up_to_the_whole_text():
    matcher = matcher_of(["s LIKE '%'", "s LIKE 'org.é%'", "s LIKE 'org.éa%'", "s LIKE 'org.éab%'"])
    assert asked(matcher, {"s": "org.éa"}, {"s": ""}, {"s": "ORG.é"}, {}) == [
        ([0, 1, 2], 3),
        ([0], 1),
        ([0], 1),
        ([], 0),
    ]


def test_two_ends_are_one_range_with_both_ends_inside():
    matcher = matcher_of(["x >= 2 AND x <= 5", "x >= 5 AND x <= 5", "x > 2 AND x <= 5"])
    assert stored(matcher) == (3, 3, 4)
    assert asked(matcher, *({"x": x} for x in (1, 2, 5, 6))) == [
        ([], 1),  # the third is half satisfied
        ([0], 2),  # and again
        ([0, 1, 2], 4),
        ([], 1),
    ]


def test_the_closest_ends_make_the_range():
    matcher = matcher_of(["x >= 0 AND x >= 2 AND x <= 9 AND x <= 5", "x >= 2 AND x <= 5"])
    assert stored(matcher) == (1, 1, 1)
    assert asked(matcher, *({"x": x} for x in (1, 2, 5, 6))) == [([], 0), ([0, 1], 1), ([0, 1], 1), ([], 0)]


def test_a_range_without_values_matches_nothing_and_goes_away():
    matcher = matcher_of(["x >= 5 AND x <= 2", "x = 1 AND x = 2"])
    assert asked(matcher, *({"x": x} for x in (1, 2, 3, 5))) == [([], 1), ([], 1), ([], 0), ([], 0)]
    matcher.remove(np.array([0, 1]))
    require_empty(matcher)


def test_what_cannot_be_looked_up_is_tried_once_for_all_filters():
    matcher = matcher_of(["x <> 1 AND y = 1", "x <> 1 AND y = 2", "x IS NULL", "x < y"])
    assert matcher.details()["tried"] == 3
    assert asked(matcher, {"x": 2, "y": 1}, {"y": 2}, {"x": 1, "y": 2}) == [
        ([0], 3),
        ([2], 2),
        ([3], 2),
    ]
    matcher.remove(np.arange(4))
    require_empty(matcher)


def test_values_of_another_type_satisfy_nothing():
    matcher = matcher_of(["x = 1", "x < 5", "s = '1'"])
    assert asked(matcher, {"x": "1", "s": 1}, {"x": True}, {"x": 1.0, "s": "1"}) == [
        ([], 0),
        ([], 0),
        ([0, 1, 2], 3),
    ]


@pytest.mark.slow
def test_thousands_of_sorted_limits_overflow_nothing():
    for source in ("x < {0}", "x >= {0} AND x <= {1}"):
        matcher = matcher_of(source.format(i, i + 2) for i in range(3000))
        assert len(asked(matcher, {"x": 1500})[0][0]) in (1499, 3)
        matcher.remove(np.arange(3000))
        require_empty(matcher)


# -- sharing -------------------------------------------------------------------------------------------------


@variants
def test_predicates_with_a_common_filter(options):
    matcher = matcher_of(["x = 1 AND y = 2 OR s = 'a'", "y = 2 AND x = 1 OR s = 'b'"], **options)
    assert stored(matcher) == ((2, 3, 4) if matcher.options["share"] else (2, 4, 6))
    for gone, left in ((0, 1), (1, 0)):
        one = matcher_of(["x = 1 AND y = 2 OR s = 'a'", "y = 2 AND x = 1 OR s = 'b'"], **options)
        one.remove(np.array([gone]))
        assert stored(one) == (1, 2, 3)
        assert asked(one, {"x": 1, "y": 2}, {"x": 1}, {"s": "ab"[left]}) == [
            ([left], 2),
            ([], 1),
            ([left], 1),
        ]
        one.remove(np.array([left]))
        require_empty(one)


@variants
def test_filters_with_a_common_constraint(options):
    for gone, left in ((0, 1), (1, 0)):
        matcher = matcher_of(["x < 5 AND y = 0", "x < 5 AND y = 1"], **options)
        assert stored(matcher) == (2, 2, 3 if matcher.options["share"] else 4)
        assert asked(matcher, {"x": 1, "y": left}) == [([left], 3)]
        matcher.remove(np.array([gone]))
        assert stored(matcher) == (1, 1, 2)
        assert asked(matcher, {"x": 1, "y": left}, {"x": 1, "y": gone}) == [([left], 2), ([], 1)]
        matcher.remove(np.array([left]))
        require_empty(matcher)


@variants
def test_equal_subscriptions_stay_until_the_last_one_goes(options):
    same = ["x = 1 OR y >= 2 AND y <= 3 OR s LIKE 'a%'", "s LIKE 'a%' OR x = 1 OR y <= 3 AND y >= 2"] * 2
    matcher = matcher_of(same, **options)
    assert stored(matcher) == ((1, 3, 3) if matcher.options["share"] else (4, 12, 12))
    for left in range(4, 0, -1):
        ids = list(range(4 - left, 4))
        increments = 3 if matcher.options["share"] else 3 * left
        assert asked(matcher, {"x": 1, "y": 2, "s": "ab"}) == [(ids, increments)]
        matcher.remove(np.array([4 - left]))
    require_empty(matcher)


@variants
def test_equal_filters_of_one_subscription_count_once(options):
    twice = Constraint("x", "=", 1)
    predicate = Predicate((Filter((twice, twice)), Filter((twice,)), Filter((twice, twice))))
    matcher = SharedCountingMatcher(SCHEMA, **options)
    matcher.add(Filters.of_predicates(SCHEMA, [predicate]))
    assert stored(matcher) == (1, 1, 1)
    assert asked(matcher, {"x": 1}) == [([0], 1)]
    matcher.remove(np.array([0]))
    require_empty(matcher)


@variants
def test_filters_without_constraints_match_everything(options):
    matcher = matcher_of(["TRUE", "TRUE", "x = 1", "FALSE"], **options)
    assert asked(matcher, {}, {"x": 1}) == [([0, 1], 0), ([0, 1, 2], 1)]
    matcher.remove(np.array([0]))
    assert asked(matcher, {}) == [([1], 0)]
    matcher.remove(np.array([1, 2, 3]))
    require_empty(matcher)


def test_numbers_of_filters_are_given_again():
    matcher = matcher_of([f"x = {i}" for i in range(10)], counters="stamped")
    for step in range(200):
        matcher.remove(np.array([step]))
        assert asked(matcher, {"x": (step + 5) % 10})[0] == ([step + 5], 1)
        add(matcher, {step + 10: f"x = {step % 10}"})
        numbers = sorted(one.number for one in matcher._relations.filters.values())
        assert numbers == list(range(10))
        assert matcher._relations.size == 10
    assert len(matcher._counters._own.stamps) == 10


# -- increments ----------------------------------------------------------------------------------------------

CONSTRAINTS = st.one_of(
    st.builds(Constraint, st.just("x"), st.sampled_from(("<", "<=", ">", "=", "<>")), st.integers(0, 4)),
    st.builds(Constraint, st.just("y"), st.sampled_from(("<", ">", ">=", "=")), st.integers(0, 4)),
    st.builds(Constraint, st.just("y"), st.just("in"), st.lists(st.integers(0, 4), max_size=3)),
    st.builds(Constraint, st.just("s"), st.sampled_from(("prefix", "=", "<=")), st.text("ab", max_size=2)),
)
PREDICATES = st.lists(st.lists(CONSTRAINTS, max_size=3), max_size=3).map(
    lambda filters: Predicate(tuple(Filter(tuple(one)) for one in filters))
)
EVENTS = st.fixed_dictionaries(
    {}, optional={"x": st.integers(-1, 5), "y": st.integers(-1, 5), "s": st.text("abc", max_size=3)}
)


def increments_of(predicates, event, share):
    """Satisfied constraints, filter by filter; nothing here forms ranges."""
    filters = [(id, frozenset(one.constraints)) for id, own in predicates.items() for one in own.filters]
    different = {one for _, one in filters} if share else [one for _, one in set(filters)]
    return sum(constraint.matches(event) for one in different for constraint in one)


@given(st.lists(PREDICATES, max_size=8), st.lists(EVENTS, min_size=1, max_size=4), st.data())
def test_increments_are_satisfied_constraints_of_each_filter(predicates, events, data):
    gone = data.draw(st.sets(st.sampled_from(range(len(predicates))))) if predicates else set()
    for options in VARIANTS:
        matcher = SharedCountingMatcher(SCHEMA, **options)
        matcher.add(Filters.of_predicates(SCHEMA, predicates))
        matcher.remove(np.array(sorted(gone), np.int64))
        left = {id: one for id, one in enumerate(predicates) if id not in gone}
        for event, (ids, increments) in zip(events, asked(matcher, *events), strict=True):
            assert ids == [id for id, one in left.items() if one.matches(event)]
            assert increments == increments_of(left, event, matcher.options["share"])
        matcher.remove(np.array(sorted(left), np.int64))
        require_empty(matcher)


LONGS = Schema({f"longAttribute{j}": int for j in range(12)})


def twelve_longs(count):
    """The thesis's benchmark: each predicate bounds twelve attributes, and no two constraints are equal."""
    return [
        Predicate(
            (Filter(tuple(Constraint(f"longAttribute{j}", "<", j * 10_000 + 1000 + i) for j in range(12))),)
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("counters", LAYOUTS)
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("count", long_but([100, 1000], [100]))
def test_increments_of_the_theses_benchmark(counters, share, count):
    matcher = SharedCountingMatcher(LONGS, counters=counters, share=share)
    order = np.random.default_rng(0).permutation(count)
    predicates = twelve_longs(count)
    matcher.add(Filters.of_predicates(LONGS, [predicates[i] for i in order], order))
    assert stored(matcher) == (count, count, 12 * count)
    for percent in (25, 50, 75):
        missed = count * (100 - percent) // 100
        matched = count - 1 - missed  # one less than the share says: `<` leaves out the limit itself
        event = {f"longAttribute{j}": j * 10_000 + 1000 + missed for j in range(12)}
        assert asked(matcher, event) == [(list(range(missed + 1, count)), 12 * matched)]
        event = dict.fromkeys(event, 0) | {"longAttribute6": event["longAttribute6"]}
        assert asked(matcher, event) == [(list(range(missed + 1, count)), 11 * count + matched)]
    everything = dict.fromkeys(LONGS.names, 0)
    assert asked(matcher, everything) == [(list(range(count)), 12 * count)]


# -- counters ------------------------------------------------------------------------------------------------


def test_counters_in_filters_are_zero_after_each_match():
    matcher = matcher_of(["x = 1 AND y = 1", "x = 1 AND y = 2", "x = 1"], counters="filters")
    assert asked(matcher, {"x": 1, "y": 1}, {"x": 1}, {"y": 2}) == [([0, 2], 4), ([2], 3), ([], 1)]
    assert [one.count for one in matcher._relations.filters.values()] == [0, 0, 0]
    assert not matcher.takes.threads


@pytest.mark.parametrize("counters", LAYOUTS)
def test_a_match_that_was_interrupted_disturbs_no_other(counters):
    matcher = matcher_of(["x = 1 AND y = 1", "x = 1 AND y = 2", "x = 1"], counters=counters)
    event = {"x": 1, "y": 1}
    expected = asked(matcher, event)
    with Lines([rtfilter.matchers.papers.shared_counting]) as lines:
        asked(matcher, event)
    assert lines.count > 10
    for at in range(lines.count):
        with Lines([rtfilter.matchers.papers.shared_counting], at), pytest.raises(Interrupt):
            asked(matcher, event)
        assert asked(matcher, event) == expected


def test_threads_have_stamps_of_their_own():
    matcher = matcher_of(["x = 1 AND y = 1", "x = 1"], counters="stamped")
    asked(matcher, {"x": 1})
    seen = []
    thread = threading.Thread(target=lambda: seen.append(asked(matcher, {"x": 1}, {"y": 1})))
    thread.start()
    thread.join()
    assert seen == [[([1], 2), ([], 1)]]
    assert matcher._counters._own.epoch == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but(range(2), [0]))
@pytest.mark.parametrize("options", long_but(VARIANTS, [VARIANTS[0], *VARIANTS[5:8]]), ids=str)
def test_every_variant_keeps_the_promises(options, seed):
    check_matcher(partial(SharedCountingMatcher, **options), seed, rounds=4)


def test_the_layouts_have_names():
    for name, counters in (("", "map"), ("-filters", "filters"), ("-stamped", "stamped")):
        matcher = make_matcher("shared-counting" + name, SCHEMA)
        assert matcher.options == {"counters": counters, "share": True, "keys": "id", "merged": False}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"counters": "array"}, "counters are one of map, filters, stamped, not 'array'"),
        ({"keys": "hash"}, "keys are one of id, content, not 'hash'"),
        ({"keys": "content", "counters": "stamped"}, "only counters in a map have keys"),
    ],
)
def test_wrong_options_say_which_there_are(options, message):
    with pytest.raises(ValueError, match=message):
        SharedCountingMatcher(SCHEMA, **options)


def test_a_wrong_subscription_leaves_nothing():
    filter = EventFilter(SCHEMA, matcher="shared-counting")
    with pytest.raises(PredicateError):
        filter.subscribe_many(["x = 1", "x = 'text'"])
    require_empty(filter._subscriptions.matcher)


# -- interrupts ----------------------------------------------------------------------------------------------

MODULES = [
    rtfilter.matchers.papers.operator_indexes,
    rtfilter.matchers.papers.relations,
]
OTHERS = ["x = 1 AND y < 2", "s LIKE 'ab%' OR x >= 1 AND x <= 3", "s LIKE 'b%' OR TRUE"]
WANTED = "x = 1 AND y < 2 OR s LIKE 'a%' AND x >= 1 AND x <= 3 OR y IN (1, 2) AND s <> 'a' OR x > 3 OR TRUE"
SOME = [{"x": 1, "y": 1, "s": "abc"}, {"x": 4, "y": 2, "s": "a"}, {}]


@pytest.mark.slow
@pytest.mark.parametrize("share", long_but([True, False], [True]))
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("change", ["add", "remove"])
@pytest.mark.parametrize("every", long_but([1, 4], [4]))
def test_a_change_that_was_interrupted_can_be_undone(change, known, share, every):
    """Wherever it is cut short, and wherever undoing it is."""
    others = OTHERS + [WANTED] * known
    made = partial(matcher_of, share=share)
    alone = made(others)
    expected, left = asked(alone, *SOME), stored(alone)
    for matcher, lines in interrupted(MODULES, made, others, WANTED, change, every):
        assert (asked(matcher, *SOME), stored(matcher)) == (expected, left), lines
        add(matcher, {9: WANTED, 8: "x = 7"})
        matcher.remove(np.arange(10))
        require_empty(matcher)


def test_pairs_of_changes_leave_what_is_alike():
    """After any two are gone, the third is found as if the others had never been."""
    for gone in combinations(range(3), 2):
        matcher = matcher_of(OTHERS)
        matcher.remove(np.array(gone))
        (left,) = set(range(3)) - set(gone)
        alone = SharedCountingMatcher(SCHEMA)
        add(alone, {left: OTHERS[left]})
        assert (asked(matcher, *SOME), stored(matcher)) == (asked(alone, *SOME), stored(alone))
