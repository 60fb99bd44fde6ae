"""The way of an event: authenticate, parse, store, match, deliver.

    authenticate   the identity of a user                         `Authenticate`, for each door
    parse          an event that the filter can use, or an error  Parse.one, Parse.lines
    store          in the log; now the publisher is answered      Store.put
    match          by position, in batches                        LogMatcher.run
    deliver        kept until it is acknowledged, and sent        Deliver.tell

All but the work of the log and of the indexes runs on the event loop. Rights are checked here, for all doors.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec
import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from rtfilter.definition import DEFAULT_CONTROLLER, Definition
from rtfilter.errors import PredicateError, RTFilterError
from rtfilter.events.schema import Attribute
from rtfilter.events.table import EventTable
from rtfilter.filter import EventFilter
from rtfilter.matching.choosing import AUTO
from rtfilter.options import Named, whole
from rtfilter.predicates.explanation import Explanation
from rtfilter.results import Matches
from rtfilter.scheduler import resolve
from rtfilter.service import queries, snapshots, status
from rtfilter.service.authenticate import Authenticate, Open, require_still
from rtfilter.service.backlog import BacklogLimits, Policy
from rtfilter.service.clock import Clock
from rtfilter.service.deliver import Deliver, Owned
from rtfilter.service.log_matcher import Index, LogMatcher, hash_of, key_of
from rtfilter.service.measures import Measures
from rtfilter.service.owners import (
    REMOVED,
    Owners,
    check,
    entry_of,
    owned_of,
    removal_of,
    subscription_of,
    too_many,
)
from rtfilter.service.parse import LISTED, Hook, Listed, Parse
from rtfilter.service.records import (
    FilterInfo,
    Page,
    Sending,
    StoredSubscription,
    UserDelivery,
    Wish,
    fitting,
)
from rtfilter.service.roles import Identity, Role
from rtfilter.service.rounds import OneEach, Rounds, Threads, Turn
from rtfilter.service.service_errors import (
    BusyError,
    ConflictError,
    RequestError,
    ServiceError,
    TooManyError,
    UnknownError,
)
from rtfilter.service.upkeep import ENDED, Keeping, Upkeep
from rtfilter.service.writing import LIMIT, Store
from rtfilter.store.log import FilterRow, Log
from rtfilter.store.log_tables import Entry, Kind, Logged, Progress, RequestKey
from rtfilter.text import composed, shown
from rtfilter.watch.metrics import Metrics

MOST_UNMATCHED: Final = 200_000
"""Most entries that wait to be matched."""
MOST_UNMADE: Final = 20_000
"""Most changes that wait to be applied; then subscribers wait. A start would have to apply them again."""
PART: Final = 2000
"""Subscriptions of one request that are stored together."""
FEW: Final = 10
"""Subscriptions that are read at once before their size is known."""
MANY: Final = 1000
"""Events from which on their entries are made in a thread."""
LOOKED_AT: Final = 2000
"""Subscriptions of all users that one step of `_remove_all` reads."""
MOST_MATCHES: Final = 50_000
"""Matches that one search of `Pipeline.match` finds, about."""
MOST_LOOKED_UP: Final = 4000
"""Most events of such a search."""
MOST_KEY: Final = 200
"""Characters of an idempotency key."""
MOST_FILTERS: Final = 1000
QUERY: Final = 60.0
"""Seconds that a query of stored events may take, with those before it."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
EXPEL: Final = 1.5
"""Seconds between two checks whether connected users may stay."""
STUCK: Final = 1.0
"""Seconds without a sent message after which an ending server waits for no peer."""
MakeMetrics = Callable[[FilterInfo], Metrics | None]
_T = TypeVar("_T")


class ConnectedSession(Protocol):
    """A session that is connected."""

    who: Identity | None

    @property
    def owed(self) -> int:
        """Messages that it has for its peer, and may send."""

    def expel(self) -> None:
        """End the session."""

    def refuse(self, error: ServiceError) -> None:
        """Send an error."""


