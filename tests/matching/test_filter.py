"""The filter as its users see it: subscriptions, batches, streams, threads, errors."""

import gc
import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import SCHEMA, random_events, random_predicate
from oracle import as_sets, subscribers
from rtfilter import (
    Attribute,
    EventError,
    EventFilter,
    Predicate,
    PredicateError,
    Schema,
    SnapshotError,
    UnknownSubscriptionError,
)
from rtfilter.adaptive import FixedPlan
from rtfilter.filter import inside, part_of
from rtfilter.index.kernels import counts
from rtfilter.matchers.rtree import RTreeMatcher
from rtfilter.matching.gate import Writing
from rtfilter.matching.road import Batch
from rtfilter.predicates.predicate import parse


@pytest.fixture
def prices():
    return EventFilter(Schema({"price": float, "symbol": str}), matcher="rtree")


def test_ids_ascend_and_are_never_reused(prices):
    assert [prices.subscribe("price > 1") for _ in range(3)] == [0, 1, 2]
    assert prices.unsubscribe(2)
    assert prices.subscribe("price > 1") == 3
    assert prices.subscribe("price > 1", id=50) == 50
    assert prices.subscribe("price > 1") == 51
    assert prices.subscribe_many(["price > 1", "price > 2"]).tolist() == [52, 53]


def test_unsubscribing_twice_or_unknown_is_false_and_changes_nothing(prices):
    id = prices.subscribe("price > 1")
    assert prices.unsubscribe(id)
    before = prices.stats()
    assert not prices.unsubscribe(id)
    assert not prices.unsubscribe(99)
    assert prices.stats() == before


def test_equal_predicates_are_two_subscriptions(prices):
    one, two = prices.subscribe("price > 1"), prices.subscribe("price > 1")
    assert prices.stats()["boxes"] == 1
    assert sorted(prices.match({"price": 2}).tolist()) == [one, two]
    prices.unsubscribe(one)
    assert prices.match({"price": 2}).tolist() == [two]


def test_a_disjunction_satisfied_twice_gives_the_id_once(prices):
    id = prices.subscribe("price > 1 OR price > 2 OR symbol = 'A'")
    assert prices.match({"price": 3, "symbol": "A"}).tolist() == [id]


def test_unsatisfiable_and_match_all_predicates_are_subscriptions(prices):
    never = prices.subscribe("price > 2 AND price < 1")
    always = prices.subscribe(Predicate.everything())
    assert len(prices) == 2
    assert prices.match({}).tolist() == [always]
    assert never in prices
    prices.update(never, "price > 2")
    assert sorted(prices.match({"price": 3}).tolist()) == [never, always]
    prices.update(never, "FALSE")
    assert len(prices) == 2
    assert prices.unsubscribe(never)
    assert not prices.unsubscribe(never)
    assert len(prices) == 1


def test_arrays_of_bounds():
    filter = EventFilter(Schema({"a": float, "b": Attribute(int, low=0, high=9), "s": str}))
    inf = np.inf
    ids = filter.subscribe_boxes(
        [[0, 0, -inf], [-inf, 5, -inf], [-inf, -inf, -inf], [1, -inf, -inf]],
        [[1, 9, inf], [0.5, inf, inf], [inf, inf, inf], [1, inf, inf]],
    )
    assert ids.tolist() == [0, 1, 2, 3]
    assert sorted(filter.match({"a": 1, "b": 9}).tolist()) == [0, 2, 3]
    assert sorted(filter.match({"a": -5, "b": 5}).tolist()) == [1, 2]
    assert filter.match({"b": 5}).tolist() == [2]  # open ends want the attribute, don't care does not
    assert str(filter[0].predicate) == "a >= 0.0 AND a <= 1.0 AND b >= 0.0 AND b <= 9.0"
    assert str(filter[1].predicate) == "a <= 0.5 AND b >= 5.0"
    assert str(filter[2].predicate) == "TRUE"
    assert "too high by 0.5" in str(filter.explain({"a": 1, "b": 9}, 1))


def test_events_come_in_every_form():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    filter = EventFilter(Schema({"a": float, "b": float}))
    filter.subscribe_boxes([[0, 0], [-np.inf, 2]], [[1, 1], [np.inf, 3]])
    rows = [[0.5, 1.0], [9.0, 2.5], [np.nan, 3.0]]
    expected = [{0}, {1}, {1}]
    frame = pd.DataFrame(rows, columns=["a", "b"])
    table = pa.table({"b": [1.0, 2.5, 3.0], "a": [0.5, 9.0, None]})
    dicts = [{"a": 0.5, "b": 1.0}, {"a": 9.0, "b": 2.5}, {"b": 3.0}]
    masked = np.ma.masked_invalid(rows)
    for events in (frame, table, dicts, masked):
        assert as_sets(filter.match_batch(events)) == expected
    assert as_sets(filter.match_batch(np.array(rows[:2]))) == expected[:2]


