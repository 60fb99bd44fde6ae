"""The controllers: a fixed plan, the search for the level (Wang et al.), and that for level and group."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Generic

from rtfilter.adaptive.plans import Entry, Plan, Report, Shape, Sink, Ticket
from rtfilter.adaptive.probing import Decision, P, Probing, Rule, Space
from rtfilter.adaptive.recording import (
    Recorder,
    checked,
    plan_fields,
    positive,
    report_fields,
    ticket_fields,
)
from rtfilter.adaptive.recording import count as counted
from rtfilter.adaptive.sizes import SizeClass, powers_of_two
from rtfilter.adaptive.stopping import EarlyStop

GROUPS = (1, 4, 16, 64, 256, 1024)
"""Default group sizes. Sizes that differ by less than a factor of 4 hardly differ in response time."""


class FixedPlan(Recorder):
    """Gives every batch the same plan.

    Parameters
    ----------
    level : int
        At least 0. An index with fewer levels gets its last level instead.
    group : int or None
        Events per group, at least 1; None for the whole batch.
    log : callable, optional
        See :class:`Controller`.

    Raises
    ------
    ValueError
        A parameter is out of its range.
    """

    def __init__(self, level: int, group: int | None, log: Sink | None = None) -> None:
        super().__init__(log)
        self._plan = Plan(level, group)

    def plan(self, size: int, shape: Shape) -> Ticket:
        """See :meth:`Controller.plan`."""
        size, shape = positive("size", size), checked(shape)
        ticket = Ticket(Plan(min(self._plan.level, shape.height - 1), self._plan.group), powers_of_two(size))
        self._record("plan", size=size, **shape._asdict(), **ticket_fields(ticket))
        return ticket

    def report(self, ticket: Ticket, report: Report) -> None:
        """Logs the report, and ignores it."""
        self._record("report", **ticket_fields(ticket), **report_fields(report), used=False)

    def on_update(self, count: int = 1) -> None:
        """Checks and logs the update, and ignores it."""
        self._record("update", count=counted(count))

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`Controller.snapshot`."""
        return {"controller": "FixedPlan", **plan_fields(self._plan), "stale_reports": 0, "classes": {}}


