"""One battery over every way to match: matchers, policies, controllers, saved, pickled, changed, in threads.

It runs in full for the R*-tree, and pairwise for every other matcher of boxes. Those without boxes know
nothing of controllers: two pairs each go round all of them. The short form tries each controller with one
order on the tree, and one pair on each other matcher.
"""

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, product

import numpy as np
import pytest

from cases import slow_but
from examples import SCHEMA, random_events, random_predicate
from kinds import BOXED, EACH, TAKING_ALL
from lengths import long_but
from oracle import as_sets, subscribers
from rtfilter import EventFilter
from rtfilter.adaptive import (
    CostController,
    EarlyStop,
    FixedPlan,
    LevelController,
    PlanController,
    WangController,
)
from rtfilter.predicates.predicate import parse
from rtfilter.watch.metrics import Metrics

CONTROLLERS = {
    "root": lambda: FixedPlan(0, 1),
    "middle-grouped": lambda: FixedPlan(1, 7),
    "leaves-whole": lambda: FixedPlan(99, None),
    "wang": lambda: WangController(rounds=1, threshold=5),
    "level": lambda: LevelController(rounds=1, threshold=5),
    "cost": CostController,
    "plan": lambda: PlanController(rounds=1, threshold=5),
    "plan-early": lambda: PlanController(rounds=8, threshold=5, early_stop=EarlyStop()),
}
ORDERS = {
    "shortest": "shortest",
    "fifo": "fifo",
    "longest": "longest",
    "callable": lambda workload: np.argsort(workload % 3, kind="stable"),
}
OTHERS = [*(name for name in TAKING_ALL if name != "rtree"), "auto"]


def one_by_one(events, filter):
    return [set(filter.match(event).tolist()) for event in events]


def streamed(events, filter):
    found: list = [None] * len(events)
    for event, ids, response in filter.stream(events):
        assert found[event] is None, "an event is released twice"
        assert response > 0
        assert len(set(ids.tolist())) == len(ids)
        found[event] = set(ids.tolist())
    assert None not in found, "an event is never released"
    return found


def batched(events, filter):
    return as_sets(filter.match_batch(events))


def stream_matches(events, filter):
    return as_sets(filter.stream(events).matches())


WAYS = [one_by_one, batched, streamed, stream_matches]


def build(rng, count, **options):
    filter = EventFilter(SCHEMA, **options)
    sources = [random_predicate(rng) for _ in range(count)]
    predicates = {}
    for i, source in enumerate(sources):
        id = filter.subscribe(source, id=10 * i if i % 7 == 0 else None)
        predicates[id] = parse(source, SCHEMA)
    return filter, predicates


TREES = [{"name": "rtree", "capacity": (4, 4)}, "rtree"]
FULL = list(product(TREES, CONTROLLERS, ORDERS))
PAIRS = list(zip(CONTROLLERS, cycle(ORDERS), strict=False))
PAIRWISE = [(matcher, *pair) for matcher in OTHERS if matcher in [*BOXED, "auto"] for pair in PAIRS]
PYTHON = [name for name in OTHERS if name not in [*BOXED, "auto"]]
PAIRWISE += [(matcher, *pair) for matcher, pair in zip(2 * PYTHON, cycle(PAIRS), strict=False)]
SHORT = [(TREES[0], *pair) for pair in PAIRS] + [("rtree", "plan", "shortest")]
SHORT += list({one[0]: one for one in PAIRWISE}.values())
QUICK = [one for one in SHORT if one[0] in (*TREES, "scan", "masks")]


@pytest.mark.parametrize(
    ("matcher", "controller", "order"),
    [
        pytest.param(
            *one, marks=[pytest.mark.long] * (one not in SHORT) + [pytest.mark.slow] * (one not in QUICK)
        )
        for one in FULL + PAIRWISE
    ],
)
def test_every_way_to_match_gives_what_the_predicates_say(matcher, controller, order):
    rng = np.random.default_rng(0)
    filter, predicates = build(
        rng,
        120,
        order=ORDERS[order],
        controller=CONTROLLERS[controller](),
        metrics=Metrics(),
        matcher=matcher,
    )
    for _ in range(2):
        events = random_events(rng, 25)
        rows = [filter.schema.read(event).row(0) for event in events]
        expected = subscribers(predicates, rows)
        for way in WAYS:
            assert way(events, filter) == expected, way.__name__
        assert filter.match_batch(events).any.tolist() == [bool(ids) for ids in expected]
        assert filter.match_batch(events).counts.tolist() == [len(ids) for ids in expected]
        id, source = next(iter(predicates)), random_predicate(rng)
        filter.update(id, source)
        predicates[id] = parse(source, SCHEMA)
        gone = list(predicates)[-1]
        assert filter.unsubscribe(gone)
        del predicates[gone]


@pytest.mark.parametrize("seed", long_but(range(15), range(3)))
def test_seeds_beyond_the_battery(seed):
    rng = np.random.default_rng(100 + seed)
    filter, predicates = build(rng, 60, matcher={"name": "rtree", "capacity": (4, 6)})
    events = random_events(rng, 60)
    rows = [filter.schema.read(event).row(0) for event in events]
    assert batched(events, filter) == subscribers(predicates, rows)


def keep(filter, tmp_path):
    filter.save(tmp_path / "filter")
    return EventFilter.load(tmp_path / "filter")


def repickle(filter, tmp_path):
    return pickle.loads(pickle.dumps(filter))


