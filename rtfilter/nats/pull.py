"""Messages of a pull consumer, asked for ahead, so that a batch is what came during the last one."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any, Final, NamedTuple, Self

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

_log = logging.getLogger(__name__)
HEARTBEAT: Final = 1.0
"""Seconds after which the engine says that it is there, if it has no message."""
SILENT: Final = 4.0
"""Seconds without any message after which a request is repeated."""
EXPIRES: Final = 30.0
"""Seconds of a request."""


class PulledMessage(NamedTuple):
    """A message of a consumer.

    Attributes
    ----------
    reply : str
        Where it is acknowledged.
    subject : str
    data : bytes
    removed : bool
        True if a bucket's key was removed.
    sequence, number, delivered : int
        Its sequence in the stream, its number at this consumer, and how often it was delivered.
    stored : float
        When the engine stored it, in seconds since 1970.
    pending : int
        Messages after it that the consumer has not delivered.
    arrived : float
        By `time.monotonic`.
    """

    reply: str
    subject: str
    data: bytes
    removed: bool
    sequence: int
    number: int
    delivered: int
    stored: float
    pending: int
    arrived: float

    @classmethod
    def of(cls, message: Msg) -> PulledMessage:
        """Read the reply, ``$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<number>.<time>.<pending>``.

        Newer engines insert a domain and an account before the stream, and append a token.
        """
        parts = message.reply.split(".")
        first = 4 if len(parts) == 9 else 6
        delivered, sequence, number, stored, pending = map(int, parts[first : first + 5])
        operation = message.headers.get("KV-Operation") if message.headers else None
        return cls(
            message.reply,
            message.subject,
            message.data,
            operation in ("DEL", "PURGE"),
            sequence,
            number,
            delivered,
            stored / 1e9,
            pending,
            monotonic(),
        )


class Pull:
    """A consumer's messages; use it as an asynchronous context manager.

    Parameters
    ----------
    client : Client
    stream, consumer : str
    most : int
        Messages that are asked for and not taken.
    durable : bool
        Whether the consumer outlives a server of the engine.

    Attributes
    ----------
    gone : bool
        True if the consumer was deleted, or is not durable and nobody answers for it.
    """

    def __init__(self, client: Client, stream: str, consumer: str, most: int, durable: bool = True) -> None:
        self._client, self._most, self._durable = client, most, durable
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = client.new_inbox()
        self._came: deque[PulledMessage] = deque()
        self._asked = 0  # messages asked for that have not come
        self._heard = monotonic()
        self._news = asyncio.Event()
        self.gone = self._ended = False

    async def __aenter__(self) -> Self:
        self._subscription = await self._client.subscribe(
            self._inbox, cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        with suppress(Error):
            await self._subscription.unsubscribe()

    async def take(self, most: int) -> list[PulledMessage]:
        """Return the messages that came, at most so many; wait for the first.

        The result is empty if the consumer is gone, or after `end`.
        """
        while not self._came and not self.gone and not self._ended:
            self._news.clear()
            await self._ask()
            await self._news.wait()
        if self._ended:
            return []
        found = [self._came.popleft() for _ in range(min(most, len(self._came)))]
        if self._asked + len(self._came) <= self._most // 2:
            await self._ask()
        return found

    def end(self) -> None:
        """Ask for nothing more, and let `take` return nothing."""
        self._ended = True
        self._news.set()

    def rest(self) -> list[PulledMessage]:
        """Return the messages that nobody took."""
        return list(self._came)

    async def _ask(self) -> None:
        """Ask for as many messages as there is room for."""
        room = self._most - self._asked - len(self._came)
        if room <= 0 or self._ended or not self._client.is_connected:
            return
        request = {"batch": room, "expires": round(EXPIRES * 1e9), "idle_heartbeat": round(HEARTBEAT * 1e9)}
        self._asked += room
        await self._client.publish(self._next, json.dumps(request).encode(), reply=self._inbox)

    async def _on_message(self, message: Msg) -> None:
        self._heard = monotonic()
        if message.reply:
            self._asked = max(0, self._asked - 1)
            self._came.append(PulledMessage.of(message))
            self._news.set()
            return
        told: dict[Any, Any] = message.headers or {}
        status, why = told.get("Status"), str(told.get("Description", ""))
        if status == "408" and "Nats-Pending-Messages" in told:
            self._asked = max(0, self._asked - int(told["Nats-Pending-Messages"]))
            self._news.set()
        elif status != "100":
            self.gone = self.gone or "Consumer Deleted" in why or (status == "503" and not self._durable)
            self._asked = 0  # the watch asks again
            self._news.set()
            if status == "409":
                _log.info("the engine ended a request for messages: %s", why)

    async def _watch(self) -> None:
        """Repeat requests that the engine has lost, because a server was killed, for example."""
        while True:
            await asyncio.sleep(HEARTBEAT / 2)
            if monotonic() - self._heard > SILENT and self._asked:
                self._asked, self._heard = 0, monotonic()
                self.gone = self.gone or not self._durable
            if self._asked == 0 and not self.gone:
                with suppress(Error):
                    await self._ask()
            self._news.set()
