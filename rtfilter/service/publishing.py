"""Events of publishers, and deliveries, as users ask for them and as the log ends them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from rtfilter.service.concurrency import Turn
from rtfilter.service.hosted import Hosted
from rtfilter.service.owners import OF_SITE, REMOVED
from rtfilter.service.records import Sending, UserDelivery, fitting
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError, UnknownError
from rtfilter.service.stages import StagePart, Stages
from rtfilter.service.writing import key_of_request
from rtfilter.store.log_tables import Entry, Kind, RequestKey

MOST_UNMATCHED: Final = 200_000
"""Most entries that wait to be matched."""
MANY: Final = 1000
"""Events from which on their entries are made in a thread."""


class Publishing(StagePart):
    """Publishes events."""

    def __init__(self, stages: Stages, filters: Hosted) -> None:
        super().__init__(stages)
        self._filters = filters
        self.stopping = False
        """True if no more events are accepted, since the server ends."""

    async def publish(
        self,
        who: Identity,
        filter: str,
        events: Sequence[bytes],
        key: str | None = None,
        arrived: float | None = None,
    ) -> list[int]:
        """Return the positions of events of `Parse`, once they are durable. For publishers.

        Events that the publisher sends again with the same `key` are stored once. Response times count from
        `arrived` on, by `time.perf_counter`, by default from now.
        """
        who.require(Role.PUBLISHER)
        if self.stopping:
            raise stopping()
        index = self._filters.index(filter)
        self._users.admit(who, len(events))
        if self._match.waiting > MOST_UNMATCHED:
            raise BusyError("too many events wait to be matched; try again", 1.0)
        if any(self._owners.of_both[user, filter] for user in self._deliver.full):
            raise BusyError("a subscriber's backlog is full; try again", 5.0)
        now = time.perf_counter()
        arrived = now if arrived is None else arrived
        at = self._clock(now - arrived)

        def made() -> tuple[list[Entry], RequestKey | None]:
            entries = [Entry(Kind.EVENT, filter, who.user, body, at=at, arrived=arrived) for body in events]
            return entries, key_of_request(who.user, key, [b"publish", filter.encode(), *events])

        entries, known = made() if len(events) < MANY else await self._asides.beside.run_for(who.user, made)
        if self._filters.index(filter) is not index:
            raise UnknownError(f"the filter {filter!r} was removed")
        self._users.require_still(who)
        return list(await self._store.put(entries, known))


def stopping() -> BusyError:
    """Return the error for requests that come while the server ends."""
    return BusyError("the server is stopping; try again", 1.0)


class Delivering(StagePart):
    """The deliveries of users."""

    def pending(self, who: Identity) -> list[UserDelivery]:
        """Return the user's unacknowledged deliveries, by position."""
        who.require(Role.SUBSCRIBER)
        return sorted(self._deliver.backlog(who.user).pending.values(), key=attrgetter("position"))

    def pull(
        self, who: Identity, limit: int, after: int = 0
    ) -> tuple[list[tuple[UserDelivery, Sending]], int | None]:
        """Return the first pending deliveries above a position, counted as sent, with the data beside each.

        Also return the position to continue after, or None if there are no more.
        """
        left = [one for one in self.pending(who) if one.position > after]
        found = left[: min(limit, fitting((one.size for one in left), self._message))]
        backlog = self._deliver.backlog(who.user)
        there = (backlog.get(one.position) for one in found)
        sent = [(one, backlog.note_sent(one.position)) for one in there if one is not None]
        return sent, found[-1].position if len(found) < len(left) else None

    async def acknowledge(self, who: Identity, positions: Iterable[int]) -> None:
        """Remove acknowledged deliveries, durably; other positions are ignored. After an error, they stay."""
        who.require(Role.SUBSCRIBER)
        taken = list(positions)
        last = min(max(taken, default=0), self._match.begun)
        await self._match.reached_soon(last)  # it may be one of an earlier run
        undo = self._deliver.acknowledge(who.user, taken)
        await self._store.flush(who.user, undo)

    def end(self, position: int, entry: Entry) -> None:
        """Deliver the end of a subscription, unless its user has removed it, and receives nothing now.

        Another site does not get the ends of its subscriptions, which it has removed itself.
        """
        if entry.manner == OF_SITE:
            return
        reason = msgspec.json.decode(entry.body)["reason"]
        if reason != REMOVED or self._deliver.receives(entry.user):
            assert entry.subscription is not None
            self._deliver.end(position, entry.at, entry.filter, entry.user, entry.subscription, reason)

    def forget(self, removed: Mapping[str, Sequence[int]]) -> None:
        """Drop the deliveries of removed subscriptions, by user: of a few now, the others in later turns."""
        waits = self._deliver.forgetting  # for its next turn
        for user, ids in removed.items():
            self._deliver.forget(user, ids)
        if self._deliver.forgetting and not waits:
            self._rounds.join(self._forget_some)

    def _forget_some(self) -> None:
        turn = Turn(self._rounds)
        while self._deliver.forgetting:
            self._deliver.forget_some()
            if turn.over:
                break
        if self._deliver.forgetting:
            self._rounds.join(self._forget_some)
