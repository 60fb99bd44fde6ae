"""The state machine that searches for the best position (Wang et al., the adaptive level).

A position is what is tuned: a level, or a level and a group size. Each class of batch sizes has a machine of
its own. A machine is in one of two modes:

* **STABLE**: every batch runs at the current position, and index updates are counted. After `threshold`
  updates a new *episode* begins.
* **UNSTABLE**: successive batches run at the current position c and at its neighbours, in turns. A *loop*
  ends when each position has `rounds` samples, or earlier by a test (:mod:`rtfilter.adaptive.stopping`). Then
  the machine either settles, or moves to the best neighbour and starts the next loop.

The paper leaves some cases open. This machine decides them so:

* Ties: the search ends if the mean of c is at most (1 + tolerance) times that of each neighbour. With
  tolerance None it ends only if c is strictly better, as in the paper, and moves on when equal.
* At the end of the search, the machine settles at the smallest mean of the last loop. A neighbour that is
  better by less than the tolerance is not worth another loop, but it has been sampled and can be used.
* If both neighbours along an axis are better than c, the machine takes the better one and counts an anomaly.
  In a valley this happens by noise only.
* Oscillation: when, for the second time in an episode, a move would undo the direction of an earlier one,
  the machine settles at the position with the smallest mean of the whole episode. Between reversals the
  machine moves in one direction along each axis. So an episode ends after a bounded number of loops.
* A batch that is lost never reports. Positions with all their samples are passed over, and the others are
  given to batches again and again. So a loop waits for samples, but never for a certain batch.
* If the height of the index changes, levels mean something else, because they count from the root. The
  position is clamped to the new height, and an episode under way starts again.
* Without any neighbour (a tree of one level) the machine is STABLE. When the tree grows, the search begins at
  the initial position, because nothing has been measured yet.
"""

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from typing import Generic, NamedTuple, Protocol, TypeVar

from rtfilter.adaptive.stopping import EarlyStop, Samples

P = TypeVar("P", bound=Hashable)

REMEMBERED = 4096
"""Largest number of samples under way per class. Beyond it the oldest count as lost; this bounds memory."""


class Space(Protocol[P]):
    """The positions and their neighbours; `height` >= 1 is the current height of the index."""

    def start(self, height: int) -> P:
        """The position at which the first episode begins."""

    def clamp(self, position: P, height: int) -> P:
        """The nearest position that exists at this height."""

    def neighbours(self, position: P, height: int) -> dict[int, P]:
        """The neighbours by step, in the order in which they are sampled.

        Steps -k and +k go in opposite directions along axis k = 1, 2, ...
        """


class Mode(StrEnum):
    """In STABLE mode the position is used, in UNSTABLE mode it is compared with its neighbours."""

    STABLE = "STABLE"
    UNSTABLE = "UNSTABLE"


@dataclass(frozen=True, slots=True)
class Rule:
    """When a search begins, how many samples it takes, and when it ends.

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

    Raises
    ------
    ValueError
        A parameter is out of its range.
    """

    rounds: int = 64
    threshold: int = 300_000
    tolerance: float | None = 0.0
    early_stop: EarlyStop | None = None

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds, the samples per position, must be at least 1; got {self.rounds}")
        if self.threshold < 1:
            raise ValueError(f"threshold must be at least 1 index update; got {self.threshold}")
        if self.tolerance is not None and not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"tolerance is a share >= 0, or None for strictly smaller; got {self.tolerance}")

    def content(self, own: float, other: float) -> bool:
        """Whether a position with mean `own` need not be left for a neighbour with mean `other`."""
        return own < other if self.tolerance is None else own <= other * (1 + self.tolerance)


class Outcome(StrEnum):
    """The result of a decision."""

    PROBE = "probe"  # a new episode begins
    MOVE = "move"  # a neighbour is better: the next loop is around it
    SETTLE = "settle"  # no neighbour is better by more than the tolerance: the search ends
    OSCILLATION = "oscillation"  # the second reversal: the smallest mean of the episode is used
    ALONE = "alone"  # there is no neighbour to compare with
    CLAMP = "clamp"  # the index has lost levels, and a settled position with them


class Decision(NamedTuple, Generic[P]):
    """A decision, and the samples that it is based on."""

    outcome: Outcome
    origin: P
    position: P
    anomaly: bool
    samples: dict[P, Samples]


