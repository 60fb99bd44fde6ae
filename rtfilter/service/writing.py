"""Stage 3: entries are written to the log. Those that arrive during a transaction become the next one."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from rtfilter.service.concurrency import LIMIT, Rounds, Turn
from rtfilter.service.deliver import Deliver
from rtfilter.service.measures import Measures
from rtfilter.service.service_errors import BusyError, ConflictError, RequestError
from rtfilter.store.log import Log, Placed, TakenError
from rtfilter.store.log_tables import Entry, Logged, Progress, Request, RequestKey

MOST_WAITING: Final = 64 * 2**20
"""Most bytes of entries that wait for their transaction."""
TOGETHER: Final = 20_000
"""Entries of a transaction, about; further ones wait for the next one."""
REPORTED: Final = 1000
"""New entries that are reported at once."""
PACE: Final = 3e-4
"""Seconds of pause after a progress, for each of its rows: several times its duration."""
MOST_PACE: Final = 0.25
"""Most seconds of such a pause."""
MOST_KEY: Final = 200
"""Characters of an idempotency key."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _Flush(NamedTuple):
    user: str | None
    answer: asyncio.Future[None]
    undo: Callable[[], None]


class _PendingRequest(NamedTuple):
    request: Request
    size: int
    answer: asyncio.Future[range]
    since: float


