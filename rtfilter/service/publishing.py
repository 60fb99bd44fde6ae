"""Events of publishers: accepted, and stored in the log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rtfilter.service.hosted import Hosted
from rtfilter.service.roles import Identity, Role
from rtfilter.service.service_errors import BusyError, UnknownError
from rtfilter.service.stages import Stages
from rtfilter.service.writing import key_of_request
from rtfilter.store.log_tables import Entry, Kind, RequestKey

MOST_UNMATCHED: Final = 200_000
"""Most entries that wait to be matched."""
MANY: Final = 1000
"""Events from which on their entries are made in a thread."""


class Publishing:
    """Publishes events.

    Attributes
    ----------
    stopping : bool
        True if no more events are accepted, since the server ends.
    """

    def __init__(self, stages: Stages, filters: Hosted) -> None:
        self._store, self._match, self._deliver = stages.store, stages.match, stages.deliver
        self._owners, self._users, self._asides = stages.owners, stages.users, stages.asides
        self._clock, self._filters = stages.clock, filters
        self.stopping = False

    def stop(self) -> None:
        """Accept no more events."""
        self.stopping = True

    async def publish(
        self,
        who: Identity,
        filter: str,
        events: Sequence[bytes],
        key: str | None = None,
        arrived: float | None = None,
    ) -> list[int]:
        """Return the positions of events, once they are durable. For publishers.

        Parameters
        ----------
        events : sequence of bytes
            As `Parse` returns them.
        key : str, optional
            Idempotency key of this publisher: events that are sent again with it are stored once.
        arrived : float, optional
            When they reached the server, by `time.perf_counter`, from which on response times count. By
            default now.
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
