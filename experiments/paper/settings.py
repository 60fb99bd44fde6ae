"""What is run: on which subscriptions and index (settings), and how much of it (profiles)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rtfilter.adaptive import Plan
from rtfilter.index.tree import DEFAULT_CAPACITY
from rtfilter.replay.workloads import Workload, workload
from rtfilter.replay.workloads.boxes import wide

#: Capacities of inner nodes and leaves in the paper.
PAPER_CAPACITY = (10, 20)
#: Group sizes beside the paper's, one event at a time; the whole batch as one group joins them.
GROUPS = (1, 4, 16, 64, 256)


class Profile(NamedTuple):
    """How much is run."""

    name: str
    sizes: tuple[int, ...]
    """Subscriptions: where the growing index is looked at."""
    middle: int
    """Of the index that does not grow."""
    threshold: int
    """Updates after which a controller doubts itself."""
    batch_sizes: tuple[int, ...]
    batch: int
    """Events of a batch where batch sizes are not varied."""
    batches: int
    """Batches per point, in work units."""
    rounds: tuple[int, ...]
    """Loop counters N."""
    repeats: int
    """Times that a run with other batches is made, in work units."""
    timed: int
    """Batches per point that are timed, at least."""
    patience: float
    """Seconds in which more may be timed."""
    timed_different: int
    """Batches of each plan's own that are timed: the largest loop counter of the timed curves."""
    timed_batch: int
    """Events of a batch in the long timed run."""
    timed_rounds: int
    """Loop counter in that."""
    long_boxes: int
    """Subscriptions in the beginning of a long run, see `regret`."""
    long_steps: int
    """Steps of each of its phases."""
    long_batches: int
    """Batches of a step."""
    long_repeats: int
    """Long runs."""
    compared: tuple[int, ...]
    """Subscriptions where the tree is compared with counting."""
    workloads: tuple[str, ...]
    """Boxes for that, of `rtfilter.replay.workloads.base`."""

    def divided(self, by: int) -> Profile:
        """The same with so many times fewer subscriptions."""
        return self._replace(
            sizes=tuple(size // by for size in self.sizes),
            middle=self.middle // by,
            threshold=self.threshold // by,
            long_boxes=self.long_boxes // by,
            compared=tuple(count // by for count in self.compared),
        )


def _sizes(unit: int) -> tuple[int, ...]:
    """From 0.5 to 2.6 million in steps of 0.3, in units of a million."""
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
    timed=4,
    patience=10.0,
    timed_different=16,
    timed_batch=16,
    timed_rounds=64,
    long_boxes=100_000,
    long_steps=20,
    long_batches=100,
    long_repeats=5,
    compared=(10_000, 100_000, 1_000_000),
    workloads=("wide", "narrow", "dense", "sparse", "nested"),
)
MEDIUM = FULL.divided(10)._replace(
    name="medium", batches=60, repeats=10, timed_rounds=16, long_repeats=3, compared=(10_000, 100_000)
)
CI = FULL.divided(100)._replace(
    name="ci",
    batch_sizes=(1, 4, 16, 64, 256),
    batches=30,
    repeats=4,
    timed=2,
    patience=0.1,
    timed_different=4,
    timed_batch=16,
    timed_rounds=1,
    long_boxes=4000,
    long_steps=5,
    long_batches=40,
    long_repeats=2,
    compared=(8000,),
    workloads=("wide", "nested"),
)
PROFILES: Mapping[str, Profile] = {profile.name: profile for profile in (CI, MEDIUM, FULL)}
"""``ci`` takes seconds a figure, ``medium`` minutes, ``full`` has the paper's sizes and may take an hour."""


class Setting(NamedTuple):
    """One kind of subscriptions in one kind of index."""

    name: str
    title: str
    capacity: tuple[int, int]
    workload: str = "wide"
    transformed: bool = False
    """Six intervals as points of twelve dimensions, instead of boxes (W-1)."""
    grouped: bool = False
    """Plans have a group size beside the level, and an index may be packed instead of grown."""
    divisor: int = 1
    """So many times fewer subscriptions than the profile says."""

    def source(self, seed: int) -> Workload:
        """Its subscriptions and events."""
        return wide(seed, 6) if self.transformed else workload(self.workload, seed)

    def plans(self, height: int, batch: int) -> list[Plan]:
        """All plans there are for a batch, level by level."""
        groups: list[int | None] = [1]
        if self.grouped:
            groups = [group for group in GROUPS if group < batch]
            groups.append(None)
        return [Plan(level, group) for level in range(height) for group in groups]


SETTINGS: Mapping[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting("paper", "boxes, nodes of 10 and 20", PAPER_CAPACITY),
        Setting("transform", "six intervals as points, nodes of 10 and 20", PAPER_CAPACITY, transformed=True),
        Setting("modern", "boxes, default nodes, groups", DEFAULT_CAPACITY, grouped=True),
        Setting("flights", "flights, nodes of 10 and 20", PAPER_CAPACITY, "flights", divisor=10),
        Setting(
            "flights-modern", "flights, default nodes, groups", DEFAULT_CAPACITY, "flights",
            grouped=True, divisor=10,
        ),
        Setting("weather", "weather, nodes of 10 and 20", PAPER_CAPACITY, "weather", divisor=10),
        Setting(
            "weather-modern", "weather, default nodes, groups", DEFAULT_CAPACITY, "weather",
            grouped=True, divisor=10,
        ),
    )
}  # fmt: skip
"""The paper's own first. Each figure can be made of any."""
