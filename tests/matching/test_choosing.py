"""A filter that chooses its matcher: it answers the same before, while and after another one is moved to."""

import contextlib
import json
import logging
import pickle
import sys
import threading
import time
from itertools import repeat

import numpy as np
import pytest

import rtfilter.matching.choosing
from examples import SCHEMA, random_events, random_predicate
from interrupts import Interrupt, Lines
from kinds import TAKING_ALL
from lengths import long_but
from oracle import as_sets, subscribers
from rtfilter import EventFilter, Schema
from rtfilter.adaptive import CostController, FixedPlan, LevelController, MatcherChooser, replay_matchers
from rtfilter.adaptive import matchers as adaptive
from rtfilter.adaptive.matchers import Move, Try
from rtfilter.filter import inside, part_of
from rtfilter.matching import choosing, copies
from rtfilter.subscriptions import content, slices, stored
from rtfilter.watch.metrics import Metrics

CANDIDATES = MatcherChooser().candidates


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    monkeypatch.setattr(slices, "SLICE", 16)
    monkeypatch.setattr(copies, "FEW", 4)


class Told(MatcherChooser):
    """Wants what it is told to, when `moved` asks."""

    def __init__(self, *wanted, **options):
        super().__init__(**options)
        self.wanted = list(wanted)

    def observe(self, size, seconds, batches=1, streamed=False):
        super().observe(size, seconds, batches, streamed)
        return False

    def step(self, content):
        return self.wanted.pop(0) if self.wanted else None


def moved(filter, matcher):
    """Move to a matcher, in this thread."""
    own = filter._road.choosing
    own.chooser.wanted = [Move(matcher)]
    own.run()
    assert filter.stats()["matcher"]["name"] == matcher


def made(rng, count=100, **options):
    filter = EventFilter(SCHEMA, **{"matcher": Told(), **options})
    filter.subscribe_many([random_predicate(rng) for _ in range(count)])
    ends = rng.integers(0, 9, 40)
    ends[::3] = 2**62 - 1  # no float64
    filter.subscribe_boxes({"n": ends}, {"n": np.full(40, 2**63 - 1)})
    return filter


def require_right(filter, seed=5):
    predicates = {id: filter[id].predicate for id in filter.ids().tolist()}
    events = random_events(np.random.default_rng(seed), 30)
    expected = subscribers(predicates, [SCHEMA.read(event).row(0) for event in events])
    assert as_sets(filter.match_batch(events)) == expected
    assert as_sets(filter.stream(events).matches()) == expected
    assert filter.match_batch(events).any.tolist() == [bool(ids) for ids in expected]
    assert len(filter) == len(predicates)


def change(filter, rng):
    id, source = int(rng.choice(filter.ids())), random_predicate(rng)
    kind = rng.integers(5)
    if kind == 0:
        filter.unsubscribe(id)
    elif kind == 1:
        filter.update(id, source)
    elif kind == 2:
        filter.subscribe(source, ttl=1e6, metadata={"by": "a test"})
    elif kind == 3:
        filter.unsubscribe(id)
        filter.subscribe("FALSE" if rng.integers(2) else source, id)
    else:
        filter.subscribe_many([random_predicate(rng) for _ in range(40)])


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but(range(4), [0]))
@pytest.mark.parametrize(
    "controller", long_but([CostController, lambda: LevelController(rounds=1, threshold=5)], [CostController])
)
def test_moves_between_changes_lose_nothing(seed, controller):
    rng = np.random.default_rng(seed)
    filter = made(rng, controller=controller(), metrics=Metrics())
    labelled = filter.subscribe("x > 1", ttl=1e6, metadata={"a": 1})
    deadline, version, updates = filter[labelled].expires, filter.stats()["version"], 0
    for _ in range(3):
        for name in rng.permutation(CANDIDATES):
            moved(filter, str(name))
            require_right(filter)
            assert filter.stats()["version"] == version
            now = inside(filter).metrics.registry.get_sample_value("rtfilter_index_updates_total")
            assert now >= updates
            assert now == filter.stats()["updates"]
            for _ in range(4):
                change(filter, rng)
            require_right(filter)
            version, updates = filter.stats()["version"], now
            if filter.__contains__(labelled) and filter[labelled].expires == deadline:
                assert filter[labelled].metadata == {"a": 1}
    assert filter._road.control.controller is inside(filter).controller


