"""The storage of state that must survive a restart; dependent work runs after it, or is refused.

While the disk is full, or the database is absent, a process continues with everything that needs no storage.
The log has one line at the beginning and one at the end. Requests of clients are refused meanwhile, before
they have any effect. Other changes, such as removals, are tried again until they are stored: a restart before
that has the old state, which loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from rtfilter.store.broker_store import BrokerStore, Change
from rtfilter.store.log import TakenError

AGAIN: Final = 1.0
"""Seconds after which a failed transaction is tried again."""
_log = logging.getLogger(__name__)


class Job(NamedTuple):
    """Changes to store, all or none.

    Attributes
    ----------
    changes : sequence of Change
    kept : callable, optional
        Called when they are stored.
    refused : callable, optional
        Called when they cannot be stored. Without it, they are tried again.
    """

    changes: Sequence[Change]
    kept: Callable[[], None] | None = None
    refused: Callable[[], None] | None = None


class Keeper:
    """Stores jobs in the order of their arrival; all that arrive before a transaction begins are part of it.

    Parameters
    ----------
    store : BrokerStore

    Attributes
    ----------
    failing : bool
        True if the last transaction has failed.
    """

    def __init__(self, store: BrokerStore) -> None:
        self._store = store
        self._waiting: list[Job] = []
        self._wake = asyncio.Event()
        self.failing = False

    def keep(self, job: Job) -> None:
        """Store a job soon."""
        self._waiting.append(job)
        self._wake.set()

    async def run(self) -> None:
        """Store jobs until cancelled. Raises `TakenError`, and the errors of `Job.kept` and `Job.refused`."""
        while True:
            try:
                async with asyncio.timeout(AGAIN if self._waiting else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await self.flush()

    async def flush(self) -> None:
        """Store all waiting jobs in one transaction."""
        self._wake.clear()
        jobs, self._waiting = self._waiting, []
        if not jobs:
            return
        try:
            await asyncio.to_thread(self._store.commit, [change for job in jobs for change in job.changes])
        except TakenError:
            raise
        except Exception as error:
            self._fails(error)
            self._waiting[:0] = [job for job in jobs if job.refused is None]
            calls = [job.refused for job in jobs]
        else:
            if self.failing:
                _log.warning("state can be stored again")
            self.failing = False
            calls = [job.kept for job in jobs]
        for call in calls:
            if call is not None:
                call()

    def _fails(self, error: Exception) -> None:
        if not self.failing:
            known = isinstance(error, SQLAlchemyError)
            _log.critical(
                "state cannot be stored, and requests are refused until it can: %s",
                getattr(error, "orig", None) or error,
                exc_info=None if known else error,
            )
        self.failing = True
