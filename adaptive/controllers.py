"""The controllers: a fixed plan, the paper's search for the level, and the search for level and group."""

import math
import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Generic

from rtfilter.adaptive.plans import Entry, Plan, Sink, Ticket
from rtfilter.adaptive.probing import Decision, P, Probing, Rule, Space
from rtfilter.adaptive.sizes import SizeClass, powers_of_two
from rtfilter.adaptive.stopping import EarlyStop

GROUPS = (1, 4, 16, 64, 256, 1024)
"""Group sizes worth telling apart: a factor of 4 is about what the response time resolves."""


class _Recorder:
    """Checks the inputs and writes them, and the decisions they caused, to the log."""

    def __init__(self, log: Sink | None) -> None:
        self.log = log
        self._decisions: list[Entry] = []  # held back until the input that caused them is written

    def _record(self, kind: str, **fields: Any) -> None:
        if self.log is not None:
            self.log({"kind": kind, **fields})
            for entry in self._decisions:
                self.log(entry)
        self._decisions.clear()


class FixedPlan(_Recorder):
    """Always the same plan; the baseline, and the choice of people who know their workload.

    Parameters
    ----------
    level : int
        Clamped to the height of the index, at every batch.
    group : int or None
        Events per group, None for the whole batch.
    log : callable, optional
        See :class:`adaptive.Controller`.
    """

    def __init__(self, level: int, group: int | None, log: Sink | None = None) -> None:
        super().__init__(log)
        self._plan = Plan(level, group)

    def plan(self, size: int, height: int) -> Ticket:
        """See :class:`adaptive.Controller`."""
        size, height = _positive("size", size), _positive("height", height)
        ticket = Ticket(Plan(min(self._plan.level, height - 1), self._plan.group), powers_of_two(size))
        self._record("plan", size=size, height=height, **_ticket_fields(ticket))
        return ticket

    def report(self, ticket: Ticket, mean_response: float) -> None:
        """Checked, recorded and otherwise ignored."""
        value = _response(mean_response)
        self._record("report", **_ticket_fields(ticket), mean_response=value, used=False)

    def on_update(self, count: int = 1) -> None:
        """Checked, recorded and otherwise ignored."""
        self._record("update", count=_count(count))

    def snapshot(self) -> dict[str, Any]:
        """See :class:`adaptive.Controller`."""
        return {"controller": "FixedPlan", **_plan_fields(self._plan), "stale_reports": 0, "classes": {}}


