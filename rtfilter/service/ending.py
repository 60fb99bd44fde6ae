"""The ends of subscriptions: by their users, by time, with their filter, or with their user."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from rtfilter.service.deliver import Owned
from rtfilter.service.owners import expiry_of, removal_of
from rtfilter.service.rounds import Turn
from rtfilter.service.service_errors import BusyError, ConflictError
from rtfilter.service.stages import Stages

LOOKED_AT: Final = 2000
"""Subscriptions of all users that one step of `Ending.remove_all` reads."""
ENDED: Final = 250
"""Subscriptions that end together."""
RETRY: Final = 1.0
"""Seconds after which the end of a subscription that could not be written is tried again."""


class Ending:
    """Ends subscriptions: first in the log, whose entry then ends all else."""

    def __init__(self, stages: Stages) -> None:
        self._store, self._owners, self._rounds = stages.store, stages.owners, stages.rounds
        self._clock = stages.clock

    async def remove(self, owned: Owned, reason: str) -> None:
        """End a subscription; its user gets the reason."""
        await self._store.put([removal_of(owned, reason, self._clock(), time.perf_counter())])

    async def remove_all(self, chosen: Callable[[Owned], bool], reason: str) -> None:
        """End subscriptions in parts, so that others come in between. Ended ones are skipped."""
        mine, all, turn = list[Owned](), list(self._owners.values()), Turn(self._rounds)
        for first in range(0, len(all), LOOKED_AT):
            mine += filter(chosen, all[first : first + LOOKED_AT])
            await turn.pause()
        await _in_parts(self.remove(one, reason) for one in mine)

    async def expire_all(self, moment: float) -> None:
        """End expired subscriptions in the same way."""
        await _in_parts(self._expire(owned) for owned in self._owners.ended(moment))

    async def _expire(self, owned: Owned) -> None:
        try:
            await self._store.put([expiry_of(owned, self._clock(), time.perf_counter())])
        except BusyError:
            await asyncio.sleep(RETRY)
            self._owners.ends_again(owned.id)
            raise


async def _in_parts(ends: Iterable[Coroutine[Any, Any, None]]) -> None:
    left: Iterator[Coroutine[Any, Any, None]] = iter(ends)
    while some := list(islice(left, ENDED)):
        for ended in await asyncio.gather(*some, return_exceptions=True):
            if isinstance(ended, BaseException) and not isinstance(ended, ConflictError):
                raise ended
