"""Subscriptions: ids, predicates, and the matcher that finds them; a change is whole or undone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.changes import Change, Changes
from rtfilter.dtypes import BoolArray, IntArray
from rtfilter.errors import PredicateError, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Adopting, Matcher, Replacing, Scannable, refuse_untaken
from rtfilter.matchers.registry import Factory, factory_of, name_of
from rtfilter.predicates.bounds import compile_bounds
from rtfilter.predicates.boxes import MAX_UNBOUNDED
from rtfilter.predicates.ends import EndStore
from rtfilter.predicates.model import Predicate
from rtfilter.predicates.parse import Source, parse
from rtfilter.predicates.store import Kept, PredicateStore, kept
from rtfilter.subscriptions.ids import LAST_ID, NO_IDS, among, as_ids, distinct_ids, is_integer

SLICE = 2048
"""Subscriptions that are read at once by those who must not keep changes waiting."""


class Part(NamedTuple):
    """Some of the subscriptions, as they are at one moment."""

    filters: Filters
    """Those that the matcher has."""
    kept: list[tuple[int, Kept]]
    """Predicates beside it, by id."""
    unmatchable: list[int]
    """Ids that no event can match."""


class ClaimedError(Exception):
    """A large change is at these ids; wait until it has ended."""


class _Undo(NamedTuple):
    """How to put in order a change that was cut short: remove these ids, then put this."""

    ids: IntArray
    filters: Filters | None = None
    predicates: Sequence[Kept] | None = None
    change: Change | None = None
    """What to tell then, of one that is not taken back but completed."""


class _Bit(NamedTuple):
    """How to end a bit of a large change: remove these ids, and count again what is hidden."""

    ids: IntArray
    hidden: IntArray
    visible: int


class _Made(NamedTuple):
    """A change that is made: what to tell of it, and what follows from it."""

    change: Change
    large: bool = False
    hidden: IntArray = NO_IDS
    """Of a large one: what it has removed, and is still there."""
    content: Subscriptions | None = None
    """Of a large one: the copy that holds all from now on."""


class Draft(NamedTuple):
    """Subscriptions that were read and checked, and are still without ids."""

    filters: Filters
    predicates: list[Kept] | None
    """To keep beside the matcher; None where its boxes tell all."""


class Subscriptions:
    """The subscriptions of a filter. Not safe for threads: who changes them must be alone with them.

    Attributes
    ----------
    schema : Schema
    matcher : Matcher
    adopting : Adopting or None
        The matcher, if it is one.
    predicates : PredicateStore
        Those that the matcher's boxes do not tell.
    unmatchable : set of int
        Ids that no event can match: known, but not to the matcher.
    next_id, version : int
        The next id that is given out, and the number of changes so far.
    claimed : int64 (n,), ascending
        Ids that a large change is at; nobody else may change them.
    unbounded : set of int
        Ids with a box that bounds nothing and decides nothing, also of those that are being added.
    max_unbounded : int or None
        Most of these that `admit` lets there be; None for any number.
    hidden : int64 (n,), ascending
        Claimed ids that nobody may see: those that are being added, or that were removed and are still there.
    """

    def __init__(
        self,
        schema: Schema,
        factory: Factory = "rtree",
        matcher: Matcher | None = None,
        predicates: PredicateStore | None = None,
        unmatchable: Iterable[int] = (),
        next_id: int = 0,
    ) -> None:
        """Those that a matcher has which `factory` made, with what is kept beside it; none by default."""
        matcher = factory_of(factory)(schema) if matcher is None else matcher
        predicates = PredicateStore() if predicates is None else predicates
        self.schema, self.matcher, self.predicates = schema, matcher, predicates
        self.factory, self.name = factory, name_of(factory)
        self.unmatchable, self.next_id = set(unmatchable), next_id
        self.version = 0
        self.unbounded: set[int] = set()
        self.max_unbounded: int | None = MAX_UNBOUNDED
        self._nothing = Filters.of_predicates(schema, [])
        # What the matcher can do besides: to ask a protocol takes longer than a change.
        self._replacing = matcher if isinstance(matcher, Replacing) else None
        self._scannable = matcher if isinstance(matcher, Scannable) else None
        self.adopting = matcher if isinstance(matcher, Adopting) else None
        self._listeners: tuple[ref[Changes], ...] = ()
        # While a change is going on: how to take it back, or once it is made, what to tell of it.
        self._undo: _Undo | _Bit | _Made | None = None
        self.claimed = self.hidden = NO_IDS
        self._hidden_count = 0  # how many of the hidden ones are there
        self._reserved = 0  # while new ids are claimed that were given: the first one behind them
        self._former: PredicateStore | None = None

    # -- drafts: read, checked and compiled before anybody has to wait -----------------------------------

    def draft(self, sources: Sequence[Source]) -> Draft:
        """Read predicates. Raises `PredicateError`; of several its `row`, and its text, tell which."""
        try:
            return self._draft(sources)
        except PredicateError as error:
            if len(sources) > 1:
                error.show_row()
            raise

    def _draft(self, sources: Sequence[Source]) -> Draft:
        predicates = []
        for row, source in enumerate(sources):
            try:
                predicates.append(parse(source, self.schema))
            except PredicateError as error:
                error.row = row
                raise
        refuse_untaken(self.name, self.matcher.takes, predicates, self.schema)
        filters = Filters.of_predicates(self.schema, predicates)
        # A matcher of constraints asks no predicate afterwards: they are kept to explain and to save.
        exact = filters.exact().tolist() if self.matcher.takes.boxes else [True] * len(predicates)
        return Draft(filters, [kept(*pair) for pair in zip(predicates, exact, strict=True)])

    def draft_bounds(self, low: Any, high: Any) -> Draft:
        """Read closed bounds; see `rtfilter.predicates.bounds.compile_bounds`."""
        filters = Filters.of_bounds(self.schema, compile_bounds(low, high, self.schema))
        if not self.matcher.takes.everything:
            refuse_untaken(self.name, self.matcher.takes, filters.predicates(), self.schema)
        if self.matcher.takes.boxes:
            return Draft(filters, None)
        predicates = filters.predicates()
        return Draft(Filters.of_predicates(self.schema, predicates), [kept(one, True) for one in predicates])

    # -- changes -------------------------------------------------------------------------------------------

    def add(self, draft: Draft, ids: ArrayLike | None = None) -> IntArray:
        """Add subscriptions, all or none; their ids, int64 (n,). Raises `ValueError` for unusable ids."""
        self.admit(draft.filters)
        names = self._new_ids(ids, len(draft.filters))
        self._undo = _Undo(names)
        try:
            filters = draft.filters.named(names)
            self.put(names, filters, draft.predicates)
            self._undo = _Made(Change(self.version + 1, filters, NO_IDS))
        finally:
            self.recover()
        return names

    def put(self, names: IntArray, filters: Filters, predicates: Sequence[Kept] | None) -> None:
        """Add new ids, of which `filters` may lack those that match nothing; tells nobody."""
        if predicates is not None:
            for id, predicate in zip(names.tolist(), predicates, strict=True):
                self.predicates.put(id, predicate)  # before the matcher has it: its hits may ask for it
        self.predicates.ends.add(filters.ends)
        self.fill(names, filters)

    def fill(self, names: IntArray, filters: Filters) -> None:
        """Give the matcher subscriptions; those that it leaves out match nothing, and are kept beside it."""
        before = len(self.matcher)
        self._note_unbounded(filters)
        self.matcher.add(filters)
        if len(self.matcher) - before == len(names):
            return
        left_out = [row for row, id in enumerate(names.tolist()) if id not in self.matcher]
        for row in left_out:
            id = int(names[row])
            self.unmatchable.add(id)
            if id not in self.predicates:
                self.predicates.put(id, kept(filters.predicates()[row], True))

    def admit(self, filters: Filters, replaced: int | None = None) -> None:
        """Raise `PredicateError` where too many would be there, once these are, that nothing bounds."""
        if self.max_unbounded is None or not self.matcher.takes.boxes:
            return
        rows = filters.unbounded()
        others = len(self.unbounded) - (replaced in self.unbounded)
        if len(rows) and others + len(rows) > self.max_unbounded:
            error = PredicateError(
                "nothing bounds this predicate, so that nearly every event must be checked exactly: there "
                f"are {others} such subscriptions already, and at most {self.max_unbounded} are allowed "
                "(max_unbounded); compare an attribute with a constant as well, or allow more",
                row=int(rows[max(self.max_unbounded - others, 0)]),
            )
            if len(filters) == 1:
                error.row = None
            error.show_row()
            raise error

    def promise(self, filters: Filters) -> None:
        """Of claimed ids that are to be added: `admit` them, and count them from now on."""
        self.admit(filters)
        self._note_unbounded(filters)

    def _note_unbounded(self, filters: Filters) -> None:
        if self.matcher.takes.boxes:
            rows = filters.unbounded()
            if len(rows):
                self.unbounded.update(filters.ids[rows].tolist())

    def remove(self, ids: IntArray) -> BoolArray:
        """Remove subscriptions, all or none; bool (n,): which were known.

        One that is named twice was known the first time.
        """
        self._refuse_claimed(ids)
        # Known beforehand: a removal that was begun is completed, and told, even where it is cut short.
        found: list[bool] = []
        seen: set[int] = set()
        for id in ids.tolist():
            found.append(id in self and id not in seen)
            seen.add(id)
        known = np.array(found, np.bool_)
        gone = ids if all(found) else ids[known]
        if len(gone):
            self._undo = _Undo(gone, change=self._removal(gone))
            self.recover()
        return known

    def _removal(self, ids: IntArray) -> Change:
        return Change(self.version + 1, self._nothing, ids)

    def _forget(self, ids: IntArray) -> None:
        """Remove all that is known of some ids; where it was interrupted, it can be done again."""
        self.matcher.remove(ids)
        self.predicates.ends.remove(ids)
        for id in ids.tolist():
            self.unmatchable.discard(id)
            self.unbounded.discard(id)
            self.predicates.remove(id)

    def replace(self, id: int, draft: Draft) -> None:
        """Give a subscription another predicate, or leave it as it is. Raises `UnknownSubscriptionError`."""
        if len(self.claimed) and is_integer(id):
            self._refuse_claimed(as_ids(id))
        if id not in self:
            raise UnknownSubscriptionError(id)
        self.admit(draft.filters, id)
        name = np.array([id])
        filters = draft.filters.named(name)
        if self._replacing is not None and id not in self.unmatchable and len(filters.boxes().ids):
            self._replace_at_once(self._replacing, name, filters, draft.predicates)
            return
        before = self.predicates.kept(id)
        old = self._content([id] if id in self.matcher else [])
        self._undo = _Undo(name, old, None if before is None else [before])
        try:
            self._forget(name)
            self.put(name, filters, draft.predicates)
            self._undo = _Made(Change(self.version + 1, filters, name))
        finally:
            self.recover()

    def _replace_at_once(
        self, matcher: Replacing, name: IntArray, filters: Filters, predicates: Sequence[Kept] | None
    ) -> None:
        """Replace one that the matcher has: in the matcher first, which may refuse, then beside it."""
        change = Change(self.version + 1, filters, name)
        self._undo = _Undo(name, filters, predicates, change)  # once begun, it is completed
        try:
            try:
                matcher.replace(filters)
            except Exception:
                self._undo = None
                raise
            self.ends.remove(name)
            self.ends.add(filters.ends)
            self.unbounded.discard(int(name[0]))
            self._note_unbounded(filters)
            if predicates is None:
                self.predicates.remove(int(name[0]))
            else:
                self.predicates.put(int(name[0]), predicates[0])
            self._undo = _Made(change)
        finally:
            self.recover()

    def recover(self) -> None:
        """Take back a change that was cut short, or tell of one that is made.

        If this is cut short, too, it can be repeated.
        """
        undo = self._undo
        if isinstance(undo, _Made):
            if undo.large:
                self._end_large(undo)
            self._tell(undo.change)
        elif isinstance(undo, _Bit):
            self._forget(undo.ids)
            self.hidden, self._hidden_count = undo.hidden, self._count() - undo.visible
        elif undo is not None:
            self._forget(undo.ids)
            if undo.filters is not None:
                self.put(undo.ids, undo.filters, undo.predicates)
            if undo.change is not None:
                self._tell(undo.change)
        self._undo = None

    def _tell(self, change: Change) -> None:
        self.version = change.version
        if self._listeners:
            self._listeners = tuple(one for one in self._listeners if _told(one, change))

    def listen(self) -> Changes:
        """The changes from now on."""
        changes = Changes(self.version)
        self._listeners = (*(one for one in self._listeners if one() is not None), ref(changes))
        return changes

    # -- large changes -------------------------------------------------------------------------------------
    #
    # Ids are claimed. Those to be added are hidden, added bit by bit, and shown at once; those to be removed
    # are hidden at once, and removed bit by bit. Or all is built anew elsewhere, and adopted at once. Each of
    # these steps is a change that must run alone. One that is given up leaves claimed and hidden ids: all
    # there is to do is to remove what is hidden, and to release the claim.

    def claim(self, ids: IntArray) -> None:
        """Claim ids, ascending; nothing else may be claimed."""
        self.claimed = ids

    def claim_new(self, ids: IntArray) -> None:
        """Claim ids that are to be added, ascending: the next ones lie behind them."""
        self.claimed, self._reserved = ids, int(ids[-1]) + 1

    def claim_next(self, count: int) -> IntArray:
        """Claim the next ids, ascending; returns them."""
        self.claimed = ids = self._next_ids(count)
        return ids

    def release(self) -> None:
        """Release what is claimed, when nothing is hidden any more."""
        if self.unbounded and len(self.claimed):  # what was promised, and never came
            counted = np.array(list(self.unbounded))
            for id in counted[among(counted, self.claimed)].tolist():
                if id not in self.matcher:
                    self.unbounded.discard(id)
        self.claimed, self._reserved = NO_IDS, 0

    def add_hidden(self, filters: Filters, predicates: Sequence[Kept] | None) -> None:
        """Add some of the claimed ids, new ones, hidden with all others."""
        self.hidden, visible = self.claimed, len(self)
        self._undo = _Bit(filters.ids, self.hidden, visible)
        try:
            self.put(filters.ids, filters, predicates)
            self._undo = _Bit(NO_IDS, self.hidden, visible)
        finally:
            self.recover()

    def remove_hidden(self, count: int) -> None:
        """Remove the first of the hidden ids, which are then no longer hidden."""
        self._undo = _Bit(self.hidden[:count], self.hidden[count:], len(self))
        self.recover()

    def show(self, filters: Filters) -> None:
        """Show all that was added: this is the change."""
        self._undo = _Made(Change(self.version + 1, filters, NO_IDS), large=True)
        self.recover()

    def hide(self, ids: IntArray) -> None:
        """Hide some of the claimed ids, known ones, ascending: this is their removal."""
        self._undo = _Made(self._removal(ids), large=True, hidden=ids)
        self.recover()

    def adopt(self, copy: Subscriptions, added: Filters | None, removed: IntArray) -> None:
        """Take the content of a copy, which must not be used any more; tell what was changed in it.

        For a matcher that is `Adopting`.
        """
        changed = added is not None or len(removed) > 0
        change = Change(self.version + changed, self._nothing if added is None else added, removed)
        self._undo = _Made(change, True, NO_IDS, copy)
        self.recover()

    def _end_large(self, made: _Made) -> None:
        if made.content is not None:
            copy = made.content
            assert self.adopting is not None
            self.adopting.adopt(copy.matcher)
            if copy._former is None:
                copy._former = self.predicates  # which takes long to free: that is done where the copy ends
            self.predicates, self.unmatchable = copy.predicates, copy.unmatchable
            self.unbounded = copy.unbounded
        self.next_id = max(self.next_id, self._reserved)
        self.hidden, self._hidden_count = made.hidden, len(made.hidden)
        if not len(made.hidden):
            self.release()

    def _refuse_claimed(self, ids: IntArray) -> None:
        if len(self.claimed) and among(ids, self.claimed).any():
            raise ClaimedError

    # -- ids -----------------------------------------------------------------------------------------------

    def _new_ids(self, ids: ArrayLike | None, count: int) -> IntArray:
        if ids is None:
            return self._next_ids(count)
        names = distinct_ids(ids, count)
        self._refuse_claimed(names)
        self.require_new(names)
        self.next_id = max(self.next_id, int(names.max(initial=-1)) + 1)
        return names

    def _next_ids(self, count: int) -> IntArray:
        first = max(self.next_id, self._reserved)
        if count > LAST_ID + 1 - first:
            raise ValueError(
                f"no ids are left: the next would be {first}, the last is 2**63 - 2; give ids that are free"
            )
        self.next_id = first + count
        return np.arange(first, self.next_id)

    def require_new(self, ids: IntArray) -> None:
        """Raise `ValueError` for an id that is known."""
        for id in ids.tolist():
            if id in self:
                raise ValueError(f"subscription {id} exists already; unsubscribe or update it")

    # -- looking inside ------------------------------------------------------------------------------------

    def ids(self) -> IntArray:
        """All ids, ascending, int64 (n,)."""
        own = np.union1d(self.matcher.ids(), np.array(sorted(self.unmatchable), np.int64))
        visible = self.visible(own)
        return own if visible is None else own[visible]

    def visible(self, ids: IntArray) -> BoolArray | None:
        """Which of some ids are not hidden, bool (n,); None for all."""
        return ~among(ids, self.hidden) if len(self.hidden) else None

    def __len__(self) -> int:
        return self._count() - self._hidden_count

    def _count(self) -> int:
        return len(self.matcher) + len(self.unmatchable)

    def known(self, ids: IntArray) -> BoolArray:
        """Which of some ids there are, bool (n,)."""
        return np.array([id in self for id in ids.tolist()], np.bool_)

    def __contains__(self, id: int) -> bool:
        known = is_integer(id) and (id in self.matcher or id in self.unmatchable)
        return known and not (len(self.hidden) and among(np.array([id]), self.hidden)[0])

    def predicate(self, id: int) -> Predicate:
        """The predicate of a subscription. Raises `UnknownSubscriptionError`."""
        predicate = self.get(id) if is_integer(id) else None
        if predicate is None:
            raise UnknownSubscriptionError(id)
        return predicate

    def get(self, id: int) -> Predicate | None:
        """The predicate of a subscription, None if it is unknown."""
        if len(self.hidden) and id not in self:
            return None
        predicate = self.predicates.get(id)
        if predicate is None and id in self.matcher:
            return self._content([index(id)]).predicates()[0]
        return predicate

    @property
    def ends(self) -> EndStore:
        """Exact ends of bounds that their boxes do not tell, by id."""
        return self.predicates.ends

    def _content(self, ids: Sequence[int]) -> Filters:
        """What the matcher holds of some ids, with what is kept beside it to tell their bounds."""
        content = self.matcher.content(ids)
        return content.with_ends(self.ends.of(np.array(ids, np.int64))) if self.ends else content

    def part(self, ids: ArrayLike) -> Subscriptions:
        """Some of the subscriptions with a matcher of their own; unknown ids are ignored."""
        wanted = np.unique(as_ids(ids))
        if 8 * len(wanted) > len(self):
            own = self.ids()
            own = own[np.isin(own, wanted)]
        else:
            own = np.array([id for id in wanted.tolist() if id in self], np.int64)
        part = self.empty()
        self._copy(own, part)
        return part

    def with_matcher(self, matcher: Factory) -> Subscriptions:
        """All subscriptions with another matcher. Raises `PredicateError` for what it does not take."""
        other = Subscriptions(self.schema, matcher)
        self._copy(self.ids(), other)
        other.version, other.max_unbounded = self.version, self.max_unbounded
        return other

    def _copy(self, own: IntArray, other: Subscriptions) -> None:
        """Add some subscriptions, known ids, to others that are empty."""
        other.next_id = self.next_id
        if self.factory is other.factory:
            other.take([self.read(own)])
        else:
            draft = other.draft([self.predicate(id) for id in own.tolist()])
            other.put(own, draft.filters.named(own), draft.predicates)

    # -- slices, for a copy that is made while others go on ------------------------------------------------

    def empty(self) -> Subscriptions:
        """None, with a matcher of the same kind."""
        matcher = factory_of(self.factory)(self.schema, **self.matcher.options)
        none = Subscriptions(self.schema, self.factory, matcher)
        none.max_unbounded = self.max_unbounded
        return none

    def slices(self) -> list[range | IntArray]:
        """Cut all subscriptions into slices that `read` takes; one that is not changed stays in its slice."""
        cut: list[range | IntArray] = []
        if self._scannable is not None:
            rows = self._scannable.rows
            cut += [range(first, min(first + SLICE, rows)) for first in range(0, rows, SLICE)]
        else:
            cut += cut_up(self.matcher.ids())
        return cut + cut_up(np.array(sorted(self.unmatchable), np.int64))

    @property
    def places(self) -> object:
        """The same object as long as `slices` that are ranges can be read."""
        return None if self._scannable is None else self._scannable.places

    def read(self, part: range | IntArray) -> Part:
        """A slice, or ids of which unknown ones are left out."""
        if isinstance(part, range):
            assert self._scannable is not None
            filters = self._scannable.scan(part)
            visible = self.visible(filters.ids)
            if visible is not None:
                filters = Filters.joined(self.schema, [filters], filters.ids[~visible])
            if self.ends:
                filters = filters.with_ends(self.ends.of(filters.ids))
            return Part(filters, self._kept(filters.ids.tolist()), [])
        known = [id for id in part.tolist() if id in self]
        unmatchable = [id for id in known if id in self.unmatchable] if self.unmatchable else []
        matchable = [id for id in known if id not in self.unmatchable] if self.unmatchable else known
        return Part(self._content(matchable), self._kept(known), unmatchable)

    def _kept(self, ids: list[int]) -> list[tuple[int, Kept]]:
        found = ((id, self.predicates.kept(id)) for id in ids if id in self.predicates)
        return [(id, one) for id, one in found if one is not None]

    def take(self, parts: Sequence[Part], without: IntArray = NO_IDS) -> None:
        """Add parts of others, without some ids. Nobody else may use these meanwhile, and nobody is told."""
        left_out = set(without.tolist())
        for part in parts:
            for id, predicate in part.kept:
                if id not in left_out:
                    self.predicates.put(id, predicate)
            self.unmatchable.update(id for id in part.unmatchable if id not in left_out)
        filters = Filters.joined(self.schema, [part.filters for part in parts], without)
        self.ends.add(filters.ends)
        self._note_unbounded(filters)
        self.matcher.add(filters)

    def renew(self, ids: IntArray, part: Part) -> None:
        """Replace what is known of some ids, by a part of others; see `take`."""
        self._forget(ids)
        self.take([part])

    def follow(self, source: Subscriptions) -> None:
        """Be of the same version as the subscriptions that these are a copy of."""
        self.version, self.next_id = source.version, source.next_id


def cut_up(ids: IntArray) -> list[range | IntArray]:
    """Slices of ids, int64 (n,)."""
    return [ids[first : first + SLICE] for first in range(0, len(ids), SLICE)]


def _told(listener: ref[Changes], change: Change) -> bool:
    """Tell a listener of a change; False if it listens no more."""
    changes = listener()
    return changes is not None and changes.tell(change)