@pytest.mark.slow
@pytest.mark.parametrize("changes", long_but([1, 300], [300]))
@pytest.mark.parametrize("away", long_but(range(len(CANDIDATES)), [1]))
@pytest.mark.parametrize("before", CANDIDATES)
def test_a_move_loses_nothing_that_changes_meanwhile(monkeypatch, before, away, changes):
    to = CANDIDATES[(CANDIDATES.index(before) + away) % len(CANDIDATES)]
    rng = np.random.default_rng(changes)
    filter = made(rng)
    moved(filter, before)
    read, left = copies.Copy._read, [changes]

    def read_and_change(*arguments):
        found = read(*arguments)
        for _ in range(3):
            if left[0]:
                left[0] -= 1
                id, source = int(rng.choice(filter.ids())), random_predicate(rng)
                filter.unsubscribe(id) if left[0] % 3 else filter.update(id, source)
                filter.subscribe(source)
        return found

    monkeypatch.setattr(copies.Copy, "_read", read_and_change)
    log = filter.changes()
    moved(filter, to)
    assert left[0] < changes
    require_right(filter)
    told = set(range(140))
    for one in log:
        told = (told - set(one.removed.tolist())) | set(one.added.ids.tolist())
    assert told == set(filter.ids().tolist())


def test_a_stream_that_is_open_while_it_moves_goes_on():
    filter = made(np.random.default_rng(0), controller=FixedPlan(1, 4))
    events = random_events(np.random.default_rng(1), 40)
    expected = as_sets(filter.match_batch(events))
    for name in ("masks", "rtree", "split", "counting", "rtree"):
        stream, found = filter.stream(events), {}
        for place, (event, ids, _) in enumerate(stream):
            found[event] = set(ids.tolist())
            if place == 3:
                moved(filter, name)
        assert [found[event] for event in range(40)] == expected


def test_levels_are_others_after_a_move():
    filter = made(np.random.default_rng(0))
    shapes, plan = [], inside(filter).controller.plan
    inside(filter).controller.plan = lambda size, shape: shapes.append(shape) or plan(size, shape)
    for name in ("masks", "rtree", "masks", "rtree"):
        list(filter.stream(random_events(np.random.default_rng(1), 3)))
        moved(filter, name)
    list(filter.stream(random_events(np.random.default_rng(1), 3)))
    assert len({(shape.height, shape.packed) for shape in shapes}) == 5


@pytest.mark.slow
def test_threads_match_and_change_while_it_moves():
    rng = np.random.default_rng(0)
    filter = made(rng)
    events = random_events(rng, 25)
    before = as_sets(filter.match_batch(events))
    steady, stop, wrong = set(filter.ids().tolist()), threading.Event(), []

    def matches(streamed):
        try:
            while not stop.is_set():
                found = filter.stream(events).matches() if streamed else filter.match_batch(events)
                if [ids & steady for ids in as_sets(found)] != before:
                    wrong.append(found)
        except BaseException as error:
            wrong.append(error)

    def changes():
        own = np.random.default_rng(1)
        try:
            while not stop.is_set():
                ids = filter.subscribe_many([random_predicate(own) for _ in range(own.integers(1, 60))])
                filter.update(int(ids[0]), random_predicate(own))
                filter.unsubscribe_many(ids)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=matches, args=(streamed,)) for streamed in (False, True)]
    threads.append(threading.Thread(target=changes))
    for thread in threads:
        thread.start()
    for moves in range(12):
        moved(filter, CANDIDATES[(moves + 1) % len(CANDIDATES)])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert set(filter.ids().tolist()) == steady
    require_right(filter)
    assert filter.stats()["in_flight_batches"] == 0


MODULES = [rtfilter.matching.choosing, copies, content, slices, stored, rtfilter.matching.updates]


