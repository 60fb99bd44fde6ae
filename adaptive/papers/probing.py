"""The state machine that searches for the best position (Wang et al., the adaptive level).

A position is a level, or a level and a group size. Each class of batch sizes has a machine for each height of
the index: at another height, levels mean something else. Inserts and deletes in alternation can change the
height back and forth, so a machine continues when its height returns. A machine is in one of two modes:

* **STABLE**: every batch runs at the current position, until `doubt` finds a reason to search again. Then a
  new *episode* begins.
* **UNSTABLE**: successive batches run at the current position c and at its neighbours, in rounds
  (`loop`). After a *loop* of `rounds` rounds the machine either settles, or moves to
  the best neighbour and starts the next loop.

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
* A batch that never reports counts as lost, so a loop never waits for a certain batch. A report that comes
  after its loop counts in the next one, if its position is there.
* If the index is built as a whole during a loop, the loop goes on: in rounds all positions meet the old index
  and the new one equally often. At its end a new episode begins at once, instead of settling.
* Without any neighbour (a tree of one level) the machine is STABLE.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from rtfilter.adaptive.papers.doubt import Doubt
from rtfilter.adaptive.papers.loop import Loop, Tally, UnderWay, smallest
from rtfilter.adaptive.papers.stopping import Rule
from rtfilter.adaptive.plans import Plan, Shape

KEPT = 8
"""Most heights of a class with a search; the least recently used one is removed."""


class PlanSpace:
    """The positions for batches of a size: all levels, with some group sizes in ascending order."""

    def __init__(self, size: int, groups: Sequence[int | None]) -> None:
        self._size, self._groups = size, groups

    def start(self, height: int) -> Plan:
        """Return the level in the middle, with the group size nearest to twice the root of the batch size."""
        wanted = 2 * math.sqrt(self._size)
        groups = [group for group in self._groups if group is not None]
        nearest = min(groups, key=lambda group: max(group / wanted, wanted / group), default=None)
        return Plan((height - 1) // 2, nearest)

    def clamp(self, position: Plan, height: int) -> Plan:
        """Return the nearest position that exists at this height."""
        return Plan(min(position.level, height - 1), position.group)

    def neighbours(self, position: Plan, height: int) -> dict[int, Plan]:
        """Return the neighbours by step, in the order of sampling: that of the paper (Wang et al.).

        Steps -1 and +1 go up and down by a level, -2 and +2 to the next smaller and larger group.
        """
        level, group = position.level, position.group
        plans = {step: Plan(level + step, group) for step in (-1, 1) if 0 <= level + step < height}
        place = self._groups.index(group)
        for step in (-1, 1):
            if 0 <= place + step < len(self._groups):
                plans[2 * step] = Plan(level, self._groups[place + step])
        return plans


class Mode(StrEnum):
    """In STABLE mode the position is used, in UNSTABLE mode it is compared with its neighbours."""

    STABLE = "STABLE"
    UNSTABLE = "UNSTABLE"


class ProbeOutcome(StrEnum):
    """The result of a decision."""

    PROBE = "probe"  # a new episode begins
    MOVE = "move"  # a neighbour is better: the next loop is around it
    SETTLE = "settle"  # no neighbour is better by more than the tolerance: the search ends
    OSCILLATION = "oscillation"  # the second reversal: the smallest mean of the episode is used
    ALONE = "alone"  # there is no neighbour to compare with


class Decision(NamedTuple):
    """A decision, and the samples that it is based on."""

    outcome: ProbeOutcome
    origin: Plan
    position: Plan
    anomaly: bool
    samples: dict[Plan, Tally]


@dataclass(slots=True)
class Counts:
    """The counts of all machines of a class; `episodes` and `serials` also number episodes and samples."""

    episodes: int = 0
    serials: int = 0
    loops: int = 0
    moves: int = 0
    transitions: int = 0
    anomalies: int = 0
    oscillations: int = 0
    early_stops: int = 0
    stale_reports: int = 0
    lost: int = 0


class Probing:
    """The state machine of one class of batch sizes and one height; the module describes its rules.

    It begins at the position `start`, on an index of a shape, whose height is that of all its batches. It
    calls `notify` with each :class:`Decision`, and increments `counts` of the class. `order` draws the order
    within each round; None for a fixed order. Public attributes are to be read only.
    """

    def __init__(
        self,
        space: PlanSpace,
        rule: Rule,
        shape: Shape,
        start: Plan,
        notify: Callable[[Decision], None],
        counts: Counts,
        order: random.Random | None = None,
    ) -> None:
        self._space = space
        self._rule = rule
        self._shape = shape
        self._notify = notify
        self._order = order
        self._doubt: Doubt = Doubt(rule, shape.packed)
        self._missed = 0  # index updates since the last batch
        self.counts = counts
        self.mode = Mode.UNSTABLE
        self.position = start
        self._begin_episode()

    @property
    def updates(self) -> int:
        """Index updates since the search settled; 0 in UNSTABLE mode."""
        return self._doubt.updates if self.mode is Mode.STABLE else 0

    @property
    def alone(self) -> bool:
        """True if there is nothing to compare the position with."""
        return not self._space.neighbours(self.position, self._shape.height)

    def ask(self, shape: Shape) -> tuple[Plan, int, int]:
        """Return position, episode and serial number of the next batch; the last two are 0 in STABLE mode."""
        self._shape, self._missed = shape, 0
        rebuilt = self._doubt.rebuilt(shape.packed)
        if self.mode is Mode.UNSTABLE:
            self._rebuilt |= rebuilt
            self._lose(self._under_way.lost(room=1))
        elif rebuilt:
            self._begin_episode()
        if self.mode is Mode.STABLE:
            return self.position, 0, 0
        position = self._loop.next()
        self.counts.serials += 1
        self._under_way.add(self.counts.serials, position)
        return position, self.episode, self.counts.serials

    def tell(self, serial: int, value: float, bound: bool = False) -> bool:
        """Add the response of a sample of this episode, or a lower bound of it.

        Returns False if the sample is stale: it was reported before, counts as lost, or its position is not
        in the current loop.
        """
        position = self._under_way.take(serial)
        if position is None:
            self.counts.stale_reports += 1
            return False
        used = position in self._loop.tallies
        if used:
            self._loop.tallies[position].add(value, bound)
            self._pooled.setdefault(position, Tally()).add(value, bound)
        else:
            self.counts.stale_reports += 1
        self._lose(self._under_way.lost())
        return used

    def drop(self, serial: int) -> None:
        """Remove a sample of this episode: it counts neither as reported nor as lost."""
        self._under_way.drop(serial)

    def watch(self, value: float, bound: bool = False) -> None:
        """Add the response of a batch at the settled position, or a lower bound of it."""
        if self.mode is Mode.STABLE and self._doubt.drifted(value, bound):
            self._begin_episode()

    def update(self, count: int) -> None:
        """Count index updates. In UNSTABLE mode only :meth:`resume` uses them."""
        self._missed += count
        if self.mode is Mode.STABLE and self._doubt.update(count):
            self._begin_episode()

    def resume(self) -> None:
        """Continue after batches at another height; begin a new episode if the index has changed much."""
        if self.mode is Mode.UNSTABLE and self._rule.enough(self._missed, self._shape.boxes):
            self._begin_episode()

    def _begin_episode(self) -> None:
        if self.mode is Mode.STABLE:
            self.mode = Mode.UNSTABLE
            self.counts.transitions += 1
        self.counts.episodes += 1
        self.episode = self.counts.episodes
        self._reversals = 0
        self._heading: dict[int, int] = {}  # axis -> step of the last move along it
        self._pooled: dict[Plan, Tally] = {}
        self._under_way: UnderWay = UnderWay()
        self._decide(ProbeOutcome.PROBE, self.position, {})
        self._begin_loop()

    def _begin_loop(self) -> None:
        self._steps = self._space.neighbours(self.position, self._shape.height)
        self._loop = Loop(self.position, self._steps, self._rule, self._order)
        self._pooled.setdefault(self.position, Tally())
        self._rebuilt = False  # while this loop was under way
        if not self._steps:
            self._settle(ProbeOutcome.ALONE, self.position, {})

    def _lose(self, positions: list[Plan]) -> None:
        """Count samples as lost, and end the loop if no position lacks samples."""
        self.counts.lost += len(positions)
        for position in positions:
            if position in self._loop.tallies:
                self._loop.tallies[position].lost += 1
        verdict = self._loop.verdict()
        if verdict is None:
            return
        self.counts.loops += 1
        self.counts.early_stops += verdict.early
        if verdict.step is None:
            tallies = self._loop.tallies
            self._settle(ProbeOutcome.SETTLE, smallest(tallies, self.position), tallies)
        else:
            self._move(verdict.step, verdict.anomaly)

    def _move(self, step: int, anomaly: bool) -> None:
        self.counts.anomalies += anomaly
        axis = abs(step)
        self._reversals += self._heading.get(axis) == -step
        self._heading[axis] = step
        if self._reversals < 2:
            self._decide(ProbeOutcome.MOVE, self._steps[step], self._loop.tallies, anomaly)
            self._begin_loop()
        else:
            self.counts.oscillations += 1
            best = smallest(self._pooled, self.position)
            self._settle(ProbeOutcome.OSCILLATION, best, self._pooled, anomaly)

    def _settle(
        self, outcome: ProbeOutcome, position: Plan, samples: dict[Plan, Tally], anomaly: bool = False
    ) -> None:
        self._decide(outcome, position, samples, anomaly)
        self.mode = Mode.STABLE
        self.counts.transitions += 1
        self._under_way = UnderWay()
        values = samples[position].values if samples else None
        self._doubt.settle(position, self._shape.boxes, values)
        if self._rebuilt:
            self._begin_episode()

    def _decide(
        self, outcome: ProbeOutcome, position: Plan, samples: dict[Plan, Tally], anomaly: bool = False
    ) -> None:
        origin, self.position = self.position, position
        self.counts.moves += position != origin
        self._notify(Decision(outcome, origin, position, anomaly, samples))


class Heights:
    """A :class:`Probing` per height of the index, begun when the height is first seen.

    `current` is the search at `height`, that of the last batch; `counts` are sums over all heights.
    """

    def __init__(
        self, space: PlanSpace, rule: Rule, shape: Shape, notify: Callable[[Decision], None]
    ) -> None:
        self._space = space
        self._rule = rule
        self._notify = notify
        self._order = None if rule.seed is None else random.Random(rule.seed)
        self.counts = Counts()
        self.height = shape.height
        self.current = self._begin(shape, space.start(shape.height))
        self._machines = {shape.height: self.current}  # in order of use, the last used one last

    def ask(self, shape: Shape) -> tuple[Plan, int, int]:
        """Return position, episode and serial of the next batch; the last two are 0 if it is no sample."""
        if shape.height != self.height:
            self._change(shape)
        return self.current.ask(shape)

    def tell(self, episode: int, serial: int, value: float, bound: bool) -> bool:
        """Add the response of a sample, or a lower bound of it; return False if the sample is stale."""
        for machine in self._machines.values():
            if machine.episode == episode:
                return machine.tell(serial, value, bound)
        self.counts.stale_reports += 1
        return False

    def drop(self, episode: int, serial: int) -> None:
        """Remove a sample, as if it had never begun."""
        for machine in self._machines.values():
            if machine.episode == episode:
                machine.drop(serial)

    def update(self, count: int) -> None:
        """Count index updates, at all heights."""
        for machine in self._machines.values():
            machine.update(count)

    def _change(self, shape: Shape) -> None:
        machine = self._machines.pop(shape.height, None)
        if machine is None:
            before = self.current  # without a choice, the position of `before` says nothing
            nearest = self._space.clamp(before.position, shape.height)
            machine = self._begin(shape, self._space.start(shape.height) if before.alone else nearest)
        else:
            machine.resume()
        self._machines[shape.height] = machine
        if len(self._machines) > KEPT:
            del self._machines[next(iter(self._machines))]
        self.height, self.current = shape.height, machine

    def _begin(self, shape: Shape, start: Plan) -> Probing:
        return Probing(self._space, self._rule, shape, start, self._notify, self.counts, self._order)
