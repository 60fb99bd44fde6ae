"""Changes as a caller passes them: read, checked, counted by the metrics, and made by `Updates`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import Any

import numpy as np

from rtfilter.basics.dtypes import AnyArray, BoolArray, IntArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.options import require_on_error
from rtfilter.matching.event_reader import count_of
from rtfilter.matching.road import Road
from rtfilter.matching.updates import Updates
from rtfilter.predicates.predicate import Predicate, Source
from rtfilter.subscriptions.drafts import Draft, tell_impossible
from rtfilter.subscriptions.ids import Name, asked_ids, new_ids, one_id
from rtfilter.subscriptions.labels import NO_LABELS, LabelColumns
from rtfilter.subscriptions.loading import Lifetime, Load, OnError, labels_of
from rtfilter.subscriptions.subscription_tables import (
    SubscriptionTable,
    no_list,
    read_table,
    refuse_rows,
    refuse_twice,
)


class Subscriber:
    """Subscribes, updates and unsubscribes for an `EventFilter`; its methods have the parameters there."""

    def __init__(self, road: Road, updates: Updates) -> None:
        self._road, self._updates, self._held = road, updates, road.subscriptions
        self._told_impossible = False

    def one(
        self, predicate: Source, id: int | Name | None, ttl: Lifetime | None, metadata: Any
    ) -> int | Name:
        """Add a subscription; return its id."""
        try:
            labels = NO_LABELS
            if ttl is not None or metadata is not None:
                notes = None if metadata is None else [metadata]
                lives = None if ttl is None else [ttl]
                labels = labels_of(1, lives, notes, self._held.clock)
            draft = self._held.draft([predicate])
            added: Any = self._add(draft, None if id is None else one_id(id), labels)[0]
            return int(added) if isinstance(added, np.integer) else added
        except (PredicateError, ValueError):
            self._count_refused(1)
            raise

    def many(self, where: Any, ids: Any, ttl: Any, metadata: Any, on_error: OnError) -> AnyArray:
        """Add the predicates of a list or table; return their ids."""
        require_on_error(on_error)
        table = read_table(where, self._held.schema)
        if table is not None:
            refuse_twice(table, ids=ids, ttl=ttl, metadata=metadata)
            beside: dict[str, Any] = {"ids": ids, "ttl": ttl, "metadata": metadata}
            told = {name: given for name, given in beside.items() if given is not None}
            return self._load(table._replace(**told), on_error)
        if isinstance(where, str | Mapping | Predicate):
            raise TypeError("subscribe_many takes a list of predicates; use subscribe for a single one")
        if not hasattr(where, "__len__"):
            raise no_list(where)
        refuse_rows(where, self._held.schema.attributes)
        if on_error != "raise":
            return self._load(SubscriptionTable(where, ids, ttl, None, metadata), on_error)
        return self._all(where, lambda: self._held.draft(where), ids, ttl, metadata)

    def boxes(self, low: Any, high: Any, ids: Any, ttl: Any, metadata: Any) -> AnyArray:
        """Add bounds; return their ids."""
        return self._all(low, lambda: self._held.draft_bounds(low, high), ids, ttl, metadata)

    def replace(
        self,
        id: int | Name,
        predicate: Source | None,
        ttl: Lifetime | EllipsisType | None,
        metadata: Any | EllipsisType | None,
    ) -> None:
        """Replace the predicate, the time to live or the metadata of a subscription."""
        labels = NO_LABELS
        try:
            if ttl is not ... or metadata is not ...:
                lives = None if ttl is ... else [ttl]
                labels = labels_of(1, lives, None if metadata is ... else [metadata], self._held.clock)
            elif predicate is None:
                raise TypeError("there is nothing to update: give a predicate, ttl or metadata")
            draft = None if predicate is None else self._held.draft([predicate])
            self._updates.replace(id, draft, labels)
            if draft is not None:
                self._tell_impossible(draft)
        except (PredicateError, ValueError):
            self._count_refused(1)
            raise

    def remove(self, ids: Any) -> BoolArray:
        """Remove subscriptions; return which were known."""
        known = self._updates.remove(asked_ids(ids, self._held.kind))
        if self._road.metrics is not None:
            self._road.metrics.removed += int(known.sum())
        return known

    def _all(self, given: object, read: Callable[[], Draft], ids: Any, ttl: Any, metadata: Any) -> AnyArray:
        """Add all or none."""
        try:
            draft = read()
            count = len(draft.filters)
            labels = labels_of(count, ttl, metadata, self._held.clock)
            return self._add(draft, None if ids is None else new_ids(ids, count), labels)
        except (PredicateError, ValueError):
            self._count_refused(count_of(given))
            raise

    def _load(self, table: SubscriptionTable, on_error: OnError) -> AnyArray:
        """Add the subscriptions that can be used, and treat the others as `on_error` says."""
        load = Load(self._held, table, on_error)
        try:
            while True:
                with self._road.gate.reading():
                    load.note_known()
                draft, names = load.draft()
                try:
                    return self._add(draft, names, draft.labels)
                except PredicateError as error:
                    if not load.refuse_unbounded(draft, error):
                        raise
                except ValueError:  # another thread may have added one of these meanwhile
                    with self._road.gate.reading():
                        if not load.note_known():
                            raise
        finally:
            self._count_refused(len(load.bad))

    def _add(self, draft: Draft, ids: IntArray | list[Name] | None, labels: LabelColumns) -> AnyArray:
        names = self._updates.add(draft if labels is NO_LABELS else draft._replace(labels=labels), ids)
        self._tell_impossible(draft)
        if self._road.metrics is not None:
            self._road.metrics.added += len(names)
        return names

    def _tell_impossible(self, draft: Draft) -> None:
        if not self._told_impossible:
            self._told_impossible = tell_impossible(draft)

    def _count_refused(self, number: int) -> None:
        if self._road.metrics is not None:
            self._road.metrics.refused += number
