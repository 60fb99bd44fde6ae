"""What must survive a restart is kept first, and what follows from it is sent then, all in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rtfilter.overlay.broker import Out
from rtfilter.overlay.running.clients import Work
from rtfilter.store.brokers import BrokerStore


class Keeper:
    """Keeps and sends.

    While nothing is to be kept, what is to be sent goes at once. Otherwise it waits, also what comes later;
    all that has come until a transaction begins is kept in it.

    Parameters
    ----------
    store : BrokerStore
    send : callable
    """

    def __init__(self, store: BrokerStore, send: Callable[[Out], None]) -> None:
        self._store, self._send = store, send
        self._waiting: list[Work] = []
        self._busy = False
        self._wake = asyncio.Event()

    def do(self, work: Work) -> None:
        """Keep and send what is in it."""
        if work.changes or self._busy:
            self._waiting.append(work)
            self._busy = True
            self._wake.set()
            return
        for one in work.out:
            self._send(one)

    async def run(self) -> None:
        """Do so for ever. Raises what the store does."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Keep and send all that waits."""
        while self._waiting:
            works, self._waiting = self._waiting, []
            changes = [change for work in works for change in work.changes]
            if changes:
                await asyncio.to_thread(self._store.commit, changes)
            for work in works:
                for one in work.out:
                    self._send(one)
        self._busy = False
