"""A filter that begins with a scan and moves to the R*-tree: it answers the same before, while and after."""

import contextlib
import gc
import logging
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rtfilter.filter
import rtfilter.matchers.scan
import rtfilter.matching.gate
import rtfilter.matching.road
import rtfilter.matching.subscriber
import rtfilter.subscriptions.content
import rtfilter.subscriptions.stored
from examples import SCHEMA, random_events, random_predicate
from interrupts import Interrupt, Lines
from kinds import KINDS, id_of, require_sound
from lengths import long_but
from oracle import as_sets, subscribers
from rtfilter import EventFilter, Schema
from rtfilter.adaptive import FixedPlan
from rtfilter.filter import inside, part_of
from rtfilter.matchers.rtree import tree_of
from rtfilter.matching import copies, filter_parts, growing, updates
from rtfilter.subscriptions import slices
from rtfilter.watch.metrics import Metrics

PATIENCE = 120
"""Seconds until a call counts as hung."""
NUMBERS = Schema({"x": float})


class Kernels:
    """Stands for `rtfilter.index.ready`: the kernels are loaded in the background when a test lets them."""

    def __init__(self, loaded=False, error=None):
        self.loaded, self.error, self.loads = loaded, error, 0
        self.asked, self.go = threading.Event(), threading.Event()

    def ready(self):
        return self.loaded

    def load(self, progress=None):
        self.loads += 1
        if self.error is not None:
            raise self.error
        self.loaded = True

    def load_in_background(self):
        self.asked.set()
        if not self.go.wait(PATIENCE):
            raise TimeoutError("the test has not let it go on")
        self.load()

    def end(self):
        """Let all threads that wait here end."""
        self.go.set()
        for thread in threading.enumerate():
            if thread.name == "rtfilter grows":
                thread.join(PATIENCE)


@pytest.fixture
def kernels(monkeypatch):
    made = Kernels()
    for module in (growing, filter_parts):
        monkeypatch.setattr(module, "ready", made)
    yield made
    made.end()


def matcher_of(filter):
    return filter.stats()["matcher"]["name"]


def moves(filter, kernels):
    """Wait until it begins to move; it cannot end before a test lets it."""
    assert kernels.asked.wait(PATIENCE)
    assert filter._road.growing.moving
    assert matcher_of(filter) == "scan"


def moved(filter, kernels):
    """Let it move, and wait until it has."""
    own = filter._road.growing
    kernels.go.set()
    if own is not None:
        own.wait(PATIENCE)
    assert matcher_of(filter) == "rtree"
    assert filter._road.growing is None


def intervals(count, first=0):
    low = np.arange(float(first), first + count).reshape(-1, 1)
    return low, low + 0.5


def require_intervals(filter, count):
    """Each of so many intervals is found, and no other."""
    events = [{"x": x + 0.25} for x in range(count)] + [{"x": -1.0}, {}]
    assert as_sets(filter.match_batch(events)) == [{x} for x in range(count)] + [set(), set()]


# -- when it moves -------------------------------------------------------------------------------------------


def test_a_new_filter_has_a_scan(kernels):
    filter = EventFilter(NUMBERS)
    assert matcher_of(filter) == "scan"
    with pytest.raises(TypeError, match=r"a ScanMatcher, and no R\*-tree; .* matcher='rtree'"):
        tree_of(inside(filter).matcher)
    filter.subscribe_boxes(*intervals(40))
    filter.repack()
    require_intervals(filter, 40)
    assert matcher_of(filter) == "scan"
    assert not kernels.asked.is_set()


@pytest.mark.parametrize("matcher", ["rtree", {"name": "rtree", "capacity": (4, 8)}])
def test_a_tree_that_was_asked_for_never_begins_with_a_scan(kernels, matcher):
    filter = EventFilter(NUMBERS, matcher=matcher)
    assert matcher_of(filter) == "rtree"
    assert inside(filter).matcher.tree.capacity == ((512, 4096) if matcher == "rtree" else (4, 8))
    filter.subscribe_boxes(*intervals(growing.MOVED))
    assert matcher_of(filter) == "rtree"
    assert (kernels.asked.is_set(), kernels.loads) == (False, 0)


