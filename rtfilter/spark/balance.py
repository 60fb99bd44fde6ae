"""The decision to match events where they are, or to deal them out so that all tasks have equal work.

Dealing moves every event, which costs as much as visiting some leaves of the index. It pays if some cores
would otherwise wait longer than that for others. `decide` compares both, from the work of each
partition: `look` estimates it from some events of each, and a stream knows it from the batch before.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rtfilter.dtypes import FloatArray
from rtfilter.spark.blocks import Layout
from rtfilter.spark.looks import look
from rtfilter.spark.refusals import TaskEventReader
from rtfilter.spark.routes import Route
from rtfilter.spark.work import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Balance = bool | Literal["auto"]

#: Costs of an event beside its search, in visits of a leaf (about 0.16 us): to read it, to estimate its work
#: and send it where it is dealt to, and to take it there.
READ, SEND, TAKE = 10.0, 5.0, 3.0
#: Cost of a match in the result, in visits: Spark reads a row of it.
HIT = 0.4
#: Cost of a second round of tasks, in visits.
ROUND = 500_000.0
#: Work of the slowest core, as a multiple of the mean, up to which cores count as equally busy.
EVEN = 1.1


@dataclass(frozen=True)
class DealDecision:
    """The decision whether to deal events out, and its reason.

    Attributes
    ----------
    dealt : bool
    reason : str
        "even": the cores are equally busy anyway. "cheap": they are not, but dealing would take longer.
        "skewed": they are not, and dealing pays. "asked": the caller chose it. "shards": a task should need
        few shards of an index. "unseen": to look at some events, Spark would have to compute all of them.
    skew : float, optional
        Work of the slowest core as a multiple of the mean, if events stay where they are.
    """

    dealt: bool
    reason: str
    skew: float | None = None

    def __str__(self) -> str:
        """Return the decision and its reason, as the plan of the result shows them."""
        seen = "" if self.skew is None else f", slowest core {self.skew:.2f} times the mean"
        return f"{'deal out' if self.dealt else 'match where they are'} ({self.reason}{seen})"


def decide(work: Work, cores: int) -> DealDecision:
    """Compare the time until the slowest core is done, with and without dealing."""
    search = work.visits + HIT * work.hits
    total = READ * work.events + search
    mean = float(total.sum()) / cores
    here = slowest(total, cores)
    skew = here / mean if mean else 1.0
    if skew <= EVEN:
        return DealDecision(False, "even", skew)
    sent = slowest((READ + SEND) * work.events, cores)
    moved = sent + float((TAKE * work.events + search).sum()) / cores + ROUND
    return DealDecision(True, "skewed", skew) if moved < here else DealDecision(False, "cheap", skew)


def slowest(work: FloatArray, cores: int) -> float:
    """Return the work of the busiest of several cores that take one partition after the other."""
    loads = [0.0] * cores
    for one in work.tolist():
        heapq.heappushpop(loads, loads[0] + one)
    return max(loads)


def choose(
    events: DataFrame, route: Route, layout: Layout, reader: TaskEventReader, balance: Balance
) -> DealDecision:
    """Decide for a frame; with "auto" after a look at some of its events."""
    known = settled(events, route, balance)
    if known is not None:
        return known
    work = look(events, route, layout, reader)
    if work is None:  # a stream cannot be dealt out; other frames could have all their events in one place
        return DealDecision(not events.isStreaming, "unseen")
    return decide(work, cores_of(events))


def checked(balance: Balance) -> Balance:
    """Return `balance`. Raises `ValueError` unless it is True, False or "auto"."""
    if isinstance(balance, bool) or balance == "auto":
        return balance
    raise ValueError(f'balance is True, False or "auto", not {balance!r}')


def settled(events: DataFrame, route: Route, balance: Balance) -> DealDecision | None:
    """Return the decision if it does not depend on the work of the events."""
    if balance != "auto":
        return DealDecision(balance, "asked")
    if len(route.leases) > 1:
        return DealDecision(True, "shards")
    return DealDecision(False, "even", 1.0) if cores_of(events) == 1 else None  # one core waits for no other


def cores_of(events: DataFrame) -> int:
    """Return how many tasks run at a time."""
    return int(events.sparkSession.sparkContext.defaultParallelism)
