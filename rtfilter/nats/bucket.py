"""The bucket: a worker follows its changes, and asks before each batch how far it must have come.

The subscriptions that an event sees: after the event has arrived, `SubscriptionBucket.reach` asks the leader
of the bucket for its last sequence, and waits until all changes up to it are applied. So the event sees each
change that was stored before the event was published. A change between that and `reach` is seen, or not.

A former leader that does not know yet that there is a new one would answer with an old sequence. A server
asks for an election only after `ELECTION` seconds without the leader. So an answer counts only if the leader
has heard from all other servers of the bucket within `CONTACT` seconds, and is the same as at the last
answer. Otherwise the worker writes the key `MARK`, whose sequence the servers agree on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec
from nats.aio.client import Client
from nats.errors import Error

from rtfilter.nats.bucket_entries import BucketChange, BucketRefusal
from rtfilter.nats.bucket_filter import BucketFilter
from rtfilter.nats.pull import Pull, PulledMessage
from rtfilter.nats.subjects import MARK

_log = logging.getLogger(__name__)
ELECTION: Final = 4.0
"""Least seconds without a leader until servers elect another one (``minElectionTimeout`` of nats-server)."""
CONTACT: Final = ELECTION - 1.0
CHUNK: Final = 1000
"""Changes that are applied at once."""
AHEAD: Final = 5000
"""Changes that are asked for ahead."""
RETRY: Final = 1.0
"""Seconds between two attempts, and until a wait for changes looks whether there are any."""
RELOAD: Final = 60.0
"""Least seconds between two readings of the whole bucket."""
T = TypeVar("T")


class _State(msgspec.Struct):
    last_seq: int
    messages: int = 0
    num_subjects: int = 0


class _Replica(msgspec.Struct):
    active: int = 0
    """Nanoseconds since the leader heard of it; 0 if it never did."""


class _Cluster(msgspec.Struct):
    leader: str = ""
    replicas: list[_Replica] | None = None

    def is_followed(self) -> bool:
        """Return whether the leader has heard from all others recently, so that none asks for an election."""
        return all(0 < one.active < CONTACT * 1e9 for one in self.replicas or [])


class BucketInfo(msgspec.Struct):
    """The state of the stream of a bucket."""

    state: _State
    cluster: _Cluster | None = None


_decode: Final = msgspec.json.Decoder(BucketInfo).decode


class SubscriptionBucket:
    """The changes of a bucket, applied to subscriptions.

    Parameters
    ----------
    client : Client
    name : str
    subscriptions : BucketFilter
    refuse : callable
        Reports a subscription that cannot be used.
    max_age : float
        Time to live of all keys in seconds, or 0.

    Attributes
    ----------
    busy : asyncio.Lock
        Held while subscriptions change, and by the caller while a thread uses them.
    behind : int
        Changes that were missing at the last `reach`.
    marks : int
        Keys `MARK` that this worker has written.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        subscriptions: BucketFilter,
        refuse: Callable[[BucketRefusal], Awaitable[None]],
        max_age: float = 0.0,
    ) -> None:
        self._client, self._stream, self._prefix = client, f"KV_{name}", f"$KV.{name}."
        self.subscriptions, self._refuse = subscriptions, refuse
        self._max_age, self._counts = max_age, subscriptions.whole and not max_age
        self.busy = asyncio.Lock()
        self.behind = self.marks = 0
        self._moved = asyncio.Event()
        self._leader: str | None = None
        self._seen: set[str] | None = None  # keys since a reading of the whole bucket began
        self._reloaded = -RELOAD
        self._pull: Pull | None = None
        self._consumer, self._number = "", 0

    # -- following -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Apply changes, until cancelled."""
        while True:
            with suppress(Error, TimeoutError):
                await self._follow()
            await asyncio.sleep(RETRY / 5)

    async def _follow(self) -> None:
        """Apply changes with a new consumer, until that is gone, ended or misses a message."""
        self._consumer, self._number = await self._new_consumer(self.subscriptions.revision + 1), 0
        self._pull = Pull(self._client, self._stream, self._consumer, AHEAD, durable=False)
        async with self._pull:
            while True:
                messages = await self._pull.take(CHUNK)
                if not messages or messages[0].number != self._number + 1:
                    break
                self._number = messages[-1].number
                if self._number - messages[0].number != len(messages) - 1:
                    break
                await self._apply(messages)

    async def _apply(self, messages: list[PulledMessage]) -> None:
        changes = [
            BucketChange(
                one.subject.removeprefix(self._prefix),
                one.sequence,
                None if one.removed else one.data,
                one.stored,
            )
            for one in messages
        ]
        async with self.busy:
            refusals = self.subscriptions.apply(changes, self._max_age)
            if self._seen is not None:
                self._seen.update(change.key for change in changes)
                if messages[-1].pending == 0:
                    self._end_reload()
        self._moved.set()
        for one in refusals:
            await self._refuse(one)

    async def _new_consumer(self, first: int) -> str:
        config = {
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": first,
            "inactive_threshold": round(60e9),
            "mem_storage": True,
            "num_replicas": 1,
        }
        made = await self._ask(
            f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config}
        )
        name: str = json.loads(made)["name"]
        return name

    def _reload(self, messages: int) -> None:
        """Read the whole bucket again, because keys are gone without a message, by a purge, for example."""
        _log.warning("keys of the bucket are gone without a message; it is read again")
        self._reloaded, self._seen = monotonic(), set()
        self.subscriptions.revision = 0
        if self._pull is not None:
            self._pull.end()  # `run` begins with a new consumer
        if not messages:
            self._end_reload()

    def _end_reload(self) -> None:
        assert self._seen is not None
        gone = self.subscriptions.keep_only(self._seen)
        self._seen = None
        _log.info("%d subscriptions were gone", gone)

    # -- the end of the bucket -----------------------------------------------------------------------------

    async def reach(self) -> None:
        """Wait until all changes that were stored before this call are applied."""
        last = await self.last()
        self.behind = max(0, last - self.subscriptions.revision)
        wait = RETRY
        while self.subscriptions.revision < last or self._seen is not None:
            self._moved.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._moved.wait()
            except TimeoutError:  # perhaps the last messages are gone; then the key comes after them
                wait = min(2 * wait, 30 * RETRY)
                with suppress(Error, TimeoutError):
                    await self._mark()

    async def last(self) -> int:
        """Return the last sequence of the bucket, or a later one; ask until the engine answers."""
        while True:
            try:
                info = await self.info()
            except (Error, TimeoutError) as error:
                _log.warning("the bucket does not answer, and is asked again: %s", error or "timeout")
                await asyncio.sleep(RETRY / 4)
                continue
            self._count(info)
            cluster = info.cluster
            if cluster is None or (cluster.leader == self._leader and cluster.is_followed()):
                return info.state.last_seq
            try:
                last = await self._mark()
            except (Error, TimeoutError) as error:
                _log.warning(
                    "the key %s cannot be written, which is tried again: %s", MARK, error or "timeout"
                )
                await asyncio.sleep(RETRY / 4)
                continue
            self._leader = cluster.leader
            return last

    async def info(self) -> BucketInfo:
        """Ask the leader once."""
        return _decode(await self._ask(f"STREAM.INFO.{self._stream}", None))

    async def _mark(self) -> int:
        self.marks += 1
        headers = {"KV-Operation": "DEL"}
        answer = await self._client.request(f"{self._prefix}{MARK}", b"", timeout=5, headers=headers)
        return int(json.loads(_without_error(answer.data))["seq"])

    def _count(self, info: BucketInfo) -> None:
        """Compare the number of keys, which differs if keys are gone without a message."""
        held, state = self.subscriptions, info.state
        if not self._counts or self._seen is not None or state.last_seq != held.revision:
            return
        if state.num_subjects != held.keys and monotonic() - self._reloaded > RELOAD:
            self._reload(state.messages)

    async def _ask(self, what: str, given: Any) -> bytes:
        body = b"" if given is None else json.dumps(given).encode()
        answer = await self._client.request(f"$JS.API.{what}", body, timeout=2)
        return _without_error(answer.data)


def _without_error(answer: bytes) -> bytes:
    """Return an answer of the engine, or raise its error."""
    if b'"error"' in answer:
        error = json.loads(answer).get("error")
        if error:
            raise Error(f"{error.get('description', error)}")
    return answer
