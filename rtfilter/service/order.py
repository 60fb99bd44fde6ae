"""Events of one key in published order, though their matches become known in another."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from rtfilter.dtypes import IntArray


class Turns:
    """The order of the events of a batch. Batches follow each other, so nothing else needs to wait.

    Parameters
    ----------
    keys : sequence (n,)
        The key of each event; None for an event without one, which waits for no other.
    """

    def __init__(self, keys: Sequence[Any]) -> None:
        self._keys = keys
        self._rows: defaultdict[Any, deque[int]] = defaultdict(deque)
        for row, key in enumerate(keys):
            if key is not None:
                self._rows[key].append(row)
        self._done: dict[int, IntArray] = {}

    def key(self, row: int) -> Any:
        """Return the key of an event, or None."""
        return self._keys[row]

    def done(self, row: int, found: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Add the matches of an event; yield the rows that are next in order, with their matches."""
        key = self._keys[row]
        if key is None:
            yield row, found
            return
        self._done[row] = found
        rows = self._rows[key]
        while rows and rows[0] in self._done:
            first = rows.popleft()
            yield first, self._done.pop(first)
