"""What a controller is asked, what it answers, and how a report finds its way back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

Entry = dict[str, Any]
"""One JSON-able line of a controller's log."""

Sink = Callable[[Entry], None]
"""Where the lines of a log go; ``list.append`` will do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one batch.

    Attributes
    ----------
    level : int
        Level of the index, 0 (the root) .. height - 1, down to which the whole batch shares one traversal
        that estimates the workloads (W-2).
    group : int or None
        Events per group of the search that follows: 1 releases event by event (the paper), None takes the
        whole batch as one group.
    """

    level: int
    group: int | None

    def __post_init__(self) -> None:
        if self.level < 0:
            raise ValueError(f"a level counts down from the root, 0; got {self.level}")
        if self.group is not None and self.group < 1:
            raise ValueError(
                f"a group has at least 1 event, or is None for the whole batch; got {self.group}"
            )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A plan, and what its report must carry to be recognised.

    Attributes
    ----------
    plan : Plan
    size_class : int
        Class of the batch size, see :mod:`adaptive.sizes`.
    episode : int
        Search of this class that the batch is a sample for; 0 if it is none (nothing to be learnt).
    serial : int
        Number of the sample within its class, 1, 2, ...; 0 if it is none.
    """

    plan: Plan
    size_class: int
    episode: int = 0
    serial: int = 0


class Controller(Protocol):
    """Chooses the plan of every batch from the response times of earlier ones.

    A state machine without clock, I/O or randomness: the same calls in the same order give the same plans.
    Calls are O(1) in the number of batches seen. It does not lock; a program that matches in several
    threads holds one lock around each call (not around the batch between `plan` and `report`).
    """

    log: Sink | None
    """Receives every input and decision as a JSON-able dict; see :func:`adaptive.replay`."""

    def plan(self, size: int, height: int) -> Ticket:
        """The plan for a batch of `size` >= 1 events on an index of `height` >= 1 levels.

        ``ticket.plan.level`` is in 0 .. height - 1. ``ValueError`` for a size or height below 1.
        """

    def report(self, ticket: Ticket, mean_response: float) -> None:
        """How the batch fared: the mean response time per event, in any unit, always the same one.

        Reports may come in any order, late (then they are ignored and counted as stale) or never (a batch
        that failed). ``ValueError`` if `mean_response` is NaN, infinite or negative.
        """

    def on_update(self, count: int = 1) -> None:
        """`count` >= 0 inserts and deletes were applied to the index. ``ValueError`` if negative."""

    def snapshot(self) -> dict[str, Any]:
        """The state as a JSON-able dict, for metrics and for people."""
