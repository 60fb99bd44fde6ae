"""Messages on their way into a stream: many at a time, each repeated until the engine has stored it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, Self

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error

_log = logging.getLogger(__name__)
WINDOW: Final = 4000
"""Messages that wait to be stored."""
UNANSWERED: Final = 5.0
"""Seconds until an unanswered message is sent again."""
REFUSED: Final = 0.5
"""Seconds until a message is sent again that the engine has refused."""
WARN: Final = 5.0
"""Seconds between two warnings."""


class _Sent:
    """A message that is not stored yet."""

    __slots__ = ("done", "due", "headers", "payload", "subject")

    def __init__(self, subject: str, payload: bytes, id: str, done: Callable[[], None]) -> None:
        self.subject, self.payload, self.headers, self.done = subject, payload, {"Nats-Msg-Id": id}, done
        self.due = 0.0


class Publisher:
    """Publishes messages with ids; use it as an asynchronous context manager.

    Attributes
    ----------
    stored, duplicates, repeated : int
        Messages that the engine has stored, that it had already, and that were sent again.
    """

    def __init__(self, client: Client, window: int = WINDOW) -> None:
        self._client, self._window = client, window
        self._inbox = client.new_inbox()
        self._waiting: dict[str, _Sent] = {}
        self._last = 0
        self._fewer = asyncio.Event()
        self._warned = -WARN
        self.stored = self.duplicates = self.repeated = 0

    async def __aenter__(self) -> Self:
        self._answers = await self._client.subscribe(
            f"{self._inbox}.*", cb=self._on_answer, pending_msgs_limit=0, pending_bytes_limit=0
        )
        self._repeating = asyncio.create_task(self._repeat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._repeating.cancel()
        with suppress(Error):
            await self._answers.unsubscribe()

    def __len__(self) -> int:
        """Return the number of messages that are not stored yet."""
        return len(self._waiting)

    async def put(self, subject: str, payload: bytes, id: str, done: Callable[[], None]) -> None:
        """Publish a message, and call `done` when it is stored; wait while too many others are not stored."""
        while len(self._waiting) >= self._window:
            self._fewer.clear()
            await self._fewer.wait()
        self._last += 1
        token = str(self._last)
        sent = self._waiting[token] = _Sent(subject, payload, id, done)
        await self._send(token, sent)

    async def idle(self) -> None:
        """Wait until all messages are stored."""
        while self._waiting:
            self._fewer.clear()
            await self._fewer.wait()

    def again(self) -> None:
        """Send all messages again, after a new connection."""
        for sent in self._waiting.values():
            sent.due = 0.0

    async def _send(self, token: str, sent: _Sent) -> None:
        sent.due = monotonic() + UNANSWERED
        try:
            await self._client.publish(sent.subject, sent.payload, f"{self._inbox}.{token}", sent.headers)
        except Error as error:  # there is no connection now
            sent.due = monotonic() + REFUSED
            self._warn(sent, str(error))

    async def _on_answer(self, answer: Msg) -> None:
        token = answer.subject.rpartition(".")[2]
        sent = self._waiting.get(token)
        if sent is None:
            return  # an answer to an earlier attempt came before
        why = _refused(answer)
        if why is None:
            del self._waiting[token]
            self.stored += 1
            self.duplicates += b'"duplicate"' in answer.data
            self._fewer.set()
            sent.done()
        else:
            sent.due = monotonic() + REFUSED
            self._warn(sent, why)

    async def _repeat(self) -> None:
        """Send messages again that are due."""
        while True:
            await asyncio.sleep(REFUSED / 2)
            now = monotonic()
            if not self._client.is_connected:
                continue
            for token, sent in [(token, sent) for token, sent in self._waiting.items() if sent.due <= now]:
                if token in self._waiting:
                    self.repeated += 1
                    await self._send(token, sent)

    def _warn(self, sent: _Sent, why: str) -> None:
        if monotonic() - self._warned > WARN:
            self._warned = monotonic()
            _log.warning("%s cannot be stored now, which is tried again: %s", sent.subject, why)


def _refused(answer: Msg) -> str | None:
    """Return why a message was not stored; None if it was.

    An engine may call a message a duplicate with the sequence 0 while the first one is not stored yet.
    """
    if answer.headers and answer.headers.get("Status") == "503":
        return "no stream has this subject, or its servers elect a leader"
    data = answer.data
    if b'"error"' in data:
        return str(json.loads(data)["error"].get("description", data))
    if b'"duplicate"' in data and not json.loads(data).get("seq"):
        return "the first copy is not stored yet"
    return None
