"""The time of the event loop, shared by turns: no peer and no work blocks it for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

TURN: Final = 0.004
"""Seconds of the event loop that work takes before it waits for its next turn."""
SHORT: Final = 2 * 2**10
"""Bytes of JSON that are read without a turn of their own."""
LARGE: Final = 64 * 2**10
"""Bytes of JSON from which on they take longer than a turn, and are read in a thread."""


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
