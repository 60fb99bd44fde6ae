"""Settings (which subscriptions in which index) and profiles (how much is run)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from rtfilter.adaptive import Plan
from rtfilter.index.tree import DEFAULT_CAPACITY
from rtfilter.replay.workloads import Workload, workload
from rtfilter.replay.workloads.random_boxes import wide

PAPER_CAPACITY = (10, 20)
"""Capacities of an inner node and of a leaf in the paper."""
GROUPS = (1, 4, 16, 64, 256)
"""Group sizes; the paper has 1 only. The whole batch as one group is added to them."""
RULE: dict[str, Any] = {"share": None, "drift": False, "seed": None}
"""Options that leave a controller only what the paper has: a search begins after a number of updates, and
plans take turns in an order that never changes."""


class Profile(NamedTuple):
    """The size of a run."""

    name: str
    sizes: tuple[int, ...]
    """Numbers of subscriptions at which the growing index is measured."""
    middle: int
    """Number of subscriptions of an index that does not grow."""
    threshold: int
    """Number of updates after which a controller searches again."""
    batch_sizes: tuple[int, ...]
    batch: int
    """Events of a batch, if batch sizes do not vary."""
    batches: int
    """Batches per point in work units."""
    rounds: tuple[int, ...]
    """Loop counters N."""
    repeats: int
    """Number of runs with other batches in work units."""
    timed_sizes: tuple[int, ...]
    """Batch sizes that are timed."""
    timed: int
    """Smallest number of timed batches per point."""
    patience: float
    """Seconds in which more batches may be timed."""
    first: int
    """Number of other batches that choose which plans are timed in all orders."""
    searches: int
    """Number of searches of a controller at each size, and of curves with the largest N, in time."""
    compared: tuple[int, ...]
    """Numbers of subscriptions at which the tree is compared with counting."""
    workloads: tuple[str, ...]
    """Workloads of that comparison, names of `BOXES`."""
    drawn: int
    """Number of subscriptions of each generator, see `generators`."""

    def divided(self, by: int) -> Profile:
        """Return the same profile with numbers of subscriptions divided by `by`."""
        return self._replace(
            sizes=tuple(size // by for size in self.sizes),
            middle=self.middle // by,
            threshold=self.threshold // by,
            compared=tuple(count // by for count in self.compared),
            drawn=self.drawn // by,
        )


def _sizes(unit: int) -> tuple[int, ...]:
    """Return numbers from 0.5 to 2.6 in steps of 0.3, as multiples of `unit`."""
    return tuple(range(unit // 2, 26 * unit // 10 + 1, 3 * unit // 10))


FULL = Profile(
    name="full",
    sizes=_sizes(1_000_000),
    middle=1_500_000,
    threshold=300_000,
    batch_sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    batch=64,
    batches=100,
    rounds=(1, 4, 16, 64),
    repeats=20,
    timed_sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    timed=30,
    patience=10.0,
    first=4,
    searches=2,
    compared=(10_000, 100_000, 1_000_000),
    workloads=("wide", "narrow", "dense", "sparse", "nested"),
    drawn=500_000,
)
MEDIUM = FULL.divided(10)._replace(
    name="medium", batches=60, repeats=10, compared=(10_000, 100_000), drawn=100_000
)
CI = FULL.divided(100)._replace(
    name="ci",
    batch_sizes=(1, 4, 16, 64, 256),
    batches=30,
    repeats=4,
    timed_sizes=(1, 4, 16, 64),
    timed=6,
    patience=0.1,
    first=2,
    compared=(8000,),
    workloads=("wide", "nested"),
    drawn=5000,
)
PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (CI, MEDIUM, FULL)}
"""The profiles by name. For a figure ``ci`` takes seconds and ``medium`` minutes; ``full`` has the sizes of
the paper and takes some hours."""


class Setting(NamedTuple):
    """Subscriptions of one kind in an index of one kind. Without a tree it needs a name and a title."""

    name: str
    title: str
    capacity: tuple[int, int] = PAPER_CAPACITY
    workload: str | Callable[[int], Workload] = "wide"
    """A name of `WORKLOADS`, or a function that makes a workload with a seed."""
    transformed: bool = False
    """Subscriptions are six intervals, stored as points of twelve dimensions, instead of boxes."""
    grouped: bool = False
    """Plans have a level and a group size, and the index may be packed instead of grown."""
    divisor: int = 1
    """The numbers of subscriptions of the profile are divided by this."""
    live: int = 64
    """Events of a batch in Figures 4-c and 4-d in time: fewer where a batch takes long."""

    def source(self, seed: int) -> Workload:
        """Return the workload of a seed."""
        return workload(self.workload, seed) if isinstance(self.workload, str) else self.workload(seed)

    def plans(self, height: int, batch: int) -> list[Plan]:
        """Return all plans of a batch, level by level."""
        groups: list[int | None] = [1]
        if self.grouped:
            groups = [group for group in GROUPS if group < batch]
            groups.append(None)
        return [Plan(level, group) for level in range(height) for group in groups]


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("paper", "boxes, nodes of 10 and 20", PAPER_CAPACITY, live=8),
        Setting(
            "transform", "six intervals as points, nodes of 10 and 20", PAPER_CAPACITY,
            partial(wide, dimensions=6), transformed=True,
        ),
        Setting("modern", "boxes, default nodes, groups", DEFAULT_CAPACITY, grouped=True),
        Setting("flights", "flights, nodes of 10 and 20", PAPER_CAPACITY, "flights", divisor=10),
        Setting(
            "flights-modern", "flights, default nodes, groups", DEFAULT_CAPACITY, "flights",
            grouped=True, divisor=10,
        ),
        Setting("weather", "weather, nodes of 10 and 20", PAPER_CAPACITY, "weather", divisor=50, live=16),
        Setting(
            "weather-modern", "weather, default nodes, groups", DEFAULT_CAPACITY, "weather",
            grouped=True, divisor=50,
        ),
    )
}  # fmt: skip
"""The settings by name, that of the paper first. Each figure can be made with each of them."""
