"""Copies made aside: what takes long is done on a copy, while others match and change.

All subscriptions are read in slices of a few milliseconds each. Changes made meanwhile are logged; what they
changed is read again, in rounds, each with less to do. The last few are read in the turn that ends the copy.
So nobody waits for longer than for a slice, and the copy is of one version. It has to begin anew where all
that was not yet read has moved: an index built aside has taken the place of the one that is read.
"""

from __future__ import annotations

import numpy as np

from rtfilter.changes import Changes
from rtfilter.dtypes import IntArray
from rtfilter.events.schema import Schema
from rtfilter.matchers.registry import Factory
from rtfilter.matching.gate import Gate
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.ids import NO_IDS
from rtfilter.subscriptions.slices import Part, places_of, read, renew, slices_of, take

FEW = 128
"""Subscriptions that are read again in one turn."""
ROUNDS = 16
"""Rounds after which the last turn takes all that is left, where changes are as fast as the copy."""


class MovedError(Exception):
    """Subscriptions moved while slices of them were read: more slices would lack some and repeat others."""


class Copy:
    """A copy of all subscriptions but some, newly built, by another matcher or of a larger schema if named.

    Raises `MovedError`.

    Attributes
    ----------
    content : Subscriptions
        Nobody else uses them.
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
        """Read again what was changed, until that is little."""
        while len(self._left) > FEW and self._rounds < ROUNDS:
            self._rounds += 1
            for first in range(0, len(self._left), FEW):
                ids = self._left[first : first + FEW]
                renew(self.content, ids, self._read(ids))
            self._left = _changed(self._changes)

    def complete(self) -> bool:
        """In a turn at the gate: be of the version of the source. False if for that too much has changed."""
        self._left = np.union1d(self._left, _changed(self._changes))
        if len(self._left) > FEW and self._rounds < ROUNDS:
            return False
        renew(self.content, self._left, read(self._source, self._left))
        self.content.follow(self._source)
        return True


def copied(gate: Gate, source: Subscriptions, of: Factory | None = None) -> Subscriptions:
    """A copy of all subscriptions at one version, newly built; see `Copy`. Raises `MovedError`."""
    copy = Copy(gate, source, of=of)
    while True:
        copy.catch_up()
        with gate.reading():
            if copy.complete():
                return copy.content


def _changed(changes: Changes) -> IntArray:
    """Ids that were added or removed since this was last asked, ascending."""
    lately = list(changes)
    none = np.empty(0, np.int64)
    handles = ((c.added.ids, c.removed) if c.handles is None else (c.handles,) for c in lately)
    return np.unique(np.concatenate([none, *(column for columns in handles for column in columns)]))