def test_a_scan_that_was_asked_for_stays(kernels):
    filter = EventFilter(NUMBERS, matcher="scan")
    kernels.loaded = True
    filter.subscribe_boxes(*intervals(growing.MOVED))
    filter.subscribe("x < 0")
    assert matcher_of(filter) == "scan"
    assert not kernels.asked.is_set()
    with pytest.raises(TypeError, match=r"no R\*-tree"):
        filter.repack()


@pytest.mark.parametrize(("loaded", "least"), [(False, growing.MOVED), (True, growing.SOON)])
def test_it_moves_once_it_is_large(kernels, loaded, least):
    kernels.loaded = loaded
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(least - 1))
    assert not kernels.asked.is_set()
    filter.subscribe_boxes(*intervals(1, least - 1))
    moves(filter, kernels)
    require_intervals(filter, least)
    moved(filter, kernels)
    inside(filter).matcher.tree.check()
    require_intervals(filter, least)
    assert len(filter) == least
    assert kernels.loads == 1


def test_many_at_once_build_the_tree_where_its_kernels_are_loaded(kernels):
    kernels.loaded = True
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(10))
    filter.subscribe_boxes(*intervals(53, 10))
    assert matcher_of(filter) == "scan"
    filter.unsubscribe_many(np.arange(50, 63))
    filter.subscribe_boxes(*intervals(40, 50), ids=np.arange(50, 90))
    assert matcher_of(filter) == "rtree"
    assert filter._road.growing is None
    require_intervals(filter, 90)
    assert not kernels.asked.is_set()


def test_who_adds_very_many_at_once_waits_for_the_kernels(kernels, monkeypatch):
    monkeypatch.setattr(growing, "WAITED", 100)
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(59))
    assert kernels.loads == 0
    filter.subscribe_boxes(*intervals(41, 59))
    assert (kernels.loads, matcher_of(filter)) == (1, "rtree")
    require_intervals(filter, 100)
    assert not kernels.asked.is_set()


@pytest.mark.parametrize("way", ["aside", "waited for"])
def test_kernels_that_cannot_be_compiled_leave_the_scan_and_are_told_of_once(
    kernels, monkeypatch, caplog, way
):
    monkeypatch.setattr(growing, "MOVED", 40)
    monkeypatch.setattr(growing, "WAITED", 40 if way == "waited for" else 10**9)
    kernels.error = OSError("there is no compiler")
    kernels.go.set()
    filter = EventFilter(NUMBERS)
    with caplog.at_level(logging.WARNING, "rtfilter"):
        for first in range(0, 200, 40):
            filter.subscribe_boxes(*intervals(40, first))
            filter._road.growing.wait(PATIENCE)
            require_intervals(filter, first + 40)
    assert matcher_of(filter) == "scan"
    assert [one.getMessage() for one in caplog.records] == [
        "the search code cannot be compiled; the filter stays with a scan, which is slow for many "
        "subscriptions"
    ]
    assert "there is no compiler" in caplog.text
    assert kernels.loads == 1
    filter.unsubscribe_many(np.arange(40, 200))
    require_intervals(filter, 40)


@pytest.mark.parametrize("way", ["match", "match_batch", "stream"])
def test_work_alone_moves_a_small_filter(kernels, monkeypatch, way):
    call = {
        "match": lambda filter: filter.match({"x": 1.25}),
        "match_batch": lambda filter: filter.match_batch([{"x": 1.25}]),
        "stream": lambda filter: list(filter.stream([{"x": 1.25}])),
    }[way]
    filter, empty = EventFilter(NUMBERS), EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(20))  # the batches are counted from here
    monkeypatch.setattr(growing, "WORK", 1)
    for _ in range(growing.BATCHES):
        call(filter)
        call(empty)
    assert not kernels.asked.is_set()
    call(empty)  # has nothing that a tree would find sooner
    assert not kernels.asked.is_set()
    call(filter)
    moves(filter, kernels)
    moved(filter, kernels)
    require_intervals(filter, 20)


def test_single_events_do_not_move_a_filter_in_which_compiled_code_is_not_faster(kernels, monkeypatch):
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(3))
    monkeypatch.setattr(growing, "WORK", 1)
    for _ in range(2 * growing.BATCHES):
        filter.match({"x": 1.25})
    assert not kernels.asked.is_set()
    filter.match_batch([{"x": 1.25}, {"x": 2.5}])
    for _ in range(growing.BATCHES):
        filter.match({"x": 1.25})
    moves(filter, kernels)