@pytest.mark.parametrize("copy", long_but([keep, repickle], [keep]))
@pytest.mark.parametrize("matcher", slow_but([*TAKING_ALL, "auto"], ["rtree", "scan", "masks", "hashes"]))
def test_a_copy_answers_the_same_and_lives_on(copy, matcher, tmp_path):
    rng = np.random.default_rng(1)
    matcher = {"name": "rtree", "capacity": (4, 4)} if matcher == "rtree" else matcher
    count = 30 if matcher in PYTHON else 60
    original, predicates = build(rng, count, matcher=matcher)
    events = random_events(rng, 50)
    rows = [original.schema.read(event).row(0) for event in events]
    second = copy(original, tmp_path)
    assert second.schema == original.schema
    assert len(second) == len(original) == count
    assert batched(events, second) == subscribers(predicates, rows)
    id = second.subscribe("x > 0")
    assert id == max(predicates) + 1  # ids go on where they were
    assert second.unsubscribe(next(iter(predicates)))
    third = copy(second, tmp_path)
    assert len(third) == count
    expected = {id: parse("x > 0", SCHEMA)} | dict(list(predicates.items())[1:])
    assert batched(events, third) == subscribers(expected, rows)
    assert batched(events, original) == subscribers(predicates, rows)
    assert str(third[id].predicate) == "x > 0"


@pytest.mark.parametrize("matcher", EACH)
def test_insertion_order_does_not_change_results(matcher):
    rng = np.random.default_rng(2)
    count = 30 if matcher in PYTHON else 80
    sources = [random_predicate(rng) for _ in range(count)]
    events = random_events(rng, 50)
    one, other = EventFilter(SCHEMA, matcher=matcher), EventFilter(SCHEMA, matcher=matcher)
    for id in range(count):
        one.subscribe(sources[id], id=id)
    other.subscribe_many(sources[::-1], ids=np.arange(count)[::-1])
    assert batched(events, one) == batched(events, other)


def test_subscribing_and_unsubscribing_restores_everything():
    rng = np.random.default_rng(3)
    filter, predicates = build(rng, 60, matcher={"name": "rtree", "capacity": (4, 4)})
    events = random_events(rng, 50)
    before, stats = batched(events, filter), filter.stats()
    ids = filter.subscribe_many([random_predicate(rng) for _ in range(5)])
    assert filter.unsubscribe_many(ids).all()
    assert batched(events, filter) == before
    after = filter.stats()
    assert [after[key] for key in ("subscriptions", "boxes", "links")] == [
        stats[key] for key in ("subscriptions", "boxes", "links")
    ]
    filter.unsubscribe_many(list(predicates))
    assert len(filter) == 0
    assert filter.stats()["links"] == 0


@pytest.mark.parametrize("matcher", EACH)
def test_adding_constraints_never_adds_matches_nor_subscriptions_remove_any(matcher):
    rng = np.random.default_rng(4)
    filter, _ = build(rng, 40, matcher=matcher)
    events = random_events(rng, 60)
    before = batched(events, filter)
    loose = filter.subscribe("x > 0 OR s = 'a'")
    tight = filter.subscribe("(x > 0 OR s = 'a') AND n < 3")
    after = batched(events, filter)
    for old, new in zip(before, after, strict=True):
        assert new - {loose, tight} == old
        assert loose in new or tight not in new


@pytest.mark.parametrize("matcher", long_but(OTHERS, ["scan", "matching-tree", "auto"]))
def test_changes_and_batches_interleave_as_brute_force_says(matcher):
    rng = np.random.default_rng(5)
    filter, predicates = build(rng, 20, matcher=matcher)
    for _ in range(60 if matcher in PYTHON else 150):
        action = rng.integers(0, 5)
        if action == 0:
            sources = [random_predicate(rng) for _ in range(rng.integers(1, 6))]
            ids = filter.subscribe_many(sources).tolist()
            predicates.update(zip(ids, (parse(source, SCHEMA) for source in sources), strict=True))
        elif action == 1 and predicates:
            gone = rng.permutation(list(predicates))[: rng.integers(1, 6)]
            assert filter.unsubscribe_many(gone).all()
            for id in gone.tolist():
                del predicates[id]
        elif action == 2 and predicates:
            id, source = int(rng.choice(list(predicates))), random_predicate(rng)
            filter.update(id, source)
            predicates[id] = parse(source, SCHEMA)
        elif action == 3:
            assert not filter.unsubscribe(10**6)
        else:
            events = random_events(rng, 10)
            rows = [filter.schema.read(event).row(0) for event in events]
            stream = filter.stream(events)
            expected = subscribers(predicates, rows)
            id = filter.subscribe("TRUE")  # finishes the stream, which does not see it
            assert as_sets(stream.matches()) == expected
            assert filter.unsubscribe(id)
            assert batched(events, filter) == expected
        assert sorted(predicates) == filter.ids().tolist()


@pytest.mark.slow
@pytest.mark.parametrize("matcher", long_but(OTHERS, ["scan", "matching-tree", "auto"]))
def test_threads_match_while_subscriptions_change(matcher):
    rng = np.random.default_rng(6)
    filter, predicates = build(rng, 60, matcher=matcher)
    batches = [random_events(rng, 20) for _ in range(12)]
    fixed = [subscribers(predicates, [filter.schema.read(e).row(0) for e in events]) for events in batches]
    other = filter.subscribe("x > 0 AND x < 0") + 1

    def answers(events):
        return [{id for id in ids if id < other} for ids in batched(events, filter)]

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(answers, events) for events in batches * 3]
        for _ in range(30):
            assert filter.unsubscribe_many(filter.subscribe_many(["x > 0", "TRUE"])).all()
        assert [one.result() for one in found] == fixed * 3
