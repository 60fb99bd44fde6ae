"""A loop of comparisons: a position and its neighbours, sampled in rounds.

**Rounds.** Each position runs once in a round. Rounds follow each other until the loop ends, also while
samples have not reported. So no position gets more than its share of the batches. The rounds leave out a
neighbour once it is shown to be no better (`stopping`).

**Order.** Batch sizes may come in a rhythm, such as 96, 127, 64, 96, ... With a fixed order within a round,
each position could always meet the same size. So each round has a new random order. The paper (Wang et al.)
always has c, c - 1, c + 1; a loop without a generator does so, too.

**The end.** A loop ends when no position lacks samples, or earlier by a test. A lost sample counts as a
sample without a value. A cancelled batch gives a lower bound: see `samples.compared`. A neighbour without a
finished batch is never better, with an exception: if the position itself has no value, the best neighbour
with a value is better.
"""

import random
from collections.abc import Mapping
from typing import Generic, NamedTuple

from rtfilter.adaptive.papers.rule import Rule
from rtfilter.adaptive.papers.samples import P, Tally, compared
from rtfilter.adaptive.papers.stopping import EarlyStop


class LoopResult(NamedTuple):
    """The result of a loop.

    Attributes
    ----------
    step : int or None
        The step to the best neighbour that is better than the position; None if there is none.
    early : bool
        True if it ended before all had their samples.
    anomaly : bool
        True if both neighbours along an axis had smaller means, and the search leaves the position.
    """

    step: int | None
    early: bool
    anomaly: bool


class Loop(Generic[P]):
    """The samples of a position and its neighbours.

    Parameters
    ----------
    centre : hashable
        The position.
    steps : mapping
        Its neighbours by step; steps -k and +k go in opposite directions along axis k.
    rule : Rule
    order : random.Random or None
        Draws the order within each round; None for the order of `steps`, after `centre`.
    """

    def __init__(self, centre: P, steps: Mapping[int, P], rule: Rule, order: random.Random | None) -> None:
        self.tallies = {position: Tally() for position in (centre, *steps.values())}
        self._centre = centre
        self._steps = steps
        self._rule = rule
        self._order = order
        self._open = dict(steps)  # neighbours not yet shown to be no better
        self._sampled = [centre, *steps.values()]
        self._round: list[P] = []  # the rest of the round, the next position last
        self._look = rule.early_stop.minimum if rule.early_stop else rule.rounds

    def next(self) -> P:
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
