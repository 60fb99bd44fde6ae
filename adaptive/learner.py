"""The knowledge of batches of one size class, on indexes of one height, and the choice of the next plan."""

import math
import statistics

import numpy as np
from numpy.typing import NDArray

from rtfilter.adaptive.beliefs import ALARMED, Beliefs
from rtfilter.adaptive.controllers import plan_fields
from rtfilter.adaptive.drift import MEDIAN, Drift, Noise
from rtfilter.adaptive.plans import Entry, Plan

SOON, CALM = 50.0, 1.0
"""Value of a lesson in batches: a minimum, and an addition for each batch since the last alarm. After a
long calm, an equally long one is expected."""
NOISE, GREATER_NOISE = 0.1, 0.75
"""First standard deviations of the logarithms of responses: on a quiet machine, and for small bursts of real
events."""
NEXT = 16
"""Most batches between two of one plan whose difference counts for the variance."""
USUAL = 1 / 16
"""Weight of a batch in the mean size."""
VAGUE = 0.25
"""Weight of a batch that was cancelled or lost."""
AGE, COMMON_AGE = 2e-5, 0.3
"""Variance that a batch adds: to each plan, as a share of the uncertainty at first; and to the common part of
all plans, as a share of the variance of responses."""
DOUBTED, LEAST_CREDIT = 0.25, 1 / 64
"""Sum of doubt after which further doubt counts half, and the least factor; the factor doubles when the best
plan changes."""
PACKED_LEVEL = 4.0
"""Variance of the common part of all plans after a new build of the index."""
HOPELESS = 10.0
"""Addition to the logarithm of the cost of a plan whose last batch finished nothing."""
REVIEW, FAR = 256, math.log(4)
"""Batches without a try after which the least certain plan is tried, unless it is expected to take more than
the second number, e^FAR = 4, times as long: only a batch of a plan shows that it has become better."""
SAME_GROWTH, FADING = 0.1, 0.02
"""Weight of the growth of the model, and the share of older batches that a decision removes."""


