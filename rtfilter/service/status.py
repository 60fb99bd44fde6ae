"""The status of a server: present numbers, and counts that only rise.

Two of them give the changes in between. All of it can be JSON.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from heapq import nlargest, nsmallest
from typing import Any, Final

import numpy as np

from rtfilter.filter import EventFilter, inside
from rtfilter.service.backlog import Backlog
from rtfilter.service.hosted import Hosted
from rtfilter.service.log_matcher import Index
from rtfilter.service.measures import Measures
from rtfilter.service.roles import Identity, Role
from rtfilter.service.stages import StagePart, Stages
from rtfilter.watch.metrics import Histogram

SLOWEST: Final = 10
"""Users that are shown."""


class Numbers(StagePart):
    """The numbers of a server."""

    def __init__(self, stages: Stages, filters: Hosted) -> None:
        super().__init__(stages)
        self._filters = filters
        self._made = time.monotonic()

    @property
    def counts(self) -> dict[str, int]:
        """Whole numbers by name: deliveries since the start by outcome, and what waits."""
        backlogs = [backlog for backlog in self._deliver.backlogs.values() if backlog.pending]
        sizes = [len(backlog.pending) for backlog in backlogs]
        oldest = min((backlog.oldest for backlog in backlogs), default=math.inf)
        return {
            "published": self._measures.published,
            **self._deliver.counts,
            "waiting_deliveries": sum(sizes),
            "longest_backlog": max(sizes, default=0),
            "backlog_bytes": sum(backlog.bytes for backlog in backlogs),
            "backlog_oldest_seconds": int(max(0.0, self._clock() - oldest)),
            "waiting_entries": self._match.waiting,
            "waiting_bytes": self._store.waiting,
            "head": self._log.head,
            "settled": self._match.settled,
            "subscriptions": len(self._owners),
            "users_with_subscriptions": len(self._owners.of_user),
            "filters": len(self._indexes),
        }

    async def of_user(self, who: Identity) -> dict[str, Any]:
        """Return statistics of the user; for admins also of the server and its filters."""
        backlog = self._deliver.backlog(who.user)
        found: dict[str, Any] = {
            "user": who.user,
            "subscriptions": self._owners.of_user[who.user],
            "pending": len(backlog.pending),
            "dropped": backlog.dropped,
        }
        if Role.ADMIN in who.roles:
            found["server"] = self.counts
            indexes = self._filters.all()
            found["filters"] = await self._asides.beside.run_for(
                who.user, lambda: {index.info.name: _statistics(index.filter) for index in indexes}
            )
        return found

    async def of_server(self, who: Identity) -> dict[str, Any]:
        """Return present numbers, and counts that only rise. For admins."""
        who.require(Role.ADMIN)
        now, indexes = self._clock(), self._filters.all()
        return {
            "uptime": time.monotonic() - self._made,
            **self.counts,
            "slowest": [
                {
                    "user": user,
                    "pending": len(backlog.pending),
                    "age": max(0.0, now - backlog.oldest),
                    "connected": self._deliver.receives(user),
                }
                for user, backlog in slowest(self._deliver.backlogs)
            ],
            "stages": await self._asides.beside.run_for(who.user, _of_stages, self._measures),
            "filters": await self._asides.beside.run_for(who.user, _of_filters, indexes, self._measures),
        }


def slowest(backlogs: Mapping[str, Backlog]) -> list[tuple[str, Backlog]]:
    """Return the users with the longest backlogs and those with the oldest deliveries, the longest first."""
    behind = [one for one in backlogs.items() if one[1].pending]
    longest = nlargest(SLOWEST // 2, behind, key=lambda one: len(one[1].pending))
    oldest = nsmallest(SLOWEST, behind, key=lambda one: one[1].oldest)
    others = [one for one in oldest if one not in longest]
    shown = longest + others[: SLOWEST - len(longest)]
    return sorted(shown, key=lambda one: (-len(one[1].pending), one[1].oldest))


def _of_filters(indexes: Iterable[Index], measures: Measures) -> list[dict[str, Any]]:
    """Return the numbers of each filter. Takes the locks of the indexes: not for the event loop."""
    response = measures.response
    return [_of_filter(one, response.get(one.info.name)) for one in indexes]


def _of_filter(index: Index, response: Histogram | None) -> dict[str, Any]:
    filter = index.filter
    found: dict[str, Any] = {"name": index.info.name, "subscriptions": len(filter)}
    if response is not None:
        found["response"] = {
            "bounds": list(response.bounds),
            "counts": response.counts.tolist(),  # of each bucket; the last has all above the last bound
            "sum": float(response.total),
        }
    metrics = inside(filter).metrics
    if metrics is None:
        return found
    totals = metrics.totals()
    classes: dict[str, dict[str, Any]] = totals.controller.get("classes", {})
    return found | {
        "height": totals.statistics.get("height"),
        "events": totals.events,
        "matches": totals.matches,
        "plans": [
            {
                "size_class": int(label),
                "batches": totals.batches.get(int(label), 0),
                "level": state["level"],
                "group": state["group"],  # None: the whole batch
                "stable": state["mode"] == "STABLE",
            }
            for label, state in sorted(classes.items(), key=lambda one: int(one[0]))
        ],
        "estimates": [
            {"nodes": None if math.isinf(bound) else bound, "events": events, "visits": visits}
            for bound, events, visits in totals.estimated
        ],
    }


def _of_stages(measures: Measures) -> list[dict[str, Any]]:
    """Return the times of events in each stage, in the order of the stages."""
    return [
        {"name": stage, "count": int(found.counts.sum()), "sum": float(found.total)}
        for stage, found in measures.stages.items()
    ]


def _statistics(filter: EventFilter) -> dict[str, Any]:
    """Return the statistics of a filter that JSON can contain."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in filter.stats().items()
        if isinstance(value, str | int | float | bool | np.generic)
    }
