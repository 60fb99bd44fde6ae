"""Subscriptions: ids, predicates, and the matcher that finds them.

A change is made as a whole, or not at all. `held` stores subscriptions by handle, `changing` has the changes
in one step. This module has the large changes, of many steps, and copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from rtfilter.dtypes import IntArray
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.registry import Factory, factory_of
from rtfilter.predicates.predicate import Source
from rtfilter.predicates.stored.predicate_store import Kept
from rtfilter.predicates.templates.many import Refused
from rtfilter.subscriptions import drafts, slices
from rtfilter.subscriptions.change_log import Change
from rtfilter.subscriptions.changing import Changing
from rtfilter.subscriptions.drafts import Draft
from rtfilter.subscriptions.held import Former
from rtfilter.subscriptions.ids import NO_IDS, Name
from rtfilter.subscriptions.labels import NO_LABELS, Beside


class _Large(NamedTuple):
    """A large change that is made, and its effects."""

    change: Change
    hidden: IntArray = NO_IDS
    """Handles that the change removed, but that are still in the matcher."""
    content: Subscriptions | None = None
    """The copy whose content replaces the present one."""
    freed: list[IntArray] | None = None
    """With a copy: handles of large removals, free from now on."""
    before: Former | None = None
    """With a copy whose matcher replaces the present one: the counts of the matchers before."""


class Subscriptions(Changing):
    """The subscriptions of a filter. A thread that changes them must be the only one that uses them."""

    _former: object = None

    def draft(self, sources: Sequence[Source], refused: Refused | None = None) -> Draft:
        """Read predicates; see `rtfilter.subscriptions.drafts.of_sources`."""
        return drafts.of_sources(sources, self.schema, self.matcher.takes, self.name, refused)

    def draft_bounds(self, low: Any, high: Any) -> Draft:
        """Read closed bounds; see `rtfilter.predicates.bounds.bound_arrays.compile_bounds`."""
        return drafts.of_bounds(low, high, self.schema, self.matcher.takes, self.name)

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

    def add_hidden(
        self, filters: Filters, predicates: Sequence[Kept] | None, labels: Beside = NO_LABELS
    ) -> None:
        """Add some of the claimed new handles; they are hidden like all claimed ones."""
        self.hidden, visible = self.claimed, len(self)
        self._undo = partial(self._end_bit, filters.ids, self.hidden, visible)
        try:
            self.put(filters.ids, filters, predicates, labels)
            self._undo = partial(self._end_bit, NO_IDS, self.hidden, visible)
        finally:
            self.recover()

    def remove_hidden(self, count: int) -> None:
        """Remove the first `count` hidden handles."""
        self._undo = partial(self._end_bit, self.hidden[:count], self.hidden[count:], len(self))
        self.recover()

    def _end_bit(self, handles: IntArray, hidden: IntArray, visible: int) -> None:
        """Remove some handles, and count the hidden ones again."""
        self.forget(handles)
        self.hidden, self._hidden_count = hidden, self.count_all() - visible

    def show(self, filters: Filters) -> None:
        """Show all hidden handles: this makes the addition."""
        self._undo = partial(self._end_large, _Large(self.change_of(filters, NO_IDS)))
        self.recover()

    def count_expired(self, count: int) -> None:
        """Count the expired subscriptions of a large removal."""
        self.expired += count

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
            before = Former(updates, self.packed + 1 - copy.levels.packed)
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
            other.put(own, draft.filters.named(own), draft.predicates, self.labels.of(own))
        other.follow(self)
        other._free, other._freed = self._free.copy(), self._freed.copy()
        return other
