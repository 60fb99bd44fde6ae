"""The status of a server: present numbers, and counts that only rise.

Two of them give the changes in between. All of it can be JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import nlargest, nsmallest
from typing import Any, Final, NamedTuple

from rtfilter.service.backlog import Backlog
from rtfilter.service.log_matcher import Index
from rtfilter.service.measures import Measures
from rtfilter.watch.metrics import Histogram

SLOWEST: Final = 10
"""Users that are shown."""


class Behind(NamedTuple):
    """A user with deliveries that are not acknowledged.

    Attributes
    ----------
    user : str
    pending : int
    oldest : float
        When the first of them arrived, in seconds since 1970.
    """

    user: str
    pending: int
    oldest: float


def slowest(backlogs: Mapping[str, Backlog]) -> list[Behind]:
    """Return the users with the longest backlogs and those with the oldest deliveries, the longest first."""
    behind = [
        Behind(user, len(backlog.pending), backlog.oldest)
        for user, backlog in backlogs.items()
        if backlog.pending
    ]
    longest = nlargest(SLOWEST // 2, behind, key=lambda one: one.pending)
    oldest = nsmallest(SLOWEST, behind, key=lambda one: one.oldest)
    others = [one for one in oldest if one not in longest]
    return sorted(longest + others[: SLOWEST - len(longest)], key=lambda one: (-one.pending, one.oldest))


def of_filters(indexes: Iterable[Index], measures: Measures) -> list[dict[str, Any]]:
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
    if not filter.metrics:
        return found
    totals = filter.metrics.totals()
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


def of_stages(measures: Measures) -> list[dict[str, Any]]:
    """Return the times of events in each stage, in the order of the stages."""
    return [
        {"name": stage, "count": int(found.counts.sum()), "sum": float(found.total)}
        for stage, found in measures.stages.items()
    ]
