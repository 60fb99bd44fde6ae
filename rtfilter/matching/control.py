"""A lock around a controller, for several threads: controllers have no locks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from rtfilter.adaptive import Controller, Report, Shape, Ticket
from rtfilter.basics.options import Named
from rtfilter.matching.gate import Gate

_MAKING = threading.RLock()
METHODS = ("plan", "report", "drop", "on_update", "snapshot")


class Control:
    """A controller that one thread at a time calls; it may be replaced between batches.

    `updates` counts the boxes that were added or removed before; `named` is the name or mapping that was
    passed, if any.
    """

    def __init__(self, controller: Controller | Named | None = None, updates: int = 0) -> None:
        self.named: Named | None = None
        self._controller: Controller | None = None
        if controller is not None:
            self.controller = controller
        self._updates = updates
        self._turns = Gate()

    @property
    def controller(self) -> Controller:
        """The controller; without one, the first access makes a `CostController`."""
        if self._controller is not None:
            return self._controller
        from rtfilter.adaptive import CostController

        with _MAKING:  # so that two threads get the same controller
            if self._controller is None:
                self._controller = CostController()
            return self._controller

    @controller.setter
    def controller(self, controller: Controller | Named) -> None:
        named: Named | None = None
        if isinstance(controller, str | Mapping):
            from rtfilter.adaptive import make_controller

            named, controller = controller, make_controller(controller)
        for method in METHODS:
            if not callable(getattr(controller, method, None)):
                raise TypeError(
                    "a controller is a name, or an object with the methods of those in `rtfilter.adaptive`; "
                    f"{controller!r} has no {method}"
                )
        with _MAKING:
            self._controller, self.named = controller, named

    def plan(self, size: int, shape: Shape, updates: int) -> Ticket:
        """Return the plan for a batch of `size` > 0 events.

        `updates` counts the boxes added and removed so far.
        """
        with self._turns.writing():
            self._tell(updates)
            return self.controller.plan(size, shape)

    def report(self, ticket: Ticket, report: Report) -> None:
        """Report the times of a batch, in seconds."""
        with self._turns.writing():
            self.controller.report(ticket, report)

    def drop(self, ticket: Ticket) -> None:
        """Report that a batch gives no information about its plan."""
        with self._turns.writing():
            self.controller.drop(ticket)

    def snapshot(self, updates: int) -> dict[str, Any]:
        """Return the state of the controller, JSON-able."""
        with self._turns.writing():
            self._tell(updates)
            return self.controller.snapshot()

    def _tell(self, updates: int) -> None:
        """Report the boxes added and removed since the last report.

        An error of the controller then ends the plan of a batch, and never a change.
        """
        count = updates - self._updates
        if count > 0:  # else another thread has reported these
            self._updates = updates
            self.controller.on_update(count)
