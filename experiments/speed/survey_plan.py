"""The points that a survey measures: each variable is varied around one point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from experiments.speed.trial import Case
from rtfilter.replay.workloads import BOXES


class Plan(NamedTuple):
    """Points to measure: each variable is varied around the default, all but the side for `varied`."""

    default: int
    """Subscriptions, with each workload's own dimensions and the batch sizes `few`."""
    varied: tuple[str, ...]
    subscriptions: tuple[int, ...]
    dimensions: tuple[int, ...]
    sides: tuple[float, ...]
    batches: tuple[int, ...]
    """At the default point."""
    few: tuple[int, ...]
    """Elsewhere."""
    workloads: tuple[str, ...]
    """Once each at the default number of subscriptions."""
    repeats: int
    build_seconds: float
    ask_seconds: float
    """Both as in `Case`."""

    def cases(self, chosen: Sequence[str], seed: int) -> list[Case]:
        """Return cases of the chosen peers, small indexes first."""
        made: dict[tuple[object, ...], Case] = {}

        def add(workload: str, subscriptions: int, dimensions: int, side: float | None = None) -> None:
            own = workload in self.varied and (subscriptions, dimensions) == (self.default, 12)
            batches = self.batches if own else self.few
            for peer in chosen:
                case = Case(
                    peer, workload, subscriptions, dimensions, side, batches, seed,
                    self.repeats, self.build_seconds, self.ask_seconds,
                )  # fmt: skip
                made.setdefault(case.key, case)

        for name in self.varied:
            for subscriptions in self.subscriptions:
                add(name, subscriptions, 12)
            for dimensions in self.dimensions:
                add(name, self.default, dimensions)
        for side in self.sides:
            add("sided", self.default, 12, side)
        for name in self.workloads:
            add(name, self.default, BOXES[name](seed).dimensions)
        return sorted(made.values(), key=lambda case: case.subscriptions * case.dimensions)


FULL = Plan(
    default=100_000,
    varied=("wide", "narrow"),
    subscriptions=(10_000, 100_000, 1_000_000, 10_000_000),
    dimensions=(2, 4, 8, 12, 24, 48),
    sides=(0.1, 0.25, 0.5, 0.7, 0.8),
    batches=(1, 10, 100, 1000, 10_000),
    few=(1, 1000),
    workloads=tuple(BOXES),
    repeats=5,
    build_seconds=300,
    ask_seconds=10,
)
QUICK = FULL._replace(
    subscriptions=(10_000, 100_000, 1_000_000),
    dimensions=(),
    sides=(),
    batches=(1, 100, 1000),
    workloads=("geo",),
    repeats=3,
    build_seconds=3,
    ask_seconds=0.3,
)
