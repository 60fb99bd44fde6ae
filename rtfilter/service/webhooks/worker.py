"""The worker of a webhook, which sends its deliveries in batches, again until they arrive."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rtfilter.service.backlog import Backlog
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import UserDelivery, pulled
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError
from rtfilter.service.webhooks import signing
from rtfilter.service.webhooks.sending import Sender, WebhookAnswer
from rtfilter.store.webhook_table import Webhook

MOST: Final = 100
"""Deliveries of one request."""
MOST_BYTES: Final = 256 * 2**10
"""Bytes of one request, about, where it has several deliveries."""
LONGEST: Final = 600.0
"""Seconds between two tries."""
LONGEST_ASKED: Final = 3600.0
"""The same, where the target asks for it."""
FEW: Final = 1000
"""Waiting positions above which those that are pending no more are removed."""
QUICK: Final = 1.0
"""Seconds within which a quick webhook answers."""
Park = Callable[["Worker", str], Awaitable[None]]
Note = Callable[["Worker"], Awaitable[None]]
_log = logging.getLogger(__name__)


class _Batch(NamedTuple):
    positions: list[int]
    id: str
    body: bytes


class Worker:
    """Sends the deliveries of a user; a `rtfilter.service.deliver.Receiver`, from `begin` to `end`.

    Parameters
    ----------
    webhook : Webhook
    secret : bytes
    pipeline : Pipeline
    sender : Sender
    tries : int
        Failed requests in a row after which it is parked.
    first : float
        Seconds before the second try.
    park : callable
        Parks the webhook, and ends the worker.
    note : callable
        Stores `failures` for the time after a restart.
    counts : Counter of str
        Requests by outcome.

    Attributes
    ----------
    failures : int
        Failed requests in a row.
    last : WebhookAnswer or None
        Outcome of the last request.
    next_try : float or None
        In seconds since 1970, where it waits for it.
    """

    def __init__(
        self,
        webhook: Webhook,
        secret: bytes,
        pipeline: Pipeline,
        sender: Sender,
        tries: int,
        first: float,
        park: Park,
        note: Note,
        counts: Counter[str],
    ) -> None:
        self._webhook, self._secret, self._pipeline, self._sender = webhook, secret, pipeline, sender
        self._tries, self._first, self._counts = tries, first, counts
        self._park, self._note = park, note
        self._who = Identity(webhook.user, frozenset({Role.SUBSCRIBER}))
        self._due: dict[int, int] = {}  # position to the digest that it is part of; 0 for none
        self._digests, self._room = 0, FEW
        self._task: asyncio.Task[None] | None = None
        self._active = False
        self._quick = False  # until an answer was quick
        self.failures = webhook.failures
        self.last: WebhookAnswer | None = None
        self.next_try: float | None = None

    # -- inputs ----------------------------------------------------------------------------------

    @property
    def user(self) -> str:
        """The user of the webhook."""
        return self._webhook.user

    @property
    def active(self) -> bool:
        """True if the webhook sends."""
        return self._active

    def begin(self) -> None:
        """Send all pending deliveries, and later ones."""
        if not self._active:
            self._active = True
            self._pipeline.deliver.begin(self._webhook.user, self, first=True)
            self.send(list(self._backlog.pending))

    async def end(self) -> None:
        """Stop sending. Unacknowledged deliveries stay in the backlog."""
        task = self.leave()
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    def leave(self) -> asyncio.Task[None] | None:
        """Accept no more deliveries; return the task that still sends, or None."""
        if self._active:
            self._active = False
            self._pipeline.deliver.stop(self._webhook.user, self)
        self._due.clear()
        self.next_try = None
        return self._task

    def send(self, positions: Sequence[int], digest: bool = False) -> None:
        """See `Receiver`."""
        self._digests += digest
        for position in positions:
            self._due.setdefault(position, self._digests if digest else 0)
        if len(self._due) > self._room:
            self._prune()
        if self._active and self._task is None and self._due:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._done)

    take_over = send

    def unacknowledged(self) -> list[int]:
        """See `Receiver`."""
        return sorted(self._due)

    def tick(self, now: float) -> None:
        """See `Receiver`. Does nothing: the worker has its own timer."""

    def _prune(self) -> None:
        pending = self._backlog.pending
        self._due = {at: digest for at, digest in self._due.items() if at in pending}
        self._room = max(FEW, 2 * len(self._due))

    @property
    def _backlog(self) -> Backlog:
        return self._pipeline.deliver.backlog(self._webhook.user)

    # -- sending ---------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._active and (batch := self._batch()) is not None:
            await self._deliver(batch)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a webhook has failed; it goes on with the next delivery", exc_info=error)
        elif self._active and self._due:
            self.send([])  # it came while the task ended

    def _batch(self) -> _Batch | None:
        """Return the next batch to send, or None; remove positions that are pending no more."""
        found: list[UserDelivery] = []
        digest = size = 0
        for position, of in list(self._due.items()):
            one = self._backlog.get(position)
            if one is None:
                del self._due[position]
                continue
            size += one.size
            if found and (of != digest or size > MOST_BYTES):
                break
            found.append(one)
            digest = of
            if len(found) == MOST:
                break
        if not found:
            return None
        sent = [self._backlog.note_sent(one.position) for one in found]
        content: dict[str, Any] = {"deliveries": [pulled(*one) for one in zip(found, sent, strict=True)]}
        if digest:
            content["digest"] = True
        positions = [one.position for one in found]
        id = signing.identify(self._webhook.salt, positions)
        return _Batch(positions, id, msgspec.json.encode(content))

    async def _deliver(self, batch: _Batch) -> None:
        """Send a batch until it has arrived, or one of its deliveries is pending no more."""
        while self._active and all(map(self._backlog.get, batch.positions)):
            outcome = await self._try(batch)
            if outcome.error is None:
                self._counts["delivered"] += 1
                failed, self.failures = self.failures, 0
                await self._acknowledge(batch.positions)
                if failed:
                    await self._note(self)
                return
            self._counts["failed"] += 1
            self.failures += 1
            if outcome.gone or self.failures >= self._tries:
                why = "" if outcome.gone else f" at each of {self.failures} tries in a row"
                await self._park(self, f"{outcome.error}{why}")
                return
            await self._note(self)
            wait = min(LONGEST, self._first * 2.0 ** min(self.failures - 1, 20)) * random.uniform(0.75, 1.25)
            wait = max(wait, min(outcome.retry_after or 0.0, LONGEST_ASKED))
            self.next_try = time.time() + wait
            await asyncio.sleep(wait)
            self.next_try = None

    async def _try(self, batch: _Batch) -> WebhookAnswer:
        lane = self._sender.lane(self._quick)
        async with lane.places:
            signed = signing.headers(self._secret, batch.id, time.time(), batch.body)
            begun = time.monotonic()
            outcome = self.last = await lane.post(self._webhook.url, signed, batch.body)
        self._quick = outcome.error is None and time.monotonic() - begun < QUICK
        return outcome

    async def _acknowledge(self, positions: Sequence[int]) -> None:
        while True:
            try:
                await self._pipeline.deliveries.acknowledge(self._who, positions)
                break
            except BusyError as error:  # else it would be sent again
                await asyncio.sleep(error.retry_after or 1.0)
        for position in positions:
            self._due.pop(position, None)
