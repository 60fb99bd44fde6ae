"""Reproducible workloads: subscriptions without end, and the events that they wait for.

Row k of a workload depends on nothing but the seed and k, so that a replay may insert more subscriptions
between any two bursts, in bursts of any size, and every run sees the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtfilter.schema import Attribute, Schema

if TYPE_CHECKING:
    from rtfilter.filter import EventFilter, Source

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Drawn = TypeVar("Drawn")

#: Largest coordinate of the 12-d workloads: an unsigned short (W-1).
TOP = 65535
#: Rows drawn from one random generator. Changing it changes every workload.
BLOCK = 4096
#: Side of a `narrow` box: a quarter of the domain.
NARROW_SIDE = (TOP + 1) // 4
_SUBSCRIPTIONS, _EVENTS = 0, 1


class Bounds(NamedTuple):
    """Closed boxes: n subscriptions over d attributes, as `EventFilter.subscribe_many` takes them."""

    low: FloatArray  # float64 (n, d)
    high: FloatArray  # float64 (n, d)


@dataclass(frozen=True)
class Workload(ABC):
    """A schema, an unbounded sequence of subscriptions and an unbounded sequence of events.

    Attributes
    ----------
    name : str
        Its name in `WORKLOADS`.
    schema : Schema
        What the events have.
    seed : int
        Equal seeds give equal subscriptions and events.
    """

    name: str
    schema: Schema
    seed: int

    @abstractmethod
    def subscriptions(self, start: int, count: int) -> Bounds | list[Source]:
        """Subscriptions `start` to `start + count`, as bounds or as predicates."""

    @abstractmethod
    def events(self, start: int, count: int) -> Any:
        """Events `start` to `start + count`, in a form that `Schema.read` takes."""

    def subscribe(self, target: EventFilter, start: int, count: int) -> IntArray:
        """Subscribe a filter over `schema` to `subscriptions(start, count)`; their ids, int64 (count,)."""
        chosen = self.subscriptions(start, count)
        if isinstance(chosen, Bounds):
            return target.subscribe_many(chosen.low, chosen.high)
        return target.subscribe_many(chosen)


@dataclass(frozen=True)
class BoxWorkload(Workload):
    """Random boxes of integers in 0..65535 over `dimensions` attributes; events are uniform points (W-1)."""

    dimensions: int
    draw: Callable[[np.random.Generator, int, int], Bounds]
    """(generator, rows, dimensions) to boxes."""

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Boxes `start` to `start + count`, two float64 (count, dimensions)."""
        parts = blocks(
            lambda rng, rows: self.draw(rng, rows, self.dimensions), self.seed, _SUBSCRIPTIONS, start, count
        )
        return Bounds(
            np.concatenate([part.low[rows] for part, rows in parts]),
            np.concatenate([part.high[rows] for part, rows in parts]),
        )

    def events(self, start: int, count: int) -> FloatArray:
        """Points `start` to `start + count`, float64 (count, dimensions)."""
        parts = blocks(
            lambda rng, rows: rng.integers(0, TOP, (rows, self.dimensions), endpoint=True).astype(np.float64),
            self.seed,
            _EVENTS,
            start,
            count,
        )
        return np.concatenate([part[rows] for part, rows in parts])


def blocks(
    draw: Callable[[np.random.Generator, int], Drawn], seed: int, stream: int, start: int, count: int
) -> list[tuple[Drawn, slice]]:
    """Draw the blocks that hold rows `start` to `start + count`, at least one, and the rows wanted of each.

    Parameters
    ----------
    draw : (generator, rows) -> Drawn
        Called with a generator of its own for every block of `BLOCK` rows.
    seed, stream : int
        Not negative. Streams of one seed are independent.
    """
    if min(start, count) < 0:
        raise ValueError(f"start and count must not be negative, but they are {start} and {count}")
    parts = []
    for block in range(start // BLOCK, max(start + count - 1, start) // BLOCK + 1):
        first = block * BLOCK
        rows = slice(max(start - first, 0), min(start + count - first, BLOCK))
        parts.append((draw(np.random.default_rng([seed, stream, block]), BLOCK), rows))
    return parts


def wide_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """A side lies between two independent uniform draws, sorted: the paper's workload as W-1 reads it."""
    ends = np.sort(rng.integers(0, TOP, (rows, dimensions, 2), endpoint=True), axis=2).astype(np.float64)
    return Bounds(ends[..., 0], ends[..., 1])


def narrow_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """A side spans a quarter of the domain around a uniform centre, less what lies outside the domain."""
    low = rng.integers(0, TOP, (rows, dimensions), endpoint=True) - NARROW_SIDE // 2
    high = low + NARROW_SIDE - 1
    return Bounds(np.maximum(low, 0).astype(np.float64), np.minimum(high, TOP).astype(np.float64))


def wide(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Boxes between two uniform draws per dimension: large, overlapping, the hard case."""
    return _boxes("wide", wide_boxes, seed, dimensions)


def narrow(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Boxes a quarter of the domain wide in every dimension: a tree can prune these."""
    return _boxes("narrow", narrow_boxes, seed, dimensions)


def _boxes(
    name: str, draw: Callable[[np.random.Generator, int, int], Bounds], seed: int, dimensions: int
) -> BoxWorkload:
    if dimensions < 1:
        raise ValueError(f"a workload needs at least one dimension, not {dimensions}")
    schema = Schema({f"a{k}": Attribute(int, low=0, high=TOP) for k in range(1, dimensions + 1)})
    return BoxWorkload(name, schema, seed, dimensions, draw)


def _flights(seed: int) -> Workload:
    from experiments.flights import flights  # reads pandas only when it is wanted

    return flights(seed)


BOXES: Mapping[str, Callable[[int, int], BoxWorkload]] = {"wide": wide, "narrow": narrow}
"""Workloads of boxes, by name: (seed, dimensions) to workload."""
WORKLOADS: Sequence[str] = (*BOXES, "flights")
"""Names that `workload` knows."""


def workload(name: str, seed: int = 1, dimensions: int | None = None) -> Workload:
    """The workload of a name.

    Parameters
    ----------
    name : str
        One of `WORKLOADS`.
    seed : int
        Not negative.
    dimensions : int, optional
        Of the workloads of boxes; 12 by default.

    Raises
    ------
    ValueError
        Unknown name, or dimensions for a workload that has a schema of its own.
    """
    if name in BOXES:
        return BOXES[name](seed, 12 if dimensions is None else dimensions)
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}")
    if dimensions is not None:
        raise ValueError(f"the workload {name!r} has a schema of its own; leave dimensions out")
    return _flights(seed)


@dataclass(frozen=True)
class FileWorkload(Workload):
    """Given subscriptions and events, in their order, again from the first after the last."""

    given: Sequence[Source]
    rows: Sequence[Mapping[str, object]]

    def subscriptions(self, start: int, count: int) -> list[Source]:
        """Subscriptions `start` to `start + count`."""
        return [self.given[i % len(self.given)] for i in range(start, start + count)]

    def events(self, start: int, count: int) -> list[Mapping[str, object]]:
        """Events `start` to `start + count`, as dicts."""
        return [self.rows[i % len(self.rows)] for i in range(start, start + count)]


def file_workload(
    name: str, schema: Schema, subscriptions: Sequence[Source], rows: Sequence[Mapping[str, object]]
) -> FileWorkload:
    """A workload of what was read from files; neither may be empty."""
    return FileWorkload(name, schema, 0, subscriptions, rows)
