"""Workloads of random boxes that only experiments use."""

from __future__ import annotations

from functools import partial

import numpy as np

from rtfilter.replay.workloads.base import Bounds
from rtfilter.replay.workloads.random_boxes import (
    TOP,
    BoxWorkload,
    DrawnWorkload,
    clipped,
    integer_points,
    narrow_boxes,
    shorts,
)

HALF_WIDTH = (TOP + 1) // 2
"""Largest half-width of a `centred` box: half of the domain."""


def centred_boxes(rng: np.random.Generator, rows: int, dimensions: int) -> Bounds:
    """Draw boxes around a uniform centre, with a uniform half-width of at most `HALF_WIDTH` per attribute."""
    centre = rng.integers(0, TOP, (rows, dimensions), endpoint=True)
    half = rng.integers(0, HALF_WIDTH, (rows, dimensions), endpoint=True)
    return clipped(centre - half, centre + half)


def sided(seed: int, dimensions: int = 12, side: float = 0.25) -> BoxWorkload:
    """Make boxes as in `narrow` that span another share `side` of the domain."""
    boxes = partial(narrow_boxes, side=round(side * (TOP + 1)))
    return DrawnWorkload("sided", shorts(dimensions), seed, dimensions, integer_points(TOP), boxes)


def centred(seed: int, dimensions: int = 12) -> BoxWorkload:
    """Make boxes of a uniform centre and half-width per attribute, cut off at the domain."""
    return DrawnWorkload("centred", shorts(dimensions), seed, dimensions, integer_points(TOP), centred_boxes)
