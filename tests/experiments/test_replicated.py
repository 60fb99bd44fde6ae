"""Copies of a matcher: changes reach all, and any of them matches."""

import threading
import time
from functools import partial

import numpy as np
import pytest

from experiments.thesis.switches import ReplicatedMatcher
from lengths import long_but
from rtfilter import EventFilter, Schema
from rtfilter.matchers import Filters, check_matcher
from rtfilter.matchers.papers.shared_counting import SharedCountingMatcher
from rtfilter.predicates.predicate import Predicate

SCHEMA = Schema({"x": int})


def filters_of(*sources):
    return Filters.of_predicates(SCHEMA, [Predicate.parse(source, SCHEMA) for source in sources])


@pytest.mark.slow
@pytest.mark.parametrize("seed", long_but(range(3), [0]))
@pytest.mark.parametrize("of", ["shared-counting", "shared-counting-filters", "masks"])
def test_copies_keep_the_promises(of, seed):
    check_matcher(partial(ReplicatedMatcher, of=of, copies=3), seed, rounds=4)


def test_every_copy_answers_the_same_after_each_change():
    matcher = ReplicatedMatcher(SCHEMA, copies=3)
    events = SCHEMA.read([{"x": 1}])

    def answers():
        return [sorted(matcher.match(events).ids.tolist()) for _ in range(3)]

    matcher.add(filters_of("x = 1", "x < 5"))
    assert answers() == [[0, 1]] * 3
    assert matcher.remove(np.array([0, 7])).tolist() == [True, False]
    assert answers() == [[1]] * 3
    assert matcher.stats()["copies"] == 3


def test_two_threads_match_in_two_copies_at_once():
    both = threading.Barrier(2, timeout=120)  # breaks unless both threads come

    class Meeting(SharedCountingMatcher):
        """Bears one thread, which waits inside for another one that matches elsewhere."""

        def _find(self, event):
            both.wait()
            return super()._find(event)

    matcher = ReplicatedMatcher(SCHEMA, of=partial(Meeting, counters="filters"), copies=2)
    assert matcher.takes.threads
    matcher.add(filters_of("x = 1"))
    found = []

    def match():
        found.append(matcher.match(SCHEMA.read([{"x": 1}])).ids.tolist())

    threads = [threading.Thread(target=match) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[0], [0]]


def test_one_copy_is_used_by_one_thread_at_a_time():
    inside, most = [], []

    class Slow(SharedCountingMatcher):
        def _find(self, event):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()
            return super()._find(event)

    matcher = ReplicatedMatcher(SCHEMA, of=Slow, copies=1)
    matcher.add(filters_of("x = 1"))
    threads = [threading.Thread(target=matcher.match, args=[SCHEMA.read([{"x": 1}])]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


def test_a_change_cut_short_between_copies_can_be_undone(monkeypatch):
    matcher = ReplicatedMatcher(SCHEMA)
    matcher.add(filters_of("x = 1"))
    first, second = matcher._copies

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(first, "remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            matcher.remove(np.array([0]))
    assert 0 in matcher
    assert 0 not in second
    assert matcher.remove(np.array([0])).tolist() == [True]
    with monkeypatch.context() as patch:
        patch.setattr(second, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            matcher.add(filters_of("x = 1"))
    assert matcher.remove(np.array([0])).tolist() == [True]
    assert [len(copy) for copy in matcher._copies] == [0, 0]


def test_a_filter_may_have_copies():
    filter = EventFilter(SCHEMA, matcher=partial(ReplicatedMatcher, of="shared-counting-filters"))
    filter.subscribe("x < 3")
    assert [sorted(ids) for ids in filter.match_batch([{"x": 1}, {"x": 3}])] == [[0], []]


def test_there_is_at_least_one_copy():
    with pytest.raises(ValueError, match="copies must be at least 1, not 0"):
        ReplicatedMatcher(SCHEMA, copies=0)
