"""Workloads of random boxes and points. The first, `wide`, is that of the paper (Wang et al.)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.basics.dtypes import FloatArray
from rtfilter.events.schema import Attribute, Schema
from rtfilter.replay.workloads.base import (
    CENTRES,
    EVENTS,
    ORDER,
    SUBSCRIPTIONS,
    Bounds,
    Workload,
    blocks,
    joined,
    refuse_negative,
)

TOP = 65535
"""Largest coordinate of the workloads in 12 dimensions: that of an unsigned short, as in the paper."""
NARROW_SIDE = (TOP + 1) // 4
"""Side of a `narrow` box: a quarter of the domain."""
DENSE_SIDES = (0.5, 0.95)
"""Smallest and largest side of a `dense` box, as a share of the domain."""
SPARSE_TOP = 999
"""Largest value of an attribute of `sparse`."""
CONSTRAINED = (2, 5)
"""Smallest and largest number of attributes that a `sparse` subscription constrains."""
EQUAL_TOP = 99
"""Largest value of an attribute of `equal`."""
EQUALITIES = (2, 4)
"""Smallest and largest number of equalities of an `equal` subscription."""
PREDICATES = 100_000
"""Number P of different predicates of `nested`."""
SHARES = (0.75, 0.5, 0.25, 0.1, 0.01, 0.001)
"""Shares of the predicates that events of `nested` satisfy; each event draws one of these shares."""
GEO_SIDE = 0.001
"""Side of a `geo` box; the domain is the unit square."""
CLUSTERS = 20
"""Number of clusters of `clustered`."""
SPREAD = (TOP + 1) / 20
"""Standard deviation of a cluster in each attribute."""
CLUSTERED_HALF_WIDTH = (TOP + 1) // 4
"""Largest half-width of a `clustered` box."""


@dataclass(frozen=True)
class BoxWorkload(Workload):
    """Boxes as subscriptions, and random points as events.

    Attributes
    ----------
    dimensions : int
        Number of attributes, at least 1.
    points : (generator, rows, dimensions) -> float64 (rows, dimensions)
        Draws events.
    """

    dimensions: int
    points: Callable[[np.random.Generator, int, int], FloatArray]

    @abstractmethod
    def subscriptions(self, start: int, count: int) -> Bounds:
        """Return boxes `start` to `start + count`, two float64 (count, dimensions)."""

    def events(self, start: int, count: int) -> FloatArray:
        """Return points `start` to `start + count`, float64 (count, dimensions)."""
        parts = blocks(
            lambda rng, rows: self.points(rng, rows, self.dimensions), self.seed, EVENTS, start, count
        )
        return np.concatenate([part[rows] for part, rows in parts])


@dataclass(frozen=True)
class DrawnWorkload(BoxWorkload):
    """Independent random boxes.

    Attributes
    ----------
    boxes : (generator, rows, dimensions) -> Bounds
        Draws subscriptions.
    """

    boxes: Callable[[np.random.Generator, int, int], Bounds]

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Return boxes `start` to `start + count`, two float64 (count, dimensions)."""
        parts = blocks(
            lambda rng, rows: self.boxes(rng, rows, self.dimensions), self.seed, SUBSCRIPTIONS, start, count
        )
        return joined(parts)


@dataclass(frozen=True)
class NestedWorkload(BoxWorkload):
    """Boxes that each contain all smaller ones; see `nested`."""

    def subscriptions(self, start: int, count: int) -> Bounds:
        """Return boxes `start` to `start + count`, two float64 (count, dimensions)."""
        refuse_negative(start, count)
        order = np.random.default_rng([self.seed, ORDER]).permutation(PREDICATES)
        chosen = order[np.arange(start, start + count) % PREDICATES].astype(np.float64)
        high = chosen[:, None] + _nested_base(self.dimensions) - 1  # < v is <= v - 1 for integers
        return Bounds(np.full_like(high, -np.inf), high)


def wide_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Draw boxes whose sides lie between two independent uniform integers: the paper's random boxes."""
    ends = np.sort(rng.integers(0, TOP, (rows, dimensions, 2), endpoint=True), axis=2).astype(np.float64)
    return Bounds(ends[..., 0], ends[..., 1])