class Probing(Generic[P]):
    """The state machine of one class of batch sizes; the module describes its rules.

    Public attributes are the current state and counters; they are to be read only.

    Parameters
    ----------
    space : Space
        The positions.
    rule : Rule
    height : int
        Current height of the index, at least 1.
    notify : callable
        Called with each :class:`Decision`.
    """

    def __init__(
        self, space: Space[P], rule: Rule, height: int, notify: Callable[[Decision[P]], None]
    ) -> None:
        self._space = space
        self._rule = rule
        self._height = height
        self._notify = notify
        self.mode = Mode.UNSTABLE
        self.position = space.start(height)
        self.updates = 0
        self.episode = 0
        self.loops = 0
        self.moves = 0
        self.transitions = 0
        self.anomalies = 0
        self.oscillations = 0
        self.early_stops = 0
        self.stale_reports = 0
        self._serial = 0
        self._begin_episode(self.position)

    def ask(self, height: int) -> tuple[P, int, int]:
        """Position, episode and serial number of the next batch; the last two are 0 in STABLE mode."""
        if height != self._height:
            self._resize(height)
        if self.mode is Mode.STABLE:
            return self.position, 0, 0
        position = self._next_member()
        self._serial += 1
        self._under_way[self._serial] = position
        if len(self._under_way) > REMEMBERED:
            del self._under_way[next(iter(self._under_way))]
        return position, self.episode, self._serial

    def tell(self, episode: int, serial: int, value: float) -> bool:
        """Take the response of a sample.

        Returns
        -------
        bool
            False if the sample is stale: it belongs to another episode, was reported before, or its position
            is not in the current loop.
        """
        position = self._under_way.pop(serial, None) if episode == self.episode else None
        if position is None or position not in self._samples:
            self.stale_reports += 1
            return False
        self._samples[position].add(value)
        self._pooled.setdefault(position, Samples()).add(value)
        self._conclude()
        return True

    def update(self, count: int) -> None:
        """Count index updates. They count in STABLE mode only."""
        if self.mode is Mode.STABLE:
            self.updates += count
            if self.updates >= self._rule.threshold:
                self._begin_episode(self.position)

    def _begin_episode(self, position: P) -> None:
        if self.mode is Mode.STABLE:
            self.mode = Mode.UNSTABLE
            self.transitions += 1
        self.updates = 0
        self.episode += 1
        self._reversals = 0
        self._heading: dict[int, int] = {}  # axis -> step of the last move along it
        self._pooled: dict[P, Samples] = {}
        self._under_way: dict[int, P] = {}
        self._alone = False
        self._decide(Outcome.PROBE, position, {})
        self._begin_loop()

    def _begin_loop(self) -> None:
        self._steps = self._space.neighbours(self.position, self._height)
        self._open = dict(self._steps)  # neighbours not yet shown to be worse
        self._samples = {p: Samples() for p in (self.position, *self._steps.values())}
        self._turns = cycle(self._samples)
        self._look = self._rule.early_stop.minimum if self._rule.early_stop else self._rule.rounds
        if not self._steps:
            self._alone = True
            self._settle(Outcome.ALONE, self.position, {})

    def _next_member(self) -> P:
        """The next position that lacks samples. There always is one, or the loop would have ended."""
        wanted = (self.position, *self._open.values())
        return next(p for p in self._turns if p in wanted and self._samples[p].count < self._rule.rounds)

    def _conclude(self) -> None:
        """End the loop if there are enough samples."""
        fewest = min(self._samples[p].count for p in (self.position, *self._open.values()))
        early = fewest < self._rule.rounds
        if not early:
            own = self._samples[self.position].mean
            better = [s for s, p in self._open.items() if not self._rule.content(own, self._samples[p].mean)]
        elif self._rule.early_stop is not None and fewest >= self._look:
            better = self._race(self._rule.early_stop)
            if self._open and not better:
                return self._conclude()  # the remaining positions may have all their samples
        else:
            return
        self.loops += 1
        self.early_stops += early
        if better:
            self._move(min(better, key=lambda step: self._samples[self._steps[step]].mean))
        else:
            self._settle(Outcome.SETTLE, _smallest(self._samples), self._samples)

    def _race(self, test: EarlyStop) -> list[int]:
        """Test each open neighbour once.

        Neighbours that the test shows to be no better are not sampled again. Returned are the steps to those
        that it shows to be better.
        """
        self._look *= 2
        error = test.alpha / (test.looks(self._rule.rounds) * len(self._steps))
        factor = 1 + (self._rule.tolerance or 0.0)
        own = self._samples[self.position]
        signs = {s: test.sign(own, self._samples[p], factor, error) for s, p in self._open.items()}
        self._open = {step: p for step, p in self._open.items() if signs[step] >= 0}
        return [step for step, sign in signs.items() if sign > 0]

    def _move(self, step: int) -> None:
        own = self._samples[self.position].mean
        below = {s for s, p in self._steps.items() if self._samples[p].mean < own}
        anomaly = any(-s in below for s in below)
        self.anomalies += anomaly
        axis = abs(step)
        self._reversals += self._heading.get(axis) == -step
        self._heading[axis] = step
        if self._reversals < 2:
            self._decide(Outcome.MOVE, self._steps[step], self._samples, anomaly)
            self._begin_loop()
        else:
            self.oscillations += 1
            self._settle(Outcome.OSCILLATION, _smallest(self._pooled), self._pooled, anomaly)

    def _settle(
        self, outcome: Outcome, position: P, samples: dict[P, Samples], anomaly: bool = False
    ) -> None:
        self._decide(outcome, position, samples, anomaly)
        self.mode = Mode.STABLE
        self.transitions += 1
        self._under_way.clear()

    def _decide(
        self, outcome: Outcome, position: P, samples: dict[P, Samples], anomaly: bool = False
    ) -> None:
        origin, self.position = self.position, position
        self.moves += position != origin
        self._notify(Decision(outcome, origin, position, anomaly, samples))

    def _resize(self, height: int) -> None:
        self._height = height
        position = self._space.clamp(self.position, height)
        if self._alone and self._space.neighbours(position, height):
            self._begin_episode(self._space.start(height))
        elif self.mode is Mode.UNSTABLE:
            self._begin_episode(position)
        elif position != self.position:
            self._decide(Outcome.CLAMP, position, {})


def _smallest(samples: dict[P, Samples]) -> P:
    """The position with the smallest mean; of equal ones the first."""
    return min(samples, key=lambda position: samples[position].mean)
