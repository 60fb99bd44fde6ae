"""Changes of subscriptions while others match: nobody waits for one for more than a few milliseconds.

A small change has the index alone, once. A large one goes one of two ways, and is seen all at once on both:

- in bits, between which others match and change. What is being added is hidden from results until all of it
  is there; what is removed is hidden from the first bit on.
- aside, where it is a large part of what will be there: all is built anew, and takes the place of what was.

One large change is made at a time. Small ones go on beside it, but for those of its ids, which wait. A large
one that is cut short changes nothing that can be seen, or all; what it left is hidden, and those who come
later remove it, each a bit. And where nearly all subscriptions were removed one by one, the last to go builds
the index anew aside, so that the system gets its memory back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.dtypes import BoolArray, IntArray
from rtfilter.errors import PredicateError
from rtfilter.matchers.filters import Filters
from rtfilter.matching.aside import Copy, MovedError, copied
from rtfilter.matching.gate import Gate, Writing
from rtfilter.matching.road import Road
from rtfilter.predicates.store import Kept
from rtfilter.subscriptions.content import ClaimedError, Draft, Subscriptions
from rtfilter.subscriptions.ids import NO_IDS, distinct_ids

T = TypeVar("T")

AT_ONCE = 32
"""Boxes, or ids that are removed, that one turn may change: a large box takes some 0.1 ms, others 0.01."""
BIT = 8
"""The same, after which is looked whether the turn has lasted for `LONG`."""
LONG = 0.001
"""Seconds."""
KNOWN = 512
"""Ids that are looked up in one turn."""
ASIDE = 4
"""A change is made aside where no more subscriptions are left than so many times those that it is about."""


class Updates:
    """The changes of the subscriptions that batches are matched with. Any thread may call any of these."""

    def __init__(self, road: Road) -> None:
        self._road, self._subscriptions = road, road.subscriptions
        self._large = Gate()  # whose turn it is to make a large change

    def add(self, draft: Draft, ids: ArrayLike | None = None) -> IntArray:
        """See `Subscriptions.add`."""
        if draft.filters.weight <= AT_ONCE:
            try:
                return self._add_at_once(draft, ids)
            except ClaimedError:
                pass
        with self._alone():
            self._clear()
            if draft.filters.weight <= AT_ONCE:
                return self._add_at_once(draft, ids)
            return self._add(draft, ids)

    def remove(self, ids: IntArray) -> BoolArray:
        """See `Subscriptions.remove`."""
        if len(ids) <= AT_ONCE:
            try:
                return self._remove_at_once(ids)
            except ClaimedError:
                pass
        with self._alone():
            self._clear()
            return self._remove_at_once(ids) if len(ids) <= AT_ONCE else self._remove(ids)

    def replace(self, id: int, draft: Draft) -> None:
        """See `Subscriptions.replace`."""
        try:
            self._replace_at_once(id, draft)
        except ClaimedError:
            with self._alone():
                self._clear()
                self._replace_at_once(id, draft)

    def repack(self) -> None:
        """Build everything anew, aside. For a matcher that is `Adopting`."""
        with self._alone():
            self._build_anew()

    def copy(self) -> Subscriptions:
        """A copy of all at one version, newly built."""
        try:
            return copied(self._road.gate, self._subscriptions)
        except MovedError:
            with self._alone():  # only large changes move all
                return copied(self._road.gate, self._subscriptions)

    def _alone(self) -> Writing:
        """The turn to make a large change.

        `RuntimeError` where this thread is at the gate: another that has this turn may wait for it there.
        """
        self._road.gate.require_free()
        return self._large.writing()

    # -- at once ---------------------------------------------------------------------------------------------

    def _add_at_once(self, draft: Draft, ids: ArrayLike | None) -> IntArray:
        with self._road.gate.writing():
            names = self._subscriptions.add(draft, ids)
        if len(self._subscriptions.claimed):
            self._tidy(self._clear_bits)
        return names

    def _remove_at_once(self, ids: IntArray) -> BoolArray:
        with self._road.gate.writing():
            known = self._subscriptions.remove(ids)
        if len(self._subscriptions.claimed):
            self._tidy(self._clear_bits)
        elif self._subscriptions.adopting is not None and self._subscriptions.adopting.wasteful:
            self._tidy(self._build_anew)
        return known

    def _replace_at_once(self, id: int, draft: Draft) -> None:
        with self._road.gate.writing():
            self._subscriptions.replace(id, draft)

    # -- large ones; only one thread at a time gets here -----------------------------------------------------

    def _add(self, draft: Draft, ids: ArrayLike | None) -> IntArray:
        count = len(draft.filters)
        counted = self._subscriptions.matcher.takes.boxes and len(draft.filters.unbounded()) > 0
        if counted:
            self._turn(self._subscriptions.admit, draft.filters)  # before ids are given out
        if ids is None:
            names = self._turn(self._subscriptions.claim_next, count)
        else:
            names = distinct_ids(ids, count)
            self._turn(self._subscriptions.claim_new, np.sort(names))
            self._require_new(names)
        filters = draft.filters.named(names)
        if counted:
            try:
                self._turn(self._subscriptions.promise, filters)
            except PredicateError:  # others came meanwhile
                self._clear()
                raise
        if self._builds_anew(len(self._subscriptions) + count, count):
            self._build_anew(filters, draft.predicates)
            return names
        cuts, done = filters.cuts(BIT), 0
        while done < len(cuts) - 1:
            done = self._add_bits(filters, draft.predicates, cuts, done)
        self._turn(self._subscriptions.show, filters)
        return names

    def _remove(self, ids: IntArray) -> BoolArray:
        removed = np.zeros(len(ids), np.bool_)
        wanted, first = np.unique(ids, return_index=True)
        self._turn(self._subscriptions.claim, wanted)
        slices = (wanted[row : row + KNOWN] for row in range(0, len(wanted), KNOWN))
        known = [self._look(self._subscriptions.known, ids) for ids in slices]
        removed[first] = np.concatenate(known)
        gone = wanted[removed[first]]
        if len(gone) and self._builds_anew(len(self._subscriptions) - len(gone), len(gone)):
            self._build_anew(removed=gone)
        else:
            if len(gone):
                self._turn(self._subscriptions.hide, gone)
            self._clear()
        return removed

    def _builds_anew(self, left: int, changed: int) -> bool:
        return self._subscriptions.adopting is not None and left <= ASIDE * changed

    def _build_anew(
        self,
        added: Filters | None = None,
        predicates: Sequence[Kept] | None = None,
        removed: IntArray = NO_IDS,
    ) -> None:
        copy = Copy(self._road.gate, self._subscriptions, removed)
        if added is not None:
            copy.content.put(added.ids, added, predicates)
        while True:
            copy.catch_up()
            with self._road.gate.writing():
                if copy.complete():
                    self._subscriptions.adopt(copy.content, added, removed)
                    return

    def _require_new(self, ids: IntArray) -> None:
        try:
            for row in range(0, len(ids), KNOWN):
                self._look(self._subscriptions.require_new, ids[row : row + KNOWN])
        except ValueError:
            self._clear()
            raise

    def _turn(self, step: Callable[..., T], *arguments: Any) -> T:
        """Take a step of a large change alone."""
        with self._road.gate.writing():
            return step(*arguments)

    def _look(self, step: Callable[[IntArray], T], ids: IntArray) -> T:
        """Ask something about ids, beside batches."""
        with self._road.gate.reading():
            return step(ids)

    # -- bits ------------------------------------------------------------------------------------------------

    def _add_bits(
        self, filters: Filters, predicates: Sequence[Kept] | None, cuts: Sequence[int], done: int
    ) -> int:
        """Add some pieces, of which so many are done; how many are done then."""
        with self._road.gate.writing():
            begun = perf_counter()
            while True:
                rows = slice(cuts[done], cuts[done + 1])
                own = None if predicates is None else predicates[rows]
                self._subscriptions.add_hidden(filters.piece(rows.start, rows.stop), own)
                done += 1
                if done == len(cuts) - 1 or perf_counter() - begun > LONG:
                    return done

    def _clear(self) -> None:
        """Remove what is hidden, and release what is claimed."""
        while len(self._subscriptions.claimed):
            self._clear_bits()

    def _clear_bits(self) -> None:
        with self._road.gate.writing():
            begun = perf_counter()
            while len(self._subscriptions.hidden):
                self._subscriptions.remove_hidden(BIT)
                if perf_counter() - begun > LONG:
                    return
            self._subscriptions.release()

    def _tidy(self, step: Callable[[], None]) -> None:
        """Put in order what others left: what a change hid that was cut short, or memory."""
        if not self._large.changing:
            with self._alone():
                step()
