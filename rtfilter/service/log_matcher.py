"""Stage 4: entries of the log are matched with the indexes, which are a cache of the log.

Events and changes are processed in the order of the log, so the matches of an event depend on its position
alone, and are the same after a restart. A batch has the entries that arrived during the last one. A thread
matches it, and the matches of an event are reported when its group ends.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter, thread_time
from typing import Any, Final

import msgspec
import numpy as np

from rtfilter.basics.dtypes import IntArray
from rtfilter.basics.errors import EventError
from rtfilter.basics.results import Matches
from rtfilter.events.nesting import flatten, with_composed_names
from rtfilter.events.table import EventTable
from rtfilter.filter import EventFilter
from rtfilter.matching.stream import CompletedGroup, Stream
from rtfilter.service.concurrency import LIMIT, Rounds, Turn
from rtfilter.service.deliver import STEP, MatchedEvent
from rtfilter.service.measures import Measures
from rtfilter.service.parse import as_published, parts
from rtfilter.service.records import FilterInfo
from rtfilter.service.service_errors import BusyError
from rtfilter.store.log_tables import Entry, Kind, Logged

Tell = Callable[[Sequence[MatchedEvent]], Iterator[None]]
"""Takes the matches of some events, on the event loop, in steps."""
SIZE: Final = 1000
"""Entries of a batch at most."""
QUICK: Final = 0.002
"""Seconds of a search that is done on the event loop."""
MOST_QUICK: Final = 100_000
"""Most events times subscriptions of a batch of several events that is searched there."""
_log = logging.getLogger(__name__)


class Index:
    """The subscriptions of one filter."""

    def __init__(self, info: FilterInfo, filter: EventFilter) -> None:
        self.info, self.filter = info, filter
        self.pace = 0.0
        """Seconds of work of recent searches for each event."""
        self.entrance = asyncio.Lock()
        """Locked while subscriptions are added that no box bounds, until the filter has them, so that each
        caller knows their number."""

    def look_up(self, events: EventTable) -> Matches:
        """Return the subscriptions that each event matches."""
        with self.paced(len(events)):
            return self.filter.match_batch(events)

    def stream(self, events: Sequence[Any]) -> Stream:
        """Begin to match stored events; raise `EventError` if one of several has to be read alone."""
        try:
            return self.filter.stream(events)
        except EventError:
            if len(events) > 1:
                raise
            return self.filter.stream(as_published(self.filter.schema, events[0]))

    @contextmanager
    def paced(self, count: int) -> Iterator[None]:
        """Measure the search of `count` events."""
        begun = thread_time()
        yield
        if count:
            self.pace += ((thread_time() - begun) / count - self.pace) / 8

    def is_quick(self, count: int) -> bool:
        """Return whether a search of `count` events takes no longer than its start in a thread.

        Several events may have many more matches than earlier ones, so their number is bounded, too.
        """
        few = count == 1 or count * len(self.filter) <= MOST_QUICK
        return few and count * self.pace <= QUICK

    def change(self, changes: Iterable[Logged]) -> int:
        """Apply changes of the log; return their number. A change may be applied twice."""
        new: dict[int, Any] = {}
        count = 0
        for position, entry in changes:
            count += 1
            if entry.kind == Kind.SUBSCRIBE:
                if position not in self.filter:  # or it was applied already, and its replacement comes later
                    new[position] = _predicate(entry)
                continue
            self._add(new)
            id = entry.id_at(position)
            with _left_out(f"the change at position {position} cannot be made"):
                if entry.kind != Kind.UNSUBSCRIBE:
                    self._put(id, _predicate(entry))
                elif id in self.filter:
                    self.filter.unsubscribe(id)
        self._add(new)
        return count

    def _put(self, id: int, where: Any) -> None:
        if id not in self.filter:
            self.filter.subscribe(where, id)
            return
        try:
            self.filter.update(id, where)
        except Exception:
            self.filter.unsubscribe(id)  # as it would be after a restart
            raise

    def _add(self, new: dict[int, Any]) -> None:
        if not new:
            return
        with _left_out("new subscriptions cannot be made together"):
            self.filter.subscribe_many(list(new.values()), ids=list(new), on_error="skip")
        for id in [id for id in new if id not in self.filter]:
            with _left_out(f"the subscription {id} cannot be made"):
                self._put(id, new[id])
        new.clear()


def _predicate(entry: Entry) -> Any:
    """Return the predicate of a new or changed subscription; an entry of an earlier run has only its JSON."""
    return msgspec.json.decode(entry.body)["where"] if entry.predicate is None else entry.predicate


@contextmanager
def _left_out(what: str) -> Iterator[None]:
    """Log and skip an entry that fails, although it was checked: else the server would fail at each start."""
    try:
        yield
    except Exception:
        _log.critical("%s; it is left out", what, exc_info=True)


class LogMatcher:
    """Matches the entries of the log.

    The caller changes `indexes`, by the names of filters, on the event loop, and `ordered`, the number of
    subscriptions with `order` by filter.

    Attributes
    ----------
    settled : int
        The matches of all entries up to this position are known, and in the backlogs.
    taken : int
        The last position of the batch that is being matched, or was last.
    begun, last : int
        The last position when the server began, and of all entries so far.
    changes : int
        Changes up to `settled` that no stored index has.
    works : bool
        True if the thread matches a batch, and may change indexes.
    """

    def __init__(
        self,
        indexes: Mapping[str, Index],
        tell: Tell,
        measures: Measures,
        ordered: Mapping[str, int],
        rounds: Rounds,
    ) -> None:
        self._indexes, self._tell, self._measures = indexes, tell, measures
        self._ordered, self._rounds = ordered, rounds
        self.settled = self.taken = self.changes = self.begun = self.last = 0
        self._waiting: deque[Logged] = deque()
        self._since: deque[tuple[int, float]] = deque()  # up to which position entries wait since when
        self._news = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "rtfilter-match")
        self._loop = asyncio.get_running_loop()
        self._known: deque[tuple[list[MatchedEvent], float]] = deque()  # groups, and when each became known
        self._woken = False
        self._steps = self._tell_known()
        self._told = asyncio.Event()
        self._failed: BaseException | None = None
        self._moved = asyncio.Event()
        self.works = False

    def begin(self, settled: int, changes: int, logged: Sequence[Logged]) -> None:
        """Begin with the entries that an earlier run has not settled; `changes` is the attribute at first."""
        self.settled = self.taken = settled
        self.changes = changes
        self.put(logged)
        self.begun = self.last

    def put(self, logged: Sequence[Logged]) -> None:
        """Add the next entries of the log, to be matched."""
        if logged:
            self.last = logged[-1].position
            self._waiting.extend(logged)
            self._since.append((self.last, perf_counter()))
            self._news.set()

    @property
    def waiting(self) -> int:
        """Number of entries that wait to be matched."""
        return len(self._waiting)

    async def reached(self, position: int) -> None:
        """Wait until all entries up to a position are settled."""
        while self.settled < position:
            self._moved.clear()
            await self._moved.wait()

    async def reached_soon(self, position: int) -> None:
        """Wait as `reached` does, for a door. Raises `BusyError` after `LIMIT` seconds."""
        try:
            async with asyncio.timeout(LIMIT):
                await self.reached(position)
        except TimeoutError:
            raise BusyError("earlier entries of the log are still being matched; try again", 1.0) from None

    async def run(self) -> None:
        """Match entries, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._match_some()

    async def _match_some(self) -> None:
        """Match a batch. Nothing of it is kept while the next one has not come."""
        count = min(SIZE, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        self.taken = batch[-1].position
        taken = perf_counter()
        self._note_taken(batch, taken)
        indexes = dict(self._indexes)
        if self._is_quick(batch, indexes):
            for _ in range(2):  # publishers are answered first, in sessions by a task of their own
                await asyncio.sleep(0)
            self._woken = True
            self._work(batch, indexes, taken)
            self._drain()
        else:
            self.works = True
            await self._loop.run_in_executor(self._thread, self._work, batch, indexes, taken)
            self.works = False
        while self._woken and self._failed is None:
            self._told.clear()
            await self._told.wait()
        if self._failed is not None:
            raise self._failed
        self.settled = self.taken  # all its matches are in the backlogs now
        self.changes += sum(entry.kind is not Kind.EVENT for _, entry in batch)
        self._moved.set()

    def _is_quick(self, batch: Sequence[Logged], indexes: Mapping[str, Index]) -> bool:
        """Return whether a batch has few events, all of one filter."""
        filter = batch[0].entry.filter
        return (
            filter in indexes
            and indexes[filter].is_quick(len(batch))
            and all(entry.kind is Kind.EVENT and entry.filter == filter for _, entry in batch)
        )

    def _note_taken(self, batch: Sequence[Logged], taken: float) -> None:
        """Measure how long entries waited; those that came together have one measure."""
        self._measures.batch_sizes.add(len(batch))
        first, last = 0, batch[-1].position
        while first < len(batch):
            upto, since = self._since[0]
            if upto <= last:
                self._since.popleft()
            after = bisect_right(batch, min(upto, last), lo=first, key=lambda one: one.position)
            self._measures.queue.add(taken - since, after - first)
            first = after

    def _work(self, batch: list[Logged], indexes: dict[str, Index], taken: float) -> None:
        """Match events and apply changes of a batch, filter by filter, in the order of the log."""
        of: dict[str, list[Logged]] = {}
        for logged in batch:
            of.setdefault(logged.entry.filter, []).append(logged)
        for name, mine in of.items():
            index = indexes.get(name)
            if index is None:
                continue  # it was removed, with all its subscriptions
            mine = [logged for logged in mine if logged.position >= index.info.since]
            first = 0
            while first < len(mine):
                events = mine[first].entry.kind == Kind.EVENT
                last = first + 1
                while last < len(mine) and (mine[last].entry.kind is Kind.EVENT) == events:
                    last += 1
                if events:
                    self._search(index, mine[first:last], taken)
                else:
                    index.change(mine[first:last])
                first = last

    def _search(self, index: Index, batch: list[Logged], taken: float | None) -> None:
        """Match events of one filter; `taken` is the start of their batch, or None to measure nothing."""
        told: dict[int, float] = {}  # when its matches became known, by row
        try:
            key = index.info.key if self._ordered.get(index.info.name) else None
            bodies = [one.entry.body for one in batch]
            several = parts(bodies)
            if len(several) > 1:
                for first, after in several:
                    self._search(index, batch[first:after], taken)
                return
            events: list[Any] = bodies if key is None else list(map(msgspec.json.decode, bodies))
            order = None if key is None else KeyOrder([key_of(event, key) for event in events])
            with index.paced(len(batch)):
                for group in index.stream(events).groups():
                    known = perf_counter()
                    told.update(dict.fromkeys(group.events, known))
                    self._release(_found(batch, group, order, known), known)
        except Exception:
            if len(batch) == 1:
                position = batch[0].position
                _log.critical(
                    "the event at position %d cannot be matched; it is left out", position, exc_info=True
                )
                return
            self._measure(index, batch, taken, told)
            for row, one in enumerate(batch):  # `Deliver` skips matches that it knows
                self._search(index, [one], None if row in told else taken)
        else:
            self._measure(index, batch, taken, told)

    def _measure(
        self, index: Index, batch: list[Logged], taken: float | None, told: dict[int, float]
    ) -> None:
        if told and taken is not None:
            arrived = [batch[row].entry.arrived for row in told]
            self._measures.matched(index.info.name, taken, arrived, list(told.values()))

    def _release(self, found: list[MatchedEvent], known: float) -> None:
        """Pass matches to the event loop, and wake it unless it was woken already."""
        if found:
            self._known.append((found, known))
            if not self._woken:
                self._woken = True
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        """Report known matches, for one turn at a time."""
        turn = Turn(self._rounds)
        try:
            for _ in self._steps:
                if turn.over:
                    self._rounds.join(self._drain)
                    return
        except BaseException as error:  # else the loop would continue, and events would be lost
            self._failed = error
            self._told.set()
            raise
        self._steps, self._woken = self._tell_known(), False
        if self._known:  # since the last look
            self._woken = True
            self._rounds.join(self._drain)
        self._told.set()

    def _tell_known(self) -> Iterator[None]:
        """Report groups in steps, as they become known."""
        while self._known:
            groups = [self._known.popleft() for _ in range(len(self._known))]
            yield from self._tell([one for found, _ in groups for one in found])
            told = perf_counter()
            for found, known in groups:
                self._measures.deliver.add(told - known, sum(len(one.ids) > 0 for one in found))

    def close(self) -> None:
        """Wait for the batch that is being matched."""
        self._thread.shutdown()


def _found(
    batch: Sequence[Logged], group: CompletedGroup, order: KeyOrder | None, known: float
) -> list[MatchedEvent]:
    found: list[MatchedEvent] = []

    def note(row: int, ids: IntArray, at_once: bool = False, key: int | None = None) -> None:
        arrived = batch[row].entry.arrived
        if len(ids) > STEP:
            ids = np.sort(ids)
        found.append(
            MatchedEvent(batch[row], ids, None if arrived is None else known - arrived, at_once, key)
        )

    for row, (first, last) in zip(group.events, pairwise(group.offsets.tolist()), strict=True):
        ids = group.ids[first:last]
        if order is not None:
            note(row, ids, at_once=True)
            for other, its in order.done(row, ids):
                note(other, its, key=hash_of(batch[other].entry.filter, order.keys[other]))
        elif first < last:
            note(row, ids)
    return found


def key_of(event: dict[str, Any], name: str) -> Any:
    """Return the key of an event, or None if it has not exactly one, such as a list."""
    if not name.isascii():
        event = dict(with_composed_names(event, frozenset((name,))))
    found = event[name] if name in event else flatten(event, frozenset((name,)))[0].get(name)
    return found if isinstance(found, str | int | float) else None


def hash_of(filter: str, key: Any) -> int | None:
    """Return a number for the events of one key of one filter, or None without a key.

    It takes less memory than a long key. Few other keys have the same, whose events are then ordered, too.
    """
    return None if key is None else hash((filter, key))


class KeyOrder:
    """The order of the events of a batch: those of one key in published order.

    The keys are those of all events; an event without one has None, and waits for no other. Batches follow
    each other, so nothing else needs to wait.
    """

    def __init__(self, keys: Sequence[Any]) -> None:
        self.keys = keys
        self._rows: defaultdict[Any, deque[int]] = defaultdict(deque)
        for row, key in enumerate(keys):
            if key is not None:
                self._rows[key].append(row)
        self._done: dict[int, IntArray] = {}

    def done(self, row: int, found: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Add the matches of an event; yield the rows that are next in order, with their matches."""
        key = self.keys[row]
        if key is None:
            yield row, found
            return
        self._done[row] = found
        rows = self._rows[key]
        while rows and rows[0] in self._done:
            first = rows.popleft()
            yield first, self._done.pop(first)
