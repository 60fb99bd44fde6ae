"""A standby: it follows the log that another server owns, with warm indexes, until it takes over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from rtfilter.basics.errors import RTFilterError
from rtfilter.service.hosted import Hosted
from rtfilter.service.stages import StagePart, Stages
from rtfilter.store.log_tables import Logged

LOOK: Final = 0.2
"""Seconds between two looks at the log, and at the lock of its owner."""
TOGETHER: Final = 10_000
"""Changes that are read and applied at once."""
_log = logging.getLogger(__name__)


class BehindError(RTFilterError):
    """The log has lost changes that were not followed."""


class Standby(StagePart):
    """Keeps indexes and owners as of a settled position of the log, which another server moves.

    Later changes stay in the log: the events among them are matched again after a take-over.
    """

    def __init__(self, stages: Stages, filters: Hosted) -> None:
        super().__init__(stages)
        self._filters, self._away = filters, False

    def open(self) -> None:
        """Build the indexes from the log. Raises `VersionError` if it is of another version."""
        state = self._log.follow()
        settled = 0 if state is None else state.settled
        self._filters.build(settled)
        self._filters.read_owners(settled)
        self._move(settled)
        _log.info("following the log from position %d on", settled)

    def _move(self, settled: int) -> None:
        self._match.settled = self._match.taken = settled
        self._owners.settle(settled)

    async def run(self, take: Callable[[], bool]) -> None:
        """Follow until `take`, which is called in a thread, has got the lock of the log's owner.

        Raises `BehindError`, and `VersionError` as `open` does.
        """
        while True:
            try:
                if await asyncio.to_thread(take):
                    return
                await self._follow()
                self._note(None)
            except SQLAlchemyError as error:
                self._note(error)
            await asyncio.sleep(LOOK)

    def _note(self, error: Exception | None) -> None:
        """Log that the database cannot be reached, and that it can again, once each."""
        if error is not None and not self._away:
            _log.error("the log cannot be followed: %s", getattr(error, "orig", None) or error)
        elif error is None and self._away:
            _log.warning("the log is followed again")
        self._away = error is not None

    async def _follow(self) -> None:
        state = await asyncio.to_thread(self._log.follow)
        if state is None:
            return
        if state.trimmed > self._match.settled:
            raise BehindError("the log has lost changes that were not followed; start the standby again")
        await self.catch_up(state.settled)

    async def catch_up(self, settled: int) -> None:
        """Apply the changes up to a position."""
        await self._filters.follow()
        changes = self._log.changes(self._match.settled, settled)
        while some := await asyncio.to_thread(list, islice(changes, TOGETHER)):
            await self._apply(some)
            self._move(some[-1].position)
        self._move(settled)

    async def _apply(self, changes: list[Logged]) -> None:
        of: dict[str, list[Logged]] = {}
        for one in changes:
            if self._filters.had(one.entry.filter, one.position):
                of.setdefault(one.entry.filter, []).append(one)
        for name, mine in of.items():
            await self._asides.beside.run(self._indexes[name].change, mine)
        for position, entry in changes:
            self._owners.change(position, entry)
