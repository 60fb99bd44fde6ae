"""The samples of a position: response times, lower bounds of some, and the number of lost samples."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

P = TypeVar("P", bound=Hashable)


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
        return self.squares / (self.count - 1) / self.count if self.count > 1 else float("inf")


@dataclass(slots=True)
class Tally:
    """The samples of one position.

    Attributes
    ----------
    values : list of float
        Response times of batches that were finished.
    bounds : list of float
        Lower bounds of the response times of cancelled batches.
    lost : int
        Number of samples that never reported.
    """

    values: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    lost: int = 0

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
        for value in self.values:
            together.add(value)
        for bound in self.bounds:
            together.add(max(bound, least))
        return together


def compared(tallies: Mapping[P, Tally], centre: P) -> dict[P, float]:
    """Return the means to compare around a position, without positions that have no value.

    The bounds of `centre` count unchanged. Those of other positions count as no less than its mean: a
    position is not better because its batches were cancelled soon.
    """
    least = tallies[centre].samples().mean if tallies[centre].known else 0.0
    return {p: tally.samples(least).mean for p, tally in tallies.items() if tally.known}


def smallest(tallies: Mapping[P, Tally], centre: P) -> P:
    """Return the position with the smallest mean, the first of equal ones; `centre` if nothing is known.

    Positions other than `centre` without any finished batch are left out.
    """
    means = compared(tallies, centre)
    proven = {p: mean for p, mean in means.items() if p == centre or tallies[p].values}
    return min(proven, key=proven.__getitem__, default=centre)
