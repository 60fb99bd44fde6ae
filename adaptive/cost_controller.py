"""The controller that chooses a plan from estimated costs."""

import math
import operator
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from rtfilter.adaptive.beliefs import Beliefs
from rtfilter.adaptive.controllers import RecordedController, plan_fields
from rtfilter.adaptive.cost_model import CostModel
from rtfilter.adaptive.learner import VAGUE, Learner
from rtfilter.adaptive.plans import WHOLE, Plan, Report, Shape, Sink, Ticket, plans_of
from rtfilter.adaptive.sizes import GROUPS, ladder, powers_of_two

REST, EVENTS = 8, 256
"""Batches, and events, for which the best plan is used after a decision, before the next decision."""
LATE, MOST_LATE = 256, 16384
"""Batches after which a batch without a report counts as lost. If its report comes after all, the number
doubles, up to the second one."""
ELSEWHERE = 0.1
"""Mean logarithm of sizes from which plans are judged by batches of another size."""
CHANGED, PACKED = 0.1, 0.5
"""Doubt when all boxes of the index have changed, and when it was packed again: variance, as a share of the
uncertainty at first."""


class CostController(RecordedController):
    """Runs each batch by the plan with the lowest expected cost, or by a plan from which much can be learnt.

    Each class of batch sizes (powers of two) has its :class:`~rtfilter.adaptive.beliefs.Beliefs` of the cost
    of each plan: of all levels and groups, and of the whole batch at once. They begin with the costs of a
    :class:`~rtfilter.adaptive.cost_model.CostModel`, and with the knowledge of the nearest class. Reports
    change them, those of settled batches too. Another plan than the best one runs if the expected knowledge
    from a batch of it is worth more than the expected loss. So almost no batch is lost where the best plan
    is certain.

    Beliefs get less certain with each batch, with the share of the index that has changed, when it is packed
    again, and when responses drift (a sequential test, CUSUM). A cancelled batch counts with the groups that
    it finished; a batch that never reports counts as slower than expected.

    Parameters
    ----------
    horizon : float
        Number of batches, above 0, that profit from knowing the best plan. A larger number tries more plans.
    groups : sequence of int
        Group sizes, at least 1 and strictly increasing. A class of batch sizes uses those below its smallest
        size.
    seed : int
        Seed of the random moments of decisions, so that no pattern of batches can alias with them.
    log : callable, optional
        See :class:`Controller`.
    """

    def __init__(
        self,
        *,
        horizon: float = 1000.0,
        groups: Sequence[int] = GROUPS,
        seed: int = 0,
        log: Sink | None = None,
    ) -> None:
        super().__init__(log)
        if not (math.isfinite(horizon) and horizon > 0):
            raise ValueError(f"horizon is a number of batches above 0; got {horizon}")
        self._groups = ladder(groups)
        self._horizon = float(horizon)
        self._random = random.Random(operator.index(seed))
        self._model = CostModel()
        self._classes: dict[tuple[int, int], Learner] = {}  # by label and height
        self._shown: dict[int, Learner] = {}  # the last one used, by label
        self._under_way: dict[int, tuple[Ticket, Learner, int]] = {}
        self._overdue: dict[int, tuple[Ticket, Learner, int]] = {}
        self._late = LATE
        self._serial = self._boxes = 0
        self._stale = self._lost = 0

    def _ticket(self, size: int, shape: Shape) -> Ticket:
        self._boxes = shape.boxes
        if size == 1:
            return Ticket(Plan(0, 1), 1)
        label = powers_of_two(size)
        state = self._classes.get((label, shape.height)) or self._begin(label, size, shape)
        self._shown[label] = state
        if state.packed != shape.packed:
            state.packed = shape.packed
            state.pack(PACKED)
        at = self._next(state) if state.decided is None else state.decided
        state.decided = None
        self._serial += 1
        ticket = Ticket(state.beliefs.plans[at], label, int(at != state.best), self._serial)
        self._under_way[self._serial] = ticket, state, at
        state.under_way[at] += 1
        oldest = next(iter(self._under_way))
        if oldest <= self._serial - self._late:
            self._lose(oldest)
        return ticket

    def _forget(self, ticket: Ticket) -> None:
        self._take(ticket)

    def _update(self, count: int) -> None:
        if self._boxes:  # without boxes, the share of the index is unknown
            doubt = CHANGED * min(count / self._boxes, 1.0)
            for state in self._classes.values():
                state.change(count, doubt)

    def snapshot(self) -> dict[str, Any]:
        """Return the parameters, the costs of the model in the unit of the reports, and the classes.

        ``classes`` holds the state of each class of batch sizes, by its label as text, on the height of its
        last batch. There ``mode`` is "UNSTABLE" while the last decision was to try another plan. ``moves``
        counts changes of the best plan, ``transitions`` those of the mode, ``tries`` batches by other plans,
        ``alarms`` the drifts of responses; ``regret`` is the estimated share of the response that tries
        have cost.
        """
        return {
            "controller": "CostController",
            "horizon": self._horizon,
            "costs": self._model.state(),
            "stale_reports": self._stale,
            "lost_batches": self._lost,
            "classes": {str(label): state.fields() for label, state in self._shown.items()},
        }

    def _learn(self, ticket: Ticket, report: Report) -> bool:
        """Use a report for learning; return False if its batch is unknown or was reported before."""
        known = self._take(ticket)
        if known is None:
            self._stale += ticket.serial > 0
            return False
        state, at = known
        value = self._value(state, at, report)
        if report.unfinished < report.size:
            state.hopeless[at] = False
        elif value > float(state.beliefs.mean[at]) - 2 * math.sqrt(state.noise):
            state.hopeless[at] = True
        state.learn(at, value, report.size, not report.unfinished)
        if at != state.best or state.left == 0:
            self._model.fit(state.beliefs.plans[at], report)
        if state.left == 0 and state.decided is None:
            state.decided = self._next(state)  # decided here, so that no batch waits for it
        return True

    def _take(self, ticket: Ticket) -> tuple[Learner, int] | None:
        """Remove a batch from those under way; return its class and its plan's place, or None."""
        known = self._under_way.get(ticket.serial) or self._overdue.get(ticket.serial)
        if known is None or known[0] != ticket:
            return None
        _, state, at = known
        if self._under_way.pop(ticket.serial, None) is not None:
            state.under_way[at] -= 1
        else:
            del self._overdue[ticket.serial]
            self._late = min(2 * self._late, MOST_LATE)  # more batches run at a time than `_late` allowed
        return state, at

    def _next(self, state: Learner) -> int:
        """Return the place of the plan of the next batch, and note a change of the best plan for the log."""
        if state.left > 0:
            state.left -= 1
            return state.best
        if abs(state.off) > ELSEWHERE:
            self._move(state)
        trying = state.decide(self._horizon)
        if state.moved is not None:
            state.rest = 1
            self._decisions.append(
                {
                    "kind": "decision",
                    "size_class": state.label,
                    **plan_fields(state.beliefs.plans[state.best]),
                    "from_level": state.moved.level,
                    "from_group": state.moved.group,
                }
            )
        if trying is not None:
            state.rest = 1
            return trying
        state.left = self._random.randrange(state.rest) + state.rest // 2
        state.rest = min(2 * state.rest, max(REST, EVENTS // state.label))
        return state.best

    def _move(self, state: Learner) -> None:
        """Estimate the cost of plans for batches as large as the last ones."""
        size = state.size * math.exp(state.off)
        response = self._model.response
        grown = [math.log(response(plan, size) / response(plan, state.size)) for plan in state.beliefs.plans]
        state.move(size, np.array(grown))

    def _begin(self, label: int, size: int, shape: Shape) -> Learner:
        """Create a class with the costs of the model, and with the model's error for the nearest class."""
        plans = plans_of(label, shape.height, self._groups)
        mean = [math.log(self._model.response(plan, size)) for plan in plans]
        state = Learner(label, size, shape.packed, Beliefs(plans, mean, label))
        if self._classes:
            near = min(
                self._classes, key=lambda key: (abs(math.log2(key[0] / label)), abs(key[1] - shape.height))
            )
            self._take_over(state, self._classes[near], near[1])
        self._classes[label, shape.height] = state
        return state

    def _take_over(self, state: Learner, other: Learner, height: int) -> None:
        state.expect(other.noise)
        for at, plan in enumerate(state.beliefs.plans):
            near = WHOLE
            if plan.group is not None:
                smaller = [group for group in self._groups if group <= plan.group and group < other.label]
                near = Plan(min(plan.level, height - 1), smaller[-1]) if smaller else WHOLE
            place = other.beliefs.column[near]
            expected = math.log(self._model.response(near, other.size))
            state.beliefs.mean[at] += other.beliefs.mean[place] - expected
        state.best = state.beliefs.best

    def _value(self, state: Learner, at: int, report: Report) -> float:
        """Return the logarithm of the mean response, as if the batch had the size of the class."""
        plan, response = state.beliefs.plans[at], report.mean_response
        finished = report.size - report.unfinished
        if report.unfinished and finished and report.elapsed > report.estimation:
            # unfinished events count as if they took as long as the finished ones
            each = (report.elapsed - report.estimation) / finished
            group = report.size if plan.group is None else plan.group
            response = max(response, report.estimation + each * (report.size + group) / 2)
        value = math.log(max(response, 1e-300))
        if report.size != state.size:
            value += math.log(
                self._model.response(plan, state.size) / self._model.response(plan, report.size)
            )
        return value

    def _lose(self, serial: int) -> None:
        """Count a batch that has not reported for long as slower than expected.

        It counts at most as slow as the slowest plan: if no batch reports, nothing is known.
        """
        known = self._overdue[serial] = self._under_way.pop(serial)
        _, state, at = known
        state.under_way[at] -= 1
        mean = state.beliefs.mean
        slow = min(float(mean[at]) + 2 * math.sqrt(state.noise / VAGUE), float(mean.max()))
        state.learn(at, slow, state.size, False)
        self._lost += 1
        if len(self._overdue) > MOST_LATE:
            del self._overdue[next(iter(self._overdue))]
