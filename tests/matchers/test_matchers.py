"""Every registered matcher keeps the promises of the port, and the check notices who does not."""

import pickle
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from cases import slow_but
from kinds import EACH, EACH_TAKEN_OVER, TAKING_ALL
from lengths import long_but
from rtfilter import Attribute, EventError, EventFilter, PredicateError, Schema, SnapshotError
from rtfilter.basics.results import Hits
from rtfilter.cli import main
from rtfilter.filter import inside
from rtfilter.matchers import MATCHERS, BoxColumns, Filters, Takes, check_matcher, make_matcher
from rtfilter.matchers.masks import MasksMatcher
from rtfilter.matchers.papers.hashes import HashesMatcher
from rtfilter.matchers.port import Flat, leveled
from rtfilter.matchers.rtree import RTreeMatcher
from rtfilter.watch.metrics import Metrics

PRICES = Schema({"price": float, "symbol": str})
QUICK = ("rtree", "scan", "split", "masks", "be-tree")
"""The matchers whose check `make check` runs: it takes half a second for most others."""


@pytest.mark.parametrize("seed", long_but(range(3), [1]))
@pytest.mark.parametrize("name", slow_but(MATCHERS, QUICK))
def test_registered_matchers_keep_the_promises(name, seed):
    check_matcher(name, seed, rounds=3 if seed == 1 else 8)


@pytest.mark.parametrize("name", MATCHERS)
def test_an_attribute_that_no_subscription_mentions_changes_nothing(name):
    takes = make_matcher(name, Schema({"b": bool})).takes
    types = {"b": bool, "other": bool}
    if "number" in takes.families:
        types |= {"x": int, "more": int}
    filter = EventFilter(Schema(types), matcher=name)
    filter.subscribe_many(["b = TRUE", "b = FALSE"] + ["x = 3", "x = 3 AND b = TRUE"] * ("x" in types))
    rest = [
        {},
        {"other": True},
        {"other": False},
        {"more": 3, "other": True},
        {"more": -(2**40), "other": False},
    ]
    for b in (True, False):
        event = {"b": b, "x": 3} if "x" in types else {"b": b}
        expected = sorted(filter.match(event | rest[1]).tolist())
        assert len(expected) == (1 if "x" not in types else 2 + b)
        for more in rest if takes.missing else rest[1:3]:
            known = {key: value for key, value in more.items() if key in types}
            assert sorted(filter.match(event | known).tolist()) == expected


class Equalities(HashesMatcher):
    """Takes little: equality of strings and numbers, complete events, one thread."""

    takes = Takes(
        operators=frozenset(("=", "in")),
        families=frozenset(("number", "str")),
        missing=False,
        threads=False,
        boxes=False,
    )


@pytest.mark.slow
def test_a_matcher_that_takes_little_is_checked_on_that():
    check_matcher(Equalities)


def test_what_a_matcher_does_not_take_is_refused_at_subscribe_and_match():
    filter = EventFilter(PRICES, matcher=Equalities)
    with pytest.raises(PredicateError, match="'Equalities' does not take the operator '<', but only =, in"):
        filter.subscribe("price < 3")
    with pytest.raises(PredicateError, match="does not take comparisons of attributes or arithmetic"):
        filter.subscribe("price * price = 9")
    with pytest.raises(PredicateError, match="does not take the operator 'prefix'"):
        filter.subscribe_many(["price = 3", "symbol LIKE 'A%'"])
    with pytest.raises(PredicateError, match="does not take the operator '>='"):
        filter.subscribe_boxes([[1, -np.inf]], [[2, np.inf]])
    with pytest.raises(PredicateError, match="does not take attributes of type bool"):
        EventFilter(Schema({"b": bool}), matcher=Equalities).subscribe("b = TRUE")
    assert len(filter) == 0
    id = filter.subscribe("price = 3 AND symbol IN ('A', 'B')")
    assert filter.match({"price": 3, "symbol": "B"}).tolist() == [id]
    for match in (filter.match_batch, filter.stream):
        with pytest.raises(EventError, match="event 1: attribute 'symbol' is missing"):
            match([{"price": 1, "symbol": "A"}, {"price": 3}])
    with pytest.raises(EventError, match="attribute 'price' is missing"):
        filter.match({"symbol": "A"})