def narrow_boxes(rng: np.random.Generator, rows: int, dimensions: int, side: int = NARROW_SIDE) -> Bounds:
    """Draw boxes whose sides have a given length around a uniform centre, cut off at the domain's ends."""
    low = rng.integers(0, TOP, (rows, dimensions), endpoint=True) - side // 2
    return clipped(low, low + side - 1)


def clustered_boxes(rng: np.random.Generator, rows: int, dimensions: int, clusters: FloatArray) -> Bounds:
    """Draw boxes around `clustered_points`, with a uniform half-width of at most `CLUSTERED_HALF_WIDTH`."""
    centre = clustered_points(rng, rows, dimensions, clusters)
    half = rng.integers(0, CLUSTERED_HALF_WIDTH, (rows, dimensions), endpoint=True)
    return clipped(centre - half, centre + half)


def dense_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Draw boxes whose sides are a uniform share of the domain, `DENSE_SIDES`, at a uniform place in it."""
    sides = np.floor(rng.uniform(*DENSE_SIDES, (rows, dimensions)) * (TOP + 1))
    low = np.floor(rng.random((rows, dimensions)) * (TOP + 2 - sides))
    return Bounds(low, low + sides - 1)


def sparse_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Draw boxes that constrain few attributes, half of these to one value.

    The number of constrained attributes is uniform in `CONSTRAINED` (all attributes if there are fewer).
    Attributes are drawn without replacement, attribute r = 1, 2, ... with weight 1/r. A range lies between
    two uniform integers. The other sides are [-inf, inf].
    """
    # Of exponential waiting times at rates 1/r, the k shortest are k weighted draws without replacement.
    waits = rng.exponential(size=(rows, dimensions)) * np.arange(1, dimensions + 1)
    place = waits.argsort(axis=1).argsort(axis=1)
    constrained = place < rng.integers(*CONSTRAINED, (rows, 1), endpoint=True)
    ends = rng.integers(0, SPARSE_TOP, (rows, dimensions, 2), endpoint=True).astype(np.float64)
    equal = rng.random((rows, dimensions)) < 0.5
    ends[equal, 1] = ends[equal, 0]
    ends.sort(axis=2)
    low, high = ends[..., 0], ends[..., 1]
    return Bounds(np.where(constrained, low, -np.inf), np.where(constrained, high, np.inf))


def equal_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Draw boxes that constrain some attributes to one uniform value each; the other sides are [-inf, inf].

    The number of attributes is uniform in `EQUALITIES` (all if there are fewer), and so is their choice.
    """
    place = rng.random((rows, dimensions)).argsort(axis=1).argsort(axis=1)
    asked = place < rng.integers(*EQUALITIES, (rows, 1), endpoint=True)
    values = rng.integers(0, EQUAL_TOP, (rows, dimensions), endpoint=True).astype(np.float64)
    return Bounds(np.where(asked, values, -np.inf), np.where(asked, values, np.inf))


def clustered_points(
    rng: np.random.Generator, rows: int, dimensions: int, clusters: FloatArray
) -> FloatArray:
    """Draw integer points of the domain, each around one of the clusters, float64 (k, dimensions)."""
    chosen = clusters[rng.integers(0, len(clusters), rows)]
    points: FloatArray = np.clip(np.rint(rng.normal(chosen, SPREAD)), 0, TOP)
    return points


def geo_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Draw cubes of side `GEO_SIDE` at uniform places within the unit cube."""
    low = rng.uniform(0, 1 - GEO_SIDE, (rows, dimensions))
    return Bounds(low, low + GEO_SIDE)


def integer_points(top: int) -> Callable[[np.random.Generator, int, int], FloatArray]:
    """Return a function that draws points whose coordinates are uniform integers in 0..`top`."""

    def draw(rng: np.random.Generator, rows: int, dimensions: int) -> FloatArray:
        return rng.integers(0, top, (rows, dimensions), endpoint=True).astype(np.float64)

    return draw


def nested_points(rng: np.random.Generator, rows: int, dimensions: int) -> FloatArray:
    """Draw events that satisfy a share of the predicates of `nested`; each draws its share from `SHARES`."""
    least = np.floor(PREDICATES * (1 - rng.choice(SHARES, (rows, 1))))
    points: FloatArray = least + _nested_base(dimensions)
    return points


def unit_points(rng: np.random.Generator, rows: int, dimensions: int) -> FloatArray:
    """Draw uniform points of the unit cube."""
    return rng.random((rows, dimensions))


