"""Subscriptions and events of which it is known how many match."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import FloatArray, IntArray
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.replay.workloads import BOXES, Bounds
from rtfilter.replay.workloads.random_boxes import NARROW_SIDE, TOP

SHIFT: Final = NARROW_SIDE // 16
"""The most that the boxes of a group are moved, in each attribute."""
_GROUPS, _EVENTS = 11, 12  # streams of random numbers


class Case(NamedTuple):
    """Subscriptions, and events for them.

    Attributes
    ----------
    schema : Schema
    boxes : Bounds
        Subscription i is user i modulo `users`'s.
    points : float64 (n, d)
        Events.
    users : int
    """

    schema: Schema
    boxes: Bounds
    points: FloatArray
    users: int

    @property
    def names(self) -> list[str]:
        """Of the attributes."""
        return list(self.schema.attributes)

    def user(self, row: int) -> str:
        """Return the user of a subscription."""
        return f"u{row % self.users}"

    def conditions(self, user: int) -> Iterator[str]:
        """Yield the subscriptions of one user, as SQL."""
        for low, high in zip(
            *(side[user :: self.users].astype(int).tolist() for side in self.boxes), strict=True
        ):
            ranges = zip(self.names, low, high, strict=True)
            yield " AND ".join(f"{name} BETWEEN {least} AND {most}" for name, least, most in ranges)

    def filter(self) -> EventFilter:
        """Return the subscriptions in this process."""
        made = EventFilter(self.schema, matcher="rtree")
        made.subscribe_boxes(*self.boxes)
        return made

    def objects(self, first: int, last: int) -> list[dict[str, int]]:
        """Return events as JSON has them."""
        names = self.names
        return [dict(zip(names, row, strict=True)) for row in self.points[first:last].astype(int).tolist()]

    def lines(self, first: int, last: int) -> bytes:
        """Return events as JSON lines."""
        return b"\n".join(
            json.dumps(one, separators=(",", ":")).encode() for one in self.objects(first, last)
        )

    def arrow(self, first: int, last: int) -> bytes:
        """Return events as a stream of Arrow's, whose columns are unsigned shorts."""
        import pyarrow as pa

        columns = self.points[first:last].astype(np.uint16).T
        batch = pa.record_batch([pa.array(one) for one in columns], names=self.names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        made: bytes = sink.getvalue().to_pybytes()
        return made

    def recipients(self) -> tuple[float, float]:
        """Return matches and deliveries of an event, as means over all events."""
        matches = self.filter().match_batch(self.points)
        events = np.repeat(np.arange(len(self.points)), matches.counts)
        pairs: IntArray = np.unique(events * self.users + matches.ids % self.users)
        return len(matches.ids) / len(self.points), len(pairs) / len(self.points)


def uniform(count: int, events: int, users: int = 1, seed: int = 1) -> Case:
    """Return a case of narrow boxes, and events anywhere: few match."""
    made = BOXES["narrow"](seed)
    return Case(made.schema, made.subscriptions(0, count), made.events(0, events), users)


def grouped(count: int, events: int, matches: int, users: int, seed: int = 1) -> Case:
    """Return a case of narrow boxes in groups of `matches`, and events within all boxes of a group.

    The boxes of a group are moved by at most `SHIFT` in each attribute. With ``matches=1``, boxes are as in
    `uniform`. An event matches now and then a box of another group, too.
    """
    made = BOXES["narrow"](seed)
    rng = np.random.default_rng([seed, _GROUPS, matches])
    places = made.subscriptions(0, -(-count // matches))
    moved = rng.integers(-SHIFT, SHIFT, (count, made.dimensions), endpoint=True) * (matches > 1)
    group = np.arange(count) // matches
    low, high = (np.clip(side[group] + moved, 0, TOP) for side in places)
    chosen = np.random.default_rng([seed, _EVENTS, matches]).integers(0, len(places.low), events)
    starts = np.arange(0, count, matches)
    least = np.maximum.reduceat(low, starts)[chosen]
    most = np.minimum.reduceat(high, starts)[chosen]
    points = np.floor(least + rng.random(least.shape) * (most - least + 1))
    return Case(made.schema, Bounds(low, high), points, users)
