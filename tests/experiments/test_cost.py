"""What a peer would cost is foreseen, before anything takes hours."""

import numpy as np
import pytest

from experiments import peers
from experiments.peers import cost
from experiments.peers.peer import Peer
from rtfilter.replay.workloads import Bounds, workload


class Clock:
    """A peer whose costs a test chooses, in seconds of a clock of its own."""

    now = 0.0
    build = event = 0.0  # a box, an event and box


class Slow(Peer):
    name, package = "slow", "numpy"

    def __init__(self, boxes):
        self.boxes = len(boxes.low)
        Clock.now += self.boxes * Clock.build

    @property
    def ways(self):
        return {"ask": self.ask}

    def ask(self, points):
        Clock.now += len(points) * self.boxes * Clock.event
        return [[] for _ in points]


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(cost, "perf_counter", lambda: Clock.now)
    for name in ("now", "build", "event"):
        monkeypatch.setattr(Clock, name, 0.0)
    return Clock


BOXES = Bounds(np.zeros((100_000, 2)), np.ones((100_000, 2)))
POINTS = np.zeros((50, 2))


def test_costs_are_extrapolated_from_a_sample(clock):
    assert cost.too_much(Slow, BOXES, POINTS, 10, 10) == ""
    clock.build = 1e-3
    assert cost.too_much(Slow, BOXES, POINTS, 99, 1) == "building would take 100 s"
    assert clock.now < 10
    assert cost.too_much(Slow, BOXES, POINTS, 101, 1) == ""
    clock.event = 2e-3
    assert cost.too_much(Slow, BOXES, POINTS, 101, 199) == "an event would take 200 s"


def test_memory_is_extrapolated(clock, monkeypatch):
    held = iter([0, 2**30])
    monkeypatch.setattr(cost, "memory", lambda: next(held))
    monkeypatch.setattr(cost, "available_memory", lambda: 10 * 2**30)
    assert cost.too_much(Slow, BOXES, POINTS, 10, 10) == "it would need 50 GiB of 10"


def test_few_boxes_are_always_tried(clock):
    clock.build = 1e3
    assert cost.too_much(Slow, Bounds(BOXES.low[:1000], BOXES.high[:1000]), POINTS, 1, 1) == ""


@pytest.mark.parametrize(("event", "expected"), [(1e-9, 50), (1e-6, 10), (1e-5, 1), (1.0, 1)])
def test_as_many_events_are_asked_as_the_budget_allows(clock, event, expected):
    clock.event = event
    assert cost.affordable(Slow(BOXES).ask, POINTS, 1.05) == expected


def test_memory_of_this_process_is_known():
    before = cost.memory()
    if before is None:
        pytest.skip("this system does not tell")
    kept = np.ones(2**22)
    grown = cost.memory() - before
    assert 0.9 * kept.nbytes < grown < 1.5 * kept.nbytes
    assert cost.peak_memory() >= cost.memory()
    assert cost.available_memory() > 0


def test_ours_costs_little():
    made = workload("narrow")
    assert (
        cost.too_much(peers.PEERS["rtfilter"], made.subscriptions(0, 5000), made.events(0, 20), 60, 60) == ""
    )
