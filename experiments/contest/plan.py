"""The plan of a contest: cells of a matcher, a workload and a number of subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rtfilter.matchers import MATCHERS
from rtfilter.replay.output import Row
from rtfilter.replay.workloads import WORKLOADS

INDEX = ("matcher", "workload", "subscriptions")
"""The fields of `Case` that identify its cell."""


class Case(NamedTuple):
    """The cell that a process measures."""

    matcher: str
    workload: str
    subscriptions: int
    batches: Sequence[int]
    seed: int
    repeats: int
    build_seconds: float
    """Longest time to build, and, of another, to build what answers are compared with."""
    ask_seconds: float
    """Longest time for one event, and about the time for all rounds of all batch sizes."""

    @property
    def key(self) -> tuple[str, str, int]:
        """The values of `INDEX`."""
        return self.matcher, self.workload, self.subscriptions

    def row(self) -> Row:
        """Return the first cells of its row."""
        return dict(zip(INDEX, self.key, strict=True))


class Plan(NamedTuple):
    """The settings of a contest's measurements."""

    workloads: tuple[str, ...]
    subscriptions: tuple[int, ...]
    batches: tuple[int, ...]
    """Events a call."""
    repeats: int
    """Rounds; their median counts."""
    build_seconds: float
    ask_seconds: float

    def cases(self, matchers: Sequence[str], seed: int) -> list[Case]:
        """Return all cells, small ones first, so that a slow matcher gives up early."""
        return [
            Case(matcher, workload, size, self.batches, seed, *self[3:])
            for size in self.subscriptions
            for workload in self.workloads
            for matcher in matchers
        ]

    def settings(self, seed: int) -> dict[str, Any]:
        """Return the settings that must be equal when a contest continues. The set of cells may differ."""
        left = ("workloads", "subscriptions")
        return {key: value for key, value in self._asdict().items() if key not in left} | {"seed": seed}


ENTRANTS: Sequence[str] = tuple(MATCHERS)
"""The matchers of the contest."""
FULL = Plan(
    workloads=tuple(WORKLOADS),
    subscriptions=(1000, 10_000, 100_000, 1_000_000),
    batches=(1, 1000),
    repeats=5,
    build_seconds=120,
    ask_seconds=10,
)
QUICK = FULL._replace(
    workloads=("narrow", "strings"),
    subscriptions=(1000,),
    repeats=3,
    build_seconds=2,
    ask_seconds=0.2,
)