class Pipeline:
    """The pipeline behind all doors of the server. Belongs to the event loop that runs when it is made.

    Parameters
    ----------
    log : Log
    folder : Path
        For indexes, which are a cache: it may be removed while no server runs.
    users : Authenticate
    bounds : BacklogLimits
        Of each user's backlog.
    keeping : Keeping
    hook : callable, optional
        Adds to each event; see `Parse`.
    metrics : callable
        Makes the metrics of a filter; by default it has none.
    clock : callable
        Seconds since 1970; see `Clock`.
    message : int
        Most bytes of a message of a session, and, about, of a page of an answer. An event has at most half
        of them, so that it can be sent.

    Attributes
    ----------
    measures : Measures
        The measures of the stages.
    rounds : Rounds
        The turns on the event loop.
    """

    def __init__(
        self,
        log: Log,
        folder: Path,
        users: Authenticate | None = None,
        bounds: BacklogLimits = BacklogLimits(),  # noqa: B008  # immutable
        keeping: Keeping = Keeping(),  # noqa: B008
        hook: Hook | None = None,
        metrics: MakeMetrics = lambda info: None,
        clock: Callable[[], float] = time.time,
        message: int = 2**20,
    ) -> None:
        self.users: Authenticate = users or Open()
        bounds = bounds._replace(age=min(bounds.age, keeping.retention))
        self.keeping, self._bounds, self.message = keeping, bounds, message
        self._clock = clock = Clock(clock, log.latest)
        self._log, self._folder, self._hook, self._metrics = log, folder / "indexes", hook, metrics
        self._owners = Owners()
        self._indexes: dict[str, Index] = {}
        self._parsers: dict[str, Parse] = {}
        self._entering_of: Counter[str] = Counter()  # subscriptions of users that are being put in
        self._leaving: set[str] = set()  # filters that are being removed: nothing is taken in for them
        self._one_filter = asyncio.Lock()  # is added or removed at a time
        self.deliver = Deliver(self._owners, self._owners.expired, bounds, log.marks())
        self.measures, self.rounds = Measures(), Rounds()
        self._match = LogMatcher(
            self._indexes, self.deliver.tell, self.measures, self._owners.ordered, self.rounds
        )
        self._store = Store(
            log,
            self._stored,
            self._progress,
            self.deliver.owes,
            self._not_written,
            self.measures,
            self.rounds,
        )
        self._reads, self._beside = Threads(2, "rtfilter-read"), Threads(2, "rtfilter-beside")
        self._database = ThreadPoolExecutor(4, "rtfilter-database")  # apart: it may hang
        self._queries = ThreadPoolExecutor(1, "rtfilter-query")  # in parts, so that no other work waits
        self._queries_of, self._lists_of = OneEach(), OneEach()
        self._upkeep = Upkeep(
            log,
            self._store,
            self._match,
            self.deliver,
            self._owners,
            self._indexes,
            self._folder,
            keeping,
            clock,
            self.measures,
        )
        self.sessions: set[ConnectedSession] = set()
        """Connected sessions, which add and remove themselves."""
        self.forgets: list[Callable[[str], Awaitable[None]]] = []
        """Functions that remove what else is kept of a removed user."""
        self._tasks: list[asyncio.Task[None]] = []
        self._begun = self._changed = self._last = 0
        self._made = time.monotonic()
        self.stopping = False

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the indexes, and match again the entries of the log that are not settled."""
        logged = await self.beside(self._open)
        self._match.settled = self._match.taken = self._log.settled
        for position, entry in logged:
            if entry.kind is not Kind.EVENT:
                self._changed = position
            if entry.kind == Kind.UNSUBSCRIBE:
                self._tell_end(position, entry)
        self._match.put(logged)
        self._begun = self._upkeep.begun = logged[-1].position if logged else 0
        runs = (self._store.run(), self._match.run(), self._upkeep.run(), self._expel())
        self._tasks = [asyncio.create_task(run) for run in runs]

    def _open(self) -> list[Logged]:
        """Read the log; return the entries that are not settled."""
        log, settled = self._log, self._log.settled
        snapshots.claim(self._folder, log.epoch)
        for row in log.filters():
            info = _info(row)
            index, changes = snapshots.open_index(self._folder, info, log, settled, self._metrics(info))
            self._add(index)
            self._match.changes += changes
        known = {snapshots.name_of(index.info) for index in self._indexes.values()}
        snapshots.remove_others(self._folder, known)  # a filter that is added may get the name of one
        for id, filter, user, expires, manner in log.owners():
            if filter not in self._indexes or id < self._indexes[filter].info.since:
                continue  # asked for while its filter was removed
            self._owners.put(id, owned_of(id, filter, user, expires, manner))
        waiting = list(log.backlog())
        lowest = min((held[0] for row in waiting for held in row.deliveries), default=settled)
        for position, (id, filter, user, expires, manner) in log.expired(min(lowest, settled)):
            self._owners.put(id, owned_of(id, filter, user, expires, manner))
            self._owners.expire(id, position)
        events = log.bodies({position for row in waiting for position, _, _ in row.deliveries})
        for left in waiting:
            self.deliver.restore(left, events, self._key_of)
        self._owners.settle(settled)
        return list(log.entries(settled))

    def _key_of(self, entry: Entry) -> int | None:
        """Return the key of a stored event; see `UserDelivery`."""
        name = None if entry.filter not in self._indexes else self._indexes[entry.filter].info.key
        return None if name is None else hash_of(entry.filter, key_of(msgspec.json.decode(entry.body), name))

    def _add(self, index: Index) -> None:
        self._indexes[index.info.name] = index
        self._parsers[index.info.name] = self._parser(index.info)
        self.measures.begin(index.info.name)

    def _parser(self, info: FilterInfo) -> Parse:
        return Parse(info.schema, self._hook, self.message // 2)

    async def drain(self) -> None:
        """Accept no more events; return when the accepted ones are matched, and sent to receivers.

        Then send an error to all sessions. It waits for no peer if none of them takes anything.
        """
        self.stopping = True
        with suppress(BusyError):  # the log cannot be written: nothing was taken
            await self._store.put([])  # after this, all that was being stored is known
        await self.settled(max(self._begun, self._last))
        await self._sent()
        for session in list(self.sessions):
            session.refuse(stopping())
        await self._sent()

    async def _sent(self) -> None:
        """Wait until all sessions have sent their messages, or none of them makes progress."""
        owed, moved = -1, time.monotonic()
        while owed != 0 and time.monotonic() - moved < STUCK:
            before, owed = owed, sum(session.owed for session in self.sessions)
            if owed != before:
                moved = time.monotonic()
            await asyncio.sleep(0.01 if owed else 0)

    async def stop(self) -> None:
        """Stop all stages. The next start computes what was not written."""
        if self.healthy:
            await self._upkeep.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upkeep.give_up()
        self._store.close()
        self._match.close()
        for own in (self._reads, self._beside):
            own.shutdown()
        for threads in (self._database, self._queries):
            threads.shutdown(wait=not self.stuck, cancel_futures=True)
        self._log.close()

    async def _expel(self) -> None:
        """End sessions of users who may not stay, and remove the data of removed users; until cancelled."""
        while True:
            await asyncio.sleep(EXPEL)
            for session in list(self.sessions):
                if session.who is not None and not self.users.still(session.who):
                    session.expel()
            for user in list(self.users.gone):
                with suppress(BusyError):  # the next round tries again
                    await self._forget(user)

    async def _forget(self, user: str) -> None:
        """Remove all subscriptions and deliveries of a user: another one may get the name."""
        for forget in self.forgets:
            await forget(user)
        await self._store.put([])  # after this, all that was being stored is known
        await self._remove_all(lambda owned: owned.user == user, "its user was removed")
        await self.settled(max(self._begun, self._changed))  # not the head: it may be that of a filter
        self.deliver.leave(user)
        await self._store.flush()
        await self._store.change(self._log.forget_user, user)
        await self.users.forgotten(user)

    @property
    def healthy(self) -> bool:
        """True if all stages run."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def stuck(self) -> bool:
        """True if the database has not answered for so long that no request waits for it."""
        return self._store.stuck

    @property
    def ready(self) -> bool:
        """True if the start is complete and the database answers."""
        return self.healthy and not (self.stopping or self.stuck) and self._match.settled >= self._begun

    async def died(self) -> BaseException | None:
        """Wait until a stage ends, which none does by itself; returns why."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return None if (one := done.pop()).cancelled() else one.exception()

    async def settled(self, position: int) -> None:
        """Wait until the matches of all entries up to a position are known."""
        await self._match.reached(position)

    async def _reached(self, position: int) -> None:
        """Wait as `settled` does, for a door. Raises `BusyError` after `LIMIT` seconds."""
        try:
            async with asyncio.timeout(LIMIT):
                await self.settled(position)
        except TimeoutError:
            raise BusyError("earlier entries of the log are still being matched; try again", 1.0) from None

    async def beside(self, work: Callable[..., _T], *given: Any) -> _T:
        """Run work of the server that takes long in a thread."""
        return await self._beside.run(work, *given)

    async def read(self, who: Identity, work: Callable[..., _T], *given: Any) -> _T:
        """Read a request, or write an answer, in a thread, after earlier ones of the user."""
        return await self._reads.run_for(who.user, work, *given)

    async def ask(self, work: Callable[..., _T], *given: Any) -> _T:
        """Run work on the database that is not on the log, in a thread.

        Raises `BusyError` if the database does not answer; the work may have been done all the same.
        """
        try:
            async with asyncio.timeout(LIMIT):
                return await asyncio.get_running_loop().run_in_executor(self._database, work, *given)
        except (SQLAlchemyError, TimeoutError) as error:
            raise BusyError("the database does not answer; try again", 1.0) from error

    # -- between the stages ----------------------------------------------------------------------------------

    def _stored(self, logged: list[Logged]) -> None:
        """Process new entries of the log."""
        if logged:
            self._last = logged[-1].position
        removed: dict[str, list[int]] = {}
        ended: list[Logged] = []
        for position, entry in logged:
            if entry.kind is Kind.EVENT:
                self.measures.published += 1
                continue
            self._changed = position
            id = position if entry.subscription is None else entry.subscription
            if entry.kind != Kind.UNSUBSCRIBE:
                self._owners.put(id, owned_of(id, entry.filter, entry.user, entry.expires, entry.manner))
                continue
            ended.append(Logged(position, entry))
            if entry.expires is not None:
                self._owners.expire(id, position)
            else:
                self._owners.drop(id)
                removed.setdefault(entry.user, []).append(id)
        waits = self.deliver.forgetting  # for its next turn
        for user, ids in removed.items():
            self.deliver.forget(user, ids)
        if self.deliver.forgetting and not waits:
            self.rounds.join(self._forget_removed)
        for position, entry in ended:
            self._tell_end(position, entry)
        self._match.put(logged)

    def _forget_removed(self) -> None:
        """Drop the deliveries of removed subscriptions, for one turn at a time."""
        turn = Turn(self.rounds)
        while self.deliver.forgetting:
            self.deliver.forget_some()
            if turn.over:
                break
        if self.deliver.forgetting:
            self.rounds.join(self._forget_removed)

    def _tell_end(self, position: int, entry: Entry) -> None:
        reason = msgspec.json.decode(entry.body)["reason"]
        if reason != REMOVED or self.deliver.receives(entry.user):
            assert entry.subscription is not None
            self.deliver.end(position, entry.at, entry.filter, entry.user, entry.subscription, reason)

    def _progress(self, anew: bool) -> Progress:
        found = self.deliver.progress(self._match.settled, anew)
        if found.settled is not None:
            self._upkeep.written = found.settled
        return found

    def _not_written(self, progress: Progress) -> None:
        self._upkeep.written = -1  # so that it is tried again
        self.deliver.not_written(progress)

    # -- filters ---------------------------------------------------------------------------------------------

    def filters(self, who: Identity) -> list[FilterInfo]:
        """Return all filters, by name."""
        return [self._indexes[name].info for name in sorted(self._indexes.keys() - self._leaving)]

    def _index(self, filter: str) -> Index:
        found = self._indexes.get(filter)
        if found is None or filter in self._leaving:
            raise UnknownError(f"there is no filter {filter!r}")
        return found

    async def add_filter(
        self, who: Identity, name: str, definition: Definition, key: str | None = None
    ) -> FilterInfo:
        """Add a filter, or change the matching of one with the same key, or add attributes. For admins.

        Events are matched with the former matcher while another one is built.

        Raises
        ------
        ConflictError
            The name belongs to another filter, or its matcher cannot be changed to this one.
        RequestError
        """
        who.require(Role.ADMIN)
        if not _NAME.fullmatch(name):
            raise RequestError("a filter's name has 1 to 64 letters, digits and _.- (these not at the start)")
        _require_text(key)
        if key is not None:
            key = composed(key)
        if key is not None and key not in definition.schema.attributes:
            raise RequestError(f"the key {key!r} is no attribute of the schema")
        try:
            definition.require_whole("a server")
        except ValueError as error:
            raise RequestError(str(error)) from None
        async with self._one_filter:
            if name in self._leaving:
                raise BusyError(f"the filter {name!r} could not be removed; remove it again", 1.0)
            if name not in self._indexes:
                if len(self._indexes) >= MOST_FILTERS:
                    raise TooManyError(f"there are {MOST_FILTERS} filters already; remove one first")
                row = await self._store.change(self._log.put_filter, name, _stored(definition), key)
                info = _info(row)
                self._add(Index(info, snapshots.empty(info, self._metrics(info))))
            index = self._indexes[name]
            added = definition.schema.added_to(index.info.schema)
            if added is None or index.info.key != key:
                raise ConflictError(
                    f"there is a filter {name!r} with another schema or key already; repeat its attributes "
                    "and key, and add attributes, or take another name"
                )
            if added:
                await self._extend(index, added)
            definition = replace(definition, schema=index.info.schema)
            if index.info.definition != definition:
                await self._redefine(index, definition)
            return index.info

    async def _extend(self, index: Index, added: Mapping[str, Attribute]) -> None:
        """Add attributes to a filter: first in the log, after which each start adds them."""
        info = index.info
        try:
            wanted = replace(info.definition, schema=info.schema.extended(added))
        except ValueError as error:  # the matcher does not take them
            raise RequestError(str(error)) from None
        await self._store.change(self._log.redefine_filter, info.name, _stored(wanted))
        missing = wanted.schema.added_to(index.filter.schema)
        if missing:  # or an earlier call was interrupted after this
            await self.beside(index.filter.add_attributes, missing)
        index.info = info._replace(definition=wanted)
        self._parsers[info.name] = self._parser(index.info)

    async def _redefine(self, index: Index, new: Definition) -> None:
        """Change the matching of a filter, then the log; if that fails, the change ends with the server."""
        former, filter = index.info.definition, index.filter
        if new.matcher != former.matcher:
            if new.matcher is None or AUTO in (_name(former.matcher), _name(new.matcher)):
                raise ConflictError(
                    f"the matcher of the filter {index.info.name!r} is {shown(former.matcher)}, which cannot "
                    f"be changed to {shown(new.matcher)}; name a matcher, and neither may be {AUTO!r}"
                )
            await self.beside(filter.repack, whole(new.matcher))
        if new.controller != former.controller:
            filter.controller = new.controller or DEFAULT_CONTROLLER
        filter.policy = resolve(new.order)
        await self._store.change(self._log.redefine_filter, index.info.name, _stored(new))
        index.info = index.info._replace(definition=new)

    async def remove_filter(self, who: Identity, name: str) -> None:
        """Remove a filter with its subscriptions. For admins."""
        who.require(Role.ADMIN)
        async with self._one_filter:
            if name not in self._indexes:
                raise UnknownError(f"there is no filter {name!r}")
            self._leaving.add(name)
            try:
                await self._store.put([])  # after this, those that were being put in are known
                await self._remove_all(lambda owned: owned.filter == name, "its filter was removed")
            except RTFilterError:
                self._leaving.discard(name)  # it stays as before: its index has missed nothing
                raise
            await self._store.change(self._log.remove_filter, name)  # or it is to be asked for again
            del self._parsers[name]
            metrics = self._indexes.pop(name).filter.metrics
            if metrics:
                metrics.leave()
            self.measures.forget(name)
            self._leaving.discard(name)

    def parse(self, filter: str) -> Parse:
        """Return the parser of a filter's events. Raises `UnknownError`."""
        self._index(filter)
        return self._parsers[filter]

    # -- events ----------------------------------------------------------------------------------------------

    async def publish(
        self,
        who: Identity,
        filter: str,
        events: Sequence[bytes],
        key: str | None = None,
        arrived: float | None = None,
    ) -> list[int]:
        """Return the positions of events, once they are durable. For publishers.

        Parameters
        ----------
        events : sequence of bytes
            As `parse` returns them.
        key : str, optional
            Idempotency key of this publisher: events that are sent again with it are stored once.
        arrived : float, optional
            When they reached the server, by `time.perf_counter`, from which on response times count. By
            default now.
        """
        who.require(Role.PUBLISHER)
        if self.stopping:
            raise stopping()
        index = self._index(filter)
        self.users.admit(who, len(events))
        if self._match.waiting > MOST_UNMATCHED:
            raise BusyError("too many events wait to be matched; try again", 1.0)
        if self._bounds.policy == Policy.REFUSE:
            for user in self.deliver.full:
                if self._owners.of_both[user, filter]:
                    raise BusyError("a subscriber's backlog is full; try again", 5.0)
        now = time.perf_counter()
        arrived = now if arrived is None else arrived
        at = self._clock(now - arrived)

        def made() -> tuple[list[Entry], RequestKey | None]:
            entries = [Entry(Kind.EVENT, filter, who.user, body, at=at, arrived=arrived) for body in events]
            same = events if self._hook is None else [b"%d" % len(events)]  # a hook may add another time
            return entries, _key(who, key, [b"publish", filter.encode(), *same])

        entries, known = made() if len(events) < MANY else await self._beside.run_for(who.user, made)
        if self._index(filter) is not index:
            raise UnknownError(f"the filter {filter!r} was removed")
        require_still(self.users, who)
        return list(await self._store.put(entries, known))

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
        info = self._index(filter).info

        def look(one: EventFilter | None) -> Iterator[Page | None]:
            first = max(after, info.since)
            events = self._log.events(filter, user=user, since=since, until=until, after=first)
            yield from queries.query(one, events, limit, self.message)

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(QUERY), self._queries_of.one(who.user):
                parts = look(await self._beside.run_for(who.user, queries.asked, info.schema, where))
                require_still(self.users, who)
                while (page := await loop.run_in_executor(self._queries, next, parts)) is None:
                    pass
                return page
        except PredicateError as error:
            raise _lone(error) from None
        except TimeoutError:
            raise BusyError(
                "other queries take long, or the database does not answer; try again", 1.0
            ) from None

    async def match(self, who: Identity, filter: str, events: EventTable | Listed) -> AsyncIterator[Matches]:
        """Return the user's subscriptions that each event matches, in parts, in order; for admins all.

        Parameters
        ----------
        events : EventTable or Listed
            As `parse` returns it.
        """
        who.require(Role.SUBSCRIBER)
        self.users.admit(who, len(events))
        await self._reached(self._changed)
        return self._matches(who, self._index(filter), events)

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
            found, all = await self._beside.run_for(who.user, look_up) if slow else look_up()
            require_still(self.users, who)  # another user may have got the name
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
        own = [id for id in np.unique(found.ids).tolist() if self._owns(who, id)]
        return found.only(np.isin(found.ids, own)), len(found.ids)

    async def explain(self, who: Identity, filter: str, event: bytes, id: int) -> Explanation:
        """Explain why a subscription of the user matches an event or not."""
        who.require(Role.SUBSCRIBER)
        if not self._owns(who, id) or self._owners[id].filter != filter:
            raise UnknownError(f"there is no subscription {id}")
        await self._reached(self._changed)
        return await self._beside.run_for(who.user, self._index(filter).filter.explain, event, id)

    def filter_of(self, who: Identity, id: int) -> str:
        """Return the filter of one of the user's subscriptions. Raises `UnknownError`. For subscribers."""
        who.require(Role.SUBSCRIBER)
        if not self._owns(who, id):
            raise UnknownError(f"there is no subscription {id}")
        return self._owners[id].filter

    def _owns(self, who: Identity, id: int) -> bool:
        owned = self._owners.get(id)
        return owned is not None and (owned.user == who.user or Role.ADMIN in who.roles)

    # -- subscriptions ---------------------------------------------------------------------------------------

    async def subscribe(self, who: Identity, filter: str, wish: Wish, key: str | None = None) -> int:
        """Return the id of a new subscription once it is durable; all later events are matched with it.

        Raises
        ------
        PredicateError, RequestError, TooManyError, UnknownError
        """
        (found,) = await self.subscribe_many(who, filter, [wish], key)
        if isinstance(found, int):
            return found
        raise _lone(found)

    async def subscribe_many(
        self, who: Identity, filter: str, wishes: Sequence[Wish], key: str | None = None
    ) -> list[int | RTFilterError]:
        """Add the subscriptions that can be added; return the id of each, or its error.

        With a key, a repeated request adds only the subscriptions that failed for a moment. A single
        subscription that has ended is added again; of several, an ended one is reported.
        """
        who.require(Role.SUBSCRIBER)
        index = self._index(filter)
        work = partial(self._beside.run_for, who.user)
        known = None if key is None else await work(_key, who, key, _asked(filter, wishes))
        earlier = await self._earlier(known, len(wishes))
        if 0 not in earlier:
            self._require_room(who.user, len(wishes))
        wrong, unbounded = await work(check, wishes, index)
        good = [row for row in range(len(wishes)) if row not in wrong]
        parts = {first: good[first : first + PART] for first in range(0, len(good), PART)}
        there = {row for first in earlier for row in parts.get(first, ())}
        async with self._entering(index, [row for row in unbounded if row not in there]) as refused:
            made: dict[int, int | RTFilterError] = {**wrong, **refused}
            for first, all in parts.items():
                rows = [row for row in all if row not in refused]
                try:
                    put = earlier.get(first) or await self._put_wishes(
                        who, filter, [wishes[row] for row in rows], _key_of_part(known, first)
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
        found = await self.ask(self._log.known, list(keys.values()), self._clock())
        earlier = {first: put for first, put in zip(keys, found, strict=True) if put is not None}
        if earlier:
            await self._store.put([])  # after this, all that was being stored is known
        return earlier

    def _require_room(self, user: str, count: int) -> None:
        most = self.users.most_subscriptions
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
            await self._reached(self._changed)
            yield await self.beside(too_many, index, unbounded)

    def _there_still(self, made: int | RTFilterError) -> int | RTFilterError:
        """Return the answer to a repeated request: some of its subscriptions may have ended."""
        if isinstance(made, int):
            owned = self._owners.get(made)
            if owned is None or (owned.expires is not None and owned.expires <= self._clock()):
                return UnknownError(f"the subscription {made} has ended; ask for it with another key")
        return made

    async def _put_wishes(
        self, who: Identity, filter: str, wishes: Sequence[Wish], key: RequestKey | None
    ) -> Sequence[int]:
        """Store subscriptions together, when there is room for them; return their ids."""
        while self._match.waiting > MOST_UNMADE:
            await asyncio.sleep(0.01)
        at, arrived = self._clock(), time.perf_counter()
        entries = [entry_of(Kind.SUBSCRIBE, filter, who.user, wish, at, arrived) for wish in wishes]
        self._index(filter)  # it may have been removed meanwhile
        require_still(self.users, who)
        with self._room(who.user, len(wishes)):
            return await self._store.put(entries, key) if wishes else ()

    async def subscription(self, who: Identity, id: int) -> StoredSubscription:
        """Return a subscription of the user; to an admin, anybody's. Raises `UnknownError`."""
        if self._owns(who, id):
            found = await self.ask(lambda: self._log.subscriptions(id=id))
            if found:
                return subscription_of(found[0])
        raise UnknownError(f"there is no subscription {id}")

    async def subscriptions(
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
            _require_text(name)
        whose = None if everyone else user or who.user

        def look() -> tuple[list[StoredSubscription], bool]:
            found, left, count, last = list[StoredSubscription](), self.message, FEW, after
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
            require_still(self.users, who)
            return await self.ask(look)

    async def replace(self, who: Identity, id: int, wish: Wish) -> float | None:
        """Replace a subscription as a whole; its earlier matches are still delivered.

        Returns its expiry, in seconds since 1970, or None, once the change is durable.
        """
        who.require(Role.SUBSCRIBER)
        if not self._owns(who, id):
            raise UnknownError(f"there is no subscription {id}")
        owned = self._owners[id]
        index = self._index(owned.filter)
        wrong, unbounded = await self._beside.run_for(who.user, check, [wish], index)
        async with self._entering(index, unbounded) as refused:
            wrong |= refused
            if wrong:
                raise _lone(wrong[0])
            at, arrived = self._clock(), time.perf_counter()
            entry = entry_of(Kind.REPLACE, owned.filter, owned.user, wish, at, arrived, id)
            await self._store.put([entry])
        return entry.expires

    async def unsubscribe(self, who: Identity, id: int) -> None:
        """Remove a subscription, with its deliveries.

        Raises
        ------
        UnknownError
            There is none, or it is another user's; the message does not say which.
        """
        if not self._owns(who, id):
            raise UnknownError(f"there is no subscription {id}")
        owned = self._owners[id]
        reason = REMOVED if owned.user == who.user else "removed by an administrator"
        await self.remove(id, owned.filter, owned.user, reason)

    async def remove(self, id: int, filter: str, user: str, reason: str) -> None:
        """End a subscription; its user gets the reason."""
        await self._store.put([removal_of(id, filter, user, reason, self._clock(), time.perf_counter())])

    async def _remove_all(self, chosen: Callable[[Owned], bool], reason: str) -> None:
        """End subscriptions in parts, so that others come in between. Ended ones are skipped."""
        mine, all, turn = list[Owned](), list(self._owners.values()), Turn(self.rounds)
        for first in range(0, len(all), LOOKED_AT):
            mine += filter(chosen, all[first : first + LOOKED_AT])
            await turn.pause()
        for first in range(0, len(mine), ENDED):
            some = mine[first : first + ENDED]
            ends = (self.remove(one.id, one.filter, one.user, reason) for one in some)
            for ended in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(ended, Exception) and not isinstance(ended, ConflictError):
                    raise ended

    # -- deliveries ------------------------------------------------------------------------------------------

    def pending(self, who: Identity) -> list[UserDelivery]:
        """Return the user's unacknowledged deliveries, by position."""
        who.require(Role.SUBSCRIBER)
        return sorted(self.deliver.pending(who.user), key=attrgetter("position"))

    def pull(
        self, who: Identity, limit: int, after: int = 0
    ) -> tuple[list[tuple[UserDelivery, Sending]], int | None]:
        """Return the first pending deliveries above a position, counted as sent, with the data beside each.

        Also return the position to continue after, or None if there are no more.
        """
        left = [one for one in self.pending(who) if one.position > after]
        found = left[: min(limit, fitting((one.size for one in left), self.message))]
        there = (self.deliver.get(who.user, one.position) for one in found)
        sent = [(one, self.deliver.note_sent(who.user, one.position)) for one in there if one is not None]
        return sent, found[-1].position if len(found) < len(left) else None

    async def acknowledge(self, who: Identity, positions: Iterable[int]) -> None:
        """Remove acknowledged deliveries, durably; other positions are ignored. After an error, they stay."""
        who.require(Role.SUBSCRIBER)
        taken = list(positions)
        await self._reached(min(max(taken, default=0), self._begun))  # it may be one of an earlier run
        undo = self.deliver.acknowledge(who.user, taken)
        await self._store.flush(who.user, undo)

    # -- statistics ------------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Whole numbers by name: deliveries since the start by outcome, and what waits."""
        waiting = self.deliver.waiting
        return {
            "published": self.measures.published,
            **self.deliver.counts,
            "waiting_deliveries": waiting.deliveries,
            "longest_backlog": waiting.most,
            "backlog_bytes": waiting.bytes,
            "backlog_oldest_seconds": int(max(0.0, self._clock() - waiting.oldest)),
            "waiting_entries": self._match.waiting,
            "waiting_bytes": self._store.waiting,
            "head": self._log.head,
            "settled": self._match.settled,
            "subscriptions": len(self._owners),
            "users_with_subscriptions": len(self._owners.of_user),
            "filters": len(self._indexes),
        }

    async def statistics(self, who: Identity) -> dict[str, Any]:
        """Return statistics of the user; for admins also of the server and its filters."""
        found: dict[str, Any] = {
            "user": who.user,
            "subscriptions": self._owners.of_user[who.user],
            "pending": len(self.deliver.pending(who.user)),
            "dropped": self.deliver.dropped(who.user),
        }
        if Role.ADMIN in who.roles:
            found["server"] = self.counts
            indexes = dict(self._indexes)
            found["filters"] = await self._beside.run_for(
                who.user, lambda: {name: queries.statistics(index.filter) for name, index in indexes.items()}
            )
        return found

    async def status(self, who: Identity) -> dict[str, Any]:
        """Return present numbers, and counts that only rise; see `rtfilter.service.status`. For admins."""
        who.require(Role.ADMIN)
        now, indexes = self._clock(), [self._indexes[info.name] for info in self.filters(who)]
        return {
            "uptime": time.monotonic() - self._made,
            "ready": self.ready,
            **self.counts,
            "slowest": [
                {
                    "user": one.user,
                    "pending": one.pending,
                    "age": max(0.0, now - one.oldest),
                    "connected": self.deliver.receives(one.user),
                }
                for one in status.slowest(self.deliver.backlogs)
            ],
            "stages": await self._beside.run_for(who.user, status.of_stages, self.measures),
            "filters": await self._beside.run_for(who.user, status.of_filters, indexes, self.measures),
        }


def stopping() -> BusyError:
    """Return the error for requests that come while the server ends."""
    return BusyError("the server is stopping; try again", 1.0)


def _info(row: FilterRow) -> FilterInfo:
    key = None if row.key is None else composed(row.key)
    return FilterInfo(row.name, Definition.from_json(msgspec.json.decode(row.schema)), key, row.since)


def _stored(definition: Definition) -> bytes:
    return msgspec.json.encode(definition.to_json())


def _name(named: Named | None) -> str | None:
    found = whole(named)
    return None if found is None else found["name"]


def _require_text(name: str | None) -> None:
    """Raise `RequestError` where PostgreSQL would not take a name."""
    if name is not None and "\0" in name:
        raise RequestError("a name has no NUL characters")


def _lone(error: RTFilterError) -> RTFilterError:
    """Return an error without its row, which was the only one."""
    if isinstance(error, PredicateError):
        error.row = None
        error.show_row()
    return error


def _asked(filter: str, wishes: Iterable[Wish]) -> Iterator[bytes]:
    yield from (b"subscribe", filter.encode(), *map(msgspec.json.encode, wishes))


def _key(who: Identity, key: str | None, parts: Iterable[bytes]) -> RequestKey | None:
    """Return the key by which a repeated request is known, or None."""
    if key is None:
        return None
    if not key or len(key) > MOST_KEY or not key.isprintable():
        raise RequestError(f"a key has 1 to {MOST_KEY} printable characters")
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return RequestKey(who.user, key, hashed.digest())


def _key_of_part(key: RequestKey | None, first: int) -> RequestKey | None:
    """Return the key of the part of a request that begins at a row."""
    return key if key is None or not first else key._replace(key=f"{key.key}\n{first}")
