"""Reproducible workloads: subscriptions without end, and the events that they wait for.

Row k of a workload depends on nothing but the seed and k, so that a replay may insert more subscriptions
between any two bursts, in bursts of any size, and every run sees the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
#: Least and largest side of a `dense` box, as a share of the domain.
DENSE_SIDES = (0.5, 0.95)
#: Largest value of an attribute of `sparse`.
SPARSE_TOP = 999
#: Fewest and most attributes that a `sparse` subscription constrains.
CONSTRAINED = (2, 5)
#: P: different predicates of `nested`.
PREDICATES = 100_000
#: Share of the predicates that an event of `nested` satisfies; every event draws one of them.
SHARES = (0.75, 0.5, 0.25, 0.1, 0.01, 0.001)
#: Side of a `geo` box; the domain is the unit square.
GEO_SIDE = 0.001
_SUBSCRIPTIONS, _EVENTS, _ORDER = 0, 1, 2


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

    @property
    def period(self) -> int | None:
        """Events after which they begin anew; None: they never do."""
        return None

    def subscribe(self, target: EventFilter, start: int, count: int) -> IntArray:
        """Subscribe a filter over `schema` to `subscriptions(start, count)`; their ids, int64 (count,)."""
        chosen = self.subscriptions(start, count)
        if isinstance(chosen, Bounds):
            return target.subscribe_many(chosen.low, chosen.high)
        return target.subscribe_many(chosen)


@dataclass(frozen=True)
class BoxWorkload(Workload):
    """Boxes over `dimensions` attributes and random points.

    Attributes
    ----------
    dimensions : int
        At least 1.
    points : (generator, rows, dimensions) -> float64 (rows, dimensions)
        Draws events.
    """

    dimensions: int
    points: Callable[[np.random.Generator, int, int], FloatArray]

    @abstractmethod
    def subscriptions(self, start: int, count: int) -> Bounds:
        """Boxes `start` to `start + count`, two float64 (count, dimensions)."""

    def events(self, start: int, count: int) -> FloatArray:
        """Points `start` to `start + count`, float64 (count, dimensions)."""
        parts = blocks(
            lambda rng, rows: self.points(rng, rows, self.dimensions), self.seed, _EVENTS, start, count
        )
        return np.concatenate([part[rows] for part, rows in parts])


@dataclass(frozen=True)
class DrawnWorkload(BoxWorkload):
    """Independent random boxes; `boxes` draws them: (generator, rows, dimensions) to Bounds."""

    boxes: Callable[[np.random.Generator, int, int], Bounds]

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Boxes `start` to `start + count`, two float64 (count, dimensions)."""
        parts = blocks(
            lambda rng, rows: self.boxes(rng, rows, self.dimensions), self.seed, _SUBSCRIPTIONS, start, count
        )
        return joined(parts)


@dataclass(frozen=True)
class NestedWorkload(BoxWorkload):
    """Boxes of which each contains all smaller ones; see `nested`."""

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Boxes `start` to `start + count`, two float64 (count, dimensions)."""
        refuse_negative(start, count)
        order = np.random.default_rng([self.seed, _ORDER]).permutation(PREDICATES)
        chosen = order[np.arange(start, start + count) % PREDICATES].astype(np.float64)
        high = chosen[:, None] + _nested_base(self.dimensions) - 1  # < v is <= v - 1 for integers
        return Bounds(np.full_like(high, -np.inf), high)


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
    refuse_negative(start, count)
    parts = []
    for block in range(start // BLOCK, max(start + count - 1, start) // BLOCK + 1):
        first = block * BLOCK
        rows = slice(max(start - first, 0), min(start + count - first, BLOCK))
        parts.append((draw(np.random.default_rng([seed, stream, block]), BLOCK), rows))
    return parts


def joined(parts: Sequence[tuple[Bounds, slice]]) -> Bounds:
    """The rows wanted of the boxes that `blocks` drew."""
    return Bounds(
        np.concatenate([part.low[rows] for part, rows in parts]),
        np.concatenate([part.high[rows] for part, rows in parts]),
    )


def refuse_negative(start: int, count: int) -> None:
    """Raise `ValueError` when rows before the first are asked for, or fewer than none."""
    if min(start, count) < 0:
        raise ValueError(f"start and count must not be negative, but they are {start} and {count}")


def wide_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """A side lies between two independent uniform draws, sorted: the paper's workload as W-1 reads it."""
    ends = np.sort(rng.integers(0, TOP, (rows, dimensions, 2), endpoint=True), axis=2).astype(np.float64)
    return Bounds(ends[..., 0], ends[..., 1])


