"""Threads for work that takes long, so that the event loop has none of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy.exc import SQLAlchemyError

from rtfilter.service.service_errors import BusyError

LIMIT: Final = 10.0
"""Seconds after which callers wait for the database, or for matching, no more; it continues."""
_T = TypeVar("_T")


class OneEach:
    """Work that takes long, of which each user has one piece at a time; the next ones wait in order."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def one(self, user: str) -> asyncio.Lock:
        """Return the lock that a piece of a user's work holds while it is done."""
        return self._locks.setdefault(user, asyncio.Lock())


class Threads:
    """Threads of which each user has one at a time."""

    def __init__(self, count: int, name: str) -> None:
        self._pool, self._pieces = ThreadPoolExecutor(count, name), OneEach()

    async def run(self, work: Callable[..., _T], *given: Any) -> _T:
        """Run work of the server itself."""
        return await self._begun(work, *given)

    async def run_for(self, user: str, work: Callable[..., _T], *given: Any) -> _T:
        """Run a piece of a user's work after the earlier ones; those whose caller has left count, too."""
        place = self._pieces.one(user)
        await place.acquire()
        done = self._begun(work, *given)
        done.add_done_callback(lambda _: place.release())
        try:
            return await asyncio.shield(done)
        finally:
            del done  # an error that it has would keep this frame, and all that is given

    def _begun(self, work: Callable[..., _T], *given: Any) -> asyncio.Future[_T]:
        run = copy_context().run  # errors name their request
        return asyncio.get_running_loop().run_in_executor(self._pool, run, work, *given)

    def shutdown(self) -> None:
        """Wait for the work, and end the threads."""
        self._pool.shutdown()


class Asides:
    """The threads of the server beside those that write the log and that match."""

    def __init__(self) -> None:
        self.reads = Threads(2, "rtfilter-read")
        """For requests and answers."""
        self.beside = Threads(2, "rtfilter-beside")
        """For predicates, searches and indexes."""
        self._database = ThreadPoolExecutor(4, "rtfilter-database")  # apart: it may hang
        self._queries = ThreadPoolExecutor(1, "rtfilter-query")  # in parts, so that no other work waits

    async def ask(self, work: Callable[..., _T], *given: Any) -> _T:
        """Run work on the database that is not on the log.

        Raises `BusyError` if the database does not answer; the work may have been done all the same.
        """
        try:
            async with asyncio.timeout(LIMIT):
                return await asyncio.get_running_loop().run_in_executor(self._database, work, *given)
        except (SQLAlchemyError, TimeoutError) as error:
            raise BusyError("the database does not answer; try again", 1.0) from error

    async def query(self, part: Callable[..., _T], *given: Any) -> _T:
        """Run a part of a query of stored events, after those of other users."""
        return await asyncio.get_running_loop().run_in_executor(self._queries, part, *given)

    def shutdown(self, stuck: bool) -> None:
        """End the threads, and wait for their work; not for that on a database that is stuck."""
        for own in (self.reads, self.beside):
            own.shutdown()
        for pool in (self._database, self._queries):
            pool.shutdown(wait=not stuck, cancel_futures=True)
