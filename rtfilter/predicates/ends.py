"""Ends of bounds beyond 2**53, which no box tells: kept in columns, and held against many hits at once.

The box of such a bound ends at the nearest float64. As events are rounded in the same way it contains every
event that matches, and only one whose coordinate equals the end can be outside: there the rests decide
(`rtfilter.events.exact`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, FloatArray, IntArray


class Ends(NamedTuple):
    """k ends of closed bounds, each of at least 2**53 in size."""

    owners: IntArray
    """int64 (k,), ascending: ids of the subscriptions, or their rows among others."""
    sides: IntArray
    """int64 (k,): twice the coordinate; one more for a high end."""
    values: FloatArray
    """float64 (k,): the end of the box."""
    rests: IntArray
    """int64 (k,): the exact end less that of the box."""

    def take(self, places: IntArray | BoolArray) -> Ends:
        """Some of them, whose owners still ascend."""
        owners, sides, values, rests = self
        return Ends(owners[places], sides[places], values[places], rests[places])

    def owned_by(self, owners: IntArray) -> Ends:
        """The same with other owners, int64 (k,), in any order."""
        order = np.argsort(owners, kind="stable")
        return Ends(owners, *self[1:]).take(order)

    def of_row(self, row: int) -> Ends:
        """Those of one owner."""
        first, last = np.searchsorted(self.owners, [row, row + 1])
        return self.take(np.arange(first, last))


NO_ENDS = Ends(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))


class Held(NamedTuple):
    """Ends found for some ids."""

    at: IntArray
    """int64 (k,): place among the ids, for each end."""
    ends: Ends
    """Owners do not ascend."""


class _Run(NamedTuple):
    """Ends that came together."""

    ends: Ends
    alive: BoolArray
    """bool (k,): whether the owner has not been removed since."""


class EndStore:
    """Ends by id of subscription: sorted runs, of which a younger one is smaller (Bentley and Saxe).

    Many may look up at once; changes must run alone. One that was interrupted can be done again.
    """

    def __init__(self, ends: Ends = NO_ENDS) -> None:
        self._runs: tuple[_Run, ...] = ()
        self._dead = 0
        self.add(ends)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def add(self, ends: Ends) -> None:
        """Add ends whose owners are ids without any so far."""
        if not len(ends.owners):
            return
        young, older = [_Run(ends, np.ones(len(ends.owners), np.bool_))], list(self._runs)
        while older and sum(len(run.alive) for run in young) >= len(older[-1].alive):
            young.append(older.pop())
        self._runs = (*older, young[0] if len(young) == 1 else _joined(young))

    def remove(self, ids: IntArray) -> None:
        """Forget the ends of some ids, int64 (n,); others are ignored."""
        if not self._runs:
            return
        for run in self._runs:
            _, places = _places(run.ends.owners, ids)
            self._dead += int(run.alive[places].sum())
            run.alive[places] = False
        if 2 * self._dead > sum(len(run.alive) for run in self._runs):
            left = _joined(list(self._runs))
            self._runs, self._dead = ((left,) if len(left.alive) else ()), 0

    def find(self, ids: IntArray) -> Held:
        """Return the ends of ids, int64 (n,), in any order and with repetitions; some may have none."""
        found = []
        for run in self._runs:
            at, places = _places(run.ends.owners, ids)
            alive = run.alive[places]
            found.append(Held(at[alive], run.ends.take(places[alive])))
        if len(found) == 1:
            return found[0]
        nothing = Held(np.empty(0, np.int64), NO_ENDS)
        ends = zip(*(held.ends for held in (nothing, *found)), strict=True)
        return Held(np.concatenate([held.at for held in (nothing, *found)]), Ends(*map(np.concatenate, ends)))

    def of(self, ids: IntArray) -> Ends:
        """Return the ends of distinct ids, int64 (n,)."""
        ends = self.find(ids).ends
        return ends.owned_by(ends.owners)

    def to_arrays(self) -> dict[str, AnyArray]:
        """Return all ends; nothing where there are none."""
        if not self._runs:
            return {}
        return {f"end_{name}": column for name, column in _joined(list(self._runs)).ends._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, AnyArray]) -> EndStore:
        """Return the store that `to_arrays` described; other arrays are ignored."""
        if "end_owners" not in arrays:
            return cls()
        return cls(Ends(*(arrays[f"end_{name}"] for name in Ends._fields)))


def _joined(runs: list[_Run]) -> _Run:
    """Those of some runs that are alive, as one."""
    parts = [run.ends.take(run.alive) for run in runs]
    ends = Ends(*map(np.concatenate, zip(*parts, strict=True)))
    ends = ends.owned_by(ends.owners)
    return _Run(ends, np.ones(len(ends.owners), np.bool_))


def _places(owners: IntArray, ids: IntArray) -> tuple[IntArray, IntArray]:
    """For each end of one of the ids: the place of the id, and that of the end among ascending owners."""
    first = np.searchsorted(owners, ids)
    last = np.searchsorted(owners, ids, side="right")
    counts = last - first
    at = np.repeat(np.arange(len(ids)), counts)
    before = np.cumsum(counts) - counts
    return at, np.arange(len(at)) + np.repeat(first - before, counts)