@pytest.mark.parametrize("way", ["match_batch", "stream"])
def test_candidates_that_python_verifies_move_a_small_filter(kernels, monkeypatch, way):
    for module in (growing, rtfilter.matching.road):
        monkeypatch.setattr(module, "VERIFIED", 6)
    monkeypatch.setattr(rtfilter.subscriptions.stored, "ready", kernels)
    filter = EventFilter(Schema({"s": str}))
    filter.subscribe_many(["s LIKE '%x%'", "s LIKE '%y%'"])
    for _ in range(2):
        list(getattr(filter, way)([{"s": "x"}]))
    assert not kernels.asked.is_set()
    list(getattr(filter, way)([{"s": "x"}]))
    moves(filter, kernels)
    moved(filter, kernels)
    assert filter.match({"s": "x"}).tolist() == [0]


def test_a_change_that_comes_when_there_are_no_more_threads_looks_again(kernels, monkeypatch):
    monkeypatch.setattr(growing, "MOVED", 3)
    filter = EventFilter(NUMBERS)
    with monkeypatch.context() as patch:

        def start(self):
            raise RuntimeError("can't start new thread")

        patch.setattr(threading.Thread, "start", start)
        filter.subscribe_boxes(*intervals(3))
    require_intervals(filter, 3)
    assert not filter._road.growing.moving
    filter.subscribe_boxes(*intervals(1, 3))
    moves(filter, kernels)
    moved(filter, kernels)
    require_intervals(filter, 4)


def test_a_filter_that_nobody_uses_any_more_does_not_move(kernels, monkeypatch, caplog):
    monkeypatch.setattr(growing, "MOVED", 10)
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(10))
    moves(filter, kernels)
    gone = weakref.ref(filter._subscriptions)
    del filter
    gc.collect()
    assert gone() is None
    kernels.end()
    assert not caplog.records


# -- what is answered ----------------------------------------------------------------------------------------


class Model:
    """A filter beside a dict of its subscriptions, of one type of ids."""

    def __init__(self, seed, kind):
        self.rng, self.kind, self.now, self.count = np.random.default_rng(seed), kind, 1000.0, 0
        self.filter = EventFilter(SCHEMA, clock=lambda: self.now, ids=kind)
        self.held = {}  # by id: predicate, deadline, metadata

    def add(self, count):
        ids = [id_of(self.kind, self.count + k) for k in range(count)]
        self.count += count
        ttl = [[None, 5.0, 100.0][k] for k in self.rng.integers(0, 3, count)]
        notes = [[None, {"n": 1}][k] for k in self.rng.integers(0, 2, count)]
        sources = [random_predicate(self.rng) for _ in range(count)]
        if count == 1:
            self.filter.subscribe(sources[0], ids[0], ttl=ttl[0], metadata=notes[0])
        else:
            self.filter.subscribe_many(sources, ids=ids, ttl=ttl, metadata=notes)
        for id, own, note in zip(ids, ttl, notes, strict=True):
            deadline = None if own is None else self.now + own
            self.held[id] = self.filter[id].predicate, deadline, note

    def step(self, what):
        known = sorted(self.held)
        if what == "subscribe":
            self.add(1)
        elif what == "many":
            self.add(7)
        elif what == "wait":
            self.now += 3.0
            self.held = {id: one for id, one in self.held.items() if one[1] is None or one[1] > self.now}
        elif what == "unsubscribe many":
            gone = known[:: int(self.rng.integers(1, 4))]
            assert self.filter.unsubscribe_many(gone).all()
            self.held = {id: one for id, one in self.held.items() if id not in gone}
        elif known:
            id = known[self.rng.integers(0, len(known))]
            if what == "unsubscribe":
                assert self.filter.unsubscribe(id)
                del self.held[id]
            else:
                self.filter.update(id, random_predicate(self.rng), ttl=50, metadata={"m": 2})
                self.held[id] = self.filter[id].predicate, self.now + 50, {"m": 2}

    def check(self):
        events = random_events(self.rng, 8)
        rows = [SCHEMA.read(event).row(0) for event in events]
        expected = subscribers({id: one[0] for id, one in self.held.items()}, rows)
        filter = self.filter
        assert as_sets(filter.match_batch(events)) == expected
        assert [set(filter.match(event).tolist()) for event in events[:3]] == expected[:3]
        assert as_sets(filter.stream(events).matches()) == expected
        assert filter.match_batch(events).any.tolist() == [bool(ids) for ids in expected]
        assert filter.match_batch(events).counts.tolist() == [len(ids) for ids in expected]
        assert filter.ids().tolist() == sorted(self.held)
        assert len(filter) == len(self.held)
        for id, (predicate, deadline, note) in self.held.items():
            assert (filter[id].expires, filter[id].metadata) == (deadline, note)
            assert filter[id].predicate == predicate
            assert filter.explain(events[0], id).matched is (id in expected[0])


