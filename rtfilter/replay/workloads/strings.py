"""Requests to services, and subscriptions to their text: equalities, prefixes and sets of strings.

Services, regions, hosts and parts of paths are drawn with weight 1/r, so a few of them are frequent in
requests and subscriptions. A subscription to a path constrains its beginning, which may end anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter.events.schema import Schema
from rtfilter.replay.workloads.base import EVENTS, SUBSCRIPTIONS, Workload, blocks

if TYPE_CHECKING:
    from rtfilter.predicates.predicate import Source

SCHEMA = Schema({"service": str, "region": str, "host": str, "path": str, "user": str, "status": int})
SERVICES, REGIONS, HOSTS, USERS = 300, 24, 2000, 50_000
PARTS = (20, 30, 200, 5000)
"""The number of names for each part of a path."""
STATUSES = (200, 204, 301, 400, 403, 404, 429, 500, 502, 503)
KINDS = (0.35, 0.3, 0.15, 0.1, 0.1)
"""Shares of subscriptions to a service and a path; a path; a host; a user; failing services of a region."""


@dataclass(frozen=True)
class StringsWorkload(Workload):
    """Requests as events, conditions on them as subscriptions."""

    def subscriptions(self, start: int, count: int) -> list[Source]:
        """Return event patterns `start` to `start + count`."""
        parts = blocks(_rules, self.seed, SUBSCRIPTIONS, start, count)
        return [rule for rules, rows in parts for rule in rules[rows]]

    def events(self, start: int, count: int) -> Any:
        """Return requests `start` to `start + count`, as dicts."""
        parts = blocks(_requests, self.seed, EVENTS, start, count)
        return [request for requests, rows in parts for request in requests[rows]]


def _requests(rng: np.random.Generator, rows: int) -> list[dict[str, Any]]:
    columns = {
        "service": [f"service-{k}" for k in _popular(rng, SERVICES, rows)],
        "region": [f"region-{k}" for k in _popular(rng, REGIONS, rows)],
        "host": [f"rack{k // 40:02}-node{k % 40:02}.internal" for k in _popular(rng, HOSTS, rows)],
        "path": _paths(rng, rows),
        "user": [f"user{k:06}" for k in rng.integers(USERS, size=rows).tolist()],
        "status": rng.choice(STATUSES, rows).tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _rules(rng: np.random.Generator, rows: int) -> list[Source]:
    kinds = rng.choice(len(KINDS), rows, p=KINDS).tolist()
    lengths = rng.random(rows).tolist()
    others = np.array(_popular(rng, SERVICES, 3 * rows)).reshape(rows, 3).tolist()
    least = rng.choice((400, 429, 500), rows).tolist()
    drawn = zip(kinds, _requests(rng, rows), lengths, others, least, strict=True)
    return [_rule(*row) for row in drawn]


def _rule(kind: int, request: dict[str, Any], length: float, others: list[int], least: int) -> Source:
    path = request["path"]
    beginning = {"prefix": path[: max(2, int(length * (len(path) + 1)))]}
    failed = {"numeric": [">=", least]}
    match kind:
        case 0:
            return {"service": [request["service"]], "path": [beginning]}
        case 1:
            return {"path": [beginning], "status": [failed]}
        case 2:
            return {"host": [{"prefix": request["host"][: 6 + int(8 * length)]}], "status": [failed]}
        case 3:
            return {"user": [request["user"]]}
        case _:
            services = sorted({f"service-{k}" for k in others})
            return {"region": [request["region"]], "service": list(services), "status": [failed]}


def _paths(rng: np.random.Generator, rows: int) -> list[str]:
    parts = [_popular(rng, names, rows) for names in PARTS]
    return [f"/api{a}/v{b}/kind{c}/{d:04}" for a, b, c, d in zip(*parts, strict=True)]


def _popular(rng: np.random.Generator, names: int, count: int) -> list[int]:
    """Return numbers below `names`, number k with weight 1 / (k + 1)."""
    weights = 1 / np.arange(1, names + 1)
    chosen: list[int] = rng.choice(names, count, p=weights / weights.sum()).tolist()
    return chosen


def make(seed: int) -> StringsWorkload:
    """Make the workload of a seed."""
    return StringsWorkload("strings", SCHEMA, seed)
