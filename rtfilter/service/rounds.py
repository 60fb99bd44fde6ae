"""The time of the event loop, shared by turns: no peer and no work holds it for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final
from weakref import WeakValueDictionary

TURN: Final = 0.004
"""Seconds of the event loop that work takes before it waits for its next turn."""


class Rounds:
    """Those who have more to do than one turn takes. One of them goes on in each round of the event loop.

    So a thousand peers that are at work take no more of a round than one of them.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def join(self, go_on: Callable[[], object]) -> None:
        """Have something called at its turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(go_on)

    def _next(self) -> None:
        go_on = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        go_on()

    async def wait(self) -> None:
        """Wait for a turn."""
        turn = asyncio.Event()
        self.join(turn.set)
        await turn.wait()


class Turn:
    """The turn of one piece of work, which begins now.

    Parameters
    ----------
    rounds : Rounds
    """

    def __init__(self, rounds: Rounds) -> None:
        self._rounds = rounds
        self.begin()

    def begin(self) -> None:
        """Begin it again: the work has waited for something else."""
        self._end = perf_counter() + TURN

    @property
    def over(self) -> bool:
        """Whether others are to come now."""
        return perf_counter() >= self._end

    async def pause(self) -> None:
        """Wait for the next turn where this one is over."""
        if self.over:
            await self._rounds.wait()
            self.begin()


class OneEach:
    """Work that takes long, of which each user has one piece at a time; the next ones wait in order."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def one(self, user: str) -> asyncio.Lock:
        """What a piece of work of a user holds while it is done."""
        return self._locks.setdefault(user, asyncio.Lock())
