"""Turns on the event loop, which no peer blocks for long, and threads for work that takes longer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from sqlalchemy.exc import SQLAlchemyError

from rtfilter.service.service_errors import BusyError

TURN: Final = 0.004
"""Seconds of the event loop that work takes before it waits for its next turn."""
SHORT: Final = 2 * 2**10
"""Bytes of JSON that are read without a turn of their own."""
LARGE: Final = 64 * 2**10
"""Bytes of JSON from which on they take longer than a turn, and are read in a thread."""
LIMIT: Final = 10.0
"""Seconds after which callers wait for the database, or for matching, no more; it continues."""
_T = TypeVar("_T")


class Rounds:
    """Peers with more work than one turn takes. One of them continues in each round of the event loop.

    So a thousand peers that are at work take no more of a round than one of them. Addresses take turns, too:
    the many peers of one delay the few of another by a round.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], object]]] = {}  # by address, the next one first

    def join(self, go_on: Callable[[], object], address: str = "") -> None:
        """Call a function at the next turn of an address, or of the server itself."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.setdefault(address, deque()).append(go_on)

    def _next(self) -> None:
        address = next(iter(self._waiting))
        others = self._waiting.pop(address)
        go_on = others.popleft()
        if others:
            self._waiting[address] = others
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        go_on()

    async def wait(self, address: str = "") -> None:
        """Wait for a turn."""
        turn = asyncio.Event()
        self.join(turn.set, address)
        await turn.wait()


class Turn:
    """The turn of one piece of work, which begins now, for the peer of an address or the server itself."""

    def __init__(self, rounds: Rounds, address: str = "") -> None:
        self._rounds, self.address = rounds, address
        self.begin()

    def begin(self) -> None:
        """Begin the turn again, after the work has waited for something else."""
        self._end = perf_counter() + TURN

    @property
    def over(self) -> bool:
        """True if other work must come now."""
        return perf_counter() >= self._end

    async def pause(self, size: int = 0) -> None:
        """Wait for the next turn where this one is over, or where `size` bytes need one of their own."""
        if size > SHORT or self.over:
            await self._rounds.wait(self.address)
            self.begin()


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