class Wrong(MasksMatcher):
    """Breaks one promise."""

    broken = ""

    def match(self, events):
        hits = super().match(events)
        if self.broken == "loses a hit" and len(hits.ids) > 20:
            rows = np.repeat(np.arange(len(events)), np.diff(hits.offsets))[1:]
            offsets = np.searchsorted(rows, np.arange(len(events) + 1))
            return Hits(offsets, hits.ids[1:], None if hits.exact is None else hits.exact[1:], hits.visits)
        if self.broken == "vouches for supersets":
            return hits._replace(exact=None)
        return hits

    def workload(self, events):
        found = super().workload(events)
        return np.zeros_like(found) if self.broken == "estimates nothing" else found

    def remove(self, ids):
        known = super().remove(ids)
        return np.ones_like(known) if self.broken == "knows all" else known

    def content(self, ids=None):
        return super().content([] if self.broken == "forgets" else ids)

    def ids(self):
        return super().ids()[::-1] if self.broken == "descends" else super().ids()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("", None),
        ("loses a hit", "by brute force"),
        ("vouches for supersets", "by brute force"),
        ("estimates nothing", "workload 0 has matches"),
        ("knows all", "does not return which ids were known"),
        ("forgets", "built from content|after removals"),  # which make a matcher of layers anew of it
        ("descends", "ids\\(\\) does not return the known ids"),
    ],
)
def test_a_broken_promise_is_noticed(broken, message):
    made = type("Wrong", (Wrong,), {"broken": broken})
    if message is None:
        check_matcher(made)
    else:
        with pytest.raises(AssertionError, match=message):
            check_matcher(made)


@pytest.mark.slow
def test_an_operator_that_is_not_taken_is_not_asked_for_in_the_check():
    few = type("Few", (HashesMatcher,), {"takes": Takes(operators=frozenset(("=",)), boxes=False)})
    check_matcher(few)


def test_unknown_names_and_misplaced_options_say_what_to_do():
    with pytest.raises(ValueError, match="unknown matcher 'btree'; choose one of scan, rtree, split"):
        EventFilter(PRICES, matcher="btree")
    with pytest.raises(TypeError, match="a matcher is a name or a class"):
        EventFilter(PRICES, matcher=7)
    with pytest.raises(ValueError, match="the matcher 'masks' has no option 'capacity'"):
        EventFilter(PRICES, matcher={"name": "masks", "capacity": (4, 4)})
    with pytest.raises(TypeError, match="a CountingMatcher, and no R\\*-tree"):
        EventFilter(PRICES, matcher="counting").repack()
    with pytest.raises(ValueError, match="up to 255 coordinates"):
        EventFilter(Schema({f"a{i}": float for i in range(256)}), matcher="counting")


def test_a_matcher_of_ones_own_is_named_to_load(tmp_path):
    filter = EventFilter(PRICES, matcher=Equalities)
    filter.subscribe("price = 3", id=5)
    filter.save(tmp_path / "own")
    with pytest.raises(SnapshotError, match="saved with the matcher 'Equalities'; pass it to load"):
        EventFilter.load(tmp_path / "own")
    loaded = EventFilter.load(tmp_path / "own", matcher=Equalities)
    assert loaded.match({"price": 3, "symbol": ""}).tolist() == [5]
    assert isinstance(loaded._subscriptions.matcher, Equalities)


@pytest.mark.parametrize(("name", "other"), EACH_TAKEN_OVER)
def test_a_saved_filter_can_be_opened_with_another_matcher(name, other, tmp_path):
    filter = EventFilter(PRICES, matcher=name)
    filter.subscribe_many(["price < 3", "symbol LIKE 'abcdefghi%'", "price < 1 AND price > 2"])
    filter.subscribe_boxes([[4, -np.inf]], [[6, np.inf]])
    filter.save(tmp_path / "index")
    loaded = EventFilter.load(tmp_path / "index", matcher=other)
    assert loaded.stats()["unit"] == EventFilter(PRICES, matcher=other).stats()["unit"]
    events = [{"price": 1.0}, {"price": 5.0, "symbol": "abcdefghij"}, {"symbol": "abcdefghx"}]
    assert [sorted(ids) for ids in loaded.match_batch(events)] == [[0], [1, 3], []]
    assert len(loaded) == 4
    assert [str(loaded[id].predicate) for id in (0, 3)] == ["price < 3", "price >= 4.0 AND price <= 6.0"]
    loaded.save(tmp_path / "again")
    assert [sorted(ids) for ids in EventFilter.load(tmp_path / "again").match_batch(events)] == [
        [0],
        [1, 3],
        [],
    ]
    assert loaded.subscribe("price = 1") == 4


