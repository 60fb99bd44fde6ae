"""Events that wait for their batch, in order of arrival.

At most so many wait inside; all others wait outside for room. An event that is cancelled leaves at once,
and the next one outside takes its place. All is plain callbacks of one event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from rtfilter.dtypes import AnyArray


class Answer(asyncio.Future[AnyArray]):
    """The pending matches of an event. Its cancellation withdraws the event.

    Attributes
    ----------
    event : object
    arrival : float
        `perf_counter`.
    """

    def __init__(
        self,
        event: object,
        arrival: float,
        leave: Callable[[Answer], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self.event, self.arrival, self._leave = event, arrival, leave

    def cancel(self, msg: Any | None = None) -> bool:
        """As of every future."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._leave(self)
        return cancelled

    def settle(self, found: AnyArray | Exception) -> None:
        """Set the result or the exception, if that is not done yet."""
        if self.done():
            return
        if isinstance(found, Exception):
            self.set_exception(found)
        else:
            self.set_result(found)


class Waiting:
    """The events that wait.

    Parameters
    ----------
    most : int
        So many may be inside.
    joined : callable
        Is called whenever one has come in.
    """

    def __init__(self, most: int, joined: Callable[[], None]) -> None:
        self.most, self._joined = most, joined
        self._closed: str | None = None
        self._inside: OrderedDict[Answer, None] = OrderedDict()
        self._outside: OrderedDict[asyncio.Future[Answer | None], tuple[object, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of events inside."""
        return len(self._inside)

    @property
    def since(self) -> float:
        """The arrival time of the earliest event inside."""
        return next(iter(self._inside)).arrival

    async def join(self, event: object, arrival: float) -> Answer:
        """Come in, when there is room. `RuntimeError` if it is closed."""
        loop = asyncio.get_running_loop()
        if self._closed is not None:
            raise RuntimeError(self._closed)
        if len(self._inside) < self.most:  # nobody is outside then
            return self._enter(event, arrival, loop)
        turn: asyncio.Future[Answer | None] = loop.create_future()
        self._outside[turn] = event, arrival
        try:
            answer = await turn
        except asyncio.CancelledError:
            if self._outside.pop(turn, None) is None and not turn.cancelled():
                admitted = turn.result()  # just before
                if admitted is not None and not admitted.cancel():
                    retrieve(admitted)
            raise
        if answer is None:
            raise RuntimeError(self._closed)
        return answer

    def _enter(self, event: object, arrival: float, loop: asyncio.AbstractEventLoop) -> Answer:
        answer = Answer(event, arrival, self._leave, loop)
        self._inside[answer] = None
        self._joined()
        return answer

    def _leave(self, answer: Answer) -> None:
        if answer in self._inside:
            del self._inside[answer]
            self.admit()

    def take(self, most: int) -> list[Answer]:
        """Take out the first so many. Then `admit`, as soon as there is time."""
        return [self._inside.popitem(last=False)[0] for _ in range(min(most, len(self._inside)))]

    def admit(self) -> None:
        """Let in those outside, while there is room."""
        while self._outside and len(self._inside) < self.most:
            turn, (event, arrival) = self._outside.popitem(last=False)
            if not turn.done():
                turn.set_result(self._enter(event, arrival, turn.get_loop()))

    def close(self, reason: str) -> list[Answer]:
        """Let nobody in any more, which is a `RuntimeError` for those outside. Gives those inside."""
        self._closed = reason
        for turn in self._outside:
            if not turn.done():
                turn.set_result(None)
        self._outside.clear()
        return self.take(len(self))


def retrieve(answer: asyncio.Future[Any]) -> None:
    """Have no error reported as lost, where nobody will await it any more."""
    if answer.done() and not answer.cancelled():
        answer.exception()
