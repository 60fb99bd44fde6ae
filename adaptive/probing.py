"""The probing state machine of W-5, over any space of positions.

A position is what is tuned: a level, or a level and a group size. One machine serves one class of batch
sizes and is in one of two modes:

* **STABLE**: every batch runs at the current position and index updates are counted; `threshold` of them
  begin a new *episode*.
* **UNSTABLE**: successive batches run round robin at the current position c and its neighbours. When each
  has `rounds` samples (a *loop*), or a test has seen enough (:mod:`adaptive.stopping`), the machine either
  settles, or moves one step to the best neighbour and starts the next loop.

What the paper leaves open is decided so:

* ties: the walk ends if c's mean is <= (1 + tolerance) x every neighbour's; tolerance None is the paper's
  strict "<", which walks on when equal;
* where it settles then: at the smallest mean of the loop. A neighbour better by less than the tolerance is
  not worth a loop around it, but it has been sampled, and costs nothing to use;
* every neighbour along an axis is better than c (noise; in a valley it cannot be): counted as an anomaly,
  the better one is taken;
* oscillation: the second time in one episode that a move would undo the direction of an earlier one, the
  machine settles at the position with the smallest mean over the whole episode. Between reversals the walk
  is monotone along every axis, so an episode ends after a bounded number of loops, whatever the noise;
* a lost batch never reports: the round robin passes over positions that have their samples and goes on
  handing out the others, so a loop waits for samples, never for a particular batch;
* a changed height: levels count from the root, so a new root renumbers them all and samples taken before
  describe other cuts. The position is clamped and, if UNSTABLE, the episode begins again;
* no neighbour at all (a tree of one level): STABLE at once, until there is one. Then the search begins
  afresh from the initial position, as nothing has been measured yet.
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
"""Samples under way per class; of more, the oldest are given up as lost, so that memory stays bounded."""


class Space(Protocol[P]):
    """The positions and their neighbourhood; `height` >= 1 is the current height of the index."""

    def start(self, height: int) -> P:
        """Where the first episode begins."""

    def clamp(self, position: P, height: int) -> P:
        """The nearest position that exists at this height."""

    def neighbours(self, position: P, height: int) -> dict[int, P]:
        """Neighbours by step, in probing order: -k and +k are opposite steps along axis k = 1, 2, ..."""


class Mode(StrEnum):
    """STABLE: use the position. UNSTABLE: compare it with its neighbours."""

    STABLE = "STABLE"
    UNSTABLE = "UNSTABLE"


@dataclass(frozen=True, slots=True)
class Rule:
    """When to probe, how long, and when to be content (W-5).

    Parameters
    ----------
    rounds : int
        Samples per position and loop, the paper's N; >= 1.
    threshold : int
        Index updates in STABLE mode that begin a new episode; >= 1.
    tolerance : float or None
        Walk no further while the mean is <= (1 + tolerance) x each neighbour's; None: only while strictly
        smaller.
    early_stop : EarlyStop or None
        A test that may end a loop before `rounds`; None is the paper.
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
        """Whether from a mean of `own` it is not worth walking on to a neighbour with mean `other`."""
        return own < other if self.tolerance is None else own <= other * (1 + self.tolerance)


class Outcome(StrEnum):
    """What a decision decided."""

    PROBE = "probe"  # a new episode begins
    MOVE = "move"  # a neighbour is better: next loop around it
    SETTLE = "settle"  # no neighbour is better by more than the tolerance
    OSCILLATION = "oscillation"  # second reversal: settled at the smallest mean of the episode
    ALONE = "alone"  # nothing to compare with: settled
    CLAMP = "clamp"  # the index lost levels under a settled position


class Decision(NamedTuple, Generic[P]):
    """One decision and the samples it rests on."""

    outcome: Outcome
    origin: P
    position: P
    anomaly: bool
    samples: dict[P, Samples]


class Probing(Generic[P]):
    """The state of one class of batch sizes; see the module for the rules.

    `notify` is called with every :class:`Decision`. Public attributes are counters and the current state,
    to be read only.
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
        """Position, episode and serial for the next batch; episode and serial are 0 in STABLE mode."""
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
        """Take the sample `serial` in; False if it is stale: another episode, told twice, out of the loop."""
        position = self._under_way.pop(serial, None) if episode == self.episode else None
        if position is None or position not in self._samples:
            self.stale_reports += 1
            return False
        self._samples[position].add(value)
        self._pooled.setdefault(position, Samples()).add(value)
        self._conclude()
        return True

    def update(self, count: int) -> None:
        """Count index updates; only STABLE mode does."""
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
        """Next in turn that lacks samples; there is one, else the loop would have ended."""
        wanted = (self.position, *self._open.values())
        return next(p for p in self._turns if p in wanted and self._samples[p].count < self._rule.rounds)

    def _conclude(self) -> None:
        """End the loop if its samples allow it."""
        fewest = min(self._samples[p].count for p in (self.position, *self._open.values()))
        early = fewest < self._rule.rounds
        if not early:
            own = self._samples[self.position].mean
            better = [s for s, p in self._open.items() if not self._rule.content(own, self._samples[p].mean)]
        elif self._rule.early_stop is not None and fewest >= self._look:
            better = self._race(self._rule.early_stop)
            if self._open and not better:
                return self._conclude()  # the neighbours that remain may have more samples: all they need?
        else:
            return
        self.loops += 1
        self.early_stops += early
        if better:
            self._move(min(better, key=lambda step: self._samples[self._steps[step]].mean))
        else:
            self._settle(Outcome.SETTLE, _smallest(self._samples), self._samples)

    def _race(self, test: EarlyStop) -> list[int]:
        """Take one look: close the neighbours shown to be no better; the steps to those shown better."""
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
    """The position with the smallest mean, the first of equals."""
    return min(samples, key=lambda position: samples[position].mean)