@pytest.mark.slow
@pytest.mark.parametrize("part", long_but(range(8), [0]))
def test_a_move_that_is_cut_short_anywhere_leaves_all_as_it_was_or_has_moved(part):
    def ready():
        filter = made(np.random.default_rng(0), 12)
        filter._road.choosing.chooser.wanted = [Move("masks")]
        return filter

    with Lines(MODULES) as lines:
        ready()._road.choosing.run()
    assert lines.count > 100
    expected = as_sets(ready().match_batch(random_events(np.random.default_rng(3), 10)))
    names = set()
    for at in lines.ends()[2 * part :: 16]:
        filter = ready()
        with Lines(MODULES, at) as lines, contextlib.suppress(Interrupt):
            filter._road.choosing.run()
        names.add(filter.stats()["matcher"]["name"])
        assert as_sets(filter.match_batch(random_events(np.random.default_rng(3), 10))) == expected
        assert filter.subscribe("TRUE") == 52
        moved(filter, "split")
        assert filter.unsubscribe(52)
        assert as_sets(filter.match_batch(random_events(np.random.default_rng(3), 10))) == expected
    assert names == {"rtree", "masks"}


def test_what_fails_leaves_the_matcher_and_is_told(monkeypatch, caplog):
    filter = made(np.random.default_rng(0))
    own = filter._road.choosing

    def out_of_memory(*_, **__):
        raise MemoryError("there is no more")

    for wanted, broken in ((Move("masks"), "Copy"), (Try("masks", 10, None), "make_matcher")):
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "rtfilter"):
            patch.setattr(rtfilter.matching.updates, "Copy", out_of_memory)
            patch.setattr(choosing, "make_matcher", out_of_memory)
            own.chooser.wanted = [wanted]
            own.run()
        assert "the matcher 'masks' is not tried: there is no more" in caplog.text, broken
        caplog.clear()
        assert filter.stats()["matcher"]["name"] == "rtree"
        require_right(filter)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["saved", "pickled"])
@pytest.mark.parametrize("name", CANDIDATES)
def test_a_copy_is_auto_and_has_the_chosen_matcher(tmp_path, keep, name):
    filter = made(np.random.default_rng(0), matcher=Told(share=0.1, memory=2.0))
    moved(filter, name)
    if keep == "saved":
        filter.save(tmp_path / "index")
        again = EventFilter.load(tmp_path / "index")
    else:
        again = pickle.loads(pickle.dumps(filter))
    state = again.stats()["matcher"]
    assert (state["name"], state["share"], state["memory"]) == (name, 0.1, 2.0)
    require_right(again)
    part = part_of(again, again.ids()[:20])
    assert part.stats()["matcher"]["name"] == name
    assert part.stats()["matcher"]["share"] == 0.1


def test_a_snapshot_can_become_auto_or_fixed(tmp_path):
    fixed = EventFilter(Schema({"x": float}), matcher="hem")
    fixed.subscribe("x > 1")
    fixed.save(tmp_path / "fixed")
    auto = EventFilter.load(tmp_path / "fixed", matcher="auto")
    assert auto.stats()["matcher"]["why"] == "it was saved with that"
    assert auto.stats()["matcher"]["name"] == "hem"
    other = EventFilter.load(tmp_path / "fixed", matcher=MatcherChooser(("rtree", "split")))
    assert other.stats()["matcher"]["name"] == "rtree"
    auto.save(tmp_path / "auto")
    for name in TAKING_ALL:
        again = EventFilter.load(tmp_path / "auto", matcher=name)
        assert again.stats()["matcher"] == {"name": name}
        assert again.match({"x": 2}).tolist() == [0]
    with pytest.raises(ValueError, match="unknown matcher 'btree'"):
        EventFilter.load(tmp_path / "auto", matcher=MatcherChooser(("btree",)))


def used(filter, events, until, seconds=300):
    """Match batches until something holds."""
    begun = time.monotonic()
    while not until(filter.stats()["matcher"]):
        assert time.monotonic() - begun < seconds, filter.stats()["matcher"]
        filter.match_batch(events)
        filter._road.choosing.wait()


