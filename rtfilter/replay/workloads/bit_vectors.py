"""Events that are vectors of bits, and subscriptions that constrain some of them (Mohapatra et al.).

As in the survey there are 50 attributes, each true or false. A subscription constrains few of them, to true
as often as to false. Events have few ones, few zeros, or as many of both: the survey's heuristics differ in
the kind for which they are good.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rtfilter.basics.dtypes import BoolArray
from rtfilter.events.schema import Schema
from rtfilter.replay.workloads.base import EVENTS, SUBSCRIPTIONS, Workload, blocks

if TYPE_CHECKING:
    from rtfilter.predicates.predicate import Source

ATTRIBUTES = 50
ASKED = 0.2
"""Probability that a subscription constrains an attribute."""
ONES = (0.02, 0.06, 0.1, 0.5, 0.9, 0.94, 0.98)
"""Shares of ones in events; each draws one of these."""


@dataclass(frozen=True)
class BitsWorkload(Workload):
    """Vectors of bits."""

    def subscriptions(self, start: int, count: int) -> list[Source]:
        """Return event patterns `start` to `start + count`; one without any constraint gets one."""
        names = self.schema.names
        sources: list[Source] = []
        for (asked, values), rows in blocks(_asked, self.seed, SUBSCRIPTIONS, start, count):
            for wanted, own in zip(asked[rows], values[rows].tolist(), strict=True):
                sources.append({names[j]: [own[j]] for j in np.flatnonzero(wanted).tolist()})
        return sources

    def events(self, start: int, count: int) -> Any:
        """Return bits of events `start` to `start + count`, bool (count, 50)."""
        parts = blocks(_bits, self.seed, EVENTS, start, count)
        return np.concatenate([values[rows] for values, rows in parts])


def _asked(rng: np.random.Generator, rows: int) -> tuple[BoolArray, BoolArray]:
    """Draw the constrained attributes, at least one per row, and their values; bool (rows, 50) both."""
    asked = rng.random((rows, ATTRIBUTES)) < ASKED
    asked[np.arange(rows), rng.integers(ATTRIBUTES, size=rows)] = True
    return asked, rng.random((rows, ATTRIBUTES)) < 0.5


def _bits(rng: np.random.Generator, rows: int) -> BoolArray:
    return rng.random((rows, ATTRIBUTES)) < rng.choice(ONES, (rows, 1))


def make(seed: int) -> BitsWorkload:
    """Make the workload of a seed."""
    return BitsWorkload("bits", Schema({f"b{j}": bool for j in range(1, ATTRIBUTES + 1)}), seed)