def wide(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Make boxes between two uniform integers per attribute, as in the paper: large, and hard to prune."""
    return DrawnWorkload("wide", shorts(dimensions), seed, dimensions, integer_points(TOP), wide_boxes)


def narrow(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Make boxes that span a quarter of the domain per attribute: easy to prune for a tree."""
    return DrawnWorkload("narrow", shorts(dimensions), seed, dimensions, integer_points(TOP), narrow_boxes)


def clustered(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Make boxes and events around the same few places: interests are alike, and close to the events.

    The `CLUSTERS` places are uniform in the domain and depend on the seed. Centres and events lie around
    them, normally distributed with standard deviation `SPREAD` in each attribute.
    """
    clusters = np.random.default_rng([seed, CENTRES]).uniform(0, TOP, (CLUSTERS, _counted(dimensions)))
    return DrawnWorkload(
        "clustered",
        shorts(dimensions),
        seed,
        dimensions,
        partial(clustered_points, clusters=clusters),
        partial(clustered_boxes, clusters=clusters),
    )


def dense(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Make boxes that span most of the domain: two in a hundred contain an event, so verifying takes long."""
    return DrawnWorkload("dense", shorts(dimensions), seed, dimensions, integer_points(TOP), dense_boxes)


def sparse(seed: int, dimensions: int = 24) -> BoxWorkload:
    """Make boxes that constrain few of many attributes, some attributes more often; events have them all."""
    schema = Schema(_attributes(dimensions, Attribute(int, low=0, high=SPARSE_TOP)))
    return DrawnWorkload("sparse", schema, seed, dimensions, integer_points(SPARSE_TOP), sparse_boxes)


def equal(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Make boxes of equalities only, for which matchers with hashes and matchers of equalities are made."""
    schema = Schema(_attributes(dimensions, Attribute(int, low=0, high=EQUAL_TOP)))
    return DrawnWorkload("equal", schema, seed, dimensions, integer_points(EQUAL_TOP), equal_boxes)


def nested(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Make predicates that imply each other, as in the benchmark of Novák 2013.

    Predicate i is longAttribute_j < j * 10000 + 1000 + i for each attribute j, with i in 0..P - 1 and
    P = `PREDICATES`, in a random order of the seed, again and again. An event is made to satisfy a share x of
    the predicates, drawn from `SHARES`: it matches P - 1 - floor(P * (1 - x)) of P subscriptions.
    """
    schema = Schema({f"longAttribute{j}": Attribute(int) for j in range(_counted(dimensions))})
    return NestedWorkload("nested", schema, seed, dimensions, nested_points)


def geo(seed: int, dimensions: int = 2) -> BoxWorkload:
    """Make small squares in the unit square, the usual load of spatial indexes."""
    schema = Schema(_attributes(dimensions, Attribute(float, low=0, high=1)))
    return DrawnWorkload("geo", schema, seed, dimensions, unit_points, geo_boxes)


BOXES: Mapping[str, Callable[..., BoxWorkload]] = {
    "wide": wide,
    "narrow": narrow,
    "clustered": clustered,
    "dense": dense,
    "sparse": sparse,
    "equal": equal,
    "nested": nested,
    "geo": geo,
}
"""Workloads of boxes by name: functions (seed, dimensions) -> BoxWorkload, dimensions optional. `sparse`,
`equal` and `nested` have infinite sides."""


def clipped(low: ArrayLike, high: ArrayLike) -> Bounds:
    """Return boxes cut off at the ends of the domain."""
    return Bounds(np.maximum(low, 0.0), np.minimum(high, float(TOP)))


def _nested_base(dimensions: int) -> FloatArray:
    return np.arange(dimensions, dtype=np.float64) * 10_000 + 1000


def _counted(dimensions: int) -> int:
    if dimensions < 1:
        raise ValueError(f"a workload needs at least one dimension, not {dimensions}")
    return dimensions


def _attributes(dimensions: int, attribute: Attribute) -> dict[str, Attribute]:
    return {f"a{k}": attribute for k in range(1, _counted(dimensions) + 1)}


def shorts(dimensions: int) -> Schema:
    """Return the schema of unsigned shorts."""
    return Schema(_attributes(dimensions, Attribute(int, low=0, high=TOP)))
