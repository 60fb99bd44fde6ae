"""The log of changes: what was added and removed, for replicas, routers and copies made aside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from rtfilter.dtypes import AnyArray, IntArray
from rtfilter.matchers.filters import Filters


class Change(NamedTuple):
    """A call that changed subscriptions. A replaced subscription is both removed and added.

    Where only a deadline or metadata were changed, nothing is removed or added. What is beyond its deadline
    is told as removed when that is done.
    """

    version: int
    """The version of the subscriptions after it: one more than before."""
    added: Filters
    """With ``ids``, int64 or object (n,), and ``predicates()``; see `rtfilter.matchers.filters.Filters`."""
    removed: AnyArray
    """int64 or object (m,): ids, known ones only."""
    handles: IntArray | None = None
    """int64 (k,): what stands inside for all ids that it is about; None where that are ids themselves."""


class Changes:
    """The changes since it was made, oldest first, until it is closed or forgotten.

    Iterating takes those that are there and then ends; it may be iterated again later. What is not taken is
    kept, and takes memory. Any thread may iterate. Who finds a gap in the versions, because an interrupt came
    while a change was taken, has to begin anew.

    Attributes
    ----------
    version : int
        The version of the subscriptions when it was made: that of its first change is one more.
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
        """Keep a change, once, however often it is told; False where nobody listens any more."""
        if self._closed:
            return False
        # An interrupt may come between these lines, and the change is then told again.
        last = self._changes[-1].version if self._changes else 0
        if change.version > max(last, self._told):
            self._changes.append(change)
        self._told = max(self._told, change.version)
        return True

    def close(self) -> None:
        """Listen no more; what is there can still be taken."""
        self._closed = True

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
