"""Changes of subscriptions while others match: nobody waits for a change for more than a few milliseconds.

A small change has the index alone, once. A large change becomes visible at once, in one of two ways:

- in pieces, between which others match and change. Added subscriptions stay hidden from results until all are
  added; removed ones are hidden from the first piece on.
- by a copy, if the change is a large part of the result: the copy is built, and then replaces the index.

There is one large change at a time. Small changes go on meanwhile; changes of its own ids wait. A large
change that is interrupted is visible as a whole or not at all. It leaves only hidden subscriptions, which
later changes remove in pieces. If nearly all subscriptions were removed one by one, the last removal builds
the index again by a copy, which frees memory.

Expired subscriptions are removed by other calls: each change first removes up to twice as many as it adds, so
that they do not accumulate. A thread that has matched also removes some, rarely, if nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.basics.errors import PredicateError
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.registry import Factory
from rtfilter.matching.copies import Copy, MovedError, copied
from rtfilter.matching.gate import Gate, Writing
from rtfilter.matching.growing import LARGE
from rtfilter.matching.road import Road
from rtfilter.subscriptions.content import Subscriptions
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.handles import ClaimedError
from rtfilter.subscriptions.ids import NO_IDS, Name
from rtfilter.subscriptions.labels import NO_LABELS, LabelColumns

T = TypeVar("T")

AT_ONCE = 32
"""Boxes, or removed ids, that a small change may have: a large box takes about 0.1 ms, others 0.01."""
BIT = 32
"""Boxes of a large change after which the time is compared with `LONG`."""
EXPIRED = 8
"""Most expired subscriptions that a small change also removes."""
LONG = 0.001
"""Seconds that a large change has the index alone at a time."""
KNOWN = 512
"""Ids that one step looks up."""
REST = 0.001
"""Seconds of the filter's clock between two removals of expired subscriptions by threads that match."""
OVERDUE = 1.0
"""Seconds after an expiry from which a thread that has matched removes it although others match."""
ASIDE = 4
"""A change builds a copy if at most this many times the changed subscriptions are left."""


