"""Matchers and controllers by name, with options: made, refused, kept, and another one put in place."""

import pickle

import pytest

from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.adaptive import CONTROLLERS, CostController, WangController, make_controller
from rtfilter.filter import inside, part_of

SCHEMA = Schema({"price": float, "symbol": str})
RULES = [
    "price < 10",
    "price > 1 AND price < 0",  # has no box
    "symbol LIKE 'A%' OR price > 90",
    "price + 1 > 50 AND symbol IN ('A', 'B')",
]
EVENTS = [{"price": 5.0, "symbol": "A"}, {"price": 95}, {"symbol": "AB"}, {"price": 60, "symbol": "B"}, {}]
NODES = {"name": "filter-nodes", "bit_lists": 0.5}
SMALL_NODES = {"name": "rtree", "capacity": [4, 8]}


def filled(**given):
    made = EventFilter(SCHEMA, **given)
    made.subscribe_many(RULES)
    made.subscribe_boxes({"price": [2.0**53]}, {"price": [2.0**53 + 6]}, ids=[9])
    return made


def found(filter):
    return [sorted(ids.tolist()) for ids in filter.match_batch([*EVENTS, {"price": 2**53 + 4}])]


def of(filter):
    held = filter._subscriptions
    return held.name, dict(held.matcher.options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"matcher": {"name": "tree"}}, "unknown matcher 'tree'; choose one of scan, rtree"),
        ({"matcher": {"capacity": [4, 8]}}, 'a matcher is a name, or an object with a "name"'),
        ({"matcher": {"name": "rtree", "bits": 1}}, "'rtree' has no option 'bits'; it has capacity"),
        ({"matcher": {"name": "rtree", "capacity": 64}}, "a list of 2: an integer, an integer, not 64"),
        ({"matcher": {"name": "filter-nodes", "bit_lists": "x"}}, "bit_lists of the matcher .* is a number"),
        ({"matcher": {"name": "filter-nodes", "bit_lists": 2}}, "a share from 0 to 1"),
        ({"matcher": {"name": "shared-counting", "counters": "a"}}, 'one of "map", "filters", "stamped"'),
        ({"matcher": {"name": "shared-counting", "share": 1}}, "share of the matcher .* is true or false"),
        ({"matcher": {"name": "naive", "c": 1}}, "'naive' has no option 'c'; it has none"),
        ({"matcher": {"name": "auto", "candidates": [1]}}, "candidates of the matcher 'auto' is a list"),
        ({"controller": "valley"}, "unknown controller 'valley'; choose one of cost, wang"),
        ({"controller": {"name": "wang", "N": 4}}, "'wang' has no option 'N'; it has rounds, threshold"),
        ({"controller": {"name": "wang", "rounds": 0}}, "rounds must be at least 1"),
        ({"controller": {"name": "fixed", "level": 1}}, "'fixed' needs the option group"),
        ({"controller": {"name": "level", "early_stop": 1}}, "'level' has no option 'early_stop'"),
    ],
)
def test_what_is_no_name_or_option_is_refused_and_what_is_one_is_named(given, said):
    with pytest.raises(ValueError, match=said):
        EventFilter(SCHEMA, **given)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_each_controller_is_made_by_its_name(name):
    entries = []
    needed = {"level": 1, "group": 4} if name == "fixed" else {}
    made = make_controller({"name": name, **needed}, entries.append)
    made.on_update(1)
    assert [entry["kind"] for entry in entries] == ["update"]
    assert type(made).__name__.lower().startswith(name)


@pytest.mark.parametrize("matcher", [NODES, {"name": "shared-counting-stamped", "share": False}, SMALL_NODES])
def test_a_snapshot_and_a_pickle_keep_the_options_and_the_controller(tmp_path, matcher):
    filter = filled(matcher=matcher, controller={"name": "wang", "rounds": 3, "threshold": 7})
    filter.save(tmp_path / "kept")
    for again in (
        EventFilter.load(tmp_path / "kept"),
        pickle.loads(pickle.dumps(filter)),
        part_of(filter, [0]),
    ):
        assert of(again) == of(filter)
        assert isinstance(inside(again).controller, WangController)
        assert (
            inside(again).controller.snapshot()["rounds"],
            inside(again).controller.snapshot()["threshold"],
        ) == (3, 7)
    other = inside(EventFilter.load(tmp_path / "kept", controller="cost")).controller
    assert type(other) is CostController


def test_loading_with_options_gives_the_matcher_these_and_with_a_name_alone_keeps_them(tmp_path):
    filled(matcher=NODES).save(tmp_path)
    assert of(EventFilter.load(tmp_path, matcher="filter-nodes"))[1] == {"bit_lists": 0.5}
    assert of(EventFilter.load(tmp_path, matcher={"name": "filter-nodes"}))[1] == {"bit_lists": 1 / 32}
    other = EventFilter.load(tmp_path, matcher={"name": "filter-nodes", "bit_lists": 0.25})
    assert (of(other)[1], found(other)) == ({"bit_lists": 0.25}, found(filled()))


def test_another_matcher_takes_the_place_of_one_with_all_subscriptions():
    filter, expected = filled(), found(filled())
    for matcher in (NODES, {"name": "counting"}, {**NODES, "bit_lists": 0.1}, {"name": "scan"}, SMALL_NODES):
        filter.repack(matcher)
        assert (of(filter)[0], found(filter)) == (matcher["name"], expected)
        assert (len(filter), filter.ids().tolist()) == (5, [0, 1, 2, 3, 9])
        assert filter[9].predicate == filled()[9].predicate
    assert inside(filter).matcher.tree.capacity == (4, 8)
    filter.unsubscribe_many([0, 9])
    assert len(filter) == 3


def test_a_filter_that_was_given_a_matcher_grows_no_more():
    filter = filled()
    growing = filter._road.growing
    filter.repack("counting")
    growing.move()  # as a thread does that has begun before
    filter.subscribe_many(["price < 7"] * 100)
    assert of(filter)[0] == "counting"


def test_a_matcher_that_may_refuse_subscriptions_takes_no_place():
    filter = filled()
    for matcher in ("matching-tree-equality", {"name": "gough-smith", "beyond": "refuse"}):
        with pytest.raises(ValueError, match="does not take all subscriptions"):
            filter.repack(matcher)
    with pytest.raises(ValueError, match="trials choose the matcher"):
        EventFilter(SCHEMA, matcher="auto").repack("counting")


def test_what_no_box_bounds_is_limited_with_a_matcher_of_boxes():
    filter = EventFilter(SCHEMA, matcher="naive", max_unbounded=0)
    filter.subscribe("price * 2 > price")
    filter.repack("scan")
    with pytest.raises(PredicateError, match="nothing bounds"):
        filter.subscribe("price * 2 > price")
    filter.repack("naive")
    assert filter.subscribe("price * 2 > price") == 1
