"""All webhooks of the server, one of a user at most."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from rtfilter.service.pipeline import Pipeline
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError, ConflictError, RequestError, UnknownError
from rtfilter.service.webhooks import signing, targets
from rtfilter.service.webhooks.sending import TIMEOUT, Sender
from rtfilter.service.webhooks.worker import Worker
from rtfilter.store.webhook_table import Webhook, WebhookTable

LOOK: Final = 1.0
"""Seconds between two checks whether users may still have webhooks."""
TRIES: Final = 12
FIRST: Final = 1.0
"""Seconds before the second try."""
LOST: Final = "the key of the server that its secret was made with is lost; make a new secret, then resume"
_log = logging.getLogger(__name__)


class WebhookState(NamedTuple):
    """A webhook as its user sees it: see `rtfilter.service.doors.webhook_doors.WebhookShown`.

    `secret` is only there where it was made just now.
    """

    user: str
    url: str
    state: str
    since: float
    reason: str | None
    failures: int
    last_status: int | None
    last_error: str | None
    next_try: float | None
    secret: str | None = None


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
        self._table, self._key, self._pipeline, self._sender = table, key, pipeline, sender
        self._tries, self._first = tries, first
        self._rows: dict[str, Webhook] = {}
        self._workers: dict[str, Worker] = {}
        self._requests = pipeline.measures.webhook_requests
        pipeline.measures.webhooks = self._states
        self._changing = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read all webhooks, and continue to send."""
        rows = await self._pipeline.asides.beside.run(self._table.read)
        key = await self._pipeline.asides.beside.run(self._key.read)
        for row in rows:
            if row.parked is None and (key is None or signing.mark(key) != row.key):
                row = row._replace(parked=time.time(), reason=LOST)
                await self._note(row)
            self._take(row)
        self._pipeline.presence.forgets.append(self._forget)
        self._look()
        self._watch = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop all webhooks. Unacknowledged deliveries stay in the backlogs."""
        if self._watch is not None:
            self._watch.cancel()
        for worker in list(self._workers.values()):
            await worker.end()
        await self._sender.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self._look()

    def _look(self) -> None:
        """Start the workers of users who may subscribe, and stop all others."""
        for user, worker in self._workers.items():
            may = self._pipeline.users.roles(user) & {Role.SUBSCRIBER, Role.ADMIN}
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
            self._workers[row.user] = Worker(
                row,
                secret,
                self._pipeline,
                self._sender,
                self._tries,
                self._first,
                self._park,
                self._count,
                self._requests,
            )

    async def _change(self, row: Webhook) -> None:
        """Store a webhook, and restart its worker."""
        await self._pipeline.asides.ask(self._table.put, row)
        worker = self._workers.pop(row.user, None)
        if worker is not None:
            await worker.end()
        self._take(row)
        self._look()

    async def _park(self, worker: Worker, reason: str) -> None:
        """Park a webhook: send no more until its user resumes it."""
        user = worker.user
        worker.leave()
        if self._workers.get(user) is not worker:
            return
        del self._workers[user]
        self._requests["parked"] += 1
        row = self._rows[user]._replace(parked=time.time(), reason=reason, failures=worker.failures)
        self._rows[user] = row
        await self._note(row)

    async def _count(self, worker: Worker) -> None:
        """Store the number of failures: a server that restarts often must park it, too."""
        user = worker.user
        if self._workers.get(user) is worker:
            row = self._rows[user] = self._rows[user]._replace(failures=worker.failures)
            await self._note(row)

    async def _note(self, row: Webhook) -> None:
        try:
            await self._pipeline.asides.ask(self._table.note, row)
        except BusyError:
            _log.warning("the state of a webhook could not be written; a restart loses it")

    async def _forget(self, user: str) -> None:
        """Remove the webhook of a removed user."""
        async with self._changing:
            await self._remove(user)

    async def _remove(self, user: str) -> None:
        await self._pipeline.asides.ask(self._table.remove, user)
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
            host, port = targets.check(url, self._sender.private)
            if not self._sender.private:
                async with asyncio.timeout(TIMEOUT):
                    resolve = self._sender.lane(quick=False).resolve
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
                key = await self._pipeline.asides.beside.run(self._key.made)
            except OSError:
                _log.exception("the key of webhooks cannot be read or written")
                raise BusyError("the server cannot make secrets now; try again", 5.0) from None
            salt, now = os.urandom(16), time.time()
            if url is not None:
                row = Webhook(user, url, salt, signing.mark(key), now)
            else:
                row = self._row(user)._replace(salt=salt, key=signing.mark(key), failures=0)
            await self._change(row)
            return self._state(row)._replace(secret=signing.shown(signing.secret(key, user, salt)))

    async def resume(self, who: Identity) -> WebhookState:
        """Send again to a parked webhook, from the first delivery on. A waiting one tries again at once."""
        who.require(Role.SUBSCRIBER)
        async with self._change_of(who):
            row = self._row(who.user)
            key = await self._pipeline.asides.beside.run(self._key.read)
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
            self._pipeline.users.require_still(who)
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
            since = row.parked or row.made
            return WebhookState(
                row.user, row.url, "parked", since, row.reason, row.failures, None, None, None
            )
        status, error = (None, None) if worker.last is None else worker.last[:2]
        state = "stopped" if not worker.active else "active" if worker.next_try is None else "waiting"
        return WebhookState(
            row.user, row.url, state, row.made, None, worker.failures, status, error, worker.next_try
        )

    # -- what is counted -------------------------------------------------------------------------------------

    def _states(self) -> dict[str, int]:
        parked = sum(row.parked is not None for row in self._rows.values())
        return {"active": len(self._rows) - parked, "parked": parked}
