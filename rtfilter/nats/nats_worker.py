"""A worker: it takes batches of events from a consumer, and publishes their matches, group by group.

An event is acknowledged after all its matches are stored. If the worker is killed before, the engine delivers
the event again, to any worker. Its matches then have the same ids, so the engine stores none of them twice.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import monotonic, thread_time
from typing import Any, Final, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.errors import Error

from rtfilter.basics.errors import EventError
from rtfilter.events.reading import BadEvent
from rtfilter.filter import inside
from rtfilter.matchers.scan import ScanMatcher
from rtfilter.matching.stream import CompletedGroup
from rtfilter.nats.bucket import SubscriptionBucket
from rtfilter.nats.bucket_entries import BucketRefusal
from rtfilter.nats.event_messages import events_of
from rtfilter.nats.publisher import Publisher
from rtfilter.nats.pull import Pull, PulledMessage
from rtfilter.nats.subjects import message_id, origin_of
from rtfilter.nats.worker_metrics import WorkerMetrics
from rtfilter.nats.worker_setup import SetupError, WorkerSetup

_log = logging.getLogger(__name__)
AHEAD: Final = 2000
"""Messages that a worker asks for before it needs them."""
EVENTS: Final = 1000
"""Events of a batch, about."""
QUICK: Final = 0.005
"""Seconds of a search on the event loop; a longer one has a thread."""
PACKED: Final = 1000
"""Subscriptions from which on a worker begins with the R*-tree, not with the scan of a new filter."""
SAVE_AFTER: Final = 1000
"""Changes after which a snapshot is written, or a twentieth of the subscriptions if that is more."""
_encode: Final = msgspec.json.Encoder().encode


class _Taken:
    """A message of events, and how many of its matches are not stored yet."""

    __slots__ = ("left", "message")

    def __init__(self, message: PulledMessage) -> None:
        self.message, self.left = message, 1  # the worker itself, until all matches are published


class _Event(NamedTuple):
    """An event of a batch, and its row in its message."""

    taken: _Taken
    row: int
    text: bytes


class _Events:
    """The events of several messages."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self._firsts: list[int] = []
        self._taken: list[_Taken] = []

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, number: int) -> _Event:
        at = bisect_right(self._firsts, number) - 1
        return _Event(self._taken[at], number - self._firsts[at], self.texts[number])

    def add(self, taken: _Taken, texts: Sequence[bytes]) -> None:
        """Add the events of a message."""
        if texts:
            self._firsts.append(len(self.texts))
            self._taken.append(taken)
            self.texts += texts

    def alone(self, number: int) -> _Events:
        """Return a single one of them."""
        made, event = _Events(), self[number]
        made._firsts, made._taken, made.texts = [-event.row], [event.taken], [event.text]
        return made


class _Match(NamedTuple):
    """A message of matches."""

    taken: _Taken
    subject: str
    payload: bytes
    id: str


