"""Any order of calls, with ids of each type and times to live, against a dict."""

import pickle
import tempfile
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from examples import SCHEMA, random_events, random_predicate
from kinds import KINDS, id_of, require_sound
from oracle import as_sets, subscribers
from rtfilter import EventFilter, UnknownSubscriptionError
from rtfilter.filter import part_of
from rtfilter.matching import updates
from rtfilter.predicates.predicate import parse

NUMBERS = st.integers(0, 24)
SEEDS = st.integers(0, 10_000)
TTL = st.one_of(st.none(), st.integers(1, 12))
NOTES = st.sampled_from([None, {"a": 1}, {"b": ["é"]}])
LARGE = {"AT_ONCE": 4, "BIT": 2, "LONG": -1, "KNOWN": 3}


def drawn(rng):
    """A predicate; now and then one that nothing bounds."""
    return "x >= n AND s LIKE '%a%'" if rng.random() < 0.2 else random_predicate(rng)


class Held:
    """What a subscription should be."""

    def __init__(self, source, deadline, note):
        self.predicate, self.deadline, self.note = parse(source, SCHEMA), deadline, note


class LabelMachine(RuleBasedStateMachine):
    """Ids from a small set, so that handles and ids are given out again."""

    @initialize(
        kind=st.sampled_from(list(KINDS.values())),
        matcher=st.sampled_from(["rtree", "hashes"]),
        aside=st.booleans(),
    )
    def start(self, kind, matcher, aside):
        self.kind, self.now = kind, 100.0
        self.turns = mock.patch.multiple(updates, **LARGE, ASIDE=10**9 if aside else -1)
        self.turns.start()
        self.filter = EventFilter(SCHEMA, matcher=matcher, clock=self.clock)
        self.model: dict[object, Held] = {}
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self):
        if hasattr(self, "turns"):
            self.turns.stop()
            self.folder.cleanup()

    def clock(self):
        return self.now

    def alive(self):
        return {id: own for id, own in self.model.items() if own.deadline is None or own.deadline > self.now}

    def deadline(self, ttl):
        return None if ttl is None else self.now + ttl

    @rule(number=NUMBERS, seed=SEEDS, ttl=TTL, note=NOTES)
    def subscribe(self, number, seed, ttl, note):
        id, source = id_of(self.kind, number), drawn(np.random.default_rng(seed))
        if id in self.alive():
            with pytest.raises(ValueError, match="exists already"):
                self.filter.subscribe(source, id=id, ttl=ttl, metadata=note)
        else:
            assert self.filter.subscribe(source, id=id, ttl=ttl, metadata=note) == id
            self.model[id] = Held(source, self.deadline(ttl), note)

    @rule(numbers=st.lists(NUMBERS, max_size=12, unique=True), seed=SEEDS, ttl=TTL, note=NOTES)
    def subscribe_many(self, numbers, seed, ttl, note):
        rng = np.random.default_rng(seed)
        ids = [id_of(self.kind, number) for number in numbers]
        sources = [drawn(rng) for _ in ids]
        notes = [note] * len(ids)
        if self.alive().keys() & set(ids):
            with pytest.raises(ValueError, match="exists already"):
                self.filter.subscribe_many(sources, ids=ids, ttl=ttl, metadata=notes)
            return
        assert self.filter.subscribe_many(sources, ids=ids, ttl=ttl, metadata=notes).tolist() == ids
        for id, source in zip(ids, sources, strict=True):
            self.model[id] = Held(source, self.deadline(ttl), note)

    @rule(numbers=st.lists(NUMBERS, max_size=12))
    def unsubscribe(self, numbers):
        ids = [id_of(self.kind, number) for number in numbers]
        alive = self.alive()
        expected = [id in alive and id not in ids[:row] for row, id in enumerate(ids)]
        assert self.filter.unsubscribe_many(ids).tolist() == expected
        for id in ids:
            if id in alive:
                self.model.pop(id, None)

    @rule(
        number=NUMBERS, seed=st.one_of(st.none(), SEEDS), ttl=st.one_of(st.just(...), TTL),
        note=st.one_of(st.just(...), NOTES),
    )  # fmt: skip
    def update(self, number, seed, ttl, note):
        id = id_of(self.kind, number)
        source = None if seed is None else drawn(np.random.default_rng(seed))
        if source is None and ttl is note is ...:
            return
        if id not in self.alive():
            with pytest.raises(UnknownSubscriptionError):
                self.filter.update(id, source, ttl=ttl, metadata=note)
            return
        self.filter.update(id, source, ttl=ttl, metadata=note)
        own = self.model[id]
        if source is not None:
            own.predicate = parse(source, SCHEMA)
        if ttl is not ...:
            own.deadline = self.deadline(ttl)
        if note is not ...:
            own.note = note

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds):
        self.now += seconds

    @rule(way=st.sampled_from(["snapshot", "pickle", "part", "repack"]))
    def copy(self, way):
        if way == "snapshot":
            self.filter.save(self.folder.name + "/filter")
            self.filter = EventFilter.load(self.folder.name + "/filter", clock=self.clock)
        elif way == "pickle":
            self.filter = pickle.loads(pickle.dumps(self.filter))
            self.filter._subscriptions.clock = self.clock
        elif way == "part":
            made = part_of(self.filter, [*self.filter.ids().tolist(), id_of(self.kind, 99)])
            assert set(made.ids().tolist()) == self.alive().keys()
            require_sound(made)
        elif self.filter._subscriptions.adopting is not None:
            self.filter.repack()

    @rule(seed=SEEDS, streamed=st.booleans())
    def match(self, seed, streamed):
        events = random_events(np.random.default_rng(seed), 8)
        found = self.filter.stream(events).matches() if streamed else self.filter.match_batch(events)
        assert as_sets(found) == self.expected(events)

    @rule(seed=SEEDS, number=NUMBERS)
    def change_while_a_stream_is_open(self, seed, number):
        events = random_events(np.random.default_rng(seed), 8)
        expected, stream = self.expected(events), self.filter.stream(events)
        found = [next(stream)]
        self.now += 2
        id = id_of(self.kind, number)
        self.filter.unsubscribe(id)
        self.filter.subscribe("TRUE", id=id)
        self.model[id] = Held("TRUE", None, None)
        found += stream
        assert {row: set(ids.tolist()) for row, ids, _ in found} == dict(enumerate(expected))

    def expected(self, events):
        rows = [SCHEMA.read(event).row(0) for event in events]
        return subscribers({id: own.predicate for id, own in self.alive().items()}, rows)

    @invariant()
    def whole(self):
        if not hasattr(self, "filter"):
            return
        alive = self.alive()
        assert len(self.filter) == len(alive)
        assert set(self.filter.ids().tolist()) == alive.keys()
        for id, own in alive.items():
            assert self.filter[id].predicate == own.predicate
            assert (self.filter[id].expires, self.filter[id].metadata) == (own.deadline, own.note)
        for id in self.model.keys() - alive.keys():
            assert id not in self.filter
        require_sound(self.filter)
        assert self.kind is int or self.filter._subscriptions.next_id <= 60


LabelMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=20)
test_any_interleaving = LabelMachine.TestCase
