"""What a replay found: a table, JSON, CSV and a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rtfilter.adaptive import powers_of_two
from rtfilter.replay.machine import describe
from rtfilter.replay.output import Row, save_picture, table

#: Name of the peer, an `rtree` index asked event by event.
PEER = "rtree, event by event"


@dataclass(frozen=True)
class Settings:
    """What is replayed.

    Attributes
    ----------
    subscriptions : int
        In the index when the first burst arrives.
    bursts : int
    sizes : sequence of int
        Events of a burst, drawn from these with equal chance.
    poisson : float, optional
        Instead of `sizes`: mean of a Poisson distribution, empty bursts left out.
    insert, delete : int
        Subscriptions that come (new ones) and go (the oldest) between two bursts.
    check : int
        Events per burst whose matches are compared with brute force.
    peer_every : int
        The peer joins every so many bursts; 0: never.
    seed : int
    """

    subscriptions: int
    bursts: int
    sizes: Sequence[int] = (16, 128, 1024)
    poisson: float | None = None
    insert: int = 0
    delete: int = 0
    check: int = 1
    peer_every: int = 0
    seed: int = 1


@dataclass
class Report:
    """What came out: one row per burst and contender."""

    workload: str
    settings: Settings
    names: list[str]
    rows: list[Row] = field(default_factory=list)
    checked: int = 0
    matches: int = 0
    updates: int = 0
    index: dict[str, Any] = field(default_factory=dict)
    controllers: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> list[Row]:
        """Per contender: mean response over all events, and beside the peer on the bursts both ran."""
        return [self._summary(name) for name in self.contenders]

    @property
    def contenders(self) -> list[str]:
        """Names, those asked for first, the peer last."""
        return sorted({row["contender"] for row in self.rows}, key=self.names.index)

    def _summary(self, name: str) -> Row:
        own = [row for row in self.rows if row["contender"] == name]
        events = sum(row["size"] for row in own)
        peer = {row["burst"]: row for row in self.rows if row["contender"] == PEER}
        shared = [row for row in own if row["burst"] in peer]
        theirs = sum(peer[row["burst"]]["response"] * row["size"] for row in shared)
        ours = sum(row["response"] * row["size"] for row in shared)
        late = [row for row in own if row["burst"] >= self.settings.bursts // 2 and name != PEER]
        return {
            "contender": name,
            "bursts": len(own),
            "events": events,
            "response_us": 1e6 * sum(row["response"] * row["size"] for row in own) / events,
            "settled_us": _weighted(late),
            "peer_ratio": theirs / ours if shared and name != PEER else None,
            "plans": _plans(own),
        }

    def text(self) -> str:
        """The report as a table with a heading."""
        index = self.index
        heading = (
            f"{self.workload}: {index['subscriptions']:,} subscriptions, {index['dimensions']} dimensions, "
            f"height {index['height']}; {self.settings.bursts} bursts, {self.matches:,} matches, "
            f"{self.updates:,} updates; {self.checked:,} events checked against brute force"
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
        """All of it, JSON-able, with the machine."""
        return {**asdict(self), "machine": describe(), "summary": self.summary()}

    def write_csv(self, path: Path) -> None:
        """One line per burst and contender."""
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)


def _size_class(row: Row) -> int:
    return powers_of_two(row["size"])


def _weighted(rows: Sequence[Row]) -> float | None:
    events = sum(row["size"] for row in rows)
    return 1e6 * sum(row["response"] * row["size"] for row in rows) / events if events else None


def _plans(rows: Sequence[Row]) -> str:
    """The last plan of each class of burst size."""
    last = {_size_class(row): row for row in rows if row["level"] is not None}
    return ", ".join(f"{size}: {row['level']}/{row['group'] or 'all'}" for size, row in sorted(last.items()))


def draw(reports: Sequence[Report], path: Path) -> None:
    """The picture of some replays: mean response by burst size, and the adaptive plan over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2 * len(reports)), layout="constrained")
    axes = figure.subplots(len(reports), 2, squeeze=False)
    for (left, right), report in zip(axes, reports, strict=True):
        _draw_response(left, report)
        _draw_plans(right, report)
    save_picture(figure, path, dpi=110)


def _draw_response(axes: Any, report: Report) -> None:
    names = report.contenders
    classes = sorted({_size_class(row) for row in report.rows})
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        means = []
        for size in classes:
            own = [
                row["response"]
                for row in report.rows
                if row["contender"] == name and _size_class(row) == size
            ]
            means.append(np.mean(own) * 1e3 if own else np.nan)
        bars = axes.bar(
            np.arange(len(classes)) + (i - (len(names) - 1) / 2) * width, means, width, label=name
        )
        axes.bar_label(bars, [f"{mean:.2g}" if mean < 100 else f"{mean:.0f}" for mean in means], fontsize=7)
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(classes)), [f"{size:,}" for size in classes])
    axes.set_xlabel("events in a burst")
    axes.set_ylabel("mean response, ms")
    axes.set_title(f"{report.workload}: {report.index['subscriptions']:,} subscriptions", loc="left")
    axes.margins(y=0.15)
    axes.legend(fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_plans(axes: Any, report: Report) -> None:
    """Each burst of the first adaptive contender as a dot: its group size, and its level as the shape."""
    name = "adaptive" if "adaptive" in report.contenders else report.contenders[0]
    own = [row for row in report.rows if row["contender"] == name]
    classes = sorted({_size_class(row) for row in own})
    shapes = "osD^vP*X"
    for i, size in enumerate(classes):
        for level in sorted({row["level"] for row in own}):
            rows = [row for row in own if _size_class(row) == size and row["level"] == level]
            shift = 1.12 ** (i - (len(classes) - 1) / 2)  # classes beside each other, not on each other
            axes.plot(
                [row["burst"] for row in rows],
                [(row["group"] or row["size"]) * shift for row in rows],
                ls="",
                marker=shapes[level % len(shapes)],
                ms=4,
                mew=0,
                alpha=0.75,
                color=f"C{i}",
                label=f"{size:,} events, level {level}",
            )
    axes.set_yscale("log", base=2)
    axes.set_xlabel("burst")
    axes.set_ylabel("events in a group")
    axes.set_title(f"{name}: plans tried and settled on", loc="left")
    axes.legend(fontsize=7, frameon=False, ncols=max(1, len(classes)), loc="upper center")
    axes.margins(y=0.25)
    axes.spines[["top", "right"]].set_visible(False)
