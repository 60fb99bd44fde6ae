"""Files on hosts, and subscriptions to ends of names: domains and sites of hosts, numbers and types of files.

Each subscription constrains one attribute only, and many names share their endings, so an index that knows
only the beginning of a text verifies all subscriptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter.events.schema import Schema
from rtfilter.replay.workloads.base import EVENTS, SUBSCRIPTIONS, Workload, blocks

if TYPE_CHECKING:
    from rtfilter.predicates.predicate import Source

SCHEMA = Schema({"host": str, "file": str})
NODES, SITES, DOMAINS, FILES = 200, 500, 40, 100_000
ENDINGS = ("jpg", "png", "parquet", "csv", "JSON")
KINDS = (0.3, 0.5, 0.2)
"""Shares of subscriptions to site and domain of a host, the end of a file, and a host in either case."""


@dataclass(frozen=True)
class SuffixesWorkload(Workload):
    """Files on hosts as events, conditions on the ends of their names as subscriptions."""

    def subscriptions(self, start: int, count: int) -> list[Source]:
        """Return event patterns `start` to `start + count`."""
        parts = blocks(_rules, self.seed, SUBSCRIPTIONS, start, count)
        return [rule for rules, rows in parts for rule in rules[rows]]

    def events(self, start: int, count: int) -> Any:
        """Return files `start` to `start + count`, as dicts."""
        parts = blocks(_files, self.seed, EVENTS, start, count)
        return [file for files, rows in parts for file in files[rows]]


def _files(rng: np.random.Generator, rows: int) -> list[dict[str, Any]]:
    nodes, sites, domains, files = (
        rng.integers(most, size=rows).tolist() for most in (NODES, SITES, DOMAINS, FILES)
    )
    endings = rng.choice(ENDINGS, rows).tolist()
    return [
        {"host": f"node{node}.site{site:03}.d{domain}.example.net", "file": f"part-{file:06}.{ending}"}
        for node, site, domain, file, ending in zip(nodes, sites, domains, files, endings, strict=True)
    ]


def _rules(rng: np.random.Generator, rows: int) -> list[Source]:
    kinds = rng.choice(len(KINDS), rows, p=KINDS).tolist()
    digits = rng.integers(2, 6, rows).tolist()
    return [_rule(*row) for row in zip(kinds, _files(rng, rows), digits, strict=True)]


def _rule(kind: int, file: dict[str, Any], digits: int) -> Source:
    host, name = file["host"], file["file"]
    match kind:
        case 0:
            return {"host": [{"suffix": host[host.index(".") :]}]}
        case 1:
            return {"file": [{"suffix": name[name.index(".") - digits :]}]}
        case _:
            return {"host": [{"equals-ignore-case": host.upper()}]}


def make(seed: int) -> SuffixesWorkload:
    """Make the workload of a seed."""
    return SuffixesWorkload("suffixes", SCHEMA, seed)
