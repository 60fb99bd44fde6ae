"""The time of the event loop, shared by turns: no peer and no work blocks it for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

TURN: Final = 0.004
"""Seconds of the event loop that work takes before it waits for its next turn."""
SHORT: Final = 2 * 2**10
"""Bytes of JSON that are read without a turn of their own."""
LARGE: Final = 64 * 2**10
"""Bytes of JSON from which on they take longer than a turn, and are read in a thread."""
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
    """The turn of one piece of work, which begins now.

    Parameters
    ----------
    rounds : Rounds
    address : str
        Of the peer that it is for.
    """

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
    """Threads for work that takes long, of which each user has one piece at a time.

    Parameters
    ----------
    count : int
    name : str
    """

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