def boxes(count, dimensions=6):
    rng = np.random.default_rng(0)
    filter_schema = Schema({f"a{k}": float for k in range(dimensions)})
    low = rng.random((count, dimensions)) * 0.8
    return filter_schema, low, low + 0.2, rng.random((500, dimensions))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["match_batch", "stream"])
def test_what_is_measured_decides(way):
    schema, low, high, events = boxes(3000)
    log = []
    options = {"candidates": ("counting", "rtree"), "share": 1.0}
    filter = EventFilter(schema, matcher=MatcherChooser(**options, log=log.append), metrics=Metrics())
    filter.subscribe_boxes(low, high)
    before = as_sets(filter.match_batch(events))
    begun = time.monotonic()
    while filter.stats()["matcher"]["name"] == "counting":
        assert time.monotonic() - begun < 300, filter.stats()["matcher"]
        filter.match_batch(events) if way == "match_batch" else list(filter.stream(events))
        filter._road.choosing.wait()
    assert as_sets(filter.match_batch(events)) == before
    assert inside(filter).matcher.tree.height > 0
    state = filter.stats()["matcher"]
    assert json.loads(json.dumps(state)) == state
    assert "times the time of counting" in state["why"]
    value = inside(filter).metrics.registry.get_sample_value
    assert value("rtfilter_matcher", {"matcher": "rtree"}) == 1
    assert value("rtfilter_matcher", {"matcher": "counting"}) is None
    assert value("rtfilter_matcher_moves_total") == 1
    assert value("rtfilter_matcher_trials_total") == state["trials"] > 0
    assert value("rtfilter_matcher_trial_seconds_total") == state["trial_seconds"] > 0
    again = MatcherChooser(**options)
    replay_matchers(json.loads(json.dumps(log)), again)
    assert again.snapshot() == filter.stats()["matcher"]


@pytest.mark.slow
@pytest.mark.parametrize("text", [True, False])
def test_trials_have_the_texts_of_events(text):
    """A table of long ends needs them, of the matcher in use and of the candidate."""
    schema = Schema({"host": str, "n": int})
    filter = EventFilter(schema, matcher=MatcherChooser(("rtree", "split"), share=1.0))
    filter.subscribe_many([f"host LIKE '%.site{at}.example.net'" for at in range(1000)])
    filter.subscribe_many([f"n = {at}" for at in range(1000)])
    assert filter.stats()["looked_up"] > 0
    events = [{"host": f"a.site{at}.example.net", "n": at} for at in range(100)]
    given = [json.dumps(event) for event in events] if text else events
    used(filter, given, lambda state: state["rounds"] > 0)
    state = filter.stats()["matcher"]
    told = state if state["name"] == "split" else state["candidates"]["split"]
    assert "times the time of rtree" in told["why"]
    assert as_sets(filter.match_batch(given)) == [{at, 1000 + at} for at in range(100)]


def test_who_would_take_too_much_memory_is_never_kept(monkeypatch):
    monkeypatch.setattr(adaptive, "SMALL", 0)
    schema, low, high, events = boxes(3000)
    filter = EventFilter(schema, matcher=MatcherChooser(("counting", "rtree"), share=1.0, memory=0.01))
    filter.subscribe_boxes(low, high)
    used(filter, events, lambda state: state["rounds"] > 0)
    state = filter.stats()["matcher"]
    assert state["name"] == "counting"
    assert state["trials"] == 0
    assert "bytes, and at most" in state["candidates"]["rtree"]["why"]


def test_trials_take_samples_where_rows_are_free():
    schema, low, high, _ = boxes(3000)
    for first in CANDIDATES:
        filter = EventFilter(schema, matcher=MatcherChooser((first,)))
        filter.subscribe_boxes(low, high)
        filter.unsubscribe_many(np.arange(0, 3000, 3))
        sample = filter._road.choosing._sample(256)
        assert 100 <= len(sample) <= 256
        assert set(sample.ids.tolist()) <= set(filter.ids().tolist())
        seen = filter._road.choosing._content()
        assert (seen.subscriptions, seen.dimensions, seen.constrained, seen.equal) == (2000, 6, 1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CANDIDATES)
