"""A model of the cost of a batch under a plan: a few numbers, fitted as batches end.

The work of a batch has three parts:

* the **estimate**: a fixed time, and one for each event;
* each **group**: a call, and the nodes that its events visit together;
* each **event**: what it does not share.

A batch of n events in G groups of equal time releases its events after (G + 1) / 2 of the G groups on
average, so its mean response is::

    estimate(n) + (group * G + event * n) * (G + 1) / (2 G)

The whole batch as one group has no estimate. The model knows nothing of levels, and not that large groups
share more: :mod:`rtfilter.adaptive.beliefs` learns the difference. The model gives first costs, compares
batches of different sizes, and estimates plans that never ran.
"""

from rtfilter.adaptive.plans import Plan, Report

CALL, GROUP, EVENT = 40e-6, 7e-6, 2e-6
ESTIMATE, ESTIMATED_EVENT = 80e-6, 0.15e-6
"""Seconds on the machine the model was calibrated on (``python -m experiments controllers --calibrate``).
Only their ratios matter: the speed of a machine is learnt from its first batch."""
LEAST = 1e-100
"""Times below count as 0."""
TRUST = 20.0
"""Batches that the first numbers count as."""
MEMORY = 200.0
"""Batches that are remembered, about."""


class Line:
    """A straight line y = constant + slope * x through points that arrive singly; old points fade.

    Errors count relative to the line, because a batch of 1000 events scatters more than one of 10.
    """

    def __init__(self, constant: float, slope: float) -> None:
        self.constant, self.slope = constant, slope
        self.scale(1.0)

    def scale(self, factor: float) -> None:
        """Multiply the line by `factor`, and discard the points."""
        self.constant *= factor
        self.slope *= factor
        self._sums = [0.0] * 5  # of 1, x, x x, y, x y, each divided by the line's square
        for x in (1.0, 1000.0):
            self._add(x, self.constant + self.slope * x, TRUST / 2)

    def add(self, x: float, y: float) -> None:
        """Take a point with y > 0."""
        if not y > LEAST:
            return
        self._sums = [(1 - 1 / MEMORY) * value for value in self._sums]
        self._add(x, y, 1.0)
        one, sum_x, sum_xx, sum_y, sum_xy = self._sums
        determinant = one * sum_xx - sum_x * sum_x
        if determinant > 1e-9 * one * sum_xx:
            slope = (one * sum_xy - sum_x * sum_y) / determinant
            self.slope = max(slope, 0.0)
            self.constant = max((sum_y - self.slope * sum_x) / one, 0.0)

    def _add(self, x: float, y: float, weight: float) -> None:
        weight /= max(self.constant + self.slope * x, LEAST) ** 2
        for place, value in enumerate((1.0, x, x * x, y, x * y)):
            self._sums[place] += weight * value


class CostModel:
    """The costs of estimates, groups and events; the module describes the model."""

    def __init__(self) -> None:
        self._estimate = Line(ESTIMATE, ESTIMATED_EVENT)
        self._group = Line(GROUP, EVENT)  # seconds of a group, by its events
        self._whole = Line(CALL, EVENT)
        self._scaled = False

    def response(self, plan: Plan, size: float) -> float:
        """Return the mean response of a batch of `size` events."""
        if plan.group is None or plan.group >= size:
            return self._whole.constant + self._whole.slope * size
        groups = size / plan.group
        work = groups * self._group.constant + size * self._group.slope
        return self._estimate.constant + self._estimate.slope * size + work * (groups + 1) / (2 * groups)

    def fit(self, plan: Plan, report: Report) -> None:
        """Learn from the report of a batch, if it has the parts that the model needs."""
        if report.unfinished or not report.elapsed > report.estimation or not report.mean_response > LEAST:
            return
        whole = plan.group is None or plan.group >= report.size
        if not self._scaled:
            self._scaled = True
            self._scale(report.mean_response / self.response(plan, report.size))
        if whole:
            self._whole.add(report.size, report.elapsed)
            return
        if report.estimation > 0:
            self._estimate.add(report.size, report.estimation)
        assert plan.group is not None
        self._group.add(plan.group, (report.elapsed - report.estimation) / report.groups)

    def _scale(self, factor: float) -> None:
        """Multiply all times by `factor`, which is the speed of this machine."""
        for line in (self._estimate, self._group, self._whole):
            line.scale(factor)

    def state(self) -> dict[str, float]:
        """Return the fitted times, for metrics and for people."""
        return {
            "whole_batch": self._whole.constant,
            "whole_event": self._whole.slope,
            "estimate_batch": self._estimate.constant,
            "estimate_event": self._estimate.slope,
            "group": self._group.constant,
            "event": self._group.slope,
        }
