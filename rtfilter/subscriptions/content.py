"""The subscriptions of a filter: their changes, each made as a whole or not at all, and copies of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.basics.text import shown
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Replacing
from rtfilter.matchers.registry import Factory, factory_of
from rtfilter.predicates.predicate import Source
from rtfilter.predicates.templates.many import Refused
from rtfilter.subscriptions import drafts, slices
from rtfilter.subscriptions.change_log import Change, Changes
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.ids import NO_IDS, Name, among, as_ids, is_integer
from rtfilter.subscriptions.labels import NO_LABELS, LabelColumns, Names
from rtfilter.subscriptions.stored import StoredSubscriptions


class _Large(NamedTuple):
    """A large change that is made, and its effects."""

    change: Change
    hidden: IntArray = NO_IDS
    """Handles that the change removed, but that are still in the matcher."""
    content: Subscriptions | None = None
    """The copy whose content replaces the present one."""
    freed: list[IntArray] | None = None
    """With a copy: handles of large removals, free from now on."""
    before: tuple[int, int] | None = None
    """With a copy whose matcher replaces the present one: `StoredSubscriptions.before`."""


class Subscriptions(StoredSubscriptions):
    """The subscriptions of a filter. A thread that changes them must be the only one that uses them."""

    _listeners: tuple[ref[Changes], ...] = ()
    expired = 0
    """The number of expired subscriptions that were removed."""
    # During a change: the function that undoes or completes it, or reports it once it is made. An interrupted
    # call can be repeated.
    _undo: Callable[[], None] | None = None
    _former: object = None

    def draft(self, sources: Sequence[Source], refused: Refused | None = None) -> Draft:
        """Read predicates; see `rtfilter.subscriptions.drafts.of_sources`."""
        return drafts.of_sources(sources, self.schema, self.matcher.takes, self.name, refused)

    def draft_bounds(self, low: Any, high: Any) -> Draft:
        """Read closed bounds; see `rtfilter.predicates.bounds.bound_arrays.compile_bounds`."""
        return drafts.of_bounds(low, high, self.schema, self.matcher.takes, self.name)

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
        self.admit(draft.filters, moment)
        handles, labels = self._new_handles(draft, ids, moment)
        self._undo = partial(self.forget, handles)
        try:
            draft = Draft(draft.filters.named(handles), draft.predicates, labels)
            self.put(handles, draft)
            self._undo = partial(self.tell, self.change_of(draft.filters, NO_IDS))
        finally:
            self.recover()
        return self.labels.ids(handles)

    def admit(self, filters: Filters, moment: float, replaced: int | None = None) -> None:
        """Raise `PredicateError` if these filters would exceed the limit of unbounded subscriptions."""
        self.unbounded.admit(filters, self.labels.deadlines, moment, replaced)

    def _new_handles(
        self, draft: Draft, ids: IntArray | list[Name] | None, moment: float
    ) -> tuple[IntArray, LabelColumns]:
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
        self.renew(ids, moment)
        self.require_new(ids)
        if isinstance(ids, list):
            return self.next_handles(count), draft.labels._replace(names=ids)
        self.next_id = max(self.next_id, int(ids.max()) + 1)
        return ids, draft.labels

    def renew(self, ids: IntArray | list[Name], moment: float) -> None:
        """Remove the expired subscriptions among some ids, so that their ids are free."""
        handles = self.labels.handles(ids)
        passed = self.labels.passed(handles, moment)
        if passed is not None and passed.any():
            there = [handle for handle in handles[passed].tolist() if handle in self]
            self._remove_known(np.array(there, np.int64))
            self.expired += len(there)

    def require_new(self, ids: IntArray | list[Name]) -> None:
        """Raise `ValueError` for an id that is known."""
        plain = ids if isinstance(ids, list) else ids.tolist()
        for id, handle in zip(plain, self.labels.handles(ids).tolist(), strict=True):
            if handle in self:
                raise ValueError(f"subscription {shown(id)} exists already; unsubscribe or update it")

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
            change = self.change_of(self.nothing, handles)
            self._undo = partial(self._complete, change, self.forget, handles)
            self.recover()

    def _complete(self, change: Change, step: Callable[..., None], *arguments: Any) -> None:
        """Make the rest of a change, and report it; an interrupted call can be repeated."""
        step(*arguments)
        self.tell(change)

    # -- replacing -----------------------------------------------------------------------------------------

    def replace(
        self, id: object, draft: Draft | None, labels: LabelColumns = NO_LABELS, moment: float = -inf
    ) -> None:
        """Replace the predicate of a subscription, its labels, or both.

        Raises `UnknownSubscriptionError`, and the errors of `admit`.
        """
        handle = self._require_known(id, moment)
        handles = np.array([handle])
        if draft is None:
            change = self.change_of(self.nothing, NO_IDS)._replace(handles=handles)
            self._undo = partial(self._complete, change, self.labels.put, handles.tolist(), labels)
            self.recover()
            return
        self.admit(draft.filters, moment, handle)
        draft = Draft(draft.filters.named(handles).of(self.schema), draft.predicates, labels)
        if self.replacing is not None and handle not in self.unmatchable and len(draft.filters.boxes().ids):
            self._replace_at_once(self.replacing, handles, draft)
            return
        kept = self.predicates.kept(handle)
        old = self.content([handle] if handle in self.matcher else [])
        before = Draft(old, None if kept is None else [kept], self._labels_before(handles, labels))
        self._undo = partial(self._put_instead, handles, before)
        try:
            self._put_instead(handles, draft)
            self._undo = partial(self.tell, self.change_of(draft.filters, handles))
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
        return self.require(id, moment)

    def _put_instead(self, handles: IntArray, draft: Draft) -> None:
        self.strip(handles)
        self.put(handles, draft)

    def _labels_before(self, handles: IntArray, labels: LabelColumns) -> LabelColumns:
        """Return the labels that undo a change of some labels."""
        if labels is NO_LABELS:
            return NO_LABELS
        before = self.labels.of(handles)
        return LabelColumns(
            None,
            np.full(len(handles), inf) if before.deadlines is None else before.deadlines,
            [None] * len(handles) if before.metadata is None else before.metadata,
        )

    def _replace_at_once(self, matcher: Replacing, handles: IntArray, draft: Draft) -> None:
        """Replace a subscription in the matcher, which may refuse, and then its other data."""
        change = self.change_of(draft.filters, handles)
        # A replacement that has begun is completed.
        self._undo = partial(self._complete, change, self._put_instead, handles, draft)
        try:
            try:
                matcher.replace(draft.filters)
            except Exception:
                self._undo = None
                raise
            self.ends.remove(handles)
            if self._checks is not None:
                self._checks.forget(handles)
            self.unbounded.handles.discard(int(handles[0]))
            if draft.predicates is None:
                self.predicates.remove(int(handles[0]))
            self.put_beside(handles, draft)
            self.note(draft.filters)
            self._undo = partial(self.tell, change)
        finally:
            self.recover()

    # -- large changes -------------------------------------------------------------------------------------
    # Steps: the change claims handles. Handles to add are hidden, added in pieces, and shown at once. Handles
    # to remove are hidden at once, and removed in pieces. Or a copy is built elsewhere and adopted at once.
    # Each step is a change that must run alone. A change that is given up leaves claimed and hidden handles;
    # remove the hidden ones and release the claim.

    def promise(self, filters: Filters, moment: float) -> None:
        """Admit claimed handles that are to be added, as `admit` does, and count them from now on."""
        self.admit(filters, moment)
        self.unbounded.note(filters)

    def release(self) -> None:
        """Release all claims, once no handle is hidden."""
        if len(self.claimed):
            for handle in self.unbounded.among(self.claimed):
                if handle not in self.matcher:  # promised, but never added
                    self.unbounded.handles.discard(handle)
        super().release()

    def add_hidden(self, draft: Draft) -> None:
        """Add some of the claimed new handles; they are hidden like all claimed ones."""
        self.hidden, visible = self.claimed, len(self)
        self._undo = partial(self._end_piece, draft.filters.ids, self.hidden, visible)
        try:
            self.put(draft.filters.ids, draft)
            self._undo = partial(self._end_piece, NO_IDS, self.hidden, visible)
        finally:
            self.recover()

    def remove_hidden(self, count: int) -> None:
        """Remove the first `count` hidden handles."""
        self._undo = partial(self._end_piece, self.hidden[:count], self.hidden[count:], len(self))
        self.recover()

    def _end_piece(self, handles: IntArray, hidden: IntArray, visible: int) -> None:
        """Remove some handles, and count the hidden ones again."""
        self.forget(handles)
        self.hidden, self._hidden_count = hidden, self.count_all() - visible

    def show(self, filters: Filters) -> None:
        """Show all hidden handles: this makes the addition."""
        self._undo = partial(self._end_large, _Large(self.change_of(filters, NO_IDS)))
        self.recover()

    def hide(self, handles: IntArray) -> None:
        """Hide some known, claimed handles, ascending: this makes their removal."""
        self._undo = partial(self._end_large, _Large(self.change_of(self.nothing, handles), handles))
        self.recover()

    def adopt(self, copy: Subscriptions, added: Filters | None, removed: IntArray) -> None:
        """Take the content of a copy, which must not be used any more, and report its changes.

        The matcher of the copy replaces the present one. A present matcher of the same kind that is
        `Adopting` takes the content instead.
        """
        change = self.change_of(self.nothing if added is None else added, removed, copy.labels.names)
        if added is None and not len(removed):
            change = change._replace(version=self.version)
        freed = self._freed if self.labels.names is None else [*self._freed, removed]
        before = None
        if self.adopting is None or self.factory != copy.factory or self.schema is not copy.schema:
            updates = self.updates + len(change.added.ids) + len(removed) - copy.matcher.updates
            before = updates, self.packed + 1 - copy.levels.packed
        self._undo = partial(self._end_large, _Large(change, NO_IDS, copy, freed, before))
        self.recover()

    def _end_large(self, made: _Large) -> None:
        if made.content is not None:
            copy = made.content
            if copy._former is None:  # freeing it takes long, so the owner of the copy does it
                copy._former = self.predicates, self.labels, self.matcher
            if made.before is not None:
                self.use(copy.matcher, copy.factory, made.before)
            else:
                assert self.adopting is not None
                self.adopting.adopt(copy.matcher)
            if self.schema is not copy.schema:
                self.schema, self.nothing, self._checks = copy.schema, copy.nothing, None
            self.predicates, self.unmatchable = copy.predicates, copy.unmatchable
            self.unbounded.handles, self.unbounded.boxes = copy.unbounded.handles, copy.unbounded.boxes
            self.labels, self.used = copy.labels, copy.used
            assert made.freed is not None
            self._freed = made.freed
        self.next_id = max(self.next_id, self._reserved)
        self.hidden, self._hidden_count = made.hidden, len(made.hidden)
        if not len(made.hidden):
            self.release()
        self.tell(made.change)

    # -- copies --------------------------------------------------------------------------------------------

    def empty(self, of: Factory | None = None, schema: Schema | None = None) -> Subscriptions:
        """Return empty subscriptions, with another matcher or schema if one is given."""
        options = self.matcher.options if of is None else {}
        factory, schema = self.factory if of is None else of, schema or self.schema
        matcher = factory_of(factory)(schema, **options)
        none = Subscriptions(schema, factory, matcher, kind=self.kind, clock=self.clock)
        none.unbounded.most = self.unbounded.most
        return none

    def part(self, ids: IntArray | list[Name], moment: float = -inf) -> Subscriptions:
        """Return a copy of some subscriptions with a matcher of their own; unknown ids are ignored."""
        wanted = np.unique(self.labels.handles(ids))
        if 8 * len(wanted) > len(self):
            own = self.handles()
            own = own[np.isin(own, wanted)]
        else:
            own = np.array([handle for handle in wanted.tolist() if handle in self], np.int64)
        passed = self.labels.passed(own, moment)
        if passed is not None:
            own = own[~passed]
        part, content = self.empty(), slices.read(self, own)
        part.next_id = self.next_id
        if self.labels.names is not None:
            content, part.next_id = content.renumbered(own), len(own)
        slices.take(part, [content])
        return part

    def with_matcher(self, matcher: Factory) -> Subscriptions:
        """Return a copy of all subscriptions with another matcher.

        Raises `PredicateError` for predicates that the matcher does not take.
        """
        other = Subscriptions(self.schema, matcher, kind=self.kind, clock=self.clock)
        other.unbounded.most = self.unbounded.most
        own = self.handles()
        takes = other.matcher.takes
        boxes = self.matcher.takes.boxes and takes.boxes and takes.everything and takes.missing
        known = isinstance(self.factory, str) and isinstance(other.factory, str)  # others may leave some out
        if self.factory == other.factory or (boxes and known):  # else predicates are compiled again
            slices.take(other, [slices.read(self, own)])
        else:
            draft = other.draft([one for one in map(self.get, own.tolist()) if one is not None])
            other.put(own, Draft(draft.filters.named(own), draft.predicates, self.labels.of(own)))
        other.follow(self)
        other._free, other._freed = self._free.copy(), self._freed.copy()
        return other


def _told(listener: ref[Changes], change: Change) -> bool:
    """Report a change to a listener; return False if the listener no longer exists."""
    changes = listener()
    return changes is not None and changes.tell(change)
