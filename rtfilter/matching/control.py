"""A controller that several threads may ask: controllers themselves know no locks."""

from __future__ import annotations

import logging
from typing import Any

from rtfilter.adaptive import Controller, Ticket
from rtfilter.matching.gate import Gate

LOG = logging.getLogger("rtfilter")

METHODS = ("plan", "report", "on_update", "snapshot")


class Control:
    """A controller that is asked by one thread at a time.

    Attributes
    ----------
    controller : Controller
        May be replaced between batches.
    updates : int
        Boxes that came and went before.
    """

    def __init__(self, controller: Controller, updates: int = 0) -> None:
        for method in METHODS:
            if not callable(getattr(controller, method, None)):
                raise TypeError(
                    "a controller has the methods of those in `rtfilter.adaptive`; "
                    f"{controller!r} has no {method}"
                )
        self.controller = controller
        self._updates = updates
        self._turns = Gate()

    def plan(self, size: int, height: int) -> Ticket:
        """The plan for a batch of `size` > 0 events."""
        with self._turns.writing():
            return self.controller.plan(size, height)

    def report(self, ticket: Ticket, mean_response: float) -> None:
        """Tell the mean response time of a batch that is done, in seconds."""
        with self._turns.writing():
            self.controller.report(ticket, mean_response)

    def changed(self, updates: int) -> None:
        """Tell how many boxes came or went since the last time; `updates`: since the beginning.

        The change is made already, so an error of the controller is logged and not raised.
        """
        with self._turns.writing():
            count, self._updates = updates - self._updates, max(updates, self._updates)
            if count <= 0:  # another thread was first, and told of this change too
                return
            try:
                self.controller.on_update(count)
            except Exception:
                LOG.exception("the controller %r failed in on_update; the change was made", self.controller)

    def snapshot(self) -> dict[str, Any]:
        """The state of the controller, JSON-able."""
        with self._turns.writing():
            return self.controller.snapshot()