def test_results_as_arrays():
    pa = pytest.importorskip("pyarrow")
    filter = EventFilter(Schema({"a": float}))
    filter.subscribe_boxes([[0], [1]], [[5], [5]])
    matches = filter.match_batch([{"a": 0}, {"a": 9}, {"a": 2}])
    assert matches.offsets.tolist() == [0, 1, 1, 3]
    assert matches.counts.tolist() == [1, 0, 2]
    assert (matches.any.dtype, matches.any.tolist()) == (bool, [True, False, True])
    assert matches.pairs().dtype == np.int64
    assert matches.pairs()[0].tolist() == [0, 2, 2]
    assert sorted(matches.pairs()[1, 1:].tolist()) == [0, 1]
    assert matches.to_arrow().type == pa.large_list(pa.int64())
    assert [sorted(ids) for ids in matches.to_arrow().to_pylist()] == [[0], [], [0, 1]]
    assert matches[-1].tolist() == matches[2].tolist()
    with pytest.raises(IndexError, match="event 3 is outside a batch of 3"):
        matches[3]


def test_an_empty_batch_is_matched_to_nothing(prices):
    prices.subscribe("price > 1")
    assert len(prices.match_batch([])) == 0
    assert list(prices.stream([])) == []
    assert prices.stream([]).mean_response == 0.0
    assert prices.match_batch([]).any.tolist() == []


# -- streams -------------------------------------------------------------------------------------------


def wide_filter(**options):
    rng = np.random.default_rng(0)
    filter = EventFilter(
        Schema(dict.fromkeys("abc", float)), **{"matcher": {"name": "rtree", "capacity": (4, 8)}} | options
    )
    ends = np.sort(rng.random((400, 2, 3)), axis=1)
    filter.subscribe_boxes(ends[:, 0], ends[:, 1])
    return filter, rng.random((64, 3))


def test_events_are_released_in_ascending_workload(prices):
    filter, events = wide_filter(controller=FixedPlan(2, 1))
    stream = filter.stream(events)
    order = [completion.event for completion in stream]
    assert order == np.argsort(stream.workload, kind="stable").tolist()
    assert order == stream.order.tolist()


def test_groups_and_events_of_a_stream_follow_each_other():
    filter, events = wide_filter(controller=FixedPlan(1, 5))
    stream = filter.stream(events)
    groups = stream.groups()
    first = [event for _ in range(2) for event in next(groups).events]
    rest = [completion.event for completion in stream]
    assert sorted([*first, *rest]) == list(range(64))