def narrow_boxes(rng: np.random.Generator, rows: int, dimensions: int, side: int = NARROW_SIDE) -> Bounds:
    """A side spans a quarter of the domain around a uniform centre, less what lies outside the domain."""
    low = rng.integers(0, TOP, (rows, dimensions), endpoint=True) - side // 2
    high = low + side - 1
    return Bounds(np.maximum(low, 0).astype(np.float64), np.minimum(high, TOP).astype(np.float64))


def dense_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """A side spans a uniform share of the domain, `DENSE_SIDES`, wherever it fits into the domain."""
    sides = np.floor(rng.uniform(*DENSE_SIDES, (rows, dimensions)) * (TOP + 1))
    low = np.floor(rng.random((rows, dimensions)) * (TOP + 2 - sides))
    return Bounds(low, low + sides - 1)


def sparse_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Few sides are constrained, popular attributes more often; half of them to one value.

    The number is uniform in `CONSTRAINED` (all sides when there are fewer), attribute r is drawn with weight
    1/r without replacement, a range lies between two uniform draws, sorted. The others are [-inf, inf].
    """
    # Exponential waiting times at rates 1/r: the first k to come are k draws without replacement.
    waits = rng.exponential(size=(rows, dimensions)) * np.arange(1, dimensions + 1)
    place = waits.argsort(axis=1).argsort(axis=1)
    constrained = place < rng.integers(*CONSTRAINED, (rows, 1), endpoint=True)
    ends = rng.integers(0, SPARSE_TOP, (rows, dimensions, 2), endpoint=True).astype(np.float64)
    equal = rng.random((rows, dimensions)) < 0.5
    ends[equal, 1] = ends[equal, 0]
    ends.sort(axis=2)
    low, high = ends[..., 0], ends[..., 1]
    return Bounds(np.where(constrained, low, -np.inf), np.where(constrained, high, np.inf))


def geo_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Cubes of side `GEO_SIDE` wherever they fit into the unit cube."""
    low = rng.uniform(0, 1 - GEO_SIDE, (rows, dimensions))
    return Bounds(low, low + GEO_SIDE)


def integer_points(top: int) -> Callable[[np.random.Generator, int, int], FloatArray]:
    """Draws points whose coordinates are uniform integers in 0..`top`."""

    def draw(rng: np.random.Generator, rows: int, dimensions: int) -> FloatArray:
        return rng.integers(0, top, (rows, dimensions), endpoint=True).astype(np.float64)

    return draw


def nested_points(rng: np.random.Generator, rows: int, dimensions: int) -> FloatArray:
    """Events that satisfy one of `SHARES` of the predicates: E-N1's Match_x, x mixed."""
    least = np.floor(PREDICATES * (1 - rng.choice(SHARES, (rows, 1))))
    points: FloatArray = least + _nested_base(dimensions)
    return points


def unit_points(rng: np.random.Generator, rows: int, dimensions: int) -> FloatArray:
    """Uniform points of the unit cube."""
    return rng.random((rows, dimensions))


