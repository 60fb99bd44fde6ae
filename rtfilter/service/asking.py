"""Answers that change nothing: what events match, why, and which events are stored."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from rtfilter.basics.dtypes import BoolArray
from rtfilter.basics.errors import PredicateError
from rtfilter.basics.results import Matches
from rtfilter.events.reading import BadEvent
from rtfilter.events.schema import Schema
from rtfilter.events.table import EventTable
from rtfilter.filter import EventFilter
from rtfilter.predicates.explanations.explanation import Explanation
from rtfilter.service.concurrency import OneEach
from rtfilter.service.hosted import Hosted
from rtfilter.service.log_matcher import Index
from rtfilter.service.parse import LISTED, Listed, as_published, parts
from rtfilter.service.records import Page, StoredEvent
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError, RequestError, UnknownError, lone
from rtfilter.service.stages import StagePart, Stages
from rtfilter.store.log_tables import Logged

MOST_MATCHES: Final = 50_000
"""Matches that one search of `Asking.match` finds, about."""
MOST_LOOKED_UP: Final = 4000
"""Most events of such a search."""
QUERY: Final = 60.0
"""Seconds that a query of stored events may take, with those before it."""
MOST_SCANNED: Final = 100_000
"""Most stored events that one query reads."""
_SOME, _BYTES = 1000, 2**20


class Asking(StagePart):
    """Answers questions of users."""

    def __init__(self, stages: Stages, filters: Hosted) -> None:
        super().__init__(stages)
        self._filters, self._queries_of = filters, OneEach()

    async def query(
        self,
        who: Identity,
        filter: str,
        where: Any = None,
        since: float | None = None,
        until: float | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Page:
        """Return stored events by predicate and time: all for subscribers, their own for publishers."""
        user = None if {Role.SUBSCRIBER, Role.ADMIN} & who.roles else who.user
        info = self._filters.index(filter).info

        def look(one: EventFilter | None) -> Iterator[Page | None]:
            first = max(after, info.since)
            events = self._log.events(filter, user=user, since=since, until=until, after=first)
            yield from pages(one, events, limit, self._message)

        try:
            async with asyncio.timeout(QUERY), self._queries_of.one(who.user):
                found = look(await self._asides.beside.run_for(who.user, asked, info.schema, where))
                self._users.require_still(who)
                while (page := await self._asides.query(found.__next__)) is None:
                    pass
                return page
        except PredicateError as error:
            raise lone(error) from None
        except TimeoutError:
            raise BusyError(
                "other queries take long, or the database does not answer; try again", 1.0
            ) from None

    async def match(self, who: Identity, filter: str, events: EventTable | Listed) -> AsyncIterator[Matches]:
        """Return the user's subscriptions that each event matches, in parts, in order; for admins all."""
        who.require(Role.SUBSCRIBER)
        self._users.admit(who, len(events))
        await self._match.reached_soon(self._owners.changed)
        return self._matches(who, self._filters.index(filter), events)

    async def _matches(
        self, who: Identity, index: Index, events: EventTable | Listed
    ) -> AsyncIterator[Matches]:
        """Yield the matches of parts of events, about `MOST_MATCHES` each; others may come in between."""
        most = LISTED if isinstance(events, Listed) else MOST_LOOKED_UP
        first, count = 0, MOST_MATCHES // max(len(index.filter), 1)
        while first < len(events):
            rows = range(first, min(first + max(1, min(count, most)), len(events)))
            slow = self._match.works or isinstance(events, Listed) or not index.is_quick(len(rows))
            look_up = partial(self._look_up, who, index, events, rows)
            found, all = await self._asides.beside.run_for(who.user, look_up) if slow else look_up()
            self._users.require_still(who)  # another user may have got the name
            yield found
            first, count = rows.stop, min(4 * len(rows), len(rows) * MOST_MATCHES // max(all, 1))

    def _look_up(
        self, who: Identity, index: Index, events: EventTable | Listed, rows: range
    ) -> tuple[Matches, int]:
        """Return the matches of some events among the user's subscriptions, and the number of all matches."""
        table = events if isinstance(events, EventTable) and len(rows) == len(events) else events.rows(rows)
        fields = index.filter.schema.fields
        if len(table.fields) < len(fields):  # it was read before attributes were added
            table = table.extended(fields)
        found = index.look_up(table)
        if Role.ADMIN in who.roles:
            return found, len(found.ids)
        own = [id for id in np.unique(found.ids).tolist() if self._owners.owns(who, id)]
        return found.only(np.isin(found.ids, own)), len(found.ids)

    async def explain(self, who: Identity, filter: str, event: bytes, id: int) -> Explanation:
        """Explain why a subscription of the user matches an event or not."""
        who.require(Role.SUBSCRIBER)
        if self._owners.of(who, id).filter != filter:
            raise UnknownError(f"there is no subscription {id}")
        await self._match.reached_soon(self._owners.changed)
        return await self._asides.beside.run_for(
            who.user, self._filters.index(filter).filter.explain, event, id
        )


def asked(schema: Schema, where: Any) -> EventFilter | None:
    """Return a filter that has the predicate of a query, or None without one."""
    if where is None:
        return None
    if not isinstance(where, str | dict):
        raise RequestError('"where" is an SQL condition as text, or an event pattern as an object')
    one = EventFilter(schema, max_unbounded=None)
    one.subscribe(where)
    return one


def pages(
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
        stored = [entry.body for _, entry in some]
        for first, after in parts(stored):
            hits = _hits(one, stored[first:after]).tolist()
            time.sleep(time.perf_counter() - begun)  # half of the time is for others
            yield list(zip(some[first:after], hits, strict=True))
            begun = time.perf_counter()


def _hits(one: EventFilter, stored: list[bytes]) -> BoolArray:
    bad: list[BadEvent] = []
    found = one.match_batch(stored, on_error=bad.append).any
    for row, event, _ in bad:
        found[row] = one.match_batch(as_published(one.schema, event)).any[0]
    return found


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
