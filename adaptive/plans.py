"""Plans, tickets, and the interface of a controller."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

Entry = dict[str, Any]
"""One line of a controller's log, as JSON-able data."""

Sink = Callable[[Entry], None]
"""Takes the lines of a log, one a call; for example ``list.append``."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one batch.

    Attributes
    ----------
    level : int
        Level of the index, from 0 (the root) to height - 1. Down to it the whole batch shares one traversal,
        which estimates the workload of each event.
    group : int or None
        Events per group in the search that follows, at least 1. With 1 each event is released as soon as it
        is done, as in the paper (Wang et al.); None makes one group of the whole batch.

    Raises
    ------
    ValueError
        The level is negative, or the group is below 1.
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
    """A plan, and what tells its report from others.

    Attributes
    ----------
    plan : Plan
    size_class : int
        Class of the batch size, see :mod:`rtfilter.adaptive.sizes`.
    episode : int
        Number of the search, within this class, that the batch is a sample of: 1, 2, ...; 0 if the batch is
        no sample, so that its report is ignored.
    serial : int
        Number of the sample within its class: 1, 2, ...; 0 if the batch is no sample.
    """

    plan: Plan
    size_class: int
    episode: int = 0
    serial: int = 0


class Controller(Protocol):
    """Chooses the plan of each batch from the response times of earlier ones.

    The same calls in the same order give the same plans. The cost of a call does not grow with the number of
    batches. A controller has no lock: a program that matches in several threads holds one lock around each
    call, but not around the batch between `plan` and `report`.
    """

    log: Sink | None
    """Takes each input and each decision as a JSON-able dict; see :func:`rtfilter.adaptive.replay`."""

    def plan(self, size: int, height: int) -> Ticket:
        """The plan of a batch of `size` >= 1 events on an index with `height` >= 1 levels.

        ``ticket.plan.level`` is in 0..height - 1. Raises ``ValueError`` for a size or height below 1.
        """

    def report(self, ticket: Ticket, mean_response: float) -> None:
        """Take the mean response time of the batch of a ticket, in any unit, but always in the same one.

        Reports may come in any order. A late report is ignored and counted as stale; a batch that failed
        need not be reported. Raises ``ValueError`` if `mean_response` is NaN, infinite or negative.
        """

    def on_update(self, count: int = 1) -> None:
        """Take note of `count` >= 0 insertions and deletions. Raises ``ValueError`` if it is negative."""

    def snapshot(self) -> dict[str, Any]:
        """The parameters and the state as a JSON-able dict, for metrics and for people."""