class Learner:
    """The beliefs for batches of one class of sizes on indexes of one height."""

    def __init__(self, label: int, size: int, packed: int, beliefs: Beliefs) -> None:
        self.label, self.packed, self.beliefs = label, packed, beliefs
        self.size = float(size)  # of the batch that the beliefs are about: others may have another best plan
        self.off = 0.0  # mean logarithm of the sizes of the last batches, relative to `size`
        self.under_way = [0] * len(beliefs.plans)
        self.hopeless: NDArray[np.bool_] = np.zeros(len(beliefs.plans), np.bool_)
        """Plans whose last batch took long and finished nothing: any other plan is better."""
        self.best = beliefs.best
        self.expect(NOISE**2)
        self.left = 0  # batches until the next decision
        self.decided: int | None = None  # place of the plan of the next batch, if the last report decided it
        self.rest = 1  # batches for the best plan after the next decision for it, about
        self.doubt = 0.0  # since the last decision
        self.moved: Plan | None = None  # the best plan before, if the last decision changed it
        self.updates = 0  # of the index since the last try of a plan
        self.batches = self.tries = self.moves = self.transitions = self.alarms = 0
        self._trying = True
        self._values: list[float] = []  # of the best plan, since the last decision
        self._weight, self._age = 0.0, 0
        self._last: dict[int, tuple[int, float]] = {}  # batch and value of each plan
        self._growth = Growth()
        self._drift = Drift()
        self._credit, self._doubted = 1.0, 0.0
        self._tried = 0  # batches before the last try
        self._lost = 0.0
        self._since = 0  # batches before the last alarm

    def expect(self, noise: float) -> None:
        """Set the first variance of responses, if it is larger than the present one."""
        self.noise = noise
        self._differences = Noise(MEDIAN * noise, MEDIAN * GREATER_NOISE**2)

    def change(self, updates: int, doubt: float) -> None:
        """Count updates of the index, and add doubt; doubt that changed no plan in the past counts less."""
        self.updates += updates
        self.doubt = min(self.doubt + self._credit * doubt, 1.0)
        self._doubted += doubt
        if self._doubted > DOUBTED:
            self._doubted, self._credit = 0.0, max(self._credit / 2, LEAST_CREDIT)

    def pack(self, doubt: float) -> None:
        """Discard what earlier responses showed, because the index was built again."""
        self.change(0, doubt)
        self.left, self.rest, self.decided = 0, 1, None
        self._values.clear()
        self._weight = 0.0
        self._drift = Drift()
        self.beliefs.forget(PACKED_LEVEL, 0.0)

    def move(self, size: float, grown: NDArray[np.float64]) -> None:
        """Set another batch size; `grown` (plans,) is the addition to the logarithms of the costs."""
        self._growth.end()
        grown = grown + self._growth.slope * math.log(size / self.size)
        self.size, self.off = size, 0.0
        self.beliefs.mean += grown
        self._values = [value + float(grown[self.best]) for value in self._values]
        self._last.clear()
        self._drift = Drift()

    def learn(self, at: int, value: float, size: float, ended: bool = True) -> None:
        """Add the logarithm of a response. With ``ended=False`` (a cancelled batch), it is a lower bound."""
        self.batches += 1
        self._age += 1
        if size != self.size or self._growth.known:
            x = math.log(size / self.size)
            self.off += USUAL * (x - self.off)
            if at == self.best and ended:
                self._growth.add(x, value)
            value -= self._growth.slope * x
        weight = 1.0 if ended else VAGUE
        if not ended:
            value = max(value, float(self.beliefs.mean[at]))
        before = self._last.get(at)
        self._last[at] = self.batches, value
        if before is not None and self.batches - before[0] <= NEXT:
            self._differences.add(value - before[1])
        if at != self.best:
            self._lost += max(value - float(self.beliefs.mean[self.best]), 0.0)
            self._get_older()
            self.beliefs.observe(at, value, self.noise / weight)
            return
        self._weight += weight
        self._values.append(value)

    def decide(self, horizon: float) -> int | None:
        """Choose the best plan again; return the place of another plan that is worth a batch now, or None."""
        beliefs, before = self.beliefs, self.best
        self._get_older()
        self.noise = self._differences.variance
        if self._values:
            value = statistics.median(self._values)  # interrupted batches do not move the median
            variance = self.noise / self._weight
            beliefs.observe(self.best, value, variance)
            if self._drift.add(value, variance):
                self.alarms += 1
                self._since, self.rest = self.batches, 1
                beliefs.forget(1.0, ALARMED)  # the reason may be common to all plans
            self._values.clear()
            self._weight = 0.0
        self._growth.end()
        expected = beliefs.mean + HOPELESS * self.hopeless
        self.best = int(expected.argmin())
        self.moved = beliefs.plans[before] if self.best != before else None
        if self.moved is not None:
            self.moves += 1
            self._drift = Drift()
            self._credit = min(2 * self._credit, 1.0)
        lesson = beliefs.lessons(self.best, self.noise)
        loss = expected - expected[self.best]
        worth = min(SOON + CALM * (self.batches - self._since), horizon) * lesson - loss
        for at, count in enumerate(self.under_way):
            if count and at != self.best:
                worth[at] = -np.inf  # its batch is still running
        at = int(worth.argmax())
        if at == self.best and self.batches - self._tried > REVIEW:
            self._tried = self.batches
            unsure = beliefs.unsure(self.best)
            unsure[(loss > FAR) | np.isinf(worth)] = 0.0
            at = int(unsure.argmax()) if unsure.any() else self.best
        trying = at != self.best
        self.transitions += trying != self._trying
        self._trying = trying
        if not trying:
            return None
        self.tries += 1
        self._tried = self.batches
        self.updates = 0
        return at

    def _get_older(self) -> None:
        """Add variance for the batches and the doubt since the last call."""
        self.beliefs.forget(COMMON_AGE * self.noise * self._age, AGE * self._age + self.doubt)
        self._age, self.doubt = 0, 0.0

    def fields(self) -> Entry:
        """Return the state, JSON-able."""
        return {
            **plan_fields(self.beliefs.plans[self.best]),
            "mode": "UNSTABLE" if self._trying else "STABLE",
            "updates": self.updates,
            "batches": self.batches,
            "tries": self.tries,
            "moves": self.moves,
            "transitions": self.transitions,
            "anomalies": 0,
            "alarms": self.alarms,
            "noise": math.sqrt(self.noise),
            "regret": self._lost / self.batches if self.batches else 0.0,
        }


class Growth:
    """The difference between the measured growth of responses with batch size, and the growth of the model.

    It is the slope of a line through the batches of one plan between two decisions: batches of other times
    and plans differ by more than their size.
    """

    def __init__(self) -> None:
        self.slope = 0.0
        self.known = False
        self._xx, self._xy = SAME_GROWTH, 0.0
        self._count = self._x = self._y = self._square = self._product = 0.0

    def add(self, x: float, y: float) -> None:
        """Add a point: the logarithms of a size and of a response."""
        self.known = True
        self._count += 1
        off = x - self._x
        rise = y - self._y
        self._x += off / self._count
        self._y += rise / self._count
        self._square += off * (x - self._x)
        self._product += off * (y - self._y)

    def end(self) -> None:
        """Close the line of one plan, and add it to the slope."""
        if self._square > 0:
            self._xx = SAME_GROWTH + (1 - FADING) * (self._xx - SAME_GROWTH) + self._square
            self._xy = (1 - FADING) * self._xy + self._product
            self.slope = self._xy / self._xx
        self._count = self._x = self._y = self._square = self._product = 0.0
