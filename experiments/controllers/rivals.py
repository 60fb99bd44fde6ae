"""Bandits from the literature, to compare with: each plan is an arm, and all arms are alike to them.

* `DiscountedUCB` (Garivier and Moulines 2011): optimism with means that fade. It is the usual choice when
  arms change abruptly, and its regret is bounded.
* `DiscountedThompson` (Raj and Kalyani 2017, here Gaussian): draws from what is believed of each arm. It
  needs no constant of exploration, and is seldom beaten in practice.

Both take the logarithm of the response, so that batches of a class compare, and start with no knowledge.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from typing import Any

from rtfilter.adaptive import GROUPS, Plan, Report, Shape, Sink, Ticket, plans_of, powers_of_two


class Arms:
    """Discounted counts, sums and squares of the logarithms of the responses of each plan."""

    def __init__(self, plans: list[Plan]) -> None:
        self.plans = plans
        self.count = dict.fromkeys(plans, 0.0)
        self.sum = dict.fromkeys(plans, 0.0)
        self.square = dict.fromkeys(plans, 0.0)

    def add(self, plan: Plan, value: float, discount: float) -> None:
        """Add a value, and discount all others."""
        for sums in (self.count, self.sum, self.square):
            for other in sums:
                sums[other] *= discount
        self.count[plan] += 1
        self.sum[plan] += value
        self.square[plan] += value * value

    def spread(self) -> float:
        """Return the standard deviation of a value around the mean of its arm."""
        within = sum(
            self.square[p] - self.sum[p] ** 2 / self.count[p] for p in self.plans if self.count[p] > 0
        )
        return math.sqrt(max(within / sum(self.count.values()), 1e-6))


class Bandit(ABC):
    """A controller with independent arms for each class of batch sizes and height."""

    log: Sink | None = None

    def __init__(self, discount: float = 0.99, seed: int = 0) -> None:
        self._discount, self._random = discount, random.Random(seed)
        self._arms: dict[tuple[int, int], Arms] = {}
        self._height = 1

    def plan(self, size: int, shape: Shape) -> Ticket:
        """See `rtfilter.adaptive.Controller.plan`."""
        self._height, label = shape.height, powers_of_two(size)
        arms = self._arms.get((label, shape.height))
        if arms is None:
            arms = self._arms[label, shape.height] = Arms(plans_of(label, shape.height, GROUPS))
        untried = [plan for plan in arms.plans if arms.count[plan] < 1e-3]
        return Ticket(self._random.choice(untried) if untried else self.choose(arms), label, 1, shape.height)

    @abstractmethod
    def choose(self, arms: Arms) -> Plan:
        """Return a plan; all plans have been tried."""

    def report(self, ticket: Ticket, report: Report) -> None:
        """See `rtfilter.adaptive.Controller.report`. Responses are compared by event of the batch."""
        value = math.log(report.mean_response / report.size)
        self._arms[ticket.size_class, ticket.serial].add(ticket.plan, value, self._discount)

    def drop(self, ticket: Ticket) -> None:
        """See `rtfilter.adaptive.Controller.drop`."""
        del ticket

    def on_update(self, count: int = 1) -> None:
        """Do nothing: old samples fade anyway."""
        del count

    def snapshot(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}


class DiscountedUCB(Bandit):
    """The arm with the smallest mean, less its uncertainty."""

    def choose(self, arms: Arms) -> Plan:
        """See `Bandit`."""
        total, scale = math.log(max(sum(arms.count.values()), 2.0)), 2 * arms.spread()
        return min(
            arms.plans,
            key=lambda p: arms.sum[p] / arms.count[p] - scale * math.sqrt(0.5 * total / arms.count[p]),
        )


class DiscountedThompson(Bandit):
    """The arm with the smallest of the means that are drawn."""

    def choose(self, arms: Arms) -> Plan:
        """See `Bandit`."""
        spread = arms.spread()
        return min(
            arms.plans,
            key=lambda p: self._random.gauss(arms.sum[p] / arms.count[p], spread / math.sqrt(arms.count[p])),
        )