def wide(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Boxes between two uniform draws per dimension: large, overlapping, the hard case."""
    return DrawnWorkload("wide", _shorts(dimensions), seed, dimensions, integer_points(TOP), wide_boxes)


def narrow(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Boxes a quarter of the domain wide in every dimension: a tree can prune these."""
    return DrawnWorkload("narrow", _shorts(dimensions), seed, dimensions, integer_points(TOP), narrow_boxes)


def sided(seed: int, dimensions: int = 12, side: float = 0.25) -> BoxWorkload:
    """As `narrow`, with sides of another share of the domain."""
    boxes = partial(narrow_boxes, side=round(side * (TOP + 1)))
    return DrawnWorkload("sided", _shorts(dimensions), seed, dimensions, integer_points(TOP), boxes)


def dense(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Boxes most of the domain wide: two of a hundred contain an event, and verifying them dominates."""
    return DrawnWorkload("dense", _shorts(dimensions), seed, dimensions, integer_points(TOP), dense_boxes)


def sparse(seed: int, dimensions: int = 24) -> BoxWorkload:
    """Few constraints on many attributes, some popular; events have all attributes."""
    schema = Schema(_attributes(dimensions, Attribute(int, low=0, high=SPARSE_TOP)))
    return DrawnWorkload("sparse", schema, seed, dimensions, integer_points(SPARSE_TOP), sparse_boxes)


def nested(seed: int, dimensions: int = 12) -> BoxWorkload:
    """The predicates of E-N1, longAttribute_j < j * 10000 + 1000 + i, and its events Match_x (N-9).

    An event of E-N1 is made to satisfy a share x of P predicates, so P is fixed: i runs through
    0..`PREDICATES` - 1 in a random order of the seed, then again. Of the first P subscriptions such an event
    matches P - 1 - floor(P * (1 - x)). Each event draws x from `SHARES`.
    """
    schema = Schema({f"longAttribute{j}": Attribute(int) for j in range(_counted(dimensions))})
    return NestedWorkload("nested", schema, seed, dimensions, nested_points)


def geo(seed: int, dimensions: int = 2) -> BoxWorkload:
    """Small boxes in the unit square: what spatial indexes are made for."""
    schema = Schema(_attributes(dimensions, Attribute(float, low=0, high=1)))
    return DrawnWorkload("geo", schema, seed, dimensions, unit_points, geo_boxes)


def _nested_base(dimensions: int) -> FloatArray:
    return np.arange(dimensions, dtype=np.float64) * 10_000 + 1000


def _counted(dimensions: int) -> int:
    if dimensions < 1:
        raise ValueError(f"a workload needs at least one dimension, not {dimensions}")
    return dimensions


def _attributes(dimensions: int, attribute: Attribute) -> dict[str, Attribute]:
    return {f"a{k}": attribute for k in range(1, _counted(dimensions) + 1)}


def _shorts(dimensions: int) -> Schema:
    return Schema(_attributes(dimensions, Attribute(int, low=0, high=TOP)))


def _flights(seed: int) -> Workload:
    from experiments.flights import flights  # reads pandas only when it is wanted

    return flights(seed)


def _weather(seed: int) -> Workload:
    from experiments.weather import weather  # as above

    return weather(seed)


BOXES: Mapping[str, Callable[..., BoxWorkload]] = {
    "wide": wide,
    "narrow": narrow,
    "dense": dense,
    "sparse": sparse,
    "nested": nested,
    "geo": geo,
}
"""Workloads of boxes, by name: (seed, dimensions) to workload. Each has its own number of dimensions, the
default; `sparse` and `nested` have infinite sides."""
REAL: Mapping[str, Callable[[int], Workload]] = {"flights": _flights, "weather": _weather}
"""Workloads of real events, by name."""
WORKLOADS: Sequence[str] = (*BOXES, *REAL)
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
        Of the workloads of boxes; each has its own by default.

    Raises
    ------
    ValueError
        Unknown name, or dimensions for a workload that has a schema of its own.
    """
    if name in BOXES:
        return BOXES[name](seed) if dimensions is None else BOXES[name](seed, dimensions)
    if name not in WORKLOADS:
        raise ValueError(f"unknown workload {name!r}; there are {', '.join(WORKLOADS)}")
    if dimensions is not None:
        raise ValueError(f"the workload {name!r} has a schema of its own; leave dimensions out")
    return REAL[name](seed)


@dataclass(frozen=True)
class FileWorkload(Workload):
    """Given subscriptions and events, in their order, again from the first after the last."""

    given: Sequence[Source]
    rows: Sequence[Mapping[str, object]]

    @property
    def period(self) -> int:
        """Number of events in the file."""
        return len(self.rows)

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