class NatsWorker:
    """A worker of a filter.

    Parameters
    ----------
    client : Client
        Connected.
    setup : WorkerSetup
        What `rtfilter.nats.worker_setup.prepare` has found.
    measures : WorkerMetrics

    Attributes
    ----------
    bucket : SubscriptionBucket
    """

    def __init__(self, client: Client, setup: WorkerSetup, measures: WorkerMetrics) -> None:
        self._client, self._setup, self._measures = client, setup, measures
        options = setup.options
        self.bucket = SubscriptionBucket(
            client, options.filter, setup.subscriptions, self._refuse, setup.max_age
        )
        self._pull = Pull(client, setup.stream, options.durable, AHEAD)
        self._publisher = Publisher(client)
        self._origin = origin_of(options.filter, options.shard, setup.stream, setup.created)
        # When each message came or was renewed, by its reply.
        self._unacknowledged: dict[str, float] = {}
        self._stored: deque[PulledMessage] = deque()  # to be acknowledged
        self._some_stored = asyncio.Event()
        self._each = 1.0  # events of a message, on average
        self._pace = 20e-6  # seconds of an event in recent searches
        self._thread = ThreadPoolExecutor(1, "rtfilter-match")
        self._stopping = asyncio.Event()
        self._saving: asyncio.Future[None] | None = None
        measures.observe(self._publisher, self.bucket, lambda: len(self._unacknowledged))

    def stop(self) -> None:
        """End after the present batch, and leave the other events to other workers."""
        self._stopping.set()
        self._pull.end()

    def reconnected(self) -> None:
        """Repeat what may be lost with the old connection."""
        self._measures.reconnects += 1
        self._publisher.again()

    async def run(self, ready: Callable[[], object] = lambda: None) -> None:
        """Work until `stop`; call `ready` once the subscriptions are there.

        Raises `SetupError` if the consumer was deleted.
        """
        async with AsyncExitStack() as stack:
            stack.callback(self._thread.shutdown)
            await stack.enter_async_context(self._publisher)
            own = [
                asyncio.create_task(one) for one in (self.bucket.run(), self._acknowledge(), self._renew())
            ]
            stack.push_async_callback(_cancel, own)
            if await self._first_reach():
                await asyncio.to_thread(self._warm_up)
                ready()
                async with self._pull:
                    while messages := await self._pull.take(max(1, round(EVENTS / self._each))):
                        await self._batch(messages)
                        self._save_if_due()
                if not self._stopping.is_set():
                    raise SetupError(f"the consumer {self._setup.options.durable} was deleted; start again")
                for message in self._pull.rest():  # after the engine knows that nothing more is wanted
                    await self._client.publish(message.reply, b"-NAK")  # for another worker
                await self._publisher.idle()
                while self._unacknowledged:
                    await asyncio.sleep(0.01)
            if self._saving is not None:
                await self._saving
            if self._setup.data is not None and self._setup.subscriptions.changed:
                await self._save(self._setup.data)

    async def _first_reach(self) -> bool:
        """Wait until the subscriptions are there, or for `stop`; return whether they are."""
        tasks = [asyncio.create_task(one) for one in (self.bucket.reach(), self._stopping.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(tasks)
        return not self._stopping.is_set()

    def _warm_up(self) -> None:
        """Pack the index and load the kernels before the first event comes."""
        filter = self.bucket.subscriptions.filter
        if len(filter) >= PACKED and isinstance(inside(filter).matcher, ScanMatcher):
            filter.repack("rtree")
        for size in (1, 64):
            for _ in filter.stream([b"{}"] * size, on_error="skip").groups():
                pass

    # -- a batch -------------------------------------------------------------------------------------------

    async def _batch(self, messages: Sequence[PulledMessage]) -> None:
        """Match the events of messages, and publish their matches."""
        self._measures.batch(messages)
        events = _Events()
        taken = [_Taken(message) for message in messages]
        for one in taken:
            self._unacknowledged[one.message.reply] = one.message.arrived
            try:
                found = events_of(one.message.data)
            except EventError as error:
                await self._refuse_event(one.message, None, error.message)
                continue
            events.add(one, found)
        self._each += (max(1.0, len(events) / len(messages)) - self._each) / 4
        await self.bucket.reach()
        async with self.bucket.busy:
            try:
                await self._match(events)
            except Exception:
                _log.exception("a batch cannot be matched; its events are matched one by one")
                for number in range(len(events)):
                    try:
                        await self._match(events.alone(number))
                    except Exception as error:
                        _log.exception("an event cannot be matched; it is left out")
                        event = events[number]
                        await self._refuse_event(
                            event.taken.message, event.row, f"cannot be matched: {error}"
                        )
        self._measures.matched(messages, len(events))
        for one in taken:
            self._done(one)

    async def _match(self, events: _Events) -> None:
        """Match events, and publish the matches of each group once they are known."""
        bad: list[BadEvent] = []
        begun = thread_time()
        if len(events) * self._pace <= QUICK:
            for found in self._search(events, bad):
                if found:
                    await self._publish(found)
                    await asyncio.sleep(0)  # sends them
            if events:
                self._pace += ((thread_time() - begun) / len(events) - self._pace) / 8
        else:
            await self._match_in_thread(events, bad)
        for one in bad:
            event = events[one.row]
            await self._refuse_event(event.taken.message, event.row, one.reason)

    async def _match_in_thread(self, events: _Events, bad: list[BadEvent]) -> None:
        loop = asyncio.get_running_loop()
        groups: asyncio.Queue[list[_Match] | None] = asyncio.Queue()

        def tell(found: list[_Match] | None) -> None:
            loop.call_soon_threadsafe(groups.put_nowait, found)

        def work() -> None:
            begun = thread_time()
            try:
                for found in self._search(events, bad):
                    tell(found)
                self._pace += ((thread_time() - begun) / len(events) - self._pace) / 8
            finally:
                tell(None)

        working = loop.run_in_executor(self._thread, work)
        while (found := await groups.get()) is not None:
            await self._publish(found)
        await working

    def _search(self, events: _Events, bad: list[BadEvent]) -> Iterator[list[_Match]]:
        """Yield the matches of each group."""
        stream = self.bucket.subscriptions.filter.stream(events.texts, on_error=bad.append)
        for group in stream.groups():
            yield self._found(events, group)

    def _found(self, events: _Events, group: CompletedGroup) -> list[_Match]:
        found: list[_Match] = []
        if not len(group.ids):
            return found
        for row, (first, last) in zip(group.events, pairwise(group.offsets.tolist()), strict=True):
            if first < last:
                for receiver, keys in self._receivers(group.ids[first:last].tolist()).items():
                    found += self._messages(events[row], receiver, keys)
        return found

    def _receivers(self, keys: list[str]) -> dict[str, list[str]]:
        """Return the keys of each receiver."""
        field = self._setup.subject.field
        if field is None:
            return {"": keys}
        if field == "subscription":
            return {key: [key] for key in keys}
        users = self.bucket.subscriptions.users
        found: dict[str, list[str]] = {}
        for key in keys:
            found.setdefault(users[key], []).append(key)
        return found

    def _messages(self, event: _Event, receiver: str, keys: list[str]) -> list[_Match]:
        """Return the message for a receiver; if it is too large, without the event, or one for each key."""
        setup, sequence = self._setup, event.taken.message.sequence
        made: dict[str, Any] = {"stream": setup.stream, "sequence": sequence, "row": event.row}
        if setup.subject.field == "user":
            made["user"] = receiver
        made["subscriptions"] = keys = sorted(keys)
        head, most = _encode(made), self._client.max_payload - 512  # headers count, too
        payload = b'%b,"event":%b}' % (head[:-1], event.text)
        payload = payload if len(payload) <= most else head
        if len(payload) > most and len(keys) > 1:
            return [one for key in keys for one in self._messages(event, f"{receiver} {key}", [key])]
        id = message_id(self._origin, sequence, event.row, receiver)
        return [_Match(event.taken, setup.subject.of(receiver), payload, id)]

    async def _publish(self, found: list[_Match]) -> None:
        for one in found:
            one.taken.left += 1
            await self._publisher.put(one.subject, one.payload, one.id, partial(self._done, one.taken))

    # -- acknowledgements ----------------------------------------------------------------------------------

    def _done(self, taken: _Taken) -> None:
        """Note that a match of a message is stored, or that all are published."""
        taken.left -= 1
        if taken.left == 0:
            self._stored.append(taken.message)
            self._some_stored.set()

    async def _acknowledge(self) -> None:
        """Acknowledge messages whose matches are stored. A lost acknowledgement only repeats work."""
        while True:
            await self._some_stored.wait()
            self._some_stored.clear()
            while self._stored:
                message = self._stored.popleft()
                with suppress(Error):
                    await self._client.publish(message.reply)
                self._unacknowledged.pop(message.reply, None)
                self._measures.done(monotonic() - message.arrived)

    async def _renew(self) -> None:
        """Ask the engine to wait for messages that take long."""
        every = self._setup.options.ack_wait / 3
        while True:
            await asyncio.sleep(every / 2)
            late = monotonic() - every
            old = [reply for reply, since in self._unacknowledged.items() if since < late]
            old += [message.reply for message in self._pull.rest() if message.arrived < late]
            with suppress(Error):
                for reply in old:
                    await self._client.publish(reply, b"+WPI")
                    if reply in self._unacknowledged:
                        self._unacknowledged[reply] = monotonic()

    # -- what cannot be used -------------------------------------------------------------------------------

    async def _refuse(self, one: BucketRefusal) -> None:
        _log.warning("the subscription %s is refused: %s", one.key, one.reason)
        told = {"subscription": one.key, "revision": one.revision, "reason": one.reason}
        await self._report(told, f"{self._setup.options.filter}.{one.revision}")

    async def _refuse_event(self, message: PulledMessage, row: int | None, reason: str) -> None:
        self._measures.refused_events += 1
        _log.warning("message %d, row %s is no event: %s", message.sequence, row, reason)
        told = {"stream": self._setup.stream, "sequence": message.sequence, "row": row, "reason": reason}
        await self._report(told, f"{self._origin}.{message.sequence}.{row}")

    async def _report(self, told: dict[str, Any], id: str) -> None:
        """Publish a refusal. Nobody need listen; a stream of the subject stores it once."""
        with suppress(Error):
            await self._client.publish(
                self._setup.refused, _encode(told), headers={"Nats-Msg-Id": f"refused.{id}"}
            )

    # -- snapshots -----------------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        subscriptions, data = self._setup.subscriptions, self._setup.data
        if data is None or (self._saving is not None and not self._saving.done()):
            return
        if subscriptions.changed >= max(SAVE_AFTER, len(subscriptions.users) // 20):
            self._saving = asyncio.ensure_future(self._save(data))

    async def _save(self, folder: Path) -> None:
        """Write a snapshot; the worker works without it."""
        table = self._setup.subscriptions.table()
        try:
            await asyncio.to_thread(self._setup.subscriptions.save, folder, table)
        except OSError as error:
            _log.warning("no snapshot can be written: %s", error)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
