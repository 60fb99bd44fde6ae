"""The events that a site may have missed while its place changed, read from the logs of other sites.

`Positions` say how far a site has the events of each other one: all up to a position that it or its
neighbours want are in its log. Neighbours tell each other, each behind the deliveries that it speaks of.

After a link has changed, nothing that neighbours tell counts until the site has read the events since then at
their origin. It reads once everybody who must know its subscriptions does, so that all later events come by
the new links.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import msgspec

from rtfilter.basics.errors import RTFilterError
from rtfilter.client.link import Address, addresses_of
from rtfilter.overlay.broker_names import BrokerMessage, SubscriptionId, Whole
from rtfilter.overlay.router import Router
from rtfilter.service.origins import Origin, is_foreign
from rtfilter.service.service_errors import UnknownError
from rtfilter.service.sites.arriving import store_event
from rtfilter.service.sites.peers import Credentials
from rtfilter.service.stages import StagePart, Stages
from rtfilter.store.site_table import SiteTable

PAGE: Final = 1000
"""Events that are read at once."""
AGAIN: Final = 1.0
"""Seconds until an origin that does not answer is asked again."""
NO_FILTER: Final = 404
"""The status of a site that has no such filter."""
SKEW: Final = 60
"""Seconds that clocks of sites may differ: events from before this site was made are not read."""
WITHIN: Final = 30.0
"""Seconds in which an origin must answer."""
_log = logging.getLogger(__name__)


class KnownSite(NamedTuple):
    """A site whose events come here: its address, and the position up to which it has nothing to send.

    `log` is the id of its log, which is another one on a new disk. `turns` counts how often a user said that
    the site is gone for good, and how often it came back.
    """

    address: str
    position: Whole
    log: str = ""
    turns: Whole = 0

    @property
    def gone(self) -> bool:
        """True if a user said so, and it has not come back."""
        return self.turns % 2 == 1


class Positions(BrokerMessage, frozen=True):
    """The position up to which the sender, and so the receiver, has the events of each site."""

    sites: dict[str, KnownSite]


class CatchingUp(StagePart):
    """Reads what was missed, and notes how far the events of other sites are here.

    `router` knows what is wanted, and whether all who must know it do.
    """

    def __init__(
        self,
        stages: Stages,
        name: str,
        who: Credentials,
        table: SiteTable,
        router: Router,
    ) -> None:
        super().__init__(stages)
        self._name, self._who, self._table, self._router = name, who, table, router
        since, found = table.get("since"), table.get("have")
        if since is None:
            since = b"%d" % time.time()
            table.put("since", since)
        self._since = int(since) - SKEW
        self.known = {} if found is None else msgspec.json.decode(found, type=dict[str, KnownSite])
        self._stored = dict(self.known)
        self.turns = 0  # of this site
        self._waiting: list[SubscriptionId] = []  # that not everybody knows since the last change
        self._round, self._next = 0, 0.0
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._current: set[str] = set()  # sites of which nothing is missed
        self._failed: set[str] = set()

    def anew(self) -> None:
        """Begin to read what is missed: a link has changed, or deliveries were dropped."""
        self._round += 1
        self._current.clear()
        self._waiting = [entry.subscription.id for entry in self._router.table]

    def hear(self, message: Positions) -> None:
        """Take what a neighbour tells."""
        for site, told in message.sites.items():
            if site == self._name:
                self._come_back(told.turns)
                continue
            before = self.known.get(site)
            if before is None:
                self.known[site] = told._replace(position=0, log="")
                continue
            if before.log != told.log:
                self._current.discard(site)  # one of both is of a former log: the site itself is asked
            position = max(told.position if site in self._current else 0, before.position)
            turns = max(told.turns, before.turns)
            self.known[site] = before._replace(address=told.address, position=position, turns=turns)

    def _come_back(self, turns: int) -> None:
        """Tell others that this site is here, where they know of more turns."""
        if turns > self.turns:
            self.turns = turns + turns % 2

    def forget(self, site: str) -> None:
        """Miss no more events of a site that is gone for good, here and at all sites, until it comes back.

        Raises `UnknownError` if there is no such site.
        """
        if site not in self.present:
            raise UnknownError(f"no site {site!r} is known here")
        before = self.known[site]
        self.known[site] = before._replace(turns=before.turns + 1)

    @property
    def present(self) -> dict[str, KnownSite]:
        """The sites that are not gone."""
        return {site: known for site, known in self.known.items() if not known.gone}

    def tick(self) -> None:
        """Read at all sites of which something may be missed: now and then until everybody knows what is
        wanted, so that little is left, and then at once."""
        while self._waiting and self._router.is_known_everywhere(self._waiting[-1]):
            self._waiting.pop()
        if self._waiting and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + AGAIN
        for site in self.present:
            if site not in self._current and site not in self._reading:
                self._reading[site] = asyncio.create_task(self._read(site))

    @property
    def settled(self) -> bool:
        """True if nothing is missed of any known site."""
        return not self._waiting and self._current >= self.present.keys()

    async def _read(self, site: str) -> None:
        """Read once; nothing is missed then if all knew what is wanted before, and no link has changed."""
        round, complete = self._round, not self._waiting
        try:
            await self._read_all(site)
        except (OSError, HTTPException, ValueError, LookupError, TypeError, RTFilterError) as error:
            if site not in self._failed:
                _log.warning("the log of %s cannot be read, which is tried again: %s", site, error)
            self._failed.add(site)
            await asyncio.sleep(AGAIN)
        else:
            self._failed.discard(site)
            if complete and round == self._round:
                self._current.add(site)
        finally:
            del self._reading[site]

    async def _read_all(self, site: str) -> None:
        address, position, log_id, _ = self.known[site]
        log = await asyncio.to_thread(self._ask, address, "/site")  # first: events until then are read below
        if log["log"] != log_id:
            position = 0
        if log["removed"] > position > 0:
            _log.critical(
                "events of %s between its positions %d and %d may be lost here: its log has them no more",
                site,
                position,
                log["removed"],
            )
        for filter in list(self._indexes):
            try:
                await self._read_filter(site, address, filter, position)
            except HTTPError as error:
                if error.code != NO_FILTER:
                    raise
        self.known[site] = self.known[site]._replace(position=max(log["head"], position), log=log["log"])

    async def _read_filter(self, site: str, address: str, filter: str, after: int) -> None:
        """Read all events of a filter above a position, page by page."""
        more = True
        while more:
            path = f"/filters/{quote(filter, safe='')}/events?after={after}&limit={PAGE}"
            page = await asyncio.to_thread(self._ask, address, path)
            events = page["events"]
            await self._store_wanted(site, filter, events)
            after, more = max([after, *(one["position"] for one in events)]), page["next"] is not None

    def _ask(self, urls: str, path: str) -> Any:
        """Return what a site answers; there may be several URLs, with commas, of it and its standby."""
        *others, last = addresses_of(urls, *self._who)
        for address in others:
            with suppress(OSError):
                return _answer(address, path)
        return _answer(last, path)

    async def _store_wanted(self, site: str, filter: str, events: list[dict[str, Any]]) -> None:
        own = [one for one in events if not is_foreign(one["user"]) and one["at"] >= self._since]
        if not own or filter not in self._indexes:
            return
        index = self._indexes[filter].filter
        await self._match.reached(self._owners.changed)  # so that the index has all that is wanted
        bodies = [msgspec.json.encode(one["event"]) for one in own]
        hits = await self._asides.beside.run(lambda: index.match_batch(bodies).any.tolist())
        wanted = [(one, body) for one, body, hit in zip(own, bodies, hits, strict=True) if hit]
        await asyncio.gather(
            *(
                store_event(self, filter, body, Origin(one["user"], site, one["position"], one["at"], site))
                for one, body in wanted
            )
        )

    async def store(self) -> None:
        """Store the positions, where they have changed."""
        if self.known != self._stored:
            self._stored = dict(self.known)
            await self._store.change(self._table.put, "have", msgspec.json.encode(self._stored))

    async def close(self) -> None:
        """End all reading."""
        for task in self._reading.values():
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)


def _answer(address: Address, path: str) -> Any:
    with urlopen(address.request(path), timeout=WITHIN, context=address.ssl) as answer:
        return json.load(answer)
