"""The result of a replay, as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rtfilter.adaptive import Controller, powers_of_two
from rtfilter.basics.text import numbered
from rtfilter.replay.machine import describe
from rtfilter.replay.output import Row, table


@dataclass
class ReplayReport:
    """The result of a replay.

    Attributes
    ----------
    workload : str
        Name of the workload.
    settings : ReplaySettings
    names : list of str
        Names of the contenders in the order of the report, with the peer last.
    rows : list of dict
        One row per burst and contender: ``burst``, ``contender``, ``size`` (events), ``response`` (mean,
        seconds), ``level``, ``group``, ``estimation`` (seconds), ``estimation_visits`` and ``visits``. The
        peer has None from ``level`` on.
    checked : int
        Number of events whose matches were compared with brute force.
    matches : int
        Number of matches of all bursts, each burst counted once.
    updates : int
        Number of subscriptions that came or went.
    index : dict
        Statistics of the filter at the end, see `EventFilter.stats`.
    controllers : dict
        Snapshot of each controller at the end, by the name of its contender.
    """

    workload: str
    settings: ReplaySettings
    names: list[str]
    rows: list[Row] = field(default_factory=list)
    checked: int = 0
    matches: int = 0
    updates: int = 0
    index: dict[str, Any] = field(default_factory=dict)
    controllers: dict[str, Any] = field(default_factory=dict)

    @property
    def bursts(self) -> int:
        """Number of complete bursts."""
        return 1 + max((row["burst"] for row in self.rows), default=-1)

    def summary(self) -> list[Row]:
        """Return a row for each contender.

        ``response_us`` is the mean response of all events in microseconds, ``settled_us`` that of the second
        half of the bursts. ``peer_ratio`` compares the peer with the contender on the bursts that both ran:
        above 1 the contender is faster. ``plans`` is the last plan by burst size.
        """
        return [self._summary(name) for name in self.contenders]

    @property
    def contenders(self) -> list[str]:
        """Names of the contenders that have rows, the peer last."""
        return sorted({row["contender"] for row in self.rows}, key=self.names.index)

    def _summary(self, name: str) -> Row:
        own = [row for row in self.rows if row["contender"] == name]
        events = sum(row["size"] for row in own)
        peer = {row["burst"]: row for row in self.rows if row["contender"] == PEER}
        shared = [row for row in own if row["burst"] in peer]
        theirs = sum(peer[row["burst"]]["response"] * row["size"] for row in shared)
        ours = sum(row["response"] * row["size"] for row in shared)
        late = [row for row in own if row["burst"] >= self.bursts // 2 and name != PEER]
        return {
            "contender": name,
            "bursts": len(own),
            "events": events,
            "response_us": 1e6 * sum(row["response"] * row["size"] for row in own) / events,
            "settled_us": _mean_us(late),
            "peer_ratio": theirs / ours if shared and name != PEER else None,
            "plans": _plans(own),
        }

    def text(self) -> str:
        """Return the summary as a table with a heading."""
        index = self.index
        bursts = numbered(self.bursts, "burst")
        if self.bursts < self.settings.bursts:
            bursts = f"interrupted after {self.bursts:,} of {self.settings.bursts:,} bursts"
        heading = (
            f"{self.workload}: {numbered(index['subscriptions'], 'subscription')}, "
            f"matcher {index['matcher']['name']}, {numbered(index['dimensions'], 'dimension')}, "
            f"height {index['height']}; {bursts}, {numbered(self.matches, 'match')}, "
            f"{numbered(self.updates, 'update')}; "
            f"{numbered(self.checked, 'event')} checked against brute force"
        )
        columns = {
            "contender": "contender",
            "events": "events",
            "response_us": "mean response µs",
            "settled_us": "second half µs",
            "peer_ratio": "times rtree on its bursts",
            "plans": "last plans (events: level/group)",
        }
        if PEER not in self.contenders:
            del columns["peer_ratio"]
        notes = (
            "" if PEER not in self.contenders else f"\n(rtree ran every {self.settings.peer_every}th burst)"
        )
        return f"{heading}\n{table(self.summary(), columns)}{notes}"

    def to_json(self) -> dict[str, Any]:
        """Return the whole report, its summary and the machine, as JSON-able data."""
        return {**asdict(self), "machine": describe(), "summary": self.summary()}

    def write_csv(self, path: Path) -> None:
        """Write `rows` to a CSV file with a header."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)


class ReplayInterrupted(KeyboardInterrupt):
    """A replay was interrupted.

    Attributes
    ----------
    report : ReplayReport
        Of the complete bursts, at least one.
    """

    def __init__(self, report: ReplayReport) -> None:
        super().__init__()
        self.report = report


def size_class(row: Row) -> int:
    """Return the smallest size in the class of a row's burst: a power of two, as in the controllers."""
    return powers_of_two(row["size"])


def _mean_us(rows: Sequence[Row]) -> float | None:
    """Return the mean response of all events in microseconds; None without events."""
    events = sum(row["size"] for row in rows)
    return 1e6 * sum(row["response"] * row["size"] for row in rows) / events if events else None


def _plans(rows: Sequence[Row]) -> str:
    """Return the last plan of each class of burst sizes, as text."""
    last = {size_class(row): row for row in rows if row["level"] is not None}
    return ", ".join(f"{size}: {row['level']}/{row['group'] or 'all'}" for size, row in sorted(last.items()))


PEER = "rtree, event by event"
"""Name of the peer in a report: an `rtree` index that is searched event by event."""


@dataclass(frozen=True)
class Contender:
    """A way to run bursts.

    Attributes
    ----------
    name : str
        Its name in the report.
    order : str
        The order of the events, a name of `rtfilter.scheduler.ORDERS`.
    controller : Controller
        Chooses the level and the group size of each burst.
    """

    name: str
    order: str
    controller: Controller


@dataclass(frozen=True)
class ReplaySettings:
    """The size of a replay.

    Attributes
    ----------
    subscriptions : int
        Number of subscriptions in the index when the first burst arrives.
    bursts : int
        Number of bursts.
    sizes : sequence of int
        Numbers of events of a burst. Each burst draws one of them, all with equal chance.
    poisson : float, optional
        Mean of a Poisson distribution that burst sizes are drawn from instead; a burst has at least 1 event.
    insert, delete : int
        Number of new subscriptions that are added, and of the oldest ones that are removed, after each burst.
    check : int
        Events per burst whose matches are compared with brute force.
    check_every : int
        At least 1. Brute force checks the bursts whose numbers, from 0 on, are multiples of this.
    peer_every : int
        The peer runs the bursts whose numbers, from 0 on, are multiples of this; 0: none.
    seed : int
        Seed of the burst sizes, and of the choice of events that are compared with brute force.
    """

    subscriptions: int
    bursts: int
    sizes: Sequence[int] = (16, 128, 1024)
    poisson: float | None = None
    insert: int = 0
    delete: int = 0
    check: int = 1
    check_every: int = 1
    peer_every: int = 0
    seed: int = 1
