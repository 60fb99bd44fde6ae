"""Upkeep by time: digests, redeliveries, expiry, trimming of the log, memory, users who must leave."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from rtfilter.basics.errors import RTFilterError
from rtfilter.service import snapshots
from rtfilter.service.memory import Memory
from rtfilter.service.roles import Identity
from rtfilter.service.service_errors import BusyError, ConflictError, ServiceError
from rtfilter.service.stages import RETRY, Ending, StagePart, Stages

TICK: Final = 0.1
"""Seconds between two rounds."""
EXPEL: Final = 1.5
"""Seconds between two checks whether connected users may stay."""
STUCK: Final = 1.0
"""Seconds without a sent message after which an ending server waits for no peer."""
GIVE_BACK: Final = 5.0
"""Seconds after which the system gets freed memory back again."""
TRIM: Final = 60.0
"""Seconds after which the log is trimmed again."""
CHECKPOINT: Final = 1.0
"""Seconds between two checkpoints of the database's write-ahead log."""
FEW: Final = 1000
"""Changes up to which no index is written when the server ends."""
_log = logging.getLogger(__name__)


class Keeping(NamedTuple):
    """The times and counts that the server keeps things."""

    retention: float = 7 * 86_400.0
    """Seconds that events stay in the log, and the idempotency keys of publishing them. No delivery may get
    older."""
    redeliver: float = 30.0
    """Seconds after which a delivery that was not acknowledged is sent again; twice as long each time."""
    changes: int = 50_000
    """Changes of subscriptions after which indexes are written beside the log."""


class Upkeep(StagePart):
    """The upkeep of the stages: regular work until the server ends."""

    def __init__(self, stages: Stages, ending: Ending, folder: Path, keeping: Keeping) -> None:
        super().__init__(stages)
        self._ending, self._folder, self._keeping = ending, folder, keeping
        self._background: set[asyncio.Task[None]] = set()
        self._ends: asyncio.Task[None] | None = None  # that are being written
        self._writing = asyncio.Lock()
        self._ends_soon = False
        self._pause, self._write_after = RETRY, 0.0

    async def run(self) -> None:
        """Run the upkeep until `end`."""
        trimmed, moved = -inf, time.monotonic()
        memory, given = Memory(), moved
        head = self._log.head
        while True:
            await asyncio.sleep(TICK)
            if self._ends_soon:
                return
            moment = self._clock()
            self._deliver.tick(moment)
            if self._ends is None or self._ends.done():
                self._ends = self._soon(self._ending.expire_all(moment))
            self._owners.settle(self._match.settled)
            if self._match.settled > self._deliver.written:
                self._store.nudge()
            if self._match.changes >= self._keeping.changes and self._may_write():
                self._soon(self._write_in_time())
            if self._log.head != head and time.monotonic() - moved > CHECKPOINT:
                moved, head = time.monotonic(), self._log.head
                self._soon(asyncio.to_thread(self._log.checkpoint))
            if time.monotonic() - given > GIVE_BACK:
                given = time.monotonic()
                self._soon(asyncio.to_thread(memory.give_back))
            if time.monotonic() - trimmed > TRIM:
                trimmed = time.monotonic()
                self._soon(self._trim(moment))

    def _may_write(self) -> bool:
        caught_up = self._match.settled >= self._match.begun  # which writing would take time from
        return caught_up and not self._writing.locked() and time.monotonic() >= self._write_after

    def _soon(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Run work as a task; failed work is tried again in a later round, or after the next start."""

        async def run() -> None:
            try:
                await work
            except ConflictError:
                pass  # it has been done already, or is not to be done any more
            except BusyError:
                pass  # `Store` logs it, once
            except (RTFilterError, OSError):
                _log.warning("something could not be written; it is tried again later", exc_info=True)

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _write_in_time(self) -> None:
        """Write the indexes; where that fails, such as where the disk is full, not again at once."""
        self._pause *= 2
        self._write_after = time.monotonic() + min(self._pause, TRIM)
        await self.write_indexes()
        self._pause, self._write_after = RETRY, 0.0

    async def write_indexes(self) -> None:
        """Write the indexes of all filters beside the log."""
        async with self._writing:
            before = self._match.changes
            position = self._match.settled
            for index in list(self._indexes.values()):
                folder = self._folder / snapshots.name_of(index.info)
                with self._measures.index_writes.around():
                    aside = await asyncio.to_thread(snapshots.write, folder, index.filter)
                upto = self._match.taken  # the index may hold all of these already
                await self._match.reached(upto)
                await self._store.flush()
                snapshots.keep(aside, position, upto)
            self._match.changes -= before

    async def _trim(self, moment: float) -> None:
        known = {snapshots.name_of(index.info) for index in self._indexes.values()}
        held = [one.position for name in known for one in snapshots.kept(self._folder / name)]
        changes = min([self._deliver.written, *held])
        count = 0
        with self._measures.trims.around():
            last = await self._store.change(self._log.before, moment - self._keeping.retention)
            more = True
            while more:  # by parts, so that publishers do not wait for all of it
                removed, more = await self._store.change(self._log.trim, last, changes)
                count += removed
        snapshots.remove_others(self._folder, known)
        if count:
            _log.info("removed %d entries from the log", count)

    async def end(self) -> None:
        """End `run`, and write what the next start would otherwise compute."""
        self._ends_soon = True
        for task in list(self._background):
            await asyncio.wait([task])
        try:
            if self._match.changes > FEW:
                await self.write_indexes()
            await self._store.flush()
        except (RTFilterError, OSError):
            _log.warning("not all could be written; it is computed anew at the next start", exc_info=True)

    async def give_up(self) -> None:
        """Cancel all running work: a stage that it waits for may have ended."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


class ConnectedSession(Protocol):
    """The part of a `Conversation` that `Presence` uses."""

    who: Identity | None

    @property
    def owed(self) -> int: ...
    def expel(self) -> None: ...
    def refuse(self, error: ServiceError) -> None: ...


class Presence(StagePart):
    """The connected sessions, and the users who were removed."""

    def __init__(self, stages: Stages, ending: Ending) -> None:
        super().__init__(stages)
        self._ending = ending
        self.sessions: set[ConnectedSession] = set()
        """They add and remove themselves."""
        self.forgets: list[Callable[[str], Awaitable[None]]] = []
        """Functions that remove what else is kept of a removed user."""

    async def run(self) -> None:
        """End sessions of users who may not stay, and remove the data of removed users."""
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
