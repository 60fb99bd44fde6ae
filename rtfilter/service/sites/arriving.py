"""Events of other sites: taken as deliveries of a session, and put into the own log, once by their origin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from rtfilter.client.client import connect
from rtfilter.client.client_errors import ClientError
from rtfilter.client.ledger import Item
from rtfilter.client.protocol import EventDelivery
from rtfilter.service.origins import Origin, origin_of
from rtfilter.service.service_errors import BusyError, ConflictError
from rtfilter.service.sites.peers import Complaints, Credentials
from rtfilter.service.stages import StagePart, Stages
from rtfilter.store.log_tables import Entry, Kind, RequestKey

TOGETHER: Final = 500
"""Events that are stored at once."""
REST: Final = 0.5
"""Seconds between two attempts."""
_encode: Final = msgspec.json.Encoder().encode


async def store_event(stages: StagePart, filter: str, body: bytes, origin: Origin) -> None:
    """Put an event of another site into the log, unless it is there. Raises `BusyError`."""
    key = RequestKey("", f"{filter}:{origin.site}:{origin.position}:{origin.at!r}", b"")
    entry = Entry(Kind.EVENT, filter, origin.text, body, at=stages._clock())
    await stages._store.put([entry], key)


class Arriving(StagePart):
    """Takes the deliveries for this site from another one, until cancelled.

    An event is acknowledged to that site once it is in the log here. `missed` is called where that site had
    to drop some.
    """

    def __init__(
        self,
        stages: Stages,
        site: str,
        other: str,
        address: str,
        who: Credentials,
        missed: Callable[[], None],
    ) -> None:
        super().__init__(stages)
        self._site, self._other, self._address, self._who = site, other, address, who
        self._missed = missed

    async def run(self) -> None:
        """Take deliveries, and connect again after each loss."""
        complaints = Complaints("no deliveries from", self._other)
        while True:
            user, password = self._who
            client = connect(self._address, user=user, password=password, acknowledge="manual", patience=REST)
            try:
                async with client:
                    complaints.reached()
                    await client.session.begin()
                    while (item := await client.session.next_item()) is not None:
                        items = [item]
                        while len(items) < TOGETHER and (more := client.session.ledger.take()) is not None:
                            items.append(more)
                        await self._store_all(items)
                        for one in items:
                            client.session.acknowledge(one)
            except ClientError as error:
                complaints.note(error)
            await asyncio.sleep(REST)

    async def _store_all(self, items: Sequence[Item]) -> None:
        if any(item.arrival.dropped for item in items):
            self._missed()
        events = [item.arrival for item in items if isinstance(item.arrival, EventDelivery)]
        while events:
            results = await asyncio.gather(*map(self._put, events), return_exceptions=True)
            for found in results:
                if isinstance(found, BaseException) and not isinstance(found, BusyError | ConflictError):
                    raise found
            events = [one for one, found in zip(events, results, strict=True) if isinstance(found, BusyError)]
            if events:
                await asyncio.sleep(REST)

    async def _put(self, event: EventDelivery) -> None:
        origin = origin_of(event.source)
        if origin is None or origin.site == self._site or event.filter not in self._indexes:
            return
        neighbour = origin._replace(neighbour=self._other)
        await store_event(self, event.filter, _encode(event.event), neighbour)
