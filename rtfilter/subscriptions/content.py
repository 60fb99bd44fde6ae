"""Subscriptions: ids, predicates, and the matcher that finds them; a change is whole or undone.

What is there by handle is in `held`, changes in one step are in `changing`; here are those of many steps, and
copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from rtfilter.changes import Change
from rtfilter.dtypes import IntArray
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.registry import Factory, factory_of
from rtfilter.predicates.many import Refused
from rtfilter.predicates.parse import Source
from rtfilter.predicates.store import Kept
from rtfilter.subscriptions import drafts, slices
from rtfilter.subscriptions.changing import Changing
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.held import Former
from rtfilter.subscriptions.ids import NO_IDS, Name
from rtfilter.subscriptions.labels import NO_LABELS, Beside


class _Large(NamedTuple):
    """A large change that is made, and what follows from it."""

    change: Change
    hidden: IntArray = NO_IDS
    """Handles that it has removed, but that are still in the matcher."""
    content: Subscriptions | None = None
    """The copy that holds all from now on."""
    freed: list[IntArray] | None = None
    """With a copy: handles that stand for nothing from now on, of large removals."""
    before: Former | None = None
    """With a copy whose matcher takes the place of the present one: what is counted before."""


class Subscriptions(Changing):
    """The subscriptions of a filter. Not safe for threads: who changes them must be alone with them."""

    _former: object = None

    def draft(self, sources: Sequence[Source], refused: Refused | None = None) -> Draft:
        """Read predicates; see `rtfilter.subscriptions.drafts.of_sources`."""
        return drafts.of_sources(sources, self.schema, self.matcher.takes, self.name, refused)

    def draft_bounds(self, low: Any, high: Any) -> Draft:
        """Read closed bounds; see `rtfilter.predicates.bounds.compile_bounds`."""
        return drafts.of_bounds(low, high, self.schema, self.matcher.takes, self.name)

    # -- large changes -------------------------------------------------------------------------------------
    #
    # Handles are claimed. Those to be added are hidden, added bit by bit, and shown at once; those to be
    # removed are hidden at once, and removed bit by bit. Or all is built anew elsewhere, and adopted at once.
    # Each of these steps is a change that must run alone. One that is given up leaves claimed and hidden
    # handles: all there is to do is to remove what is hidden, and to release the claim.

    def promise(self, filters: Filters, moment: float) -> None:
        """Of claimed handles that are to be added: `admit` them, and count them from now on."""
        self.admit(filters, moment)
        self.unbounded.note(filters)

    def release(self) -> None:
        """Release what is claimed, when nothing is hidden any more."""
        if len(self.claimed):
            for handle in self.unbounded.among(self.claimed):
                if handle not in self.matcher:  # it was promised, and never came
                    self.unbounded.handles.discard(handle)
        super().release()

    def add_hidden(
        self, filters: Filters, predicates: Sequence[Kept] | None, labels: Beside = NO_LABELS
    ) -> None:
        """Add some of the claimed handles, new ones, hidden with all others."""
        self.hidden, visible = self.claimed, len(self)
        self._undo = partial(self._end_bit, filters.ids, self.hidden, visible)
        try:
            self.put(filters.ids, filters, predicates, labels)
            self._undo = partial(self._end_bit, NO_IDS, self.hidden, visible)
        finally:
            self.recover()

    def remove_hidden(self, count: int) -> None:
        """Remove the first of the hidden handles, which are then no longer hidden."""
        self._undo = partial(self._end_bit, self.hidden[:count], self.hidden[count:], len(self))
        self.recover()

    def _end_bit(self, handles: IntArray, hidden: IntArray, visible: int) -> None:
        """Remove some handles, and count again what is hidden."""
        self.forget(handles)
        self.hidden, self._hidden_count = hidden, self.count_all() - visible

    def show(self, filters: Filters) -> None:
        """Show all that was added: this is the change."""
        self._undo = partial(self._end_large, _Large(self.change_of(filters, NO_IDS)))
        self.recover()

    def count_expired(self, count: int) -> None:
        """Of a large removal: it was of so many beyond their deadlines."""
        self.expired += count

    def hide(self, handles: IntArray) -> None:
        """Hide some of the claimed handles, known ones, ascending: this is their removal."""
        self._undo = partial(self._end_large, _Large(self.change_of(self.nothing, handles), handles))
        self.recover()

    def adopt(self, copy: Subscriptions, added: Filters | None, removed: IntArray) -> None:
        """Take the content of a copy, which must not be used any more; tell what was changed in it.

        Its matcher may be another one. If it is not, it gives its content to one that is `Adopting`.
        """
        change = self.change_of(self.nothing if added is None else added, removed, copy.labels.names)
        if added is None and not len(removed):
            change = change._replace(version=self.version)
        freed = self._freed if self.labels.names is None else [*self._freed, removed]
        before = None
        if self.adopting is None or self.factory != copy.factory or self.schema is not copy.schema:
            updates = self.updates + len(change.added.ids) + len(removed) - copy.matcher.updates
            before = Former(updates, self.packed + 1 - copy.levels.packed)
        self._undo = partial(self._end_large, _Large(change, NO_IDS, copy, freed, before))
        self.recover()

    def _end_large(self, made: _Large) -> None:
        if made.content is not None:
            copy = made.content
            if copy._former is None:  # it takes long to free: that is done where the copy ends
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
            self.labels, self.asked = copy.labels, copy.asked
            assert made.freed is not None
            self._freed = made.freed
        self.next_id = max(self.next_id, self._reserved)
        self.hidden, self._hidden_count = made.hidden, len(made.hidden)
        if not len(made.hidden):
            self.release()
        self.tell(made.change)

    # -- copies --------------------------------------------------------------------------------------------

    def empty(self, of: Factory | None = None, schema: Schema | None = None) -> Subscriptions:
        """None, with another matcher or one of the same kind, and perhaps of more attributes."""
        options = self.matcher.options if of is None else {}
        factory, schema = self.factory if of is None else of, schema or self.schema
        matcher = factory_of(factory)(schema, **options)
        none = Subscriptions(schema, factory, matcher, kind=self.kind, clock=self.clock)
        none.unbounded.most = self.unbounded.most
        return none

    def part(self, ids: IntArray | list[Name], moment: float = -inf) -> Subscriptions:
        """Some of the subscriptions with a matcher of their own; unknown ids are ignored."""
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
        """All subscriptions with another matcher. Raises `PredicateError` for what it does not take."""
        other = Subscriptions(self.schema, matcher, kind=self.kind, clock=self.clock)
        other.unbounded.most = self.unbounded.most
        own = self.handles()
        takes = other.matcher.takes
        boxes = self.matcher.takes.boxes and takes.boxes and takes.everything and takes.missing
        known = isinstance(self.factory, str) and isinstance(other.factory, str)  # others may leave some out
        if self.factory == other.factory or (boxes and known):  # else predicates are read anew
            slices.take(other, [slices.read(self, own)])
        else:
            draft = other.draft([one for one in map(self.get, own.tolist()) if one is not None])
            other.put(own, draft.filters.named(own), draft.predicates, self.labels.of(own))
        other.follow(self)
        other._free, other._freed = self._free.copy(), self._freed.copy()
        return other
