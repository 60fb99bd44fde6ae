"""Stage 4: the log, entry by entry, held against the index, which is a cache of the log.

Events and changes are taken in the order of the log, so what an event matches depends on its position alone:
after a restart it is the same. A batch is what has arrived while the last one was matched, up to the next
change. It is matched beside the event loop, and each event is told when its group ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from rtfilter.errors import RTFilterError
from rtfilter.filter import EventFilter
from rtfilter.service.log import Kind, Logged

Tell = Callable[[Logged, Sequence[str]], None]
"""Takes an event and the ids of the subscriptions that it matches, on the event loop."""
SIZE = 1000
"""Entries of a batch at most."""
_log = logging.getLogger(__name__)


class Match:
    """Matches what is in the log.

    Parameters
    ----------
    filter : EventFilter
        Empty, with text as ids.
    tell : callable
    size : int
        Entries of a batch at most.

    Attributes
    ----------
    settled : int
        Of all events up to this position it is known, and told, what they match.
    """

    def __init__(self, filter: EventFilter, tell: Tell, size: int = SIZE) -> None:
        self.filter, self._tell, self._size, self.settled = filter, tell, size, 0
        self._waiting: deque[Logged] = deque()
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "rtfilter-match")

    def put(self, logged: Iterable[Logged]) -> None:
        """Have entries matched, the next ones of the log."""
        self._waiting.extend(logged)
        self._news.set()

    @property
    def waiting(self) -> int:
        """Entries that wait."""
        return len(self._waiting)

    async def run(self) -> None:
        """Match, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                batch = self._take()
                work = self._search if batch[0].entry.kind == Kind.EVENT else self._change
                await loop.run_in_executor(self._thread, work, batch, loop)
                self.settled = batch[-1].position  # after all that the thread had the loop tell

    def _take(self) -> list[Logged]:
        """The next batch: events, or changes."""
        batch = [self._waiting.popleft()]
        events = batch[0].entry.kind == Kind.EVENT
        while self._waiting and len(batch) < self._size:
            if (self._waiting[0].entry.kind == Kind.EVENT) != events:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _change(self, batch: list[Logged], _: object) -> None:
        for position, (kind, _user, body, _key) in batch:
            change = msgspec.json.decode(body)
            try:
                if kind == Kind.SUBSCRIBE:
                    self.filter.subscribe(change["where"], change["id"])
                else:
                    self.filter.unsubscribe(change["id"])
            except RTFilterError:  # it was checked before it was stored
                _log.exception("the change at position %d cannot be made; it is left out", position)

    def _search(self, batch: list[Logged], loop: asyncio.AbstractEventLoop) -> None:
        try:
            events: list[Any] = [msgspec.json.decode(one.entry.body) for one in batch]
            for row, ids, _ in self.filter.stream(events):
                loop.call_soon_threadsafe(self._tell, batch[row], ids.tolist())
        except RTFilterError:
            if len(batch) == 1:
                _log.exception(
                    "the event at position %d cannot be matched; it is left out", batch[0].position
                )
                return
            for one in batch:  # some may be told again, and be delivered twice
                self._search([one], loop)

    def close(self) -> None:
        """Wait for the batch that is being matched."""
        self._thread.shutdown()
