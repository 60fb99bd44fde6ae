"""Workloads in which the best plan moves, or might: what is subscribed and asked, step by step."""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import ClassVar, NamedTuple

import numpy as np

from experiments.paper.index import GrowingFilter
from experiments.paper.settings import SETTINGS
from rtfilter import EventFilter
from rtfilter.events.table import EventTable
from rtfilter.replay.workloads import Workload, workload

WIDE = 1 << 40
"""Smallest id of a wide box where narrow ones become wide."""


class Batch(NamedTuple):
    """A batch, and the part of the run it belongs to."""

    phase: str
    moving: bool
    """True if something changes in this phase."""
    events: EventTable
    updates: int
    """Boxes that came and went since the batch before."""


class Case(ABC):
    """A filter whose subscriptions change, and the batches that meet it.

    Parameters
    ----------
    seed : int
    scale : float
        Number of subscriptions and of batches, as a share of the usual one.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    counted: ClassVar[bool] = True
    """True if the work units of all plans are counted too: for large batches that takes minutes."""

    def __init__(self, seed: int, scale: float) -> None:
        self.seed, self.scale = seed, scale
        self.filter: EventFilter
        self._asked = 0

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Yield the batches; the filter changes before each one."""

    def _boxes(self, count: int) -> int:
        return max(int(count * self.scale), 500)

    def _steps(self, count: int) -> range:
        return range(max(round(count * min(1.0, 2 * self.scale)), 4))

    def _made(self, source: Workload, count: int) -> EventFilter:
        made = EventFilter(source.schema, matcher="rtree")
        source.subscribe(made, 0, count)
        return made

    def _next(self, source: Workload, count: int) -> EventTable:
        self._asked += count
        return source.schema.read(source.events(self._asked - count, count))


class Steady(Case):
    """Nothing changes."""

    name, title = "steady", "500,000 wide boxes, batches of 512"

    def batches(self) -> Iterator[Batch]:
        source = workload("wide", self.seed)
        self.filter = self._made(source, self._boxes(500_000))
        for _ in self._steps(400):
            yield Batch("steady", False, self._next(source, 512), 0)


class Widening(Case):
    """Narrow boxes become wide, in small steps."""

    name, title = "widening", "300,000 narrow boxes become wide ones, batches of 512"

    def batches(self) -> Iterator[Batch]:
        narrow, wide = workload("narrow", self.seed), workload("wide", self.seed)
        count = self._boxes(300_000)
        self.filter = self._made(narrow, count)
        for _ in self._steps(150):
            yield Batch("narrow", False, self._next(wide, 512), 0)
        steps, each = len(self._steps(20)), len(self._steps(10))
        done = 0
        for step in range(steps):
            goal = count * (step + 1) // steps
            boxes = wide.subscriptions(done, goal - done)
            self.filter.subscribe_boxes(*boxes, ids=WIDE + np.arange(done, goal))
            self.filter.unsubscribe_many(np.arange(done, goal))
            for turn in range(each):
                yield Batch("widening", True, self._next(wide, 512), 0 if turn else 2 * (goal - done))
            done = goal
        for _ in self._steps(150):
            yield Batch("wide", False, self._next(wide, 512), 0)


class Growing(Case):
    """An index that grows a hundredfold."""

    name, title = "growing", "10,000 to 1,000,000 wide boxes, batches of 256"

    def batches(self) -> Iterator[Batch]:
        source, first = workload("wide", self.seed), self._boxes(10_000)
        self.filter = self._made(source, first)
        for _ in self._steps(100):
            yield Batch("small", False, self._next(source, 256), 0)
        steps, held = len(self._steps(40)), first
        for step in range(steps):
            goal = round(first * 100 ** ((step + 1) / steps))
            source.subscribe(self.filter, held, goal - held)
            for turn in self._steps(10):
                yield Batch("growing", True, self._next(source, 256), 0 if turn else goal - held)
            held = goal
        for _ in self._steps(100):
            yield Batch("large", False, self._next(source, 256), 0)


