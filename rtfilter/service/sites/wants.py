"""The subscriptions of other sites in the log here: those that the machines say, and no others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from itertools import islice
from math import inf
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rtfilter.overlay.broker_machine import Broker
from rtfilter.overlay.broker_names import BrokerPlace, Connection, ConnectionKind, SubscriptionId
from rtfilter.overlay.strategies import Strategy
from rtfilter.service.owners import OF_SITE, removal_of
from rtfilter.service.service_errors import BusyError, ConflictError
from rtfilter.service.stages import StagePart, Stages
from rtfilter.store.log_tables import Entry, Kind

TOGETHER: Final = 1000
"""Subscriptions that are stored at once."""
ENDED: Final = 100
"""Most that are ended at once; the machines wait meanwhile."""
REST: Final = 0.5
"""Seconds until the log is asked again."""
Want = tuple[str, SubscriptionId | str]
"""A subscription of another site here: its name, and the id, or the event type of all events."""


class _Since(NamedTuple):
    """The time of an end, and the last position of the log then."""

    time: float
    position: int


class Wants(StagePart):
    """Keeps the subscriptions of other sites in the log as the router has them.

    The log may differ from what was asked for: an answer of the database may be lost, and admins may remove
    subscriptions. So `note` takes what the log says, and `reflect` mends the differences. `grace` is in
    seconds: a subscription stays that long after its end, and longer while deliveries wait for a neighbour.
    """

    def __init__(self, stages: Stages, broker: Broker, grace: float) -> None:
        super().__init__(stages)
        self._broker, self._router, self._grace = broker, broker.router, grace
        self._changed = self._router.table.changed = set()
        self._place: BrokerPlace | None = None
        self._all: set[Want] = set()  # those of all events of a type
        self._wanted: dict[Want, tuple[str, str]] = {}  # the filter and the condition
        self._there: dict[Want, int] = {}  # the id in the log
        self._of: dict[int, Want] = {}
        self._surplus: set[int] = set()  # ids of wants that are in the log twice
        self._differing: dict[Want, None] = {}  # that may differ from the log
        self._ending: dict[Want, _Since] = {}  # those that are wanted no more

    def __len__(self) -> int:
        return len(self._there)

    def taken(self, site: str) -> int:
        """Return the position up to which a site has taken all its deliveries, or had none."""
        settled = self._match.settled
        return min(settled, min(self._deliver.backlog(site).pending, default=settled + 1) - 1)

    def note(self, position: int, entry: Entry) -> None:
        """Note a change of the log, if it is one of these subscriptions."""
        id = entry.id_at(position)
        if entry.kind is not Kind.UNSUBSCRIBE and entry.manner == OF_SITE:
            what = msgspec.json.decode(entry.body)["metadata"]["id"]
            want = entry.user, what if isinstance(what, str) else SubscriptionId(*what)
            former = self._there.get(want, id)
            if former != id:
                self._surplus.add(former)
            self._there[want], self._of[id] = id, want
        elif entry.kind is Kind.UNSUBSCRIBE and id in self._of:
            want = self._of.pop(id)
            self._surplus.discard(id)
            if self._there.get(want) == id:
                del self._there[want]
        else:
            return
        self._differing[want] = None

    async def reflect(self) -> None:
        """Store what has changed; the machines confirm a subscription afterwards."""
        self._compare()
        since = _Since(time.monotonic(), self._match.last)
        for want in self._differing:
            if want in self._wanted:
                self._ending.pop(want, None)
            elif want in self._there:
                self._ending.setdefault(want, since)
        while some := list(islice(self._differing, TOGETHER)):
            await self._store_all(some, ())
            for want in some:
                self._differing.pop(want, None)
        due = self._due(since.time - self._grace)
        await self._store_all((), due)
        for want in due:
            del self._ending[want]

    def _due(self, before: float) -> list[Want]:
        """Return some wants that have ended before a time, and whose deliveries their site has taken.

        One that is no neighbour any more reads what it misses.
        """
        near, taken, due = self._broker.place.neighbours, dict[str, int](), list[Want]()
        for want, since in self._ending.items():
            if since.time > before or len(due) == ENDED:
                break
            site = want[0]
            if site in near and site not in taken:
                taken[site] = self.taken(site)
            if since.position <= taken.get(site, inf):
                due.append(want)
        return due

    async def _store_all(self, new: Iterable[Want], gone: Iterable[Want]) -> None:
        while entries := self._entries(new, gone):
            try:
                await self._store.put(entries)
            except (BusyError, ConflictError):  # it may be stored all the same: then `note` has heard of it
                await asyncio.sleep(REST)

    def _entries(self, new: Iterable[Want], gone: Iterable[Want]) -> list[Entry]:
        """Return the changes of the log that are still to be made."""
        at, now = self._clock(), time.perf_counter()
        entries = [self._entry(want, at) for want in new if want in self._wanted and self._lacks(want)]
        ids = {self._there[want] for want in gone if want in self._there} | self._surplus
        removed = [
            removal_of(self._owners[id], "no longer wanted", at, now) for id in ids if id in self._owners
        ]
        return entries + [replace(one, manner=OF_SITE) for one in removed]  # the site does not hear of it

    def _entry(self, want: Want, at: float) -> Entry:
        site, id = want
        filter, condition = self._wanted[want]
        body = msgspec.json.encode({"where": condition, "metadata": {"id": id}})
        return Entry(Kind.SUBSCRIBE, filter, site, body, at=at, manner=OF_SITE)

    def _lacks(self, want: Want) -> bool:
        """Return whether a filter here has no such subscription; it may be a later one of its name."""
        index, id = self._indexes.get(self._wanted[want][0]), self._there.get(want)
        return index is not None and (id is None or id not in self._owners or id < index.info.since)

    def _compare(self) -> None:
        """Take what the router says since the last time."""
        changed = list(self._changed)
        self._changed.clear()
        if self._broker.place != self._place:
            self._place = self._broker.place
            self._differing |= dict.fromkeys(self._wanted)
            self._wanted.clear()
            self._all.clear()
            changed = [(one.subscription.id, one.connection) for one in self._router.table]
        for id, connection in changed:
            if site := self._site(connection):
                found = self._router.table.get(id, connection)
                self._take((site, id), None if found is None else (found.type, found.condition))
        all: set[Want] = {
            (site, type)
            for type in self._indexes
            for strategy in self._router.strategies
            for site in self._takers(strategy, type)
        }
        for want in all ^ self._all:
            self._take(want, (str(want[1]), "TRUE") if want in all else None)
        self._all = all

    def _take(self, want: Want, wanted: tuple[str, str] | None) -> None:
        self._differing[want] = None
        if wanted is None:
            self._wanted.pop(want, None)
        else:
            self._wanted[want] = wanted

    def _site(self, connection: Connection) -> str:
        """Return the site of a connection; empty for users here, and where it is lost."""
        match connection.kind:
            case ConnectionKind.CLIENT:
                return ""
            case ConnectionKind.LINK:
                return self._broker.place.links.get(connection.name, "")
        return connection.name

    def _takers(self, strategy: Strategy, type: str) -> set[str]:
        """Return the sites that get all events of a type."""
        place = self._broker.place
        if not place.leads:
            return {place.designated} if place.designated else set()
        clusters = {*strategy.always(place, type), strategy.ascent(place, type)}
        sites = {site for cluster, site in place.links.items() if cluster in clusters}
        return sites if strategy.shared else sites | (place.members - {place.broker})
