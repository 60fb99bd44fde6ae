"""The ends of a settled phase: updates of the index, a new build of it, and drift of the response.

**Updates.** A new search begins after `threshold` updates, as in the paper (Wang et al.). A small index would
never see so many. So a `share` of its boxes is enough, too.

**Built anew.** Levels of an index that was built as a whole are not those of before.

**Drift.** The response itself is watched by a two-sided cumulative sum (CUSUM; Page 1954) of log(response /
what the class settled at). Changes that last add up, and noise does not: from each deviation an allowance is
taken, half the scatter of the samples, but at least 0.1. So a response that changed by less than a tenth is
never an alarm. The limit is 8 times the scatter. A single batch counts at most 2 times the scatter, because a
pause of the machine is no drift. The scatter is at least 0.05. If the samples are fewer than 16, or too few
to know their mean to a quarter of the allowance (64 where it scatters much), the first settled batches are
added to them.

**Hysteresis.** If the search after an alarm settles where it was, the alarm was no use, and the limit
doubles, up to 8 times. Once the position moves, the limit is the first one again.
"""

import math
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from rtfilter.adaptive.drift import summed
from rtfilter.adaptive.papers.rule import Rule
from rtfilter.adaptive.papers.samples import Samples

P = TypeVar("P", bound=Hashable)

FEWEST = 16
"""Fewest samples that tell what a position takes, and how much that scatters."""

SCATTER = 0.05
"""Smallest scatter, as a share of the response."""

ALLOWANCE = 0.1
"""Smallest deviation that is no noise, as a share of the response."""

LIMIT = 8
"""Cumulative sum that is an alarm, in units of the scatter."""

STEP = 2
"""Addition of one batch to the cumulative sum, at most, in units of the scatter."""

WIDEST = 8
"""Factor of the limit after alarms that were no use, at most."""


class Drift:
    """The two-sided cumulative sum for one settled position.

    Parameters
    ----------
    values : iterable of float
        Its samples.
    factor : float
        Factor of the limit.
    """

    def __init__(self, values: Iterable[float], factor: float = 1) -> None:
        self._factor = factor
        self._logs = Samples()
        for value in values:
            if value > 0:
                self._logs.add(math.log(value))
        self._up = self._down = 0.0
        self._measure()

    def alarm(self, value: float, bound: bool = False) -> bool:
        """Add a response, or a lower bound of one; whether it is an alarm."""
        if value <= 0:
            return False  # too short for the clock
        if not self._enough:
            self._logs.add(math.log(value))
            self._measure()
            return False
        deviation = math.log(value) - self._logs.mean
        most = STEP * self._scatter
        above = max(deviation, 0.0) if bound else deviation
        self._up = summed(self._up, above, self._allowance, most)
        if not bound:
            self._down = summed(self._down, -deviation, self._allowance, most)
        return max(self._up, self._down) > LIMIT * self._scatter * self._factor

    def _measure(self) -> None:
        logs = self._logs
        self._scatter = max(SCATTER, math.sqrt(logs.squares / max(1, logs.count - 1)))
        self._allowance = max(ALLOWANCE, self._scatter / 2)
        error = self._scatter / math.sqrt(max(1, logs.count))
        self._enough = logs.count >= FEWEST and error <= self._allowance / 4


class Doubt(Generic[P]):
    """Watches what one machine settled at.

    Parameters
    ----------
    rule : Rule
    packed : int
        How many times the index had been built as a whole.

    Attributes
    ----------
    updates : int
        Index updates since it settled.
    """

    def __init__(self, rule: Rule, packed: int) -> None:
        self._rule = rule
        self._packed = packed
        self._position: P | None = None
        self._boxes = 0
        self._drift: Drift | None = None
        self._alarmed = False
        self._factor = 1
        self.updates = 0

    def settle(self, position: P, boxes: int, values: Iterable[float] | None) -> None:
        """Begin to watch a position, with its samples; without any if there is nothing to compare it with."""
        if position != self._position:
            self._factor = 1
        elif self._alarmed:
            self._factor = min(2 * self._factor, WIDEST)
        self._position, self._boxes, self._alarmed, self.updates = position, boxes, False, 0
        watched = self._rule.drift and values is not None
        self._drift = Drift(values or (), self._factor) if watched else None

    def update(self, count: int) -> bool:
        """Count index updates; whether they are enough for a new search."""
        self.updates += count
        return self._rule.enough(self.updates, self._boxes)

    def rebuilt(self, packed: int) -> bool:
        """Return whether the index was built anew since the last call, if this counts."""
        before, self._packed = self._packed, packed
        return self._rule.share is not None and packed != before

    def drifted(self, value: float, bound: bool) -> bool:
        """Take the response of a settled batch; whether it has drifted."""
        self._alarmed = self._drift is not None and self._drift.alarm(value, bound)
        return self._alarmed
