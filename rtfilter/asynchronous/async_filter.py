"""Matching for coroutines: the filter collects their events into batches.

    join       an event joins the waiting ones, when there is room               Waiting.join
    begin      the waiting events become a batch, when the last one has ended    AsyncFilter._begin
    search     a short batch on the event loop, a long one in the thread         AsyncFilter._run
    release    an event gets its answer, once its group is searched              AsyncFilter._release
    end        each event without an answer gets the error                       AsyncFilter._end

Everything except a search in the thread runs on the event loop, as plain callbacks: there are no tasks that
could be cancelled or forgotten. Only one batch is searched at a time. So there is at most one thread. It only
appends to the results, and the loop only removes them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, suppress
from functools import partial
from math import isfinite
from operator import index
from time import perf_counter, thread_time
from typing import Self

import numpy as np

from rtfilter.asynchronous.waiting import PendingMatches, Waiting, retrieve
from rtfilter.basics.dtypes import AnyArray
from rtfilter.basics.errors import EventError
from rtfilter.basics.results import Matches
from rtfilter.events.reading import TEXT
from rtfilter.events.table import EventTable
from rtfilter.filter import EventFilter
from rtfilter.matching.stream import Completion

EACH = 20e-6
"""Expected seconds per event before the first measurement."""
LEAST = 1e-6
"""Least expected seconds per event, for reading it, because coarse clocks show 0 for most batches."""
RISE = 4
"""Limit of a measurement, as a multiple of the expected time, because the first batch also loads code."""
SHARE = 0.25
"""The share of each new measurement in the expected time per event."""

Tell = Callable[[PendingMatches, AnyArray | Exception], None]
"""A function that takes the matches of an event, or its error; only the first call for an event counts."""


class AsyncFilter:
    """An `EventFilter` for coroutines: `await match(event)` matches in batches, not each event in a thread.

    A batch is all events that arrived during the last batch. If it is expected to take at most `pause`, it is
    matched on the event loop, which does nothing else meanwhile. A longer batch is matched in the only
    thread, which releases each event once its group is searched, as `EventFilter.stream` does.

    An object belongs to the event loop in which it is first used. Other code may use the filter, too, in any
    thread. The filter's `subscribe` may wait for the batch in the search:
    ``await asyncio.to_thread(filter.subscribe, predicate)`` keeps the loop free.

    Parameters
    ----------
    filter : EventFilter
    size : int, optional
        Most events of a batch. By default `most_waiting`.
    delay : float
        Seconds for which the first event of a batch waits for further events, while there are fewer than
        `size`. By default it only waits for the last batch.
    most_waiting : int
        Events that may wait for their batch to begin. Further events wait for room, in order of arrival.
    pause : float
        Longest expected batch on the event loop, in seconds. With 0 each batch is matched in the thread, so
        that the loop never waits for a change of the subscriptions either.

    Raises
    ------
    TypeError, ValueError
        `filter` is no `EventFilter`, or a number is out of its range.

    Examples
    --------
    >>> import asyncio
    >>> from rtfilter import AsyncFilter, EventFilter, Schema
    >>> rules = EventFilter(Schema({"price": float}))
    >>> rules.subscribe("price > 10")
    0
    >>> async def main():
    ...     async with AsyncFilter(rules) as alerts:
    ...         return await asyncio.gather(alerts.match({"price": 15}), alerts.match({"price": 5}))
    >>> [ids.tolist() for ids in asyncio.run(main())]
    [[0], []]
    """

    def __init__(
        self,
        filter: EventFilter,
        *,
        size: int | None = None,
        delay: float = 0.0,
        most_waiting: int = 1024,
        pause: float = 0.001,
    ) -> None:
        if not isinstance(filter, EventFilter):
            raise TypeError(f"filter must be an EventFilter, not {filter!r:.60}")
        most = index(most_waiting)
        self._size = most if size is None else index(size)
        if not 1 <= self._size <= most:
            raise ValueError(f"size is from 1 to most_waiting, {most}; got {self._size}")
        if not (delay >= 0 and isfinite(delay)):
            raise ValueError(f"delay is in seconds, 0 or more; got {delay!r}")
        if not pause >= 0:
            raise ValueError(f"pause is in seconds, 0 or more; got {pause!r}")
        self.filter = filter
        self._delay, self._pause, self._each = delay, pause, EACH
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = Waiting(most, self._joined)
        self._next: asyncio.Handle | None = None  # begins the next batch
        self._batch: list[PendingMatches] = []  # the batch in the search
        self._closed = False
        self._thread: ThreadPoolExecutor | None = None
        self._idle = asyncio.Event()  # set while the thread is idle
        self._idle.set()
        self._found: deque[tuple[PendingMatches, AnyArray | Exception]] = deque()  # in the thread
        self._told = False  # True if the loop will read `_found`

    # -- asking ----------------------------------------------------------------------------------------------

    async def match(self, event: object) -> AnyArray:
        """Return the ids of the subscriptions that match one event, int64 (k,), or object (k,).

        If you cancel the call before the batch of the event begins, the event is not matched.

        Parameters
        ----------
        event : mapping
            Or one event in another form that `EventFilter.match` takes; such events are matched singly. Do
            not change the event before you have the answer.

        Raises
        ------
        EventError
            The event cannot be used. The other events of its batch are matched.
        RuntimeError
            This object is closed, was closed meanwhile, or belongs to another event loop.
        """
        return await (await self.submit(event))

    async def submit(self, event: object) -> asyncio.Future[AnyArray]:
        """Wait for room, and return the future of the result of `match`.

        Cancel the future to withdraw the event. A program that reads events from a source is slowed down when
        they arrive too fast, and need not wait for each answer.
        """
        arrival = perf_counter()
        self._require_loop()
        return await self._waiting.join(event, arrival)

    async def match_many(self, events: Iterable[object]) -> Matches:
        """Match several events as `match` does; if one is wrong, raise its error and return none.

        They may become several batches, shared with other events. An `EventError` has the `row`.
        """
        async with aclosing(self.as_completed(events)) as completions:
            found = {row: ids async for row, ids, _ in completions}
        rows = [found[row] for row in range(len(found))]
        offsets = np.cumsum([0, *map(len, rows)])
        ids, kind = (
            np.concatenate(rows) if rows else np.empty(0, np.int64),
            self.filter._road.subscriptions.kind,
        )
        if kind is None or kind is int:
            return Matches(offsets, ids)
        return Matches.named(offsets, ids.astype(object), kind)

    async def as_completed(self, events: Iterable[object]) -> AsyncGenerator[Completion, None]:
        """Match several events as `match` does; yield each as soon as its matches are known.

        Events are read from `events` when there is room. An event that cannot be matched ends the iteration
        with its error; an `EventError` has the `row`. At the end, also if you leave early, the remaining
        events are withdrawn.
        """
        if isinstance(events, Mapping):
            raise EventError("several events are a list of mappings; for a single event use match")
        unknown: dict[asyncio.Future[AnyArray], tuple[int, float]] = {}
        known: deque[tuple[asyncio.Future[AnyArray], float]] = deque()
        news = asyncio.Event()

        def note(answer: asyncio.Future[AnyArray]) -> None:
            retrieve(answer)
            known.append((answer, perf_counter()))
            news.set()

        def first() -> Completion:
            answer, ended = known.popleft()
            row, arrival = unknown.pop(answer)
            try:
                return Completion(row, answer.result(), ended - arrival)
            except EventError as error:
                error.row = row
                error.show_row()
                raise

        try:
            for row, event in enumerate(events):
                arrival = perf_counter()
                answer = await self.submit(event)
                unknown[answer] = row, arrival
                answer.add_done_callback(note)
                while known:
                    yield first()
            while unknown:
                await news.wait()
                news.clear()
                while known:
                    yield first()
        finally:
            for answer in unknown:
                answer.cancel()

    def _require_loop(self) -> None:
        """Take the running event loop as that of this object; raise `RuntimeError` if it has another one."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise RuntimeError(
                "this AsyncFilter belongs to another event loop; make one for each, of the same EventFilter"
            )

    @property
    def _used_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    # -- closing ---------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Accept no more events, fail the unanswered ones with a `RuntimeError`, and end the thread.

        It waits for the group in the search. A second call changes nothing. The filter remains usable.
        """
        self._require_loop()
        self._closed = True
        if self._next is not None:
            self._next.cancel()
            self._next = None
        for answer in [*self._batch, *self._waiting.close("this AsyncFilter is closed")]:
            answer.settle(RuntimeError("this AsyncFilter was closed before the event was matched"))
        try:
            await self._idle.wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=self._idle.is_set())

    async def __aenter__(self) -> Self:
        self._require_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- batches ---------------------------------------------------------------------------------------------

    def _joined(self) -> None:
        if self._next is None or (self._delay and len(self._waiting) == self._size):
            self._plan()

    def _plan(self) -> None:
        """Schedule the next batch, unless one runs; its end calls this again."""
        if self._batch or self._closed or not self._waiting:
            return
        left = 0.0
        if self._delay and len(self._waiting) < self._size:
            left = self._waiting.since + self._delay - perf_counter()
        if self._next is not None:
            self._next.cancel()
        loop = self._used_loop
        self._next = loop.call_later(left, self._begin) if left > 0 else loop.call_soon(self._begin)

    def _begin(self) -> None:
        """Start a batch with the waiting events, and admit those that wait for room."""
        self._next = None
        self._batch = self._waiting.take(self._size)
        if not self._batch:
            return  # all were cancelled
        try:
            if len(self._batch) * self._each <= self._pause:
                self._run(search_whole, PendingMatches.settle, self._end)
            else:
                self._hop()
        finally:
            self._waiting.admit()

    def _hop(self) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "rtfilter")
        search = partial(search_stream, unwanted=lambda: self._closed)
        loop = self._used_loop

        def end(error: BaseException | None) -> None:  # fails if the loop is closed; nobody needs the error
            loop.call_soon_threadsafe(self._end, error)

        self._idle.clear()
        try:
            self._thread.submit(self._run, search, self._tell, end)
        except RuntimeError as error:  # the system gives no thread, or the interpreter shuts down
            self._end(error)

    def _run(
        self,
        search: Callable[[EventFilter, list[PendingMatches], Tell], None],
        tell: Tell,
        end: Callable[[BaseException | None], object],
    ) -> None:
        """Search the batch, update the expected time, and end the batch in any case."""
        begun = thread_time()
        try:
            search(self.filter, self._batch, tell)
        except BaseException as error:
            end(error)
            if not isinstance(error, Exception):
                raise
        else:
            each = min((thread_time() - begun) / len(self._batch), RISE * self._each)
            self._each = max(LEAST, self._each + SHARE * (each - self._each))
            end(None)

    def _tell(self, answer: PendingMatches, found: AnyArray | Exception) -> None:
        """Append a result in the thread; wake the loop once for all that it has not read."""
        self._found.append((answer, found))
        if not self._told:
            self._told = True
            self._used_loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        self._told = False  # first, because a later result must wake the loop again
        while self._found:
            answer, found = self._found.popleft()
            answer.settle(found)

    def _end(self, error: BaseException | None) -> None:
        """End the batch: events without an answer get the error."""
        self._release()
        for answer in self._batch:
            if not answer.done():
                answer.settle(_settable(error))
        self._batch = []
        self._idle.set()
        self._plan()


def _settable(error: BaseException | None) -> Exception:
    """Return the error for the events of a failed batch. Futures do not accept every exception."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    made = RuntimeError("matching the batch of this event was cut short")
    made.__cause__ = error
    return made


