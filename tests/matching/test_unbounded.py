"""Subscriptions that nothing bounds are counted exactly, and limited."""

import pickle

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kinds import EACH_BOXED, KINDS, id_of, require_sound
from rtfilter import EventFilter, PredicateError, Schema
from rtfilter.cli.subscription_files import build_filter
from rtfilter.definition import Definition
from rtfilter.filter import inside, part_of
from rtfilter.matching.filter_parts import KIND
from rtfilter.snapshots import arrays as snapshot
from rtfilter.subscriptions.content import Subscriptions

SCHEMA = Schema({"bid": float, "ask": float, "symbol": str, "ok": bool})
WIDE = [
    "bid >= ask",
    "symbol <> 'more than six'",
    "ok AND bid = 1 OR ask <> 9007199254740993",
    "bid * bid > 4",
    "symbol LIKE '%x%'",
    "LOWER(symbol) <> 'a' AND bid >= ask",
    "NOT CIDR(symbol, '10.0.0.0/8')",
]
BOUNDED = [
    "bid >= ask AND ok",
    "2 * bid > 7",
    "bid > 1",
    "symbol = 'more than six'",
    "bid > ask AND symbol = 'A'",
]
BOUNDED += ["TRUE", "FALSE", "bid <> 5", "symbol <> 'A'", "bid IS NOT NULL", "bid < ask AND bid IS NULL"]
BOUNDED += ["symbol LIKE 'a%x'", "LOWER(symbol) = 'ab'", "CIDR(symbol, '10.0.0.0/8')"]
BOUNDED += ["symbol LIKE '%x'", "symbol LIKE '%x%' AND bid > 1", "symbol LIKE 'a%x' AND bid >= ask"]


def unbounded(filter):
    return filter.stats()["unbounded"]


@pytest.mark.parametrize("matcher", EACH_BOXED)
@pytest.mark.parametrize("source", WIDE)
def test_what_nothing_bounds_is_counted(source, matcher):
    filter = EventFilter(SCHEMA, matcher=matcher, max_unbounded=0)
    with pytest.raises(PredicateError, match=r"nothing bounds this predicate.*there are 0 such.*at most 0"):
        filter.subscribe(source)
    assert (len(filter), unbounded(filter)) == (0, 0)
    filter.configure(max_unbounded=1)
    assert filter.subscribe(source) == 0
    with pytest.raises(PredicateError, match="there are 1 such"):
        filter.subscribe(source)
    assert filter.unsubscribe(0)
    assert (filter.subscribe(source), unbounded(filter)) == (1, 1)


@pytest.mark.parametrize("source", BOUNDED)
def test_what_a_box_bounds_or_decides_is_not(source):
    filter = EventFilter(SCHEMA, max_unbounded=0)
    filter.subscribe(source)
    assert unbounded(filter) == 0


def test_a_matcher_without_boxes_has_no_limit():
    filter = EventFilter(SCHEMA, matcher="hashes", max_unbounded=0)
    filter.subscribe_many(WIDE)
    assert (len(filter), unbounded(filter)) == (len(WIDE), 0)


@pytest.mark.parametrize("count", [3, 100])
def test_many_are_added_all_or_none_and_the_row_is_told(count):
    """Also where they are so many that they are not added at once."""
    filter = EventFilter(SCHEMA, max_unbounded=2)
    filter.subscribe("bid >= ask")
    sources = ["bid > 1"] * count + ["ask < bid", "bid < ask"]
    with pytest.raises(PredicateError, match=rf"^row {count + 1}, nothing bounds") as caught:
        filter.subscribe_many(sources)
    assert caught.value.row == count + 1
    assert (len(filter), unbounded(filter)) == (1, 1)
    with pytest.raises(PredicateError, match="nothing bounds"):
        filter.subscribe_many(sources, ids=np.arange(50, 50 + len(sources)))
    filter.subscribe_many(sources[:-1])
    assert (len(filter), unbounded(filter)) == (count + 2, 2)
    filter.configure(max_unbounded=None)
    filter.subscribe_many(sources)
    assert unbounded(filter) == 4
    filter.unsubscribe_many(filter.ids()[:-2])
    assert (len(filter), unbounded(filter)) == (2, 2)


