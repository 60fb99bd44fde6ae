"""The ends of a settled phase: updates of the index, a new build of it, and drift of the response.

**Updates.** A new search begins after `threshold` updates, as in the paper (Wang et al.). A small index would
never see so many. So a `share` of its boxes is enough, too.

**New build.** After a new build of the whole index, levels mean something else.

**Drift.** A two-sided cumulative sum (CUSUM; Page 1954) watches log(response / settled response). Lasting
changes add up, and noise does not: each deviation is reduced by an allowance, half the scatter of the
samples, but at least 0.1. So a change of the response by less than a tenth never alarms. The limit is 8 times
the scatter. A single batch counts at most 2 times the scatter, because a pause of the machine is no drift.
The scatter is at least 0.05. With fewer than 16 samples, the first settled batches are added to them. So they
are if the mean is not known to a quarter of the allowance, which takes 64 samples if the scatter is large.

**Hysteresis.** If the search after an alarm settles at the same position, the limit doubles, up to 8 times.
Once the position moves, the limit is the first one again.
"""

import math
from collections.abc import Iterable

from rtfilter.adaptive.drift import summed
from rtfilter.adaptive.papers.stopping import Rule, Samples
from rtfilter.adaptive.plans import Plan

FEWEST = 16
"""Fewest samples for the mean and the scatter of a position."""

SCATTER = 0.05
"""Smallest scatter, as a share of the response."""

ALLOWANCE = 0.1
"""Smallest deviation that counts, as a share of the response."""

LIMIT = 8
"""Cumulative sum that is an alarm, in units of the scatter."""

STEP = 2
"""Most that one batch adds to the cumulative sum, in units of the scatter."""

WIDEST = 8
"""Largest factor of the limit, after alarms that moved nothing."""


class SettledDrift:
    """The two-sided cumulative sum for one settled position with these samples; `factor` is of the limit."""

    def __init__(self, values: Iterable[float], factor: float = 1) -> None:
        self._factor = factor
        self._logs = Samples()
        for value in values:
            if value > 0:
                self._logs.add(math.log(value))
        self._up = self._down = 0.0
        self._measure()

    def alarm(self, value: float, bound: bool = False) -> bool:
        """Add a response, or a lower bound of one; return True if it is an alarm."""
        if value <= 0:
            return False  # below the resolution of the clock
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


class Doubt:
    """Watches the position at which one search settled; `packed` are the builds of the index so far."""

    def __init__(self, rule: Rule, packed: int) -> None:
        self._rule = rule
        self._packed = packed
        self._position: Plan | None = None
        self._boxes = 0
        self._drift: SettledDrift | None = None
        self._alarmed = False
        self._factor = 1
        self.updates = 0  # of the index since the search settled

    def settle(self, position: Plan, boxes: int, values: Iterable[float] | None) -> None:
        """Start to watch a position, with its samples, or None if no comparison is possible."""
        if position != self._position:
            self._factor = 1
        elif self._alarmed:
            self._factor = min(2 * self._factor, WIDEST)
        self._position, self._boxes, self._alarmed, self.updates = position, boxes, False, 0
        watched = self._rule.drift and values is not None
        self._drift = SettledDrift(values or (), self._factor) if watched else None

    def update(self, count: int) -> bool:
        """Count index updates; return True if they require a new search."""
        self.updates += count
        return self._rule.enough(self.updates, self._boxes)

    def rebuilt(self, packed: int) -> bool:
        """Return whether the index was built again since the last call, if the rule counts this."""
        before, self._packed = self._packed, packed
        return self._rule.share is not None and packed != before

    def drifted(self, value: float, bound: bool) -> bool:
        """Add the response of a settled batch; return True if responses have drifted."""
        self._alarmed = self._drift is not None and self._drift.alarm(value, bound)
        return self._alarmed
