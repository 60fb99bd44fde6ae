"""Vectors of 0, 1 and ``*`` in machine words: one instruction compares 64 attributes of a subscription.

Mohapatra et al. survey trees for such vectors; this method suits today's processors better. A subscription
could be two words for 64 attributes, a mask and a value, and match if the event differs from the value in no
bit of the mask. Here it is two other words with the same information: the attributes that refuse a 0, and
those that refuse a 1. Two more such words are for absent attributes and values of another type; an event
without these never reads them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rtfilter.basics.dtypes import BoolArray, IntArray
from rtfilter.basics.results import Hits
from rtfilter.events.encoding import ALIEN, MISSING
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.matchers.papers.eventwise import PredicateMatcher
from rtfilter.matchers.papers.ternary import STATES, TAKES, Vectors
from rtfilter.predicates.model.constraints import Filter

WordArray = NDArray[np.uint64]
FREE: Final = -1
"""Marks a row that holds no filter."""
ROOM: Final = 64
"""Rows of an empty matcher."""
_COORDINATES: Final = (0.0, 1.0, MISSING, ALIEN)
"""Coordinates of the states, in their order."""


class TernaryVectorsMatcher(PredicateMatcher):
    """Compares an event with all subscriptions at once, word by word; subscriptions that differ are dropped.

    It is faster than trees that must follow many stars, up to some 100,000 subscriptions; its work grows with
    their number. It takes booleans with all their operators.

    Notes
    -----
    Visits are compared words. With n filters that is n for the first 64 attributes that are 0 in an event,
    and for each further word the number of remaining filters.
    """

    takes = TAKES
    unit = "words"

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._vectors = Vectors(schema)
        self._columns = [schema.offsets[name] for name in self._vectors.names]
        self._words: WordArray = np.zeros((len(STATES) * -(-len(self._vectors) // 64), ROOM), np.uint64)
        self._ids: IntArray = np.full(ROOM, FREE)
        self._free = list(range(ROOM))[::-1]
        self._used = 0  # no row from here on was ever used
        self._rows: dict[int, list[int]] = {}  # of each id
        self._several = False  # True if any id has several rows

    def _insert(self, id: int, filter: Filter) -> None:
        """Add a filter to a free row; it is found once its id is there."""
        cells = self._vectors.of_filter(filter)
        if cells is None:
            return
        if not self._free:
            self._grow()
        row = self._free.pop()
        rows = self._rows.setdefault(id, [])
        rows.append(row)
        self._several |= len(rows) > 1
        self._words[:, row] = _refusing(np.frombuffer(cells, np.uint8))
        self._used = max(self._used, row + 1)
        self._ids[row] = id

    def _grow(self) -> None:
        rows = len(self._ids)
        self._words = np.concatenate([self._words, np.zeros_like(self._words)], axis=1)
        self._ids = np.concatenate([self._ids, np.full(rows, FREE)])
        # Rows that an interrupt lost become free again.
        self._free = np.flatnonzero(self._ids == FREE)[::-1].tolist()

    def _delete(self, id: int, filter: Filter) -> None:
        """Remove all filters of the subscription, at its first one."""
        for row in self._rows.get(id, ()):
            self._ids[row] = FREE
            self._words[:, row] = ~np.uint64(0)  # from here on it matches nothing
        self._free += self._rows.pop(id, [])

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Matcher`. If few filters are left, they move together."""
        known = super().remove(ids)
        if self._used > ROOM and 4 * int((self._ids[: self._used] != FREE).sum()) < self._used:
            fresh = type(self)(self._schema)
            fresh.add(self.content())
            fresh._updates = self._updates
            self.__dict__.update(fresh.__dict__)
        return known

    def match(self, events: EventTable) -> Hits:
        """See `Matcher`; visits are words compared."""
        offsets, compared = np.zeros(len(events) + 1, np.int64), np.zeros(len(events), np.int64)
        parts: list[IntArray] = [np.empty(0, np.int64)]
        for event, words in enumerate(self._states(events)):
            ids, compared[event] = self._find(words)
            parts.append(ids)
            offsets[event + 1] = offsets[event] + len(ids)
        return Hits(offsets, np.concatenate(parts), None, compared)

    def _states(self, events: EventTable) -> WordArray:
        """Return the words of each event, (n, w): the attributes that have a state, state after state."""
        points = events.points[:, self._columns]
        return np.concatenate([_packed(points == coordinate) for coordinate in _COORDINATES], axis=1)

    def _find(self, event: WordArray) -> tuple[IntArray, int]:
        """Return the ids that match an event given as words, and how many words were compared."""
        rows, compared = np.arange(self._used) if not event.any() else None, 0
        for column, word in zip(self._words, event, strict=True):
            if not word:
                continue
            if rows is None:
                compared += self._used
                rows = np.flatnonzero((column[: self._used] & word) == 0)
            else:
                compared += len(rows)
                rows = rows[(column[rows] & word) == 0]
        ids = self._ids[rows]
        ids = ids[ids != FREE]
        return np.unique(ids) if self._several else ids, compared

    def details(self) -> dict[str, Any]:
        """Return the number of rows, and their memory."""
        return {"rows": self._used, "bytes": self._words.nbytes + self._ids.nbytes}


def _refusing(cells: NDArray[np.uint8]) -> WordArray:
    """Return the words of a filter, (w,): the attributes that refuse a state, state after state."""
    return np.concatenate([_packed((cells & state) == 0) for state in STATES])


def _packed(flags: BoolArray) -> WordArray:
    """Pack flags along the last axis into words."""
    width = flags.shape[-1]
    padding = [(0, 0)] * (flags.ndim - 1) + [(0, -width % 64)]
    packed = np.packbits(np.pad(flags, padding), axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view(np.uint64)