@pytest.mark.parametrize("other", EACH)
def test_boxes_of_a_class_of_ones_own_give_way_to_every_matcher(other, tmp_path):
    filter = EventFilter(PRICES, matcher=type("Own", (MasksMatcher,), {}))
    filter.subscribe_many(["symbol LIKE 'abcdefghi%'", "price < 3 OR symbol = 'a'"])
    filter.subscribe_boxes([[4, -np.inf], [2**53 + 1, -np.inf]], [[6, np.inf], [np.inf, np.inf]])
    filter.save(tmp_path / "own")
    loaded = EventFilter.load(tmp_path / "own", matcher=other)
    events = [{"price": 1, "symbol": "abcdefghij"}, {"price": 5}, {"price": 2**53}, {"price": 2**53 + 1}]
    assert [sorted(ids) for ids in loaded.match_batch(events)] == [[0, 1], [2], [], [3]]


def test_only_the_tree_has_levels():
    assert isinstance(leveled(make_matcher("masks", PRICES)), Flat)
    assert not isinstance(leveled(make_matcher("rtree", PRICES, capacity=(4, 4))), Flat)


def test_bounds_reach_matchers_of_constraints():
    filter = EventFilter(Schema({"x": float, "b": bool}), matcher="hashes")
    inf = np.inf
    filter.subscribe_boxes(
        [[1, -inf], [-inf, 1], [-inf, -inf], [2, -inf]], [[5, inf], [inf, 1], [inf, inf], [2, inf]]
    )
    events = [{"x": 2.0}, {"x": 7.0, "b": True}, {"b": False}]
    assert [sorted(ids) for ids in filter.match_batch(events)] == [[0, 2, 3], [1, 2], [2]]
    assert str(filter[0].predicate) == "x >= 1.0 AND x <= 5.0"
    assert inside(filter).matcher.workload(filter.schema.read(events)).tolist() == [2 + 1, 2 + 1, 2]


@pytest.mark.slow
def test_layers_stay_few_and_removed_boxes_do_not_stay_for_ever():
    filter = EventFilter(PRICES, matcher="counting")
    for i in range(300):
        filter.subscribe(f"price > {i}")
    assert len(filter.stats()["layers"]) <= 10
    assert filter.unsubscribe_many(np.arange(200)).all()
    assert sum(filter.stats()["layers"]) < 300
    assert sorted(filter.match({"price": 250.5})) == list(range(200, 251))


def test_the_workload_of_the_tree_is_the_leaves_to_visit():
    rng = np.random.default_rng(0)
    ends = np.sort(rng.random((400, 2, 2)), axis=1)
    filter = EventFilter(Schema({"x": float, "y": float}), matcher={"name": "rtree", "capacity": (4, 8)})
    filter.subscribe_boxes(ends[:, 0], ends[:, 1])
    tree, events = inside(filter).matcher.tree, rng.random((50, 2))
    by_level = [tree.frontier(events, level).workload for level in range(tree.height)]
    assert len(by_level) > 2
    assert (inside(filter).matcher.workload(filter.schema.read(events)) == by_level[-1]).all()
    assert (by_level[-1] != by_level[-2]).any()


def test_estimates_of_counting_are_its_increments():
    filter = EventFilter(Schema({"x": int, "y": int}), matcher="counting")
    rng = np.random.default_rng(0)
    low = rng.integers(0, 50, (200, 2)).astype(float)
    low[rng.random(low.shape) < 0.2] = -np.inf
    high = np.where(rng.random(low.shape) < 0.2, np.inf, np.maximum(low, 0) + rng.integers(0, 9, low.shape))
    filter.subscribe_boxes(low, high)
    events = filter.schema.read(rng.integers(0, 60, (50, 2)))
    matcher = inside(filter).matcher
    free = int((np.isinf(low) & np.isinf(high)).all(axis=1).sum())
    assert (matcher.match(events).visits + free == inside(filter).matcher.workload(events)).all()


class Inside(MasksMatcher):
    """Leaves out boxes that lie outside all domains, and vouches for nothing."""

    def add(self, filters):
        ids, low, high, exact = filters.boxes()
        domains = [attribute.bounds for attribute in self._schema.attributes.values()]
        ends = np.array(domains).T
        inside = ((low <= ends[1]) & (high >= ends[0])).all(axis=1)
        super().add(
            Filters.of_boxes(self._schema, BoxColumns(ids[inside], low[inside], high[inside], exact[inside]))
        )

    def match(self, events):
        hits = super().match(events)
        return hits._replace(exact=np.zeros(len(hits.ids), np.uint8))


