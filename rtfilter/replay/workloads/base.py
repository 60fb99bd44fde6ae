"""Reproducible workloads: subscriptions without end, and the events that they wait for.

Row k of a workload depends on nothing but the seed and k, so that a replay may insert more subscriptions
between any two bursts, in bursts of any size, and every run sees the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtfilter.events.schema import Schema

if TYPE_CHECKING:
    from rtfilter.filter import EventFilter
    from rtfilter.predicates.parse import Source

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Drawn = TypeVar("Drawn")

#: Rows drawn from one random generator. Changing it changes every workload.
BLOCK = 4096
SUBSCRIPTIONS, EVENTS, ORDER = 0, 1, 2  # streams of random numbers of one seed


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