STEPS = st.lists(
    st.sampled_from(
        ["subscribe", "many", "wait", "unsubscribe", "unsubscribe many", "update", "subscribe", "check"]
    ),
    max_size=10,
)


@settings(max_examples=60)
@given(
    before=STEPS,
    meanwhile=STEPS,
    after=STEPS,
    seed=st.integers(0, 99),
    kind=st.sampled_from([*KINDS.values()]),
)
def test_all_is_as_brute_force_says_before_while_and_after_it_moves(before, meanwhile, after, seed, kind):
    kernels = Kernels()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "ready", kernels)
        patch.setattr(growing, "MOVED", 12)
        patch.setattr(updates, "AT_ONCE", 4)
        patch.setattr(slices, "SLICE", 4)
        patch.setattr(copies, "FEW", 2)
        model = Model(seed, kind)
        try:
            for phase in (before, meanwhile, after):
                model.check()
                for what in phase:
                    model.check() if what == "check" else model.step(what)
                model.check()
                if phase is before:
                    while not kernels.asked.is_set():
                        model.add(1)
                        kernels.asked.wait(0 if len(model.filter._subscriptions.matcher) < 12 else PATIENCE)
                    moves(model.filter, kernels)
                elif phase is meanwhile:
                    assert matcher_of(model.filter) == "scan"
                    version = model.filter.stats()["version"]
                    moved(model.filter, kernels)
                    assert model.filter.stats()["version"] == version
        finally:
            kernels.end()
        require_sound(model.filter)


@pytest.mark.parametrize("changes", [1, 100])
def test_it_loses_nothing_that_changes_while_the_tree_is_built(kernels, monkeypatch, changes):
    monkeypatch.setattr(growing, "MOVED", 60)
    monkeypatch.setattr(slices, "SLICE", 8)
    monkeypatch.setattr(copies, "FEW", 4)
    model = Model(changes, int)
    model.add(59)
    model.add(1)
    while not kernels.asked.is_set():
        model.add(1)
    read, left = copies.Copy._read, [changes]

    def read_and_change(*arguments):
        found = read(*arguments)
        if left[0]:
            left[0] -= 1
            model.step(["subscribe", "update", "unsubscribe"][left[0] % 3])
        return found

    monkeypatch.setattr(copies.Copy, "_read", read_and_change)
    moved(model.filter, kernels)
    assert left[0] < changes
    model.check()
    require_sound(model.filter)


def test_until_the_tree_is_there_no_call_waits_for_it(kernels, monkeypatch, tmp_path):
    monkeypatch.setattr(growing, "MOVED", 50)
    model = Model(3, int)
    model.add(100)
    moves(model.filter, kernels)
    for what in ("subscribe", "many", "update", "unsubscribe", "unsubscribe many", "wait"):
        model.step(what)
    model.check()
    model.filter.repack()
    model.filter.save(tmp_path / "index")
    pickle.dumps(model.filter)
    model.filter.related("x > 1").covers  # noqa: B018
    assert model.filter.stats()["in_flight_batches"] == 0
    moves(model.filter, kernels)
    moved(model.filter, kernels)
    model.check()


def test_a_change_that_builds_the_tree_ends_a_move(kernels, monkeypatch):
    monkeypatch.setattr(growing, "MOVED", 50)
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(50))
    moves(filter, kernels)
    own, kernels.loaded = filter._road.growing, True
    filter.subscribe_boxes(*intervals(50, 50))
    assert matcher_of(filter) == "rtree"
    tree = inside(filter).matcher.tree
    kernels.go.set()
    own.wait(PATIENCE)
    assert inside(filter).matcher.tree is tree
    require_intervals(filter, 100)