class _Climber(_Recorder, Generic[P]):
    """One :class:`Probing` per class of batch sizes; subclasses say what a position is."""

    def __init__(self, rule: Rule, size_class: SizeClass, log: Sink | None) -> None:
        super().__init__(log)
        self._rule = rule
        self._size_class = size_class
        self._classes: dict[int, Probing[P]] = {}
        self._foreign_reports = 0

    def _space(self, size_class: int) -> Space[P]:
        raise NotImplementedError

    def _plan(self, position: P) -> Plan:
        raise NotImplementedError

    def plan(self, size: int, height: int) -> Ticket:
        """See :class:`adaptive.Controller`. A batch of one has no order: level 0, no class (W-2, W-5)."""
        size, height = _positive("size", size), _positive("height", height)
        if size == 1:
            ticket = Ticket(Plan(0, 1), 1)
        else:
            label = self._size_class(size)
            if not 1 <= label <= size:
                raise ValueError(f"size_class must give the smallest size of a class: {size} -> {label}")
            state = self._classes.get(label)
            if state is None:
                state = Probing(self._space(label), self._rule, height, self._notify(label))
                self._classes[label] = state
            position, episode, serial = state.ask(height)
            ticket = Ticket(self._plan(position), label, episode, serial)
        self._record("plan", size=size, height=height, **_ticket_fields(ticket))
        return ticket

    def report(self, ticket: Ticket, mean_response: float) -> None:
        """See :class:`adaptive.Controller`. Reports of batches in STABLE mode teach nothing (W-5)."""
        value = _response(mean_response)
        used = False
        if ticket.episode:
            state = self._classes.get(ticket.size_class)
            if state is None:
                self._foreign_reports += 1
            else:
                used = state.tell(ticket.episode, ticket.serial, value)
        self._record("report", **_ticket_fields(ticket), mean_response=value, used=used)

    def on_update(self, count: int = 1) -> None:
        """See :class:`adaptive.Controller`. All classes see the updates, each counts for itself (W-5)."""
        count = _count(count)
        for state in self._classes.values():
            state.update(count)
        self._record("update", count=count)

    def snapshot(self) -> dict[str, Any]:
        """The parameters, and per class of batch sizes (key: label as a string) its state and counters.

        ``moves`` counts changes of the position, ``transitions`` changes of the mode, ``anomalies`` loops
        in which both neighbours along an axis were better, ``oscillations`` and ``early_stops`` episodes
        and loops ended by that rule, ``stale_reports`` reports that came too late or twice.
        """
        stale = self._foreign_reports + sum(state.stale_reports for state in self._classes.values())
        return {
            "controller": type(self).__name__,
            "rounds": self._rule.rounds,
            "threshold": self._rule.threshold,
            "tolerance": self._rule.tolerance,
            "stale_reports": stale,
            "classes": {str(label): self._class_fields(state) for label, state in self._classes.items()},
        }

    def _class_fields(self, state: Probing[P]) -> Entry:
        return {
            **_plan_fields(self._plan(state.position)),
            "mode": state.mode.value,
            "updates": state.updates,
            "episode": state.episode,
            "loops": state.loops,
            "moves": state.moves,
            "transitions": state.transitions,
            "anomalies": state.anomalies,
            "oscillations": state.oscillations,
            "early_stops": state.early_stops,
            "stale_reports": state.stale_reports,
        }

    def _notify(self, label: int) -> Callable[[Decision[P]], None]:
        def record(decision: Decision[P]) -> None:
            if self.log is None:
                return
            origin = self._plan(decision.origin)
            self._decisions.append(
                {
                    "kind": "decision",
                    "size_class": label,
                    "outcome": decision.outcome.value,
                    **_plan_fields(self._plan(decision.position)),
                    "from_level": origin.level,
                    "from_group": origin.group,
                    "anomaly": decision.anomaly,
                    "samples": [
                        {**_plan_fields(self._plan(p)), "count": s.count, "mean": s.mean}
                        for p, s in decision.samples.items()
                    ],
                }
            )

        return record


class LevelController(_Climber[int]):
    """The paper's controller: per class of batch sizes, look for the best level (W-5).

    Parameters
    ----------
    rounds : int
        Samples per level and loop, the paper's N. A loop takes 3N batches, 2N at the root or the leaves.
    threshold : int
        Index updates after which a settled level is doubted.
    tolerance : float or None
        Walk no further from a level that is at most this share worse than its neighbours, but settle at the
        best of them; None: only if it is strictly better.
    early_stop : EarlyStop, optional
        End a loop when its samples are already significant; without it the paper's fixed N.
    group : int or None
        Events per group, never changed; 1 is the paper.
    size_class : callable
        :func:`adaptive.powers_of_two` or :func:`adaptive.exact`.
    log : callable, optional
        See :class:`adaptive.Controller`.
    """

    def __init__(
        self,
        *,
        rounds: int = 64,
        threshold: int = 300_000,
        tolerance: float | None = 0.0,
        early_stop: EarlyStop | None = None,
        group: int | None = 1,
        size_class: SizeClass = powers_of_two,
        log: Sink | None = None,
    ) -> None:
        super().__init__(Rule(rounds, threshold, tolerance, early_stop), size_class, log)
        self._group = Plan(0, group).group

    def _space(self, size_class: int) -> "_Levels":
        return _Levels()

    def _plan(self, position: int) -> Plan:
        return Plan(position, self._group)


