"""The parameters of a search: how it compares, when it ends, and when a new one begins."""

import math
import operator
from dataclasses import dataclass

from rtfilter.adaptive.papers.stopping import EarlyStop


@dataclass(frozen=True, slots=True)
class Rule:
    """The conditions under which a search begins and ends, and the number of its samples.

    With ``share=None``, ``drift=False`` and ``seed=None`` it is the rule of the paper (Wang et al.).

    Parameters
    ----------
    rounds : int
        Samples per position and loop, N in the paper; at least 1.
    threshold : int
        Index updates in STABLE mode after which a new episode begins; at least 1.
    tolerance : float or None
        The search ends if the mean is at most (1 + tolerance) times that of each neighbour. With None it
        ends only if the mean is strictly smaller.
    early_stop : EarlyStop or None
        A test that may end a loop before `rounds` samples; None as in the paper.
    share : float or None
        Index updates in STABLE mode, as a share of the boxes when it settled, that also begin a new episode,
        if they are fewer than `threshold`; above 0. A new build of the whole index begins one, too. With None
        only `threshold` counts.
    drift : bool
        True if a new episode begins when the response of the settled position drifts.
    seed : int or None
        Seed of the order within each round. With None the order is always that of the paper: the position,
        the level above, the level below.

    Raises
    ------
    ValueError
        A parameter is out of its range.
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