def test_a_sample_is_taken_while_all_is_removed(name):
    filter = made(np.random.default_rng(0), 1000)
    moved(filter, name)

    class Meanwhile:
        def sample(self, blocks, count):
            filter.unsubscribe_many(np.arange(5, 4000))
            filter.repack()
            return list(blocks)

    own = filter._road.choosing
    own._random = Meanwhile()
    assert set(own._sample(4000).ids.tolist()) <= set(filter.ids().tolist())


@pytest.mark.long
@pytest.mark.slow
def test_few_batches_are_timed():
    filter = EventFilter(Schema({"x": float}), matcher="auto")
    filter.subscribe("x > 1")
    for _ in range(30_000):
        filter.match({"x": 2.0})
    own = filter._road.choosing
    counted = own.chooser._events[1, False]
    assert 15_000 < counted <= 30_000
    assert own.chooser._matched > 0


def test_a_batch_that_is_not_timed_runs_the_lines_of_a_fixed_filter():
    modules, ran = [one for name, one in sys.modules.items() if name.startswith("rtfilter")], []
    for matcher in ("rtree", "auto"):
        filter = EventFilter(Schema({"x": float}), matcher=matcher)
        filter.subscribe("x > 1")
        for _ in range(3):  # what is done once is done
            filter.match({"x": 2.0})
        filter._road.untimed = repeat(None)
        with Lines(modules) as lines:
            filter.match({"x": 2.0})
        ran.append(lines.places)
    assert len(ran[0]) > 50
    assert ran[0] == ran[1]


def test_a_fixed_filter_says_what_it_uses():
    filter = EventFilter(Schema({"x": float}), matcher="masks", metrics=Metrics())
    assert filter.stats()["matcher"] == {"name": "masks"}
    assert inside(filter).metrics.registry.get_sample_value("rtfilter_matcher", {"matcher": "masks"}) == 1
    with pytest.raises(TypeError, match="this filter has a MasksMatcher, and no R"):
        filter.repack()


@pytest.mark.slow
def test_repack_packs_whatever_is_in_use():
    filter = made(np.random.default_rng(0))
    for name in CANDIDATES:
        moved(filter, name)
        before, matcher = filter.stats()["updates"], filter._subscriptions.matcher
        filter.repack()
        assert filter.stats()["updates"] == before
        assert (filter._subscriptions.matcher is matcher) == (name in ("rtree", "split"))  # which take over
        require_right(filter)


@pytest.mark.slow
def test_a_large_change_is_made_aside_whatever_is_in_use(monkeypatch):
    filter = made(np.random.default_rng(0))
    moved(filter, "masks")
    monkeypatch.setattr(content.Subscriptions, "add_hidden", None)
    filter.subscribe_many([random_predicate(np.random.default_rng(1)) for _ in range(300)])
    filter.unsubscribe_many(np.arange(0, 400))
    require_right(filter)


def test_wrong_candidates_are_refused():
    for name in ("hashes", "naive", "shared-counting"):
        with pytest.raises(ValueError, match=f"the matcher '{name}' cannot be a candidate"):
            EventFilter(SCHEMA, matcher=MatcherChooser(("rtree", name)))
    with pytest.raises(ValueError, match="unknown matcher 'btree'"):
        EventFilter(SCHEMA, matcher=MatcherChooser(("btree",)))


@pytest.mark.slow
def test_spark_opens_what_chose_with_the_tree(tmp_path):
    pytest.importorskip("pyspark")
    from rtfilter.spark import leases

    filter = made(np.random.default_rng(0))
    moved(filter, "masks")
    filter.save(tmp_path / "index")
    found = leases.Lease(str(tmp_path / "index"), leases._manifest(tmp_path / "index")).load()
    assert found.stats()["matcher"] == {"name": "rtree"}
    assert len(inside(found).matcher.tree) > 0
    require_right(found)