def test_a_stream_that_is_open_while_it_moves_goes_on(kernels, monkeypatch):
    monkeypatch.setattr(growing, "MOVED", 60)
    rng = np.random.default_rng(1)
    filter = EventFilter(SCHEMA, controller=FixedPlan(1, 4))
    filter.subscribe_many([random_predicate(rng) for _ in range(100)])
    moves(filter, kernels)
    events = random_events(rng, 40)
    expected, found = as_sets(filter.match_batch(events)), {}
    for place, (event, ids, _) in enumerate(filter.stream(events)):
        found[event] = set(ids.tolist())
        if place == 3:
            moved(filter, kernels)
    assert [found[event] for event in range(40)] == expected
    assert as_sets(filter.stream(events).matches()) == expected


def test_listeners_and_the_version_see_nothing_of_a_move(kernels, monkeypatch):
    monkeypatch.setattr(growing, "MOVED", 50)
    filter = EventFilter(NUMBERS, metrics=Metrics())
    filter.subscribe_boxes(*intervals(49))
    log = filter.changes()
    filter.subscribe("x < 0")
    moves(filter, kernels)
    assert [(one.version, one.added.ids.tolist()) for one in log] == [(2, [49])]
    made = filter.stats()["updates"]
    moved(filter, kernels)
    assert list(log) == []
    assert (filter.stats()["version"], filter.stats()["updates"]) == (2, made)
    assert inside(filter).metrics.registry.get_sample_value("rtfilter_index_updates_total") == made
    assert filter.subscribe("x < 0") == 50
    assert [(one.version, one.added.ids.tolist()) for one in log] == [(3, [50])]


# -- copies --------------------------------------------------------------------------------------------------


def loaded(filter, path, **options):
    filter.save(path / "index")
    return EventFilter.load(path / "index", **options)


COPIES = {
    "saved": loaded,
    "pickled": lambda filter, path: pickle.loads(pickle.dumps(filter)),
    "part": lambda filter, path: part_of(filter, filter.ids()),
}


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_grows_until_it_has_moved(kernels, monkeypatch, tmp_path, copy):
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(50))
    again = COPIES[copy](filter, tmp_path)
    assert matcher_of(again) == "scan"
    require_intervals(again, 50)
    monkeypatch.setattr(growing, "MOVED", 52)
    again.subscribe_boxes(*intervals(1, 50))
    assert not kernels.asked.is_set()
    again.subscribe_boxes(*intervals(1, 51))
    moves(again, kernels)
    meanwhile = COPIES[copy](again, tmp_path)  # is large, and begins to move, too
    assert matcher_of(meanwhile) == "scan"
    require_intervals(meanwhile, 52)
    moved(again, kernels)
    moved(meanwhile, kernels)
    for one in (again, meanwhile):
        require_intervals(one, 52)
    last = COPIES[copy](again, tmp_path)
    require_intervals(last, 52)
    if copy == "part":
        assert matcher_of(last) == "rtree"
    else:  # it is small, so who opens it need not load kernels
        assert matcher_of(last) == "scan"
        last.subscribe_boxes(*intervals(growing.SOON - 52, 52))
        moved(last, kernels)
        require_intervals(last, growing.SOON)


@pytest.mark.parametrize("copy", ["saved", "pickled"])
def test_a_copy_of_very_many_is_a_tree_at_once(kernels, monkeypatch, tmp_path, copy):
    for module in (growing, filter_parts):
        monkeypatch.setattr(module, "WAITED", 70)
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(70))
    assert (kernels.loads, matcher_of(filter)) == (1, "rtree")
    again = COPIES[copy](filter, tmp_path)
    assert matcher_of(again) == "rtree"
    assert kernels.loads == (2 if copy == "saved" else 1)
    require_intervals(again, 70)
    assert not kernels.asked.is_set()


