"""Events that wait for their batch, in order of arrival.

A limited number of events is inside; further ones wait outside for room. A cancelled event leaves at once,
and the next one outside takes its place. All of it is plain callbacks of one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from rtfilter.basics.dtypes import AnyArray


class PendingMatches(asyncio.Future[AnyArray]):
    """The pending matches of an event that arrived at a time of `perf_counter`; `cancel` withdraws it."""

    def __init__(
        self,
        event: object,
        arrival: float,
        leave: Callable[[PendingMatches], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self.event, self.arrival, self._leave = event, arrival, leave

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the future, and withdraw the event; return False if it is done already."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._leave(self)
        return cancelled

    def settle(self, found: AnyArray | Exception) -> None:
        """Set the result or the exception, unless one is set."""
        if self.done():
            return
        if isinstance(found, Exception):
            self.set_exception(found)
        else:
            self.set_result(found)


class Waiting:
    """The queue of events that wait for a batch; when it has `most` events, further ones wait outside.

    `joined` is called after each event that comes in.
    """

    def __init__(self, most: int, joined: Callable[[], None]) -> None:
        self.most, self._joined = most, joined
        self._closed: str | None = None
        self._inside: OrderedDict[PendingMatches, None] = OrderedDict()
        self._outside: OrderedDict[asyncio.Future[PendingMatches | None], tuple[object, float]] = (
            OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._inside)

    @property
    def since(self) -> float:
        """The arrival time of the earliest event inside."""
        return next(iter(self._inside)).arrival

    async def join(self, event: object, arrival: float) -> PendingMatches:
        """Enter the waiting events when there is room. Raises `RuntimeError` if they are closed."""
        loop = asyncio.get_running_loop()
        if self._closed is not None:
            raise RuntimeError(self._closed)
        if len(self._inside) < self.most:  # then nobody is outside
            return self._enter(event, arrival, loop)
        turn: asyncio.Future[PendingMatches | None] = loop.create_future()
        self._outside[turn] = event, arrival
        try:
            answer = await turn
        except asyncio.CancelledError:
            if self._outside.pop(turn, None) is None and not turn.cancelled():
                admitted = turn.result()  # admitted just before the cancellation
                if admitted is not None and not admitted.cancel():
                    retrieve(admitted)
            raise
        if answer is None:
            raise RuntimeError(self._closed)
        return answer

    def _enter(self, event: object, arrival: float, loop: asyncio.AbstractEventLoop) -> PendingMatches:
        answer = PendingMatches(event, arrival, self._leave, loop)
        self._inside[answer] = None
        self._joined()
        return answer

    def _leave(self, answer: PendingMatches) -> None:
        if answer in self._inside:
            del self._inside[answer]
            self.admit()

    def take(self, most: int) -> list[PendingMatches]:
        """Remove and return the first events, at most `most`. Call `admit` soon after."""
        return [self._inside.popitem(last=False)[0] for _ in range(min(most, len(self._inside)))]

    def admit(self) -> None:
        """Admit events from outside, while there is room."""
        while self._outside and len(self._inside) < self.most:
            turn, (event, arrival) = self._outside.popitem(last=False)
            if not turn.done():
                turn.set_result(self._enter(event, arrival, turn.get_loop()))

    def close(self, reason: str) -> list[PendingMatches]:
        """Refuse further events, fail those outside with `RuntimeError`, and return those inside."""
        self._closed = reason
        for turn in self._outside:
            if not turn.done():
                turn.set_result(None)
        self._outside.clear()
        return self.take(len(self))


def retrieve(answer: asyncio.Future[Any]) -> None:
    """Mark the error of a future as seen, so that the event loop does not log it."""
    if answer.done() and not answer.cancelled():
        answer.exception()