DOMAIN = Schema({"x": Attribute(float, low=0, high=10)})


def test_what_a_matcher_leaves_out_is_still_a_subscription(tmp_path):
    filter = EventFilter(DOMAIN, matcher=Inside)
    ids = filter.subscribe_boxes([[20.0], [1.0]], [[30.0], [2.0]])
    other = filter.subscribe("x > 20")
    assert [id in filter for id in (*ids, other)] == [True] * 3
    assert filter.match({"x": 1.5}).tolist() == [1]  # not exact, and no predicate but the box
    assert str(filter[0].predicate) == "x >= 20.0 AND x <= 30.0"
    filter.save(tmp_path / "index")
    for matcher in (Inside, "rtree", "hashes", "counting"):
        loaded = EventFilter.load(tmp_path / "index", matcher=matcher)
        assert (len(loaded), loaded.match({"x": 1.5}).tolist()) == (3, [1]), matcher
    assert filter.unsubscribe_many([0, 1, 2]).all()
    tree = EventFilter(DOMAIN)
    tree.subscribe("x > 20")
    tree.save(tmp_path / "tree")
    assert len(EventFilter.load(tmp_path / "tree", matcher=Inside)) == 1


def test_bounds_are_held_against_what_a_matcher_takes():
    few = type("Few", (MasksMatcher,), {"takes": Takes(operators=frozenset(("=",)))})
    with pytest.raises(PredicateError, match="does not take the operator '>='"):
        EventFilter(DOMAIN, matcher=few).subscribe_boxes([[1.0]], [[2.0]])


def test_a_matcher_may_be_made_by_a_function(tmp_path):
    filter = EventFilter(PRICES, matcher=partial(RTreeMatcher, capacity=(4, 9)))
    filter.subscribe("price < 3")
    assert inside(filter).matcher.tree.capacity == (4, 9)
    filter.save(tmp_path / "index")
    loaded = EventFilter.load(tmp_path / "index", matcher=partial(RTreeMatcher, capacity=(5, 5)))
    assert inside(loaded).matcher.tree.capacity == (4, 9)
    assert pickle.loads(pickle.dumps(filter)).match({"price": 1.0}).tolist() == [0]


@pytest.mark.parametrize("name", TAKING_ALL)
def test_every_matcher_is_watched_and_described(name, tmp_path, capsys):
    filter = EventFilter(PRICES, matcher=name, metrics=Metrics())
    filter.subscribe_many(["price < 3", "symbol = 'A'"])
    list(filter.stream([{"price": 1.0}]))
    assert inside(filter).metrics.registry.get_sample_value("rtfilter_index_subscriptions") == 2
    assert inside(filter).metrics.registry.get_sample_value("rtfilter_matches_total") == 1
    filter.save(tmp_path / "index")
    for command in ("info", "check"):
        assert main(["index", command, str(tmp_path / "index")]) == 0
    assert "subscriptions" in capsys.readouterr().out


def test_hash_look_ups_survive_an_interrupt_anywhere(monkeypatch):
    for last in range(12):
        filter = EventFilter(Schema({"x": float}), matcher="hashes")
        filter.subscribe_many(["x = 1", "x IN (2, 3)"])
        matcher, left = filter._subscriptions.matcher, [last]

        def interrupted(original, left=left):
            def call(*arguments):
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
                return original(*arguments)

            return call

        with monkeypatch.context() as patch:
            for method in ("_insert", "_delete"):
                patch.setattr(matcher, method, interrupted(getattr(matcher, method)))
            with suppress(KeyboardInterrupt):
                filter.subscribe("x = 2 OR x = 3 OR x = 4")
                filter.unsubscribe(1)
        found = [sorted(filter.match({"x": x})) for x in (1, 2, 3)]
        assert found in (
            [[0], [1], [1]],
            [[0], [1, 2], [1, 2]],
            [[0], [2], [2]],
            [[0], [1, 2], [2]],
            [[0], [2], [1, 2]],
        )
        filter.unsubscribe_many([1, 2])
        assert [filter.match({"x": x}).tolist() for x in (1, 2, 3, 4)] == [[0], [], [], []]