def test_completions_follow_the_schedule(prices):
    for group in (1, 5, None):
        filter, events = wide_filter(controller=FixedPlan(1, group))
        stream = filter.stream(events)
        completions = list(stream)
        assert sorted(c.event for c in completions) == list(range(64))
        times = [c.response for c in completions]
        assert times == sorted(times)
        assert len(set(times)) == (1 if group is None else -(-64 // group))
        assert min(times) >= stream.estimation
        assert stream.response.tolist() == [t for _, t in sorted((c.event, c.response) for c in completions)]


def test_a_stream_does_the_work_of_a_plain_search():
    filter, events = wide_filter(controller=FixedPlan(2, 3))
    stream = filter.stream(events)
    plain = inside(filter).matcher.tree.hits(filter.schema.encode(events)).visits.sum()
    assert stream.visits.sum() + stream.estimation_visits == plain


def test_the_controller_hears_of_batches_and_updates():
    entries = []
    filter, events = wide_filter(controller=FixedPlan(1, 4))
    list(filter.stream(events))  # loads kernels
    filter.configure(controller=FixedPlan(1, 4, log=entries.append))
    list(filter.stream(events))
    filter.subscribe_boxes([[0, 0, 0]] * 2, [[1, 1, 1]] * 2)
    filter.unsubscribe(0)
    list(filter.stream(events))
    assert [entry["kind"] for entry in entries] == ["plan", "report", "update", "plan", "report"]
    assert entries[2]["count"] == 3


@pytest.mark.parametrize("end", ["closed", "forgotten"])
def test_a_batch_that_is_given_up_is_reported_with_what_is_known(end):
    entries = []
    filter, events = wide_filter(controller=FixedPlan(1, 4))
    list(filter.stream(events))  # loads kernels
    filter.configure(controller=FixedPlan(1, 4, log=entries.append))
    list(filter.stream(events))
    half = filter.stream(events)
    for _ in range(5):
        next(half)
    if end == "closed":
        half.close()
    del half
    list(filter.stream(events))
    assert [entry["kind"] for entry in entries] == ["plan", "report"] * 3
    whole, known = entries[1], entries[3]
    assert (whole["unfinished"], whole["groups"]) == (0, -(-len(events) // 4))
    assert (known["unfinished"], known["groups"]) == (len(events) - 8, 2)
    assert 0 < known["visits"] < whole["visits"]
    assert known["estimation"] < known["mean_response"] <= known["elapsed"]


def test_a_batch_that_fails_is_forgotten_with_its_stream(monkeypatch):
    filter, events = wide_filter(controller=FixedPlan(1, 4))
    stream = filter.stream(events)
    with monkeypatch.context() as patch:
        patch.setattr(inside(filter).matcher.tree, "resume_part", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next(stream)
    del stream
    gc.collect()
    assert filter.stats()["in_flight_batches"] == 0
    list(filter.stream(events))
    assert not filter._road._ends


def test_a_batch_that_is_cut_short_is_forgotten_with_its_stream(monkeypatch):
    """The call that was cut short left its frames with the batch, and these hold the stream."""
    filter, events = wide_filter(controller=FixedPlan(1, 4))
    stream = filter.stream(events)
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "advance", lambda _: 1 / 0)
        patch.setattr(Writing, "__exit__", lambda *_: None)
        with pytest.raises(ZeroDivisionError):
            next(stream)
    del stream
    gc.collect()
    assert filter.stats()["in_flight_batches"] == 0


def test_an_error_of_the_controller_about_a_forgotten_stream_is_not_lost():
    class Broken(FixedPlan):
        def report(self, ticket, report):
            raise IndexError("of the controller")

    filter, events = wide_filter(controller=FixedPlan(1, 4))
    list(filter.stream(events))  # loads kernels
    filter.configure(controller=Broken(1, 4))
    filter.stream(events)
    with pytest.raises(IndexError, match="of the controller"):
        filter.stream(events)


def test_forgetting_a_stream_runs_no_code_of_the_controller():
    entries = []
    filter, events = wide_filter(controller=FixedPlan(1, 4))
    list(filter.stream(events))  # loads kernels
    filter.configure(controller=FixedPlan(1, 4, log=entries.append))
    filter.stream(events)
    assert [entry["kind"] for entry in entries] == ["plan"]
    for _ in range(3):
        filter.stream(events)
    assert [entry["kind"] for entry in entries].count("report") == 3
    assert len(filter._road._ends) + len(filter._road._forgotten) <= 2


def test_subscriptions_changed_while_a_stream_is_open_are_not_seen_by_it():
    filter, events = wide_filter(controller=FixedPlan(1, 1))
    expected = as_sets(filter.match_batch(events))
    stream = filter.stream(events)
    found = {}
    for _ in range(10):
        event, ids, _ = next(stream)
        found[event] = set(ids.tolist())
    everything = filter.subscribe("TRUE")  # in the consumer's own thread: must not wait for it
    filter.unsubscribe_many(np.arange(400))
    for event, ids, _ in stream:
        found[event] = set(ids.tolist())
    assert [found[event] for event in range(64)] == expected
    assert filter.match({}).tolist() == [everything]


def test_a_forgotten_stream_does_not_hold_the_index():
    filter, events = wide_filter()
    next(filter.stream(events))
    assert filter.stats()["in_flight_batches"] == 0


def test_a_predicate_that_fails_in_a_stream_reaches_the_consumer_not_the_change(monkeypatch):
    filter = EventFilter(Schema({"s": str}), controller=FixedPlan(0, 1))
    filter.subscribe("s = 'longer than six bytes'")
    stream = filter.stream([{"s": "longer than six bytes"}] * 2)
    monkeypatch.setattr(Predicate, "satisfied_by", lambda *_: 1 / 0)
    filter.subscribe("s = 'b'")
    with pytest.raises(ZeroDivisionError):
        next(stream)


# -- threads -------------------------------------------------------------------------------------------


def in_threads(*actions):
    errors = []

    def run(action):
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    if errors:
        raise errors[0]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stream", "match_batch"])
def test_a_batch_sees_one_version_of_the_subscriptions(way):
    """One subscription flips between everything and nothing, others come and go and split nodes: each batch
    must see the flipping one for all its events or for none, and the steady ones always."""
    rng = np.random.default_rng(0)
    filter = EventFilter(
        Schema(dict.fromkeys("abc", float)),
        matcher={"name": "rtree", "capacity": (4, 4)},
        controller=FixedPlan(2, 1),
    )
    ends = np.sort(rng.random((300, 2, 3)), axis=1)
    steady = filter.subscribe_boxes(ends[:, 0], ends[:, 1])
    flip = filter.subscribe("TRUE")
    events = rng.random((40, 3))
    expected = [ids - {flip} for ids in as_sets(filter.match_batch(events))]
    stop = threading.Event()
    seen = set()

    def change():
        try:
            for round in range(10_000):
                if round >= 40 and len(seen) == 2:
                    return
                filter.update(flip, "TRUE" if round % 2 else "FALSE")
                more = np.sort(rng.random((20, 2, 3)), axis=1)
                filter.unsubscribe_many(filter.subscribe_boxes(more[:, 0], more[:, 1]))
        finally:
            stop.set()

    def match():
        while not stop.is_set():
            batch = filter.stream(events) if way == "stream" else filter.match_batch(events)
            if way == "stream":
                found = [set()] * 40
                for event, ids, _ in batch:
                    found[event] = set(ids.tolist())
            else:
                found = as_sets(batch)
            flipped = [flip in ids for ids in found]
            assert all(flipped) or not any(flipped), "a torn read"
            seen.add(flipped[0])
            assert [ids & set(steady.tolist()) for ids in found] == expected

    in_threads(change, match, match)
    assert seen == {True, False}, "the test did not see both versions"


def test_a_subscription_is_seen_by_every_batch_that_begins_after_it():
    filter = EventFilter(Schema({"a": float}))
    stop = threading.Event()

    def change():
        try:
            for value in range(300):
                id = filter.subscribe(f"a = {value}")
                assert filter.match({"a": value}).tolist() == [id]
        finally:
            stop.set()

    def match():
        while not stop.is_set():
            filter.match_batch([{"a": 1.0}] * 10)

    in_threads(change, match)


def test_several_threads_may_change_at_once():
    filter = EventFilter(Schema({"a": float}), matcher={"name": "rtree", "capacity": (4, 4)})

    def change(k):
        ids = [filter.subscribe(f"a = {k * 100 + i}") for i in range(50)]
        assert filter.unsubscribe_many(ids[::2]).all()

    in_threads(*[lambda k=k: change(k) for k in range(4)])
    assert len(filter) == 100
    inside(filter).matcher.tree.check()


# -- any interleaving ----------------------------------------------------------------------------------


class FilterMachine(RuleBasedStateMachine):
    """Changes, repacking, matching, saving, loading in any order against a dict of predicates."""

    @initialize(capacity=st.sampled_from([(4, 4), (4, 9), (512, 4096)]))
    def start(self, capacity):
        import tempfile

        self.filter = EventFilter(SCHEMA, matcher={"name": "rtree", "capacity": capacity})
        self.model: dict[int, Predicate] = {}
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self):
        if hasattr(self, "folder"):
            self.folder.cleanup()

    @rule(seed=st.integers(0, 10_000))
    def subscribe(self, seed):
        source = random_predicate(np.random.default_rng(seed))
        id = self.filter.subscribe(source)
        assert id not in self.model
        self.model[id] = parse(source, SCHEMA)

    @rule(seed=st.integers(0, 10_000), n=st.integers(0, 80))
    def subscribe_many(self, seed, n):
        rng = np.random.default_rng(seed)
        sources = [random_predicate(rng) for _ in range(n)]
        for id, source in zip(self.filter.subscribe_many(sources).tolist(), sources, strict=True):
            self.model[id] = parse(source, SCHEMA)

    @rule(seed=st.integers(0, 10_000), n=st.integers(1, 80))
    def subscribe_bounds(self, seed, n):
        rng = np.random.default_rng(seed)
        ends = np.sort(rng.integers(-3, 4, (n, 2, 4)).astype(float), axis=1)
        ends[:, 0, 2:], ends[:, 1, 2:] = -np.inf, np.inf
        for id, (low, high) in zip(
            self.filter.subscribe_boxes(ends[:, 0], ends[:, 1]).tolist(), ends, strict=True
        ):
            self.model[id] = parse(
                f"x >= {low[0]} AND x <= {high[0]} AND n BETWEEN {low[1]} AND {high[1]}", SCHEMA
            )

    @precondition(lambda self: self.model)
    @rule(data=st.data(), seed=st.integers(0, 10_000))
    def update(self, data, seed):
        id = data.draw(st.sampled_from(sorted(self.model)))
        source = random_predicate(np.random.default_rng(seed))
        self.filter.update(id, source)
        self.model[id] = parse(source, SCHEMA)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=st.integers(1, 60))
    def unsubscribe(self, data, count):
        first = data.draw(st.sampled_from(sorted(self.model)))
        ids = [id for id in sorted(self.model) if id >= first][:count]
        assert self.filter.unsubscribe_many(ids).all()
        for id in ids:
            del self.model[id]

    @rule(id=st.integers(0, 300))
    def unsubscribe_perhaps_unknown(self, id):
        assert self.filter.unsubscribe(id) == (self.model.pop(id, None) is not None)

    @rule()
    def save_and_load(self):
        self.filter.save(self.folder.name + "/filter")
        self.filter = EventFilter.load(self.folder.name + "/filter")

    @rule()
    def repack(self):
        self.filter.repack()

    @rule(seed=st.integers(0, 10_000), streamed=st.booleans())
    def match(self, seed, streamed):
        events = random_events(np.random.default_rng(seed), 12)
        rows = [SCHEMA.read(event).row(0) for event in events]
        found = self.filter.stream(events).matches() if streamed else self.filter.match_batch(events)
        assert as_sets(found) == subscribers(self.model, rows)

    @invariant()
    def whole(self):
        if hasattr(self, "filter"):
            inside(self.filter).matcher.tree.check()
            assert len(self.filter) == len(self.model)


FilterMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
test_any_interleaving = FilterMachine.TestCase


# -- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda f: EventFilter({"a": float}), TypeError, "must be a Schema"),
        (lambda f: EventFilter(Schema({"a": float}), order="random"), ValueError, "fifo"),
        (lambda f: f.subscribe("prise > 1"), PredicateError, "did you mean 'price'"),
        (lambda f: f.subscribe("price > 'x'"), PredicateError, "price"),
        (lambda f: f.subscribe("price >"), PredicateError, r"\^"),
        (lambda f: f.subscribe(5), PredicateError, "SQL condition"),
        (lambda f: f.subscribe("price > 1", id=-1), ValueError, "must be in 0"),
        (lambda f: f.subscribe("price > 1", id=2**63 - 1), ValueError, "must be in 0"),
        (lambda f: f.subscribe("price > 1", id=1.5), TypeError, "integer"),
        (lambda f: f.subscribe_many(["price > 1"], ids=[1.5]), ValueError, "integers"),
        (lambda f: f.update(0.0, "price > 5"), UnknownSubscriptionError, "0.0"),
        (lambda f: f.explain({"price": 1}, 2**70), UnknownSubscriptionError, "1180591620717411303424"),
        (lambda f: f.subscribe("price > 2", id=0), ValueError, "exists already"),
        (lambda f: f.subscribe_many(["price > 1"] * 2, ids=[7, 7]), ValueError, "distinct"),
        (lambda f: f.subscribe_many(["price > 1", "prise > 1"]), PredicateError, "prise"),
        (lambda f: f.subscribe_many("price > 1"), TypeError, "list of predicates"),
        (lambda f: f.subscribe_boxes([[2, 0]], [[1, 0]]), PredicateError, "low above high"),
        (lambda f: f.subscribe_boxes([[np.nan, 0]], [[1, 0]]), PredicateError, "NaN"),
        (lambda f: f.subscribe_boxes([[1]], [[1]]), PredicateError, "shape"),
        (lambda f: f.update(9, "price > 1"), UnknownSubscriptionError, "9"),
        (lambda f: f.update(0, "price > "), PredicateError, "price"),
        (lambda f: f.subscribe("price > 1", id=2**64), ValueError, "ids must be in"),
        (lambda f: f.unsubscribe_many(["a"]), TypeError, "integers"),
        (lambda f: f.unsubscribe(1.0), TypeError, "integers"),
        (lambda f: f.unsubscribe_many([0, 1.5]), TypeError, "integers"),
        (lambda f: f.unsubscribe_many([[0]]), ValueError, "one dimension"),
        (lambda f: part_of(f, ["a"]), TypeError, "integers"),
        (lambda f: f[None].predicate, UnknownSubscriptionError, "None"),
        (lambda f: f.match(Schema({"x": float, "y": float}).read({"x": 1})), EventError, "another schema"),
        (lambda f: f.stream(Schema({"x": float}).read({"x": 1})), EventError, "another schema"),
        (lambda f: f.match(np.zeros(3)), EventError, "shape"),
        (lambda f: f.explain({"price": 1}, 9), UnknownSubscriptionError, "9"),
        (lambda f: f.explain([{"price": 1}] * 2, 0), ValueError, "one event"),
        (lambda f: f.match([{"price": 1}] * 2), ValueError, "one event"),
        (lambda f: f.match({"price": float("nan")}), EventError, "price"),
        (lambda f: f.match({"price": float("inf")}), EventError, "price"),
        (lambda f: f.match_batch(np.zeros((2, 5))), EventError, "shape"),
        (lambda f: f.match_batch(7), EventError, "events"),
        (lambda f: f.match_batch({"price": [1, 30]}), EventError, "list of dicts"),
        (lambda f: EventFilter(f.schema, controller=7), TypeError, "adaptive"),
    ],
)
def test_wrong_input_says_what_to_do_and_changes_nothing(prices, act, error, message):
    prices.subscribe("price > 1")
    before = prices.stats()
    with pytest.raises(error, match=message):
        act(prices)
    assert prices.stats() == before
    assert prices.match({"price": 2}).tolist() == [0]
    assert prices.subscribe("price > 1") == 1


