"""The stages of entries of the log, and what else the parts behind the doors share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from rtfilter.service.access import Access
from rtfilter.service.concurrency import Asides, Rounds, Turn
from rtfilter.service.deliver import Deliver, Owned
from rtfilter.service.log_matcher import Index, LogMatcher
from rtfilter.service.measures import Measures
from rtfilter.service.owners import Owners, expiry_of, removal_of
from rtfilter.service.service_errors import BusyError, ConflictError
from rtfilter.service.writing import Store
from rtfilter.store.log import Log

LOOKED_AT: Final = 2000
"""Subscriptions of all users that one step of `Ending.remove_all` reads."""
ENDED: Final = 250
"""Subscriptions that end together."""
RETRY: Final = 1.0
"""Seconds after which the end of a subscription that could not be written is tried again."""


class Clock:
    """Seconds since 1970. While the clock `beneath` is behind, this one runs at half the speed.

    Times ascend with positions in the log, so that a search by time works, and a subscription ends at the
    same event in this run and after a restart. At half the speed, the clock `beneath` catches up, and a
    subscription of a few seconds still ends soon.

    `least` is the last time in the log; `passing` has the seconds of a clock that is never set.
    """

    def __init__(
        self, beneath: Callable[[], float], least: float, passing: Callable[[], float] = time.monotonic
    ) -> None:
        self._beneath, self._last, self._passing = beneath, least, passing
        self._looked = passing()

    def pass_by(self, moment: float) -> None:
        """Return no time before a moment from now on."""
        self._last = max(self._last, moment)

    def __call__(self, since: float = 0.0) -> float:
        """Return the time `since` seconds ago, by default now, but never less than the last returned time."""
        before, self._looked = self._looked, self._passing()
        now = self._beneath()
        if now < self._last:
            self._last += (self._looked - before) / 2
        self._last = max(self._last, now - since)
        return self._last


class Stages(NamedTuple):
    """The stages, from the log to deliveries."""

    log: Log
    store: Store
    owners: Owners
    indexes: dict[str, Index]
    """By the names of filters; `Hosted` changes it."""
    match: LogMatcher
    deliver: Deliver
    users: Access
    asides: Asides
    clock: Clock
    measures: Measures
    rounds: Rounds
    message: int
    """Most bytes of a message of a session, and, about, of a page of an answer."""


class StagePart:
    """A part behind the doors."""

    def __init__(self, stages: Stages) -> None:
        self._log, self._store, self._owners, self._indexes, self._match, self._deliver, *_ = stages
        self._users, self._asides, self._clock = stages.users, stages.asides, stages.clock
        self._measures, self._rounds, self._message = stages.measures, stages.rounds, stages.message


class Ending(StagePart):
    """Ends subscriptions: first in the log, whose entry then ends all else."""

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