def search_whole(filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell) -> None:
    """Match a batch as a whole, with the least work."""
    try:
        events, answers = _read(filter, batch, tell)
        found = filter.match_batch(events, arrival=batch[0].arrival)
        for answer, ids in zip(answers, found, strict=True):
            tell(answer, ids)
    except EventError:  # the matcher needs an attribute that some event lacks
        _match_each(filter, batch, tell)


def search_stream(
    filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell, unwanted: Callable[[], bool]
) -> None:
    """Match a batch as a stream, and report each event once it is matched; stop once `unwanted` is True."""
    try:
        events, answers = _read(filter, batch, tell)
        with closing(filter.stream(events, arrival=batch[0].arrival)) as stream:
            for row, ids, _ in stream:
                tell(answers[row], ids)
                if unwanted():
                    return
    except EventError:
        _match_each(filter, batch, tell)


def _read(
    filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell
) -> tuple[EventTable, Sequence[PendingMatches]]:
    """Return a batch as a table, with its answers; match events separately that the table cannot have."""
    read = filter.schema.read
    events = [answer.event for answer in batch]
    with suppress(Exception):  # an event may be any object
        if all(isinstance(event, TEXT) for event in events):
            return filter._road.reader.texts(events), batch
        if all(issubclass(kind, Mapping) for kind in set(map(type, events))):
            return read(events if len(events) > 1 else events[0]), batch
    good = [answer for answer in batch if _is_good(filter, answer.event)]
    chosen = set(good)
    _match_each(filter, [answer for answer in batch if answer not in chosen], tell)
    return read([answer.event for answer in good]), good


def _is_good(filter: EventFilter, event: object) -> bool:
    with suppress(Exception):
        return isinstance(event, Mapping) and len(filter.schema.read(event)) == 1
    return False


def _match_each(filter: EventFilter, batch: Sequence[PendingMatches], tell: Tell) -> None:
    """Match each event separately, so that each has its own error and counts as refused alone."""
    for answer in batch:
        try:
            tell(answer, filter.match(answer.event))
        except Exception as error:
            tell(answer, error)
