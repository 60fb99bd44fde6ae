"""Answers of the pipeline that change nothing. All may take long: call them in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from rtfilter.dtypes import BoolArray
from rtfilter.errors import EventError
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.service.parse import as_published, parts, readable
from rtfilter.service.records import Page, StoredEvent
from rtfilter.service.service_errors import RequestError
from rtfilter.store.log_tables import Logged

MOST_SCANNED: Final = 100_000
"""Most stored events that one query reads."""
_SOME, _BYTES = 1000, 2**20


def asked(schema: Schema, where: Any) -> EventFilter | None:
    """Return a filter that has the predicate of a query, or None without one."""
    if where is None:
        return None
    if not isinstance(where, str | dict):
        raise RequestError('"where" is an SQL condition as text, or an event pattern as an object')
    one = EventFilter(schema, max_unbounded=None)
    one.subscribe(where)
    return one


def query(
    one: EventFilter | None, events: Iterator[Logged | None], limit: int, most_bytes: int
) -> Iterator[Page | None]:
    """Yield the page of events that a filter matches, after None for each part of events that was read.

    The page has at most `limit` events, and ends after `most_bytes` of them. A query reads at most
    `MOST_SCANNED` events. Others may come in between at each None.
    """
    found: list[StoredEvent] = []
    seen = last = size = 0
    for some in _searched(one, events):
        for (position, entry), hit in some:
            last = position
            if hit:
                found.append(StoredEvent(position, entry.at, entry.user, entry.body))
                size += len(entry.body)
                if len(found) == limit or size >= most_bytes:
                    yield Page(found, last)
                    return
        seen += len(some)
        yield None
    yield Page(found, last if seen == MOST_SCANNED else None)


def _searched(
    one: EventFilter | None, events: Iterator[Logged | None]
) -> Iterator[list[tuple[Logged, bool]]]:
    """Yield stored events, few at once where they have lists, each with whether it matches."""
    for some in _parts(events):
        if one is None or not some:
            yield [(entry, True) for entry in some]
            continue
        begun = time.perf_counter()
        stored = readable([entry.body for _, entry in some])
        for first, after in parts(stored):
            hits = _hits(one, stored[first:after]).tolist()
            time.sleep(time.perf_counter() - begun)  # half of the time is for others
            yield list(zip(some[first:after], hits, strict=True))
            begun = time.perf_counter()


def _hits(one: EventFilter, stored: list[Any]) -> BoolArray:
    """Return which stored events match."""
    try:
        return one.any_match(stored)
    except EventError:
        if len(stored) > 1:
            return np.concatenate([_hits(one, [event]) for event in stored])
        return one.any_match(as_published(one.schema, stored[0]))


def _parts(events: Iterator[Logged | None]) -> Iterator[list[Logged]]:
    """Yield events in parts that end at None, after `_SOME` of them, or after `_BYTES`."""
    found, size, left = list[Logged](), 0, MOST_SCANNED
    for one in events:
        if one is not None:
            found.append(one)
            size += len(one.entry.body)
            left -= 1
        if one is None or len(found) == _SOME or size >= _BYTES or not left:
            yield found
            found, size = [], 0
        if not left:
            return
    yield found


def statistics(filter: EventFilter) -> dict[str, Any]:
    """Return the statistics of a filter that JSON can contain."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in filter.stats().items()
        if isinstance(value, str | int | float | bool | np.generic)
    }
