"""Subscriptions: their ids, what they ask for, and the matcher of them; a change is whole or undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtfilter.errors import PredicateError, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.matchers.filters import BoxColumns, Filters, IntArray
from rtfilter.matchers.port import Matcher, Savable, refuse_untaken
from rtfilter.matchers.registry import MATCHERS, Factory, factory_of, name_of
from rtfilter.predicates.bounds import compile_bounds
from rtfilter.predicates.model import Predicate
from rtfilter.predicates.parse import Source, parse
from rtfilter.predicates.store import Kept, PredicateStore, kept


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
        # Where hits are always exact, predicates are asked for seldom: to explain and to save.
        exact = filters.exact().tolist() if self.matcher.takes.boxes else [True] * len(predicates)
        return Draft(filters, [kept(*pair) for pair in zip(predicates, exact, strict=True)])

    def draft_bounds(self, low: ArrayLike, high: ArrayLike) -> Draft:
        """Read closed bounds, (n, number of attributes); see `rtfilter.predicates.boxes.compile_bounds`."""
        filters = Filters.of_bounds(self.schema, *compile_bounds(low, high, self.schema))
        if self.matcher.takes.boxes:
            return Draft(filters, None)
        predicates = filters.predicates()
        refuse_untaken(self.name, self.matcher.takes, predicates, self.schema)
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
        self.matcher.add(filters)
        if predicates is not None:
            self._unmatchable.update(id for id in names.tolist() if id not in self.matcher)

    def remove(self, ids: IntArray) -> NDArray[np.bool_]:
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
        return id in self.matcher or id in self._unmatchable

    def predicate(self, id: int) -> Predicate:
        """The predicate of a subscription. Raises `UnknownSubscriptionError`."""
        predicate = self.predicates.get(id)
        if predicate is not None:
            return predicate
        if id not in self.matcher:
            raise UnknownSubscriptionError(id)
        return self.matcher.content([index(id)]).predicates()[0]

    def part(self, ids: ArrayLike) -> Subscriptions:
        """Some of the subscriptions with a matcher of their own; unknown ids are ignored."""
        part = Subscriptions(self.schema, self.factory, **self.matcher.options)
        self._copy(np.unique(np.asarray(ids, np.int64)), part)
        return part

    def with_matcher(self, matcher: Factory) -> Subscriptions:
        """All subscriptions with another matcher. Raises `PredicateError` for what it does not take."""
        other = Subscriptions(self.schema, matcher)
        self._copy(self.ids(), other)
        return other

    def _copy(self, wanted: IntArray, other: Subscriptions) -> None:
        """Add some subscriptions to others that are empty."""
        own = self.ids()
        own = own[np.isin(own, wanted)]
        other._next_id = self._next_id
        if self.matcher.takes.boxes != other.matcher.takes.boxes:
            draft = other.draft([self.predicate(id) for id in own.tolist()])
            other._put(own, draft.filters.named(own), draft.predicates)
            return
        other._unmatchable = self._unmatchable.intersection(own.tolist())
        other.matcher.add(self.matcher.content([id for id in own.tolist() if id not in other._unmatchable]))
        kept_ids = np.fromiter(self.predicates, np.int64)
        for id in kept_ids[np.isin(kept_ids, own)].tolist():
            predicate = self.predicates.kept(id)
            if predicate is not None:
                other.predicates.put(id, predicate)

    # -- keeping -------------------------------------------------------------------------------------------

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What `from_arrays` needs: facts that JSON can hold, and arrays by name."""
        meta = {
            "schema": self.schema.to_json(),
            "next_id": self._next_id,
            "subscriptions": len(self),
            "matcher": self.name,
            "options": dict(self.matcher.options),
        }
        arrays = self.predicates.to_arrays()
        arrays["boxless_ids"] = np.array(sorted(self._unmatchable), np.int64)
        if isinstance(self.matcher, Savable):
            arrays |= self.matcher.to_arrays()
        elif self.matcher.takes.boxes:
            boxes = self.matcher.content().boxes()
            arrays |= {f"box_{name}": column for name, column in boxes._asdict().items()}
        return meta, arrays

    @classmethod
    def from_arrays(
        cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], matcher: Factory | None = None
    ) -> Subscriptions:
        """The subscriptions of `to_arrays`, with another matcher if one is given.

        One that is not registered has to be given. Raises `ValueError` if it is not.
        """
        saved = meta.get("matcher", "rtree")
        held = cls._restored(meta, arrays, saved if saved in MATCHERS or matcher is None else matcher)
        return held if matcher is None or name_of(matcher) == saved else held.with_matcher(matcher)

    @classmethod
    def _restored(
        cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], matcher: Factory
    ) -> Subscriptions:
        schema, factory = Schema.from_json(meta["schema"]), factory_of(matcher)
        restore = getattr(factory, "from_arrays", None)  # a `Savable` one
        made = restore(schema, arrays) if restore is not None else factory(schema, **meta["options"])
        held = cls.__new__(cls)
        unmatchable = set(arrays["boxless_ids"].tolist())
        held._start(schema, matcher, made, PredicateStore.from_arrays(arrays), unmatchable, meta["next_id"])
        if restore is None:
            made.add(held._saved_filters(arrays))
        return held

    def _saved_filters(self, arrays: Mapping[str, NDArray[Any]]) -> Filters:
        """What the matcher is built of again: boxes, or the predicates beside it."""
        if self.matcher.takes.boxes:
            boxes = BoxColumns(*(arrays[f"box_{name}"] for name in BoxColumns._fields))
            return Filters.of_boxes(self.schema, boxes)
        ids = [id for id in self.predicates if id not in self._unmatchable]
        found = [self.predicate(id) for id in ids]
        return Filters.of_predicates(self.schema, found, np.array(ids, np.int64))