def test_a_wrong_predicate_in_a_list_says_which(prices):
    with pytest.raises(PredicateError) as caught:
        prices.subscribe_many(["price > 1", "price > 1", "prise > 1"])
    assert str(caught.value).startswith("row 2, unknown attribute 'prise'; did you mean 'price'?\n")
    assert caught.value.row == 2


def test_a_predicate_of_a_list_that_needs_too_many_boxes_says_which(prices):
    wide = " OR ".join(f"(price IN ({', '.join(str(k + 100 * n) for k in range(10))}))" for n in range(103))
    with pytest.raises(PredicateError, match=r"^row 1, the predicate needs more than 1024 boxes"):
        prices.subscribe_many(["price > 1", wide])


@pytest.mark.parametrize("id", [1.5, b"a", [1]])
def test_what_can_be_no_id_is_named(prices, id):
    with pytest.raises(TypeError, match=r"^id must be an integer, text or a UUID, not "):
        prices.subscribe("price > 1", id=id)


def test_a_snapshot_of_a_tree_is_no_filter(prices, tmp_path):
    inside(prices).matcher.tree.save(tmp_path / "tree")
    with pytest.raises(SnapshotError, match=r"snapshot of rtfilter.tree, not of rtfilter.filter"):
        EventFilter.load(tmp_path / "tree")


