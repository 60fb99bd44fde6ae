"""Exact ends of bounds from 2**53 on, which boxes cannot hold: columns for exact checks of many candidates.

The box of such a bound ends at the nearest float64. Events are rounded in the same way, so it contains every
event that matches. Only an event whose coordinate equals the end can be outside: there the rests decide
(`rtfilter.events.table.rests`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, FloatArray, IntArray

DENSE: Final = 4
"""Numbers between the first and the last id, for each end, up to which a table is worth its memory."""


class Ends(NamedTuple):
    """k ends of closed bounds, each of at least 2**53 in size."""

    owners: IntArray
    """int64 (k,), ascending: ids of the subscriptions, or their rows among others."""
    sides: IntArray
    """int64 (k,): twice the coordinate; one more for a high end."""
    values: FloatArray
    """float64 (k,): the end of the box."""
    rests: IntArray
    """int64 (k,): the exact end minus the end of the box."""

    def take(self, places: IntArray | BoolArray | slice) -> Ends:
        """Return some of the ends; their owners must still ascend."""
        owners, sides, values, rests = self
        return Ends(owners[places], sides[places], values[places], rests[places])

    def owned_by(self, owners: IntArray) -> Ends:
        """Return the same ends with other owners, int64 (k,), in any order."""
        order = np.argsort(owners, kind="stable")
        return Ends(owners, *self[1:]).take(order)

    def of_row(self, row: int) -> Ends:
        """Return the ends of one owner."""
        first, last = np.searchsorted(self.owners, [row, row + 1])
        return self.take(np.arange(first, last))


NO_ENDS = Ends(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))


class FoundEnds(NamedTuple):
    """Ends of some ids."""

    at: IntArray
    """int64 (k,): place among the ids, for each end."""
    places: IntArray
    """int64 (k,): place among `ends`."""
    ends: Ends


class _Run:
    """Ends that were added together, and whether their owners have been removed since."""

    def __init__(self, ends: Ends) -> None:
        owners = ends.owners
        self.ends, self.alive = ends, np.ones(len(owners), np.bool_)
        self.first = int(owners[0]) if len(owners) else 0
        span = int(owners[-1]) - self.first + 1 if len(owners) else 0
        # If ids are dense, a table of their places is faster than a search.
        dense = span <= DENSE * len(owners)
        self.starts = np.searchsorted(owners, self.first + np.arange(span + 1)) if dense else None

    def find(self, ids: IntArray) -> FoundEnds:
        """Return the ends of some ids, alive or not."""
        if self.starts is None:
            start = np.searchsorted(self.ends.owners, ids)
            counts = np.searchsorted(self.ends.owners, ids, side="right") - start
        else:
            slot = ids - self.first
            inside = (slot >= 0) & (slot < len(self.starts) - 1)
            slot = np.where(inside, slot, 0)
            start = self.starts[slot]
            counts = np.where(inside, self.starts[slot + 1] - start, 0)
        at = np.repeat(np.arange(len(ids)), counts)
        before = np.cumsum(counts) - counts
        return FoundEnds(at, np.arange(len(at)) + np.repeat(start - before, counts), self.ends)


class EndStore:
    """Ends by id of subscription, in sorted runs; younger runs are smaller (Bentley and Saxe).

    Threads may look up at the same time; a change must run alone. An interrupted change can be repeated.
    """

    def __init__(self, ends: Ends = NO_ENDS) -> None:
        self._runs: tuple[_Run, ...] = ()
        self._dead = 0  # at least as many ends have lost their owners
        self.add(ends)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, ends: Ends) -> None:
        """Add ends whose owners are ids without any so far."""
        if not len(ends.owners):
            return
        young, older = [_Run(ends)], list(self._runs)
        while older and sum(len(run.alive) for run in young) >= len(older[-1].alive):
            young.append(older.pop())
        self._runs = (*older, young[0] if len(young) == 1 else _Run(_joined(young)))

    def remove(self, ids: IntArray) -> None:
        """Remove the ends of some ids, int64 (n,); unknown ones are ignored."""
        if not self._runs:
            return
        for run in self._runs:
            places = run.find(ids).places
            self._dead += int(run.alive[places].sum())
            run.alive[places] = False
        if 2 * self._dead > sum(len(run.alive) for run in self._runs):
            left = _joined(self._runs)
            self._runs, self._dead = ((_Run(left),) if len(left.owners) else ()), 0

    def find(self, ids: IntArray) -> list[FoundEnds]:
        """Return the ends of ids, int64 (n,), in any order and with repetitions; some may have none."""
        found = [run.find(ids) for run in self._runs]
        if not self._dead:
            return found
        alive = [run.alive[own.places] for run, own in zip(self._runs, found, strict=True)]
        return [
            FoundEnds(own.at[kept], own.places[kept], own.ends)
            for own, kept in zip(found, alive, strict=True)
        ]

    def of(self, ids: IntArray) -> Ends:
        """Return the ends of distinct ids, int64 (n,)."""
        return _together([own.ends.take(own.places) for own in self.find(ids)])

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return all ends as arrays by name; none if there are no ends."""
        if not self._runs:
            return {}
        return {f"end_{name}": column for name, column in _joined(self._runs)._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> EndStore:
        """Return the store of `to_arrays`; other arrays are ignored."""
        if "end_owners" not in arrays:
            return cls()
        return cls(Ends(*(arrays[f"end_{name}"] for name in Ends._fields)))


def _joined(runs: Sequence[_Run]) -> Ends:
    """Return the ends of some runs that are alive."""
    return _together([run.ends.take(run.alive) for run in runs])


def _together(parts: list[Ends]) -> Ends:
    columns = zip(NO_ENDS, *parts, strict=True)
    ends = Ends(*map(np.concatenate, columns))
    return ends.owned_by(ends.owners)
