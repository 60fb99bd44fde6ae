"""Users who are there: their sessions, which end when they may not stay, and what is left when they go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from rtfilter.service.ending import Ending
from rtfilter.service.roles import Identity
from rtfilter.service.service_errors import BusyError, ServiceError
from rtfilter.service.stages import Stages

EXPEL: Final = 1.5
"""Seconds between two checks whether connected users may stay."""
STUCK: Final = 1.0
"""Seconds without a sent message after which an ending server waits for no peer."""


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


class Presence:
    """The connected sessions, and the users who were removed."""

    def __init__(self, stages: Stages, ending: Ending) -> None:
        self._users, self._log, self._store = stages.users, stages.log, stages.store
        self._match, self._deliver, self._owners = stages.match, stages.deliver, stages.owners
        self._ending = ending
        self.sessions: set[ConnectedSession] = set()
        """They add and remove themselves."""
        self.forgets: list[Callable[[str], Awaitable[None]]] = []
        """Functions that remove what else is kept of a removed user."""

    async def run(self) -> None:
        """End sessions of users who may not stay, and remove the data of removed users; until cancelled."""
        while True:
            await asyncio.sleep(EXPEL)
            for session in list(self.sessions):
                if session.who is not None and not self._users.still(session.who):
                    session.expel()
            for user in list(self._users.gone):
                with suppress(BusyError):  # the next round tries again
                    await self.forget(user)

    async def forget(self, user: str) -> None:
        """Remove all subscriptions and deliveries of a user: another one may get the name."""
        for forget in self.forgets:
            await forget(user)
        await self._store.put([])  # after this, all that was being stored is known
        await self._ending.remove_all(lambda owned: owned.user == user, "its user was removed")
        await self._match.reached(max(self._match.begun, self._owners.changed))  # the head may be a filter's
        self._deliver.leave(user)
        await self._store.flush()
        await self._store.change(self._log.forget_user, user)
        await self._users.forgotten(user)

    async def end(self, error: ServiceError) -> None:
        """Wait until all messages are sent, then send an error to all sessions.

        It waits for no peer if none of them takes anything.
        """
        await self._sent()
        for session in list(self.sessions):
            session.refuse(error)
        await self._sent()

    async def _sent(self) -> None:
        owed, moved = -1, time.monotonic()
        while owed != 0 and time.monotonic() - moved < STUCK:
            before, owed = owed, sum(session.owed for session in self.sessions)
            if owed != before:
                moved = time.monotonic()
            await asyncio.sleep(0.01 if owed else 0)
