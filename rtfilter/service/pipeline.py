"""The way of an event: authenticate, parse, store, match, deliver.

    authenticate   the identity of a user                         `Access`, for each door
    parse          an event that the filter can use, or an error  Parse.one, Parse.lines
    store          in the log; now the publisher is answered      Store.put
    match          by position, in batches                        LogMatcher.run
    deliver        kept until it is acknowledged, and sent        Deliver.tell

All but the work of the log and of the indexes runs on the event loop. The parts that doors call check the
rights of users.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rtfilter.service.access import Access
from rtfilter.service.asking import Asking
from rtfilter.service.backlog import BacklogLimits
from rtfilter.service.concurrency import LIMIT, Asides, Rounds
from rtfilter.service.deliver import Deliver
from rtfilter.service.hosted import Hosted, MakeMetrics
from rtfilter.service.log_matcher import Index, LogMatcher
from rtfilter.service.measures import Measures
from rtfilter.service.origins import is_foreign
from rtfilter.service.owners import Owners, owned_of
from rtfilter.service.publishing import Delivering, Publishing, stopping
from rtfilter.service.service_errors import BusyError, UnknownError
from rtfilter.service.sites.site import NetworkSite, SiteSettings
from rtfilter.service.stages import Clock, Ending, Stages
from rtfilter.service.standby import Standby
from rtfilter.service.status import Numbers
from rtfilter.service.subscribed import Subscribing
from rtfilter.service.upkeep import Keeping, Presence, Upkeep
from rtfilter.service.writing import Store
from rtfilter.store.log import Log
from rtfilter.store.log_tables import Kind, Logged
from rtfilter.store.site_table import SiteTable


class Pipeline:
    """The parts behind all doors of the server, and their life. Belongs to the event loop that runs when it
    is made.

    Parameters
    ----------
    folder : Path
        For indexes, which are a cache: it may be removed while no server runs.
    bounds : BacklogLimits
        Of each user's backlog.
    metrics : callable
        Makes the metrics of a filter; by default it has none.
    message : int
        Most bytes of a message of a session, and, about, of a page of an answer. An event has at most half
        of them, so that it can be sent.
    site : str
        The name of this one in a network, which it joins later.

    Attributes
    ----------
    filters, subscriptions, publishing, deliveries, asking, status
        What doors call.
    deliver, presence, asides, measures, rounds
        The backlogs and receivers, the sessions, the threads, the measures, the turns on the event loop.
    """

    def __init__(
        self,
        log: Log,
        folder: Path,
        users: Access,
        bounds: BacklogLimits = BacklogLimits(),  # noqa: B008  # immutable
        keeping: Keeping = Keeping(),  # noqa: B008
        metrics: MakeMetrics = lambda info: None,
        clock: Callable[[], float] = time.time,
        message: int = 2**20,
        site: str = "",
    ) -> None:
        self.users, self.keeping, self.message, self._log = users, keeping, message, log
        self.measures, self.rounds, self.asides = measures, rounds, asides = Measures(), Rounds(), Asides()
        owners, indexes, passing = Owners(), dict[str, Index](), Clock(clock, log.latest)
        bounds = bounds._replace(age=min(bounds.age, keeping.retention))
        deliver = Deliver(owners, owners.expired, bounds, site=site)
        match = LogMatcher(indexes, deliver.tell, measures, owners.ordered, rounds)
        store = Store(log, self._stored, deliver, lambda: match.settled, measures, rounds)
        self._owners, self.deliver, self._match, self._store = owners, deliver, match, store
        of_log = log, store, owners, indexes, match, deliver
        stages = Stages(*of_log, users, asides, passing, measures, rounds, message)
        ending, folder = Ending(stages), folder / "indexes"
        self.filters = Hosted(stages, folder, ending, metrics)
        self.publishing = Publishing(stages, self.filters)
        self.subscriptions = Subscribing(stages, ending, self.filters)
        self.asking = Asking(stages, self.filters)
        self.deliveries = Delivering(stages)
        self.presence = Presence(stages, ending)
        self.status = Numbers(stages, self.filters)
        self.standby: Standby | None = None
        self.site: NetworkSite | None = None
        self._upkeep, self._stages = Upkeep(stages, ending, folder, keeping), stages
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the indexes, and match again the entries of the log that are not settled."""
        changes, logged = await self.asides.beside.run(self._open)
        self._begin(changes, logged)

    async def follow(self) -> None:
        """Become a standby, of a log that another server owns; returns once the indexes are built."""
        self.standby = Standby(self._stages, self.filters)
        await self.asides.beside.run(self.standby.open)

    async def take_over(self, take: Callable[[], bool]) -> None:
        """Follow the log until `take` returns True; then begin as `start` does. See `Standby.run`."""
        assert self.standby is not None
        await self.standby.run(take)
        await self.asides.beside.run(self._log.take)
        settled = self._log.settled
        await self.standby.catch_up(settled)
        self._stages.clock.pass_by(self._log.latest)
        changes, logged = await self.asides.beside.run(self._own, settled)
        self._begin(changes, logged)
        self.standby = None

    def _own(self, settled: int) -> tuple[int, list[Logged]]:
        """Return what `_open` does."""
        for position, entry in self._log.changes(settled, self._log.head):
            if entry.kind is not Kind.UNSUBSCRIBE or entry.expires is None:  # those that expired are restored
                self._owners.change(position, entry)
        return self.filters.own(), self._restore(settled)

    def join(self, settings: SiteSettings, table: SiteTable) -> None:
        """Become a site of a network, once the pipeline runs."""
        self.site = NetworkSite(self._stages, settings, table)
        self._tasks.append(asyncio.create_task(self.site.run()))

    def require_site(self) -> NetworkSite:
        """Return the site that this server is. Raises `UnknownError`."""
        if self.site is None:
            raise UnknownError("this server is no site of a network: it was started without --site")
        return self.site

    async def everywhere(self, ids: Sequence[int]) -> None:
        """Wait until all sites know subscriptions that they must know. Raises `BusyError`."""
        if self.site is None:
            return
        try:
            async with asyncio.timeout(LIMIT):
                for id in ids:
                    await self.site.everywhere(id)
        except TimeoutError:
            raise BusyError(
                "not all sites know the subscription, which is stored here; ask again with the same key", 1.0
            ) from None

    def _begin(self, changes: int, logged: Sequence[Logged]) -> None:
        for position, entry in logged:
            self._owners.note(position, entry)
            if entry.kind is Kind.UNSUBSCRIBE:
                self.deliveries.end(position, entry)
        self._match.begin(self._log.settled, changes, logged)
        runs = (self._store.run(), self._match.run(), self._upkeep.run(), self.presence.run())
        self._tasks = [asyncio.create_task(run) for run in runs]

    def _open(self) -> tuple[int, list[Logged]]:
        """Read the log; return the changes that no stored index has, and the entries that are not settled."""
        settled = self._log.settled
        changes = self.filters.open(settled)
        self.filters.read_owners()
        return changes, self._restore(settled)

    def _restore(self, settled: int) -> list[Logged]:
        """Restore what was delivered and not acknowledged; return the entries that are not settled."""
        log = self._log
        self.deliver.remember(log.marks())
        waiting = list(log.backlog())
        lowest = min((held[0] for row in waiting for held in row.deliveries), default=settled)
        for position, owner in log.expired(min(lowest, settled)):
            self._owners.put(owned_of(*owner))
            self._owners.expire(owner[0], position)
        events = log.bodies({position for row in waiting for position, _, _ in row.deliveries})
        for left in waiting:
            self.deliver.restore(left, events, self.filters.key_of)
        self._owners.settle(settled)
        return list(log.entries(settled))

    def _stored(self, logged: list[Logged]) -> None:
        removed: dict[str, list[int]] = {}
        ended: list[Logged] = []
        for one in logged:
            position, entry = one
            if entry.kind is Kind.EVENT:
                self.measures.published += 1
                self.measures.from_sites += is_foreign(entry.user)
                continue
            if self._owners.change(position, entry):
                assert entry.subscription is not None
                removed.setdefault(entry.user, []).append(entry.subscription)
            if self.site is not None:
                self.site.changed(one)
            if entry.kind is Kind.UNSUBSCRIBE:
                ended.append(one)
        self.deliveries.forget(removed)
        for position, entry in ended:
            self.deliveries.end(position, entry)
        self._match.put(logged)

    async def drain(self) -> None:
        """Accept no more events; return when the accepted ones are matched, and sent to receivers.

        Then send an error to all sessions. It waits for no peer if none of them takes anything.
        """
        self.publishing.stopping = True
        if self.standby is not None:
            return
        with suppress(BusyError):  # the log cannot be written: nothing was taken
            await self._store.put([])  # after this, all that was being stored is known
        await self.settled(self._match.last)
        await self.presence.end(stopping())

    async def stop(self) -> None:
        """Stop all stages. The next start computes what was not written."""
        if self.site is not None:
            await self.site.close()
        if self.standby is None and self.healthy:
            await self._upkeep.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._upkeep.give_up()
        self._store.close()
        self._match.close()
        self.asides.shutdown(self.stuck)
        self._log.close()

    @property
    def healthy(self) -> bool:
        """True if all stages run, or those of another server are followed."""
        if self.standby is not None:
            return True
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    @property
    def stuck(self) -> bool:
        """True if the database has not answered for so long that no request waits for it."""
        return self._store.stuck

    @property
    def stopping(self) -> bool:
        """True if the server ends."""
        return self.publishing.stopping

    @property
    def ready(self) -> bool:
        """True if the start is complete and the database answers."""
        caught_up = self._match.settled >= self._match.begun
        return self.healthy and not (self.standby or self.stopping or self.stuck) and caught_up

    async def died(self) -> BaseException | None:
        """Wait until a stage ends, which none does by itself; returns why."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return None if (one := done.pop()).cancelled() else one.exception()

    async def settled(self, position: int) -> None:
        """Wait until the matches of all entries up to a position are known."""
        await self._match.reached(position)
