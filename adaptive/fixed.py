"""The controller that uses one plan for all batches."""

from typing import Any

from rtfilter.adaptive.plans import Plan, Report, Shape, Sink, Ticket
from rtfilter.adaptive.recording import (
    Recorder,
    checked,
    plan_fields,
    positive,
    report_fields,
    require_report,
    ticket_fields,
)
from rtfilter.adaptive.recording import count as counted
from rtfilter.adaptive.sizes import powers_of_two


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
        """Log the report, and ignore it."""
        require_report(report)
        self._record("report", **ticket_fields(ticket), **report_fields(report), used=False)

    def drop(self, ticket: Ticket) -> None:
        """Log the call, and ignore it."""
        self._record("drop", **ticket_fields(ticket))

    def on_update(self, count: int = 1) -> None:
        """Check and log the update, and ignore it."""
        self._record("update", count=counted(count))

    def snapshot(self) -> dict[str, Any]:
        """See :meth:`Controller.snapshot`."""
        return {"controller": "FixedPlan", **plan_fields(self._plan), "stale_reports": 0, "classes": {}}
