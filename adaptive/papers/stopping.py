"""A sequential test that may end a loop of comparisons before each position has N samples.

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
samples (below N). Each look tests each neighbour at the level alpha / (looks x neighbours). By the union
bound, a loop then ends by any wrong verdict with probability at most alpha, even if the looks depend on each
other. This holds as far as the t-test does; that is why there is a minimum. There are few looks, 3
for minimum 8 and N = 64. So the bound loses little, and most batches need no test. A likelihood-ratio test
(SPRT) could look after every batch. But it needs the variance of the noise and the smallest difference that
matters, and these are unknown for a new workload. If lost samples leave fewer than `minimum` values, the test
shows nothing.

**Savings**, simulated with 50 % log-normal noise, N = 64, tolerance 0, the defaults below, and means of 400
seeds. "Lost" is the time lost during the search, in batches at the best plan; "regret" is the regret of the
settled plan.

=====================================  =======================  =======================
cost                                   fixed N                  early stop
                                       batches / lost / regret  batches / lost / regret
=====================================  =======================  =======================
level, flat valley (in the tests)      397 / 18 / 1.3 %         361 / 15 / 1.2 %
level, steep (next best 40 % worse)    384 / 205 / 0 %          138 / 57 / 0 %
level x group, n=256 (in the tests)    688 / 109 / 1.1 %        560 / 64 / 1.3 %
=====================================  =======================  =======================
"""

from dataclasses import dataclass

from rtfilter.adaptive.papers.samples import Samples
from rtfilter.adaptive.papers.student import lower_tail


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

    Raises
    ------
    ValueError
        A parameter is out of its range.
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

        Returns
        -------
        int
            +1 if it is larger, -1 if it is smaller, each with an error of at most `alpha`; 0 if neither is
            shown.
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
