"""Copies of all subscriptions at one version, built while others match and change.

A copy reads all subscriptions in slices of a few milliseconds each. A log notes the subscriptions that change
meanwhile; the copy reads these again in rounds, each with fewer of them. The last few are read while changes
wait, which completes the copy. So nobody waits longer than for one slice. A copy has to begin again if
another copy replaced the index that it reads.
"""

from __future__ import annotations

import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.events.schema import Schema
from rtfilter.matchers.registry import Factory
from rtfilter.matching.gate import Gate
from rtfilter.subscriptions.change_log import Changes
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.ids import NO_IDS
from rtfilter.subscriptions.slices import Part, places_of, read, renew, slices_of, take

FEW = 128
"""Most subscriptions that the last step of a copy reads again."""
ROUNDS = 16
"""Rounds after which the last step reads all that is left: changes are then as fast as the copy."""


class MovedError(Exception):
    """Raised if the index was replaced while slices of it were read: further slices would not fit."""


class Copy:
    """A copy of all subscriptions but some, newly built, with another matcher or a larger schema if given.

    Only the maker of the copy uses its `content`. Raises `MovedError`.
    """

    def __init__(
        self,
        gate: Gate,
        source: Subscriptions,
        without: IntArray = NO_IDS,
        of: Factory | None = None,
        schema: Schema | None = None,
    ) -> None:
        self._gate, self._source = gate, source
        self._rounds = 0
        self._changes, slices, self._places = self._begin()
        parts = [self._read(part) for part in slices]
        self._left: IntArray = _changed(self._changes)
        self.content = source.empty(of, schema)
        take(self.content, parts, without=np.union1d(self._left, without))

    def _begin(self) -> tuple[Changes, list[range | IntArray], object]:
        with self._gate.writing():
            return self._source.listen(), slices_of(self._source), places_of(self._source)

    def _read(self, part: range | IntArray) -> Part:
        with self._gate.reading():
            if isinstance(part, range) and places_of(self._source) is not self._places:
                raise MovedError
            return read(self._source, part)

    def catch_up(self) -> None:
        """Read changed subscriptions again, in rounds, until few are left."""
        while len(self._left) > FEW and self._rounds < ROUNDS:
            self._rounds += 1
            for first in range(0, len(self._left), FEW):
                ids = self._left[first : first + FEW]
                renew(self.content, ids, self._read(ids))
            self._left = _changed(self._changes)

    def complete(self) -> bool:
        """Read the last changed subscriptions; the caller holds the gate, so that nothing else changes.

        Returns False, and the copy is not complete, if too many have changed.
        """
        self._left = np.union1d(self._left, _changed(self._changes))
        if len(self._left) > FEW and self._rounds < ROUNDS:
            return False
        renew(self.content, self._left, read(self._source, self._left))
        self.content.follow(self._source)
        return True


def copied(gate: Gate, source: Subscriptions, of: Factory | None = None) -> Subscriptions:
    """Return a newly built copy of all subscriptions at one version; see `Copy`. Raises `MovedError`."""
    copy = Copy(gate, source, of=of)
    while True:
        copy.catch_up()
        with gate.reading():
            if copy.complete():
                return copy.content


def _changed(changes: Changes) -> IntArray:
    """Return the handles that were added or removed since the last call, ascending."""
    lately = list(changes)
    none = np.empty(0, np.int64)
    handles = ((c.added.ids, c.removed) if c.handles is None else (c.handles,) for c in lately)
    return np.unique(np.concatenate([none, *(column for columns in handles for column in columns)]))
