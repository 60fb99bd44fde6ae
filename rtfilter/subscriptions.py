"""Subscriptions: ids, predicates, and the matcher that finds them; a change is whole or undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.errors import PredicateError, SnapshotError, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import BoxColumns, Filters
from rtfilter.matchers.port import Matcher, Savable, refuse_untaken
from rtfilter.matchers.registry import MATCHERS, Factory, factory_of, name_of
from rtfilter.predicates.bounds import compile_bounds
from rtfilter.predicates.model import Predicate
from rtfilter.predicates.parse import Source, parse
from rtfilter.predicates.store import Kept, PredicateStore, kept
from rtfilter.text import shown


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
    predicates : PredicateStore
        Those that the matcher's boxes do not tell.
    """

    def __init__(self, schema: Schema, matcher: Factory = "rtree", **options: Any) -> None:
        self._start(schema, matcher, factory_of(matcher)(schema, **options), PredicateStore(), set(), 0)

    def _start(
        self,
        schema: Schema,
        factory: Factory,
        matcher: Matcher,
        predicates: PredicateStore,
        unmatchable: set[int],
        next_id: int,
    ) -> None:
        self.schema, self.matcher, self.predicates = schema, matcher, predicates
        self.factory, self.name = factory, name_of(factory)
        self._unmatchable = unmatchable  # ids that no event can match: known, but not to the matcher
        self._next_id = next_id

    # -- drafts: read, checked and compiled before anybody has to wait -----------------------------------

    def draft(self, sources: Sequence[Source]) -> Draft:
        """Read predicates. Raises `PredicateError`, whose `row` tells which."""
        predicates = []
        for row, source in enumerate(sources):
            try:
                predicates.append(parse(source, self.schema))
            except PredicateError as error:
                error.row = row
                if len(sources) > 1:
                    error.add_note(f"in predicate {row} of {len(sources)}")
                raise
        refuse_untaken(self.name, self.matcher.takes, predicates, self.schema)
        filters = Filters.of_predicates(self.schema, predicates)
        # A matcher of constraints asks no predicate afterwards: they are kept to explain and to save.
        exact = filters.exact().tolist() if self.matcher.takes.boxes else [True] * len(predicates)
        return Draft(filters, [kept(*pair) for pair in zip(predicates, exact, strict=True)])

    def draft_bounds(self, low: ArrayLike, high: ArrayLike) -> Draft:
        """Read closed bounds, (n, number of attributes); see `rtfilter.predicates.boxes.compile_bounds`."""
        filters = Filters.of_bounds(self.schema, *compile_bounds(low, high, self.schema))
        if not self.matcher.takes.everything:
            refuse_untaken(self.name, self.matcher.takes, filters.predicates(), self.schema)
        if self.matcher.takes.boxes:
            return Draft(filters, None)
        predicates = filters.predicates()
        return Draft(Filters.of_predicates(self.schema, predicates), [kept(one, True) for one in predicates])

    # -- changes -------------------------------------------------------------------------------------------

    def add(self, draft: Draft, ids: ArrayLike | None = None) -> IntArray:
        """Add subscriptions, all or none; their ids, int64 (n,). Raises `ValueError` for unusable ids."""
        names = self._new_ids(ids, len(draft.filters))
        try:
            self._put(names, draft.filters.named(names), draft.predicates)
        except BaseException:
            self.remove(names)
            raise
        return names

    def _put(self, names: IntArray, filters: Filters, predicates: Sequence[Kept] | None) -> None:
        if predicates is not None:
            for id, predicate in zip(names.tolist(), predicates, strict=True):
                self.predicates.put(id, predicate)  # before the matcher has it: its hits may ask for it
        self._fill(names, filters)

    def _fill(self, names: IntArray, filters: Filters) -> None:
        """Give the matcher subscriptions; those that it leaves out match nothing, and are kept beside it."""
        before = len(self.matcher)
        self.matcher.add(filters)
        if len(self.matcher) - before == len(names):
            return
        left_out = [row for row, id in enumerate(names.tolist()) if id not in self.matcher]
        for row in left_out:
            id = int(names[row])
            self._unmatchable.add(id)
            if id not in self.predicates:
                self.predicates.put(id, kept(filters.predicates()[row], True))

    def remove(self, ids: IntArray) -> BoolArray:
        """Remove all that is known of some ids; where it was interrupted, it can be done again.

        Returns bool (n,): which were known; one that is named twice was known the first time.
        """
        known = self.matcher.remove(ids)
        for row, id in enumerate(ids.tolist()):
            if id in self._unmatchable:
                self._unmatchable.remove(id)
                known[row] = True
            self.predicates.remove(id)
        return known

    def replace(self, id: int, draft: Draft) -> None:
        """Give a subscription another predicate, or leave it as it is. Raises `UnknownSubscriptionError`."""
        if id not in self:
            raise UnknownSubscriptionError(id)
        name, before = np.array([id]), self.predicates.kept(id)
        old = self.matcher.content([id] if id in self.matcher else [])
        try:
            self.remove(name)
            self._put(name, draft.filters.named(name), draft.predicates)
        except BaseException:
            self.remove(name)
            self._put(name, old, None if before is None else [before])
            raise

    def _new_ids(self, ids: ArrayLike | None, count: int) -> IntArray:
        if ids is None:
            names = np.arange(self._next_id, self._next_id + count)
        else:
            given = np.asarray(ids)
            if given.shape != (count,) or (count and given.dtype.kind not in "iu"):
                raise ValueError(f"ids must be {count} integers, not {given.dtype} of shape {given.shape}")
            names = given.astype(np.int64)
            if count and not 0 <= names.min() <= names.max() < 2**63 - 1:
                raise ValueError(f"subscription ids must be in 0..2**63 - 2: {given.min()} to {given.max()}")
            if len(np.unique(names)) != count:
                raise ValueError("ids must be distinct")
            for id in names.tolist():
                if id in self:
                    raise ValueError(f"subscription {id} exists already; unsubscribe or update it")
        self._next_id = max(self._next_id, int(names.max(initial=-1)) + 1)
        return names

    # -- looking inside ------------------------------------------------------------------------------------

    def ids(self) -> IntArray:
        """All ids, ascending, int64 (n,)."""
        return np.union1d(self.matcher.ids(), np.array(sorted(self._unmatchable), np.int64))

    def __len__(self) -> int:
        return len(self.matcher) + len(self._unmatchable)

    def __contains__(self, id: int) -> bool:
        return isinstance(id, Integral) and (id in self.matcher or id in self._unmatchable)

    def predicate(self, id: int) -> Predicate:
        """The predicate of a subscription. Raises `UnknownSubscriptionError`."""
        predicate = self.get(id)
        if predicate is None:
            raise UnknownSubscriptionError(id)
        return predicate

    def get(self, id: int) -> Predicate | None:
        """The predicate of a subscription, None if it is unknown."""
        predicate = self.predicates.get(id)
        if predicate is None and id in self.matcher:
            return self.matcher.content([index(id)]).predicates()[0]
        return predicate

    def part(self, ids: ArrayLike) -> Subscriptions:
        """Some of the subscriptions with a matcher of their own; unknown ids are ignored."""
        wanted = np.unique(np.asarray(ids, np.int64))
        if 8 * len(wanted) > len(self):
            own = self.ids()
            own = own[np.isin(own, wanted)]
        else:
            own = np.array([id for id in wanted.tolist() if id in self], np.int64)
        part = Subscriptions(self.schema, self.factory, **self.matcher.options)
        self._copy(own, part)
        return part

    def with_matcher(self, matcher: Factory) -> Subscriptions:
        """All subscriptions with another matcher. Raises `PredicateError` for what it does not take."""
        other = Subscriptions(self.schema, matcher)
        self._copy(self.ids(), other)
        return other

    def _copy(self, own: IntArray, other: Subscriptions) -> None:
        """Add some subscriptions, known ids, to others that are empty."""
        other._next_id = self._next_id
        if self.factory is not other.factory:
            draft = other.draft([self.predicate(id) for id in own.tolist()])
            other._put(own, draft.filters.named(own), draft.predicates)
            return
        other._unmatchable = self._unmatchable.intersection(own.tolist())
        kept_ids = np.fromiter(self.predicates, np.int64)
        for id in kept_ids[np.isin(kept_ids, own)].tolist():
            predicate = self.predicates.kept(id)
            if predicate is not None:
                other.predicates.put(id, predicate)
        matchable = [id for id in own.tolist() if id not in other._unmatchable] if other._unmatchable else own
        other.matcher.add(self.matcher.content(matchable))

    # -- keeping -------------------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, AnyArray]]:
        """What `from_arrays` needs: facts that JSON can hold, and arrays by name."""
        arrays = self.predicates.to_arrays()
        arrays["boxless_ids"] = np.array(sorted(self._unmatchable), np.int64)
        content = "predicates"
        if isinstance(self.matcher, Savable):
            content = "arrays"
            arrays |= self.matcher.to_arrays()
        elif self.matcher.takes.boxes:
            content = "boxes"
            boxes = self.matcher.content().boxes()
            arrays |= {f"box_{name}": column for name, column in boxes._asdict().items()}
        meta = {
            "schema": self.schema.to_json(),
            "next_id": self._next_id,
            "subscriptions": len(self),
            "matcher": self.name,
            "options": dict(self.matcher.options),
            "content": content,
        }
        return meta, arrays

    @classmethod
    def from_arrays(
        cls,
        meta: Mapping[str, Any],
        arrays: Mapping[str, AnyArray],
        matcher: Factory | None = None,
        schema: Schema | None = None,
    ) -> Subscriptions:
        """The subscriptions of `to_arrays`, with another matcher if one is given.

        One that is not registered has to be given. Raises `SnapshotError` if another is given although it
        saved arrays of its own, and `ValueError` or `LookupError` for what `to_arrays` cannot have made.
        """
        saved = meta.get("matcher", "rtree")
        own = saved if saved in MATCHERS or matcher is None else matcher
        held = cls.__new__(cls)
        chosen = factory_of(own)
        known = Schema.from_json(meta["schema"]) if schema is None else schema
        made = chosen(known, **meta.get("options", {})) if isinstance(chosen, type) else chosen(known)
        predicates = PredicateStore.from_arrays(arrays)
        if arrays["boxless_ids"].dtype.kind not in "iu":
            raise ValueError("the ids without boxes are no integers")
        unmatchable = set(arrays["boxless_ids"].tolist())
        content = meta.get("content", "arrays")
        if content not in ("arrays", "boxes", "predicates") or not 0 <= meta["next_id"] < 2**63:
            raise ValueError(f"content {shown(content)} or next id {shown(meta['next_id'])} cannot be")
        if content == "arrays":
            if not isinstance(made, Savable):
                raise SnapshotError(f"{saved!r} saved arrays of its own; open it with that matcher")
            made = type(made).from_arrays(known, arrays)
        held._start(known, own, made, predicates, unmatchable, meta["next_id"])
        if content != "arrays":
            filters = held._saved_filters(arrays, boxes=content == "boxes")
            if made.takes.boxes or content == "predicates":
                held._fill(filters.ids, filters)
            else:  # an own class that saved boxes, replaced by a matcher of constraints
                draft = held.draft([held._saved_predicate(filters, row) for row in range(len(filters))])
                held._put(filters.ids, draft.filters.named(filters.ids), draft.predicates)
        if len(held) != meta.get("subscriptions", len(held)):
            raise ValueError(f"there are {len(held)} subscriptions, not {meta['subscriptions']}")
        return held if matcher is None or name_of(matcher) == name_of(own) else held.with_matcher(matcher)

    def _saved_predicate(self, filters: Filters, row: int) -> Predicate:
        predicate = self.predicates.get(int(filters.ids[row]))
        return filters.predicates()[row] if predicate is None else predicate

    def _saved_filters(self, arrays: Mapping[str, AnyArray], boxes: bool) -> Filters:
        """What the matcher is built of again: boxes, or the predicates beside it."""
        if boxes:
            columns = BoxColumns(*(arrays[f"box_{name}"] for name in BoxColumns._fields))
            shape = (len(columns.ids), self.schema.dimensions)
            kinds = "".join(column.dtype.kind for column in columns)
            if kinds != "iffb" or [column.shape for column in columns] != [
                shape[:1],
                shape,
                shape,
                shape[:1],
            ]:
                raise ValueError("the arrays of boxes do not fit together, or do not fit the schema")
            return Filters.of_boxes(self.schema, columns)
        ids = [id for id in self.predicates if id not in self._unmatchable]
        found = [self.predicate(id) for id in ids]
        return Filters.of_predicates(self.schema, found, np.array(ids, np.int64))
