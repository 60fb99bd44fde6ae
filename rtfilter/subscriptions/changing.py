"""Changes of subscriptions in one step: a change is made as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any
from weakref import ref

import numpy as np

from rtfilter.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.errors import UnknownSubscriptionError
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Replacing
from rtfilter.predicates.stored.predicate_store import Kept
from rtfilter.subscriptions.change_log import Change, Changes
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.held import Held
from rtfilter.subscriptions.ids import NO_IDS, Name, among, as_ids, is_integer
from rtfilter.subscriptions.labels import NO_LABELS, Beside
from rtfilter.subscriptions.names import Names
from rtfilter.text import shown


class Changing(Held):
    """Subscriptions that can be changed. A thread that changes them must be the only one that uses them."""

    _listeners: tuple[ref[Changes], ...] = ()
    expired = 0
    """The number of expired subscriptions that were removed."""
    # During a change: the function that undoes or completes it, or reports it once it is made. It can be
    # repeated if an exception interrupts it.
    _undo: Callable[[], None] | None = None

    # -- listeners -----------------------------------------------------------------------------------------

    def listen(self) -> Changes:
        """Return a new `Changes`, which receives every change from now on."""
        changes = Changes(self.version)
        self._listeners = (*(one for one in self._listeners if one() is not None), ref(changes))
        return changes

    def recover(self) -> None:
        """Undo or complete an interrupted change, or report one that is made.

        A recovery that is interrupted can be repeated.
        """
        if self._undo is not None:
            self._undo()
            self._undo = None

    def tell(self, change: Change) -> None:
        """Set the version to that of a change, and report the change to the listeners once."""
        self.version = change.version
        if self._listeners:
            self._listeners = tuple(one for one in self._listeners if _told(one, change))

    def change_of(self, added: Filters, removed: IntArray, names: Names | None = None) -> Change:
        """Return the change of some handles; added handles stand for `names`, if these differ."""
        own = self.labels.names
        if own is None or not self._listeners:  # no listener needs the names, which are slow
            return Change(self.version + 1, added, removed)
        new = (own if names is None else names).take(added.ids)
        handles = np.concatenate([added.ids, removed])
        return Change(self.version + 1, added.named(new), own.take(removed), handles)

    # -- adding --------------------------------------------------------------------------------------------

    def add(self, draft: Draft, ids: IntArray | list[Name] | None = None, moment: float = -inf) -> AnyArray:
        """Add subscriptions, all or none, and return their ids, int64 or object (n,).

        `ids` has the form that `new_ids` returns. Raises `ValueError` for unusable ids, `TypeError` for ids
        of another type, and the errors of `admit`.
        """
        self.unbounded.admit(draft.filters, self.labels.deadlines, moment)
        handles, labels = self._new_handles(draft, ids, moment)
        self._undo = partial(self.forget, handles)
        try:
            filters = draft.filters.named(handles)
            self.put(handles, filters, draft.predicates, labels)
            self._undo = partial(self.tell, self.change_of(filters, NO_IDS))
        finally:
            self.recover()
        return self.labels.ids(handles)

    def admit(self, filters: Filters, moment: float, replaced: int | None = None) -> None:
        """Raise `PredicateError` if these filters would exceed the limit of unbounded subscriptions."""
        self.unbounded.admit(filters, self.labels.deadlines, moment, replaced)

    def _new_handles(
        self, draft: Draft, ids: IntArray | list[Name] | None, moment: float
    ) -> tuple[IntArray, Beside]:
        """Return handles for new subscriptions, and their labels."""
        count = len(draft.filters)
        if ids is None:
            if self.kind is not int and count:
                self.settle(int, made_up=True)
            return (self.next_ids(count) if count else NO_IDS), draft.labels
        if not len(ids):
            return NO_IDS, draft.labels
        self.settle(type(ids[0]) if isinstance(ids, list) else int)
        self.refuse_claimed(ids)
        self._renew(ids, moment)
        self.require_new(ids)
        if isinstance(ids, list):
            return self.next_handles(count), draft.labels._replace(names=ids)
        self.next_id = max(self.next_id, int(ids.max()) + 1)
        return ids, draft.labels

    def _renew(self, ids: IntArray | list[Name], moment: float) -> None:
        """Remove the expired subscriptions among some ids, so that their ids are free."""
        handles = self.labels.handles(ids)
        passed = self.labels.passed(handles, moment)
        if passed is not None and passed.any():
            there = [handle for handle in handles[passed].tolist() if handle in self]
            self._remove_known(np.array(there, np.int64))
            self.expired += len(there)

    def require_new(self, ids: IntArray | list[Name]) -> None:
        """Raise `ValueError` for an id that is known."""
        handles = self.labels.handles(ids)
        for row, handle in enumerate(handles.tolist()):
            if handle in self:
                raise ValueError(
                    f"subscription {shown(_plain(ids[row]))} exists already; unsubscribe or update it"
                )

    # -- removing ------------------------------------------------------------------------------------------

    def remove(self, ids: IntArray | list[Name], moment: float = -inf) -> BoolArray:
        """Remove subscriptions, all or none, and return which ids were known, bool (n,).

        If an id occurs twice, only the first occurrence was known.
        """
        if len(self.claimed) or self.claimed_names:
            self.refuse_claimed(ids)
        labels = self.labels
        handles = ids if labels.plain and not isinstance(ids, list) else labels.handles(ids)
        # Found before the removal: once begun, a removal is completed and reported even if it is interrupted.
        found: list[bool] = []
        seen: set[int] = set()
        for handle in handles.tolist():
            found.append(handle in self and handle not in seen)
            seen.add(handle)
        passed = None if labels.plain else labels.passed(handles, moment)
        if passed is not None:
            found = (np.array(found, np.bool_) & ~passed).tolist()
        known = np.array(found, np.bool_)
        self._remove_known(handles if all(found) else handles[known])
        return known

    def remove_passed(self, moment: float, most: int) -> None:
        """Remove at most `most` expired subscriptions; the search for them takes little time."""
        if self.labels.deadlines is None or moment < self.labels.deadlines.earliest:
            return
        handles = self.labels.deadlines.next_passed(moment, most)
        if len(self.claimed) and len(handles):
            handles = handles[~among(handles, self.claimed)]
        self._remove_known(handles)
        self.expired += len(handles)

    def _remove_known(self, handles: IntArray) -> None:
        if len(handles):
            self._undo = partial(self._complete_removal, handles, self.change_of(self.nothing, handles))
            self.recover()

    def _complete_removal(self, handles: IntArray, change: Change) -> None:
        self.forget(handles)
        self.tell(change)

    # -- replacing -----------------------------------------------------------------------------------------

    def replace(
        self, id: object, draft: Draft | None, labels: Beside = NO_LABELS, moment: float = -inf
    ) -> None:
        """Replace the predicate of a subscription, its labels, or both.

        Raises `UnknownSubscriptionError`, and the errors of `admit`.
        """
        handle = self._require_known(id, moment)
        handles = np.array([handle])
        if draft is None:
            change = self.change_of(self.nothing, NO_IDS)._replace(handles=handles)
            self._undo = partial(self._complete_labels, handles, labels, change)
            self.recover()
            return
        self.admit(draft.filters, moment, handle)
        filters = draft.filters.named(handles)
        if self.replacing is not None and handle not in self.unmatchable and len(filters.boxes().ids):
            self._replace_at_once(self.replacing, handles, filters, draft.predicates, labels)
            return
        kept = self.predicates.kept(handle)
        old = self.content([handle] if handle in self.matcher else [])
        before = self._labels_before(handles, labels)
        self._undo = partial(self._put_instead, handles, old, None if kept is None else [kept], before)
        try:
            self._put_instead(handles, filters, draft.predicates, labels)
            self._undo = partial(self.tell, self.change_of(filters, handles))
        finally:
            self.recover()

    def _require_known(self, id: object, moment: float) -> int:
        """Return the handle of an id. Raises `UnknownSubscriptionError` and `ClaimedError`."""
        if type(id) is int and self.labels.plain and not len(self.claimed) and id in self:
            return id  # the usual case; the checks below take longer than the other preparations
        if self.labels.names is None:
            if len(self.claimed) and is_integer(id):
                self.refuse_claimed(as_ids(id))  # type: ignore[arg-type]
        elif self.claimed_names and isinstance(id, Name):
            self.refuse_claimed([id])
        handle = self.handle(id, moment)
        if handle < 0:
            raise UnknownSubscriptionError(id)
        return handle

    def _complete_labels(self, handles: IntArray, labels: Beside, change: Change) -> None:
        self.labels.put(handles.tolist(), labels)
        self.tell(change)

    def _put_instead(
        self, handles: IntArray, filters: Filters, predicates: Sequence[Kept] | None, labels: Beside
    ) -> None:
        """Replace the predicates and labels of handles, which stay the same."""
        self.strip(handles)
        self.put(handles, filters, predicates, labels)

    def _labels_before(self, handles: IntArray, labels: Beside) -> Beside:
        """Return the labels that undo a change of some labels."""
        if labels is NO_LABELS:
            return NO_LABELS
        before = self.labels.of(handles)
        return Beside(
            None,
            np.full(len(handles), inf) if before.deadlines is None else before.deadlines,
            [None] * len(handles) if before.metadata is None else before.metadata,
        )

    def _replace_at_once(
        self,
        matcher: Replacing,
        handles: IntArray,
        filters: Filters,
        predicates: Sequence[Kept] | None,
        labels: Beside,
    ) -> None:
        """Replace a subscription in the matcher, which may refuse, and then its other data."""
        change = self.change_of(filters, handles)
        # A replacement that has begun is completed.
        self._undo = partial(self._complete_replacement, handles, filters, predicates, labels, change)
        try:
            try:
                matcher.replace(filters)
            except Exception:
                self._undo = None
                raise
            self.ends.remove(handles)
            self.ends.add(filters.ends)
            if self._checks is not None:
                self._checks.forget(handles)
            self.unbounded.handles.discard(int(handles[0]))
            self.unbounded.note(filters)
            self.asked.note(filters, boxes=True)
            if predicates is None:
                self.predicates.remove(int(handles[0]))
            else:
                self.asked.note_kept(predicates)
                self.predicates.put(int(handles[0]), predicates[0])
            if labels is not NO_LABELS:
                self.labels.put(handles.tolist(), labels)
            self._undo = partial(self.tell, change)
        finally:
            self.recover()

    def _complete_replacement(
        self,
        handles: IntArray,
        filters: Filters,
        predicates: Sequence[Kept] | None,
        labels: Beside,
        change: Change,
    ) -> None:
        self._put_instead(handles, filters, predicates, labels)
        self.tell(change)


def _told(listener: ref[Changes], change: Change) -> bool:
    """Report a change to a listener; return False if the listener no longer exists."""
    changes = listener()
    return changes is not None and changes.tell(change)


def _plain(id: Any) -> Any:
    """Return an id as messages show it."""
    return int(id) if isinstance(id, np.integer) else id