class Sizes(Case):
    """Batches of 4 to 4096 events, mixed."""

    name, title = "sizes", "300,000 wide boxes, batches of 4 to 4096 mixed"
    most = 4096

    def batches(self) -> Iterator[Batch]:
        source = workload("wide", self.seed)
        self.filter = self._made(source, self._boxes(300_000))
        rng = np.random.default_rng(self.seed)
        for _ in self._steps(800):
            size = round(4 * (self.most / 4) ** rng.random())
            yield Batch("mixed", False, self._next(source, size), 0)


class Turns(Case):
    """Sizes of one class in rotation, as many as a level and its neighbours."""

    name, title = "turns", "60,000 wide boxes, batches of 96, 127 and 64 in turn"

    def batches(self) -> Iterator[Batch]:
        source = workload("wide", self.seed)
        self.filter = self._made(source, self._boxes(60_000))
        for turn in self._steps(400):
            yield Batch("turns", False, self._next(source, (96, 127, 64)[turn % 3]), 0)


class Neighbour(Case):
    """Another process keeps the other core and the memory busy, from time to time."""

    name, title = "neighbour", "300,000 wide boxes, batches of 256, a noisy neighbour on the other core"

    def batches(self) -> Iterator[Batch]:
        source = workload("wide", self.seed)
        self.filter = self._made(source, self._boxes(300_000))
        for turn in range(6):
            with noise() if turn % 2 else nullcontext():
                for _ in self._steps(80):
                    yield Batch("noise" if turn % 2 else "quiet", bool(turn % 2), self._next(source, 256), 0)


class Flights(Case):
    """Bursts of flights as they left: those of the same quarter of an hour."""

    name, title = "flights", "20,000 flight alerts, bursts of the flights of half an hour"

    def batches(self) -> Iterator[Batch]:
        source = workload("flights", self.seed)
        self.filter = self._made(source, self._boxes(20_000))
        assert source.period is not None
        flights = source.events(0, source.period)
        slots = flights["sched_dep"].dt.floor("30min")
        given = 0
        for _, rows in flights.groupby(slots, sort=True):
            if len(rows) > 1:
                yield Batch("flights", False, source.schema.read(rows), 0)
                given += 1
            if given == len(self._steps(600)):
                return


class Small(Case):
    """Small bursts, whose responses differ by half from one to the next, and alerts that come and go."""

    name, title = "small", "20,000 flight alerts that come and go, bursts of 16 flights"

    def batches(self) -> Iterator[Batch]:
        source, boxes = workload("flights", self.seed), self._boxes(20_000)
        self.filter = self._made(source, boxes)
        each = boxes // 200
        for step in self._steps(600):
            source.subscribe(self.filter, boxes + step * each, each)
            self.filter.unsubscribe_many(np.arange(step * each, (step + 1) * each))
            yield Batch("small", False, self._next(source, 16), 2 * each)


class Large(Case):
    """A large index and large bursts."""

    name, title = "large", "1,000,000 wide boxes, bursts of 1000"
    counted = False

    def batches(self) -> Iterator[Batch]:
        source = workload("wide", self.seed)
        self.filter = self._made(source, self._boxes(1_000_000))
        for _ in self._steps(160):
            yield Batch("large", False, self._next(source, 1000), 0)


class PaperNodes(Case):
    """Nodes as in the paper (Wang et al.), in which deep levels are best."""

    name, title = "paper", "60,000 wide boxes, nodes of 10 and 20, batches of 64"

    def batches(self) -> Iterator[Batch]:
        source, index = workload("wide", self.seed), GrowingFilter(SETTINGS["paper"], self.seed)
        index.grow(self._boxes(60_000))
        self.filter = index.filter
        for _ in self._steps(250):
            yield Batch("steady", False, self._next(source, 64), 0)


CASES: Mapping[str, Callable[[int, float], Case]] = {
    case.name: case
    for case in (Steady, Widening, Growing, Sizes, Turns, Neighbour, Flights, Small, Large, PaperNodes)
}
"""The cases by name."""

_NOISE = """
import numpy
data = numpy.random.default_rng(1).random(20_000_000)
places = numpy.random.default_rng(2).integers(0, len(data), 4_000_000)
while True:
    data[places] += 1
"""


@contextmanager
def noise() -> Iterator[None]:
    """Run another process that writes to its memory all the time."""
    with subprocess.Popen([sys.executable, "-c", _NOISE]) as process:
        try:
            yield
        finally:
            process.kill()
