"""Explanations of matches: one event and one subscription in full, or the nearest misses of many."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from rtfilter.basics.errors import EventError, UnknownSubscriptionError
from rtfilter.events.reading import read_events
from rtfilter.events.table import EventTable
from rtfilter.matching.event_reader import as_batch
from rtfilter.matching.road import Road
from rtfilter.predicates.explanations import misses
from rtfilter.predicates.explanations.explanation import Explanation, explain
from rtfilter.predicates.model.disjunction import names_of
from rtfilter.predicates.model.list_tests import events_of
from rtfilter.predicates.predicate import Predicate
from rtfilter.subscriptions.ids import Name, asked_ids


def explain_one(road: Road, event: object, id: int | Name) -> Explanation:
    """Return why one event matches a subscription or not."""
    held, predicate = road.subscriptions, _predicate(road, id)
    table = _read(road, event, names_of(predicate))
    if len(table) != 1:
        raise ValueError(f"explain takes one event with an id, not {len(table)}; for several, give `ids`")
    (one,) = events_of(table.at(held.now(held.moment())))
    cost = predicate.cost if held.matcher.takes.boxes else None
    return replace(explain(predicate, one), cost=cost)


def explain_many(
    road: Road, events: object, ids: int | Name | ArrayLike | Sequence[Name] | None, limit: int | None
) -> misses.Misses:
    """Return why events do not match subscriptions; each pair is checked directly."""
    held = road.subscriptions
    found = misses.MissSearch(misses.MISSES if limit is None else limit)
    if ids is None:
        with road.gate.reading():
            asked, names = np.sort(held.ids(held.moment())).tolist(), held.used.names
    else:
        given = asked_ids(ids, held.kind)
        asked = given if isinstance(given, list) else given.tolist()
        names = frozenset[str]().union(*(names_of(_predicate(road, id)) for id in asked[: misses.MAX_PAIRS]))
    table = _read(road, events, names)
    wanted, count = list(dict.fromkeys(asked)), len(table.searched)
    if count * len(wanted) > misses.MAX_PAIRS:
        what = "events" if table.choices is None else "choices of elements"
        raise ValueError(
            f"{count:,} {what} and {len(wanted):,} subscriptions are more than {misses.MAX_PAIRS:,} pairs; "
            "explain fewer events at once, or name subscriptions by `ids`"
        )
    rows = events_of(table.at(held.now(held.moment())))
    for id in wanted:
        try:
            predicate = _predicate(road, id)
        except UnknownSubscriptionError:
            if ids is None:  # removed by another thread meanwhile
                continue
            raise
        found.look(id, predicate, rows)
    return found.misses(held.kind or int)


def _read(road: Road, events: object, names: frozenset[str]) -> EventTable:
    """Read events; errors count only in the attributes `names` of lists."""
    schema, batch = road.subscriptions.schema, as_batch(events)
    with suppress(EventError):
        return schema.read(batch)
    return read_events(schema.fields, batch, names)


def _predicate(road: Road, id: int | Name) -> Predicate:
    held = road.subscriptions
    with road.gate.reading():
        found = held.predicate(id, held.moment())
    return Predicate.checked(found.filters, held.schema)
