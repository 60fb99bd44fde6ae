"""Deliveries of users, as they ask for them, and as the log ends them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from rtfilter.service.owners import REMOVED
from rtfilter.service.records import Sending, UserDelivery, fitting
from rtfilter.service.roles import Identity, Role
from rtfilter.service.rounds import Turn
from rtfilter.service.stages import Stages
from rtfilter.store.log_tables import Entry


class Delivering:
    """The deliveries of users."""

    def __init__(self, stages: Stages) -> None:
        self._store, self._match, self._deliver = stages.store, stages.match, stages.deliver
        self._rounds, self._message = stages.rounds, stages.message

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
        """Deliver the end of a subscription, unless its user has removed it, and receives nothing now."""
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
