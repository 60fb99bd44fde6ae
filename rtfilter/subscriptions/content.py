"""Subscriptions: ids, predicates, and the matcher that finds them; a change is whole or undone.

Inside, a subscription goes by its *key*, an integer. Where ids are integers, keys are ids. Where they are
text or UUIDs (`rtfilter.subscriptions.names`), a key is given out again once its subscription is gone:
changes run alone, and batches put ids for keys before one may begin, so no batch sees a key stand for two.

What is beyond its deadline is gone for those who ask, and is removed later, some at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from operator import index
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from rtfilter.changes import Change, Changes
from rtfilter.dtypes import AnyArray, BoolArray, FloatArray, IntArray
from rtfilter.errors import PredicateError, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import Filters
from rtfilter.matchers.port import Adopting, Matcher, Replacing, Scannable, refuse_untaken
from rtfilter.matchers.registry import Factory, factory_of, name_of
from rtfilter.predicates.bounds import compile_bounds
from rtfilter.predicates.boxes import MAX_UNBOUNDED, compile_predicate
from rtfilter.predicates.ends import EndStore
from rtfilter.predicates.many import Refused, compile_many
from rtfilter.predicates.model import Predicate
from rtfilter.predicates.parse import Source, parse
from rtfilter.predicates.store import Kept, PredicateStore, kept
from rtfilter.subscriptions.ids import (
    LAST_ID,
    NO_IDS,
    Name,
    among,
    as_ids,
    is_integer,
    missing_ids,
    refuse_kinds,
)
from rtfilter.subscriptions.labels import NO_LABELS, Beside, Labels
from rtfilter.subscriptions.names import Names
from rtfilter.text import shown

SLICE = 2048
"""Subscriptions that are read at once by those who must not keep changes waiting."""


class Part(NamedTuple):
    """Some of the subscriptions, as they are at one moment."""

    filters: Filters
    """Those that the matcher has."""
    kept: list[tuple[int, Kept]]
    """Predicates beside it, by key."""
    unmatchable: list[int]
    """Keys that no event can match."""
    keys: IntArray
    """Keys that have labels, int64 (n,)."""
    labels: Beside

    def renumbered(self, keys: IntArray) -> Part:
        """The same with the places of their keys among some, which ascend, as keys."""
        filters = self.filters.named(np.searchsorted(keys, self.filters.ids))
        kept = [(int(np.searchsorted(keys, key)), one) for key, one in self.kept]
        unmatchable = np.searchsorted(keys, self.unmatchable).tolist()
        return Part(filters, kept, unmatchable, np.searchsorted(keys, self.keys), self.labels)


class ClaimedError(Exception):
    """A large change is at these ids; wait until it has ended."""


class _Undo(NamedTuple):
    """How to put in order a change that was cut short: remove these keys, then put this."""

    keys: IntArray
    filters: Filters | None = None
    """Where there are some, the keys keep their ids."""
    predicates: Sequence[Kept] | None = None
    change: Change | None = None
    """What to tell then, of one that is not taken back but completed."""
    labels: Beside = NO_LABELS


class _Labeled(NamedTuple):
    """A change of labels alone, to be completed."""

    keys: IntArray
    labels: Beside
    change: Change


class _Bit(NamedTuple):
    """How to end a bit of a large change: remove these keys, and count again what is hidden."""

    keys: IntArray
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
    freed: list[IntArray] | None = None
    """With a copy: keys that stand for nothing from now on, of large removals."""


class Draft(NamedTuple):
    """Subscriptions that were read and checked, and are still without ids."""

    filters: Filters
    predicates: list[Kept] | None
    """To keep beside the matcher; None where its boxes tell all."""
    labels: Beside = NO_LABELS
    """Deadlines and metadata."""


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
    labels : Labels
        Ids that are no integers, deadlines and metadata.
    kind : type or None
        Of ids: int, str or UUID; None until the first one comes.
    clock : callable
        Seconds, to which deadlines are compared.
    unmatchable : set of int
        Keys that no event can match: known, but not to the matcher.
    next_id, version : int
        The next key that is given out, and the number of changes so far.
    claimed : int64 (n,), ascending
        Keys that a large change is at; nobody else may change them.
    claimed_names : set
        The same of ids that are no integers, which may have no keys yet.
    unbounded : set of int
        Keys with a box that bounds nothing and decides nothing, also of those that are being added.
    max_unbounded : int or None
        Most of these that `admit` lets there be; None for any number.
    hidden : int64 (n,), ascending
        Claimed keys that nobody may see: those being added, and those that were removed and are still there.
    """

    def __init__(
        self,
        schema: Schema,
        factory: Factory = "rtree",
        matcher: Matcher | None = None,
        predicates: PredicateStore | None = None,
        unmatchable: Iterable[int] = (),
        next_id: int = 0,
        kind: type | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Those that a matcher has which `factory` made, with what is kept beside it; none by default."""
        self.kind, self._settled, self.clock = kind, kind is not None, clock
        self.labels = Labels(kind)
        # Keys that were given out, and stand for nothing: one by one, and of large removals.
        self._free: list[int] = []
        self._freed: list[IntArray] = []
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
        self._undo: _Undo | _Labeled | _Bit | _Made | None = None
        self.claimed = self.hidden = NO_IDS
        self.claimed_names: frozenset[Name] = frozenset()
        self._hidden_count = 0  # how many of the hidden ones are there
        self._reserved = 0  # while new ids are claimed that were given: the first one behind them
        self._former: object = None

    # -- drafts: read, checked and compiled before anybody has to wait -----------------------------------

    def draft(self, sources: Sequence[Source], refused: Refused | None = None) -> Draft:
        """Read predicates. Raises `PredicateError`; of several its `row`, and its text, tell which.

        `refused`, if there is one, takes the row and the error of each that cannot be used instead, in order;
        the draft is of all others.
        """
        try:
            return self._draft(sources, refused)
        except PredicateError as error:
            if len(sources) > 1:
                error.show_row()
            raise

    def _draft(self, sources: Sequence[Source], refused: Refused | None) -> Draft:
        takes = self.matcher.takes
        if takes.boxes and takes.everything and (len(sources) > 1 or refused is not None):
            compiled = compile_many(sources, self.schema, refused)
            return Draft(Filters.of_compiled(self.schema, compiled), compiled.kept)
        predicates = []
        for row, source in enumerate(sources):
            try:
                predicate = parse(source, self.schema)
                refuse_untaken(self.name, takes, [predicate], self.schema)
                if takes.boxes and refused is not None:
                    compile_predicate(predicate, self.schema)
                predicates.append(predicate)
            except PredicateError as error:
                error.row = row
                if refused is None:
                    raise
                error.show_row()
                refused(row, error)
        filters = Filters.of_predicates(self.schema, predicates)
        # A matcher of constraints asks no predicate afterwards: they are kept to explain and to save.
        exact = filters.exact().tolist() if takes.boxes else [True] * len(predicates)
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

    def add(self, draft: Draft, ids: IntArray | list[Name] | None = None, moment: float = -inf) -> AnyArray:
        """Add subscriptions, all or none; their ids, int64 or object (n,).

        Ids are as of `new_ids`. Raises `ValueError` for unusable ones, `TypeError` for those of another type,
        and what `admit` raises.
        """
        self.admit(draft.filters, moment)
        keys, labels = self._new_keys(draft, ids, moment)
        self._undo = _Undo(keys)
        try:
            filters = draft.filters.named(keys)
            self.put(keys, filters, draft.predicates, labels)
            self._undo = _Made(self._change(filters, NO_IDS))
        finally:
            self.recover()
        return self.labels.ids(keys)

    def put(
        self,
        keys: IntArray,
        filters: Filters,
        predicates: Sequence[Kept] | None,
        labels: Beside = NO_LABELS,
    ) -> None:
        """Add new keys, of which `filters` may lack those that match nothing; tells nobody."""
        # All of this before the matcher has them: its hits may ask for it.
        if labels is not NO_LABELS:
            self.labels.put(keys.tolist(), labels)
        if predicates is not None:
            for key, predicate in zip(keys.tolist(), predicates, strict=True):
                self.predicates.put(key, predicate)
        self.predicates.ends.add(filters.ends)
        self.fill(keys, filters)

    def fill(self, keys: IntArray, filters: Filters) -> None:
        """Give the matcher subscriptions; those that it leaves out match nothing, and are kept beside it."""
        before = len(self.matcher)
        self._note_unbounded(filters)
        self.matcher.add(filters)
        if len(self.matcher) - before == len(keys):
            return
        left_out = [row for row, key in enumerate(keys.tolist()) if key not in self.matcher]
        for row in left_out:
            key = int(keys[row])
            self.unmatchable.add(key)
            if key not in self.predicates:
                self.predicates.put(key, kept(filters.predicates()[row], True))

    def admit(self, filters: Filters, moment: float, replaced: int | None = None) -> None:
        """Raise `PredicateError` where too many would be there, once these are, that nothing bounds."""
        if self.max_unbounded is None or not self.matcher.takes.boxes:
            return
        rows = filters.unbounded()
        if not len(rows) or len(self.unbounded) + len(rows) <= self.max_unbounded:
            return
        others = self.count_unbounded(moment) - (replaced in self.unbounded)
        if others + len(rows) > self.max_unbounded:
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

    def promise(self, filters: Filters, moment: float) -> None:
        """Of claimed keys that are to be added: `admit` them, and count them from now on."""
        self.admit(filters, moment)
        self._note_unbounded(filters)

    def _note_unbounded(self, filters: Filters) -> None:
        if self.matcher.takes.boxes:
            rows = filters.unbounded()
            if len(rows):
                self.unbounded.update(filters.ids[rows].tolist())

    def remove(self, ids: IntArray | list[Name], moment: float = -inf) -> BoolArray:
        """Remove subscriptions, all or none; bool (n,): which were known.

        One that is named twice was known the first time.
        """
        self._refuse_claimed(ids)
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
            self._undo = _Undo(keys, change=self._removal(keys))
            self.recover()

    def _removal(self, keys: IntArray) -> Change:
        return self._change(self._nothing, keys)

    def _change(self, added: Filters, removed: IntArray, names: Names | None = None) -> Change:
        """What to tell of a change of keys; those added stand for `names`, if they have other ones."""
        own = self.labels.names
        if own is None or not self._listeners:  # nobody will hear of it: names take long where they are many
            return Change(self.version + 1, added, removed)
        new = (own if names is None else names).take(added.ids)
        keys = np.concatenate([added.ids, removed])
        return Change(self.version + 1, added.named(new), own.take(removed), keys)

    def _strip(self, keys: IntArray) -> None:
        """Remove what some keys ask for; where it was interrupted, it can be done again."""
        self.matcher.remove(keys)
        self.predicates.ends.remove(keys)
        for key in keys.tolist():
            self.unmatchable.discard(key)
            self.unbounded.discard(key)
            self.predicates.remove(key)

    def _forget(self, keys: IntArray) -> None:
        """Remove all that is known of some keys; where it was interrupted, it can be done again."""
        self._strip(keys)
        self._free += self.labels.drop(keys)

    def replace(
        self, id: object, draft: Draft | None, labels: Beside = NO_LABELS, moment: float = -inf
    ) -> None:
        """Give a subscription another predicate, other labels or both, or leave it as it is.

        Raises `UnknownSubscriptionError`, and what `admit` raises.
        """
        key = self._require_known(id, moment)
        keys = np.array([key])
        if draft is None:
            nothing = self._change(self._nothing, NO_IDS)
            self._undo = _Labeled(keys, labels, nothing._replace(keys=keys))
            self.recover()
            return
        self.admit(draft.filters, moment, key)
        filters = draft.filters.named(keys)
        if self._replacing is not None and key not in self.unmatchable and len(filters.boxes().ids):
            self._replace_at_once(self._replacing, keys, filters, draft.predicates, labels)
            return
        before = self.predicates.kept(key)
        old = self._content([key] if key in self.matcher else [])
        self._undo = _Undo(keys, old, None if before is None else [before], None, self._before(keys, labels))
        try:
            self._strip(keys)
            self.put(keys, filters, draft.predicates, labels)
            self._undo = _Made(self._change(filters, keys))
        finally:
            self.recover()

    def _before(self, keys: IntArray, labels: Beside) -> Beside:
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
        change = self._change(filters, keys)
        self._undo = _Undo(keys, filters, predicates, change, labels)  # once begun, it is completed
        try:
            try:
                matcher.replace(filters)
            except Exception:
                self._undo = None
                raise
            self.ends.remove(keys)
            self.ends.add(filters.ends)
            self.unbounded.discard(int(keys[0]))
            self._note_unbounded(filters)
            if predicates is None:
                self.predicates.remove(int(keys[0]))
            else:
                self.predicates.put(int(keys[0]), predicates[0])
            if labels is not NO_LABELS:
                self.labels.put(keys.tolist(), labels)
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
            self._forget(undo.keys)
            self.hidden, self._hidden_count = undo.hidden, self._count() - undo.visible
        elif isinstance(undo, _Labeled):
            self.labels.put(undo.keys.tolist(), undo.labels)
            self._tell(undo.change)
        elif undo is not None:
            if undo.filters is None:
                self._forget(undo.keys)
            else:
                self._strip(undo.keys)
                self.put(undo.keys, undo.filters, undo.predicates, undo.labels)
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
    # Keys are claimed. Those to be added are hidden, added bit by bit, and shown at once; those to be removed
    # are hidden at once, and removed bit by bit. Or all is built anew elsewhere, and adopted at once. Each of
    # these steps is a change that must run alone. One that is given up leaves claimed and hidden ids: all
    # there is to do is to remove what is hidden, and to release the claim.

    @property
    def claims(self) -> bool:
        """Whether anything is claimed."""
        return len(self.claimed) > 0 or len(self.claimed_names) > 0

    def claim(self, keys: IntArray) -> None:
        """Claim keys, ascending; nothing else may be claimed but their names."""
        self.claimed = keys

    def claim_names(self, names: frozenset[Name], kind: type | None = None) -> None:
        """Claim ids that are no integers; with `kind`, new ones."""
        if kind is not None:
            self._settle(kind)
        self.claimed_names = names

    def claim_new(self, ids: IntArray) -> None:
        """Claim ids that are to be added, ascending: the next ones lie behind them."""
        self._settle(int)
        self.claimed, self._reserved = ids, int(ids[-1]) + 1

    def claim_next(self, count: int) -> IntArray:
        """Claim the next ids, or keys for new names that are claimed already, ascending; returns them."""
        if not len(self.claimed_names):
            self._settle(int, made_up=True)
        self.claimed = keys = self._next_ids(count) if self.labels.names is None else self._next_keys(count)
        return keys

    def release(self) -> None:
        """Release what is claimed, when nothing is hidden any more."""
        if self.unbounded and len(self.claimed):  # what was promised, and never came
            counted = np.array(list(self.unbounded))
            for key in counted[among(counted, self.claimed)].tolist():
                if key not in self.matcher:
                    self.unbounded.discard(key)
        self.claimed, self._reserved = NO_IDS, 0
        self.claimed_names = frozenset()

    def add_hidden(
        self, filters: Filters, predicates: Sequence[Kept] | None, labels: Beside = NO_LABELS
    ) -> None:
        """Add some of the claimed keys, new ones, hidden with all others."""
        self.hidden, visible = self.claimed, len(self)
        self._undo = _Bit(filters.ids, self.hidden, visible)
        try:
            self.put(filters.ids, filters, predicates, labels)
            self._undo = _Bit(NO_IDS, self.hidden, visible)
        finally:
            self.recover()

    def remove_hidden(self, count: int) -> None:
        """Remove the first of the hidden keys, which are then no longer hidden."""
        self._undo = _Bit(self.hidden[:count], self.hidden[count:], len(self))
        self.recover()

    def show(self, filters: Filters) -> None:
        """Show all that was added: this is the change."""
        self._undo = _Made(self._change(filters, NO_IDS), large=True)
        self.recover()

    def hide(self, keys: IntArray) -> None:
        """Hide some of the claimed keys, known ones, ascending: this is their removal."""
        self._undo = _Made(self._removal(keys), large=True, hidden=keys)
        self.recover()

    def adopt(self, copy: Subscriptions, added: Filters | None, removed: IntArray) -> None:
        """Take the content of a copy, which must not be used any more; tell what was changed in it.

        For a matcher that is `Adopting`.
        """
        change = self._change(self._nothing if added is None else added, removed, copy.labels.names)
        if added is None and not len(removed):
            change = change._replace(version=self.version)
        freed = self._freed if self.labels.names is None else [*self._freed, removed]
        self._undo = _Made(change, True, NO_IDS, copy, freed)
        self.recover()

    def _end_large(self, made: _Made) -> None:
        if made.content is not None:
            copy = made.content
            assert self.adopting is not None
            self.adopting.adopt(copy.matcher)
            if copy._former is None:  # it takes long to free: that is done where the copy ends
                copy._former = self.predicates, self.labels
            self.predicates, self.unmatchable = copy.predicates, copy.unmatchable
            self.unbounded = copy.unbounded
            self.labels = copy.labels
            assert made.freed is not None
            self._freed = made.freed
        self.next_id = max(self.next_id, self._reserved)
        self.hidden, self._hidden_count = made.hidden, len(made.hidden)
        if not len(made.hidden):
            self.release()

    def _refuse_claimed(self, ids: IntArray | list[Name]) -> None:
        if isinstance(ids, list):
            claimed = bool(self.claimed_names) and not self.claimed_names.isdisjoint(ids)
        else:
            claimed = len(self.claimed) > 0 and bool(among(ids, self.claimed).any())
        if claimed:
            raise ClaimedError

    # -- ids -----------------------------------------------------------------------------------------------

    def _settle(self, kind: type, made_up: bool = False) -> None:
        """Let ids be of a type, or refuse it. Nothing is settled before a change is made."""
        if self.kind is kind:
            return
        if self.kind is not None and (self._settled or self.version):
            raise missing_ids(self.kind) if made_up else refuse_kinds(self.kind, kind)
        self.labels = Labels(kind)
        self.kind = kind

    def _new_keys(
        self, draft: Draft, ids: IntArray | list[Name] | None, moment: float
    ) -> tuple[IntArray, Beside]:
        """Keys for new subscriptions, with their labels."""
        count = len(draft.filters)
        if ids is None:
            if self.kind is not int and count:
                self._settle(int, made_up=True)
            return (self._next_ids(count) if count else NO_IDS), draft.labels
        if not len(ids):
            return NO_IDS, draft.labels
        self._settle(type(ids[0]) if isinstance(ids, list) else int)
        self._refuse_claimed(ids)
        self._renew(ids, moment)
        self.require_new(ids)
        if isinstance(ids, list):
            return self._next_keys(count), draft.labels._replace(names=ids)
        self.next_id = max(self.next_id, int(ids.max()) + 1)
        return ids, draft.labels

    def _renew(self, ids: IntArray | list[Name], moment: float) -> None:
        """Remove those of some ids that are beyond their deadlines, so that they are new."""
        keys = self.labels.keys(ids)
        passed = self.labels.passed(keys, moment)
        if passed is not None and passed.any():
            self._remove_known(np.array([key for key in keys[passed].tolist() if key in self], np.int64))

    def _next_ids(self, count: int) -> IntArray:
        first = max(self.next_id, self._reserved)
        if count > LAST_ID + 1 - first:
            raise ValueError(
                f"no ids are left: the next would be {first}, the last is 2**63 - 2; give ids that are free"
            )
        self.next_id = first + count
        return np.arange(first, self.next_id)

    def _next_keys(self, count: int) -> IntArray:
        """Keys that stand for nothing, ascending, int64 (n,). Where a change is cut short now, they are lost.

        While keys are claimed none is given out again: those of a large change that failed are free, but
        hidden.
        """
        again: list[int] = []
        if not len(self.claimed):
            again = self._free[-count:]
            del self._free[len(self._free) - len(again) :]
            while self._freed and len(again) < count:
                last = self._freed.pop()
                cut = max(len(last) - count + len(again), 0)
                if cut:
                    self._freed.append(last[:cut])
                again += last[cut:].tolist()
        others = self._next_ids(count - len(again))
        return np.concatenate([np.sort(np.array(again, np.int64)), others])

    def require_new(self, ids: IntArray | list[Name]) -> None:
        """Raise `ValueError` for an id that is known."""
        keys = self.labels.keys(ids)
        for row, key in enumerate(keys.tolist()):
            if key in self:
                raise ValueError(
                    f"subscription {shown(_plain(ids[row]))} exists already; unsubscribe or update it"
                )

    def _require_known(self, id: object, moment: float) -> int:
        """The key of an id. Raises `UnknownSubscriptionError`, and `ClaimedError`."""
        if self.labels.names is None:
            if len(self.claimed) and is_integer(id):
                self._refuse_claimed(as_ids(id))  # type: ignore[arg-type]
        elif self.claimed_names and isinstance(id, Name):
            self._refuse_claimed([id])
        key = self.key(id, moment)
        if key < 0:
            raise UnknownSubscriptionError(id)
        return key

    # -- looking inside ------------------------------------------------------------------------------------

    def moment(self) -> float:
        """Now, for those who ask what is there; free of cost where nothing has a deadline."""
        return -inf if self.labels.deadlines is None else self.clock()

    def keys(self) -> IntArray:
        """All keys, ascending, int64 (n,)."""
        own = np.union1d(self.matcher.ids(), np.array(sorted(self.unmatchable), np.int64))
        visible = self.visible(own)
        return own if visible is None else own[visible]

    def ids(self, moment: float = -inf) -> AnyArray:
        """The ids of all that are there at a moment, int64 or object (n,); integers ascend."""
        keys = self.keys()
        passed = self.labels.passed(keys, moment)
        return self.labels.ids(keys if passed is None else keys[~passed])

    def visible(self, keys: IntArray, moment: float = -inf) -> BoolArray | None:
        """Which of some keys are neither hidden nor beyond their deadlines, bool (n,); None for all."""
        shown = ~among(keys, self.hidden) if len(self.hidden) else None
        if self.labels.deadlines is not None:
            passed = self.labels.deadlines.passed(keys, moment)
            if passed is not None:
                return ~passed if shown is None else shown & ~passed
        return shown

    def hides(self, moment: float) -> bool:
        """Whether some of what the matcher finds may not be seen at a moment."""
        deadlines = self.labels.deadlines
        return len(self.hidden) > 0 or (deadlines is not None and deadlines.earliest <= moment)

    def __len__(self) -> int:
        """Those that are not hidden, with those beyond their deadlines."""
        return self._count() - self._hidden_count

    def count(self, moment: float) -> int:
        """Number of those that are there at a moment."""
        if self.labels.deadlines is None or moment < self.labels.deadlines.earliest:
            return len(self)
        passed = self.labels.deadlines.all_passed(moment)
        hidden = int(among(passed, self.hidden).sum()) if len(self.hidden) else 0
        return len(self) - len(passed) + hidden

    def count_unbounded(self, moment: float) -> int:
        """Number of those that nothing bounds and that are there at a moment, or are being added."""
        deadlines = self.labels.deadlines
        if deadlines is None or moment < deadlines.earliest or not self.unbounded:
            return len(self.unbounded)
        passed = deadlines.passed(np.array(list(self.unbounded)), moment)
        return len(self.unbounded) - (0 if passed is None else int(passed.sum()))

    def _count(self) -> int:
        return len(self.matcher) + len(self.unmatchable)

    def known(self, keys: IntArray, moment: float = -inf) -> BoolArray:
        """Which of some keys there are at a moment, bool (n,)."""
        there = np.array([key in self for key in keys.tolist()], np.bool_)
        passed = self.labels.passed(keys, moment)
        return there if passed is None else there & ~passed

    def gone(self, keys: IntArray, moment: float) -> BoolArray:
        """Which of some keys there are, but beyond their deadlines, bool (n,)."""
        there = np.array([key in self for key in keys.tolist()], np.bool_)
        passed = self.labels.passed(keys, moment)
        return np.zeros(len(keys), np.bool_) if passed is None else there & passed

    def some_passed(self, moment: float, most: int) -> IntArray | list[Name]:
        """Ids of some that are beyond their deadlines, at most so many."""
        if self.labels.deadlines is None:
            return NO_IDS
        keys = self.labels.deadlines.all_passed(moment)[:most]
        return keys if self.labels.names is None else self.labels.names.take(keys).tolist()

    def __contains__(self, key: int) -> bool:
        """Whether there is a key that is not hidden; it may be beyond its deadline."""
        known = key in self.matcher or key in self.unmatchable
        return known and not (len(self.hidden) and among(np.array([key]), self.hidden)[0])

    def key(self, id: object, moment: float = -inf) -> int:
        """The key of an id that is there at a moment, -1 if it is not."""
        key = self.labels.key(id)
        return key if key in self and not self.labels.has_passed(key, moment) else -1

    def predicate(self, id: object, moment: float = -inf) -> Predicate:
        """The predicate of a subscription. Raises `UnknownSubscriptionError`."""
        predicate = self.get(self.key(id, moment))
        if predicate is None:
            raise UnknownSubscriptionError(id)
        return predicate

    def metadata(self, id: object, moment: float = -inf) -> bytes | None:
        """The metadata of a subscription as JSON text. Raises `UnknownSubscriptionError`."""
        key = self.key(id, moment)
        if key < 0:
            raise UnknownSubscriptionError(id)
        return None if self.labels.metadata is None else self.labels.metadata.get(key)

    def deadline(self, id: object, moment: float = -inf) -> float:
        """The deadline of a subscription, inf if it has none. Raises `UnknownSubscriptionError`."""
        key = self.key(id, moment)
        if key < 0:
            raise UnknownSubscriptionError(id)
        return inf if self.labels.deadlines is None else self.labels.deadlines.get(key)

    def get(self, key: int) -> Predicate | None:
        """The predicate of a key, None if it is unknown."""
        if len(self.hidden) and key not in self:
            return None
        predicate = self.predicates.get(key)
        if predicate is None and key in self.matcher:
            return self._content([index(key)]).predicates()[0]
        return predicate

    @property
    def ends(self) -> EndStore:
        """Exact ends of bounds that their boxes do not tell, by id."""
        return self.predicates.ends

    def _content(self, ids: Sequence[int]) -> Filters:
        """What the matcher holds of some ids, with what is kept beside it to tell their bounds."""
        content = self.matcher.content(ids)
        return content.with_ends(self.ends.of(np.array(ids, np.int64))) if self.ends else content

    def part(self, ids: IntArray | list[Name], moment: float = -inf) -> Subscriptions:
        """Some of the subscriptions with a matcher of their own; unknown ids are ignored."""
        wanted = np.unique(self.labels.keys(ids))
        if 8 * len(wanted) > len(self):
            own = self.keys()
            own = own[np.isin(own, wanted)]
        else:
            own = np.array([key for key in wanted.tolist() if key in self], np.int64)
        passed = self.labels.passed(own, moment)
        if passed is not None:
            own = own[~passed]
        part, content = self.empty(), self.read(own)
        part.next_id = self.next_id
        if self.labels.names is not None:
            content, part.next_id = content.renumbered(own), len(own)
        part.take([content])
        return part

    def with_matcher(self, matcher: Factory) -> Subscriptions:
        """All subscriptions with another matcher. Raises `PredicateError` for what it does not take."""
        other = Subscriptions(self.schema, matcher, kind=self.kind, clock=self.clock)
        other.max_unbounded = self.max_unbounded
        own = self.keys()
        if self.factory is other.factory:
            other.take([self.read(own)])
        else:
            draft = other.draft([one for one in map(self.get, own.tolist()) if one is not None])
            other.put(own, draft.filters.named(own), draft.predicates, self.labels.of(own))
        other.follow(self)
        other._free, other._freed = self._free.copy(), self._freed.copy()
        return other

    # -- slices, for a copy that is made while others go on ------------------------------------------------

    def empty(self) -> Subscriptions:
        """None, with a matcher of the same kind."""
        matcher = factory_of(self.factory)(self.schema, **self.matcher.options)
        none = Subscriptions(self.schema, self.factory, matcher, kind=self.kind, clock=self.clock)
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
            labels = self.labels.of(filters.ids)
            return Part(filters, self._kept(filters.ids.tolist()), [], filters.ids, labels)
        known = [id for id in part.tolist() if id in self]
        unmatchable = [id for id in known if id in self.unmatchable] if self.unmatchable else []
        matchable = [id for id in known if id not in self.unmatchable] if self.unmatchable else known
        keys = np.array(known, np.int64)
        return Part(self._content(matchable), self._kept(known), unmatchable, keys, self.labels.of(keys))

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
        self._take_labels([part for part in parts if part.labels is not NO_LABELS], without)
        filters = Filters.joined(self.schema, [part.filters for part in parts], without)
        self.ends.add(filters.ends)
        self._note_unbounded(filters)
        self.matcher.add(filters)

    def _take_labels(self, parts: Sequence[Part], without: IntArray) -> None:
        """Take the labels of parts; the boxes of one subscription may lie in several, which then all tell."""
        moments: list[tuple[IntArray, FloatArray]] = []
        for part in parts:
            rows = np.flatnonzero(~np.isin(part.keys, without))
            keys, own = part.keys[rows], part.labels.take(rows)
            self.labels.put(keys.tolist(), own._replace(deadlines=None))
            if own.deadlines is not None:
                moments.append((keys, own.deadlines))
        if moments:  # all at once, which is much sooner
            columns: Any = map(np.concatenate, zip(*moments, strict=True))
            keys, deadlines = columns
            keys, first = np.unique(keys, return_index=True)
            self.labels.put(keys.tolist(), Beside(deadlines=deadlines[first]))

    def renew(self, ids: IntArray, part: Part) -> None:
        """Replace what is known of some ids, by a part of others; see `take`."""
        self._forget(ids)
        self.take([part])

    def follow(self, source: Subscriptions) -> None:
        """Be of the same version as the subscriptions that these are a copy of."""
        self.version, self.next_id = source.version, source.next_id

    def reuse(self) -> None:
        """Let all keys be given out again that stand for nothing; for what was just loaded."""
        if self.labels.names is not None:
            self._freed = [np.setdiff1d(np.arange(self.next_id), self.labels.names.used())]


def cut_up(ids: IntArray) -> list[range | IntArray]:
    """Slices of ids, int64 (n,)."""
    return [ids[first : first + SLICE] for first in range(0, len(ids), SLICE)]


def _told(listener: ref[Changes], change: Change) -> bool:
    """Tell a listener of a change; False if it listens no more."""
    changes = listener()
    return changes is not None and changes.tell(change)


def _plain(id: Any) -> Any:
    """An id as messages show it."""
    return int(id) if isinstance(id, np.integer) else id