class _Climber(Recorder, Generic[P]):
    """One :class:`Probing` per class of batch sizes.

    Subclasses define what a position is, and the plan that belongs to it.
    """

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

    def plan(self, size: int, shape: Shape) -> Ticket:
        """See :meth:`Controller.plan`. A batch of one event gets level 0: it has no order to choose."""
        size, shape = positive("size", size), checked(shape)
        if size == 1:
            ticket = Ticket(Plan(0, 1), 1)
        else:
            label = self._size_class(size)
            if not 1 <= label <= size:
                raise ValueError(f"size_class must give the smallest size of a class: {size} -> {label}")
            state = self._classes.get(label)
            if state is None:
                state = Probing(self._space(label), self._rule, shape.height, self._notify(label))
                self._classes[label] = state
            position, episode, serial = state.ask(shape.height)
            ticket = Ticket(self._plan(position), label, episode, serial)
        self._record("plan", size=size, **shape._asdict(), **ticket_fields(ticket))
        return ticket

    def report(self, ticket: Ticket, report: Report) -> None:
        """See :meth:`Controller.report`. Reports of batches in STABLE mode are ignored, as in the paper."""
        used = False
        if ticket.episode:
            state = self._classes.get(ticket.size_class)
            if state is None:
                self._foreign_reports += 1
            else:
                used = state.tell(ticket.episode, ticket.serial, report.mean_response)
        self._record("report", **ticket_fields(ticket), **report_fields(report), used=used)

    def on_update(self, count: int = 1) -> None:
        """See :meth:`Controller.on_update`. Each class of batch sizes counts all updates for itself."""
        count = counted(count)
        for state in self._classes.values():
            state.update(count)
        self._record("update", count=count)

    def snapshot(self) -> dict[str, Any]:
        """The parameters, and in ``classes`` the state of each class of batch sizes, by its label as text.

        ``moves`` counts changes of the position and ``transitions`` changes of the mode. ``anomalies`` counts
        loops in which both neighbours along an axis were better, ``oscillations`` episodes that ended by the
        second reversal, ``early_stops`` loops that ended early, and ``stale_reports`` reports that came too
        late or twice.
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
            **plan_fields(self._plan(state.position)),
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
                    **plan_fields(self._plan(decision.position)),
                    "from_level": origin.level,
                    "from_group": origin.group,
                    "anomaly": decision.anomaly,
                    "samples": [
                        {**plan_fields(self._plan(p)), "count": s.count, "mean": s.mean}
                        for p, s in decision.samples.items()
                    ],
                }
            )

        return record


class LevelController(_Climber[int]):
    """Searches for the best level of each class of batch sizes, as in the paper (Wang et al.).

    Parameters
    ----------
    rounds : int
        Samples per level in one loop of comparisons, N in the paper; at least 1. A loop takes 3N batches, and
        2N at the root and at the leaves.
    threshold : int
        Number of index updates after which a settled level is compared again; at least 1.
    tolerance : float or None
        The search ends if the level is at most this share worse than each neighbour; it then settles at the
        best of these levels. With None it ends only if the level is strictly better than both.
    early_stop : EarlyStop, optional
        Ends a loop as soon as its samples are significant. Without it a loop always takes N samples per
        level, as in the paper.
    group : int or None
        Events per group, which never changes; None for the whole batch. The paper has 1.
    size_class : callable
        :func:`powers_of_two` or :func:`exact`: which batch sizes share a level.
    log : callable, optional
        See :class:`Controller`.

    Raises
    ------
    ValueError
        A parameter is out of its range.
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
    """Searches for the best level and group size together.

    A plan has up to four neighbours: one level up, one level down, the next smaller group and the next
    larger one. A loop takes at most 5N batches. The search moves to the best neighbour. So it finds the best
    plan if the response time is a valley along levels and along groups; it may miss a better plan that lies
    diagonally.

    The first level is (height - 1) // 2, in the middle, because levels near the root differ too little to
    show the direction. The first group is the one nearest to 2 sqrt(n), as a ratio, for these reasons: if an
    event costs a + b / g in groups of g, and is released at the end of its group, the mean response of n
    events is smallest near g = sqrt(n b / a). One event at a time costs 3 to 10 times as much per event
    (a + b) as the whole batch at once (a), so sqrt(b / a) is about 2.

    Parameters
    ----------
    groups : sequence of int
        Group sizes, at least 1 and strictly increasing. A class of batch sizes uses those below its smallest
        size, and the whole batch as the largest group.
    tolerance : float or None
        As in :class:`LevelController`. With four neighbours, one of several equal plans easily looks best,
        so a tolerance saves batches. Simulated with N = 64 and 400 seeds: under 50 % noise, 0.05 settled
        after 501 batches with a regret of 1.6 %, 0 after 670 batches with 1.3 %; under 5 % noise, 0.05
        settled after 320 batches, 0 after 641, both with a regret of 0.1 %.
    rounds, threshold, early_stop, size_class, log
        See :class:`LevelController`.

    Raises
    ------
    ValueError
        A parameter is out of its range, or `groups` does not increase strictly.
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
    """Positions are levels. They are sampled in the order c, c - 1, c + 1, as in the paper."""

    def start(self, height: int) -> int:
        return (height - 1) // 2

    def clamp(self, position: int, height: int) -> int:
        return min(position, height - 1)

    def neighbours(self, position: int, height: int) -> dict[int, int]:
        return {step: position + step for step in (-1, 1) if 0 <= position + step < height}


class _Plans:
    """Positions are plans: axis 1 is the level, axis 2 the place of the group size in the ladder."""

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
