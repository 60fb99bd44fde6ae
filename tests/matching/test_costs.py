"""What batches cost with two matchers, by a clock that only their work moves."""

import numpy as np
import pytest

from rtfilter import Schema
from rtfilter.adaptive import Plan
from rtfilter.events.table import EventTable
from rtfilter.matching import choosing
from rtfilter.matching.choosing import Costs, pairs
from rtfilter.scheduler import fifo, shortest_first

SCHEMA = Schema({"x": float})


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Timed:
    """An event takes as many seconds as its value, and a call `call` more; the estimate is right and free."""

    def __init__(self, clock, each=1.0, call=0.0):
        self.clock, self.each, self.call, self.calls = clock, each, call, 0

    def match(self, events):
        self.calls += 1
        self.clock.now += self.call + self.each * float(events.points.sum())

    def workload(self, events):
        return events.points[:, 0].astype(np.int64)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(choosing, "clock", made)
    return made


def batch(*values) -> EventTable:
    return SCHEMA.read(np.array(values, float)[:, np.newaxis])


def test_a_batch_costs_its_time(clock):
    assert Costs(Timed(clock, call=5), fifo).of(batch(3, 1, 2), None) == 11


@pytest.mark.parametrize(("policy", "mean"), [(fifo, (3 + 4 + 6) / 3), (shortest_first, (1 + 3 + 6) / 3)])
def test_a_stream_costs_the_mean_response_of_its_events(clock, policy, mean):
    own = Costs(Timed(clock), policy)
    assert own.of(batch(3, 1, 2), Plan(0, 1)) == pytest.approx(mean)
    assert own.of(batch(3, 1, 2), Plan(0, 2)) == pytest.approx((4 * 2 + 6) / 3 if policy is fifo else 4)
    assert own.of(batch(3, 1, 2), Plan(0, None)) == 6


def test_the_plan_is_that_with_the_least_mean_response(clock):
    events = batch(*[1] * 300)
    assert Costs(Timed(clock), fifo).plan(events) == Plan(0, 16)
    assert Costs(Timed(clock, call=15), fifo).plan(events) == Plan(0, 64)
    assert Costs(Timed(clock, call=1000), fifo).plan(events) == Plan(0, None)


def test_streams_are_compared_by_responses_and_other_batches_by_times(clock):
    events = [batch(*[1] * 300)] * 3
    whole, fine = Timed(clock, each=0.8, call=200), Timed(clock)
    found = pairs(256, False, events, Costs(whole, fifo), Costs(fine, fifo))
    assert {pair[:] for pair in found} == {(256, 300, 440.0, 300.0, False)}
    cheap, fine = Timed(clock, each=0.8, call=50), Timed(clock)
    assert {
        pair.own < pair.other for pair in pairs(256, False, events, Costs(cheap, fifo), Costs(fine, fifo))
    } == {True}
    streamed = pairs(256, True, events, Costs(cheap, fifo), Costs(fine, fifo))
    assert {(pair.own > pair.other, pair.streamed) for pair in streamed} == {(True, True)}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_hopeless_candidate_is_matched_once(clock, streamed):
    slow = Timed(clock, each=9)
    (pair,) = pairs(2, streamed, [batch(1, 1)] * 3, Costs(Timed(clock), fifo), Costs(slow, fifo))
    assert (pair.own, pair.other, slow.calls) == (2, 18, 1)