class Store:
    """Writes to the log, many callers in one transaction, and now and then the progress beside them.

    The progress grows with the users who get deliveries. Written with each transaction, it would take longer
    than the events do.

    `stored` is called with the new entries, in order of their positions, before any caller gets an answer;
    `settled` returns the settled position.

    `waiting` bytes wait to be written; `stuck` is True if a transaction takes longer than `LIMIT`.
    """

    def __init__(
        self,
        log: Log,
        stored: Callable[[list[Logged]], None],
        deliver: Deliver,
        settled: Callable[[], int],
        measures: Measures,
        rounds: Rounds,
    ) -> None:
        self._log, self._stored, self._measures, self._rounds = log, stored, measures, rounds
        self._deliver, self._settled = deliver, settled
        self._pending: list[_PendingRequest] = []
        self.waiting = 0
        self._news = asyncio.Event()
        self._flushes: list[_Flush] = []
        self._next = 0.0  # when the progress may be written again, by the clock of the loop
        self._timer: asyncio.TimerHandle | None = None
        self._more = False  # the last progress was not the last of its round
        self._anew = False  # a caller waits for a round with all changes until now
        self.stuck = False
        self._failing = False  # a failure is in the log of the server, and not its end
        self._ended: Exception | None = None  # why `run` has ended, or ends soon
        self._missed: list[Logged] = []  # entries of failed transactions in the log, not reported yet
        self._thread = ThreadPoolExecutor(1, "rtfilter-log")

    async def put(self, entries: list[Entry], key: RequestKey | None = None) -> range:
        """Return the positions of entries once they are durable: all of them, or an error and none.

        Raises `ConflictError` if the key stands for another request, or what is to be changed is gone;
        `BusyError` if too much waits, the log cannot be written, or it is not known in time whether it was.
        """
        self._require_free()
        size = sum(len(entry.body) + 100 for entry in entries)
        if self._pending and self.waiting + size > MOST_WAITING:
            raise BusyError("too much waits to be written; try again", 1.0)
        answer: asyncio.Future[range] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingRequest(Request(entries, key), size, answer, perf_counter()))
        self.waiting += size
        self._news.set()
        return await answer

    async def flush(self, user: str | None = None, undo: Callable[[], None] = lambda: None) -> None:
        """Write the progress, of one user or of all; returns once it is durable.

        Raises `BusyError`; where it is known that the progress was not written, `undo` is called first.
        """
        try:
            self._require_free()
        except BusyError:
            undo()
            raise
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(_Flush(user, answer, undo))
        self._anew |= user is None
        self._news.set()
        await answer

    async def change(self, work: Callable[..., _T], *given: Any) -> _T:
        """Run other work that writes, between transactions. Raises `BusyError`."""
        self._require_free()
        done = asyncio.get_running_loop().run_in_executor(self._thread, work, *given)
        done.add_done_callback(self._note_outcome)
        try:
            async with asyncio.timeout(LIMIT):  # `wait_for` may forget that it is cancelled
                return await asyncio.shield(done)
        except (TakenError, SQLAlchemyError) as error:
            raise _busy(error) from error
        except TimeoutError:
            raise _unknown() from None

    def _note_outcome(self, done: asyncio.Future[Any]) -> None:
        """Record the outcome of other work, whose caller may not wait any more."""
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, TakenError):
            self._ended = error
            self._news.set()
        elif isinstance(error, SQLAlchemyError):
            self._note_failure(error)
        elif error is None:
            self._note_success()

    def _note_failure(self, error: Exception) -> None:
        """Count an error, and log the first one. A traceback says nothing of a database that is away."""
        self._measures.database_errors += 1
        if not self._failing:
            away = isinstance(error, OperationalError)
            _log.critical(
                "the log cannot be written, and clients have to try again: %s",
                getattr(error, "orig", None) or error,
                exc_info=None if away else error,
            )
        self._failing = True

    def _note_success(self) -> None:
        """Log that the database is written again, where it was not."""
        if self._failing:
            _log.warning("the log is written again")
        self._failing = False

    def _require_free(self) -> None:
        if self._ended is not None:
            raise _busy(self._ended)
        if self.stuck:
            raise BusyError("the database does not answer; try again", 1.0)

    def nudge(self) -> None:
        """Write the progress soon."""
        self._news.set()

    async def run(self) -> None:
        """Write entries and progress, until cancelled. Raises `TakenError` if another server has the log."""
        try:
            await self._write()
        except Exception as error:
            self._ended = error
            while waiting := self._take():
                self._fail(waiting, error)
            self._fail(self._flushes, error)
            raise

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            self._news.clear()
            if self._ended is not None:
                raise self._ended
            batch = self._take()
            progress, flushes = None, list[_Flush]()
            if loop.time() >= self._next or self._urgent:
                progress, self._anew = self._deliver.progress(self._settled(), self._anew), False
                self._more = progress.settled is None
                flushes = self._written()
                self._next = loop.time() + min(PACE * _rows(progress), MOST_PACE)
            if self._urgent:
                self._news.set()
            elif (self._more or self._flushes) and self._timer is None:
                self._timer = loop.call_at(self._next, self._due)
            if not batch and progress is None:
                continue
            requests = [one.request for one in batch]
            late = loop.call_later(LIMIT, self._late, batch, flushes)
            done = loop.run_in_executor(self._thread, self._commit, requests, progress)
            try:
                placed = await asyncio.shield(done)
            except TakenError as error:
                self._fail([*batch, *flushes], error)
                raise
            except Exception as error:
                self._note_failure(error)
                if progress is not None:
                    self._deliver.not_written(progress)
                    self._next = loop.time() + MOST_PACE
                # Also those whose turn may never come.
                self._fail([*batch, *flushes, *self._flushes], error)
                self._flushes.clear()
                continue
            finally:
                late.cancel()
                self.stuck = self.stuck and not done.done()
            self._note_success()
            missed, self._missed = self._missed, []
            self._stored(missed)
            await self._report(batch, placed)
            for one in flushes:
                if not one.answer.done():
                    one.answer.set_result(None)

    @property
    def _urgent(self) -> bool:
        """True if a caller waits for the last part of a round."""
        return any(one.user is None for one in self._flushes)

    def _written(self) -> list[_Flush]:
        """Remove and return the flushes that the last progress completes."""
        done, left = list[_Flush](), list[_Flush]()
        for one in self._flushes:
            owed = self._more if one.user is None else self._deliver.owes(one.user)
            (left if owed else done).append(one)
        self._flushes = left
        return done

    def _late(self, batch: list[_PendingRequest], flushes: list[_Flush]) -> None:
        """Answer all callers with errors: a transaction takes too long."""
        if not self._failing:
            text = "a transaction takes longer than %g seconds; nothing new is accepted until it ends"
            _log.critical(text, LIMIT)
        self._measures.database_errors += 1
        self.stuck = self._failing = True
        self._fail([*batch, *flushes])
        while waiting := self._take():
            self._fail(waiting, TimeoutError())
        self._fail(self._flushes)

    def _due(self) -> None:
        self._timer = None
        self._news.set()

    def _commit(self, requests: list[Request], progress: Progress | None) -> list[Placed]:
        self._missed += self._log.missed()  # they stay there where this fails, too
        with self._measures.commits.around():
            return self._log.commit(requests, progress)

    def _take(self) -> list[_PendingRequest]:
        count = entries = 0
        while count < len(self._pending) and (entries < TOGETHER):
            entries += len(self._pending[count].request.entries)
            count += 1
        batch, self._pending = self._pending[:count], self._pending[count:]
        self.waiting -= sum(one.size for one in batch)
        if self._pending:
            self._news.set()
        return batch

    async def _report(self, batch: list[_PendingRequest], placed: list[Placed]) -> None:
        """Report new entries in turns, and then answer their callers."""
        turn, now, count = Turn(self._rounds), perf_counter(), 0
        new: list[Logged] = []
        for one, place in zip(batch, placed, strict=True):
            if not place.new:
                continue
            count += place.size
            self._measures.store.add(now - one.since, place.size)
            for logged in map(Logged, range(place.first, place.first + place.size), one.request.entries):
                new.append(logged)
                if len(new) == REPORTED:
                    self._stored(new)
                    new = []
                    await turn.pause()
        self._measures.commit_sizes.add(count)
        self._stored(new)
        for one, place in zip(batch, placed, strict=True):
            if one.answer.done():
                continue
            if place.error is not None:
                one.answer.set_exception(ConflictError(place.error))
            else:
                one.answer.set_result(range(place.first, place.first + place.size))

    def _fail(self, callers: Iterable[_PendingRequest | _Flush], error: Exception | None = None) -> None:
        """Answer callers that nothing was written; without an error, that it is not known."""
        for one in callers:
            if one.answer.done():
                continue
            if error is not None and isinstance(one, _Flush):
                one.undo()
            one.answer.set_exception(_unknown() if error is None else _busy(error))

    def close(self) -> None:
        """Wait for the transaction that is being written, unless it is stuck."""
        self._thread.shutdown(wait=not self.stuck)


def key_of_request(user: str, key: str | None, parts: Iterable[bytes]) -> RequestKey | None:
    """Return the key by which a repeated request is known, or None."""
    if key is None:
        return None
    if not key or len(key) > MOST_KEY or not key.isprintable():
        raise RequestError(f"a key has 1 to {MOST_KEY} printable characters")
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big") + part)
    return RequestKey(user, key, hashed.digest())


def _rows(progress: Progress) -> int:
    return len(progress.marks) + len(progress.rows) + len(progress.gone)


def _unknown() -> BusyError:
    return BusyError(
        "the database does not answer, and it is not known whether this will be stored; try again later with"
        " the same key, or it may be stored twice",
        LIMIT,
    )


def _busy(error: Exception) -> BusyError:
    made = BusyError("the log cannot be written; try again, with a key to store nothing twice", 1.0)
    made.__cause__ = error
    return made
