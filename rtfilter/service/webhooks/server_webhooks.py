"""All webhooks of the server, at most one of each user, and the workers that send their deliveries."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rtfilter.service.backlog import Backlog
from rtfilter.service.pipeline import Pipeline
from rtfilter.service.records import UserDelivery, pulled
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError, ConflictError, RequestError, UnknownError
from rtfilter.service.webhooks import signing, targets
from rtfilter.service.webhooks.sending import TIMEOUT, Sender, WebhookAnswer
from rtfilter.store.webhook_table import Webhook, WebhookTable

LOOK: Final = 1.0
"""Seconds between two checks whether users may still have webhooks."""
TRIES: Final = 12
"""Failed requests in a row after which a webhook is parked."""
FIRST: Final = 1.0
"""Seconds before the second try."""
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
LOST: Final = "the key of the server that its secret was made with is lost; make a new secret, then resume"
_log = logging.getLogger(__name__)


class WebhookState(msgspec.Struct, kw_only=True, frozen=True):
    """A webhook; times in seconds since 1970."""

    user: str
    url: str
    state: Annotated[
        str, Meta(description="active, waiting (for the next try), parked, or stopped (by roles).")
    ]
    since: Annotated[float, Meta(description="When it was made, or parked.")]
    reason: Annotated[str | None, Meta(description="Why it is parked.")] = None
    failures: Annotated[int, Meta(description="In a row.")]
    last_status: Annotated[int | None, Meta(description="Of the last answer.")] = None
    last_error: Annotated[str | None, Meta(description="What was wrong with the last request.")] = None
    next_try: float | None = None
    secret: Annotated[
        str | UnsetType,
        Meta(description="What requests are signed with. Only a new secret is shown, and only once."),
    ] = UNSET


class _Batch(NamedTuple):
    positions: list[int]
    id: str
    body: bytes


class _Worker:
    """Sends the deliveries of a user; a `rtfilter.service.deliver.Receiver`, from `begin` to `end`.

    Attributes
    ----------
    failures : int
        Failed requests in a row.
    last : WebhookAnswer or None
        Outcome of the last request.
    next_try : float or None
        In seconds since 1970, where it waits for it.
    """

    def __init__(self, webhook: Webhook, secret: bytes, webhooks: Webhooks) -> None:
        self.user, self.failures = webhook.user, webhook.failures
        self.last: WebhookAnswer | None = None
        self.next_try: float | None = None
        self.active = False
        self._webhook, self._secret, self._webhooks = webhook, secret, webhooks
        self._pipeline = webhooks.pipeline
        self._who = Identity(webhook.user, frozenset({Role.SUBSCRIBER}))
        self._due: dict[int, int] = {}  # position to the digest that it is part of; 0 for none
        self._digests, self._room = 0, FEW
        self._task: asyncio.Task[None] | None = None
        self._quick = False  # until an answer was quick

    def begin(self) -> None:
        """Send all pending deliveries, and later ones."""
        if not self.active:
            self.active = True
            self._pipeline.deliver.begin(self.user, self, first=True)
            self.send(list(self._backlog.pending))

    async def end(self) -> None:
        """Stop sending. Unacknowledged deliveries stay in the backlog."""
        task = self.leave()
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    def leave(self) -> asyncio.Task[None] | None:
        """Accept no more deliveries; return the task that still sends, or None."""
        if self.active:
            self.active = False
            self._pipeline.deliver.stop(self.user, self)
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
        if self.active and self._task is None and self._due:
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
        return self._pipeline.deliver.backlog(self.user)

    async def _run(self) -> None:
        while self.active and (batch := self._batch()) is not None:
            await self._deliver(batch)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a webhook has failed; it goes on with the next delivery", exc_info=error)
        elif self.active and self._due:
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
        while self.active and all(map(self._backlog.get, batch.positions)):
            outcome = await self._try(batch)
            if outcome.error is None:
                self._webhooks.requests["delivered"] += 1
                failed, self.failures = self.failures, 0
                await self._acknowledge(batch.positions)
                if failed:
                    await self._webhooks.note_failures(self)
                return
            self._webhooks.requests["failed"] += 1
            self.failures += 1
            if outcome.gone or self.failures >= self._webhooks.tries:
                why = "" if outcome.gone else f" at each of {self.failures} tries in a row"
                await self._webhooks.park(self, f"{outcome.error}{why}")
                return
            await self._webhooks.note_failures(self)
            wait = min(LONGEST, self._webhooks.first * 2.0 ** min(self.failures - 1, 20)) * random.uniform(
                0.75, 1.25
            )
            wait = max(wait, min(outcome.retry_after or 0.0, LONGEST_ASKED))
            self.next_try = time.time() + wait
            await asyncio.sleep(wait)
            self.next_try = None

    async def _try(self, batch: _Batch) -> WebhookAnswer:
        lane = self._webhooks.sender.lane(self._quick)
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


class Webhooks:
    """Sends the deliveries of users who have a webhook. Belongs to the event loop of the pipeline.

    Parameters
    ----------
    table : WebhookTable
    key : ServerKey
    pipeline : Pipeline
        It runs already.
    sender : Sender
    tries : int
        Failed requests in a row after which a webhook is parked.
    first : float
        Seconds before the second try.
    """

    def __init__(
        self,
        table: WebhookTable,
        key: signing.ServerKey,
        pipeline: Pipeline,
        sender: Sender,
        tries: int = TRIES,
        first: float = FIRST,
    ) -> None:
        self._table, self._key, self.pipeline, self.sender = table, key, pipeline, sender
        self.tries, self.first = tries, first
        self._rows: dict[str, Webhook] = {}
        self._workers: dict[str, _Worker] = {}
        self.requests = pipeline.measures.webhook_requests
        pipeline.measures.webhooks = self._states
        self._changing = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read all webhooks, and continue to send."""
        rows = await self.pipeline.asides.beside.run(self._table.read)
        key = await self.pipeline.asides.beside.run(self._key.read)
        for row in rows:
            if row.parked is None and (key is None or signing.mark(key) != row.key):
                row = row._replace(parked=time.time(), reason=LOST)
                await self._note(row)
            self._take(row)
        self.pipeline.presence.forgets.append(self._forget)
        self._look()
        self._watch = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop all webhooks. Unacknowledged deliveries stay in the backlogs."""
        if self._watch is not None:
            self._watch.cancel()
        for worker in list(self._workers.values()):
            await worker.end()
        await self.sender.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self._look()

    def _look(self) -> None:
        """Start the workers of users who may subscribe, and stop all others."""
        for user, worker in self._workers.items():
            may = self.pipeline.users.roles(user) & {Role.SUBSCRIBER, Role.ADMIN}
            if may and not worker.active:
                worker.begin()
            elif not may and worker.active and (task := worker.leave()) is not None:
                task.cancel()

    def _take(self, row: Webhook) -> None:
        """Add a stored webhook. Unless it is parked, it sends from the next `_look` on."""
        self._rows[row.user] = row
        key = self._key.read()
        if row.parked is None and key is not None:
            secret = signing.secret(key, row.user, row.salt)
            self._workers[row.user] = _Worker(row, secret, self)

    async def _change(self, row: Webhook) -> None:
        """Store a webhook, and restart its worker."""
        await self.pipeline.asides.ask(self._table.put, row)
        worker = self._workers.pop(row.user, None)
        if worker is not None:
            await worker.end()
        self._take(row)
        self._look()

    async def park(self, worker: _Worker, reason: str) -> None:
        """Park a webhook: send no more until its user resumes it."""
        user = worker.user
        worker.leave()
        if self._workers.get(user) is not worker:
            return
        del self._workers[user]
        self.requests["parked"] += 1
        row = self._rows[user]._replace(parked=time.time(), reason=reason, failures=worker.failures)
        self._rows[user] = row
        await self._note(row)

    async def note_failures(self, worker: _Worker) -> None:
        """Store the number of failures: a server that restarts often must park it, too."""
        user = worker.user
        if self._workers.get(user) is worker:
            row = self._rows[user] = self._rows[user]._replace(failures=worker.failures)
            await self._note(row)

    async def _note(self, row: Webhook) -> None:
        try:
            await self.pipeline.asides.ask(self._table.note, row)
        except BusyError:
            _log.warning("the state of a webhook could not be written; a restart loses it")

    async def _forget(self, user: str) -> None:
        """Remove the webhook of a removed user."""
        async with self._changing:
            await self._remove(user)

    async def _remove(self, user: str) -> None:
        await self.pipeline.asides.ask(self._table.remove, user)
        self._rows.pop(user, None)
        worker = self._workers.pop(user, None)
        if worker is not None:
            await worker.end()

    # -- what users ask for ----------------------------------------------------------------------------------

    async def put(self, who: Identity, url: str) -> WebhookState:
        """Send the user's deliveries to a URL from now on, signed with a new secret.

        Raises
        ------
        RequestError
            The URL is wrong, or may not be a webhook.
        """
        who.require(Role.SUBSCRIBER)
        try:
            host, port = targets.check(url, self.sender.private)
            if not self.sender.private:
                async with asyncio.timeout(TIMEOUT):
                    resolve = self.sender.lane(quick=False).resolve
                    await targets.addresses(host, port, resolve, private=False)
        except targets.TargetError as error:
            raise RequestError(f"url: {error}") from None
        except TimeoutError:
            raise RequestError("url: the name of its host cannot be resolved") from None
        return await self._renew(who, url)

    async def renew(self, who: Identity) -> WebhookState:
        """Sign with a new secret from now on; a webhook that is parked stays so."""
        who.require(Role.SUBSCRIBER)
        self._row(who.user)
        return await self._renew(who, None)

    async def _renew(self, who: Identity, url: str | None) -> WebhookState:
        user = who.user
        async with self._change_of(who):
            try:
                key = await self.pipeline.asides.beside.run(self._key.made)
            except OSError:
                _log.exception("the key of webhooks cannot be read or written")
                raise BusyError("the server cannot make secrets now; try again", 5.0) from None
            salt, now = os.urandom(16), time.time()
            if url is not None:
                row = Webhook(user, url, salt, signing.mark(key), now)
            else:
                row = self._row(user)._replace(salt=salt, key=signing.mark(key), failures=0)
            await self._change(row)
            secret = signing.shown(signing.secret(key, user, salt))
            return msgspec.structs.replace(self._state(row), secret=secret)

    async def resume(self, who: Identity) -> WebhookState:
        """Send again to a parked webhook, from the first delivery on. A waiting one tries again at once."""
        who.require(Role.SUBSCRIBER)
        async with self._change_of(who):
            row = self._row(who.user)
            key = await self.pipeline.asides.beside.run(self._key.read)
            if key is None or signing.mark(key) != row.key:
                raise ConflictError("the secret of the webhook is lost; make a new one first")
            await self._change(row._replace(parked=None, reason=None, failures=0))
            return self._state(self._row(who.user))

    async def remove(self, who: Identity, user: str | None = None) -> None:
        """Remove the webhook; for admins also another user's."""
        whose = self._whose(who, user)
        async with self._change_of(who):
            self._row(whose)
            await self._remove(whose)

    @asynccontextmanager
    async def _change_of(self, who: Identity) -> AsyncIterator[None]:
        """Let a user who may stay change a webhook, when no other one is being changed."""
        async with self._changing:
            self.pipeline.users.require_still(who)
            yield

    def show(self, who: Identity, user: str | None = None) -> WebhookState:
        """Return the webhook of the user; for admins also another user's."""
        return self._state(self._row(self._whose(who, user)))

    def _whose(self, who: Identity, user: str | None) -> str:
        who.require(Role.SUBSCRIBER if user is None else Role.ADMIN)
        return who.user if user is None else user

    def _row(self, user: str) -> Webhook:
        try:
            return self._rows[user]
        except KeyError:
            raise UnknownError("there is no webhook; make one with PUT /webhook") from None

    def _state(self, row: Webhook) -> WebhookState:
        worker = self._workers.get(row.user)
        if worker is None:
            return WebhookState(
                user=row.user,
                url=row.url,
                state="parked",
                since=row.parked or row.made,
                reason=row.reason,
                failures=row.failures,
            )
        state = "stopped" if not worker.active else "active" if worker.next_try is None else "waiting"
        return WebhookState(
            user=row.user,
            url=row.url,
            state=state,
            since=row.made,
            failures=worker.failures,
            last_status=worker.last and worker.last.status,
            last_error=worker.last and worker.last.error,
            next_try=worker.next_try,
        )

    # -- what is counted -------------------------------------------------------------------------------------

    def _states(self) -> dict[str, int]:
        parked = sum(row.parked is not None for row in self._rows.values())
        return {"active": len(self._rows) - parked, "parked": parked}