class PlanController(_Climber[Plan]):
    """Look for level and group size together: the same search on a lattice of plans.

    A plan has up to four neighbours: one level up or down, one group size down or up. A loop takes at most
    5N batches. The search follows the better neighbour, so it finds the best plan where the response time
    is a valley in each direction; a ridge across both is only found by luck.

    The first plan is level (height - 1) // 2, in the middle, because levels near the root differ too
    little to lead away from there, and the group on the ladder nearest to 2 sqrt(n), as a ratio: with a cost
    per event of a + b / g in groups of g, all released at the end of their group, the mean response of n
    events is smallest near g = sqrt(n b / a), and one event at a time costs 3 to 10 times (a + b) as much as
    in one group (a), so sqrt(b / a) is about 2.

    Parameters
    ----------
    groups : sequence of int
        Ladder of group sizes, strictly increasing. A class of batches uses those below its smallest size,
        and above them the whole batch as one group.
    tolerance : float or None
        As in :class:`LevelController`. With four neighbours, one of several equals easily looks best: in
        simulation (N = 64, 400 seeds) 0.05 settled after 501 batches with a regret of 1.6 % under 50 % noise,
        0 after 670 with 1.3 %; under 5 % noise 0.05 after 320, 0 after 641, both with 0.1 %.
    rounds, threshold, early_stop, size_class, log
        See :class:`LevelController`.
    """

    def __init__(
        self,
        *,
        rounds: int = 64,
        threshold: int = 300_000,
        tolerance: float | None = 0.05,
        early_stop: EarlyStop | None = None,
        groups: Sequence[int] = GROUPS,
        size_class: SizeClass = powers_of_two,
        log: Sink | None = None,
    ) -> None:
        super().__init__(Rule(rounds, threshold, tolerance, early_stop), size_class, log)
        rungs = tuple(groups)
        if any(rung < 1 for rung in rungs) or any(a >= b for a, b in pairwise(rungs)):
            raise ValueError(f"groups must be a strictly increasing ladder of sizes >= 1; got {rungs}")
        self._groups = rungs

    def _space(self, size_class: int) -> "_Plans":
        return _Plans(size_class, self._groups)

    def _plan(self, position: Plan) -> Plan:
        return position


class _Levels:
    """Positions are levels; the probing order is c, c - 1, c + 1 (W-5)."""

    def start(self, height: int) -> int:
        return (height - 1) // 2

    def clamp(self, position: int, height: int) -> int:
        return min(position, height - 1)

    def neighbours(self, position: int, height: int) -> dict[int, int]:
        return {step: position + step for step in (-1, 1) if 0 <= position + step < height}


class _Plans:
    """Positions are plans: axis 1 is the level, axis 2 the rung of the ladder of groups."""

    def __init__(self, size: int, groups: Sequence[int]) -> None:
        self._size = size
        self._rungs: list[int | None] = [group for group in groups if group < size]
        self._rungs.append(None)

    def start(self, height: int) -> Plan:
        wanted = 2 * math.sqrt(self._size)
        groups = [group for group in self._rungs if group is not None]
        nearest = min(groups, key=lambda group: max(group / wanted, wanted / group), default=None)
        return Plan(_Levels().start(height), nearest)

    def clamp(self, position: Plan, height: int) -> Plan:
        return Plan(_Levels().clamp(position.level, height), position.group)

    def neighbours(self, position: Plan, height: int) -> dict[int, Plan]:
        levels = _Levels().neighbours(position.level, height)
        plans = {step: Plan(level, position.group) for step, level in levels.items()}
        rung = self._rungs.index(position.group)
        for step in (-1, 1):
            if 0 <= rung + step < len(self._rungs):
                plans[2 * step] = Plan(position.level, self._rungs[rung + step])
        return plans


def _plan_fields(plan: Plan) -> Entry:
    return {"level": plan.level, "group": plan.group}


def _ticket_fields(ticket: Ticket) -> Entry:
    return {
        **_plan_fields(ticket.plan),
        "size_class": ticket.size_class,
        "episode": ticket.episode,
        "serial": ticket.serial,
    }


def _positive(name: str, value: int) -> int:
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"the {name} must be at least 1; got {number}")
    return number


def _count(value: int) -> int:
    number = operator.index(value)
    if number < 0:
        raise ValueError(f"the number of index updates cannot be negative; got {number}")
    return number


def _response(value: float) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"a mean response time is finite and not negative; got {number}")
    return number