def test_a_snapshot_of_a_growing_filter_can_be_opened_with_any_matcher(kernels, monkeypatch, tmp_path):
    filter = EventFilter(NUMBERS)
    filter.subscribe_boxes(*intervals(50))
    chosen = EventFilter(NUMBERS, matcher="scan")
    chosen.subscribe_boxes(*intervals(50))
    monkeypatch.setattr(growing, "MOVED", 10)
    for name in ("rtree", "scan", "hashes", "auto"):
        again = loaded(filter, tmp_path, matcher=name)
        assert matcher_of(again) == ("rtree" if name == "auto" else name)
        require_intervals(again, 50)
    assert matcher_of(loaded(chosen, tmp_path)) == "scan"
    again = EventFilter(NUMBERS, matcher="rtree")
    again.subscribe_boxes(*intervals(50))
    assert matcher_of(loaded(again, tmp_path)) == "rtree"
    assert not kernels.asked.is_set()


# -- interrupts ----------------------------------------------------------------------------------------------

MODULES = [
    growing,
    rtfilter.filter,
    rtfilter.matchers.scan,
    filter_parts,
    rtfilter.matching.gate,
    rtfilter.matching.road,
    rtfilter.matching.subscriber,
    rtfilter.matching.updates,
    rtfilter.subscriptions.content,
    rtfilter.subscriptions.content,
    rtfilter.subscriptions.stored,
]


@pytest.mark.slow
@pytest.mark.parametrize("begins", [False, True], ids=["goes on", "begins"])
@pytest.mark.parametrize("part", long_but(range(4), [0]))
def test_a_subscription_that_is_cut_short_while_it_moves_is_whole_or_undone(monkeypatch, begins, part):
    monkeypatch.setattr(growing, "MOVED", 5 if begins else 4)

    def made():
        kernels = Kernels()
        monkeypatch.setattr(growing, "ready", kernels)
        filter = EventFilter(NUMBERS)
        filter.subscribe_boxes(*intervals(4))
        if not begins:
            moves(filter, kernels)
        return filter, kernels

    filter, kernels = made()
    with Lines(MODULES) as lines:
        filter.subscribe("x = 4.25")
    kernels.end()
    wholes = 0
    for at in lines.ends()[part::4]:
        filter, kernels = made()
        with Lines(MODULES, at) as cut, contextlib.suppress(Interrupt):
            filter.subscribe("x = 4.25")
        whole = len(filter) == 5
        wholes += whole
        require_intervals(filter, 4 + whole)
        filter.subscribe_boxes(*intervals(1, 4 + whole), ids=[4 + whole])
        if begins and not kernels.asked.wait(PATIENCE):
            raise AssertionError(f"it does not begin to move: {cut.place}")
        moved(filter, kernels)
        require_intervals(filter, 5 + whole)
        require_sound(filter)
        assert filter.stats()["in_flight_batches"] == 0, cut.place
    assert wholes > 0


# -- covering ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=50)
@given(seed=st.integers(0, 10_000))
def test_what_covers_is_the_same_by_scan_and_by_tree(seed):
    rng = np.random.default_rng(seed)
    sources = [random_predicate(rng) for _ in range(25)]
    scan, tree = (EventFilter(SCHEMA, matcher=name) for name in ("scan", "rtree"))
    for filter in (scan, tree):
        filter.subscribe_many(sources)
        filter.unsubscribe_many(np.arange(0, 25, 6))
    for source in [*sources[:4], *(random_predicate(rng) for _ in range(4))]:
        for how in ("covers", "covered", "equal"):
            one, other = (getattr(filter.related(source), how) for filter in (scan, tree))
            assert one.ids.tolist() == other.ids.tolist()
            assert one.unknown.tolist() == other.unknown.tolist()


_AT_THE_END = """
from rtfilter import EventFilter, Schema
from rtfilter.matching import growing

class Last:
    def __init__(self):
        self.filter, self.growing = EventFilter(Schema({"price": float})), growing
        self.filter.subscribe("price > 5")

    def __del__(self):
        self.growing.MOVED = 1
        found = [self.filter.match({"price": 6}).tolist() for _ in range(3 * self.growing.BATCHES)]
        print(found == [[0]] * len(found))

last = Last()
last.own = last  # so that it lives until Python ends
"""


def test_a_finalizer_matches_when_python_ends():
    done = subprocess.run(
        [sys.executable, "-c", _AT_THE_END],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "True\n")