def test_an_interrupted_insertion_is_taken_back(prices, monkeypatch):
    from rtfilter import RStarTree

    original = RStarTree.extend

    def interrupted(self, ids, low, high, **options):
        original(self, ids[:1], low[:1], high[:1], **{name: value[:1] for name, value in options.items()})
        raise KeyboardInterrupt

    monkeypatch.setattr(RStarTree, "extend", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prices.subscribe_many(["price > 1", "price > 2"])
    monkeypatch.undo()
    assert len(prices) == 0
    assert prices.match({"price": 5}).tolist() == []
    inside(prices).matcher.tree.check()


# -- interruptions and misuse --------------------------------------------------------------------------


def fails_once(monkeypatch, owner, name, error, *, after=0):
    """Let the method `name` fail with `error` on call number `after`, once, before doing anything."""
    original, calls = getattr(owner, name), []

    def failing(self, *arguments, **options):
        calls.append(1)
        if len(calls) == after + 1:
            raise error
        return original(self, *arguments, **options)

    monkeypatch.setattr(owner, name, failing)


def test_an_update_that_fails_restores_what_was(prices, monkeypatch):
    from rtfilter import RStarTree

    text, never = prices.subscribe("symbol = 'longer than six bytes'"), prices.subscribe("FALSE")
    event = {"symbol": "longer than six bytes", "price": 9}
    for id in (text, never):
        with monkeypatch.context() as patch:
            fails_once(patch, RStarTree, "replace" if id == text else "insert", MemoryError())
            with pytest.raises(MemoryError):
                prices.update(id, "price > 5")
        assert prices.match(event).tolist() == [text]
        assert len(prices) == 2
    inside(prices).matcher.tree.check()


def test_a_subscription_that_fails_leaves_nothing_behind(prices, monkeypatch):
    from rtfilter.predicates.stored.predicate_store import PredicateStore

    fails_once(monkeypatch, PredicateStore, "put", KeyboardInterrupt(), after=1)
    with pytest.raises(KeyboardInterrupt):
        prices.subscribe_many(["price > 1", "FALSE", "symbol = 'longer than six bytes'"])
    assert len(prices) == 0
    assert prices.ids().tolist() == []
    assert prices.match({"price": 5, "symbol": "longer than six bytes"}).tolist() == []


def test_unsubscribing_many_counts_each_id_once(prices):
    ids = prices.subscribe_many(["price > 1", "FALSE"])
    assert prices.unsubscribe_many([]).tolist() == []
    assert prices.unsubscribe_many([*ids, *ids, 99]).tolist() == [True, True, False, False, False]
    assert len(prices) == 0


@pytest.mark.parametrize("id", [2**64, 2**63, -1, -(2**70), np.uint64(2**63)])
def test_ids_beyond_what_is_given_are_unknown(prices, id):
    prices.subscribe("price > 1")
    assert not prices.unsubscribe(id)
    assert prices.unsubscribe_many([id, 0, 2**63, -1]).tolist() == [False, True, False, False]
    assert id not in prices
    assert len(part_of(prices, [id])) == 0
    with pytest.raises(UnknownSubscriptionError):
        _ = prices[id]


def test_when_ids_are_used_up_nothing_changes(prices, tmp_path):
    """And others can still be given by hand."""
    last = prices.subscribe("price > 1", id=2**63 - 2)
    for count in (1, 5):
        with pytest.raises(ValueError, match="no ids are left"):
            prices.subscribe_many(["price > 2"] * count)
    assert prices.ids().tolist() == [last]
    assert prices.subscribe("price > 3", id=7) == 7
    prices.save(tmp_path / "kept")
    assert EventFilter.load(tmp_path / "kept").ids().tolist() == [7, last]


def test_the_last_ids_can_be_given(prices):
    prices.subscribe("price > 1", id=2**63 - 4)
    assert prices.subscribe_many(["price > 2"] * 2).tolist() == [2**63 - 3, 2**63 - 2]


def test_a_flat_array_is_one_event():
    filter = EventFilter(Schema({"x": float, "y": float}))
    filter.subscribe("x = 1 AND y = 2")
    assert filter.match(np.array([1, 2])).tolist() == [0]
    assert filter.match(np.ma.array([1, 2], mask=[False, True])).tolist() == []
    assert filter.explain(np.array([1.0, 2.0]), 0).matched


def test_ids_of_other_types_are_not_in_the_filter(prices):
    prices.subscribe("price > 1")
    for stranger in ("0", 0.0, None, 2**70, -1):
        assert stranger not in prices


def test_a_closed_stream_computes_no_more():
    filter, events = wide_filter(controller=FixedPlan(1, 1))
    stream = filter.stream(events)
    first = next(stream)
    stream.close()
    filter.unsubscribe_many(filter.ids())
    with pytest.raises(RuntimeError, match="closed"):
        next(stream)
    with pytest.raises(RuntimeError, match="closed"):
        stream.matches()
    assert first.event == stream.order[0]


def test_an_error_in_a_stream_repeats_rather_than_ending_it(monkeypatch):
    filter = EventFilter(Schema({"s": str}), controller=FixedPlan(0, 1))
    filter.subscribe("s = 'longer than six bytes'")
    stream = filter.stream([{"s": "longer than six bytes"}] * 2)
    monkeypatch.setattr(Predicate, "satisfied_by", lambda *_: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            next(stream)


def test_an_interrupted_consumer_can_go_on_and_does_not_interrupt_changes(monkeypatch):
    from rtfilter import RStarTree

    filter, events = wide_filter(controller=FixedPlan(1, 1))
    expected = as_sets(filter.match_batch(events))
    stream = filter.stream(events)
    with monkeypatch.context() as patch:
        fails_once(patch, RStarTree, "resume_part", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            next(stream)
    filter.subscribe("TRUE")
    assert as_sets(stream.matches()) == expected


def test_collecting_a_finished_stream_does_not_wait_for_the_controller():
    filter, events = wide_filter(controller=FixedPlan(1, 1))
    stream = filter.stream(events)
    next(stream)
    filter.subscribe("TRUE")  # finishes the stream in place of its consumer
    with filter._road.control._turns.writing():
        del stream
    assert filter.stats()["in_flight_batches"] == 0


def test_a_part_has_these_subscriptions_and_no_others():
    filter = EventFilter(Schema({"x": float, "s": str}), matcher="rtree")
    sources = ["x > 5", "s = 'abcdefghij' OR x < 1", "x < 1 AND x > 2", "s LIKE 'abcdefghi%'", "x > 6"]
    filter.subscribe_many(sources, ids=[3, 5, 7, 9, 11])
    part = part_of(filter, [5, 7, 9, 99])
    inside(part).matcher.tree.check()
    assert part.ids().tolist() == [5, 7, 9]
    events = [{"x": 9.0}, {"s": "abcdefghij"}, {"s": "abcdefghiz", "x": 0.5}]
    assert [sorted(ids) for ids in part.match_batch(events)] == [[], [5, 9], [5, 9]]
    assert part.subscribe("x > 1") == 12
    assert len(filter) == 5


def test_a_controller_that_fails_spoils_no_change():
    class Broken(FixedPlan):
        def on_update(self, count=1):
            raise ArithmeticError(f"{count} boxes")

    filter = EventFilter(Schema({"x": float}), controller=Broken(0, 1))
    assert filter.subscribe("x > 1", 7) == 7
    filter.update(7, "x > 2")
    assert filter.match({"x": 3.0}).tolist() == [7]
    with pytest.raises(ArithmeticError, match="3 boxes"):
        filter.stream([{"x": 3.0}])
    assert filter.unsubscribe(7)


def test_a_controller_is_told_before_its_next_plan_what_came_and_went():
    told = []

    class Told(FixedPlan):
        def on_update(self, count=1):
            told.append(count)

    filter = EventFilter(Schema({"x": float}), controller=Told(0, 1))
    filter.subscribe_many(["x > 1", "x > 2"])
    filter.unsubscribe(0)
    assert told == []
    list(filter.stream([{"x": 3.0}]))
    list(filter.stream([{"x": 3.0}]))
    assert told == [3]


def test_a_batch_that_had_to_load_kernels_is_not_held_against_its_plan(monkeypatch):
    class Told(FixedPlan):
        reports = drops = 0

        def report(self, ticket, report):
            self.reports += 1

        def drop(self, ticket):
            self.drops += 1

    filter = EventFilter(Schema({"x": float}), controller=Told(0, 1), matcher="rtree")
    list(filter.stream([{"x": 1.0}]))  # may load kernels itself
    before, dropped = inside(filter).controller.reports, inside(filter).controller.drops
    resume = inside(filter).matcher.tree.resume_part

    def resume_after_loading(*arguments):
        counts.loads += 1
        return resume(*arguments)

    monkeypatch.setattr(inside(filter).matcher.tree, "resume_part", resume_after_loading)
    list(filter.stream([{"x": 1.0}]))
    assert (inside(filter).controller.reports, inside(filter).controller.drops) == (before, dropped + 1)
    monkeypatch.undo()
    list(filter.stream([{"x": 1.0}]))
    assert inside(filter).controller.reports == before + 1


def test_an_exception_of_a_handler_is_that_of_its_call_and_not_of_the_stream_it_finished(monkeypatch):
    filter, events = wide_filter(controller=FixedPlan(1, 1))
    expected = as_sets(filter.match_batch(events))
    stream = filter.stream(events)
    next(stream)
    fails_once(monkeypatch, RTreeMatcher, "resume_part", TimeoutError("of a handler"))
    with pytest.raises(TimeoutError, match="of a handler"):
        filter.subscribe("TRUE", 10**6)
    assert 10**6 not in filter
    assert as_sets(stream.matches()) == expected


@pytest.mark.slow
def test_a_controller_may_use_the_filter_when_it_is_told():
    class Subscribing(FixedPlan):
        def report(self, ticket, report):
            filter.subscribe("TRUE")
            filter.stats()

    filter, events = wide_filter(controller=Subscribing(1, 1))
    threads = [
        threading.Thread(target=lambda: [list(filter.stream(events)) for _ in range(20)], daemon=True)
        for _ in range(4)
    ]
    before = len(filter)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(filter) == before + 80


@pytest.mark.slow
def test_a_subscription_that_is_updated_is_there_all_the_time():
    filter, stop = EventFilter(Schema({"x": float}), matcher="hashes"), threading.Event()
    filter.subscribe("x = 1", 7)

    def update():
        while not stop.is_set():
            filter.update(7, "x IN (1, 2, 3, 4, 5)")

    thread = threading.Thread(target=update)
    thread.start()
    try:
        for _ in range(3000):
            assert 7 in filter
            assert len(filter) == 1
    finally:
        stop.set()
        thread.join()
