"""Streaming of a burst, and a record of the reports to its controller."""

from __future__ import annotations

from typing import Any

from rtfilter import EventFilter
from rtfilter.adaptive import Controller, Report, Shape, Ticket
from rtfilter.events.table import EventTable


class Listener:
    """Passes calls of a filter on to a controller, and keeps the last ticket and the last report."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.log = controller.log
        self.ticket: Ticket | None = None
        self.told: Report | None = None

    @property
    def response(self) -> float:
        """Mean response of the last burst in seconds."""
        return float("nan") if self.told is None else self.told.mean_response

    @property
    def settled(self) -> bool:
        """True if the controller had settled at the last burst."""
        return self.ticket is not None and self.ticket.episode == 0

    def plan(self, size: int, shape: Shape) -> Ticket:
        """See `rtfilter.adaptive.Controller.plan`."""
        self.ticket = self._controller.plan(size, shape)
        return self.ticket

    def report(self, ticket: Ticket, report: Report) -> None:
        """See `rtfilter.adaptive.Controller.report`."""
        self.told = report
        self._controller.report(ticket, report)

    def drop(self, ticket: Ticket) -> None:
        """See `rtfilter.adaptive.Controller.drop`."""
        self._controller.drop(ticket)

    def on_update(self, count: int = 1) -> None:
        """See `rtfilter.adaptive.Controller.on_update`."""
        self._controller.on_update(count)

    def snapshot(self) -> dict[str, Any]:
        """See `rtfilter.adaptive.Controller.snapshot`."""
        return self._controller.snapshot()


def stream(filter: EventFilter, order: str, controller: Listener, events: EventTable) -> float:
    """Stream a burst to a consumer that does nothing; return its mean response in seconds."""
    filter.configure(order=order, controller=controller)
    for _ in filter.stream(events):
        pass
    return controller.response
