"""The common part of a broker and a rendezvous point as processes: a clock, storage, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from rtfilter.overlay.broker_names import BrokerMessage
from rtfilter.overlay.running.broker_frames import Codec, Hello
from rtfilter.overlay.running.broker_keys import Key
from rtfilter.overlay.running.broker_settings import Common
from rtfilter.overlay.running.client_messages import Describe, Description, LinkCut
from rtfilter.overlay.running.links import BrokerLink, Hears, Switchboard
from rtfilter.store.broker_store import BrokerStore, Change
from rtfilter.store.log import TakenError

AGAIN: Final = 1.0
"""Seconds after which a failed transaction is tried again."""
TICKS: Final = 20
"""Ticks per heartbeat."""
_log = logging.getLogger(__name__)


class Job(NamedTuple):
    """Changes to store, all or none."""

    changes: Sequence[Change]
    kept: Callable[[], None] | None = None
    """Called when they are stored."""
    refused: Callable[[], None] | None = None
    """Called when they cannot be stored. Without it, they are tried again."""


class Keeper:
    """Stores jobs in the order of their arrival; all that arrive before a transaction begins are part of it.

    While the disk is full, or the database is absent, a process continues with everything that needs no
    storage. The log has one line at the beginning and one at the end. Requests of clients are refused
    meanwhile, before they have any effect. Other changes, such as removals, are tried again until they are
    stored: a restart before that has the old state, which loses nothing.
    """

    def __init__(self, store: BrokerStore) -> None:
        self._store = store
        self._waiting: list[Job] = []
        self._wake = asyncio.Event()
        self.failing = False
        """True if the last transaction has failed."""

    def keep(self, job: Job) -> None:
        """Store a job soon."""
        self._waiting.append(job)
        self._wake.set()

    async def run(self) -> None:
        """Store jobs until cancelled. Raises `TakenError`, and the errors of `Job.kept` and `Job.refused`."""
        while True:
            try:
                async with asyncio.timeout(AGAIN if self._waiting else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await self.flush()

    async def flush(self) -> None:
        """Store all waiting jobs in one transaction."""
        self._wake.clear()
        jobs, self._waiting = self._waiting, []
        if not jobs:
            return
        try:
            await asyncio.to_thread(self._store.commit, [change for job in jobs for change in job.changes])
        except TakenError:
            raise
        except Exception as error:
            if not self.failing:
                _log.critical(
                    "state cannot be stored, and requests are refused until it can: %s",
                    getattr(error, "orig", None) or error,
                    exc_info=None if isinstance(error, SQLAlchemyError) else error,
                )
            self.failing = True
            self._waiting[:0] = [job for job in jobs if job.refused is None]
            calls = [job.refused for job in jobs]
        else:
            if self.failing:
                _log.warning("state can be stored again")
            self.failing = False
            calls = [job.kept for job in jobs]
        for call in calls:
            if call is not None:
                call()


class Process(Hears):
    """The common part of a broker and a rendezvous point.

    A wrong message ends its connection, with the reason. So does an error of the program while it processes a
    message, which the log has with its traceback: both ends then connect again and send each other all their
    subscriptions. Any other error of the program ends the process, with its traceback and exit status 1,
    before it sends anything further. Other brokers take its place, and after a restart it continues with its
    stored state. `hello` is its greeting, without the incarnation.
    """

    def __init__(self, settings: Common, hello: Hello, key: Key, store: BrokerStore) -> None:
        self.settings, self.store = settings, store
        own = msgspec.structs.replace(hello, incarnation=store.incarnation)
        self.codec = Codec()
        self.board = Switchboard(own, key, self, self.codec, settings.limits)
        self.keeper = Keeper(store)
        self._ended = asyncio.Event()
        self._error: BaseException | None = None

    def end(self) -> None:
        """End the process soon."""
        self._ended.set()

    async def run(self, bound: socket.socket, started: Callable[[], None]) -> int:
        """Listen on a socket and run until a signal; return the exit code.

        `started` is called when others can connect.
        """
        await self._start()
        work = [asyncio.create_task(self.keeper.run()), asyncio.create_task(self._tick())]
        await self.board.listen(bound)
        started()
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait([*work, ended], return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                self._error = self._error or task.exception()
        for one in (*work, ended):
            one.cancel()
        if isinstance(self._error, TakenError):
            _log.critical("the process ends: %s", self._error)
        elif self._error is not None:
            _log.critical("the process ends by an error of its own; start it again", exc_info=self._error)
        else:
            with suppress(TakenError):
                await self.keeper.flush()
        await self.board.close("this process ends")
        return 0 if self._error is None else 1

    def broken(self, error: Exception) -> None:
        """See `Hears`."""
        self._error = self._error or error
        self.end()

    async def _start(self) -> None:
        """Prepare for connections."""

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat / TICKS)
            self._due(now())

    def _due(self, now: float) -> None:
        """Run the tick of the machine."""

    @abstractmethod
    def _describe(self) -> Description:
        """Return the description for administrators."""

    def _administer(self, link: BrokerLink, message: BrokerMessage) -> None:
        """Process a message of an administrator."""
        match message:
            case Describe():
                pass
            case LinkCut(broker=broker, heal=True):
                self.board.refused.discard(broker)
            case LinkCut(broker=broker):
                self.board.refuse(broker)
            case _:
                raise ValueError(f"administrators do not send {type(message).__name__}")
        link.send(self._describe())


def now() -> float:
    """Return the time for the machines: seconds, monotonic."""
    return asyncio.get_running_loop().time()
