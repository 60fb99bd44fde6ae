"""The search for the best level (after Wang et al.), and that for level and group size together."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rtfilter.adaptive.controllers import RecordedController, plan_fields
from rtfilter.adaptive.papers.loop import compared
from rtfilter.adaptive.papers.probing import Decision, Heights, PlanSpace
from rtfilter.adaptive.papers.stopping import EarlyStop, Rule
from rtfilter.adaptive.plans import Entry, Plan, Report, Shape, Sink, Ticket
from rtfilter.adaptive.sizes import GROUPS, SizeClass, as_smallest, ladder, powers_of_two


class _Climber(RecordedController):
    """A :class:`~rtfilter.adaptive.papers.probing.Heights` for each class of batch sizes.

    Subclasses define the group sizes to search among.
    """

    def __init__(self, rule: Rule, size_class: SizeClass, log: Sink | None) -> None:
        super().__init__(log)
        self._rule = rule
        self._size_class = size_class
        self._classes: dict[int, Heights] = {}
        self._foreign_reports = 0

    @abstractmethod
    def _groups_of(self, size_class: int) -> Sequence[int | None]: ...

    def _ticket(self, size: int, shape: Shape) -> Ticket:
        if size == 1:
            return Ticket(Plan(0, 1), 1)
        label = self._size_class(size)
        if not 1 <= label <= size:
            raise ValueError(f"size_class must give the smallest size of a class: {size} -> {label}")
        state = self._classes.get(label)
        if state is None:
            state = Heights(PlanSpace(label, self._groups_of(label)), self._rule, shape, self._notify(label))
            self._classes[label] = state
        position, episode, serial = state.ask(shape)
        return Ticket(position, label, episode, serial)

    def _learn(self, ticket: Ticket, report: Report) -> bool:
        """Return whether a search uses the report; reports in STABLE mode serve only to find a drift."""
        state = self._classes.get(ticket.size_class)
        value = as_smallest(report.mean_response, report.size, ticket.size_class, ticket.plan.group)
        bound = report.unfinished > 0
        if state is None:
            self._foreign_reports += ticket.episode > 0
        elif ticket.episode:
            return state.tell(ticket.episode, ticket.serial, value, bound)
        elif ticket.plan == state.current.position:
            state.current.watch(value, bound)
        return False

    def _forget(self, ticket: Ticket) -> None:
        state = self._classes.get(ticket.size_class)
        if state is not None and ticket.episode:
            state.drop(ticket.episode, ticket.serial)

    def _update(self, count: int) -> None:
        for state in self._classes.values():
            state.update(count)

    def snapshot(self) -> dict[str, Any]:
        """Return the parameters, and the state of each class of batch sizes in ``classes``, by label as text.

        The plan, ``mode``, ``updates`` and ``episode`` are those of the search at the height of the last
        batch, and ``height`` is that height. Counters are sums over all heights: ``moves`` counts changes of
        the position by a search and ``transitions`` changes of the mode. ``anomalies`` counts loops in which
        both neighbours along an axis were better, and ``oscillations`` episodes that ended by the second
        reversal. ``early_stops`` counts loops that ended early, ``stale_reports`` reports that came too late
        or twice, and ``lost`` samples that never reported.
        """
        stale = self._foreign_reports + sum(state.counts.stale_reports for state in self._classes.values())
        rule = asdict(self._rule)
        del rule["early_stop"]
        return {
            "controller": type(self).__name__,
            **rule,
            "stale_reports": stale,
            "classes": {str(label): self._class_fields(state) for label, state in self._classes.items()},
        }

    def _class_fields(self, state: Heights) -> Entry:
        search, counts = state.current, asdict(state.counts)
        del counts["episodes"], counts["serials"]
        return {
            **plan_fields(search.position),
            "height": state.height,
            "mode": search.mode.value,
            "updates": search.updates,
            "episode": search.episode,
            **counts,
        }

    def _notify(self, label: int) -> Callable[[Decision], None]:
        def record(decision: Decision) -> None:
            if self.log is None:
                return
            origin, samples = decision.origin, decision.samples
            means = compared(samples, decision.origin) if samples else {}
            self._decisions.append(
                {
                    "kind": "decision",
                    "size_class": label,
                    "outcome": decision.outcome.value,
                    **plan_fields(decision.position),
                    "from_level": origin.level,
                    "from_group": origin.group,
                    "anomaly": decision.anomaly,
                    "samples": [
                        {
                            **plan_fields(p),
                            "count": tally.count,
                            "mean": means.get(p),
                            "given_up": len(tally.bounds),
                            "lost": tally.lost,
                        }
                        for p, tally in samples.items()
                    ],
                }
            )

        return record


class LevelController(_Climber):
    """Searches for the best level of each class of batch sizes (after Wang et al.; see `WangController`).

    Each height of the index has a search of its own, because levels count from the root; it begins at the
    level that is nearest to the one of the height before. Responses of a class are compared as if all of its
    batches had its smallest size (:func:`rtfilter.adaptive.sizes.as_smallest`).

    A cancelled batch counts as at least as slow as it was until then. The search does not wait for samples
    that never report. No level gets more than its share of the batches of a loop.

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
        Ends a loop once its samples are significant. Without it a loop always takes N samples per
        level, as in the paper.
    share : float or None
        Number of index updates, as a share of the boxes when the level settled, that also starts a new
        comparison, if it is less than `threshold`; above 0. A new build of the whole index (``shape.packed``)
        starts one, too. With None only `threshold` counts, as in the paper.
    drift : bool
        True if the level is compared again when its response drifts from what it settled at
        (:mod:`~rtfilter.adaptive.papers.doubt`). The paper has no such rule.
    seed : int or None
        Seed of the order of the levels within a round. Each round has a new order, so that sizes that come in
        a rhythm cannot favour a level. With None it never changes, as in the paper.
    group : int or None
        Events per group, which never changes; None for the whole batch. The paper has 1.
    size_class : callable
        :func:`powers_of_two` or :func:`exact`: which batch sizes share a level.
    log : callable, optional
        See :class:`Controller`.
    """

    def __init__(
        self,
        *,
        rounds: int = 64,
        threshold: int = 300_000,
        tolerance: float | None = 0.0,
        early_stop: EarlyStop | None = None,
        share: float | None = 0.25,
        drift: bool = True,
        seed: int | None = 0,
        group: int | None = 1,
        size_class: SizeClass = powers_of_two,
        log: Sink | None = None,
    ) -> None:
        super().__init__(Rule(rounds, threshold, tolerance, early_stop, share, drift, seed), size_class, log)
        self._group = Plan(0, group).group

    def _groups_of(self, size_class: int) -> Sequence[int | None]:
        return [self._group]


class PlanController(_Climber):
    """Searches for the best level and group size together.

    A plan has up to four neighbours: one level up, one level down, the next smaller group and the next
    larger one. A loop takes at most 5N batches. The search moves to the best neighbour. So it finds the best
    plan if the response time is a valley along levels and along groups; it may miss a better plan that lies
    diagonally.

    The first level is in the middle, because levels near the root differ too little to show the direction.
    The first group is the one nearest to 2 sqrt(n): if an event costs a + b / g in groups of g, the mean
    response of n events is smallest near g = sqrt(n b / a), and sqrt(b / a) is about 2.

    Parameters
    ----------
    groups : sequence of int
        Group sizes, at least 1 and strictly increasing. A class of batch sizes uses those below its smallest
        size, and the whole batch as the largest group.
    tolerance : float or None
        As in :class:`LevelController`. With four neighbours, one of several equal plans easily looks best,
        so a tolerance saves batches: simulated with N = 64, a quarter to a half of them.
    rounds, threshold, early_stop, share, drift, seed, size_class, log
        See :class:`LevelController`.
    """

    def __init__(
        self,
        *,
        rounds: int = 64,
        threshold: int = 300_000,
        tolerance: float | None = 0.05,
        early_stop: EarlyStop | None = None,
        share: float | None = 0.25,
        drift: bool = True,
        seed: int | None = 0,
        groups: Sequence[int] = GROUPS,
        size_class: SizeClass = powers_of_two,
        log: Sink | None = None,
    ) -> None:
        super().__init__(Rule(rounds, threshold, tolerance, early_stop, share, drift, seed), size_class, log)
        self._groups = ladder(groups)

    def _groups_of(self, size_class: int) -> Sequence[int | None]:
        return [*(group for group in self._groups if group < size_class), None]
