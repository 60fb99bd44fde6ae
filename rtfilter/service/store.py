"""Stage 3: into the log. What arrives while a transaction is written becomes the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from rtfilter.service.log import Entry, Log, Logged, Mark

NO_MARKS: Final[Mapping[str, Mark]] = {}


class _Asked(NamedTuple):
    entries: Sequence[Entry]
    marks: Mapping[str, Mark]
    answer: asyncio.Future[list[int]]


class Store:
    """Writes to the log, many callers in one transaction.

    Parameters
    ----------
    log : Log
    stored : callable
        Is told the new entries, in order of their positions, before any caller is.
    """

    def __init__(self, log: Log, stored: Callable[[list[Logged]], None]) -> None:
        self._log, self._stored = log, stored
        self._waiting: list[_Asked] = []
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "rtfilter-log")

    async def put(self, entries: Sequence[Entry], marks: Mapping[str, Mark] = NO_MARKS) -> list[int]:
        """Return the positions of the entries once they are durable. Raises what the database does."""
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(entries, marks, answer))
        self._news.set()
        return await answer

    async def run(self) -> None:
        """Write, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            self._news.clear()
            asked, self._waiting = self._waiting, []
            entries = [entry for one in asked for entry in one.entries]
            marks = {user: mark for one in asked for user, mark in one.marks.items()}
            try:
                placed = await loop.run_in_executor(self._thread, self._log.commit, entries, marks)
            except Exception as error:
                for one in asked:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                continue
            news = zip(placed, entries, strict=True)
            self._stored([Logged(position, entry) for (position, new), entry in news if new])
            positions = iter(position for position, _ in placed)
            for one in asked:
                mine = [next(positions) for _ in one.entries]
                if not one.answer.done():
                    one.answer.set_result(mine)

    def close(self) -> None:
        """Wait for the transaction that is being written."""
        self._thread.shutdown()