class Updates:
    """The changes of the subscriptions that batches are matched with. All methods are safe for threads."""

    def __init__(self, road: Road) -> None:
        self._road, self._subscriptions = road, road.subscriptions
        self._large = Gate()  # one large change at a time
        self._rested = -inf  # the last time that a thread that matched removed expired subscriptions
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
            for _ in range(0, 2 * len(draft.filters), AT_ONCE):
                if not self._some_expired():
                    break
                self._alone_with_index(self._make_room, AT_ONCE)
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

    def replace(self, id: object, draft: Draft | None, labels: LabelColumns = NO_LABELS) -> None:
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
        """Remove some expired subscriptions after a match, if that delays nobody.

        Once they are overdue it may delay other batches, but no stream. Within a batch it does nothing.
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
        """Build the index again by a copy; with `of`, by another matcher, which the filter then keeps."""
        with self.alone():
            self.put_in_place(Copy(self._road.gate, self._subscriptions, of=of))
            if of is not None:
                self._road.growing = None

    def extend(self, attributes: Mapping[str, Any]) -> None:
        """Build the index again by a copy with further attributes; see `Schema.extended`."""
        with self.alone():
            schema = self._subscriptions.schema.extended(attributes)
            self.put_in_place(Copy(self._road.gate, self._subscriptions, schema=schema))

    def grow(self, of: Factory) -> None:
        """Build the index again by a copy with another matcher, unless another change has done so."""
        with self.alone():
            if self._road.growing is not None and self._subscriptions.factory != of:
                self.put_in_place(Copy(self._road.gate, self._subscriptions, of=of))

    def copy(self, of: Factory | None = None) -> Subscriptions:
        """Return a newly built copy of all subscriptions at one version; `of` names another matcher."""
        try:
            return copied(self._road.gate, self._subscriptions, of)
        except MovedError:
            with self.alone():  # only large changes move all subscriptions
                return copied(self._road.gate, self._subscriptions, of)

    def _index_names(self) -> None:
        """Make the dict of names before the first change after a load, while batches go on.

        It takes long for many names.
        """
        names = self._subscriptions.labels.names
        if names is not None and not names.indexed:
            self._read(names.by_id)

    def alone(self) -> Writing:
        """Return a context manager that lets this thread alone make a large change.

        Raises `RuntimeError` if this thread runs a batch or a change: the present large change may wait for
        it.
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
            self._tidy(self._clear_pieces)
        return names

    def _remove_at_once(self, ids: IntArray | list[Name]) -> BoolArray:
        held = self._subscriptions
        with self._road.gate.writing():
            known = held.remove(ids, self._make_room())
        if len(held.claimed) or held.claimed_names:
            self._tidy(self._clear_pieces)
        elif held.adopting is not None and held.adopting.wasteful:
            self._tidy(self._build_anew)
        return known

    def _replace_at_once(self, id: object, draft: Draft | None, labels: LabelColumns) -> None:
        with self._road.gate.writing():
            self._subscriptions.replace(id, draft, labels, self._make_room())

    def _make_room(self, most: int = EXPIRED) -> float:
        """Remove some expired subscriptions before a change; return the moment of the change."""
        held = self._subscriptions
        if held.labels.deadlines is None:
            return -inf
        moment = held.moment()
        held.remove_passed(moment, max(EXPIRED, most))
        return moment

    # -- large changes, by one thread at a time --------------------------------------------------------------

    def _add(self, draft: Draft, ids: IntArray | list[Name] | None, of: Factory | None) -> AnyArray:
        """Add many subscriptions; with `of`, build the index again with this matcher."""
        count, moment = len(draft.filters), self._subscriptions.moment()
        # Found before the change, because it takes long; the result is cached.
        counted = self._subscriptions.matcher.takes.boxes and len(draft.filters.unbounded()) > 0
        if ids is None:
            handles: IntArray = self._claim(draft, moment, self._subscriptions.claim_next, count)
        else:
            self._renew(ids)
            if isinstance(ids, list):
                self._claim(draft, moment, self._subscriptions.claim_names, frozenset(ids), type(ids[0]))
                self._require_new(ids)
                handles = self._alone_with_index(self._subscriptions.claim_next, count)
                draft = draft._replace(labels=draft.labels._replace(names=ids))
            else:
                handles = ids
                self._claim(draft, moment, self._subscriptions.claim_new, np.sort(ids))
                self._require_new(ids)
        draft = draft._replace(filters=draft.filters.named(handles))
        if counted:
            try:
                self._alone_with_index(self._subscriptions.promise, draft.filters, moment)
            except PredicateError:  # another change added some meanwhile
                self._clear()
                raise
        if of is not None or self._builds_anew(len(self._subscriptions) + count, count):
            self._build_anew(draft, of=of)
        else:
            cuts, done = draft.filters.cuts(BIT), 0
            while done < len(cuts) - 1:
                done = self._add_pieces(draft, cuts, done)
            self._alone_with_index(self._subscriptions.show, draft.filters)
        names = draft.labels.names
        return handles if names is None else np.array(names, object)

    def _claim(self, draft: Draft, moment: float, step: Callable[..., T], *arguments: Any) -> T:
        """Claim ids for new subscriptions, unless too many are unbounded: then nothing is claimed."""

        def claim() -> T:
            self._subscriptions.admit(draft.filters, moment)
            return step(*arguments)

        return self._alone_with_index(claim)

    def _remove(self, ids: IntArray | list[Name], moment: float) -> BoolArray:
        """Remove the subscriptions that exist at a moment."""
        held = self._subscriptions
        if isinstance(ids, list):
            self._alone_with_index(held.claim_names, frozenset(ids))
        step = KNOWN if isinstance(ids, list) else len(ids)
        found = [self._read(held.labels.handles, ids[row : row + step]) for row in range(0, len(ids), step)]
        handles = np.concatenate(found)
        removed = np.zeros(len(handles), np.bool_)
        wanted, first = np.unique(handles, return_index=True)
        self._alone_with_index(held.claim, wanted)
        slices = (wanted[row : row + KNOWN] for row in range(0, len(wanted), KNOWN))
        removed[first] = np.concatenate([self._read(held.known, handles, moment) for handles in slices])
        gone = wanted[removed[first]]
        if len(gone) and self._builds_anew(len(held) - len(gone), len(gone)):
            self._build_anew(removed=gone)
        else:
            if len(gone):
                self._alone_with_index(held.hide, gone)
            self._clear()
        return removed

    def _some_expired(self) -> bool:
        deadlines = self._subscriptions.labels.deadlines
        return deadlines is not None and self._subscriptions.moment() >= deadlines.earliest

    def _renew(self, ids: IntArray | list[Name]) -> None:
        """Remove the expired subscriptions among some new ids, so that their ids are free."""
        if not self._some_expired():
            return
        held, moment = self._subscriptions, self._subscriptions.moment()
        for row in range(0, len(ids), KNOWN):
            part = ids[row : row + KNOWN]
            passed = self._read(held.labels.passed, held.labels.handles(part), moment)
            if passed is not None and passed.any():
                for at in range(0, len(part), AT_ONCE):
                    self._alone_with_index(held.renew, part[at : at + AT_ONCE], moment)

    def _builds_anew(self, left: int, changed: int) -> bool:
        road = self._road
        changing = road.choosing is not None or road.growing is not None
        whole = self._subscriptions.adopting is not None or changing
        return whole and left <= ASIDE * changed

    def _build_anew(
        self, added: Draft | None = None, removed: IntArray = NO_IDS, of: Factory | None = None
    ) -> None:
        copy = Copy(self._road.gate, self._subscriptions, removed, of)
        if added is not None:
            copy.content.put(added.filters.ids, added)
        self.put_in_place(copy, None if added is None else added.filters, removed)

    def put_in_place(self, copy: Copy, added: Filters | None = None, removed: IntArray = NO_IDS) -> None:
        """Replace all subscriptions by a copy, which has `added` more and lacks `removed`.

        The caller is `alone`.
        """
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
                self._read(self._subscriptions.require_new, ids[row : row + KNOWN])
        except ValueError:
            self._clear()
            raise

    def _alone_with_index(self, step: Callable[..., T], *arguments: Any) -> T:
        """Run a step of a large change alone with the index."""
        with self._road.gate.writing():
            return step(*arguments)

    def _read(self, step: Callable[..., T], *arguments: Any) -> T:
        """Run a look-up of ids while batches go on."""
        with self._road.gate.reading():
            return step(*arguments)

    # -- pieces ----------------------------------------------------------------------------------------------

    def _add_pieces(self, draft: Draft, cuts: Sequence[int], done: int) -> int:
        """Add some pieces, of which `done` are added already; return how many are added then."""
        with self._road.gate.writing():
            begun = perf_counter()
            while True:
                self._subscriptions.add_hidden(draft.piece(cuts[done], cuts[done + 1]))
                done += 1
                if done == len(cuts) - 1 or perf_counter() - begun > LONG:
                    return done

    def _clear(self) -> None:
        while len(self._subscriptions.claimed) or self._subscriptions.claimed_names:
            self._clear_pieces()

    def _clear_pieces(self) -> None:
        with self._road.gate.writing():
            begun = perf_counter()
            while len(self._subscriptions.hidden):
                self._subscriptions.remove_hidden(BIT)
                if perf_counter() - begun > LONG:
                    return
            self._subscriptions.release()

    def _tidy(self, step: Callable[[], None]) -> None:
        """Run a cleanup after an interrupted change or many removals, unless a large change runs."""
        if not self._large.changing:
            with self.alone():
                step()
