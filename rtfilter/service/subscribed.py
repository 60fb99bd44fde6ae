"""Subscriptions of users: added, replaced, removed and shown."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.predicates.predicate import Source
from rtfilter.service.concurrency import OneEach
from rtfilter.service.hosted import Hosted
from rtfilter.service.log_matcher import Index
from rtfilter.service.owners import REMOVED, check, entry_of, subscription_of, too_many
from rtfilter.service.records import StoredSubscription, Wish
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import ConflictError, TooManyError, UnknownError, lone, require_text
from rtfilter.service.stages import Ending, StagePart, Stages
from rtfilter.service.writing import key_of_request
from rtfilter.store.log_tables import Kind, RequestKey

MOST_UNMADE: Final = 20_000
"""Most changes that wait to be applied; then subscribers wait. A start would have to apply them again."""
PART: Final = 2000
"""Subscriptions of one request that are stored together."""
FEW: Final = 10
"""Subscriptions that are read at once before their size is known."""


class Subscribing(StagePart):
    """The subscriptions of users."""

    def __init__(self, stages: Stages, ending: Ending, filters: Hosted) -> None:
        super().__init__(stages)
        self._ending, self._filters = ending, filters
        self._entering_of: Counter[str] = Counter()  # subscriptions of users that are being put in
        self._lists_of = OneEach()

    async def subscribe(self, who: Identity, filter: str, wish: Wish, key: str | None = None) -> int:
        """Return the id of a new subscription once it is durable; all later events are matched with it.

        Raises `PredicateError`, `RequestError`, `TooManyError`, and `UnknownError`.
        """
        (found,) = await self.subscribe_many(who, filter, [wish], key)
        if isinstance(found, int):
            return found
        raise lone(found)

    async def subscribe_many(
        self, who: Identity, filter: str, wishes: Sequence[Wish], key: str | None = None
    ) -> list[int | RTFilterError]:
        """Add the subscriptions that can be added; return the id of each, or its error.

        With a key, a repeated request adds only the subscriptions that failed for a moment. A single
        subscription that has ended is added again; of several, an ended one is reported.
        """
        who.require(Role.SUBSCRIBER)
        index = self._filters.index(filter)
        work = partial(self._asides.beside.run_for, who.user)
        known = None if key is None else await work(key_of_request, who.user, key, _asked(filter, wishes))
        earlier = await self._earlier(known, len(wishes))
        if 0 not in earlier:
            self._require_room(who.user, len(wishes))
        wrong, unbounded, predicates = await work(check, wishes, index)
        good = [row for row in range(len(wishes)) if row not in wrong]
        parts = {first: good[first : first + PART] for first in range(0, len(good), PART)}
        there = {row for first in earlier for row in parts.get(first, ())}
        async with self._entering(index, [row for row in unbounded if row not in there]) as refused:
            made: dict[int, int | RTFilterError] = {**wrong, **refused}
            for first, all in parts.items():
                rows = [row for row in all if row not in refused]
                try:
                    put = earlier.get(first) or await self._put_wishes(
                        who,
                        filter,
                        [(wishes[row], predicates[row]) for row in rows],
                        _key_of_part(known, first),
                    )
                    if len(put) != len(rows):
                        raise ConflictError(
                            "some of these were refused; ask for those again with another key"
                        )
                    made |= zip(rows, put, strict=True)
                except RTFilterError as error:
                    if not first:
                        raise
                    made |= dict.fromkeys(rows, error)
        made |= {row: self._there_still(made[row]) for row in there}
        return [made[row] for row in range(len(wishes))]

    async def _earlier(self, key: RequestKey | None, count: int) -> dict[int, range]:
        """Return the positions of the parts that an earlier request with the key stored, by their first row.

        Its subscriptions are known when this returns.
        """
        keys = {first: one for first in range(0, count, PART) if (one := _key_of_part(key, first))}
        if not keys:
            return {}
        found = await self._asides.ask(self._log.known, list(keys.values()), self._clock())
        earlier = {first: put for first, put in zip(keys, found, strict=True) if put is not None}
        if earlier:
            await self._store.put([])  # after this, all that was being stored is known
        return earlier

    def _require_room(self, user: str, count: int) -> None:
        most = self._users.most_subscriptions
        if self._owners.of_user[user] + self._entering_of[user] + count > most:
            raise TooManyError(f"a user may have {most} subscriptions at most")

    @contextmanager
    def _room(self, user: str, count: int) -> Iterator[None]:
        """Reserve room for new subscriptions of a user while they are stored."""
        self._require_room(user, count)
        self._entering_of[user] += count
        try:
            yield
        finally:
            self._entering_of -= Counter({user: count})  # drops users whose count is 0

    @asynccontextmanager
    async def _entering(
        self, index: Index, unbounded: Sequence[int]
    ) -> AsyncIterator[dict[int, RTFilterError]]:
        """Admit wishes that no box bounds, one request at a time; yield their errors, by row.

        Their number is known when the index has all that were admitted before.
        """
        if not unbounded:
            yield {}
            return
        async with index.entrance:
            await self._match.reached_soon(self._owners.changed)
            yield await self._asides.beside.run(too_many, index, unbounded)

    def _there_still(self, made: int | RTFilterError) -> int | RTFilterError:
        """Return the answer to a repeated request: some of its subscriptions may have ended."""
        if isinstance(made, int):
            owned = self._owners.get(made)
            if owned is None or (owned.expires is not None and owned.expires <= self._clock()):
                return UnknownError(f"the subscription {made} has ended; ask for it with another key")
        return made

    async def _put_wishes(
        self, who: Identity, filter: str, wishes: Sequence[tuple[Wish, Source]], key: RequestKey | None
    ) -> Sequence[int]:
        """Store subscriptions together, when there is room for them; return their ids."""
        while self._match.waiting > MOST_UNMADE:
            await asyncio.sleep(0.01)
        at, arrived = self._clock(), time.perf_counter()
        entries = [
            entry_of(Kind.SUBSCRIBE, filter, who.user, wish, at, arrived, None, predicate)
            for wish, predicate in wishes
        ]
        self._filters.index(filter)  # it may have been removed meanwhile
        self._users.require_still(who)
        with self._room(who.user, len(wishes)):
            return await self._store.put(entries, key) if wishes else ()

    def filter_of(self, who: Identity, id: int) -> str:
        """Return the filter of one of the user's subscriptions. Raises `UnknownError`. For subscribers."""
        who.require(Role.SUBSCRIBER)
        return self._owners.of(who, id).filter

    async def show(self, who: Identity, id: int) -> StoredSubscription:
        """Return a subscription of the user; to an admin, anybody's. Raises `UnknownError`."""
        self._owners.of(who, id)
        for found in await self._asides.ask(lambda: self._log.subscriptions(id=id)):
            return subscription_of(found)
        raise UnknownError(f"there is no subscription {id}")  # it has just ended

    async def list(
        self,
        who: Identity,
        filter: str | None = None,
        after: int = 0,
        limit: int = 100,
        user: str | None = None,
        everyone: bool = False,
    ) -> tuple[list[StoredSubscription], bool]:
        """Return the user's subscriptions above an id, by id; for admins also another user's, or all.

        They are at most `limit`, and end after a page of bytes. Also return whether there may be more.
        """
        if user is not None or everyone:
            who.require(Role.ADMIN)
        for name in (user, filter):
            require_text(name)
        whose = None if everyone else user or who.user

        def look() -> tuple[list[StoredSubscription], bool]:
            found, left, count, last = list[StoredSubscription](), self._message, FEW, after
            while left > 0 and len(found) < limit:
                count = min(count, limit - len(found))
                some = self._log.subscriptions(user=whose, filter=filter, after=last, limit=count)
                found += map(subscription_of, some)
                if len(some) < count:
                    return found, False
                left -= sum(len(one.entry.body) for one in some)
                count, last = 4 * count, found[-1].id
            return found, True

        async with self._lists_of.one(who.user):
            self._users.require_still(who)
            return await self._asides.ask(look)

    async def replace(self, who: Identity, id: int, wish: Wish) -> float | None:
        """Replace a subscription as a whole; its earlier matches are still delivered.

        Returns its expiry, in seconds since 1970, or None, once the change is durable.
        """
        who.require(Role.SUBSCRIBER)
        owned = self._owners.of(who, id)
        index = self._filters.index(owned.filter)
        wrong, unbounded, predicates = await self._asides.beside.run_for(who.user, check, [wish], index)
        async with self._entering(index, unbounded) as refused:
            wrong |= refused
            if wrong:
                raise lone(wrong[0])
            at, arrived = self._clock(), time.perf_counter()
            entry = entry_of(Kind.REPLACE, owned.filter, owned.user, wish, at, arrived, id, predicates[0])
            await self._store.put([entry])
        return entry.expires

    async def unsubscribe(self, who: Identity, id: int) -> None:
        """Remove a subscription, with its deliveries. Raises `UnknownError`."""
        owned = self._owners.of(who, id)
        reason = REMOVED if owned.user == who.user else "removed by an administrator"
        await self._ending.remove(owned, reason)


def _asked(filter: str, wishes: Iterable[Wish]) -> Iterator[bytes]:
    yield from (b"subscribe", filter.encode(), *map(msgspec.json.encode, wishes))


def _key_of_part(key: RequestKey | None, first: int) -> RequestKey | None:
    return key if key is None or not first else key._replace(key=f"{key.key}\n{first}")
