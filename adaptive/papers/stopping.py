"""The rule of a search, and a sequential test that may end a loop of comparisons early.

The paper (Wang et al.) takes N samples of each level in every case. But if one level is far better than
another, a few samples show it, and the other batches of the loop run at a level that is known to be worse.

**The race.** At each look the test compares each neighbour with the current position. The next rounds leave
out a neighbour that is shown to be no better. The search moves at once to a neighbour that is shown to be
better. The loop ends when all neighbours are shown to be no better. If no look tells two positions apart,
the means of N samples decide, as in the paper.

**The test** is Welch's t-test, because variances differ (a slower level scatters more), and numbers of
samples may differ (batches run at the same time).

**Repeated looks.** A test at 5 % after every batch would find a difference between equal positions sooner or
later. So the test looks only when each position still sampled has `minimum`, 2 `minimum`, 4 `minimum`, ...
samples (below N), each time at the level alpha / (looks x neighbours). By the union bound, a loop then ends
by any wrong verdict with probability at most alpha. There are few looks, 3 for minimum 8 and N = 64, so the
bound loses little. A likelihood-ratio test (SPRT) could look after every batch, but it needs the variance of
the noise and the smallest difference that matters, which are unknown for a new workload.

**Savings**, simulated with 50 % log-normal noise, N = 64 and the defaults below: a tenth of the batches in a
flat valley of levels, and two thirds of them in a steep one, where the settled plan is as good.
"""

import math
import operator
from dataclasses import dataclass


@dataclass(slots=True)
class Samples:
    """Count, mean and sum of squared deviations of numbers that arrive singly (Welford's method)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Add one number."""
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self.squares += delta * (value - self.mean)

    @property
    def variance_of_mean(self) -> float:
        """Estimated variance of the mean; infinite for fewer than 2 numbers."""
        return self.squares / (self.count - 1) / self.count if self.count > 1 else math.inf


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """Welch's t-test, repeated at a few looks; the module explains why.

    Parameters
    ----------
    minimum : int
        Samples of each position before the first look, at least 2. Response times are skewed, so with fewer
        than about 8 samples the test is wrong more often than `alpha` says.
    alpha : float
        Bound of the probability that a loop ends by a wrong verdict; between 0 and 0.5. Wrong verdicts are
        about neighbours that differ little, so they cost little.
    """

    minimum: int = 8
    alpha: float = 0.1

    def __post_init__(self) -> None:
        if self.minimum < 2:
            raise ValueError(f"minimum must be at least 2 samples, for a variance; got {self.minimum}")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha is an error probability in (0, 0.5); got {self.alpha}")

    def looks(self, rounds: int) -> int:
        """Return the number of looks before each position has `rounds` samples."""
        count, at = 0, self.minimum
        while at < rounds:
            count, at = count + 1, 2 * at
        return count

    def sign(self, first: Samples, second: Samples, factor: float, alpha: float) -> int:
        """Compare mean(first) with factor x mean(second).

        Returns +1 if it is larger, -1 if it is smaller, each with an error of at most `alpha`; 0 if neither
        is shown.
        """
        difference = first.mean - factor * second.mean
        own, other = first.variance_of_mean, factor * factor * second.variance_of_mean
        variance = own + other
        direction = (difference > 0) - (difference < 0)
        if variance == 0:
            return direction  # without noise the means are exact
        share = own / variance
        freedom = 1 / (share**2 / (first.count - 1) + (1 - share) ** 2 / (second.count - 1))
        error = lower_tail(freedom, -abs(difference) / variance**0.5)
        return direction if error <= alpha else 0


@dataclass(frozen=True, slots=True)
class Rule:
    """The conditions under which a search begins and ends, and the number of its samples.

    With ``share=None``, ``drift=False`` and ``seed=None`` it is the rule of the paper (Wang et al.). For the
    parameters and errors, see `LevelController`.
    """

    rounds: int = 64
    threshold: int = 300_000
    tolerance: float | None = 0.0
    early_stop: EarlyStop | None = None
    share: float | None = 0.25
    drift: bool = True
    seed: int | None = 0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds, the samples per position, must be at least 1; got {self.rounds}")
        if self.threshold < 1:
            raise ValueError(f"threshold must be at least 1 index update; got {self.threshold}")
        if self.tolerance is not None and not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"tolerance is a share >= 0, or None for strictly smaller; got {self.tolerance}")
        if self.share is not None and not (math.isfinite(self.share) and self.share > 0):
            raise ValueError(f"share of the boxes must be above 0, or None to count none; got {self.share}")
        if self.seed is not None:
            object.__setattr__(self, "seed", operator.index(self.seed))

    def content(self, own: float, other: float) -> bool:
        """Return whether a position with mean `own` is good enough beside a neighbour with mean `other`."""
        return own < other if self.tolerance is None else own <= other * (1 + self.tolerance)

    def enough(self, updates: int, boxes: int) -> bool:
        """Return whether `updates` begin a new episode; `boxes` is 0 if it is unknown."""
        if updates >= self.threshold:
            return True
        return self.share is not None and boxes > 0 and updates >= self.share * boxes


def lower_tail(freedom: float, t: float) -> float:
    """Return the probability that a variable of Student's distribution is at most `t`.

    `freedom` are the degrees of freedom, above 0; they need not be whole.

    Notes
    -----
    Half the regularised incomplete beta function (Press et al., Numerical Recipes, 6.4), because SciPy is no
    dependency. The relative error is below 1e-8 for up to a million degrees of freedom.
    """
    square = t * t / freedom
    near, far = 1 / (1 + square), square / (1 + square)
    a, b = freedom / 2, 0.5
    # x^a (1 - x)^b / B(a, b) at x = near
    scale = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - a * math.log1p(square)
    ) * math.sqrt(far)
    if near < (a + 1) / (a + b + 2):
        tail = scale * _fraction(a, b, near) / a
    else:
        tail = 1 - scale * _fraction(b, a, far) / b
    return tail / 2 if t <= 0 else 1 - tail / 2


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""

    def large(value: float) -> float:
        return value if abs(value) > 1e-300 else 1e-300

    c, d = 1.0, 1 / large(1 - (a + b) * x / (a + 1))
    value, step, m = d, 0.0, 0
    while abs(step - 1) > 1e-15 and m < 100_000:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for part in (even, odd):
            d, c = 1 / large(1 + part * d), large(1 + part / c)
            step *= c * d
        value *= step
    return value
