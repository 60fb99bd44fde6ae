"""The log of changes: added and removed subscriptions, for replicas, routers and background copies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from rtfilter.basics.dtypes import AnyArray, IntArray
from rtfilter.matchers.filters import Filters


class Change(NamedTuple):
    """A call that changed subscriptions. A replaced subscription is both removed and added.

    If only an expiry or metadata changed, nothing is removed or added. An expired subscription is in
    `removed` of the change that removes it.
    """

    version: int
    """The version of the subscriptions after the change: one more than before."""
    added: Filters
    """The added ones: ``ids``, int64 or object (n,), and ``predicates()``; see `Filters`."""
    removed: AnyArray
    """int64 or object (m,): the ids that were known and are removed."""
    handles: IntArray | None = None
    """int64 (k,): the internal numbers of all ids of the change; None if ids are integers."""


class Changes:
    """The changes since this object was made, oldest first, until you close it or drop the last reference.

    An iteration yields the changes so far and then ends; you may iterate again later. Changes that you do not
    read take memory. Any thread may iterate. If you find a gap in the versions, which an interrupt during a
    change may cause, make a new object and copy all subscriptions again.

    Attributes
    ----------
    version : int
        The version of the subscriptions at the start; the first change has the next one.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._told = version
        self._closed = False
        self._changes: deque[Change] = deque()

    def __iter__(self) -> Iterator[Change]:
        while True:
            try:
                change = self._changes.popleft()
            except IndexError:
                return
            self._told = max(self._told, change.version)
            yield change

    def tell(self, change: Change) -> bool:
        """Append a change, unless it was appended before; return False once this is closed."""
        if self._closed:
            return False
        # An interrupt may come between these lines; the caller then appends the change again.
        last = self._changes[-1].version if self._changes else 0
        if change.version > max(last, self._told):
            self._changes.append(change)
        self._told = max(self._told, change.version)
        return True

    def close(self) -> None:
        """Stop collecting changes; the collected ones remain readable."""
        self._closed = True

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
