"""Estimates of the cost of each plan, and the choice of the batch that teaches most.

The logarithms of the costs are Gaussian, with a mean and a covariance (a Kalman filter). Their covariance has
three parts: a common part of all plans (the machine, the events, the size of the index), which is unknown
before the first batch; a part that near plans share; and a part of each plan alone.
So a batch of one plan says something of the others too. If everything gets slower alike, no plan looks
better because its last batch is older.

Time and changes of the index raise the covariance: old knowledge becomes uncertain.

**The next plan** is usually the best. Another one is worth a batch if the expected gain from its lesson, over
all later batches, is more than the expected loss: the knowledge gradient (Frazier, Powell and Dayanik 2008;
on-line: Ryzhov, Powell and Frazier 2012). With the difference D of its mean from the best one,
and the standard deviation s by which a batch would move D, this is s f(-D / s), f(z) = z Phi(z) + phi(z).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rtfilter.adaptive.plans import Plan

Floats = NDArray[np.float64]

COMMON = 1.0
"""Variance of the common part of all plans after the first batch, which is often slower than all others."""
NEAR, OWN = 0.5, 0.1
"""Standard deviations of the part that near plans share, and of a plan's own part, before any batch."""
REACH = 4.0
"""Distance over which plans are near, in levels and in factors of 4 between groups."""
OUTLIER = 3.0
"""Standard deviations from which a batch counts less, because something interrupted it, most likely."""
IN_TURN = 4
"""Most outliers in a row that count as chance; one more shows that the costs of all plans have changed."""
ALARMED = 0.5
"""Variance that is added when the response has changed, as a share of the uncertainty at first."""


class Beliefs:
    """Beliefs of the costs of some plans for batches of a size; `mean` are the expected costs' logarithms."""

    def __init__(self, plans: Sequence[Plan], mean: Sequence[float], size: int) -> None:
        self.plans = list(plans)
        self.column = {plan: at for at, plan in enumerate(self.plans)}
        self.mean: Floats = np.array(mean, float)
        at = np.array([(plan.level, math.log(plan.group or size, 4)) for plan in plans])
        apart = np.abs(at[:, np.newaxis] - at).sum(axis=2)
        alone = np.array([plan.group is None for plan in plans])
        apart += alone[:, np.newaxis] != alone
        self._relative: Floats = NEAR**2 * np.exp(-apart / REACH) + OWN**2 * np.eye(len(plans))
        self.covariance: Floats = self._relative.copy()
        self._known = False
        self._outliers = 0

    @property
    def best(self) -> int:
        """Place of the plan that is thought best."""
        return int(self.mean.argmin())

    def forget(self, common: float, relative: float) -> None:
        """Add variance: `common` to all plans alike, `relative` as a share of the uncertainty at first."""
        self.covariance += relative * self._relative
        self.covariance += common

    def observe(self, at: int, value: float, variance: float) -> None:
        """Take a logarithm of a cost with its variance."""
        column = self.covariance[:, at].copy()
        if not self._known:
            # The common part of all plans was unknown: the limit of an infinite variance.
            self._known = True
            self.mean += value - self.mean[at]
            self.covariance += variance + COMMON + column[at] - column - column[:, np.newaxis]
            return
        off = value - self.mean[at]
        beyond = off * off / ((column[at] + variance) * OUTLIER**2)
        self._outliers = self._outliers + 1 if beyond > 1 else 0
        if self._outliers > IN_TURN:  # all plans have another level now
            self._outliers = 0
            self.forget(off * off, ALARMED)
            column = self.covariance[:, at].copy()
        elif beyond > 1:
            variance *= beyond
        gain = column / (column[at] + variance)
        self.mean += gain * off
        self.covariance -= np.outer(gain, column)

    def unsure(self, best: int) -> Floats:
        """Return the variance of the difference of each plan from the best one, float64 (plans,)."""
        row = self.covariance[best]
        found: Floats = self.covariance.diagonal() + row[best] - 2 * row
        return found

    def lessons(self, best: int, variance: float) -> Floats:
        """Return the knowledge gradient of each plan: how much a batch of it would teach.

        A batch of the best plan is worth as much as its most informative comparison with another plan.
        """
        loss = np.maximum(self.mean - self.mean[best], 0.0)
        own, row = self.covariance.diagonal(), self.covariance[best]
        lesson = _gradient(loss, np.abs(own - row) / np.sqrt(own + variance))
        lesson[best] = _gradient(loss, np.abs(row[best] - row) / math.sqrt(row[best] + variance)).max()
        return lesson


def _gradient(loss: Floats, spread: Floats) -> Floats:
    """Return s f(-D / s) for losses D >= 0 and spreads s, to 2 %; 0 where the spread is 0."""
    z = loss / (spread + 1e-12)
    return spread * 0.3989 * np.exp(-0.5 * z * z) / (1 + z * (1.08 + z * (0.75 + 0.021 * z)))