def test_an_id_that_is_there_already_counts_once():
    filter = EventFilter(SCHEMA, max_unbounded=5)
    filter.subscribe("bid > 1", id=7)
    ids = np.arange(100)
    with pytest.raises(ValueError, match="subscription 7 exists"):
        filter.subscribe_many(["bid >= ask"] * 2 + ["bid > 1"] * 98, ids=ids)
    assert unbounded(filter) == 0


@pytest.mark.parametrize("matcher", EACH_BOXED)
def test_an_update_counts_what_it_replaces(matcher):
    filter = EventFilter(SCHEMA, matcher=matcher, max_unbounded=1)
    a, b = filter.subscribe("bid >= ask"), filter.subscribe("bid > 1")
    filter.update(a, "bid < ask")
    with pytest.raises(PredicateError, match="nothing bounds"):
        filter.update(b, "bid < ask")
    assert str(filter[b].predicate) == "bid > 1"
    filter.update(a, "bid > 1")
    filter.update(b, "bid < ask")
    assert unbounded(filter) == 1
    filter.update(b, "FALSE")
    assert unbounded(filter) == 0


def ids_from(kind, first, count):
    return [id_of(kind, number) for number in range(first, first + count)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_they_are_counted_by_key_whatever_their_ids_are(kind, tmp_path):
    now = [0.0]
    filter = EventFilter(SCHEMA, max_unbounded=2, ids=kind, clock=lambda: now[0])
    a, b, c, d = ids_from(kind, 0, 4)
    filter.subscribe_many(["bid >= ask", "bid < ask"], ids=[a, b], ttl=[10, None])
    filter.update(b, ttl=30, metadata={"team": "ops"})
    filter.update(a, "symbol LIKE '%x%'")
    assert unbounded(filter) == 2
    many, new = ["bid > 1"] * 40 + ["bid > ask"], ids_from(kind, 10, 41)
    for change in (
        lambda: filter.subscribe("bid > ask", id=c),
        lambda: filter.subscribe_many(many, ids=new),
    ):
        with pytest.raises(PredicateError, match="there are 2 such"):
            change()
    filter.unsubscribe(b)
    filter.subscribe("bid > 1", id=c)  # may have the handle that was that of b
    assert unbounded(filter) == 1
    filter.subscribe_many(many, ids=new, ttl=20)
    filter.save(tmp_path / "kept")
    loaded = EventFilter.load(tmp_path / "kept", clock=lambda: now[0])
    for copy in (filter, loaded):
        now[0] = 5
        assert unbounded(copy) == 2
        with pytest.raises(PredicateError, match="there are 2 such"):
            copy.subscribe("bid > ask", id=d)
        now[0] = 10
        copy.subscribe("bid > ask", id=a)  # it had ended
        now[0] = 20
        assert (unbounded(copy), len(copy)) == (1, 2)
        copy.subscribe("bid > ask", id=d)
        require_sound(copy)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_who_is_beyond_its_deadline_does_not_count_although_it_is_still_there(kind, monkeypatch):
    monkeypatch.setattr(Subscriptions, "remove_passed", lambda *_: None)
    now = [0.0]
    filter = EventFilter(SCHEMA, max_unbounded=50, ids=kind, clock=lambda: now[0])
    filter.subscribe_many(["bid >= ask"] * 50, ids=ids_from(kind, 0, 50), ttl=10)
    now[0] = 10
    assert (unbounded(filter), len(filter._subscriptions)) == (0, 50)
    filter.subscribe("bid >= ask", id=id_of(kind, 50))
    filter.subscribe_many(["bid >= ask"] * 48, ids=ids_from(kind, 51, 48))
    filter.update(id_of(kind, 50), "bid < ask")
    filter.subscribe("bid >= ask", id=id_of(kind, 0))
    assert (unbounded(filter), len(filter._subscriptions)) == (50, 99)
    with pytest.raises(PredicateError, match="there are 50 such"):
        filter.subscribe("bid >= ask", id=id_of(kind, 1))


@pytest.mark.parametrize("matcher", EACH_BOXED)
def test_copies_know_them(matcher, tmp_path):
    filter = EventFilter(SCHEMA, matcher=matcher, max_unbounded=3)
    filter.subscribe_many([*WIDE[:3], *BOUNDED])
    filter.save(tmp_path / "kept")
    loaded = EventFilter.load(tmp_path / "kept")
    for copy in (loaded, pickle.loads(pickle.dumps(filter)), part_of(filter, filter.ids())):
        assert (inside(copy).subscriptions.unbounded.most, unbounded(copy)) == (3, 3)
        with pytest.raises(PredicateError, match="nothing bounds"):
            copy.subscribe("bid >= ask")
        copy.unsubscribe(0)
        assert unbounded(copy) == 2
    assert unbounded(part_of(filter, [0, 5])) == 1
    if matcher == "rtree":
        filter.repack()
        assert unbounded(filter) == 3
    other = EventFilter.load(tmp_path / "kept", matcher="masks" if matcher == "rtree" else "rtree")
    assert (inside(other).subscriptions.unbounded.most, unbounded(other)) == (3, 3)


@pytest.mark.parametrize("matcher", EACH_BOXED)
def test_those_of_a_snapshot_of_a_former_version_are_counted(matcher, tmp_path):
    filter = EventFilter(SCHEMA, matcher=matcher)
    filter.subscribe_many([*WIDE, *BOUNDED])
    filter.save(tmp_path / "kept")
    found = snapshot.read(tmp_path / "kept", KIND)
    meta = {name: fact for name, fact in found.meta.items() if name != "max_unbounded"}
    arrays = {name: array for name, array in found.arrays.items() if name != "unbounded_ids"}
    snapshot.write(tmp_path / "former", KIND, meta, arrays)
    former = EventFilter.load(tmp_path / "former")
    assert (inside(former).subscriptions.unbounded.most, unbounded(former)) == (1000, len(WIDE))
    require_sound(former)


def test_what_a_snapshot_holds_is_not_refused(tmp_path):
    filter = EventFilter(SCHEMA)
    filter.subscribe_many(WIDE)
    filter.configure(max_unbounded=2)
    filter.save(tmp_path / "kept")
    assert len(EventFilter.load(tmp_path / "kept")) == len(WIDE)


@pytest.mark.parametrize("most", [-1, 2.5, True, "many"])
def test_a_limit_is_a_number(most):
    with pytest.raises(ValueError, match="max_unbounded is a number of subscriptions"):
        EventFilter(SCHEMA, max_unbounded=most)


class Counting(RuleBasedStateMachine):
    """The count is that of the subscriptions there are, whatever is done."""

    def __init__(self):
        super().__init__()
        self.filter = EventFilter(SCHEMA, max_unbounded=6)
        self.held = {}

    def refused(self, change, *sources, freed=0):
        there = sum(source in WIDE for source in self.held.values()) - freed
        new = sum(source in WIDE for source in sources)
        if not new or there + new <= 6:
            change()
            return False
        with pytest.raises(PredicateError, match="nothing bounds"):
            change()
        return True

    @rule(source=st.sampled_from(WIDE + BOUNDED))
    def subscribe(self, source):
        made = []
        if not self.refused(lambda: made.append(self.filter.subscribe(source)), source):
            self.held[made[0]] = source

    @rule(sources=st.lists(st.sampled_from(WIDE + BOUNDED), max_size=3), more=st.sampled_from([0, 40]))
    def subscribe_many(self, sources, more):
        sources, made = sources + ["bid > 1"] * more, []
        if not self.refused(lambda: made.append(self.filter.subscribe_many(sources)), *sources):
            self.held |= zip(made[0].tolist(), sources, strict=True)

    @rule(data=st.data(), source=st.sampled_from(WIDE + BOUNDED))
    def update(self, data, source):
        if self.held:
            id = data.draw(st.sampled_from(sorted(self.held)))
            if not self.refused(lambda: self.filter.update(id, source), source, freed=self.held[id] in WIDE):
                self.held[id] = source

    @rule(data=st.data())
    def unsubscribe_many(self, data):
        if self.held:
            ids = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True))
            self.filter.unsubscribe_many(np.array(ids, np.int64))
            self.held = {id: source for id, source in self.held.items() if id not in ids}

    @invariant()
    def counts(self):
        assert unbounded(self.filter) == sum(source in WIDE for source in self.held.values())
        assert len(self.filter) == len(self.held)


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=15, stateful_step_count=20)


def test_the_command_line_has_no_limit(tmp_path):
    path = tmp_path / "subscriptions.csv"
    path.write_text("where\n" + "bid >= ask\n" * 1001, encoding="utf-8")
    filter = build_filter(str(path), Definition(SCHEMA, max_unbounded=None))
    assert (len(filter), unbounded(filter), inside(filter).subscriptions.unbounded.most) == (1001, 1001, None)
