"""Changes of subscriptions while others match: nobody waits for one for more than a few milliseconds.

A small change has the index alone, once. A large one goes one of two ways, and is seen all at once on both:

- in bits, between which others match and change. What is being added is hidden from results until all of it
  is there; what is removed is hidden from the first bit on.
- aside, where it is a large part of what will be there: all is built anew, and takes the place of what was.

One large change is made at a time. Small ones go on beside it, but for those of its ids, which wait. A large
one that is cut short changes nothing that can be seen, or all; what it left is hidden, and those who come
later remove it, each a bit. And where nearly all subscriptions were removed one by one, the last to go builds
the index anew aside, so that the system gets its memory back.

What is beyond its deadline is removed by others: each change removes some before it begins, twice as many as
it adds, so that they do not gather; and who has matched removes some, seldom, where nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.errors import PredicateError
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.registry import Factory
from rtfilter.matching.aside import Copy, MovedError, copied
from rtfilter.matching.gate import Gate, Writing
from rtfilter.matching.growing import LARGE
from rtfilter.matching.road import Road
from rtfilter.predicates.store import Kept
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.handles import ClaimedError
from rtfilter.subscriptions.ids import NO_IDS, Name
from rtfilter.subscriptions.labels import NO_LABELS, Beside

T = TypeVar("T")

AT_ONCE = 32
"""Boxes, or ids that are removed, that one turn may change: a large box takes some 0.1 ms, others 0.01."""
BIT = 32
"""The same of a large change, after which is looked whether the turn has lasted for `LONG`."""
EXPIRED = 8
"""Expired subscriptions that a small change removes besides, at most."""
LONG = 0.001
"""Seconds."""
KNOWN = 512
"""Ids that are looked up in one turn."""
REST = 0.001
"""Seconds of the clock of deadlines after which those who match remove some that are beyond theirs again."""
OVERDUE = 1.0
"""Seconds beyond a deadline after which who has matched removes some although others match."""
ASIDE = 4
"""A change is made aside where no more subscriptions are left than so many times those that it is about."""


class Updates:
    """The changes of the subscriptions that batches are matched with. Any thread may call any of these."""

    def __init__(self, road: Road) -> None:
        self._road, self._subscriptions = road, road.subscriptions
        self._large = Gate()  # one large change at a time
        self._rested = -inf  # the last time that a match removed expired subscriptions
        road.sweep = self.sweep

    def add(self, draft: Draft, ids: IntArray | list[Name] | None = None) -> AnyArray:
        """See `Subscriptions.add`."""
        if self._subscriptions.labels.names is not None:
            self._index_names()
        names = self._added(draft, ids)
        self._road.look()
        return names

    def _added(self, draft: Draft, ids: IntArray | list[Name] | None) -> AnyArray:
        if draft.filters.weight <= AT_ONCE:
            try:
                return self._add_at_once(draft, ids)
            except ClaimedError:
                pass
        growing = self._road.growing
        larger = LARGE if growing is not None and growing.moves_with(len(draft.filters)) else None
        with self.alone():
            self._clear()
            if draft.filters.weight <= AT_ONCE:
                return self._add_at_once(draft, ids)
            self._remove_passed(2 * len(draft.filters))
            grows = self._road.growing is not None and self._subscriptions.factory != larger
            return self._add(draft, ids, larger if grows else None)

    def remove(self, ids: IntArray | list[Name]) -> BoolArray:
        """See `Subscriptions.remove`."""
        if self._subscriptions.labels.names is not None:
            self._index_names()
        if len(ids) <= AT_ONCE:
            try:
                return self._remove_at_once(ids)
            except ClaimedError:
                pass
        with self.alone():
            self._clear()
            if len(ids) <= AT_ONCE:
                return self._remove_at_once(ids)
            return self._remove(ids, self._subscriptions.moment())

    def replace(self, id: object, draft: Draft | None, labels: Beside = NO_LABELS) -> None:
        """See `Subscriptions.replace`."""
        if self._subscriptions.labels.names is not None:
            self._index_names()
        try:
            self._replace_at_once(id, draft, labels)
        except ClaimedError:
            with self.alone():
                self._clear()
                self._replace_at_once(id, draft, labels)

    def sweep(self, moment: float) -> None:
        """For who has matched: remove some that are beyond their deadlines, if that holds up nobody.

        It may hold up others once they are overdue, but no stream, and it is left out within a batch.
        """
        deadlines = self._subscriptions.labels.deadlines
        if deadlines is None or moment < deadlines.earliest or 0 <= moment - self._rested < REST:
            return
        gate = self._road.gate
        if not gate.idle and (moment - deadlines.earliest < OVERDUE or gate.streams):
            return
        try:
            gate.require_free()
        except RuntimeError:
            return
        self._rested = moment
        with gate.writing():
            self._subscriptions.remove_passed(moment, EXPIRED)

    def repack(self, of: Factory | None = None) -> None:
        """Build everything anew, aside, by another matcher if one is named: then the filter stays with it."""
        with self.alone():
            self.put_in_place(Copy(self._road.gate, self._subscriptions, of=of))
            if of is not None:
                self._road.growing = None

    def extend(self, attributes: Mapping[str, Any]) -> None:
        """Build everything anew, aside, with further attributes; see `Schema.extended`."""
        with self.alone():
            schema = self._subscriptions.schema.extended(attributes)
            self.put_in_place(Copy(self._road.gate, self._subscriptions, schema=schema))

    def grow(self, of: Factory) -> None:
        """Build everything anew, aside, by another matcher, unless another change has done so."""
        with self.alone():
            if self._road.growing is not None and self._subscriptions.factory != of:
                self.put_in_place(Copy(self._road.gate, self._subscriptions, of=of))

    def copy(self, of: Factory | None = None) -> Subscriptions:
        """A copy of all at one version, newly built, by another matcher if one is named."""
        try:
            return copied(self._road.gate, self._subscriptions, of)
        except MovedError:
            with self.alone():  # only large changes move all
                return copied(self._road.gate, self._subscriptions, of)

    def _index_names(self) -> None:
        """Before the first change of what was loaded: beside batches, as it takes long for many names."""
        names = self._subscriptions.labels.names
        if names is not None and not names.indexed:
            self._look(names.by_id)

    def alone(self) -> Writing:
        """The turn to make a large change.

        `RuntimeError` where this thread is at the gate: another that has this turn may wait for it there.
        """
        self._road.gate.require_free()
        return self._large.writing()

    # -- at once ---------------------------------------------------------------------------------------------

    def _add_at_once(self, draft: Draft, ids: IntArray | list[Name] | None) -> AnyArray:
        held = self._subscriptions
        with self._road.gate.writing():
            moment = self._make_room(2 * len(draft.filters))
            names = held.add(draft, ids, moment)
        if len(held.claimed) or held.claimed_names:
            self._tidy(self._clear_bits)
        return names

    def _remove_at_once(self, ids: IntArray | list[Name]) -> BoolArray:
        held = self._subscriptions
        with self._road.gate.writing():
            known = held.remove(ids, self._make_room())
        if len(held.claimed) or held.claimed_names:
            self._tidy(self._clear_bits)
        elif held.adopting is not None and held.adopting.wasteful:
            self._tidy(self._build_anew)
        return known

    def _replace_at_once(self, id: object, draft: Draft | None, labels: Beside) -> None:
        with self._road.gate.writing():
            self._subscriptions.replace(id, draft, labels, self._make_room())

    def _make_room(self, most: int = EXPIRED) -> float:
        """Before a change, remove some that are beyond their deadlines; returns its moment."""
        held = self._subscriptions
        if held.labels.deadlines is None:
            return -inf
        moment = held.moment()
        held.remove_passed(moment, max(EXPIRED, most))
        return moment

    # -- large ones; only one thread at a time gets here -----------------------------------------------------

    def _add(self, draft: Draft, ids: IntArray | list[Name] | None, of: Factory | None) -> AnyArray:
        """Add many; with `of`, build all anew with this matcher."""
        count, labels, moment = len(draft.filters), draft.labels, self._subscriptions.moment()
        # To find these takes long, and they are kept.
        counted = self._subscriptions.matcher.takes.boxes and len(draft.filters.unbounded()) > 0
        if ids is None:
            handles: IntArray = self._claim(draft, moment, self._subscriptions.claim_next, count)
        else:
            self._renew(ids)
            if isinstance(ids, list):
                self._claim(draft, moment, self._subscriptions.claim_names, frozenset(ids), type(ids[0]))
                self._require_new(ids)
                handles = self._turn(self._subscriptions.claim_next, count)
                labels = labels._replace(names=ids)
            else:
                handles = ids
                self._claim(draft, moment, self._subscriptions.claim_new, np.sort(ids))
                self._require_new(ids)
        filters = draft.filters.named(handles)
        if counted:
            try:
                self._turn(self._subscriptions.promise, filters, moment)
            except PredicateError:  # others came meanwhile
                self._clear()
                raise
        if of is not None or self._builds_anew(len(self._subscriptions) + count, count):
            self._build_anew(filters, draft.predicates, labels, of=of)
        else:
            cuts, done = filters.cuts(BIT), 0
            while done < len(cuts) - 1:
                done = self._add_bits(filters, draft.predicates, labels, cuts, done)
            self._turn(self._subscriptions.show, filters)
        return handles if labels.names is None else np.array(labels.names, object)

    def _claim(self, draft: Draft, moment: float, step: Callable[..., T], *arguments: Any) -> T:
        """Claim something for new subscriptions; nothing, and no ids are lost, where they are too many."""

        def claim() -> T:
            self._subscriptions.admit(draft.filters, moment)
            return step(*arguments)

        return self._turn(claim)

    def _remove(self, ids: IntArray | list[Name], moment: float = -inf, passed: bool = False) -> BoolArray:
        """Remove those that are there at a moment; with `passed`, those that are beyond their deadlines."""
        held = self._subscriptions
        if isinstance(ids, list):
            self._turn(held.claim_names, frozenset(ids))
        step = KNOWN if isinstance(ids, list) else len(ids)
        found = [self._look(held.labels.handles, ids[row : row + step]) for row in range(0, len(ids), step)]
        handles = np.concatenate(found)
        removed = np.zeros(len(handles), np.bool_)
        wanted, first = np.unique(handles, return_index=True)
        self._turn(held.claim, wanted)
        slices = (wanted[row : row + KNOWN] for row in range(0, len(wanted), KNOWN))
        known = [self._look(held.gone if passed else held.known, handles, moment) for handles in slices]
        removed[first] = np.concatenate(known)
        gone = wanted[removed[first]]
        if len(gone) and self._builds_anew(len(held) - len(gone), len(gone)):
            self._build_anew(removed=gone)
        else:
            if len(gone):
                self._turn(held.hide, gone)
            self._clear()
        if passed:
            self._turn(held.count_expired, len(gone))
        return removed

    def _remove_passed(self, most: int) -> None:
        """Remove some that are beyond their deadlines, before a large change."""
        held, moment = self._subscriptions, self._subscriptions.moment()
        if held.labels.deadlines is None or moment < held.labels.deadlines.earliest:
            return
        ids = self._look(held.some_passed, moment, most)
        if len(ids):
            self._remove(ids, moment, passed=True)

    def _renew(self, ids: IntArray | list[Name]) -> None:
        """Remove those of new ids that are beyond their deadlines."""
        held, moment = self._subscriptions, self._subscriptions.moment()
        if held.labels.deadlines is None or moment < held.labels.deadlines.earliest:
            return
        gone: list[Any] = []
        for row in range(0, len(ids), KNOWN):
            part = ids[row : row + KNOWN]
            found = self._look(held.gone, held.labels.handles(part), moment).tolist()
            gone += [id for id, passed in zip(part, found, strict=True) if passed]
        if gone:
            self._remove(gone if isinstance(ids, list) else np.array(gone, np.int64), moment, passed=True)

    def _builds_anew(self, left: int, changed: int) -> bool:
        road = self._road
        changing = road.choosing is not None or road.growing is not None
        whole = self._subscriptions.adopting is not None or changing
        return whole and left <= ASIDE * changed

    def _build_anew(
        self,
        added: Filters | None = None,
        predicates: Sequence[Kept] | None = None,
        labels: Beside = NO_LABELS,
        removed: IntArray = NO_IDS,
        of: Factory | None = None,
    ) -> None:
        copy = Copy(self._road.gate, self._subscriptions, removed, of)
        if added is not None:
            copy.content.put(added.ids, added, predicates, labels)
        self.put_in_place(copy, added, removed)

    def put_in_place(self, copy: Copy, added: Filters | None = None, removed: IntArray = NO_IDS) -> None:
        """For who is `alone`: let a copy take the place of all. It has some more, and others no more."""
        if copy.content.labels.names is not None:
            copy.content.labels.names.by_id()  # changes will need this dict: make it before they wait
        while True:
            copy.catch_up()
            with self._road.gate.writing():
                if copy.complete():
                    self._subscriptions.adopt(copy.content, added, removed)
                    break
        if self._road.growing is not None and self._subscriptions.factory == LARGE:
            self._road.growing = None

    def _require_new(self, ids: IntArray | list[Name]) -> None:
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

    def _look(self, step: Callable[..., T], *arguments: Any) -> T:
        """Ask something about ids, beside batches."""
        with self._road.gate.reading():
            return step(*arguments)

    # -- bits ------------------------------------------------------------------------------------------------

    def _add_bits(
        self,
        filters: Filters,
        predicates: Sequence[Kept] | None,
        labels: Beside,
        cuts: Sequence[int],
        done: int,
    ) -> int:
        """Add some pieces, of which so many are done; how many are done then."""
        with self._road.gate.writing():
            begun = perf_counter()
            while True:
                rows = slice(cuts[done], cuts[done + 1])
                own = None if predicates is None else predicates[rows]
                piece = filters.piece(rows.start, rows.stop)
                self._subscriptions.add_hidden(piece, own, labels.piece(rows.start, rows.stop))
                done += 1
                if done == len(cuts) - 1 or perf_counter() - begun > LONG:
                    return done

    def _clear(self) -> None:
        """Remove what is hidden, and release what is claimed."""
        while len(self._subscriptions.claimed) or self._subscriptions.claimed_names:
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
            with self.alone():
                step()
