"""Changes of subscriptions, each in one step: it is whole, or undone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any
from weakref import ref

import numpy as np

from rtfilter.changes import Change, Changes
from rtfilter.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.errors import UnknownSubscriptionError
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Replacing
from rtfilter.predicates.store import Kept
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.held import Held
from rtfilter.subscriptions.ids import NO_IDS, Name, among, as_ids, is_integer
from rtfilter.subscriptions.labels import NO_LABELS, Beside
from rtfilter.subscriptions.names import Names
from rtfilter.text import shown


class Changing(Held):
    """Subscriptions that can be changed. Not safe for threads: who changes them must be alone with them."""

    _listeners: tuple[ref[Changes], ...] = ()
    # While a change is going on: what takes it back or completes it, or once it is made, tells of it. Where
    # this is cut short, too, it can be done again.
    _undo: Callable[[], None] | None = None

    # -- telling -------------------------------------------------------------------------------------------

    def listen(self) -> Changes:
        """The changes from now on."""
        changes = Changes(self.version)
        self._listeners = (*(one for one in self._listeners if one() is not None), ref(changes))
        return changes

    def recover(self) -> None:
        """Put in order a change that was cut short, or tell of one that is made.

        If this is cut short, too, it can be repeated.
        """
        if self._undo is not None:
            self._undo()
            self._undo = None

    def tell(self, change: Change) -> None:
        """Be of the version after a change; who listens is told of it, once."""
        self.version = change.version
        if self._listeners:
            self._listeners = tuple(one for one in self._listeners if _told(one, change))

    def change_of(self, added: Filters, removed: IntArray, names: Names | None = None) -> Change:
        """What to tell of a change of keys; those added stand for `names`, if they have other ones."""
        own = self.labels.names
        if own is None or not self._listeners:  # nobody will hear of it: names take long where they are many
            return Change(self.version + 1, added, removed)
        new = (own if names is None else names).take(added.ids)
        keys = np.concatenate([added.ids, removed])
        return Change(self.version + 1, added.named(new), own.take(removed), keys)

    # -- adding --------------------------------------------------------------------------------------------

    def add(self, draft: Draft, ids: IntArray | list[Name] | None = None, moment: float = -inf) -> AnyArray:
        """Add subscriptions, all or none; their ids, int64 or object (n,).

        Ids are as of `new_ids`. Raises `ValueError` for unusable ones, `TypeError` for those of another type,
        and what `admit` raises.
        """
        self.admit(draft.filters, moment)
        keys, labels = self._new_keys(draft, ids, moment)
        self._undo = partial(self.forget, keys)
        try:
            filters = draft.filters.named(keys)
            self.put(keys, filters, draft.predicates, labels)
            self._undo = partial(self.tell, self.change_of(filters, NO_IDS))
        finally:
            self.recover()
        return self.labels.ids(keys)

    def admit(self, filters: Filters, moment: float, replaced: int | None = None) -> None:
        """Raise `PredicateError` where too many would be there, once these are, that nothing bounds."""
        self.unbounded.admit(filters, self.labels.deadlines, moment, replaced)

    def _new_keys(
        self, draft: Draft, ids: IntArray | list[Name] | None, moment: float
    ) -> tuple[IntArray, Beside]:
        """Keys for new subscriptions, with their labels."""
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
            return self.next_keys(count), draft.labels._replace(names=ids)
        self.next_id = max(self.next_id, int(ids.max()) + 1)
        return ids, draft.labels

    def _renew(self, ids: IntArray | list[Name], moment: float) -> None:
        """Remove those of some ids that are beyond their deadlines, so that they are new."""
        keys = self.labels.keys(ids)
        passed = self.labels.passed(keys, moment)
        if passed is not None and passed.any():
            self._remove_known(np.array([key for key in keys[passed].tolist() if key in self], np.int64))

    def require_new(self, ids: IntArray | list[Name]) -> None:
        """Raise `ValueError` for an id that is known."""
        keys = self.labels.keys(ids)
        for row, key in enumerate(keys.tolist()):
            if key in self:
                raise ValueError(
                    f"subscription {shown(_plain(ids[row]))} exists already; unsubscribe or update it"
                )

    # -- removing ------------------------------------------------------------------------------------------

    def remove(self, ids: IntArray | list[Name], moment: float = -inf) -> BoolArray:
        """Remove subscriptions, all or none; bool (n,): which were known.

        One that is named twice was known the first time.
        """
        self.refuse_claimed(ids)
        keys = self.labels.keys(ids)
        # Known beforehand: a removal that was begun is completed, and told, even where it is cut short.
        found: list[bool] = []
        seen: set[int] = set()
        for key in keys.tolist():
            found.append(key in self and key not in seen and not self.labels.has_passed(key, moment))
            seen.add(key)
        known = np.array(found, np.bool_)
        self._remove_known(keys if all(found) else keys[known])
        return known

    def remove_passed(self, moment: float, most: int) -> None:
        """Remove some of those that are beyond their deadlines, at most so many; little work besides."""
        if self.labels.deadlines is None or moment < self.labels.deadlines.earliest:
            return
        keys = self.labels.deadlines.next_passed(moment, most)
        if len(self.claimed) and len(keys):
            keys = keys[~among(keys, self.claimed)]
        self._remove_known(keys)

    def _remove_known(self, keys: IntArray) -> None:
        if len(keys):
            self._undo = partial(self._complete_removal, keys, self.change_of(self.nothing, keys))
            self.recover()

    def _complete_removal(self, keys: IntArray, change: Change) -> None:
        self.forget(keys)
        self.tell(change)

    # -- replacing -----------------------------------------------------------------------------------------

    def replace(
        self, id: object, draft: Draft | None, labels: Beside = NO_LABELS, moment: float = -inf
    ) -> None:
        """Give a subscription another predicate, other labels or both, or leave it as it is.

        Raises `UnknownSubscriptionError`, and what `admit` raises.
        """
        key = self._require_known(id, moment)
        keys = np.array([key])
        if draft is None:
            change = self.change_of(self.nothing, NO_IDS)._replace(keys=keys)
            self._undo = partial(self._complete_labels, keys, labels, change)
            self.recover()
            return
        self.admit(draft.filters, moment, key)
        filters = draft.filters.named(keys)
        if self.replacing is not None and key not in self.unmatchable and len(filters.boxes().ids):
            self._replace_at_once(self.replacing, keys, filters, draft.predicates, labels)
            return
        kept = self.predicates.kept(key)
        old = self.content([key] if key in self.matcher else [])
        before = self._labels_before(keys, labels)
        self._undo = partial(self._put_instead, keys, old, None if kept is None else [kept], before)
        try:
            self._put_instead(keys, filters, draft.predicates, labels)
            self._undo = partial(self.tell, self.change_of(filters, keys))
        finally:
            self.recover()

    def _require_known(self, id: object, moment: float) -> int:
        """The key of an id. Raises `UnknownSubscriptionError`, and `ClaimedError`."""
        if self.labels.names is None:
            if len(self.claimed) and is_integer(id):
                self.refuse_claimed(as_ids(id))  # type: ignore[arg-type]
        elif self.claimed_names and isinstance(id, Name):
            self.refuse_claimed([id])
        key = self.key(id, moment)
        if key < 0:
            raise UnknownSubscriptionError(id)
        return key

    def _complete_labels(self, keys: IntArray, labels: Beside, change: Change) -> None:
        self.labels.put(keys.tolist(), labels)
        self.tell(change)

    def _put_instead(
        self, keys: IntArray, filters: Filters, predicates: Sequence[Kept] | None, labels: Beside
    ) -> None:
        """Let keys, which stay, ask for something else."""
        self.strip(keys)
        self.put(keys, filters, predicates, labels)

    def _labels_before(self, keys: IntArray, labels: Beside) -> Beside:
        """What takes back the change of some labels."""
        if labels is NO_LABELS:
            return NO_LABELS
        before = self.labels.of(keys)
        return Beside(
            None,
            np.full(len(keys), inf) if before.deadlines is None else before.deadlines,
            [None] * len(keys) if before.metadata is None else before.metadata,
        )

    def _replace_at_once(
        self,
        matcher: Replacing,
        keys: IntArray,
        filters: Filters,
        predicates: Sequence[Kept] | None,
        labels: Beside,
    ) -> None:
        """Replace one that the matcher has: in the matcher first, which may refuse, then beside it."""
        change = self.change_of(filters, keys)
        # Once begun, it is completed.
        self._undo = partial(self._complete_replacement, keys, filters, predicates, labels, change)
        try:
            try:
                matcher.replace(filters)
            except Exception:
                self._undo = None
                raise
            self.ends.remove(keys)
            self.ends.add(filters.ends)
            self.unbounded.keys.discard(int(keys[0]))
            self.unbounded.note(filters)
            if predicates is None:
                self.predicates.remove(int(keys[0]))
            else:
                self.predicates.put(int(keys[0]), predicates[0])
            if labels is not NO_LABELS:
                self.labels.put(keys.tolist(), labels)
            self._undo = partial(self.tell, change)
        finally:
            self.recover()

    def _complete_replacement(
        self,
        keys: IntArray,
        filters: Filters,
        predicates: Sequence[Kept] | None,
        labels: Beside,
        change: Change,
    ) -> None:
        self._put_instead(keys, filters, predicates, labels)
        self.tell(change)


def _told(listener: ref[Changes], change: Change) -> bool:
    """Tell a listener of a change; False if it listens no more."""
    changes = listener()
    return changes is not None and changes.tell(change)


def _plain(id: Any) -> Any:
    """An id as messages show it."""
    return int(id) if isinstance(id, np.integer) else id
