"""Copies made aside: what takes long is done on a copy, while others match and change.

All subscriptions are read in slices of a few milliseconds each. Changes made meanwhile are logged; what they
changed is read again, in rounds, each with less to do. The last few are read in the turn that ends the copy.
So nobody waits for longer than for a slice, and the copy is of one version.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rtfilter.changes import Changes
from rtfilter.dtypes import IntArray
from rtfilter.matching.gate import Gate
from rtfilter.subscriptions import Part, Subscriptions

FEW = 128
"""Subscriptions that are read again in the last turn."""
ROUNDS = 16
"""Rounds after which the last turn takes all that is left, where changes are as fast as the copy."""


def copied(gate: Gate, source: Subscriptions) -> Subscriptions:
    """A copy of all subscriptions at one version, newly built."""
    copy, left, changes = _nearly(gate, source)
    with gate.reading():
        _complete(copy, source, left, changes)
    return copy


def replaced(gate: Gate, source: Subscriptions, swap: Callable[[Subscriptions], None]) -> None:
    """Build all subscriptions anew, and call `swap` with the copy while nobody else uses `source`."""
    copy, left, changes = _nearly(gate, source)
    with gate.writing():
        _complete(copy, source, left, changes)
        swap(copy)


def _nearly(gate: Gate, source: Subscriptions) -> tuple[Subscriptions, IntArray, Changes]:
    """A copy that lacks what has changed lately, and what that is."""
    changes, slices = _begun(gate, source)
    parts = [_read(gate, source, part) for part in slices]
    left, copy = _changed(changes), source.empty()
    copy.take(parts, without=left)
    del parts  # as large as the copy
    for _ in range(ROUNDS):
        if len(left) <= FEW:
            break
        for first in range(0, len(left), FEW):
            ids = left[first : first + FEW]
            copy.renew(ids, _read(gate, source, ids))
        left = _changed(changes)
    return copy, left, changes


def _begun(gate: Gate, source: Subscriptions) -> tuple[Changes, list[range | IntArray]]:
    with gate.writing():
        return source.listen(), source.slices()


def _read(gate: Gate, source: Subscriptions, part: range | IntArray) -> Part:
    with gate.reading():
        return source.read(part)


def _complete(copy: Subscriptions, source: Subscriptions, left: IntArray, changes: Changes) -> None:
    last = np.union1d(left, _changed(changes))
    copy.renew(last, source.read(last))
    copy.follow(source)


def _changed(changes: Changes) -> IntArray:
    """Ids that were added or removed since this was last asked, ascending."""
    lately = list(changes)
    none = np.empty(0, np.int64)
    return np.unique(np.concatenate([none, *(c.added.ids for c in lately), *(c.removed for c in lately)]))
