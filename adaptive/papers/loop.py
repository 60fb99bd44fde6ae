"""A loop of comparisons: a position and its neighbours, sampled in rounds.

**Rounds.** Each position runs once in a round. Rounds follow each other until the loop ends, also while
samples have not reported. So no position gets more than its share of the batches. The rounds leave out a
neighbour once it is shown to be no better (`stopping`).

**Order.** Batch sizes may come in a rhythm, such as 96, 127, 64, 96, ... With a fixed order within a round,
each position could always meet the same size. So each round has a new random order. The paper (Wang et al.)
always has c, c - 1, c + 1; a loop without a generator does so, too.

**The end.** A loop ends when no position lacks samples, or earlier by a test. A lost sample counts as a
sample without a value. A cancelled batch gives a lower bound: see `compared`. A neighbour without a finished
batch is never better, with an exception: if the position itself has no value, the best neighbour with a value
is better.

**Lost samples.** A late batch may still report. So a sample is lost once `LATER` later ones have been
reported, or when `MOST` are under way and another one begins; then the oldest is lost.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rtfilter.adaptive.papers.stopping import EarlyStop, Rule, Samples
from rtfilter.adaptive.plans import Plan

LATER = 64
"""Reports of later samples after which a sample counts as lost."""
MOST = 256
"""Largest number of samples under way; this bounds memory and time."""


@dataclass(slots=True)
class Tally:
    """The samples of one position."""

    values: list[float] = field(default_factory=list)  # response times of batches that were finished
    bounds: list[float] = field(default_factory=list)  # lower bounds of those of cancelled batches
    lost: int = 0  # samples that never reported

    def add(self, value: float, bound: bool) -> None:
        """Add a response time, or a lower bound of one."""
        (self.bounds if bound else self.values).append(value)

    @property
    def known(self) -> int:
        """Number of samples with a value or a bound."""
        return len(self.values) + len(self.bounds)

    @property
    def count(self) -> int:
        """Number of samples that have reported or are lost."""
        return self.known + self.lost

    def samples(self, least: float = 0.0) -> Samples:
        """Return statistics of values and bounds together; a bound below `least` counts as `least`."""
        together = Samples()
        for value in (*self.values, *(max(bound, least) for bound in self.bounds)):
            together.add(value)
        return together


def compared(tallies: Mapping[Plan, Tally], centre: Plan) -> dict[Plan, float]:
    """Return the means to compare around a position, without positions that have no value.

    The bounds of `centre` count unchanged. Those of other positions count as no less than its mean: a
    position is not better because its batches were cancelled soon.
    """
    least = tallies[centre].samples().mean if tallies[centre].known else 0.0
    return {p: tally.samples(least).mean for p, tally in tallies.items() if tally.known}


def smallest(tallies: Mapping[Plan, Tally], centre: Plan) -> Plan:
    """Return the position with the smallest mean, the first of equal ones; `centre` if nothing is known.

    Positions other than `centre` without any finished batch are left out.
    """
    means = compared(tallies, centre)
    proven = {p: mean for p, mean in means.items() if p == centre or tallies[p].values}
    return min(proven, key=proven.__getitem__, default=centre)


class UnderWay:
    """The positions of the samples under way, by their serial numbers, which only rise."""

    def __init__(self) -> None:
        self._positions: dict[int, Plan] = {}
        self._later: dict[int, int] = {}  # the number of later samples that were reported

    def add(self, serial: int, position: Plan) -> None:
        """Add a sample that begins."""
        self._positions[serial] = position
        self._later[serial] = 0

    def take(self, serial: int) -> Plan | None:
        """Remove a sample that reports, and return its position; None if it is not under way."""
        if serial not in self._positions:
            return None
        del self._later[serial]
        for earlier in self._later:  # in the order of their serial numbers
            if earlier > serial:
                break
            self._later[earlier] += 1
        return self._positions.pop(serial)

    def drop(self, serial: int) -> None:
        """Forget a sample, as if it had never begun."""
        self._positions.pop(serial, None)
        self._later.pop(serial, None)

    def lost(self, room: int = 0) -> list[Plan]:
        """Remove the lost samples, and the oldest beyond `MOST` - `room`; return their positions."""
        if not self._later:
            return []
        serials = [serial for serial, later in self._later.items() if later >= LATER]
        serials += list(self._later)[: max(0, len(self._later) + room - MOST)]
        found = dict.fromkeys(serials)
        for serial in found:
            del self._later[serial]
        return [self._positions.pop(serial) for serial in found]


class LoopResult(NamedTuple):
    """The result of a loop."""

    step: int | None  # to the best neighbour that is better than the position; None if there is none
    early: bool  # whether it ended before all had their samples
    anomaly: bool  # whether both neighbours along an axis had smaller means, and the search leaves


class Loop:
    """The samples of a position, `centre`, and of its neighbours by step (see `PlanSpace`).

    `order` draws the order within each round; None for the order of `steps`, after `centre`.
    """

    def __init__(
        self, centre: Plan, steps: Mapping[int, Plan], rule: Rule, order: random.Random | None
    ) -> None:
        self.tallies = {position: Tally() for position in (centre, *steps.values())}
        self._centre = centre
        self._steps = steps
        self._rule = rule
        self._order = order
        self._open = dict(steps)  # neighbours not yet shown to be no better
        self._sampled = [centre, *steps.values()]
        self._round: list[Plan] = []  # the rest of the round, the next position last
        self._look = rule.early_stop.minimum if rule.early_stop else rule.rounds

    def next(self) -> Plan:
        """Return the position of the next sample."""
        while True:
            if not self._round:
                self._round = self._sampled[::-1]
                if self._order is not None:
                    self._order.shuffle(self._round)
            position = self._round.pop()
            if position in self._sampled:
                return position

    def verdict(self) -> LoopResult | None:
        """Return the result of the loop with the samples so far, or None if it goes on."""
        fewest = min([self.tallies[p].count for p in self._sampled])
        if fewest >= self._rule.rounds:
            return self._verdict(self._better(), early=False)
        if self._rule.early_stop is None or fewest < self._look:
            return None
        better = self._race(self._rule.early_stop)
        if better or not self._open:
            return self._verdict(better, early=True)
        return self.verdict()  # the other positions may have all their samples

    def _better(self) -> list[int]:
        """Return the steps to the neighbours that are better, by their means."""
        means = compared(self.tallies, self._centre)
        if self._centre not in means:
            known = [step for step, p in self._open.items() if p in means]
            return [step for step in known if self._finished(step)] or known
        own = means[self._centre]
        return [
            step
            for step, p in self._open.items()
            if self._finished(step) and not self._rule.content(own, means[p])
        ]

    def _race(self, test: EarlyStop) -> list[int]:
        """Test each open neighbour once; return the steps to those that are shown to be better.

        Neighbours that the test shows to be no better are closed. A neighbour with too few values, or beside
        a position with too few, is neither.
        """
        self._look *= 2
        error = test.alpha / (test.looks(self._rule.rounds) * len(self._steps))
        factor = 1 + (self._rule.tolerance or 0.0)
        own = self.tallies[self._centre].samples()
        signs = dict.fromkeys(self._open, 0)
        for step, position in self._open.items():
            other = self.tallies[position].samples(own.mean)
            if min(own.count, other.count) >= test.minimum:
                signs[step] = test.sign(own, other, factor, error)
        self._open = {step: p for step, p in self._open.items() if signs[step] >= 0}
        self._sampled = [self._centre, *self._open.values()]
        return [step for step, sign in signs.items() if sign > 0 and self._finished(step)]

    def _finished(self, step: int) -> bool:
        return bool(self.tallies[self._steps[step]].values)

    def _verdict(self, better: list[int], early: bool) -> LoopResult:
        if not better:
            return LoopResult(None, early, False)
        means = compared(self.tallies, self._centre)
        own = means.get(self._centre, 0.0)
        below = {s for s, p in self._steps.items() if p in means and means[p] < own}
        step = min(better, key=lambda s: means[self._steps[s]])
        return LoopResult(step, early, any(-s in below for s in below))
