"""The status of a server: present numbers, and counts that only rise."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from heapq import nlargest, nsmallest
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, Struct

from rtfilter import __version__
from rtfilter.filter import EventFilter, inside
from rtfilter.service.backlog import Backlog
from rtfilter.service.hosted import Hosted
from rtfilter.service.log_matcher import Index
from rtfilter.service.measures import Measures
from rtfilter.service.roles import Identity, Role
from rtfilter.service.sites.shown import SiteShown
from rtfilter.service.stages import StagePart, Stages
from rtfilter.watch.metrics import Histogram

SLOWEST: Final = 10
"""Users that are shown."""


class ResponseTimes(Struct):
    """A histogram of seconds."""

    bounds: Annotated[tuple[float, ...], Meta(description="Upper bounds of the buckets, but the last one.")]
    counts: Annotated[list[int], Meta(description="Events since the start in each bucket.")]
    sum: float


class PlanShown(Struct):
    """The plan for batches of one class of sizes."""

    size_class: Annotated[int, Meta(description="Batches of so many events, and of less than twice as many.")]
    batches: int
    level: Annotated[int, Meta(description="Down to which a batch shares a search of the index.")]
    group: Annotated[
        int | None, Meta(description="Events that are finished together; null for the whole batch.")
    ]
    stable: Annotated[bool, Meta(description="True if no other plan is being tried.")]


class EstimateShown(Struct):
    """Events by their estimated work."""

    nodes: Annotated[float | None, Meta(description="It was at most so many nodes; null where it was more.")]
    events: int
    visits: Annotated[int, Meta(description="Nodes that they were compared with.")]


class FilterStatus(Struct):
    """Counts of a filter since the start."""

    name: str
    subscriptions: int
    response: ResponseTimes | None = None
    height: Annotated[int | None, Meta(description="Levels of the index.")] = None
    events: int = 0
    matches: int = 0
    plans: list[PlanShown] = []
    estimates: list[EstimateShown] = []


class StageShown(Struct):
    """The time that events have spent in a stage since the start."""

    name: str
    count: Annotated[int, Meta(description="Events; or entries of the log, which has changes as well.")]
    sum: Annotated[float, Meta(description="Seconds of them all.")]


class BehindShown(Struct):
    """A user with deliveries that are not acknowledged."""

    user: str
    pending: int
    age: Annotated[float, Meta(description="Seconds since the oldest one arrived.")]
    connected: Annotated[bool, Meta(description="True if deliveries are sent at once.")]


class Status(Struct, kw_only=True):
    """The state of the server now. Two of them give the changes in between."""

    version: str
    open: Annotated[bool, Meta(description="True if the server has no users, and accepts every name.")]
    uptime: Annotated[float, Meta(description="Seconds since the start.")]
    ready: bool
    standby: Annotated[bool, Meta(description="True if another server has the database.")]
    waiting_entries: Annotated[int, Meta(description="Entries of the log that wait to be matched.")]
    waiting_bytes: Annotated[int, Meta(description="Bytes that wait to be written to the log.")]
    head: Annotated[int, Meta(description="The last position of the log.")]
    settled: Annotated[int, Meta(description="Position up to which all matches are known.")]
    subscriptions: int
    delivered: int
    redelivered: int
    acknowledged: int
    dropped: int
    expired: int
    waiting_deliveries: int
    slowest: Annotated[
        list[BehindShown], Meta(description="Users with the longest backlogs and the oldest deliveries.")
    ]
    stages: Annotated[list[StageShown], Meta(description="In the order in which events go through them.")]
    filters: list[FilterStatus]
    site: SiteShown | None


_COUNTS: Final = frozenset(Status.__struct_fields__) - {"filters"}


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

    async def of_server(self, who: Identity, ready: bool, standby: bool, site: SiteShown | None) -> Status:
        """Return the state of the server; `ready`, `standby` and `site` are of the pipeline. For admins."""
        who.require(Role.ADMIN)
        now, indexes = self._clock(), self._filters.all()
        behind = [
            BehindShown(user, len(one.pending), max(0.0, now - one.oldest), self._deliver.receives(user))
            for user, one in slowest(self._deliver.backlogs)
        ]
        counts = {name: count for name, count in self.counts.items() if name in _COUNTS}
        return Status(
            version=__version__,
            open=self._users.open,
            uptime=time.monotonic() - self._made,
            ready=ready,
            standby=standby,
            slowest=behind,
            site=site,
            stages=await self._asides.beside.run_for(who.user, _of_stages, self._measures),
            filters=await self._asides.beside.run_for(who.user, _of_filters, indexes, self._measures),
            **counts,
        )


def slowest(backlogs: Mapping[str, Backlog]) -> list[tuple[str, Backlog]]:
    """Return the users with the longest backlogs and those with the oldest deliveries, the longest first."""
    behind = [one for one in backlogs.items() if one[1].pending]
    longest = nlargest(SLOWEST // 2, behind, key=lambda one: len(one[1].pending))
    oldest = nsmallest(SLOWEST, behind, key=lambda one: one[1].oldest)
    others = [one for one in oldest if one not in longest]
    shown = longest + others[: SLOWEST - len(longest)]
    return sorted(shown, key=lambda one: (-len(one[1].pending), one[1].oldest))


def _of_filters(indexes: Iterable[Index], measures: Measures) -> list[FilterStatus]:
    """Return the numbers of each filter. Takes the locks of the indexes: not for the event loop."""
    response = measures.response
    return [_of_filter(one, response.get(one.info.name)) for one in indexes]


def _of_filter(index: Index, response: Histogram | None) -> FilterStatus:
    filter = index.filter
    found = FilterStatus(index.info.name, len(filter))
    if response is not None:
        found.response = ResponseTimes(response.bounds, response.counts.tolist(), float(response.total))
    metrics = inside(filter).metrics
    if metrics is None:
        return found
    totals = metrics.totals()
    found.height, found.events = totals.statistics.get("height"), totals.events
    found.matches = totals.matches
    classes: dict[str, dict[str, Any]] = totals.controller.get("classes", {})
    for size, state in sorted((int(label), state) for label, state in classes.items()):
        batches, stable = totals.batches.get(size, 0), state["mode"] == "STABLE"
        found.plans.append(PlanShown(size, batches, state["level"], state["group"], stable))
    for bound, events, visits in totals.estimated:
        found.estimates.append(EstimateShown(None if math.isinf(bound) else bound, events, visits))
    return found


def _of_stages(measures: Measures) -> list[StageShown]:
    """Return the times of events in each stage, in the order of the stages."""
    return [
        StageShown(stage, int(found.counts.sum()), float(found.total))
        for stage, found in measures.stages.items()
    ]


def _statistics(filter: EventFilter) -> dict[str, Any]:
    """Return the statistics of a filter that JSON can contain."""
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in filter.stats().items()
        if isinstance(value, str | int | float | bool | np.generic)
    }
