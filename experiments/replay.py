"""Replaying a workload: bursts of events against a changing set of subscriptions, several contenders.

Every contender gets every burst on the same index, in turn, so that they differ in order and grouping alone.
A contender is a policy with a controller; `rtree` asked event by event may join as the peer.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from adaptive import Controller, powers_of_two
from experiments.machine import describe
from experiments.mirror import Mirror
from experiments.output import Row, save_picture, table
from experiments.workloads import Bounds, IntArray, Workload
from rtfilter import EventFilter
from rtfilter.events import EventTable
from rtfilter.predicate import Predicate, parse
from scheduler import resolve

PEER = "rtree, event by event"


@dataclass(frozen=True)
class Contender:
    """A way to run a burst: its name, the order of events, and what chooses level and group size."""

    name: str
    policy: str
    controller: Controller


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


def replay(
    workload: Workload,
    settings: Settings,
    contenders: Sequence[Contender],
    filter: EventFilter,
    progress: bool = False,
) -> Report:
    """Run a replay on an empty filter over the workload's schema.

    Raises `AssertionError` when a contender's matches differ from brute force or from each other: then the
    numbers would mean nothing.
    """
    report = Report(workload.name, settings, [*(contender.name for contender in contenders), PEER])
    rng = np.random.default_rng(settings.seed)
    sizes = _sizes(settings, rng)
    supply = _Supply(workload, settings.subscriptions + settings.bursts * settings.insert)
    oracle = _Oracle(filter)
    live = oracle.subscribe(supply.take(settings.subscriptions)).tolist()
    mirror = None
    if settings.peer_every:
        with _bar("rtree takes over", len(filter.tree.content()[0]), progress) as bar:
            mirror = Mirror(filter, bar.update)
    _warm_up(filter, workload)
    event = 0
    with _bar(f"replaying {workload.name}", settings.bursts, progress) as bar:
        for burst, size in enumerate(sizes):
            events = filter.schema.read(workload.events(event, size))
            event += size
            answers = []
            for i in range(len(contenders)):  # in turn: who is first finds cold caches
                contender = contenders[(burst + i) % len(contenders)]
                row, answer = _run(filter, contender, events)
                report.rows.append({"burst": burst, "contender": contender.name, "size": size, **row})
                answers.append(answer)
            assert all(answer == answers[0] for answer in answers), "contenders disagree"
            report.matches += sum(map(len, answers[0]))
            report.checked += oracle.check(events, answers[0], settings.check, rng)
            if mirror is not None and burst % settings.peer_every == 0:
                ended, boxes = mirror.response(events.points)
                assert all(a <= b for a, b in zip(answers[0], boxes, strict=True)), "rtree disagrees"
                report.rows.append(
                    {"burst": burst, "contender": PEER, "size": size, **_row(float(ended.mean()))}
                )
            if settings.insert or settings.delete:
                new = oracle.subscribe(supply.take(settings.insert))
                gone = np.array(live[: settings.delete], np.int64)
                oracle.unsubscribe(gone)
                if mirror is not None:
                    mirror.add(new)
                    mirror.remove(gone)
                live = live[len(gone) :] + new.tolist()
                changes = len(new) + len(gone)
                report.updates += changes
                for contender in contenders:
                    if contender.controller is not filter.controller:  # which the filter has told
                        contender.controller.on_update(changes)
            bar.update()
    report.index = filter.stats()
    report.controllers = {contender.name: contender.controller.snapshot() for contender in contenders}
    return report


def _sizes(settings: Settings, rng: np.random.Generator) -> list[int]:
    if settings.poisson is None:
        return [int(size) for size in rng.choice(np.array(settings.sizes), settings.bursts)]
    return [max(1, int(size)) for size in rng.poisson(settings.poisson, settings.bursts)]


def _bar(text: str, total: int, progress: bool) -> Any:
    return tqdm(total=total, desc=text, disable=not progress, leave=False)


def _warm_up(filter: EventFilter, workload: Workload) -> None:
    """Load the kernels before anything is timed."""
    list(filter.stream(workload.events(0, 4)))


def _row(response: float, level: int | None = None, group: int | None = None, **more: Any) -> Row:
    return {
        "response": response,
        "level": level,
        "group": group,
        "estimation": more.get("estimation"),
        "estimation_visits": more.get("estimation_visits"),
        "visits": more.get("visits"),
    }


def _run(filter: EventFilter, contender: Contender, events: EventTable) -> tuple[Row, list[set[int]]]:
    """One burst for one contender: what it took and what it found."""
    filter.policy, filter.controller = resolve(contender.policy), contender.controller
    stream = filter.stream(events)
    answers: list[set[int]] = [set()] * len(stream)
    released = list(stream)
    for completion in released:
        answers[completion.event] = set(completion.ids.tolist())
    row = _row(
        stream.mean_response,
        stream.plan.level,
        stream.plan.group,
        estimation=stream.estimation,
        estimation_visits=stream.estimation_visits,
        visits=int(stream.visits.sum()),
    )
    return row, answers


class _Supply:
    """The subscriptions of a replay, drawn and parsed before anything is timed."""

    def __init__(self, workload: Workload, count: int) -> None:
        drawn = workload.subscriptions(0, count)
        self._drawn: Bounds | list[Predicate] = (
            drawn if isinstance(drawn, Bounds) else [parse(source, workload.schema) for source in drawn]
        )
        self._used = 0

    def take(self, count: int) -> Bounds | list[Predicate]:
        """The next subscriptions."""
        rows = slice(self._used, self._used + count)
        self._used += count
        if isinstance(self._drawn, Bounds):
            return Bounds(self._drawn.low[rows], self._drawn.high[rows])
        return self._drawn[rows]


class _Oracle:
    """Subscribes a filter, and knows by brute force what it must answer."""

    def __init__(self, filter: EventFilter) -> None:
        self._filter = filter
        self._predicates: dict[int, Predicate] = {}
        self._low = self._high = np.empty((0, len(filter.schema.names)))
        self._ids = np.empty(0, np.int64)

    def subscribe(self, chosen: Bounds | list[Predicate]) -> IntArray:
        """Add subscriptions to both; their ids."""
        if isinstance(chosen, Bounds):
            ids = self._filter.subscribe_many(chosen.low, chosen.high)
            self._low = np.concatenate([self._low, chosen.low])
            self._high = np.concatenate([self._high, chosen.high])
            self._ids = np.concatenate([self._ids, ids])
            return ids
        ids = self._filter.subscribe_many(chosen)
        self._predicates.update(zip(ids.tolist(), chosen, strict=True))
        return ids

    def unsubscribe(self, ids: IntArray) -> None:
        """Remove subscriptions from both."""
        self._filter.unsubscribe_many(ids)
        keep = ~np.isin(self._ids, ids)
        self._low, self._high, self._ids = self._low[keep], self._high[keep], self._ids[keep]
        for id in ids.tolist():
            self._predicates.pop(id, None)

    def check(
        self, events: EventTable, answers: Sequence[set[int]], count: int, rng: np.random.Generator
    ) -> int:
        """Compare the answers to some events with brute force; how many."""
        rows = rng.permutation(len(events))[:count]
        for row in rows.tolist():
            if self._predicates:
                event = events.row(row)
                expected = {id for id, predicate in self._predicates.items() if predicate.matches(event)}
            else:
                point = events.points[row]
                inside = ((self._low <= point) & (point <= self._high)).all(axis=1)
                expected = set(self._ids[inside].tolist())
            assert answers[row] == expected, f"event {row}: {answers[row] ^ expected} against brute force"
        return len(rows)


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
