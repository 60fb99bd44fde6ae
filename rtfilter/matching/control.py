"""A controller that several threads may ask: controllers themselves know no locks."""

from __future__ import annotations

import threading
from typing import Any

from rtfilter.adaptive import Controller, Ticket

METHODS = ("plan", "report", "on_update", "snapshot")


class Control:
    """A controller behind a lock.

    Attributes
    ----------
    controller : Controller
        May be replaced between batches.
    """

    def __init__(self, controller: Controller) -> None:
        for method in METHODS:
            if not callable(getattr(controller, method, None)):
                raise TypeError(
                    "a controller has the methods of those in `rtfilter.adaptive`; "
                    f"{controller!r} has no {method}"
                )
        self.controller = controller
        self._lock = threading.Lock()

    def plan(self, size: int, height: int) -> Ticket:
        """The plan for a batch of `size` > 0 events."""
        with self._lock:
            return self.controller.plan(size, height)

    def report(self, ticket: Ticket, mean_response: float) -> None:
        """Tell the mean response time of a batch that is done, in seconds."""
        with self._lock:
            self.controller.report(ticket, mean_response)

    def on_update(self, count: int) -> None:
        """Tell that so many boxes came or went."""
        with self._lock:
            self.controller.on_update(count)

    def snapshot(self) -> dict[str, Any]:
        """The state of the controller, JSON-able."""
        with self._lock:
            return self.controller.snapshot()
