"""Plans, tickets, reports, and the interface of a controller."""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Entry = dict[str, Any]
"""A line of a controller's log, as JSON-able data."""

Sink = Callable[[Entry], None]
"""A function that takes the lines of a log, one per call; for example ``list.append``."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The level and group size of a batch.

    Attributes
    ----------
    level : int
        Level of the index, from 0 (the root) to height - 1. Down to it the whole batch shares one traversal,
        which estimates the workload of each event.
    group : int or None
        Events per group in the search that follows, at least 1. With 1 each event is released once its search
        ends, as in the paper (Wang et al.); None makes one group of the whole batch.

    Raises
    ------
    ValueError
        The level is negative, or the group is below 1.
    """

    level: int
    group: int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", operator.index(self.level))
        if self.group is not None:
            object.__setattr__(self, "group", operator.index(self.group))
        if self.level < 0:
            raise ValueError(f"a level counts down from the root, 0; got {self.level}")
        if self.group is not None and self.group < 1:
            raise ValueError(
                f"a group has at least 1 event, or is None for the whole batch; got {self.group}"
            )


WHOLE = Plan(0, None)
"""The whole batch at once, without an estimate: all plans without groups are this one."""


def plans_of(size: int, height: int, groups: Sequence[int]) -> list[Plan]:
    """Return all plans of a batch: `WHOLE`, and each level with each group size below the batch size."""
    smaller = [group for group in groups if group < size]
    return [WHOLE, *(Plan(level, group) for level in range(height) for group in smaller)]


class Shape(NamedTuple):
    """The index that a batch meets."""

    height: int
    """Number of its levels, at least 1."""
    boxes: int = 0
    """Number of boxes in it; 0 if it is not known."""
    packed: int = 0
    """Number of builds of the whole index. A new build changes what a level means."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a batch.

    Times are in any unit, but always in the same one. They are the time of the batch only, without the time
    of its consumer.

    Attributes
    ----------
    mean_response : float
        Mean response time of its events. For a cancelled batch it is a lower bound: unfinished events count
        with the time until the last finished group.
    size : int
        Events of the batch.
    unfinished : int
        Number of events that were not finished, because the batch was cancelled.
    elapsed : float
        Time until the end of the last group; 0 if it is not known.
    estimation : float
        Time of the estimate and the order, which is a part of `elapsed`.
    groups : int
        Number of finished groups.
    visits, estimation_visits : int
        Operations of the search in groups, and of the estimate; 0 if they are not counted.

    Raises
    ------
    ValueError
        A time is NaN, infinite or negative, or more events are unfinished than there are.
    """

    mean_response: float
    size: int
    unfinished: int = 0
    elapsed: float = 0.0
    estimation: float = 0.0
    groups: int = 1
    visits: int = 0
    estimation_visits: int = 0

    def __post_init__(self) -> None:
        for name in ("mean_response", "elapsed", "estimation"):
            value = float(getattr(self, name))
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"a time such as {name} is finite and not negative; got {value}")
            object.__setattr__(self, name, value)  # NumPy's numbers are not JSON
        for name in ("size", "unfinished", "groups", "visits", "estimation_visits"):
            object.__setattr__(self, name, operator.index(getattr(self, name)))
        if self.size < 1 or not 0 <= self.unfinished <= self.size:
            raise ValueError(f"unfinished must be 0 to size, {self.size}; got {self.unfinished}")
        if min(self.visits, self.estimation_visits) < 0 or self.groups < (self.unfinished < self.size):
            raise ValueError(
                f"visits must be 0 or more, and groups 1 or more if an event is finished: {self}"
            )


@dataclass(frozen=True, slots=True)
class Ticket:
    """A plan, with the numbers that identify its report.

    Attributes
    ----------
    plan : Plan
    size_class : int
        Class of the batch size, see :mod:`rtfilter.adaptive.sizes`.
    episode : int
        0 for a batch by the best plan so far; else the batch is one to learn from. Controllers that follow
        the paper count their searches here, within the class: 1, 2, ...
    serial : int
        Number that identifies the report; 0 if the controller does not wait for a report.
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

    def plan(self, size: int, shape: Shape) -> Ticket:
        """Return the plan of a batch of `size` >= 1 events on an index of a shape.

        ``ticket.plan.level`` is in 0..height - 1. Raises ``ValueError`` for a size or height below 1.
        """

    def report(self, ticket: Ticket, report: Report) -> None:
        """Take the result of the batch of a ticket.

        Reports may come in any order. A report that comes twice, or too late to be of use, is ignored and
        counted as stale. A cancelled batch is reported too, with the groups that it finished; a batch that is
        never reported counts as lost.
        """

    def drop(self, ticket: Ticket) -> None:
        """Cancel a ticket: its batch will not be reported, and says nothing about its plan.

        Use it for a batch that had to load code first. A ticket that was reported or dropped before changes
        nothing.
        """

    def on_update(self, count: int = 1) -> None:
        """Count `count` >= 0 insertions and deletions. Raises ``ValueError`` if it is negative."""

    def snapshot(self) -> dict[str, Any]:
        """Return the parameters and the state as a JSON-able dict, for metrics and for people."""
