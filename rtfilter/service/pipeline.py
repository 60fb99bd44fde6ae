"""The way of an event: authenticate, parse, store, match, deliver.

    authenticate   who asks                                       `authenticate`, for each door
    parse          an event that the filter can use, or an error  Parse.one, Parse.lines
    store          in the log; now the publisher is told          Store.put
    match          by position, in batches                        Match.run
    deliver        kept until it is acknowledged, and sent        Deliver.tell

All but the work of the log and of the index runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from rtfilter.errors import PredicateError, UnknownSubscriptionError
from rtfilter.events.schema import Schema
from rtfilter.filter import EventFilter
from rtfilter.predicates.parse import parse
from rtfilter.service.authenticate import Authenticate, by_name
from rtfilter.service.backlog import Delivery
from rtfilter.service.deliver import Deliver
from rtfilter.service.log import Entry, Kind, Log, Logged
from rtfilter.service.match import Match
from rtfilter.service.parse import Hook, Parse
from rtfilter.service.store import Store


class Pipeline:
    """What all doors of the server open to. Belongs to the event loop that runs when it is made.

    Parameters
    ----------
    schema : Schema
    log : Log
    authenticate : callable
    hook : callable, optional
        Adds to each event; see `Parse`.
    """

    def __init__(
        self, schema: Schema, log: Log, authenticate: Authenticate = by_name, hook: Hook | None = None
    ) -> None:
        self.authenticate, self._schema, self._log = authenticate, schema, log
        self._owners: dict[str, str] = {}
        self.parse = Parse(schema, hook)
        self.deliver = Deliver(self._owners, log.marks())
        self.match = Match(EventFilter(schema, ids=str, max_unbounded=None), self.deliver.tell)
        self._store = Store(log, self._stored)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Compute anew, from the log, what is not in it."""
        self._stored(list(self._log.entries()))
        self._tasks = [asyncio.create_task(run) for run in (self._store.run(), self.match.run())]

    async def stop(self) -> None:
        """End; nothing needs to be saved."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._store.close()
        self.match.close()
        self._log.close()

    @property
    def healthy(self) -> bool:
        """Whether all stages run."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    def _stored(self, logged: list[Logged]) -> None:
        """Take note of what the log has."""
        for _, entry in logged:
            if entry.kind == Kind.SUBSCRIBE:
                self._owners[msgspec.json.decode(entry.body)["id"]] = entry.user
            elif entry.kind == Kind.UNSUBSCRIBE:
                id = msgspec.json.decode(entry.body)["id"]
                self._owners.pop(id, None)
                self.deliver.forget(entry.user, id)
        self.match.put(logged)

    # -- what doors ask for ----------------------------------------------------------------------------------

    async def publish(self, user: str, events: Sequence[bytes], key: str | None = None) -> list[int]:
        """Return the positions of events, once they are durable.

        Parameters
        ----------
        events : sequence of bytes
            As `parse` returns them.
        key : str, optional
            Of this publisher: sent again, it stands for the same events.
        """
        keys = [None if key is None else f"{row} {key}" for row in range(len(events))]
        return await self._store.put(
            [Entry(Kind.EVENT, user, body, key) for body, key in zip(events, keys, strict=True)]
        )

    async def subscribe(self, user: str, where: Any) -> str:
        """Return the id of a new subscription, once it is durable; all events after it are held against it.

        Raises
        ------
        PredicateError
        """
        if not isinstance(where, str | dict):
            raise PredicateError('"where" is an SQL condition as text, or an event pattern as an object')
        parse(where, self._schema)
        id = str(uuid4())
        await self._store.put([Entry(Kind.SUBSCRIBE, user, msgspec.json.encode({"id": id, "where": where}))])
        return id

    async def unsubscribe(self, user: str, id: str) -> None:
        """Remove a subscription, with its deliveries.

        Raises
        ------
        UnknownSubscriptionError
            There is none, or it is another user's: nobody is told which.
        """
        if self._owners.get(id) != user:
            raise UnknownSubscriptionError(id)
        await self._store.put([Entry(Kind.UNSUBSCRIBE, user, msgspec.json.encode({"id": id}))])

    def pending(self, user: str) -> Sequence[Delivery]:
        """What a user has not acknowledged."""
        return self.deliver.pending(user)

    async def acknowledge(self, user: str, positions: Iterable[int]) -> None:
        """Take deliveries of a user away, durably."""
        mark = self.deliver.acknowledge(user, positions, self.match.settled)
        await self._store.put([], {user: mark})
