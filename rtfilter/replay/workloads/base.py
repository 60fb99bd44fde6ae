"""The base class of workloads, and the random draw of their rows.

Row k of a workload depends on the seed and on k only. So a replay may take subscriptions and events in parts
of any size, and every run with the same seed sees the same rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.events.schema import Schema

if TYPE_CHECKING:
    from rtfilter.filter import EventFilter
    from rtfilter.predicates.predicate import Source

Drawn = TypeVar("Drawn")

BLOCK = 4096
"""Rows that are drawn from one random generator. Another number changes every workload."""
SUBSCRIPTIONS, EVENTS, ORDER, CENTRES = 0, 1, 2, 3
"""Independent streams of random numbers of one seed."""


class Bounds(NamedTuple):
    """n closed boxes over d attributes, one per subscription, as `EventFilter.subscribe_boxes` takes them."""

    low: FloatArray  # float64 (n, d)
    high: FloatArray  # float64 (n, d)


@dataclass(frozen=True)
class Workload(ABC):
    """A schema, an endless sequence of subscriptions and an endless sequence of events.

    Attributes
    ----------
    name : str
        Its name in `WORKLOADS`.
    schema : Schema
        The attributes of the events.
    seed : int
        The same seed gives the same subscriptions and events.
    """

    name: str
    schema: Schema
    seed: int

    @abstractmethod
    def subscriptions(self, start: int, count: int) -> Bounds | list[Source]:
        """Return subscriptions `start` to `start + count`: boxes, or predicates in a form that is parsed."""

    @abstractmethod
    def events(self, start: int, count: int) -> Any:
        """Return events `start` to `start + count`, in a form that `Schema.read` takes."""

    @property
    def period(self) -> int | None:
        """Number of events after which the sequence starts again; None if it never does."""
        return None

    def subscribe(self, target: EventFilter, start: int, count: int) -> IntArray:
        """Add `subscriptions(start, count)` to a filter over `schema`; return their ids, int64 (count,)."""
        chosen = self.subscriptions(start, count)
        if isinstance(chosen, Bounds):
            return target.subscribe_boxes(chosen.low, chosen.high)
        return target.subscribe_many(chosen)


def blocks(
    draw: Callable[[np.random.Generator, int], Drawn], seed: int, stream: int, start: int, count: int
) -> list[tuple[Drawn, slice]]:
    """Draw the blocks that contain rows `start` to `start + count`.

    Parameters
    ----------
    draw : (generator, rows) -> Drawn
        Draws a block. It is called with a new generator for each block, and with `BLOCK`.
    seed, stream : int
        At least 0. Streams of one seed are independent.
    start, count : int
        At least 0.

    Returns
    -------
    list of (Drawn, slice)
        At least one block, each with its wanted rows.
    """
    refuse_negative(start, count)
    parts = []
    for block in range(start // BLOCK, max(start + count - 1, start) // BLOCK + 1):
        first = block * BLOCK
        rows = slice(max(start - first, 0), min(start + count - first, BLOCK))
        parts.append((draw(np.random.default_rng([seed, stream, block]), BLOCK), rows))
    return parts


def joined(parts: Sequence[tuple[Bounds, slice]]) -> Bounds:
    """Return the wanted rows of the boxes that `blocks` drew."""
    return Bounds(
        np.concatenate([part.low[rows] for part, rows in parts]),
        np.concatenate([part.high[rows] for part, rows in parts]),
    )


def refuse_negative(start: int, count: int) -> None:
    """Raise `ValueError` if `start` or `count` is negative."""
    if min(start, count) < 0:
        raise ValueError(f"start and count must not be negative, but they are {start} and {count}")


@dataclass(frozen=True)
class FileWorkload(Workload):
    """Given subscriptions and events in their order. After the last, both start again with the first."""

    given: Sequence[Source]
    rows: Sequence[Mapping[str, object]]

    @property
    def period(self) -> int:
        """Number of given events."""
        return len(self.rows)

    def subscriptions(self, start: int, count: int) -> list[Source]:
        """Return subscriptions `start` to `start + count`."""
        return [self.given[i % len(self.given)] for i in range(start, start + count)]

    def events(self, start: int, count: int) -> list[Mapping[str, object]]:
        """Return events `start` to `start + count`, as dicts."""
        return [self.rows[i % len(self.rows)] for i in range(start, start + count)]


def file_workload(
    name: str, schema: Schema, subscriptions: Sequence[Source], rows: Sequence[Mapping[str, object]]
) -> FileWorkload:
    """Make a workload of subscriptions and events that were read.

    Parameters
    ----------
    name : str
        Its name in reports.
    schema : Schema
        The attributes of the events.
    subscriptions : sequence of predicates
        Not empty; in any form that `EventFilter.subscribe` takes.
    rows : sequence of mappings
        Not empty; one event each.
    """
    return FileWorkload(name, schema, 0, subscriptions, rows)
