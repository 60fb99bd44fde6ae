"""Workloads of random boxes and points, the 12-dimensional ones of the paper first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from rtfilter.events.schema import Attribute, Schema
from rtfilter.replay.workloads.base import (
    EVENTS,
    ORDER,
    SUBSCRIPTIONS,
    Bounds,
    FloatArray,
    Workload,
    blocks,
    joined,
    refuse_negative,
)

#: Largest coordinate of the 12-d workloads: an unsigned short (W-1).
TOP = 65535
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
            lambda rng, rows: self.points(rng, rows, self.dimensions), self.seed, EVENTS, start, count
        )
        return np.concatenate([part[rows] for part, rows in parts])


@dataclass(frozen=True)
class DrawnWorkload(BoxWorkload):
    """Independent random boxes; `boxes` draws them: (generator, rows, dimensions) to Bounds."""

    boxes: Callable[[np.random.Generator, int, int], Bounds]

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Boxes `start` to `start + count`, two float64 (count, dimensions)."""
        parts = blocks(
            lambda rng, rows: self.boxes(rng, rows, self.dimensions), self.seed, SUBSCRIPTIONS, start, count
        )
        return joined(parts)


@dataclass(frozen=True)
class NestedWorkload(BoxWorkload):
    """Boxes of which each contains all smaller ones; see `nested`."""

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Boxes `start` to `start + count`, two float64 (count, dimensions)."""
        refuse_negative(start, count)
        order = np.random.default_rng([self.seed, ORDER]).permutation(PREDICATES)
        chosen = order[np.arange(start, start + count) % PREDICATES].astype(np.float64)
        high = chosen[:, None] + _nested_base(self.dimensions) - 1  # < v is <= v - 1 for integers
        return Bounds(np.full_like(high, -np.inf), high)


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
