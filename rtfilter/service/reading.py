"""Answers of the pipeline that change nothing. All may take long: call them in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import numpy as np

from rtfilter.dtypes import BoolArray
from rtfilter.errors import EventError
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.service.errors import RequestError
from rtfilter.service.parse import as_published, parts, readable
from rtfilter.service.records import Page, StoredEvent
from rtfilter.store.tables import Logged

MOST_SCANNED: Final = 100_000
"""Most stored events that one query reads."""
_SOME, _BYTES = 1000, 2**20


def query(
    schema: Schema, where: Any, events: Iterator[Logged], limit: int, most_bytes: int
) -> Iterator[Page | None]:
    """Yield the page of events that a predicate matches, after None for each part of events that was read.

    The page has at most `limit` events, and ends after `most_bytes` of them. A query reads at most
    `MOST_SCANNED` events. Others may come in between at each None.
    """
    one = None
    if where is not None:
        if not isinstance(where, str | dict):
            raise RequestError('"where" is an SQL condition as text, or an event pattern as an object')
        one = EventFilter(schema, max_unbounded=None)
        one.subscribe(where)
    found: list[StoredEvent] = []
    seen = last = size = 0
    while some := _part(events, min(_SOME, MOST_SCANNED - seen)):
        begun = time.perf_counter()
        hits = np.ones(len(some), bool)
        if one is not None:
            stored = readable([entry.body for _, entry in some])
            hits = np.concatenate([_hits(one, stored[a:b]) for a, b in parts(stored)])
        for hit, (position, entry) in zip(hits.tolist(), some, strict=True):
            last = position
            if hit:
                found.append(StoredEvent(position, entry.at, entry.user, entry.body))
                size += len(entry.body)
                if len(found) == limit or size >= most_bytes:
                    yield Page(found, last)
                    return
        seen += len(some)
        time.sleep(time.perf_counter() - begun)  # half of the time is for others
        yield None
    yield Page(found, last if seen == MOST_SCANNED else None)


def _hits(one: EventFilter, stored: list[Any]) -> BoolArray:
    """Return which stored events match."""
    try:
        return one.any_match(stored)
    except EventError:
        if len(stored) > 1:
            return np.concatenate([_hits(one, [event]) for event in stored])
        return one.any_match(as_published(one.schema, stored[0]))


def _part(events: Iterator[Logged], most: int) -> list[Logged]:
    """Return the next events: at most `most`, and none after `_BYTES` of them."""
    found, size = list[Logged](), 0
    for one in islice(events, most):
        found.append(one)
        size += len(one.entry.body)
        if size >= _BYTES:
            break
    return found


def statistics(filter: EventFilter) -> dict[str, Any]:
    """Return the statistics of a filter that JSON can contain."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in filter.stats().items()
        if isinstance(value, str | int | float | bool | np.generic)
    }
